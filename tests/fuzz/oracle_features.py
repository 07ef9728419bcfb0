"""Terms of features: what is added to a score by side inputs of tokens, one formula an encoding.

    Projected     r_i . P[:, i - j]   for 0 <= i - j < distances, 0 elsewhere;  r_i times t(i) if so made
    Gated         g_i b(j - i), with the formula of the bias
    Forgetting    sum of max(log sigmoid(f_l), -1e5) over the real keys l with slot_j < slot_l <= slot_i,
                  those of the document and of the chunk

Shapes: features (b, h, n or m, width); terms (b, h, n, m).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

import situs
from tests.fuzz.oracle_biases import BIASES
from tests.fuzz.oracle_rotations import temperature
from tests.fuzz.oracle_tokens import Pairs, Tokens, own_slots, query_slots
from tests.fuzz.rounding import Reader

LOWEST = -1e5


def features_of(encodings: Sequence[Any]) -> dict[str, tuple[str, int]]:
    """Whose tokens a feature is of, queries' or keys', and how many numbers each has."""
    found: dict[str, tuple[str, int]] = {}
    for each in encodings:
        if isinstance(each, situs.ProjectedBias):
            found["relative"] = "query", each.rank
        elif isinstance(each, situs.GatedBias):
            found["bias_gate"] = "query", 1
        elif isinstance(each, situs.Forgetting):
            found["gate"] = "key", 1
    return found


def prepared(features: Mapping[str, Tensor], encodings: Sequence[Any], pairs: Pairs, read: Reader) -> dict[str, Tensor]:
    """Nothing of padding is read; temperatures multiply what is made for it."""
    found = {}
    for name, (role, _) in features_of(encodings).items():
        valid = (pairs.query if role == "query" else pairs.key).valid
        given = features[name]
        found[name] = given if valid is None else torch.where(valid[:, None, :, None], given, 0.0)
    if any(isinstance(each, situs.ProjectedBias) and each.tempered for each in encodings):
        for each in encodings:
            if isinstance(each, situs.Temperature):
                found["relative"] = temperature(each, found["relative"], pairs.query, read)
    return found


def projected(encoding: Any, inputs: Any, read: Reader) -> Tensor:
    behind = -inputs.pairs.offsets
    products = inputs.features["relative"] @ read(encoding.profiles)  # (b, h, n, distances)
    columns = behind.clamp(0, encoding.distances - 1)[:, None].expand(*products.shape[:3], behind.shape[-1])
    near = (behind >= 0) & (behind < encoding.distances)
    return torch.where(near[:, None], products.gather(-1, columns), 0.0)


def gated(encoding: Any, inputs: Any, read: Reader) -> Tensor:
    bias = BIASES[type(encoding.bias_by_offset)](encoding.bias_by_offset, inputs.pairs, read)
    found: Tensor = inputs.features["bias_gate"] * bias
    return found


def forgetting(encoding: Any, inputs: Any, read: Reader) -> Tensor:
    f = inputs.features["gate"].squeeze(-1)
    steps = (f.clamp(max=0) - torch.log1p(torch.exp(-f.abs()))).clamp(min=LOWEST)
    query, key = inputs.pairs.query, inputs.pairs.key
    of_queries, of_keys = query_slots(query, key), own_slots(key)
    up_to_query = read.in_float64(_summed(steps, of_queries, query, of_keys, key, inputs.chunk))
    up_to_key = read.in_float64(_summed(steps, of_keys, key, of_keys, key, inputs.chunk))
    apart = up_to_query[..., :, None] - up_to_key[..., None, :]
    return torch.where(inputs.visible, apart, 0.0)


def _summed(steps: Tensor, slots: Tensor, tokens: Tokens, key_slots: Tensor, key: Tokens, chunk: int | None) -> Tensor:
    """The numbers of all real keys of a token's document and chunk, up to its slot. Shapes: steps (b, h, m) ->
    (b, h, n)."""
    counts = key_slots[:, None, :] <= slots[:, :, None]  # (rows, n, m)
    if key.documents is not None and tokens.documents is not None:
        counts = counts & (key.documents[:, None, :] == tokens.documents[:, :, None])
    if chunk is not None:
        counts = counts & ((key.ids // chunk)[:, None, :] == (tokens.ids // chunk)[:, :, None])
    if key.valid is not None:
        counts = counts & key.valid[:, None, :]
    return (counts.double()[:, None] @ steps[..., None]).squeeze(-1)
