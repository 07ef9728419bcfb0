"""ALiBi: attention with linear biases.

Paper    Press, Smith & Lewis, arXiv:2108.12409, section 3.
Acts on  scores.    Learned: only if asked.    Relative: yes.

    score[h, i, j] = q_i . k_j / sqrt(d) - m_h |i - j|,    m_h = 2^(-8 h / H),  h = 1 .. H

Departures: H not a power of two follows the authors' code, not the formula. |i - j| also serves encoders; slopes for
keys ahead may differ from those behind (``asymmetric``). The product is formed from the distance, in float32 or wider:
released models multiply a bfloat16 slope by an absolute index, which merges neighbours from position 257 on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

from situs.arguments import require_count, require_flags, require_number, require_several
from situs.encodings.bias import OffsetBias, Rule
from situs.functional.slopes import alibi_slopes
from situs.registry import register


@final
@register(
    name="alibi",
    paper="Press et al. 2022, Train Short, Test Long: Attention with Linear Biases Enables Input Length "
    "Extrapolation, arXiv:2108.12409",
    formula="q_i . k_j / sqrt(d) - m_h |i - j|",
    dialects={
        "BLOOM": "the defaults; it adds m_h j instead of m_h (j - i), which softmax cannot tell apart under a "
        "causal mask",
        "MPT": "bias_max is its alibi_bias_max, which transformers ignores and takes for 8",
        "Falcon": "factor=1/sqrt(head_dim), since it scales the bias together with q . k",
    },
)
class ALiBi(OffsetBias):
    """Lower every score in proportion to distance."""

    def __init__(
        self,
        *,
        num_heads: int,
        bias_max: float = 8.0,
        factor: float = 1.0,
        slopes: Sequence[float] | None = None,
        asymmetric: bool = False,
        slopes_ahead: Sequence[float] | None = None,
        learned: bool = False,
        first_head: int = 0,
        all_heads: int | None = None,
    ) -> None:
        """
        num_heads: heads, or those of them that this tensor-parallel rank holds.
        bias_max: the last head of a power of two falls by ``2^-bias_max`` per position; 8 in the paper.
        factor: multiplies every slope; Falcon's models need 1 / sqrt(head_dim).
        slopes: one for each of all heads, instead of the paper's.
        asymmetric: keys ahead have slopes of their own, for encoders.
        slopes_ahead: those slopes, as many; where they are learned, they start from ``slopes`` if left out.
        learned: train the slopes.
        first_head: the first of the layer's heads that this rank holds.
        all_heads: heads of the whole layer; num_heads if left out.
        """
        super().__init__()
        num_heads = require_count("num_heads", num_heads, "each has a slope", least=1)
        first_head = require_count("first_head", first_head, "it is one of the layer's heads", least=0)
        if all_heads is not None:
            all_heads = require_count("all_heads", all_heads, "each has a slope", least=1)
        bias_max = require_number("bias_max", bias_max, "slopes follow from it")
        factor = require_number("factor", factor, "slopes are multiplied by it")
        require_flags("keys ahead have slopes of their own or not", asymmetric=asymmetric)
        require_flags("slopes are trained or not", learned=learned)
        total = num_heads if all_heads is None else all_heads
        last_head = first_head + num_heads
        if last_head > total:
            raise ValueError(
                f"heads {first_head} .. {last_head - 1} must lie in 0 .. {total - 1}, since the layer has {total}; got "
                f"first_head={first_head}, num_heads={num_heads} and all_heads={all_heads}."
            )
        if asymmetric and slopes_ahead is None and not learned:
            raise ValueError(
                "slopes_ahead must be given where asymmetric slopes are not learned, since they would equal the "
                "others; got None."
            )
        if slopes_ahead is not None and not asymmetric:
            raise ValueError(
                f"asymmetric must be True where slopes_ahead is given, since only then keys ahead have their own; got "
                f"slopes_ahead={slopes_ahead!r}."
            )
        self.num_heads = num_heads
        self.bias_max = bias_max
        self.factor = factor
        self.slopes = None if slopes is None else _checked("slopes", slopes, total)
        self.asymmetric = asymmetric
        self.slopes_ahead = None if slopes_ahead is None else _checked("slopes_ahead", slopes_ahead, total)
        self.learned = learned
        self.first_head = first_head
        self.all_heads = all_heads
        own = slice(first_head, last_head)
        behind = alibi_slopes(total, bias_max) if self.slopes is None else _host(self.slopes)
        self._behind = (behind * factor)[own]
        self._ahead = self._behind if self.slopes_ahead is None else (_host(self.slopes_ahead) * factor)[own]
        if learned:
            self.behind = nn.Parameter(torch.empty(num_heads))
            self.ahead = nn.Parameter(torch.empty(num_heads)) if asymmetric else None
            self.reset_parameters()
        falls = bool((self._behind > 0).all()) and bool((self._ahead > 0).all())
        self.tags = frozenset(
            {"relative", "far", "real"} | ({"learned"} if learned else set()) | ({"fading"} if falls else set())
        )
        self.resolved = {"slopes": tuple(self._behind.tolist())}

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Start learned slopes from the given ones, or the paper's."""
        if self.learned:
            self.behind.copy_(self._behind)
            if self.ahead is not None:
                self.ahead.copy_(self._ahead)

    def rule(self, device: torch.device, dtype: torch.dtype) -> Rule:
        """Fall by ``m_h |offset|``."""
        behind, ahead = (self.behind, self.ahead) if self.learned else (self._behind, self._ahead)
        behind = behind.to(device, dtype)
        if not self.asymmetric:
            return lambda offset, head: -behind[head] * offset.abs()
        assert ahead is not None
        ahead = ahead.to(device, dtype)

        def fall(offset: Tensor, head: Tensor) -> Tensor:
            return torch.where(offset > 0, -ahead[head] * offset, behind[head] * offset)

        return fall


def _host(slopes: Sequence[float]) -> Tensor:
    return torch.tensor(slopes, dtype=torch.float64, device="cpu")


def _checked(name: str, slopes: Sequence[float], heads: int) -> tuple[float, ...]:
    """Slopes as numbers of one's own, which nobody else can change."""
    reason = "there is one per head"
    numbers = [require_number(name, slope, reason) for slope in require_several(name, slopes, reason)]
    if len(numbers) != heads:
        raise ValueError(f"{name} must be {heads} numbers, since {reason}; got {numbers}.")
    return tuple(numbers)
