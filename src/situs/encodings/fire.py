"""FIRE: functional interpolation for relative positions.

Paper    Li et al., arXiv:2310.04418, section 3 and its appendix's listing.
Acts on  scores.    Learned: yes, a small MLP and two numbers.    Relative: only below the threshold.

    score[h, i, j] = q_i . k_j / sqrt(d) + f_h(psi(|i - j|) / psi(max(L, i))),    psi(x) = log(1 + c x)

Distances are divided by the query's position, so that a longer text is mapped onto the same 0 .. 1 (progressive
interpolation). So the bias depends on the query's position too: it is a function of the offset alone only while
i <= L. Positions count from 0, in each document for itself.

Departures: f is an MLP with one hidden layer, as in the listing, but without the bias of its output, which is the same
for all keys, so that softmax cancels it. c and L are kept positive by their absolute values, as there.
Keys ahead of the query count by their distance, which may exceed its position.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from situs.arguments import require_counts, require_number
from situs.encodings.bias import PairBias, Rule
from situs.encodings.hinges import sum_of_hinges
from situs.functional.kernels import log_distance
from situs.registry import register

SMALLEST = 1e-6


@final
@register(
    name="fire",
    paper="Li et al. 2024, Functional Interpolation for Relative Positions Improves Long Context Transformers, "
    "arXiv:2310.04418",
    formula="q_i . k_j / sqrt(d) + f_h(log(1 + c |i - j|) / log(1 + c max(L, i)))",
)
class Fire(PairBias):
    """Add a learned function of the distance as a share of the query's position."""

    tags = frozenset({"bounded", "far", "real", "learned"})

    def __init__(self, *, num_heads: int, width: int = 32, rate: float = 0.1, threshold: float = 512.0) -> None:
        """
        num_heads: heads, each with its own output of the MLP.
        width: hidden units of the MLP.
        rate: start of c, which spreads near distances.
        threshold: start of L, below which distances are not yet divided by the query's position.
        """
        super().__init__()
        num_heads, width = require_counts("it sizes the MLP", num_heads=num_heads, width=width)
        rate = require_number("rate", rate, "distances are measured by it", above=0)
        threshold = require_number("threshold", threshold, "distances are measured by it", above=0)
        self.num_heads = num_heads
        self.width = width
        self.rate = rate
        self.threshold = threshold
        self.hidden = nn.Linear(1, width)
        self.out = nn.Linear(width, num_heads, bias=False)
        # of one number rather than none, since FSDP shards no parameter without an axis
        self.c = nn.Parameter(torch.empty(1))
        self.threshold_factor = nn.Parameter(torch.empty(1))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the MLP anew by torch's rule; c and L start where they were put."""
        self.hidden.reset_parameters()
        self.out.reset_parameters()
        self.c.fill_(self.rate)
        self.threshold_factor.fill_(1.0)

    def rule(self, device: torch.device, dtype: torch.dtype) -> Rule:
        """Apply the MLP to the share, for positions that broadcast against heads, or for a single score."""
        w1, b1, w2 = self.hidden.weight[:, 0].to(dtype), self.hidden.bias.to(dtype), self.out.weight.to(dtype)
        c, longest = self.c.to(dtype)[0], (self.threshold_factor.to(dtype)[0] * self.threshold).abs()
        # FlexAttention learns only what is read by an index of its own
        each = [tensor.expand(self.num_heads, *tensor.shape).contiguous() for tensor in (c, longest, w1, b1)]

        def matrix(query: Tensor, key: Tensor, head: Tensor) -> Tensor:
            return sum_of_hinges(_share(query, key, c, longest).squeeze(1), w1, b1, w2)

        def single(query: Tensor, key: Tensor, head: Tensor) -> Tensor:
            rate, threshold, slopes, starts = each
            x = _share(query, key, rate[head], threshold[head])
            total = torch.zeros_like(x)
            for unit in range(self.width):  # a score_mod may not reduce
                total = total + w2[head, unit] * torch.relu(x * slopes[head, unit] + starts[head, unit])
            return total

        return lambda query, key, head: (single if head.ndim == 0 else matrix)(query, key, head)


def _share(query: Tensor, key: Tensor, c: Tensor, longest: Tensor) -> Tensor:
    """Compute ``psi(|i - j|) / psi(max(L, i))``, never negative; dividing, which costs more, once a query."""
    distance, position = (query - key).to(c.dtype).abs(), query.to(c.dtype)
    farthest = log_distance(torch.maximum(position, longest), c) + SMALLEST
    return log_distance(distance, c) * (1 / farthest)
