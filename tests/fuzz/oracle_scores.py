"""Terms by content: what is added to a score by queries and keys and their positions, one formula an encoding.

    Shaw             scale q_i . a[clip(j - i)],  and values v_j + r[clip(j - i)]
    Transformer-XL   scale (q_i . W r(i - j) + u . k_j + v . W r(i - j))
    TUPE             scale p_i U . p_j U' + b[j - i];  t_h where the key is [CLS], 0 where the query is
    DeBERTa          scale (q_i . K[d(i, j)] + k_j . Q[d(i, j)] + Q[d(j, i)] . K[d(i, j)])
    ViTDet           q_i . R_h[y_i - y_j] + q_i . R_w[x_i - x_j], times scale if so made
    CoPE             scale q_i . e[p_ij],  p_ij = sum of sigmoid(scale q_i . k_l) over the visible l not before j

Shapes: q (b, h, n, d) and k (b, h, m, d), keys shared already; terms (b, h, n, m).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import situs
from tests.fuzz.oracle_biases import log_row
from tests.fuzz.oracle_features import forgetting, gated, projected
from tests.fuzz.oracle_tokens import Pairs, own_slots
from tests.fuzz.own_encodings import Fading, Swell
from tests.fuzz.rounding import Reader

TUPE_DISTANCE = 128
"""The distance from which on TUPE's relative bias has one bucket."""


@dataclass(frozen=True)
class Inputs:
    """What a term is a function of."""

    q: Tensor
    k: Tensor
    pairs: Pairs
    scale: float
    visible: Tensor
    """Shape: (b or 1, h or 1, n, m)."""

    features: Mapping[str, Tensor] = field(default_factory=dict)
    """Side inputs of tokens, by name."""
    chunk: int | None = None


def shaw(encoding: Any, inputs: Inputs, read: Reader) -> Tensor:
    if not encoding.keys:
        return torch.zeros((), dtype=torch.float64)
    return inputs.scale * _met(inputs.q, read(encoding.key_table), _shaw_rows(encoding, inputs.pairs))


def shaw_gathered(encoding: Any, weights: Tensor, pairs: Pairs, read: Reader) -> Tensor:
    """``sum_j w_ij r[clip(j - i)]``. Shapes: weights (b, h, n, m) -> (b, h, n, d)."""
    table = read(encoding.value_table)
    rows = _shaw_rows(encoding, pairs)[:, None].expand(weights.shape)
    by_row = torch.zeros(*weights.shape[:3], table.shape[1], dtype=weights.dtype).scatter_add(-1, rows, weights)
    return read.summed_of_equals(by_row @ read.gathered(table, by_row), by_row, table, weights.shape[-1])


def _shaw_rows(encoding: Any, pairs: Pairs) -> Tensor:
    behind: int = encoding.max_distance
    ahead: int = behind if encoding.max_ahead is None else encoding.max_ahead
    clipped = pairs.offsets.clamp(-behind, ahead)
    return clipped + behind if encoding.rows == "key_minus_query" else ahead - clipped


def vitdet(encoding: Any, inputs: Inputs, read: Reader) -> Tensor:
    total = torch.zeros((), dtype=torch.float64)
    for axis, table in enumerate((encoding.down_table, encoding.across_table)):
        cells = (len(table) + 1) // 2
        rows = (cells - 1 - inputs.pairs.offsets[..., axis]).clamp(0, 2 * cells - 2)  # only padding can lie outside
        total = total + _met(inputs.q, read(table)[None], rows)
    return inputs.scale * total if encoding.scaled else total


def _met(x: Tensor, table: Tensor, rows: Tensor) -> Tensor:
    """``x_i . table[row of (i, j)]``. Shapes: x (b, h, n, d), table (h or 1, rows, d), rows (b or 1, n, m)."""
    products = x @ table.transpose(-2, -1)
    return products.gather(-1, rows[:, None].expand(*x.shape[:3], rows.shape[-1]))


