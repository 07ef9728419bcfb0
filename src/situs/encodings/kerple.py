"""KERPLE: biases from conditionally positive definite kernels, with learned shape.

Paper    Chi et al., arXiv:2205.09921, section 4.
Acts on  scores.    Learned: yes, two numbers per head.    Relative: yes.

    log      q_i . k_j / sqrt(d) - r1 log(1 + r2 |i - j|)
    power    q_i . k_j / sqrt(d) - r1 |i - j|^r2,    r2 <= 2

Departures: the authors keep r1 and r2 positive by writing the clamped number back into the parameter in every forward
pass. Here nothing is written: the clamped number is used, and the gradient passes as if it had not been clamped.
"""

from __future__ import annotations

from typing import Literal, final

import torch
from torch import Tensor, nn

from situs.arguments import require_choice, require_count
from situs.encodings.bias import OffsetBias, Rule
from situs.functional.kernels import kerple_log, kerple_power
from situs.registry import register

SMALLEST = 1e-2


@final
@register(
    name="kerple",
    paper="Chi et al. 2022, KERPLE: Kernelized Relative Positional Embedding for Length Extrapolation, "
    "arXiv:2205.09921",
    formula="q_i . k_j / sqrt(d) - r1_h log(1 + r2_h |i - j|)",
    dialects={"paper's main model": 'kernel="log"', "paper's other model": 'kernel="power", -r1_h |i - j|^r2_h'},
)
class Kerple(OffsetBias):
    """Lower scores with distance along a curve that each head learns."""

    tags = frozenset({"relative", "far", "real", "learned", "fading"})

    def __init__(self, *, num_heads: int, kernel: Literal["log", "power"] = "log") -> None:
        """
        num_heads: heads, each with its own curve.
        kernel: "log", which flattens out, or "power".
        """
        super().__init__()
        self.num_heads = num_heads = require_count("num_heads", num_heads, "each has a curve", least=1)
        self.kernel = kernel
        require_choice("kernel", kernel, ("log", "power"), "these are the paper's two families")
        self.r1 = nn.Parameter(torch.empty(num_heads))
        self.r2 = nn.Parameter(torch.empty(num_heads))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw both numbers anew, uniformly as the authors do: the factor of a logarithm and the exponent of a power
        below 2, the others below 1."""
        self.r1.uniform_(0, 2 if self.kernel == "log" else 1)
        self.r2.uniform_(0, 1 if self.kernel == "log" else 2)

    def rule(self, device: torch.device, dtype: torch.dtype) -> Rule:
        """Follow the curve at ``|offset|``."""
        r1 = _clamped(self.r1.to(dtype), None)
        r2 = _clamped(self.r2.to(dtype), 2.0 if self.kernel == "power" else None)
        curve = kerple_log if self.kernel == "log" else kerple_power
        return lambda offset, head: curve(offset.abs(), r1[head], r2[head])


def _clamped(value: Tensor, most: float | None) -> Tensor:
    """Clamp a number to its range, with a gradient that leads back into it from outside."""
    return value.clamp(SMALLEST, most).detach() + (value - value.detach())
