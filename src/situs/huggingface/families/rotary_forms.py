"""Which way a model of transformers rotates, found out by trying its functions on a few numbers.

120 models have their own copies of a rotary module and of ``apply_rotary_pos_emb``. They differ in how cosines are laid
out along the channels and in how channels are paired; some do something else altogether under the same name. What a
function is called, or how it is written, does not tell. What it gives for random numbers does.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from types import FunctionType, SimpleNamespace
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor
from transformers.modeling_rope_utils import dynamic_rope_update

from situs.functional.rotation import PAIRINGS, Pairing, rotate_by_real_form

Layout = Literal["twice", "neighbours", "once"]
"""How the cosines ``c0 c1`` of two pairs are laid out: ``c0 c1 c0 c1``, ``c0 c0 c1 c1`` or ``c0 c1``."""

APPLY = "apply_rotary_pos_emb"
"""What models call their function that rotates queries and keys."""

PARAMETERS = ("q", "k", "cos", "sin")
PAIRS, SCALING, CLOSE = 4, 1.25, 1e-5
SOME = "some"
"""A layer type."""


class Form(NamedTuple):
    """What a function that rotates queries and keys takes and does."""

    pairing: Pairing
    layout: Layout


def laid_out(each: Tensor, layout: Layout) -> Tensor:
    """Lay cosines or sines of pairs out along the channels, in memory of their own."""
    match layout:
        case "twice":
            return torch.cat((each, each), -1)
        case "neighbours":
            return each.repeat_interleave(2, -1)
        case "once":
            return each.clone()


def narrowed(each: Tensor, layout: Layout) -> Tensor:
    """Take the cosines or sines of pairs out of those laid out along the channels."""
    match layout:
        case "twice":
            return each[..., : each.shape[-1] // 2]
        case "neighbours":
            return each[..., ::2].contiguous()
        case "once":
            return each


@cache
def form_of(function: Callable[..., Any]) -> Form | None:
    """Find out how a function rotates queries and keys; None where it does anything else."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None
    last = parameters.get("unsqueeze_dim")
    expected = PARAMETERS if last is None else (*PARAMETERS, "unsqueeze_dim")
    if tuple(parameters) != expected or (last is not None and last.default != 1):
        return None
    known = product(PAIRINGS, get_args(Layout))
    found = [Form(*each) for each in known if _rotates(function, Form(*each), 2 * PAIRS)]
    if len(found) != 1 or _rotates(function, found[0], 3 * PAIRS) is False:
        return None
    return found[0]


def _rotates(function: Callable[..., Any], form: Form, width: int) -> bool | None:
    """Whether a function rotates the first channels of vectors in a form; None where it raises."""
    random = torch.Generator("cpu").manual_seed(0)
    query, key, angles = (
        torch.randn(shape, generator=random, dtype=torch.float64, device="cpu")
        for shape in ((2, 3, 5, width), (2, 1, 5, width), (2, 5, PAIRS))
    )
    cos, sin = angles.cos(), angles.sin()
    try:
        with torch.no_grad():
            found = function(query, key, laid_out(cos, form.layout), laid_out(sin, form.layout))
    except Exception:
        return None
    factors = cos.unsqueeze(1), sin.unsqueeze(1)
    return _alike(found, [rotate_by_real_form(each, *factors, form.pairing) for each in (query, key)])


@cache
def layout_of(cls: type) -> Layout | None:
    """Find out how a rotary module lays its cosines out; None where their angles are anything else than positions times
    its frequencies, or where more happens in it than transformers' update of them."""
    forward: Any = getattr(cls, "forward", None)
    around = []
    while hasattr(forward, "__wrapped__"):
        around.append(getattr(forward, "__code__", None))
        forward = forward.__wrapped__
    if not isinstance(forward, FunctionType) or UPDATING not in around or not set(around) <= {UPDATING, UNWATCHED}:
        return None
    own = tuple(inspect.signature(forward).parameters)
    if own not in (("self", "x", "position_ids"), ("self", "x", "position_ids", "layer_type")):
        return None
    given = {"layer_type": SOME} if "layer_type" in own else {}
    flat = torch.tensor([[0, 1, 7], [2, 3, 4]], device="cpu")
    for layout in get_args(Layout):
        if _gives(forward, flat, layout, given) and _gives(forward, flat.view(3, 1, 2), layout, given) is not False:
            found: Layout = layout
            return found
    return None


def _gives(forward: Callable[..., Any], positions: Tensor, layout: Layout, given: dict[str, str]) -> bool | None:
    """Whether a rotary module's own code gives cosines and sines in a layout; None where it raises."""
    frequencies = torch.tensor([1.0, 0.3, 0.1, 0.03], device="cpu")
    module = SimpleNamespace(inv_freq=frequencies, attention_scaling=SCALING)
    vars(module).update({f"{SOME}_{name}": value for name, value in tuple(vars(module).items())})
    try:
        with torch.no_grad():
            found = forward(module, torch.zeros(1, dtype=torch.float64, device="cpu"), positions, **given)
    except Exception:
        return None
    angles = positions[..., None].double() * frequencies
    return _alike(found, [laid_out(SCALING * each, layout) for each in (angles.cos(), angles.sin())])


def _alike(found: object, expected: Sequence[Tensor]) -> bool:
    return (
        isinstance(found, tuple)
        and len(found) == len(expected)
        and all(
            isinstance(each, Tensor) and each.shape == other.shape and torch.allclose(each.double(), other, atol=CLOSE)
            for each, other in zip(found, expected, strict=True)
        )
    )


def _nothing() -> None:
    """Be decorated."""


UPDATING = dynamic_rope_update(_nothing).__code__  # type: ignore[no-untyped-call]
"""The code by which transformers updates frequencies that follow the text, around a rotary module's own."""
UNWATCHED = torch.no_grad()(_nothing).__code__
