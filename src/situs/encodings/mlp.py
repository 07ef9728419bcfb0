"""MLP bias: a small network of the offset, in place of a table of offsets.

Paper    Wang et al., CrossFormer, arXiv:2108.00154 (dynamic position bias); logarithms: Liu et al., Swin v2,
         arXiv:2111.09883, section 3.3. For text: x-transformers' DynamicPositionBias (released code).
Acts on  scores.    Learned: yes, a network of ``depth`` hidden layers.    Relative: yes.

    score[h, i, j] = q_i . k_j / sqrt(d) + f_h(i - j),   f = W_out g(... g(W_1 (i - j) + b_1) ...)
    g(z) = silu(z), or silu(LayerNorm(z)) with ``norm``;  sign(i - j) log(1 + |i - j|) for i - j with ``log_distance``

The network takes any offset, also those that no training has seen, and of several ``axes``, such as rows and columns of
an image. It is asked once for each offset and not once for each pair.

Departures: the output has no bias, which is the same for all keys, so that softmax cancels it. All normalisations have
a bias; the first in x-transformers has none, which is a bias of 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, TypeAlias, final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import layer_norm, leaky_relu, linear, relu, silu

from situs.arguments import is_deferred, require_choice, require_count, require_counts, require_flags
from situs.compiled.watching import is_plain
from situs.encodings.bias import OffsetBias, Rule
from situs.functional.kernels import signed_log
from situs.registry import register

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": silu,
    "relu": relu,
    "leaky_relu": lambda x: leaky_relu(x, 0.1),
}
Network: TypeAlias = Callable[[Tensor], Tensor]
"""From offsets (..., axes) to a bias for each head, (..., heads)."""


@final
@register(
    name="mlp",
    paper="Wang et al. 2021, CrossFormer: A Versatile Vision Transformer Hinging on Cross-scale Attention, "
    "arXiv:2108.00154; x-transformers (released code)",
    formula="q_i . k_j / sqrt(d) + MLP_h(i - j)",
    dialects={
        "x-transformers, DynamicPositionBias": "width=dim // 4; log_distance and norm as there; its matrix of output "
        "without the bias, which softmax cancels",
        "CrossFormer": 'axes=2, depth=3, norm=True, activation="relu"',
        "Phenaki, ContinuousPositionBias": 'axes=2 or 3, log_distance=True, activation="leaky_relu"',
    },
)
class MLPBias(OffsetBias):
    """Add the output of a small network that reads the offset.

    >>> import situs, torch
    >>> query = key = value = torch.randn(1, 4, 10, 8)
    >>> encoding = situs.MLPBias(num_heads=4, width=16, log_distance=True)
    >>> situs.attend(query, key, value, encoding=encoding, causal=True).shape
    torch.Size([1, 4, 10, 8])
    >>> image = situs.MLPBias(num_heads=4, axes=2, depth=3, norm=True, activation="relu")
    >>> situs.attend(query, key, value, encoding=image, positions=situs.Positions.grid(2, 5)).shape
    torch.Size([1, 4, 10, 8])
    """

    pointwise = False

    def __init__(
        self,
        *,
        num_heads: int,
        axes: int = 1,
        width: int = 64,
        depth: int = 2,
        log_distance: bool = False,
        norm: bool = False,
        activation: Literal["silu", "relu", "leaky_relu"] = "silu",
    ) -> None:
        """
        num_heads: heads, each with its own output of the network.
        axes: coordinates of a position: 1 for text, 2 for cells of an image, 3 for those of a video.
        width: units of a hidden layer.
        depth: hidden layers.
        log_distance: hand the network sign(d) log(1 + |d|) instead of an offset d.
        norm: normalise hidden layers before the activation.
        activation: of hidden layers; "leaky_relu" falls by 0.1 below 0.
        """
        super().__init__()
        num_heads, width, depth = require_counts("it sizes the network", num_heads=num_heads, width=width, depth=depth)
        axes = require_count("axes", axes, "positions have that many coordinates", least=1, most=3)
        require_flags("distances are handed over by their logarithm or not", log_distance=log_distance)
        require_flags("hidden layers are normalised or not", norm=norm)
        require_choice("activation", activation, tuple(ACTIVATIONS), "hidden layers have one of these")
        self.num_heads = num_heads
        self.axes = axes
        self.width = width
        self.depth = depth
        self.log_distance = log_distance
        self.norm = norm
        self.activation = activation
        self.hidden = nn.ModuleList(nn.Linear(axes if not layer else width, width) for layer in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth if norm else 0))
        self.out = nn.Linear(width, num_heads, bias=False)
        # a normalised layer is bounded, others grow with the distance
        self.tags = frozenset({"relative", "far", "real", "learned"} | ({"bounded"} if norm else set()))

    def reset_parameters(self) -> None:
        """Draw the network anew by torch's rule."""
        for layer in (*self.hidden, *self.norms, self.out):
            assert isinstance(layer, (nn.Linear, nn.LayerNorm))
            layer.reset_parameters()

    def rule(self, device: torch.device, dtype: torch.dtype) -> Rule:
        """Apply the network to offsets that broadcast against heads, each offset once where they are known."""
        network = self._network(dtype)

        def bias_of(*given: Tensor) -> Tensor:
            *offsets, head = given
            biases = _by_offset(network, offsets)  # (*offsets, heads)
            if not head.ndim:
                return biases[..., head]
            if biases.ndim > head.ndim:  # offsets have an axis of 1 where heads have theirs
                biases = biases.squeeze(-1 - head.ndim)
            return biases.movedim(-1, -head.ndim)

        return bias_of

    def _network(self, dtype: torch.dtype) -> Network:
        """Make the network a function, with parameters in the dtype that it computes in."""
        act, log_distance, norm = ACTIVATIONS[self.activation], self.log_distance, self.norm
        layers = [(_cast(layer.weight, dtype), _cast(layer.bias, dtype)) for layer in self.hidden]
        norms = [(_cast(each.weight, dtype), _cast(each.bias, dtype)) for each in self.norms]
        out = self.out.weight.to(dtype)

        def of_offsets(offsets: Tensor) -> Tensor:
            x = -offsets.to(dtype)  # query minus key
            x = signed_log(x) if log_distance else x
            for number, (weight, bias) in enumerate(layers):
                x = linear(x, weight, bias)
                x = act(layer_norm(x, bias.shape, *norms[number]) if norm else x)
            return linear(x, out)

        return of_offsets


def _cast(parameter: Tensor | nn.Module, dtype: torch.dtype) -> Tensor:
    assert isinstance(parameter, Tensor)
    return parameter.to(dtype)


def _by_offset(network: Network, offsets: list[Tensor]) -> Float[Tensor, "*offsets heads"]:
    """Ask a network once for each offset between the lowest and the highest of each axis, and look the pairs up; pair
    by pair where these are fewer, or where offsets are fractions or may not be read."""
    first = offsets[0]
    if first.is_floating_point() or not first.numel() or is_deferred(first) or not is_plain(first):
        return network(torch.stack(offsets, -1))
    ends = [(int(each.min()), int(each.max())) for each in offsets]
    if math.prod(high - low + 1 for low, high in ends) >= first.numel():
        return network(torch.stack(offsets, -1))
    every = torch.meshgrid(*(torch.arange(low, high + 1) for low, high in ends), indexing="ij")
    biases = network(torch.stack(every, -1))  # (offsets of the first axis, ..., heads)
    return biases[tuple(each - low for each, (low, _) in zip(offsets, ends, strict=True))]
