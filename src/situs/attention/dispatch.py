"""Attention with any encoding, by the fastest kernel that can serve it; the choice is open, and never silent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Bool, Float
from torch import Tensor

from situs.attention.kernels import KERNELS
from situs.attention.request import Request, make_request
from situs.encodings.base import Encodings, autocast_off, require_choice
from situs.positions import PositionsLike

Impl = Literal["auto", "reference", "flash", "toeplitz", "blockwise", "flex"]

# What is tried first, by what was measured: on the CPU compiled FlexAttention is slower than strided views.
PREFERENCES = {
    "cpu": ("flash", "toeplitz", "blockwise", "reference"),
    "cuda": ("flash", "flex", "blockwise", "reference"),
}


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
    scale: float | None = None,
    dropout: float = 0.0,
    impl: Impl = "auto",
) -> Float[Tensor, "batch heads query value_dim"]:
    """Attention with any encodings, at the speed and memory of attention without where that can be.

    Queries are the last of the keys unless told otherwise, as in decoding with a cache; fewer key heads than query
    heads are shared. ``mask`` is true where a query may see a key, or a float to add to the scores, and broadcasts to
    (batch, heads, query, key); padding is told by ``positions``. ``window`` is how many places a query sees, its own
    included. ``scale`` is the encodings' own, or ``1 / sqrt(head_dim)``, if left out. Queries that may see nothing, as
    padding, give zeros. ``impl`` names a kernel, which raises if it cannot serve; ``explain`` tells what "auto" takes.
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
        scale=scale,
        dropout=dropout,
    )
    return attend_request(request, impl)


def attend_request(request: Request, impl: Impl) -> Float[Tensor, "batch heads query value_dim"]:
    """Serve a request that is resolved already, in the dtypes that it has, whatever autocast is on."""
    name, query, value = _choose(request, impl), request.query, request.value
    if not query.numel() or not value.numel():
        return value.new_zeros(*query.shape[:3], value.shape[-1])
    with autocast_off(query.device.type):
        return KERNELS[name].run(request)


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
    scale: float | None = None,
    dropout: float = 0.0,
    impl: Impl = "auto",
) -> Explanation:
    """Which kernel ``attend`` would take for this call, and why not the others."""
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
        scale=scale,
        dropout=dropout,
    )
    chosen = _choose(request, impl)
    preferred = PREFERENCES.get(query.device.type, PREFERENCES["cuda"])
    others = {}
    for name, kernel in KERNELS.items():
        if name != chosen:
            why = kernel.cannot(request)
            later = "slower here" if name in preferred else "not the fastest on this device"
            others[name] = f"cannot: {why}" if why else f"could: {later}"
    return Explanation(chosen, others)


def _choose(request: Request, impl: str) -> str:
    require_choice("impl", impl, ("auto", *KERNELS), "each names a kernel")
    if impl != "auto":
        why = KERNELS[impl].cannot(request)
        if why:
            raise ValueError(f'impl="{impl}" cannot serve this call, since {why}. Use impl="auto".')
        return impl
    preferred = PREFERENCES.get(request.query.device.type, PREFERENCES["cuda"])
    return next(name for name in preferred if KERNELS[name].cannot(request) is None)