def transformer_xl(encoding: Any, inputs: Inputs, read: Reader) -> Tensor:
    distances, where = (-inputs.pairs.offsets).unique(return_inverse=True)
    if encoding.clamp_len is not None:
        distances = distances.clamp(-encoding.clamp_len, encoding.clamp_len)
    half = encoding.dim // 2
    w = torch.tensor([encoding.base ** (-2 * i / encoding.dim) for i in range(half)], dtype=torch.float64)
    angles = distances.double()[:, None] * w
    waves = torch.cat((angles.sin(), angles.cos()), -1)
    projected = waves @ read(encoding.projection).view(encoding.num_heads, encoding.head_dim, -1).transpose(-2, -1)
    u, v = read(encoding.content_bias)[:, None], read(encoding.position_bias)[:, None]
    of_keys = (inputs.k * u).sum(-1)[:, :, None, :]
    return inputs.scale * (_met(inputs.q + v, projected, where) + of_keys)


def tupe(encoding: Any, inputs: Inputs, read: Reader) -> Tensor:
    table = _normed(read(encoding.table), encoding.norm, read)

    def projected(ids: Tensor, projection: Any) -> Tensor:
        flat = table[ids] @ read(projection.weight).T + read(projection.bias)
        return flat.view(*ids.shape, encoding.num_heads, encoding.head_dim).transpose(1, 2)

    query, key = inputs.pairs.query.ids, inputs.pairs.key.ids
    p_query, p_key = projected(query, encoding.query_projection), projected(key, encoding.key_projection)
    term = (p_query @ p_key.transpose(-2, -1)) / math.sqrt(2 * encoding.head_dim)
    if encoding.relative_buckets is not None:
        offsets, where = inputs.pairs.offsets.unique(return_inverse=True)
        buckets = encoding.relative_buckets
        rows = torch.tensor(
            [log_row(each, buckets, TUPE_DISTANCE, True) for each in offsets.tolist()], dtype=torch.int64
        )
        term = term + read(encoding.relative)[rows][where].movedim(-1, 1)
    if encoding.untie_cls:
        term = torch.where(key[:, None, None, :] == 0, read(encoding.to_cls)[:, None, None], term)
        term = torch.where(query[:, None, :, None] == 0, 0.0, term)
    return term


def _normed(rows: Tensor, norm: Any, read: Reader) -> Tensor:
    centred = rows - rows.mean(-1, keepdim=True)
    spread: Tensor = (centred.square().mean(-1, keepdim=True) + norm.eps).sqrt()
    return centred / spread * read(norm.weight) + read(norm.bias)


def deberta(encoding: Any, inputs: Inputs, read: Reader) -> Tensor:
    table = read(encoding.table)
    if encoding.layer_norm:
        table = _normed(table, encoding.norm, read)
    of_query, of_key = (
        encoding.borrowed if encoding.share_att_key else (encoding.query_projection, encoding.key_projection)
    )

    def projected(projection: Any) -> Tensor:
        flat = table @ read(projection.weight).T
        flat = flat if projection.bias is None else flat + read(projection.bias)
        return flat.view(-1, encoding.num_heads, encoding.head_dim).transpose(0, 1)

    distances, where = (-inputs.pairs.offsets).unique(return_inverse=True)
    same, mirrored = (
        torch.tensor([deberta_row(encoding, sign * each) for each in distances.tolist()], dtype=torch.int64)
        for sign in (1, -1)
    )
    term = torch.zeros((), dtype=torch.float64)
    if "c2p" in encoding.terms:
        term = term + _met(inputs.q, projected(of_key)[:, same], where)
    if "p2c" in encoding.terms:
        rows = same if encoding.p2c_row == "same" else mirrored
        term = term + _met(inputs.k, projected(of_query)[:, rows], where.transpose(-2, -1)).transpose(-2, -1)
    if "p2p" in encoding.terms:
        term = term + (projected(of_query)[:, mirrored] * projected(of_key)[:, same]).sum(-1)[:, where].transpose(0, 1)
    return inputs.scale * term


