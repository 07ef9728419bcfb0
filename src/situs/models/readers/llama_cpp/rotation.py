"""How layers rotate in llama.cpp: bases, rotated channels, and the coordinates of text among images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from situs.models.calls import Call
from situs.models.positions import Heads, Note
from situs.models.readers.llama_cpp.architectures import Architecture
from situs.models.readers.llama_cpp.scaling import NEVER, Scaled, read_scaling
from situs.models.readers.view import View, told
from situs.models.sources.strict import ConfigError

SECTIONS = "rope.dimension_sections"
BASE = "it is the base of the frequencies"
TOKENS, CHANNELS = "it counts tokens", "it counts channels"


@dataclass(frozen=True)
class Stack:
    """Hold what all layers of a file share; of heads, a number for each block."""

    view: View
    name: str
    architecture: Architecture
    tensors: Mapping[str, Any]
    layers: int
    length: int
    width: int
    queries: list[int]
    keys: list[int]
    window: int | None


def rotation_of(stack: Stack, heads: Heads, slides: bool) -> tuple[Call | None, Scaled]:
    """How layers rotate that slide, or that do not; None where the architecture rotates none."""
    view, architecture = stack.view, stack.architecture
    if architecture.rope == "none":
        return None, Scaled()
    base = view.number("rope.freq_base", reason=BASE, default=10000.0, above=0) or 10000.0
    rotated = view.count("rope.dimension_count", reason=CHANNELS, least=0)
    rotated = (heads.dim if rotated is None else rotated) // (1 if slides else architecture.rotated_by)
    if slides:
        rotated = view.count("rope.dimension_count_swa", reason=CHANNELS) or rotated
        if architecture.sliding_base != "same":
            other = 10000.0 if architecture.sliding_base == "given or 10000" else base
            base = view.number("rope.freq_base_swa", reason=BASE, default=other, above=0) or other
    if rotated % 2 or not 0 < rotated <= heads.dim:
        raise ConfigError(
            f"{view.name('rope.dimension_count')} must be even and lie in 2 .. {heads.dim}, the channels of a head, "
            f"since pairs are rotated; got {rotated}."
        )
    scaled = Scaled()
    if not slides or architecture.sliding_scaled:
        tensors = {} if slides and architecture.factors == "full" else stack.tensors
        scaled = read_scaling(view, stack.name, architecture, tensors, length=stack.length, base=base, rotated=rotated)
    split, scaled = _split(stack, rotated, scaled)
    halves = architecture.rope != "norm" or split is not None
    call = Call.of(
        "Rotary",
        head_dim=heads.dim,
        base=base,
        rotary_dim=None if rotated == heads.dim else rotated,
        pairing=None if halves else "interleaved",
        channels="trailing" if architecture.latent and rotated < heads.dim else None,
        scaling=scaled.scaling,
        split=split,
    )
    return call, scaled


def _split(stack: Stack, rotated: int, scaled: Scaled) -> tuple[Call | None, Scaled]:
    """Which pairs go by which coordinate, for text among images."""
    view, rope = stack.view, stack.architecture.rope
    if rope not in ("mrope", "imrope") and not stack.architecture.sections:
        return None, scaled
    listed = view.get(SECTIONS)
    if listed is None and stack.architecture.sections:
        return None, scaled
    counted = isinstance(listed, list) and all(type(each) is int and each >= 0 for each in listed)
    if not counted or len(listed) not in (3, 4):
        raise ConfigError(
            f"{view.name(SECTIONS)} must be three or four numbers, since it deals pairs to coordinates; got "
            f"{told(listed)}."
        )
    if stack.architecture.sections and not (listed[0] and listed[1]):
        return None, scaled
    four = rope != "imrope" and len(listed) == 4 and listed[3] > 0  # Hunyuan's text has four coordinates
    sizes = listed if four else listed[:3]
    if sum(listed) != sum(sizes) or sum(sizes) != rotated // 2:
        raise ConfigError(
            f"{view.name(SECTIONS)} must add up to {rotated // 2} over three coordinates, the pairs of {rotated} "
            f"channels; got {', '.join(map(str, listed))}."
        )
    split = Call.of("Sections", sizes=sizes, order="interleaved" if rope == "imrope" else "contiguous")
    left = [pair for pair in range(sum(sizes)) if pair >= 3 * sizes[pair % 3]] if rope == "imrope" else []
    return split, _standing(stack, scaled, left, rotated // 2) if left else scaled


def _standing(stack: Stack, scaled: Scaled, left: list[int], pairs: int) -> Scaled:
    """Let pairs stand still that llama.cpp deals to a fourth coordinate, which text and images have as 0."""
    text = f"pairs {', '.join(map(str, left))} are not rotated: llama.cpp deals them to a fourth coordinate, which is 0"
    if scaled.scaling is not None:
        note = Note(stack.view.name(SECTIONS), f"{text}; here they are")
        return replace(scaled, notes=(*scaled.notes, note))
    divisors = [10 * NEVER if pair in left else 1.0 for pair in range(pairs)]
    still = Call.of(
        "LongRoPE", factor=1.0, original_length=max(stack.length, 2), short_factors=divisors, long_factors=divisors,
        attention_factor=1.0,
    )  # fmt: skip
    return replace(scaled, scaling=still, notes=(*scaled.notes, Note(stack.view.name(SECTIONS), text)))
