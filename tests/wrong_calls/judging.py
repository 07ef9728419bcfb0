"""What counts as an answer to a wrong call: a sentence of the library's own, before anything has changed."""

from __future__ import annotations

import pathlib
import re
import traceback
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import situs
from situs.arguments import told

PACKAGE = str(pathlib.Path(situs.__file__).parent)

SPOKEN = {"value": "positions", "number": "row", "key of Positions.__getitem__": "positions", "given": "encodings"}
"""What an error calls an argument whose own name its caller hardly knows."""


def complaint(problem: BaseException | None, call: str, name: str, value: Any) -> str | None:
    """Tell why an answer is none of the library's sentences; None where it is one."""
    if problem is None:
        return "silence"
    if not isinstance(problem, (TypeError, ValueError, IndexError)):  # the last is the value error of an index
        return f"a {type(problem).__name__}"
    innermost = traceback.extract_tb(problem.__traceback__)[-1]
    if not innermost.filename.startswith(PACKAGE):
        return f"words of {innermost.filename.rsplit('/', 1)[-1]}"
    message = str(problem)
    if " must " not in message or "got " not in message:
        return "no rule"
    if not message.endswith((".", "?")):
        return "no full stop"
    spoken = SPOKEN.get(f"{name} of {call}", SPOKEN.get(name, name))
    if not re.search(rf"\b({re.escape(name)}|{re.escape(spoken)})\b", message):
        return "no name"
    return None if any(form and form in message for form in _forms(value)) else "no value"


def _forms(value: Any) -> set[str]:
    """The ways in which a message may show a value."""
    forms = {told(value), repr(value), type(value).__name__, str(value)}
    if isinstance(value, (Tensor, np.ndarray)):
        forms |= {str(tuple(value.shape)), str(value.dtype), str(getattr(value, "device", ""))}
        forms |= {repr(each) for each in value.flatten().tolist()} if not getattr(value, "is_meta", False) else set()
    if isinstance(value, (list, tuple)):
        forms |= {form for each in value for form in (told(each), type(each).__name__)} | {str(tuple(value)), "none"}
    return forms | ({f"{value:,}"} if isinstance(value, int) else set())


def state(thing: Any) -> dict[str, Any]:
    """All that a wrong call might have changed in the object it was made on."""
    if isinstance(thing, nn.Module):
        return {name: each.clone() for name, each in thing.state_dict().items()}
    if isinstance(thing, situs.KVCache):
        held = {name: getattr(thing, name) for name in ("rotated_by", "sequence_length", "is_counted")}
        of_memory = {name: each for name, each in thing.memory._asdict().items() if not isinstance(each, Tensor)}
        return {**held, **of_memory, "keys": thing.keys.clone(), "values": thing.values.clone()}
    return {"names": situs.names()}


def unchanged(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether two states are the same, to the bit."""
    return before.keys() == after.keys() and all(
        torch.equal(each, after[name]) if isinstance(each, Tensor) else each == after[name]
        for name, each in before.items()
    )
