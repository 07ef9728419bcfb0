"""The properties an encoding claims by its tags, each measured."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor, nn

from situs.checks.subject import FAR, Subject, require_close
from situs.checks.widening import widened
from situs.encodings.base import InputEncoding
from situs.encodings.bias import BiasEncoding
from situs.positions import Positions

PRODUCTS = 12
"""Places whose products are compared."""


def differentiates(subject: Subject) -> None:
    """Gradients to tokens and to every parameter are exact, by finite differences in float64."""
    count, start = _trained_places(subject, 5)
    if not count:
        return
    encoding = subject.encoding.double()
    try:
        x = subject.tokens(count, dtype=torch.float64).requires_grad_()
        names = [name for name, _ in encoding.named_parameters()]
        values = [parameter.detach().clone().requires_grad_() for _, parameter in encoding.named_parameters()]
        positions = subject.places(count, start)

        def run(x: Tensor, *values: Tensor) -> Tensor:
            return _with_parameters(subject, dict(zip(names, values, strict=True)), x, positions)

        large = sum(value.numel() for value in values) > 500
        if not torch.autograd.gradcheck(run, (x, *values), raise_exception=False, fast_mode=large):
            raise AssertionError("a gradient differs from finite differences; is something detached or done in place?")
    finally:
        subject.encoding.float()


def _trained_places(subject: Subject, wanted: int) -> tuple[int, int]:
    """How many places, and from where: those of a row for padding get no gradient, and are left out."""
    count, padding = subject.length(wanted), getattr(subject.encoding, "padding_row", None)
    if padding is None:
        return count, 0
    frozen = int(padding) - getattr(subject.encoding, "offset", 0)
    after = int(min(wanted, subject.end() - frozen - 1))
    return (count, 0) if frozen < 0 or frozen >= count else max((frozen, 0), (after, frozen + 1))


def _with_parameters(subject: Subject, parameters: dict[str, Tensor], x: Tensor, positions: Positions) -> Tensor:
    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoding = subject.encoding

        def forward(self, x: Tensor) -> Tensor:
            return subject.attend(x, positions)

    named = {f"encoding.{name}": value for name, value in parameters.items()}
    result: Tensor = torch.func.functional_call(Whole(), named, (x,))
    return result


def is_relative(subject: Subject) -> None:
    """Moving every position by the same amount changes nothing."""
    count = subject.length(12)
    x = subject.tokens(count)
    expected = subject.attend(x, subject.places(count))
    for start in subject.starts(count, 1, 137, 70_001):
        require_close(subject.attend(x, subject.places(count, start)), expected, f"positions moved by {start}")


def reaches_far(subject: Subject) -> None:
    """At position ten million, or at the encoding's end, it is as exact as at 0."""
    count = subject.length(12)
    x, start = subject.tokens(count), subject.starts(count, FAR)[0]
    result = subject.encode(x, subject.places(count, start))
    if not bool(torch.isfinite(result).all()):
        raise AssertionError(f"at position {start:,} the result is not finite")
    if "relative" in subject.encoding.tags:
        require_close(
            subject.attend(x, subject.places(count, start)),
            subject.attend(x, subject.places(count)),
            f"at position {start:,}",
        )
    if "stationary" in subject.encoding.tags:
        require_close(_products(subject, start), _products(subject, 0), f"products at position {start:,}")
    exact = widened(subject, lambda wide: wide.encode(x.double(), wide.places(count, start)))
    require_close(result, exact, f"at position {start:,}, beside the same computed in float64 throughout")


def is_stationary(subject: Subject) -> None:
    """Products of encodings depend on the distance of their positions alone."""
    start = subject.starts(PRODUCTS, 1000)[0]
    require_close(_products(subject, start), _products(subject, 0), f"products of encodings moved by {start}")


def keeps_norm(subject: Subject) -> None:
    """Queries and keys keep their length."""
    count = subject.length(16)
    vectors = subject.heads_of(subject.tokens(count, dtype=torch.float64), 0)
    for start in subject.starts(count, 0, 5000):
        turned = subject.apply((vectors, vectors), subject.places(count, start)).norm(dim=-1)
        for number, role in enumerate(("queries", "keys")):
            require_close(turned[number], vectors.norm(dim=-1), f"norms of {role} from position {start} on", 1e-9)


