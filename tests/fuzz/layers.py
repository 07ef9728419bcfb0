"""The layer against the oracle: training, and decoding with a cache, in chunks, by unequal rows, with eviction.

With a cache, the oracle is asked anew for every chunk, with all the tokens so far; it knows of no cache.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

import situs
from situs import Positions
from tests.fuzz import draw_encodings
from tests.fuzz.cases import DTYPES
from tests.fuzz.judging import Expected, Report, check, gradients
from tests.fuzz.layer_cases import DIM, LayerCase, make_layer
from tests.fuzz.oracle import Call, attention
from tests.fuzz.oracle_features import features_of
from tests.fuzz.oracle_tokens import Pairs, counted
from tests.fuzz.rounding import Rounding


class Oracle:
    """The layer's formulas: projections, norms, attention, and the last projection."""

    def __init__(
        self, case: LayerCase, layer: Any, leaves_of: dict[int, Tensor], rounding: Rounding | None = None
    ) -> None:
        self.case, self.layer, self.leaves_of, self.rounding = case, layer, leaves_of, rounding

    def __call__(self, x: Tensor, source: Tensor, pairs: Pairs) -> tuple[Tensor, float]:
        """Shapes: x (b, n, dim), source (b, m, dim) -> (b, n, dim)."""
        layer, case = self.layer, self.case
        query = self._heads(self._linear(x, layer.query), case.heads, layer.query_norm)
        key = self._heads(self._linear(source, layer.key), case.kv_heads, layer.key_norm)
        value = self._heads(self._linear(source, layer.value), case.kv_heads, None)
        features = {
            name: self._feature(each, x if role == "query" else source)
            for each in layer.encodings
            for name, (role, _) in features_of([each]).items()
        }
        found = attention(
            query, key, value, list(layer.encodings), pairs, Call(case.causal, case.window), self._read, self.rounding,
            features,
        )  # fmt: skip
        return self._linear(found.out.transpose(1, 2).flatten(2), layer.out), found.margin

    def _feature(self, encoding: Any, x: Tensor) -> Tensor:
        """The numbers that tokens are projected to, or the gate 2 - a + a b c of each head's channels."""
        if not isinstance(encoding, situs.GatedBias):
            return self._heads(self._linear(x, encoding.projection), self.case.heads, None)
        numbers = torch.sigmoid(self._linear(self._heads(x, self.case.heads, None), encoding.projection))
        a, b = numbers[..., :1], numbers[..., 1:]
        assert encoding.strength is not None
        return 2 - a + a * b * self._read(encoding.strength)[:, None, None]

    def _linear(self, x: Tensor, projection: Any) -> Tensor:
        weight = self._read(projection.weight)
        out = x @ weight.T
        if self.rounding is not None:
            out = self.rounding.of_sum(out, x.abs() @ weight.abs().T)
        return out if projection.bias is None else out + self._read(projection.bias)

    def _heads(self, x: Tensor, heads: int, norm: Any) -> Tensor:
        split = x.view(*x.shape[:2], heads, -1)
        if norm is not None:
            eps = torch.finfo(DTYPES[self.case.dtype]).eps if norm.eps is None else norm.eps
            root = (split.square().mean(-1, keepdim=True) + eps).sqrt()
            normed = split / root if self.rounding is None else self.rounding.of_norm(split, root)
            split = normed * self._read(norm.weight)
        return split.transpose(1, 2)

    def _read(self, parameter: Tensor) -> Tensor:
        return self.leaves_of[id(parameter)]


def run_layer(case: LayerCase) -> Report:
    """Run a case, in training or with a cache."""
    report = Report()
    try:
        (_train if not case.chunks else _decode)(case, report)
    except Exception as error:
        report.fail(case, f"raises {type(error).__name__}: {str(error)[:300]}")
    return report


def _parameters(layer: Any) -> dict[str, Tensor]:
    """All that is learned, each once; lent projections too."""
    lent = draw_encodings.parameters_of(list(layer.encodings))
    once = {id(each): (name, each) for name, each in (*lent.items(), *layer.named_parameters())}
    return dict(once.values())


