"""The properties an encoding claims by its tags, judged by their measurements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from situs.checks.bench import FAR, Bench, normal
from situs.checks.measures import (
    FEWEST,
    GROWTH,
    ROUNDING,
    TOLD_APART,
    behind_the_last,
    change_by_shift,
    change_of_norms,
    distances_between,
    growth,
    scores_by_distance,
)
from situs.checks.modes import widened
from situs.checks.require import require_close
from situs.encodings.bias import BiasEncoding
from situs.positions import Positions

PRODUCTS = 12
"""Positions whose products are compared."""


def differentiates(bench: Bench) -> None:
    """Gradients to tokens and to every parameter are exact, by finite differences in float64."""
    count, start = _trained_positions(bench, 5)
    if not count:
        return
    encoding = bench.encoding.double()
    try:
        x = bench.tokens(count, dtype=torch.float64).requires_grad_()
        names = [name for name, _ in encoding.named_parameters()]
        values = [parameter.detach().clone().requires_grad_() for _, parameter in encoding.named_parameters()]
        positions = bench.positions(count, start)

        def run(x: Tensor, *values: Tensor) -> Tensor:
            return _with_parameters(bench, dict(zip(names, values, strict=True)), x, positions)

        large = sum(value.numel() for value in values) > 500
        inputs = {"the tokens": x, **dict(zip(names, values, strict=True))}
        if not torch.autograd.gradcheck(run, tuple(inputs.values()), raise_exception=False, fast_mode=large):
            wrong = [name for name in inputs if not _is_exact(run, inputs, name)] or list(inputs)
            raise AssertionError(
                f"the gradient of {' and of '.join(wrong)} differs from finite differences. Compute with the tensors "
                f"themselves, and write to none in place: .item(), .data, detach() and torch.tensor(...) cut it"
            )
    finally:
        bench.encoding.float()


def _is_exact(run: Callable[..., Tensor], inputs: Mapping[str, Tensor], name: str) -> bool:
    """Whether the gradient of one input alone is exact."""
    alone = [each if key == name else each.detach() for key, each in inputs.items()]
    large = inputs[name].numel() > 500
    return bool(torch.autograd.gradcheck(run, alone, raise_exception=False, fast_mode=large))


def _trained_positions(bench: Bench, wanted: int) -> tuple[int, int]:
    """Choose how many positions, and from where: those of a row for padding get no gradient, and are left out."""
    count, padding = bench.length(wanted), getattr(bench.encoding, "padding_row", None)
    if padding is None:
        return count, 0
    frozen = int(padding) - getattr(bench.encoding, "offset", 0)
    after = int(min(wanted, bench.end() - frozen - 1))
    return (count, 0) if frozen < 0 or frozen >= count else max((frozen, 0), (after, frozen + 1))


def _with_parameters(bench: Bench, parameters: dict[str, Tensor], x: Tensor, positions: Positions) -> Tensor:
    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoding = bench.encoding

        def forward(self, x: Tensor) -> Tensor:
            return bench.attend(x, positions)

    named = {f"encoding.{name}": value for name, value in parameters.items()}
    result: Tensor = torch.func.functional_call(Whole(), named, (x,))
    return result


def is_relative(bench: Bench) -> None:
    """Moving every position by the same amount changes nothing."""
    _require_unmoved(bench, bench.starts(bench.length(12), 1, 137, 70_001))


def _require_unmoved(bench: Bench, starts: Sequence[int]) -> None:
    count = bench.length(12)
    for start in starts:
        change = change_by_shift(bench, bench.positions(count), bench.positions(count, start))
        if not change <= ROUNDING:
            raise AssertionError(f"positions moved by {start:,} change scores by {change:.3g} of their spread")


def reaches_far(bench: Bench) -> None:
    """At position ten million, or at the encoding's end, it is as exact as at 0."""
    count = bench.length(12)
    x, start = bench.tokens(count), bench.starts(count, FAR)[0]
    result = bench.encode(x, bench.positions(count, start))
    if not bool(torch.isfinite(result).all()):
        raise AssertionError(f"at position {start:,} the result is not finite")
    if "relative" in bench.encoding.tags:
        _require_unmoved(bench, [start])
    if "stationary" in bench.encoding.tags:
        require_close(_products(bench, start), _products(bench, 0), f"products at position {start:,}")
    exact = widened(bench, lambda wide: wide.encode(x.double(), wide.positions(count, start)))
    require_close(result, exact, f"at position {start:,}, beside the same computed in float64 throughout")


