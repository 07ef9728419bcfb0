"""The oracle: attention with any encodings, in float64, dense, from formulas alone.

    score[i, j] = scale q'_i . k'_j + terms(i, j) + biases(i, j),  where q' and k' may differ by band of distance
    capped      = softcap tanh(score / softcap), or the score; -inf stays
    out[i]      = sum over the keys that i sees of softmax(capped + mask)[i, j] (v_j + r(i, j));   0 where i sees none

A sink is one more score of each row, whose value is 0.

It reads options and parameters of encodings and the fields of positions, and calls no code of the package: neither a
kernel, nor the reference attention, nor an encoding. Gradients are torch's own, of these formulas.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import situs
from tests.fuzz.oracle_bands import has_bands, in_bands
from tests.fuzz.oracle_biases import BIASES, fire_margin
from tests.fuzz.oracle_features import prepared
from tests.fuzz.oracle_rotations import lerope, pope, rope_mixed, rotary, softmax_factor, temperature, xpos
from tests.fuzz.oracle_scores import TERMS, Inputs, cope_margin, shaw_gathered
from tests.fuzz.oracle_tokens import Pairs, visible
from tests.fuzz.own_encodings import Gain
from tests.fuzz.rounding import Reader, Rounding

BEFORE = (situs.NoPE, situs.Learned, situs.LearnedGrid, situs.Sinusoidal)
"""Encodings that act before attention, or nowhere."""


@dataclass(frozen=True)
class Call:
    """What is asked besides tensors and positions."""

    causal: bool = False
    window: int | None = None
    mask: Tensor | None = None
    scale: float | None = None
    chunk: int | None = None
    softcap: float | None = None
    sinks: Tensor | None = None


@dataclass(frozen=True)
class Attended:
    """What attention gives. Shapes: out (b, h, n, dv)."""

    out: Tensor
    margin: float
    """How near some seen pair comes to where a derivative jumps, as a part of the number that jumps."""


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    encodings: Sequence[Any],
    pairs: Pairs,
    call: Call,
    find: Callable[[Tensor], Tensor],
    rounding: Rounding | None = None,
    features: Mapping[str, Tensor] | None = None,
) -> Attended:
    """Attend; ``find`` gives the numbers that stand for a parameter.

    Shapes: query (b, h, n, d), key (b, hk, m, d), value (b, hk, m, dv), features (b, h, n or m, width), all float64.
    """
    read = Reader(find, rounding)
    query, key, value = _real(query, pairs.query.valid), _real(key, pairs.key.valid), _real(value, pairs.key.valid)
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    seen = visible(pairs.query, pairs.key, causal=call.causal, window=call.window, chunk=call.chunk)[:, None]
    added = torch.zeros((), dtype=torch.float64)
    if call.mask is not None:
        mask = call.mask.reshape((1,) * (4 - call.mask.ndim) + tuple(call.mask.shape))
        seen = seen & (mask if mask.dtype == torch.bool else mask > -math.inf)
        added = added if mask.dtype == torch.bool else torch.where(seen, mask.double(), 0.0)
    scale = softmax_scale(encodings, query.shape[-1], call.scale)
    inputs = Inputs(query, key, pairs, scale, seen, prepared(features or {}, encodings, pairs, read), call.chunk)
    scores = _products(query, key, encodings, pairs, scale, read)
    margin = math.inf
    for each in encodings:
        if type(each) in TERMS:
            term = TERMS[type(each)](each, inputs, read)
        elif type(each) in BIASES:
            term = BIASES[type(each)](each, pairs, read)
        else:
            continue
        scores = scores + (term if rounding is None else rounding.of_term(term))
        margin = min(margin, _margin(each, inputs, read))
    if call.softcap is not None:
        scores = scores if rounding is None else rounding.of_wide(scores)
        hidden = scores == -math.inf  # by a bias
        bounded = torch.tanh(scores / call.softcap) if rounding is None else rounding.of_tanh(scores / call.softcap)
        scores = torch.where(hidden, scores, call.softcap * bounded)
    scores = scores + added
    if rounding is not None:
        scores = rounding.of_wide(scores)
    sinks = None if call.sinks is None else call.sinks[None, :, None, None]
    weights = _softmax(torch.where(seen, scores, -math.inf), sinks)

    maps = [each for each in encodings if isinstance(each, situs.RotaryValue)]
    for each in maps:
        value = rotary(each.rotary, value, pairs.key)

    def gather(weights: Tensor, value: Tensor) -> Tensor:
        out = weights @ value
        for each in encodings:
            if isinstance(each, situs.Shaw) and each.values:
                out = out + shaw_gathered(each, weights, pairs, read)
        for each in maps:
            out = rotary(each.rotary, out, pairs.query, back=True) if each.rotate_back else out
        return out

    out = gather(weights, value) if rounding is None else rounding.of_gathered(scores, weights, value, gather)
    return Attended(out, margin)


def softmax_scale(encodings: Sequence[Any], head_dim: int, given: float | None) -> float:
    """The caller's, to the letter; else the method's own, or 1 / sqrt(d), times the factors of scalings."""
    if given is not None:
        return given
    declared = {each for each in map(declared_scale, encodings) if each is not None}
    assert len(declared) <= 1, declared
    own = declared.pop() if declared else 1 / math.sqrt(head_dim)
    return own * math.prod(map(softmax_factor, encodings))


def declared_scale(encoding: Any) -> float | None:
    """The softmax scale that a method was made for, where it is not 1 / sqrt(d)."""
    if isinstance(encoding, (situs.T5Bias, situs.ProjectedBias, situs.GatedBias)):
        return encoding.softmax_scale
    if isinstance(encoding, situs.Tupe):
        return 1 / math.sqrt(2 * encoding.head_dim)
    if isinstance(encoding, situs.Deberta):
        return 1 / math.sqrt(encoding.head_dim * (1 + len(encoding.terms)))
    return None


def _products(query: Tensor, key: Tensor, encodings: Sequence[Any], pairs: Pairs, scale: float, read: Reader) -> Tensor:
    """``scale q'_i . k'_j``, each pair with the rotations of its band. Shape: (b, h, n, m)."""
    banded = [each for each in encodings if has_bands(each)]
    assert len(banded) < 2, banded
    total = torch.zeros((), dtype=torch.float64)
    everywhere = torch.ones((), dtype=torch.bool), pairs.query, pairs.key
    for inside, of_queries, of_keys in in_bands(banded[0].scaling, pairs) if banded else (everywhere,):
        q, k = query, key
        for each in encodings:
            at = (of_queries, of_keys) if has_bands(each) else (pairs.query, pairs.key)
            q, k = _encoded(each, q, at[0], "query", read), _encoded(each, k, at[1], "key", read)
        products = (
            scale * (q @ k.transpose(-2, -1))
            if read.rounding is None
            else read.rounding.of_products(q, k, scale, inside)
        )
        total = total + torch.where(inside, products, 0.0)
    return total


def _real(x: Tensor, valid: Tensor | None) -> Tensor:
    """Padded tokens may hold anything, so nothing of them is read."""
    return x if valid is None else torch.where(valid[:, None, :, None], x, 0.0)


def _encoded(encoding: Any, x: Tensor, tokens: Any, role: str, read: Reader) -> Tensor:
    if isinstance(encoding, situs.Rotary):
        return rotary(encoding, x, tokens)
    if isinstance(encoding, situs.LeRoPE):
        return lerope(encoding, x, tokens, read)
    if isinstance(encoding, situs.RoPEMixed):
        return rope_mixed(encoding, x, tokens, read)
    if isinstance(encoding, situs.XPos):
        return xpos(encoding, x, tokens, role)
    if isinstance(encoding, situs.Temperature):
        return temperature(encoding, x, tokens, read) if role == "query" else x
    if isinstance(encoding, situs.PoPE):
        return pope(encoding, x, tokens, role, read)
    if isinstance(encoding, Gain):
        wave: Tensor = tokens.ids.double().cos()[:, None, :, None]
        return x * (1 + read(encoding.gain) * wave)
    assert type(encoding) in TERMS or type(encoding) in BIASES or isinstance(encoding, (*BEFORE, situs.RotaryValue))
    return x


def _softmax(scores: Tensor, sinks: Tensor | None) -> Tensor:
    """Softmax over the last axis and a sink; a row of -inf gives zeros."""
    if not scores.shape[-1]:
        return scores
    if sinks is not None:
        joined = torch.cat((scores, sinks.expand(*scores.shape[:3], 1)), -1)
        return torch.softmax(joined, -1)[..., :-1]
    largest = scores.detach().amax(-1, keepdim=True)
    weights = torch.exp(scores - torch.where(largest == -math.inf, 0.0, largest))
    total = weights.sum(-1, keepdim=True)
    return weights / torch.where(total == 0, 1.0, total)


def _margin(encoding: Any, inputs: Inputs, read: Reader) -> float:
    """The least distance of seen pairs to where a derivative jumps."""
    if isinstance(encoding, situs.Fire):
        found = fire_margin(encoding, inputs.pairs, read)
    elif isinstance(encoding, situs.CoPE):
        found = cope_margin(encoding, inputs)
    else:
        return math.inf
    found = torch.where(inputs.visible, found, math.inf)
    return float(found.min()) if found.numel() else math.inf
