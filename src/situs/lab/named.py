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
FEWEST_ROWS, FACTOR = 512, 4.0
PAPER = (32.0, 1.0)
"""The turns between which YaRN's ramp lies in its paper."""
AXIAL = "axial"


def subjects(text: str, options: dict[str, Any], *, length: int, train_length: int | None = None) -> list[Subject]:
    """Encodings by their names, parted by commas; options go to those that take them."""
    found = [_subject(name, options, length, train_length) for name in split_names(text)]
    taken = {option for each in found for encoding in each.encodings for option in encoding.config}
    for option in options:
        if option not in taken:
            cure = did_you_mean(option, taken)
            raise ValueError(f"{text} takes {', '.join(sorted(taken)) or 'no options'}; got {option!r}.{cure}")
    return found


def _subject(name: str, options: dict[str, Any], length: int, train_length: int | None) -> Subject:
    base, *rest = re.split(r"\+(?![^()]*\))", name)  # not that of 1e+5
    plus, added = bool(rest), "+".join(rest)
    parts, known = [part.strip() for part in base.split("&")], [*SCALINGS, AXIAL]
    if plus and added not in known:
        cure = did_you_mean(added, known)
        raise ValueError(f"{name}: + must be followed by one of {', '.join(known)}; got {added!r}.{cure}")
    for part in parts:
        require_options(part)
    sizes = {**SIZES, "max_length": max(length, FEWEST_ROWS), **options}
    if len(parts) > 1 and "dim" not in options:  # all in one model
        sizes["dim"] = sizes["num_heads"] * sizes["head_dim"]
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)  # the same picture every time
        made = [build(part, {**sizes, **options_of(part)}) for part in parts]
    if plus and not any(isinstance(each, Rotary) for each in made):
        raise ValueError(f"{name}: +{added} changes rotary; got {base!r}.")
    if plus:
        made = [_changed(each, added, length, train_length) if isinstance(each, Rotary) else each for each in made]
    return Subject(name, tuple(made), draw_what_is_near_zero(made))


def _changed(rotary: Rotary, added: str, length: int, train_length: int | None) -> Rotary:
    options = dict(rotary.config)
    if added == AXIAL:
        return Rotary(**{**options, "split": Axial()})
    trained = train_length or max(2, round(length / FACTOR))
    return Rotary(**{**options, "scaling": SCALINGS[added](max(length / trained, 1.0), trained, PAPER)})
