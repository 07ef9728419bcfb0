"""Biases: what is added to a score by the two positions alone, one formula an encoding. Offsets o are key - query.

ALiBi       -m_h |o|, with slopes of their own for keys ahead if asymmetric
T5          table[bucket(o), h]
KERPLE      -r1 log(1 + r2 |o|), or -r1 |o|^r2; both numbers held within their range, with a gradient as if not
Sandwich    sum_k cos(o base^(-2k / D)) / (8 h / H)
Swin        table[row(-o), h], or 16 sigmoid(W2 relu(W1 x(-o) + b1))
FIRE        W2 relu(w1 x + b1),  x = psi(|o|) / (psi(max(L, i)) + 1e-6),  psi(d) = log(1 + |c| d)
MLP         W_out silu(norm(W x + b)) of one or more such layers,  x = sign(-o) log(1 + |o|)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import situs
from tests.fuzz.oracle_tokens import Pairs
from tests.fuzz.own_encodings import Blocked, Ripple
from tests.fuzz.rounding import Reader


def alibi(encoding: Any, pairs: Pairs, read: Reader) -> Tensor:
    heads = slice(encoding.first_head, encoding.first_head + encoding.num_heads)
    total = encoding.num_heads if encoding.all_heads is None else encoding.all_heads
    behind = torch.tensor(encoding.slopes or alibi_slopes(total, encoding.bias_max), dtype=torch.float64)
    behind = (behind * encoding.factor)[heads]
    ahead = behind
    if encoding.slopes_ahead is not None:
        ahead = (torch.tensor(encoding.slopes_ahead, dtype=torch.float64) * encoding.factor)[heads]
    if encoding.learned:
        behind = read(encoding.behind)
        ahead = read(encoding.ahead) if encoding.asymmetric else behind
    offsets = pairs.offsets[:, None].double()
    slopes = torch.where(offsets > 0, _by_head(ahead), _by_head(behind))
    return -slopes * offsets.abs()


def alibi_slopes(heads: int, bias_max: float) -> list[float]:
    """2^(-B h / P) for the power of two P below, then every other one of 2 P."""
    power = 2 ** int(math.log2(heads))
    first = [2 ** (-bias_max * head / power) for head in range(1, power + 1)]
    more = [2 ** (-bias_max * head / (2 * power)) for head in range(1, 2 * power, 2)]
    return (first + more)[:heads]


def t5(encoding: Any, pairs: Pairs, read: Reader) -> Tensor:
    row = clipped_row if encoding.buckets == "clipped" else t5_row
    offsets, where = pairs.offsets.unique(return_inverse=True)
    rows = torch.tensor([row(encoding, each) for each in offsets.tolist()], dtype=torch.int64)
    return read(encoding.table)[rows][where].movedim(-1, 1)


def t5_row(encoding: Any, offset: int) -> int:
    """Single distances below E, then those that grow by a factor. The logarithm's floor is taken in whole numbers."""
    return log_row(offset, encoding.num_buckets, encoding.max_distance, encoding.bidirectional)


def log_row(offset: int, buckets: int, farthest: int, bidirectional: bool) -> int:
    first, distance = 0, max(-offset, 0)
    if bidirectional:
        buckets //= 2
        first, distance = (buckets if offset > 0 else 0), abs(offset)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    steps = buckets - exact
    # floor(steps log(distance / exact) / log(farthest / exact))
    reached = [t for t in range(steps) if distance**steps * exact**t >= farthest**t * exact**steps]
    return first + exact + max(reached)


def clipped_row(encoding: Any, offset: int) -> int:
    far: int = encoding.max_distance
    return max(-far, min(far, offset)) + far if encoding.bidirectional else min(max(-offset, 0), far)


def kerple(encoding: Any, pairs: Pairs, read: Reader) -> Tensor:
    r1 = _held(read(encoding.r1), None)
    r2 = _held(read(encoding.r2), 2.0 if encoding.kernel == "power" else None)
    distance = pairs.offsets[:, None].double().abs()
    if encoding.kernel == "log":
        return -_by_head(r1) * torch.log(1 + _by_head(r2) * distance)
    apart = torch.where(distance > 0, distance, 1.0)
    return torch.where(distance > 0, -_by_head(r1) * apart ** _by_head(r2), 0.0)


def _held(value: Tensor, most: float | None) -> Tensor:
    return value + (value.clamp(0.01, most) - value).detach()


