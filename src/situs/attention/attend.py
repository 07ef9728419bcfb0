"""Attention with any encoding, by the fastest kernel that can serve it; the choice is open, and never silent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor

from situs.arguments import require_choice
from situs.attention.kernels import banded, blockwise, dense, flash, flex, toeplitz
from situs.attention.one_rotation import with_one_rotation
from situs.attention.reference import cannot as reference_cannot
from situs.attention.reference import run as reference_run
from situs.attention.request import Request, make_request
from situs.attention.value_maps import mapped_output, with_mapped_values
from situs.compiled import attending
from situs.compiled.watching import is_differentiated, is_plain
from situs.encodings.base import Encodings, autocast_off
from situs.positions import PositionsLike


class Kernel(NamedTuple):
    """A way to serve requests, or some of them."""

    cannot: Callable[[Request], str | None]
    """Why it does not serve a request; None if it does."""

    run: Callable[[Request], Tensor]
    """The attention that was asked for."""


KERNELS = {
    "flash": Kernel(flash.cannot, flash.run),
    "toeplitz": Kernel(toeplitz.cannot, toeplitz.run),
    "banded": Kernel(banded.cannot, banded.run),
    "flex": Kernel(flex.cannot, flex.run),
    "blockwise": Kernel(blockwise.cannot, blockwise.run),
    "dense": Kernel(dense.cannot, dense.run),
    "reference": Kernel(reference_cannot, reference_run),
}

_FIRST_FOR_A_DECODE_STEP = ("flash", "dense", "toeplitz", "blockwise", "reference")
_FIRST_ON_CUDA = ("flash", "flex", "toeplitz", "blockwise", "dense", "reference")
_FIRST = ("flash", "toeplitz", "blockwise", "dense", "reference")
_FIRST_WITH_LOOPS = ("toeplitz", "flash", "blockwise", "dense", "reference")
_FOR_BANDS = ("banded", "reference")  # the others take queries and keys of one rotation

Impl = Literal["auto", "flash", "toeplitz", "banded", "flex", "blockwise", "dense", "reference"]


def attend(
    query: Float[Tensor, "batch heads query head_dim"],
    key: Float[Tensor, "batch kv_heads key head_dim"],
    value: Float[Tensor, "batch kv_heads key value_dim"],
    *,
    encoding: Encodings = None,
    causal: bool = False,
    positions: PositionsLike = None,
    key_positions: PositionsLike = None,
    mask: Bool[Tensor, "..."] | Float[Tensor, "..."] | None = None,
    window: int | None = None,
    chunk: int | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Float[Tensor, "heads"] | None = None,
    features: Mapping[str, Float[Tensor, "batch heads sequence width"]] | None = None,
    dropout: float = 0.0,
    impl: Impl = "auto",
) -> Float[Tensor, "batch heads query value_dim"]:
    """Attend with any encodings, at the speed and memory of attention without where that can be.

    Queries are the last of the keys unless told otherwise, as in decoding with a cache; fewer key heads than query
    heads are shared. ``mask`` is true where a query may see a key, or a float to add to the scores, and broadcasts to
    (batch, heads, query, key); padding is told by ``positions``, and may hold anything. ``window`` is how many keys
    back a query sees, itself included, and without ``causal`` as many ahead; with ``chunk`` it sees only keys of its
    own chunk of so many positions, as in Llama 4; with both, what both let it see. ``scale`` is used as it is; left
    out, it is the encodings' own, or ``1 / sqrt(head_dim)``. ``softcap`` bounds scores, with all that encodings add to
    them, by ``softcap tanh(score / softcap)``, as in Gemma 2; a float mask is added later. ``sinks`` are a logit per
    head that takes part in the softmax and brings no value, as in GPT-OSS. ``features`` are side inputs that an
    encoding declares, by name, of each query or of each key: ``encoding.project(x)`` computes them. Queries that see
    nothing, such as padding, give zeros. ``impl`` names a kernel, which raises if it cannot serve; ``explain`` tells
    what "auto" takes.

    >>> import torch, situs
    >>> q, k, v = (torch.randn(1, 8, 100, 64) for _ in range(3))
    >>> situs.attend(q, k, v, encoding=situs.T5Bias(num_heads=8), causal=True).shape
    torch.Size([1, 8, 100, 64])
    """
    request = make_request(
        query,
        key,
        value,
        encoding=encoding,
        causal=causal,
        positions=positions,
        key_positions=key_positions,
        mask=mask,
        window=window,
        chunk=chunk,
        scale=scale,
        softcap=softcap,
        sinks=sinks,
        features=features,
        dropout=dropout,
    )
    return attend_request(request, impl)


def attend_request(request: Request, impl: Impl) -> Float[Tensor, "batch heads query value_dim"]:
    """Serve a request that is resolved already, in the dtypes that it has, whatever autocast is on."""
    with autocast_off(request.query.device.type):
        if request.banded is not None:
            request = _with_one_rotation(request, impl)
        if not request.value_maps:
            return KERNELS[_choose(request, impl)].run(request)
        mapped = with_mapped_values(request)
        return mapped_output(request, KERNELS[_choose(mapped, impl)].run(mapped))


@dataclass(frozen=True)
class Explanation:
    """Which kernel serves a call, and why others do not or come later."""

    impl: str
    others: dict[str, str]

    def __str__(self) -> str:
        width = max(map(len, self.others), default=0)
        lines = [f"{self.impl} serves this call."]
        return "\n".join(lines + [f"  {name:<{width}}  {why}" for name, why in self.others.items()])


def explain(
    query: Float[Tensor, "batch heads query head_dim"],
    key: Float[Tensor, "batch kv_heads key head_dim"],
    value: Float[Tensor, "batch kv_heads key value_dim"],
    *,
    encoding: Encodings = None,
    causal: bool = False,
    positions: PositionsLike = None,
    key_positions: PositionsLike = None,
    mask: Bool[Tensor, "..."] | Float[Tensor, "..."] | None = None,
    window: int | None = None,
    chunk: int | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Float[Tensor, "heads"] | None = None,
    features: Mapping[str, Float[Tensor, "batch heads sequence width"]] | None = None,
    dropout: float = 0.0,
    impl: Impl = "auto",
) -> Explanation:
    """Tell which kernel ``attend`` would take for this call, and why not the others.

    >>> import torch, situs
    >>> q, k, v = (torch.randn(1, 8, 100, 64) for _ in range(3))
    >>> situs.explain(q, k, v, encoding=situs.Rotary(head_dim=64), causal=True).impl
    'flash'
    """
    request = make_request(
        query,
        key,
        value,
        encoding=encoding,
        causal=causal,
        positions=positions,
        key_positions=key_positions,
        mask=mask,
        window=window,
        chunk=chunk,
        scale=scale,
        softcap=softcap,
        sinks=sinks,
        features=features,
        dropout=dropout,
    )
    if request.banded is not None:
        request = _with_one_rotation(request, impl)
    chosen = _choose(request, impl)
    order = _preferred(request)
    others = {}
    for name in KERNELS:
        if name != chosen and (name != "banded" or request.banded is not None):  # of no use to others
            why = _why_not(name, request)
            later = "slower here" if name in order else "not the fastest on this device"
            others[name] = f"cannot: {why}" if why else f"could: {later}"
    return Explanation(chosen, others)


def require_impl(impl: object) -> None:
    """Raise unless a kernel is named, or the choice left open."""
    if not isinstance(impl, str) or impl != "auto":
        require_choice("impl", impl, ("auto", *KERNELS), "each names a kernel")


def _preferred(request: Request) -> tuple[str, ...]:
    """The kernels in the order in which they are tried, by what was measured: on the CPU compiled FlexAttention is
    slower than strided views."""
    if request.is_empty:
        return ("reference",)
    if request.banded is not None:
        return _FOR_BANDS
    if request.is_decode_step:
        return _FIRST_FOR_A_DECODE_STEP
    if request.query.device.type == "cuda":
        return _FIRST_ON_CUDA
    return _FIRST_WITH_LOOPS if _has_loops(request) else _FIRST


def _has_loops(request: Request) -> bool:
    """Whether compiled loops attend, which are faster than torch's own kernel."""
    if request.dropout:
        return False
    watched = not is_plain(request.query) or is_differentiated(requires_grad=False)  # as graphs and torch.func do
    return not watched and attending.serves(request.query, request.key, request.value)


def _with_one_rotation(request: Request, impl: Any) -> Request:
    """The request without bands of distance where it needs none, unless a kernel is named that serves them."""
    named = isinstance(impl, str) and impl in _FOR_BANDS
    return request if named else with_one_rotation(request)


def _why_not(name: str, request: Request) -> str | None:
    """Why a kernel does not serve; None if it does."""
    if request.banded is not None and name not in _FOR_BANDS:
        return "rotations differ by band of distance"
    return KERNELS[name].cannot(request)


def _choose(request: Request, impl: Any) -> str:
    """The kernel that was named, or the first that can serve."""
    if isinstance(impl, str) and impl == "auto":
        for name in _preferred(request):
            if KERNELS[name].cannot(request) is None:
                return name
    require_impl(impl)
    why = _why_not(impl, request)
    if why:
        raise ValueError(f'impl="{impl}" cannot serve this call, since {why}. Use impl="auto".')
    return str(impl)