def is_bounded(subject: Subject) -> None:
    """What it adds or multiplies does not grow with the position, nor, for scores, with the distance."""
    count = subject.length(64)
    if subject.acts_on_scores:
        given, keys = subject.given(subject.tokens(count)), subject.places(count)
        near = float(subject.apply(given, keys).detach().abs().max())
        for start in subject.starts(count, 10_000, FAR):
            far = float(subject.apply(given, subject.places(count, start), keys).detach().abs().max())
            if far > 2 * near:
                raise AssertionError(f"scores get up to {far:.3g} at distance {start:,}, but {near:.3g} near by")
        return
    zeros_or_tokens = torch.zeros_like if isinstance(subject.encoding, InputEncoding) else torch.clone
    x = zeros_or_tokens(subject.tokens(1)).expand(1, count, -1)
    near = float(subject.encode(x, subject.places(count)).detach().abs().max())
    for start in subject.starts(count, 10_000, FAR):
        far = float(subject.encode(x, subject.places(count, start)).detach().abs().max())
        if far > 2 * near:
            raise AssertionError(f"values reach {far:.3g} from position {start:,} on, but {near:.3g} near 0")


def is_unique(subject: Subject) -> None:
    """No two positions are encoded alike."""
    count = subject.length(512)
    x = subject.tokens(1).expand(1, count, -1)
    encoded = subject.encode(x, subject.places(count)).detach().double()
    flat = encoded.movedim(-2, 0).flatten(1)
    sizes = flat.norm(dim=-1).clamp(max=1)  # some fade to almost nothing, and are still apart
    distances = torch.cdist(flat, flat, compute_mode="donot_use_mm_for_euclid_dist")
    distances = distances / torch.maximum(sizes[:, None], sizes) + torch.diag(flat.new_full((count,), torch.inf))
    if float(distances.min()) < 1e-6:
        one, other = divmod(int(distances.argmin()), count)
        raise AssertionError(f"places {one} and {other} of {count} are encoded alike")


def takes_real_positions(subject: Subject) -> None:
    """Positions may be fractions and negative, and whole ones mean the same written as floats."""
    count = subject.length(8)
    x, positions = subject.tokens(count), subject.places(count)
    expected = subject.encode(x, positions)
    as_floats = Positions.explicit(positions.ids.double(), sequence_length=count)
    require_close(subject.encode(x, as_floats), expected, "whole positions written as floats", 1e-6)
    between = subject.encode(x, Positions.explicit(positions.ids * 1.5 - 2.5, sequence_length=count))
    if not bool(torch.isfinite(between).all()) or torch.equal(between, expected):
        raise AssertionError("positions from -2.5 on are not encoded")


def decays(subject: Subject) -> None:
    """Products of queries and keys fade with distance, or a bias falls with it in every head."""
    last = subject.starts(1, 2048)[0]
    middle = max(1, last // 8)
    if isinstance(subject.encoding, BiasEncoding):
        keys = subject.places(1)
        falls = [subject.encoding(subject.places(1, distance), keys).flatten() for distance in (0, 1, middle, last)]
        if not all(bool((near > far).all()) for near, far in itertools.pairwise(falls)):
            raise AssertionError(f"the bias does not fall from distance 0 to 1, {middle} and {last} in every head")
        return
    generator = torch.Generator().manual_seed(0)
    head_dim: Any = getattr(subject.encoding, "head_dim", 16)
    query, key = torch.randn(2, 2000, subject.heads, 1, head_dim, generator=generator, dtype=torch.float64)
    spread = []
    for distance in (0, middle, last):
        places = (Positions.range(1, start=start, sequence_length=last + 1) for start in (distance, 0))
        turned = subject.encoding(query, next(places)), subject.encoding(key, next(places), role="key")
        spread.append(float((turned[0] * turned[1]).sum(-1).std()))
    if not spread[0] > 1.02 * spread[1] > 1.02**2 * spread[2]:
        listed = ", ".join(f"{each:.3g}" for each in spread)
        raise AssertionError(f"products spread by {listed} at distances 0, {middle} and {last}")


def learns(subject: Subject) -> None:
    """Every parameter gets a gradient."""
    count = subject.length(8)
    parameters = dict(subject.encoding.named_parameters())
    if not parameters:
        raise AssertionError("it has no parameters")
    if subject.acts_on_scores and count == 1:
        return  # a single key has all the weight, whatever is added to its score
    loss = subject.attend(subject.tokens(count), subject.places(count), causal=False).square().sum()
    gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    reached: list[Tensor | None] = list(gradients)
    dead = [
        name for name, gradient in zip(parameters, reached, strict=True) if gradient is None or not bool(gradient.any())
    ]
    if dead:
        raise AssertionError(f"no gradient reaches {', '.join(dead)}")


def _products(subject: Subject, start: int) -> Tensor:
    """Products of an input encoding's vectors at neighbouring positions, summed in float64."""
    count = subject.length(PRODUCTS)
    vectors = subject.encode(torch.zeros(1, count, subject.dim), subject.places(count, start)).double()[0]
    return (vectors @ vectors.T) / subject.dim