def sandwich(encoding: Any, pairs: Pairs, read: Reader) -> Tensor:
    offsets, where = pairs.offsets.double().unique(return_inverse=True)
    dim, heads = encoding.cosine_dim, encoding.num_heads
    waves = [torch.cos(offsets * encoding.base ** (-2 * k / dim)) for k in range(dim // 2)]
    ratios = 8 * torch.arange(1, heads + 1, dtype=torch.float64) / heads
    return torch.stack(waves).sum(0)[where][:, None] / _by_head(ratios)


def fire(encoding: Any, pairs: Pairs, read: Reader) -> Tensor:
    hidden = read.rounded(torch.relu(_fire_parts(encoding, pairs, read).sum(-1)))
    return (hidden @ read(encoding.out.weight).T).movedim(-1, 1)


def _fire_parts(encoding: Any, pairs: Pairs, read: Reader) -> Tensor:
    """``w1 x`` and ``b1`` of every hidden unit. Shape: (rows, n, m, width, 2)."""
    c, longest = read(encoding.c).abs(), (read(encoding.threshold_factor) * encoding.threshold).abs()
    position = pairs.query.ids.double()[:, :, None]
    near = read.rounded(torch.log(1 + c * pairs.offsets.double().abs()))
    far = read.rounded(torch.log(1 + c * torch.maximum(position, longest)) + 1e-6)
    weighted = (near / far)[..., None] * read(encoding.hidden.weight)[:, 0]
    return torch.stack((weighted, read(encoding.hidden.bias).expand(weighted.shape)), -1)


def fire_margin(encoding: Any, pairs: Pairs, read: Reader) -> Tensor:
    """How near a pair comes to where some hidden unit turns, as a part of its sum. Shape: (rows, 1, n, m)."""
    with torch.no_grad():
        parts = _fire_parts(encoding, pairs, read)
        return (parts.sum(-1).abs() / parts.abs().sum(-1)).amin(-1)[:, None]


def mlp(encoding: Any, pairs: Pairs, read: Reader) -> Tensor:
    offsets, where = pairs.offsets.double().unique(return_inverse=True)
    x = read.rounded(-offsets.sign() * torch.log(1 + offsets.abs()))[:, None]
    for number, layer in enumerate(encoding.hidden):
        x = read.rounded(x @ read(layer.weight).T + read(layer.bias))
        if encoding.norm:
            norm, centred = encoding.norms[number], x - x.mean(-1, keepdim=True)
            x = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
            x = read.rounded(x * read(norm.weight) + read(norm.bias))
        x = read.rounded(x * torch.sigmoid(x))
    return (x @ read(encoding.out.weight).T)[where].movedim(-1, 1)


def swin(encoding: Any, pairs: Pairs, read: Reader) -> Tensor:
    height, width = encoding.window
    apart = -pairs.offsets  # query minus key, as released tables are laid out; only padding can lie outside
    down, right = apart[..., 0].clamp(1 - height, height - 1), apart[..., 1].clamp(1 - width, width - 1)
    if encoding.version == "v1":
        rows = (down + height - 1) * (2 * width - 1) + right + width - 1
        return read(encoding.table)[rows].movedim(-1, 1)
    trained = encoding.window if encoding.trained_window is None else encoding.trained_window
    shown = []
    for distance, size in zip((down, right), trained, strict=True):
        share = distance.double() * 8 / max(size - 1, 1)
        shown.append(share.sign() * torch.log2(1 + share.abs()) / 3)
    seen = read.rounded(torch.stack(shown, -1))
    hidden = torch.relu(read.rounded(seen @ read(encoding.hidden.weight).T + read(encoding.hidden.bias)))
    return (16 * torch.sigmoid(read.rounded(hidden @ read(encoding.out.weight).T))).movedim(-1, 1)


def boxes(encoding: Any, pairs: Pairs, read: Reader) -> Tensor:
    tables, total = read(encoding.table).split(list(encoding.num_buckets)), torch.zeros((), dtype=torch.float64)
    for axis, (table, farthest) in enumerate(zip(tables, encoding.max_distance, strict=True)):
        offsets, where = pairs.offsets[..., axis].unique(return_inverse=True)
        rows = torch.tensor([log_row(each, len(table), farthest, True) for each in offsets.tolist()], dtype=torch.int64)
        total = total + encoding.factor * table[rows][where].movedim(-1, 1)
    return total


def blocked(encoding: Any, pairs: Pairs, read: Reader) -> Tensor:
    offsets = pairs.offsets[:, None]
    hidden = {
        "band": offsets.abs() > encoding.reach,
        "ahead": (offsets > 0) | (offsets.abs() > encoding.reach),
        "stride": offsets % encoding.reach != 0,
        "near": offsets.abs() < encoding.reach,
    }[encoding.kind]
    return torch.where(hidden, -math.inf, -_by_head(read(encoding.slope)) * offsets.double().abs() / 50)


def ripple(encoding: Any, pairs: Pairs, read: Reader) -> Tensor:
    query, key = pairs.query.ids.double()[:, None, :, None], pairs.key.ids.double()[:, None, None, :]
    return _by_head(read(encoding.amplitude)) * torch.cos(0.3 * query + 0.7 * key)


def _by_head(numbers: Tensor) -> Tensor:
    return numbers[:, None, None]


BIASES: dict[type, Callable[[Any, Pairs, Reader], Tensor]] = {
    situs.ALiBi: alibi,
    situs.T5Bias: t5,
    situs.Kerple: kerple,
    situs.Sandwich: sandwich,
    situs.Fire: fire,
    situs.MLPBias: mlp,
    situs.SwinBias: swin,
    situs.Boxes: boxes,
    Blocked: blocked,
    Ripple: ripple,
}
"""From (encoding, pairs, read) to what is added to the scores. Shape: (rows, h, n, m)."""
