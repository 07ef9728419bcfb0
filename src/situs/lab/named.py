"""Encodings as a person names them to look at: at sizes of a model, with numbers where training would put some.

alibi                    a registered encoding
shaw(max_distance=32)    with options
my_module:MyEncoding     one's own
rotary&alibi             both together
rotary+yarn              scaled from the training length to the text's
rotary+axial             for images
"""

from __future__ import annotations

from typing import Any

import torch

from situs.encodings.rotary import Rotary
from situs.encodings.splits import Axial
from situs.lab.acting import draw_what_is_near_zero
from situs.lab.grammar import name_of, split, split_additions, split_names
from situs.lab.methods import SCALINGS, build, require_part, scaling_of
from situs.lab.portraits import Sitter
from situs.registry import require_options

SIZES = {"dim": 128, "head_dim": 64, "num_heads": 8, "size": (14, 14)}
FEWEST_ROWS, TRAINED, FACTOR = 512, 2048, 4
PAPER = (32.0, 1.0)
"""The turns between which YaRN's ramp lies in its paper."""
AXIAL = "axial"


def from_names(
    text: str, options: dict[str, Any], *, length: int, trained: int = TRAINED, stretched: int | None = None
) -> list[Sitter]:
    """Encodings by their names, separated by commas; options go to those that take them. Tables have rows for
    ``length`` tokens; scalings stretch from ``trained`` tokens to ``stretched``, four times as many if left out."""
    lengths = trained, max(trained, stretched or FACTOR * trained)
    names = split_names(text)
    found = [_sitter(name, options, length, lengths, together=len(names) > 1) for name in names]
    taken = {option for each in found for encoding in each.encodings for option in encoding.config}
    require_options(text, sorted(taken), options)
    return found


def scaled(text: str) -> bool:
    """Whether a scaling is among the names."""
    return any(added in SCALINGS for name in split_names(text) for added in split(name, "+")[1:])


def _sitter(name: str, options: dict[str, Any], length: int, lengths: tuple[int, int], *, together: bool) -> Sitter:
    base, added = split_additions(name, [*SCALINGS, AXIAL])
    scaling_of(name, added)  # of which there is one at most
    parts = [part.strip() for part in split(base, "&")]
    for part in parts:
        require_part(part)
    sizes = {**SIZES, "max_length": max(length, FEWEST_ROWS), **options}
    fitted = {"fire": {"threshold": max(4.0, length / 4)}}  # so that one sees what it does to longer texts
    if (together or len(parts) > 1) and "dim" not in options:  # all in one model
        sizes["dim"] = sizes["num_heads"] * sizes["head_dim"]
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)  # the same picture every time
        made = [build(part, {**fitted.get(name_of(part), {}), **sizes}) for part in parts]
    for change in added:
        if not any(isinstance(each, Rotary) for each in made):
            raise ValueError(f"{name}: +{change} changes rotary; got {base!r}.")
        made = [_changed(each, change, lengths) if isinstance(each, Rotary) else each for each in made]
    draw_what_is_near_zero(made)
    return Sitter(name, tuple(made), untrained=any(True for each in made for _ in each.parameters()))


def _changed(rotary: Rotary, change: str, lengths: tuple[int, int]) -> Rotary:
    options, (trained, stretched) = dict(rotary.config), lengths
    if change == AXIAL:
        return Rotary(**{**options, "split": Axial()})
    return Rotary(**{**options, "scaling": SCALINGS[change](stretched / trained, trained, PAPER)})
