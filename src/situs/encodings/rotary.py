"""RoPE: rotary position embedding.

Paper    Su et al., arXiv:2104.09864, section 3.2.
Acts on  queries and keys.    Learned: no.    Relative: yes.

    q'_m = R(m) q_m,   k'_n = R(n) k_n,   R(m) rotates pair i by m w_i,   w_i = base^(-2i/d)
    q'_m . k'_n = q_m . R(n - m) k_n

Departures: pairs may be neighbours, as the paper has them, or the two halves of a head, as most released
checkpoints do (``pairing``). Channels that are not rotated may stand behind the others or before them (``channels``),
and the rotation may go the other way (``reverse``), which gives the same scores to queries and keys whose pairs are
swapped. A scaling may add a magnitude to the rotation and a factor to the softmax scale.
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

from situs.arguments import require_bases, require_flag, require_same_device, told
from situs.encodings.bands import Bands
from situs.encodings.base import Role
from situs.encodings.fitting import (
    check_head,
    have_lengths_apart,
    require_axes,
    require_length,
    require_same_length,
    require_width,
)
from situs.encodings.rotation import RotationEncoding
from situs.encodings.scaling import ScaledFrequencies, Scaling
from situs.encodings.split import Ladder, Split
from situs.functional.angles import widest
from situs.functional.frequencies import rotary_frequencies
from situs.functional.rotation import Channels, Pairing, require_channels
from situs.positions import Positions, PositionsLike
from situs.registry import register
from situs.rotation.apply import rotate_checked

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
        "DeepSeek, Kimi, GLM, LongCat, Mistral 4, MiniCPM3 (MLA)": 'channels="trailing", rotary_dim=64; join_keys() '
        "builds keys whose rotated part all heads share",
        "nanochat": "reverse=True",
        "YaRN": 'scaling=YaRN(dialect="hf") over pair indices, or "paper" over full rotations',
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
        channels: Channels = "leading",
        reverse: bool = False,
        scaling: Scaling | None = None,
        split: Split | None = None,
    ) -> None:
        """
        head_dim: channels of a head.
        base: sets the slowest wavelength, about ``2 pi base`` positions; a sequence gives each head its own.
        rotary_dim: channels that are rotated; the rest pass unchanged. All by default.
        pairing: "halves" (Llama, NeoX, Qwen) or "interleaved" (the paper, GPT-J).
        channels: where the rotated ones stand: "leading" (NeoX, Phi) or "trailing" (MLA: DeepSeek, Kimi, Mistral 4).
        reverse: rotate by minus the angle, as nanochat does.
        scaling: how the frequencies, or the positions of far pairs, are changed for a longer context.
        split: how pairs are shared among coordinates: `Axial` or `Sections`.
        """
        super().__init__()
        head_dim, rotary_dim = check_head(head_dim, rotary_dim, pairing)
        self.head_dim = head_dim
        self.base = require_bases(base)
        self.rotary_dim = rotary_dim
        self.pairing = pairing
        require_channels(channels)
        self.channels = channels
        self.reverse = require_flag("reverse", reverse, "pairs are rotated one way or the other")
        self.scaling = scaling
        self.split = split
        require_kind("scaling", scaling, Scaling, "how frequencies change", "YaRN(factor=4.0, original_length=4096)")
        require_kind("split", split, Split, "which coordinate rotates a pair", "Axial(axes=2)")
        self.bands = scaling if isinstance(scaling, Bands) else None
        """What positions become in each band of distance; None where a vector has one rotation."""
        self.by_pair = self.bands is not None
        self.takes_unplaced = self.bands is None  # a band holds pairs by their distance, and these have none
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
        whole = Ladder(self.rotary_dim, self._bases, scaling)
        self._ladders = (whole,) if split is None else split.ladders(*whole)
        scaled = self._scaled(None)
        frequencies, axis_of_pair = self._dealt(scaled.frequencies)
        # a host constant, not a buffer: no cast, move, meta device or checkpoint can touch it
        self._frequencies = frequencies.reshape(1, -1, 1, frequencies.shape[-1])
        self._axis_of_pair = tuple(axis_of_pair.tolist())
        if split is not None and split.halves == "axis":
            if pairing != "halves":
                raise ValueError(
                    f"pairing must be 'halves' with halves='axis', since neighbouring channels lie in their axis' "
                    f"block anyway; got {pairing!r}."
                )
            if channels == "trailing" and rotary_dim < head_dim:
                raise ValueError(
                    f"channels must be 'leading' with halves='axis', since blocks are counted from the first channel; "
                    f"got {channels!r} with rotary_dim={rotary_dim} of head_dim={head_dim}."
                )
            self.blocks = tuple([2 * pairs for pairs in axis_of_pair.bincount().tolist()])
        self.identity = (type(self), head_dim, self.base, self.rotary_dim, pairing, channels, reverse, scaling, split)
        assert not isinstance(scaled.rotation_factor, Tensor)
        self.rotation_factor = scaled.rotation_factor
        self.softmax_factor = scaled.softmax_factor
        self._magnitude_by_length = scaling is not None and scaling.magnitude_by_length
        norm = {"norm"} if self.rotation_factor == 1.0 and not self._magnitude_by_length else set()
        claims = {"relative", "unique"} if self.bands is None else self.bands.claims
        self.tags = frozenset({"bounded", "far", "real"} | claims | norm)
        moving = sorted(abs(float(each)) for each in self._frequencies.flatten() if each) or [math.nan]
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
        """Radians per position for each pair, before any choice by sequence length; heads is 1 where all share. They
        are negative where the rotation is reversed."""
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
        length = self._length_at(positions)
        if length is None:
            return self._frequencies
        frequencies, _ = self._dealt(self._scaled(length).frequencies)
        return frequencies[:, None] if frequencies.ndim == 3 else frequencies[None, None, None]

    def _length_at(self, positions: Positions) -> int | Tensor | None:
        """Find the length by which the scaling chooses; None where it chooses by none."""
        if self.scaling is None or not self.by_length:
            return None
        length = require_length(positions, type(self.scaling).__name__)
        if torch.compiler.is_compiling() and not isinstance(length, Tensor):
            # as a tensor it stays symbolic: one graph serves every length
            device = positions.device if widest(positions.device) == torch.float64 else "cpu"
            length = torch.full((), length, dtype=torch.int64, device=device)
        return length

    def join_keys(
        self,
        plain: Float[Tensor, "batch kv_heads sequence plain_dim"],
        shared: Float[Tensor, "batch 1 sequence rotary_dim"],
        positions: PositionsLike = None,
    ) -> Float[Tensor, "batch kv_heads sequence head_dim"]:
        """Build the rotated keys of multi-head latent attention, whose rotated channels all heads share.

        ``plain`` are each head's own channels and ``shared`` the one part with positions. That part is rotated once,
        and written beside every head's own: no copy is rotated. The keys come out rotated, so that attention rotates
        the queries alone; the scale is told, since a scaling may have a part in it.

        >>> import torch, situs
        >>> rotary = situs.Rotary(head_dim=48, rotary_dim=16, channels="trailing", pairing="interleaved")
        >>> query, value = torch.randn(1, 4, 9, 48), torch.randn(1, 4, 9, 32)
        >>> plain, shared = torch.randn(1, 4, 9, 32), torch.randn(1, 1, 9, 16)
        >>> keys = rotary.join_keys(plain, shared)
        >>> situs.attend(rotary(query), keys, value, causal=True, scale=rotary.scale_for(48)).shape
        torch.Size([1, 4, 9, 32])
        """
        own = self.head_dim - self.rotary_dim
        require_width(self, "rotary_dim", shared, self.rotary_dim, "shared")
        require_width(self, "head_dim - rotary_dim", plain, own, "plain")
        sizes = tuple(plain.shape), tuple(shared.shape)
        fits = plain.ndim == shared.ndim == 4 and sizes[0][::2] == sizes[1][::2] and shared.shape[1] == 1
        if not fits or plain.dtype != shared.dtype:
            raise ValueError(
                f"plain and shared must be (batch, heads, sequence, {own}) and (batch, 1, sequence, {self.rotary_dim}) "
                f"of one dtype, since all heads share the rotated channels; got shapes {sizes[0]} and {sizes[1]} of "
                f"{plain.dtype} and {shared.dtype}."
            )
        require_same_device("shared", shared, "plain", plain)
        if self.num_heads is not None:
            raise ValueError(
                f"base must be one number where heads share a key's rotated channels, since these are rotated once; "
                f"got {self.num_heads} bases."
            )
        rotated = rotate_checked(shared, self._table_for(shared, positions, "key", "shared"), self.pairing)
        parts = (plain, rotated.expand(-1, plain.shape[1], -1, -1))
        return torch.cat(parts if self.channels == "trailing" else parts[::-1], -1)

    def magnitude_of(self, positions: Positions, role: Role) -> float | Float64[Tensor, "#batch 1 #sequence 1"]:
        """Give the scaling's factor of cosine and sine, for the sequence's length where the scaling chooses by it."""
        if not self._magnitude_by_length:
            return self.rotation_factor
        length = self._length_at(positions)
        assert length is not None
        factor = self._scaled(length).rotation_factor
        return factor[..., None, :, None] if isinstance(factor, Tensor) and factor.ndim else factor

    def require_agreement(self, query: Positions, key: Positions) -> None:
        """Raise if a scaling that chooses by length was given two lengths that it treats differently."""
        if self.scaling is None or not self.by_length or query is key:
            return
        require_same_length(query, key, type(self.scaling).__name__, have_lengths_apart(query, key, self._rotate_apart))

    def _rotate_apart(self, ours: int | Tensor, theirs: int | Tensor) -> Tensor:
        """Whether two lengths, or each two, have different frequencies."""
        one, other = self._scaled(ours), self._scaled(theirs)
        apart = (one.frequencies != other.frequencies).any(-1)
        return apart | (torch.as_tensor(one.rotation_factor) != torch.as_tensor(other.rotation_factor))

    def _change_of_short_contexts(self, scaling: Scaling, scaled: ScaledFrequencies) -> str:
        """Tell in words what the scaling does to lengths that the model was trained on."""
        if isinstance(scaling, Bands):
            return f"unchanged between tokens less than {scaling.exact} apart"
        plain = torch.cat([rotary_frequencies(each.dim, each.base) for each in self._ladders], -1)
        ratios = (scaled.frequencies / plain).flatten()
        slowest, fastest = float(ratios.min()), float(ratios.max())
        changes = []
        if max(abs(slowest - 1), abs(fastest - 1)) > SAME:
            span = "" if fastest - slowest <= SAME else f" to x{fastest:.4g}"
            changes.append(f"frequencies x{slowest:.4g}{span}")
        for name, factor in (("cos and sin", scaled.rotation_factor), ("softmax scale", scaled.softmax_factor)):
            if abs(float(factor) - 1) > SAME:
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
        found = [each.resolve(sequence_length) for each in self._ladders]
        if len(found) == 1:
            return found[0]
        # a factor for each of several lengths is that of one scaling for all axes, since none may choose by itself
        factors = {each[1:] for each in found if not isinstance(each.rotation_factor, Tensor)}
        if len(factors) > 1:
            listed = " and ".join(sorted(f"{rotation:.4g} and {softmax:.4g}" for rotation, softmax in factors))
            raise ValueError(
                f"scalings must have one factor of cosines and sines and one of the softmax scale, since these belong "
                f"to the whole head; got {listed}."
            )
        return found[0]._replace(frequencies=torch.cat([each.frequencies for each in found], -1))

    def _dealt(self, ladder: Tensor) -> tuple[Tensor, Tensor]:
        ladder = -ladder if self.reverse else ladder
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