def is_stationary(bench: Bench) -> None:
    """Products of encodings depend on the distance of their positions alone."""
    start = bench.starts(PRODUCTS, 1000)[0]
    require_close(_products(bench, start), _products(bench, 0), f"products of encodings moved by {start}")


def keeps_norm(bench: Bench) -> None:
    """Queries and keys keep their length."""
    count = bench.length(16)
    for start in bench.starts(count, 0, 5000):
        for name, change in change_of_norms(bench, bench.positions(count, start), torch.float64).items():
            if not change <= 1e-9:
                raise AssertionError(f"{name} change by {change:.3g} of their length from position {start} on")


def is_bounded(bench: Bench) -> None:
    """What it adds or multiplies does not grow with the position, nor, for scores, with the distance."""
    if bench.extent is not None or bench.end() < FEWEST:
        return  # a window has no far positions
    found = growth(bench)
    texts = f"from texts of {found.near:,} tokens to those of {found.far:,}"
    if not found.spread <= GROWTH:
        raise AssertionError(
            f"{texts}, the range of one token's scores over all positions grows by a factor of {found.spread:.3g}"
        )
    if not found.vector <= GROWTH:
        raise AssertionError(f"{texts}, the norm of queries and keys grows by a factor of {found.vector:.3g}")


def is_unique(bench: Bench) -> None:
    """No two positions are encoded alike."""
    count = bench.length(512)
    positions = bench.positions(count)
    apart = distances_between(bench, positions[-1:], positions)
    if count > 1 and not float(apart.min()) > TOLD_APART:
        one, other = divmod(int(apart.argmin()), count)
        raise AssertionError(f"positions {one} and {other} of {count} look alike to a query at the end")


def takes_real_positions(bench: Bench) -> None:
    """Positions may be fractions and negative, and whole ones mean the same written as floats."""
    count = bench.length(8)
    x, positions = bench.tokens(count), bench.positions(count)
    expected = bench.encode(x, positions)
    as_floats = Positions.explicit(positions.ids.double(), sequence_length=count)
    require_close(bench.encode(x, as_floats), expected, "whole positions written as floats", 1e-6)
    between = bench.encode(x, Positions.explicit(positions.ids * 1.5 - 2.5, sequence_length=count))
    if not bool(torch.isfinite(between).all()) or torch.equal(between, expected):
        raise AssertionError("positions from -2.5 on are not encoded")


def fades(bench: Bench) -> None:
    """Products of queries and keys fade with distance, or a bias falls with it in every head."""
    last = bench.starts(1, 2048)[0]
    distances = (0, 1, max(2, last // 8), last)
    query, key = normal(2, 2000, 1, bench.dim, seed=0)
    scores = scores_by_distance(bench, query, key, *behind_the_last(distances), keys_like=1).double()
    if isinstance(bench.encoding, BiasEncoding):
        falls = scores.mean(0).diff() < 0  # (heads, steps): contents are the same at all distances
        if not bool(falls.all()):
            listed = ", ".join(map(str, distances[1:]))
            raise AssertionError(f"the bias does not fall in every head from distance 0 to {listed}")
        return
    spread = scores.flatten(0, 1).std(0)[[0, 2, 3]].tolist()
    if not spread[0] > 1.02 * spread[1] > 1.02**2 * spread[2]:
        listed = ", ".join(f"{each:.3g}" for each in spread)
        raise AssertionError(f"products spread by {listed} at distances 0, {distances[2]} and {last}")


def learns(bench: Bench) -> None:
    """Every parameter gets a gradient."""
    count = bench.length(8)
    parameters = dict(bench.encoding.named_parameters())
    if not parameters:
        raise AssertionError("it has no parameters")
    if bench.acts_on_scores and count == 1:
        return  # a single key has all the weight, whatever is added to its score
    loss = bench.attend(bench.tokens(count), bench.positions(count), causal=False).square().sum()
    reached: list[Tensor | None] = [None] * len(parameters)
    if loss.requires_grad:  # it does not where all parameters are cut off
        reached = list(torch.autograd.grad(loss, list(parameters.values()), allow_unused=True))
    dead = [
        name for name, gradient in zip(parameters, reached, strict=True) if gradient is None or not bool(gradient.any())
    ]
    if dead:
        raise AssertionError(f"no gradient reaches {', '.join(dead)}")


def _products(bench: Bench, start: int) -> Tensor:
    """Multiply an input encoding's vectors at neighbouring positions with each other, summed in float64."""
    count = bench.length(PRODUCTS)
    vectors = bench.encode(torch.zeros(1, count, bench.dim), bench.positions(count, start)).double()[0]
    return (vectors @ vectors.T) / bench.dim