def deberta_row(encoding: Any, distance: int) -> int:
    """The row of a distance, query minus key: ``clip(distance + half, 0, 2 half - 1)``, bucketed first in v2."""
    half: int = encoding.max_distance if encoding.buckets is None else encoding.buckets
    if encoding.buckets is not None:
        distance = log_bucket(distance, encoding.buckets, encoding.max_distance)
    return max(0, min(2 * half - 1, distance + half))


def log_bucket(distance: int, buckets: int, farthest: int) -> int:
    """Single distances up to the middle m, then ``m + ceil(log(|d| / m) / log((D - 1) / m) (m - 1))``, the ceiling
    taken in whole numbers."""
    middle, size = buckets // 2, abs(distance)
    if size <= middle:
        return distance
    steps = 0
    while steps < middle and (farthest - 1) ** steps * middle ** (middle - 1) < size ** (middle - 1) * middle**steps:
        steps += 1
    return (middle + steps) * (1 if distance > 0 else -1)


def cope(encoding: Any, inputs: Inputs, read: Reader) -> Tensor:
    counts = read.rounded(_cope_counts(encoding, inputs)).clamp(max=encoding.max_position - 1)
    products = inputs.q @ read(encoding.table).transpose(-2, -1)
    below = counts.detach().floor().long()
    above = (below + 1).clamp(max=encoding.max_position - 1)
    share = counts - below
    term = (1 - share) * products.gather(-1, below) + share * products.gather(-1, above)
    return inputs.scale * term if encoding.scaled else term


def _cope_counts(encoding: Any, inputs: Inputs) -> Tensor:
    gates = torch.sigmoid(inputs.scale * (inputs.q @ inputs.k.transpose(-2, -1))) * inputs.visible
    slots = own_slots(inputs.pairs.key)
    not_before = (slots[:, :, None] >= slots[:, None, :]).double()  # (rows, l, j)
    return gates @ not_before[:, None]


def cope_margin(encoding: Any, inputs: Inputs) -> Tensor:
    """How near a count comes to a row of the table, where its derivative jumps, as a part of the count. Counts past the
    last row have no derivative. Shape: (b, h, n, m)."""
    with torch.no_grad():
        counts = _cope_counts(encoding, inputs)
        apart = (counts - counts.round()).abs() / (1 + counts)
        past = counts - (encoding.max_position - 1)
        return torch.where(past > 0.5, torch.inf, apart)


def fading(encoding: Any, inputs: Inputs, read: Reader) -> Tensor:
    asked = torch.tanh((inputs.q * read(encoding.of_query)[:, None]).sum(-1))
    found = (inputs.k * read(encoding.of_key)[:, None]).sum(-1)
    distance = inputs.pairs.offsets.double().abs()[:, None]
    return inputs.scale * asked[..., :, None] * found[..., None, :] / (1 + distance)


def swell(encoding: Any, inputs: Inputs, read: Reader) -> Tensor:
    offsets = inputs.pairs.offsets.double()[:, None]
    if encoding.span is not None:
        offsets = offsets.clamp(-encoding.span, encoding.span)
    of_queries, of_keys, every = (
        (x * read(vector)[:, None]).sum(-1)
        for x, vector in ((inputs.q, encoding.of_query), (inputs.k, encoding.of_key), (inputs.k, encoding.every))
    )
    alone = read(encoding.tilt)[:, None, None] * offsets.abs() / (1 + offsets.abs())
    waves = of_queries[..., :, None] * (offsets / 10).cos() + of_keys[..., None, :] * (offsets / 10).sin()
    return inputs.scale * (waves + alone + every[..., None, :])


TERMS: dict[type, Callable[[Any, Inputs, Reader], Tensor]] = {
    situs.Shaw: shaw,
    situs.TransformerXL: transformer_xl,
    situs.ViTDet: vitdet,
    situs.Tupe: tupe,
    situs.Deberta: deberta,
    situs.CoPE: cope,
    situs.ProjectedBias: projected,
    situs.Forgetting: forgetting,
    situs.GatedBias: gated,
    Fading: fading,
    Swell: swell,
}
"""From (encoding, inputs, read) to what is added to the scores."""
