"""RoPE: rotary position embedding.

Paper    Su et al., arXiv:2104.09864, section 3.2.
Acts on  queries and keys.    Learned: no.    Relative: yes.

    q'_m = R(m) q_m,   k'_n = R(n) k_n,   R(m) rotates pair i by m w_i,   w_i = base^(-2i/d)
    q'_m . k'_n = q_m . R(n - m) k_n

Departures: pairs may be neighbours, as the paper has them, or the two halves of a head, as most released
checkpoints do (``pairing``). A scaling may add a magnitude to the rotation and a factor to the softmax scale.
Angles are formed in float64: at position p they are off by at most ``|p| 2^-52`` radians, less than float32 can tell
up to 2^28. Not every position works for a model: angles are periodic, but what a model has learnt is not, and pairs
that made only part of a turn in training show it angles it has never seen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import final

import torch
from jaxtyping import Float, Float64, Int64, Num
from torch import Tensor

from situs.arguments import require_bases, told
from situs.encodings.bands import Bands
from situs.encodings.base import Role
from situs.encodings.fitting import have_lengths_apart, require_axes, require_length, require_same_length
from situs.encodings.rotation import RotationEncoding, check_head
from situs.encodings.scaling import ScaledFrequencies, Scaling
from situs.encodings.split import Split
from situs.functional.angles import widest
from situs.functional.frequencies import rotary_frequencies
from situs.functional.rotation import Pairing
from situs.positions import Positions
from situs.registry import register

# Factors that differ by less are one.
SAME = 1e-9


@final
@register(
    name="rotary",
    paper="Su et al. 2021, RoFormer: Enhanced Transformer with Rotary Position Embedding, arXiv:2104.09864",
    formula="q'_m = R(m) q_m, k'_n = R(n) k_n; R(m) rotates pair i by m base^(-2i/d)",
    dialects={
        "Llama, GPT-NeoX, Qwen, Gemma": 'pairing="halves"',
        "GPT-J, DeepSeek, Llama's own code": 'pairing="interleaved"; convert_pairing converts checkpoints',
        "YaRN": 'scaling=YaRN(dialect="hf") over pair indices, or "paper" over turns',
    },
)
class Rotary(RotationEncoding):
    """Rotate every channel pair of queries and keys by an angle proportional to the position."""

    def __init__(
        self,
        *,
        head_dim: int,
        base: float | Sequence[float] = 10000.0,
        rotary_dim: int | None = None,
        pairing: Pairing = "halves",
        scaling: Scaling | None = None,
        split: Split | None = None,
    ) -> None:
        """
        head_dim: channels of a head.
        base: sets the slowest wavelength, about ``2 pi base`` positions; a sequence gives each head its own.
        rotary_dim: channels that are rotated, from the first; the rest pass unchanged. All by default.
        pairing: "halves" (Llama, NeoX, Qwen) or "interleaved" (the paper, GPT-J).
        scaling: how the frequencies, or the positions of far pairs, are changed for a longer context.
        split: how pairs are shared among coordinates: `Axial` or `Sections`.
        """
        super().__init__()
        head_dim, rotary_dim = check_head(head_dim, rotary_dim, pairing)
        self.head_dim = head_dim
        self.base = require_bases(base)
        self.rotary_dim = rotary_dim
        self.pairing = pairing
        self.scaling = scaling
        self.split = split
        require_kind("scaling", scaling, Scaling, "how frequencies change", "YaRN(factor=4.0, original_length=4096)")
        require_kind("split", split, Split, "which coordinate rotates a pair", "Axial(axes=2)")
        self.bands = scaling if isinstance(scaling, Bands) else None
        """What positions become in each band of distance; None where a vector has one rotation."""
        self.by_pair = self.bands is not None
        if self.by_pair and split is not None:
            raise ValueError(
                f"split must be left out with {type(scaling).__name__}, since its bands go by the distance along one "
                f"axis; got {split!r}."
            )
        self.axes = 1 if split is None else split.axes
        self.text_has_one = split is not None and split.text_has_one
        self.num_heads = None if isinstance(self.base, (int, float)) else len(self.base)
        self.by_length = scaling is not None and scaling.by_length
        if self.by_length and not isinstance(self.base, (int, float)):
            raise ValueError(
                f"base must be one number with {type(scaling).__name__}, since its frequencies already differ by "
                f"sequence; got {len(self.base)} bases."
            )
        self._ladder_dim = self.rotary_dim if split is None else split.ladder_dim(self.rotary_dim)
        scaled = self._scaled(None)
        frequencies, axis_of_pair = self._dealt(scaled.frequencies)
        # a host constant, not a buffer: no cast, move, meta device or checkpoint can touch it
        self._frequencies = frequencies.reshape(1, -1, 1, frequencies.shape[-1])
        self._axis_of_pair = tuple(axis_of_pair.tolist())
        self.identity = (type(self), head_dim, self.base, self.rotary_dim, pairing, scaling, split)
        self.rotation_factor = scaled.rotation_factor
        self.softmax_factor = scaled.softmax_factor
        norm = {"norm"} if self.rotation_factor == 1.0 else set()
        claims = {"relative", "unique"} if self.bands is None else self.bands.claims
        self.tags = frozenset({"bounded", "far", "real"} | claims | norm)
        moving = sorted(float(each) for each in self._frequencies.flatten() if each > 0) or [math.nan]
        self.resolved = {
            "wavelengths": tuple(2 * math.pi / moving[index] for index in (-1, 0)),
            "rotation_factor": self.rotation_factor,
            "axes": self.axes,
            "dialect": getattr(scaling, "dialect", None),
        }
        # in a tuple, lest torch take it for a part with parameters of its own
        self._without_bands = (Rotary(**{**self.config, "scaling": None}),) if self.by_pair else ()
        if scaling is not None:
            self.resolved["short_context"] = self._change_of_short_contexts(scaling, scaled)
            if scaling.unused:
                self.resolved["unused"] = scaling.unused

    @property
    def without_bands(self) -> Rotary:
        """The rotary that rotates vectors by themselves, as this one does in each band once positions are known."""
        return self._without_bands[0] if self._without_bands else self

    @property
    def frequencies(self) -> Float64[Tensor, "heads pairs"]:
        """Radians per position for each pair, before any choice by sequence length; heads is 1 where all share."""
        return self._frequencies[0, :, 0].clone()

    @property
    def axis_of_pair(self) -> Int64[Tensor, "pairs"]:
        """Which coordinate rotates each pair."""
        return torch.tensor(self._axis_of_pair, device="cpu")

    def coordinates_at(self, positions: Positions) -> Num[Tensor, "batch 1 sequence pairs_or_1"]:
        """Shape positions, one for all pairs or each pair's own."""
        if positions.axes == 1:
            return positions.ids[:, None, :, None]  # on several axes, text: one position stands for every coordinate
        return positions.ids[:, None][..., list(self._axis_of_pair)]

    def frequencies_at(self, positions: Positions) -> Float[Tensor, "#batch #heads #sequence pairs"]:
        """Compute the scaled ladder, for the sequence's length where the scaling chooses by it."""
        if positions.axes != 1 or not self.text_has_one:
            require_axes(self, positions)
        if self.scaling is None or not self.by_length:
            return self._frequencies
        length = require_length(positions, type(self.scaling).__name__)
        if torch.compiler.is_compiling() and not isinstance(length, Tensor):
            # as a tensor it stays symbolic: one graph serves every length
            device = positions.device if widest(positions.device) == torch.float64 else "cpu"
            length = torch.full((), length, dtype=torch.int64, device=device)
        frequencies, _ = self._dealt(self._scaled(length).frequencies)
        return frequencies[:, None] if frequencies.ndim == 3 else frequencies[None, None, None]

    def magnitude_of(self, positions: Positions, role: Role) -> float:
        """Give the scaling's factor of cosine and sine."""
        return self.rotation_factor

    def require_agreement(self, query: Positions, key: Positions) -> None:
        """Raise if a scaling that chooses by length was given two lengths that it treats differently."""
        if self.scaling is None or not self.by_length or query is key:
            return
        require_same_length(query, key, type(self.scaling).__name__, have_lengths_apart(query, key, self._rotate_apart))

    def _rotate_apart(self, ours: int | Tensor, theirs: int | Tensor) -> Tensor:
        """Whether two lengths, or each two, have different frequencies."""
        return (self._scaled(ours).frequencies != self._scaled(theirs).frequencies).any(-1)

    def _change_of_short_contexts(self, scaling: Scaling, scaled: ScaledFrequencies) -> str:
        """Tell in words what the scaling does to lengths that the model was trained on."""
        if isinstance(scaling, Bands):
            return f"unchanged between tokens less than {scaling.exact} apart"
        plain = rotary_frequencies(self._ladder_dim, self._bases)
        ratios = (scaled.frequencies / plain).flatten()
        slowest, fastest = float(ratios.min()), float(ratios.max())
        changes = []
        if max(abs(slowest - 1), abs(fastest - 1)) > SAME:
            span = "" if fastest - slowest <= SAME else f" to x{fastest:.4g}"
            changes.append(f"frequencies x{slowest:.4g}{span}")
        for name, factor in (("cos and sin", scaled.rotation_factor), ("softmax scale", scaled.softmax_factor)):
            if abs(factor - 1) > SAME:
                changes.append(f"{name} x{factor:.4g}")
        where = f"up to {getattr(scaling, 'original_length', None)}" if scaling.by_length else "at every length"
        already = "already " if scaling.by_length else ""
        return f"changed {already}{where}: {', '.join(changes)}" if changes else f"unchanged {where}"

    @property
    def _bases(self) -> float | Tensor:
        if isinstance(self.base, tuple):
            return torch.tensor(self.base, dtype=torch.float64, device="cpu")
        return self.base

    def _scaled(self, sequence_length: int | Tensor | None) -> ScaledFrequencies:
        if self.scaling is None:
            return ScaledFrequencies(rotary_frequencies(self._ladder_dim, self._bases))
        return self.scaling.resolve(self._ladder_dim, self._bases, sequence_length)

    def _dealt(self, ladder: Tensor) -> tuple[Tensor, Tensor]:
        if self.split is None:
            return ladder, torch.zeros(ladder.shape[-1], dtype=torch.int64, device="cpu")
        return self.split.deal(ladder)


def require_kind(name: str, value: object, kind: type, what: str, example: str) -> None:
    """Raise unless ``value`` is None or of a kind."""
    if value is not None and not isinstance(value, kind):
        raise TypeError(
            f"{name} must be a situs.{kind.__name__} or None, since it tells {what}; got {told(value)}. Make "
            f"one, such as situs.{example}."
        )
