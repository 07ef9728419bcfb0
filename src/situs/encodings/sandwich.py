"""Sandwich: the product of two sinusoidal encodings as a bias.

Paper    Chi et al., arXiv:2212.10356, section 5 and its appendix's listing.
Acts on  scores.    Learned: no.    Relative: yes.

    score[h, i, j] = q_i . k_j / sqrt(d) + (H / 8h) sum_k cos((i - j) / base^(2k / D)),    h = 1 .. H

The sum is p_i . p_j of sinusoidal encodings D wide. It falls with distance like a logarithm, and oscillates a little.

Departures: descriptions elsewhere multiply by 8h/H, begin k at 1, or subtract D/2 (which softmax cannot tell apart).
The paper's listing divides, begins at 0 and subtracts nothing; so does this.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from situs.arguments import require_base, require_count
from situs.encodings.bias import OffsetBias, Rule
from situs.functional.frequencies import sinusoidal_frequencies
from situs.functional.kernels import sum_of_cosines
from situs.registry import register


@final
@register(
    name="sandwich",
    paper="Chi et al. 2023, Dissecting Transformer Length Extrapolation via the Lens of Receptive Field Analysis, "
    "arXiv:2212.10356",
    formula="q_i . k_j / sqrt(d) + (H / 8h) sum_k cos((i - j) / base^(2k / D))",
)
class Sandwich(OffsetBias):
    """Add a bias that falls with distance: the product of two sinusoidal encodings."""

    tags = frozenset({"relative", "bounded", "far", "real"})

    def __init__(self, *, num_heads: int, cosine_dim: int = 128, base: float = 10000.0) -> None:
        """
        num_heads: heads, the first of which falls most steeply.
        cosine_dim: the paper's D: twice the number of cosines.
        base: sets the slowest wavelength, about ``2 pi base`` positions.
        """
        super().__init__()
        self.num_heads = num_heads = require_count("num_heads", num_heads, "each has a ratio", least=1)
        self.cosine_dim = cosine_dim = require_count("cosine_dim", cosine_dim, "every cosine stands for a pair")
        self.base = base = require_base(base)
        if cosine_dim < 2 or cosine_dim % 2:
            raise ValueError(f"cosine_dim must be 2, 4, 6 ..., since every cosine stands for a pair; got {cosine_dim}.")
        self._frequencies = sinusoidal_frequencies(cosine_dim, base, "exclusive").tolist()
        self._ratios = 8 * torch.arange(1, num_heads + 1, dtype=torch.float64, device="cpu") / num_heads
        self.resolved = {"ratios": tuple(self._ratios.tolist())}

    def rule(self, device: torch.device, dtype: torch.dtype) -> Rule:
        """Sum cosines, divided by the head's ratio."""
        ratios = self._ratios.to(device, dtype)

        def sway(offset: Tensor, head: Tensor) -> Tensor:
            return sum_of_cosines(offset, self._frequencies).to(dtype) / ratios[head]

        return sway
