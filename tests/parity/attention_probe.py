"""What a released attention layer saw and made, caught by hooks in a run of the whole model.

Comparing the tensor that enters the output projection proves pairing, partial rotation, shared key heads, softmax
scale and attention factors together, with nothing of the layer rewritten here.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import situs
from situs import Encoding, Positions
from situs.attention import reference
from tests.parity.wide_transformers import WIDE_TOLERANCE

Run = Callable[[], object]


@dataclass(frozen=True)
class SeenAttention:
    """Queries and keys before any position, values, and the outputs of the heads: (batch, heads, sequence, dim)."""

    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor


@torch.no_grad()
def watch(layer: nn.Module, run: Run, *, returned: tuple[str, ...], received: str) -> dict[str, Tensor]:
    """Run, and collect what submodules of ``layer`` returned and one received; several calls are joined in time."""
    parts: dict[str, list[Tensor]] = defaultdict(list)

    def keep_output(name: str) -> Callable[[nn.Module, object, Tensor], None]:
        return lambda module, arguments, output: parts[name].append(output)

    handles = [layer.get_submodule(name).register_forward_hook(keep_output(name)) for name in returned]
    handles.append(
        layer.get_submodule(received).register_forward_pre_hook(
            lambda module, arguments: parts[received].append(arguments[0])
        )
    )
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    return {name: _joined(tensors) for name, tensors in parts.items()}


def _joined(calls: list[Tensor]) -> Tensor:
    """The calls of one run, a prompt and then single tokens, joined along the axis in which they differ."""
    first, last = calls[0].shape, calls[-1].shape
    return torch.cat(calls, next((axis for axis in range(len(first)) if first[axis] != last[axis]), 0))


def as_heads(tensor: Tensor, head_dim: int) -> Tensor:
    """(batch, sequence, heads * head_dim) to (batch, heads, sequence, head_dim)."""
    heads: Tensor = tensor.unflatten(-1, (-1, head_dim))
    return heads.transpose(1, 2)


@dataclass(frozen=True)
class Projections:
    """A layer with a projection each for queries, keys and values."""

    layer: str
    head_dim: int
    query: str = "q_proj"
    key: str = "k_proj"
    value: str = "v_proj"
    output: str = "o_proj"

    def __call__(self, model: nn.Module, run: Run) -> SeenAttention:
        names = (self.query, self.key, self.value)
        seen = watch(model.get_submodule(self.layer), run, returned=names, received=self.output)
        length = seen[self.value].shape[1]
        query, key, value, output = (self._as_heads(seen[name], length) for name in (*names, self.output))
        return SeenAttention(query, key, value, output)

    def _as_heads(self, tensor: Tensor, length: int) -> Tensor:
        if tensor.ndim == 3:
            return as_heads(tensor, self.head_dim)
        return tensor.transpose(1, 2) if tensor.shape[1] == length else tensor  # normalised, so by head already


@dataclass(frozen=True)
class FusedProjection:
    """A layer with one projection for all three: by head (GPT-NeoX), or all queries first, then keys (Phi-3)."""

    layer: str
    head_dim: int
    fused: str
    output: str
    kv_heads: int | None = None

    def __call__(self, model: nn.Module, run: Run) -> SeenAttention:
        seen = watch(model.get_submodule(self.layer), run, returned=(self.fused,), received=self.output)
        if self.kv_heads is None:
            query, key, value = as_heads(seen[self.fused], 3 * self.head_dim).chunk(3, -1)
        else:
            heads = as_heads(seen[self.fused], self.head_dim)
            query, key, value = heads.split((heads.shape[1] - 2 * self.kv_heads, self.kv_heads, self.kv_heads), 1)
        return SeenAttention(query, key, value, as_heads(seen[self.output], self.head_dim))


def enliven(model: nn.Module) -> nn.Module:
    """Weights that make queries, keys and values of about unit size, and biases that are not zero: with the usual
    tiny start every score is near 0, and attention is a mean whatever the positions."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.normal_(std=math.sqrt(1 / parameter[0].numel()))
        for module in model.modules():
            if isinstance(module, nn.Linear) and module.bias is not None:
                module.bias.normal_(std=0.3)
    return model


def assert_same_attention(
    seen: SeenAttention,
    encoding: Encoding,
    *,
    positions: Positions | None = None,
    causal: bool = True,
    window: int | None = None,
    scale: float | None = None,
) -> None:
    """Our reference attention on what the layer saw gives what the layer made, at every real token."""
    ours, unencoded = (
        reference(
            seen.query, seen.key, seen.value,
            encoding=each, causal=causal, positions=positions, window=window, scale=scale,
        )
        for each in (encoding, situs.NoPE())
    )  # fmt: skip
    assert ours.shape == seen.output.shape
    real = torch.ones(ours.shape[0], ours.shape[2], dtype=torch.bool)
    if positions is not None and positions.valid is not None:
        real = positions.valid.expand_as(real)
    error, effect = ((each - seen.output).abs().amax((1, 3))[real].max() for each in (ours, unencoded))
    assert effect > 0.05, "the layer hardly depends on position, so agreement would prove nothing"
    assert error <= _tolerance(seen, encoding, positions, scale), f"off by {error:.2e}"


def _tolerance(seen: SeenAttention, encoding: Encoding, positions: Positions | None, scale: float | None) -> float:
    """How far transformers' float32 may lie from the truth, from its rounding alone.

    The frequency (a power, a reciprocal) and its product with the position are each rounded, together by less than
    2 x 2^-23, so an angle at p is off by p 2^-22 at most, the fastest frequency being 1. A score is off by that for
    both its query and its key, and by the rounding of its head_dim products. A softmax whose scores are all off by
    at most d moves its weights by a factor of exp(2d) at most.
    """
    if seen.query.dtype == torch.float64:
        return WIDE_TOLERANCE
    farthest = seen.query.shape[2] if positions is None else float(positions.ids.max())
    assert farthest < 1000, "float32 is too coarse to compare by so far out: run the model in float64"
    magnitude = getattr(encoding, "rotation_factor", 1.0) ** 2 * encoding.softmax_factor
    scale = 1 / math.sqrt(seen.query.shape[-1]) if scale is None else scale
    largest = float(seen.query.norm(dim=-1).max() * seen.key.norm(dim=-1).max()) * scale * magnitude
    score_error = largest * (2 * farthest * 2**-22 + seen.query.shape[-1] * 2**-23)
    return 2 * float(seen.value.abs().max()) * (score_error + seen.query.shape[2] * 2**-23)
