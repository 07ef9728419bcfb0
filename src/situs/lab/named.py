"""Encodings as a person names them to look at: at sizes of a model, with numbers where training would put some.

alibi                    a registered encoding
shaw(max_distance=32)    with options
my_module:MyEncoding     one's own
rotary&alibi             both together
rotary+yarn              scaled from the training length to the text's
rotary+axial             for images
"""

from __future__ import annotations

import re
from typing import Any

import torch

from situs.encodings.rotary import Rotary
from situs.encodings.splits import Axial
from situs.lab.acting import draw_what_is_near_zero
from situs.lab.methods import SCALINGS, build, options_of, require_options, split_names
from situs.lab.portraits import Subject
from situs.registry import did_you_mean

SIZES = {"dim": 128, "head_dim": 64, "num_heads": 8, "size": (14, 14)}
FEWEST_ROWS, TRAINED, FACTOR = 512, 2048, 4
PAPER = (32.0, 1.0)
"""The turns between which YaRN's ramp lies in its paper."""
AXIAL = "axial"


def subjects(
    text: str, options: dict[str, Any], *, length: int, trained: int = TRAINED, stretched: int | None = None
) -> list[Subject]:
    """Encodings by their names, parted by commas; options go to those that take them. Tables have rows for ``length``
    tokens; scalings stretch from ``trained`` tokens to ``stretched``, four times as many if left out."""
    lengths = trained, max(trained, stretched or FACTOR * trained)
    names = split_names(text)
    found = [_subject(name, options, length, lengths, together=len(names) > 1) for name in names]
    taken = {option for each in found for encoding in each.encodings for option in encoding.config}
    for option in options:
        if option not in taken:
            cure = did_you_mean(option, taken)
            raise ValueError(f"{text} takes {', '.join(sorted(taken)) or 'no options'}; got {option!r}.{cure}")
    return found


def scaled(text: str) -> bool:
    """Whether a scaling is among the names."""
    return any(_plus(name)[1] in SCALINGS for name in split_names(text))


def _plus(name: str) -> tuple[str, str | None]:
    """What stands before a plus, and behind it if there is one; not that of 1e+5."""
    base, *rest = re.split(r"\+(?![^()]*\))", name)
    return base, "+".join(rest) if rest else None


def _subject(name: str, options: dict[str, Any], length: int, lengths: tuple[int, int], *, together: bool) -> Subject:
    base, added = _plus(name)
    parts, known = [part.strip() for part in base.split("&")], [*SCALINGS, AXIAL]
    if added is not None and added not in known:
        cure = did_you_mean(added, known)
        raise ValueError(f"{name}: + must be followed by one of {', '.join(known)}; got {added!r}.{cure}")
    for part in parts:
        require_options(part)
    sizes = {**SIZES, "max_length": max(length, FEWEST_ROWS), **options}
    fitted = {"fire": {"threshold": max(4.0, length / 4)}}  # so that one sees what it does to longer texts
    if (together or len(parts) > 1) and "dim" not in options:  # all in one model
        sizes["dim"] = sizes["num_heads"] * sizes["head_dim"]
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)  # the same picture every time
        made = [build(part, {**fitted.get(part.partition("(")[0], {}), **sizes, **options_of(part)}) for part in parts]
    if added is not None and not any(isinstance(each, Rotary) for each in made):
        raise ValueError(f"{name}: +{added} changes rotary; got {base!r}.")
    if added is not None:
        made = [_changed(each, added, lengths) if isinstance(each, Rotary) else each for each in made]
    draw_what_is_near_zero(made)
    return Subject(name, tuple(made), untrained=any(True for each in made for _ in each.parameters()))


def _changed(rotary: Rotary, added: str, lengths: tuple[int, int]) -> Rotary:
    options, (trained, stretched) = dict(rotary.config), lengths
    if added == AXIAL:
        return Rotary(**{**options, "split": Axial()})
    return Rotary(**{**options, "scaling": SCALINGS[added](stretched / trained, trained, PAPER)})