def _train(case: LayerCase, report: Report) -> None:
    layer, dtype = make_layer(case), DTYPES[case.dtype]
    x = torch.randn(case.batch, case.length, DIM, dtype=torch.float64).to(dtype).requires_grad_()
    upstream = torch.randn(x.shape, dtype=torch.float64).to(dtype)
    sources = {"x": x, **_parameters(layer)}
    of_heads = upstream.double() @ layer.out.weight.detach().double()
    of_heads = of_heads.view(case.batch, case.length, case.heads, case.head_dim).transpose(1, 2)

    def ask(rounding: Rounding | None) -> tuple[dict[str, Tensor], float]:
        leaves = {name: each.detach().double().requires_grad_() for name, each in sources.items()}
        leaves_of = {id(sources[name]): each for name, each in leaves.items()}
        whole = counted(case.length)
        out, margin = Oracle(case, layer, leaves_of, rounding)(leaves["x"], leaves["x"], Pairs(whole, whole))
        pull = upstream.double() if rounding is None else rounding.of(upstream.double())
        return {"out": out.detach(), **gradients(out, pull, leaves)}, margin

    truth = Expected(ask, dtype, {}, of_heads)
    out = layer(x)
    check(case, "out", out, truth, "layer", report)
    for name, gradient in gradients(out, upstream, sources).items():
        if truth.jumps:
            report.left_out += 1
        else:
            check(case, name, gradient, truth, "layer, gradient", report)


@torch.no_grad()
def _decode(case: LayerCase, report: Report) -> None:
    layer, dtype = make_layer(case), DTYPES[case.dtype]
    total = sum(case.chunks)
    cache = layer.make_cache(batch=case.batch, max_length=total)
    tokens = torch.randn(case.batch, total, DIM, dtype=torch.float64).to(dtype)
    rows: list[Tensor] = [tokens[row, :0] for row in range(case.batch)]  # the tokens of each row so far
    first = 0
    for number, count in enumerate(case.chunks):
        chunk = tokens[:, first : first + count].clone()
        positions: Any = Positions.range(total)[first : first + count] if case.told else None
        mask = torch.ones(case.batch, count, dtype=torch.bool)
        if number == 0 and case.prompts is not None:
            mask = _mask(case, count)
            positions = Positions.from_mask(mask)
            if case.padding is not None:
                pool = {"nan": [math.nan], "inf": [math.inf, -math.inf]}.get(
                    case.padding, [math.nan, math.inf, 1e30, 0.0]
                )
                chunk[~mask] = torch.tensor(pool, dtype=dtype)[torch.randint(len(pool), chunk[~mask].shape)]
        out = layer(chunk, positions, cache=cache)
        for row, real in enumerate(mask):
            rows[row] = torch.cat((rows[row], chunk[row, real]))
            sorted_out, new = torch.cat((out[row, real], out[row, ~real]))[None], int(real.sum())
            _check_row(case, layer, rows[row], new, sorted_out, f"chunk {number}, row {row}", total, report)
        first += count
        if case.evicted is not None and case.evicted[0] == number + 1:
            _, gone, stay = case.evicted
            cache.evict(gone, sinks=stay)
            rows = [torch.cat((row[:stay], row[stay + gone :])) for row in rows]


def _mask(case: LayerCase, count: int) -> Tensor:
    """Which tokens of the prompt are real."""
    assert case.prompts is not None
    mask = torch.arange(count) < torch.tensor(case.prompts)[:, None]
    if case.side == "left":
        return mask.flip(-1)
    return mask[:, torch.randperm(count)] if case.side == "anywhere" else mask


def _check_row(
    case: LayerCase, layer: Any, tokens: Tensor, new: int, out: Tensor, label: str, total: int, report: Report
) -> None:
    """The last tokens of a row, among all of it; what stands behind them is padding, and gives what nothing gives."""
    leaves_of = {id(each): each.detach().double() for each in _parameters(layer).values()}
    whole = replace(counted(len(tokens)), whole=total)

    def ask(rounding: Rounding | None) -> tuple[dict[str, Tensor], float]:
        x = tokens.double()[None]
        found, margin = Oracle(case, layer, leaves_of, rounding)(
            x[:, len(tokens) - new :], x, Pairs(whole.last(new), whole)
        )
        empty = torch.zeros(1, out.shape[1] - new, DIM, dtype=torch.float64)
        bias = layer.out.bias
        return {"out": torch.cat((found, empty if bias is None else empty + bias.double()), 1)}, margin

    truth = Expected(ask, DTYPES[case.dtype], {}, torch.zeros(1, case.heads, new, case.head_dim))
    check(case, "out", out, truth, label, report)
