"""How encodings are written, wherever names are taken or read:

    rotary,alibi             several
    rotary+yarn              one, and what is added to it
    rotary/none              layers that take turns
    rotary&alibi             both in one layer
    shaw(max_distance=32)    with options

Within brackets none of these signs separates anything: 1e+5 is a number there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from situs.registry import did_you_mean


def split(text: str, sign: str) -> list[str]:
    """The parts of a text between a sign, with brackets whole."""
    parts, depth = [""], 0
    for each in text:
        depth += (each == "(") - (each == ")")
        if each == sign and depth == 0:
            parts.append("")
        else:
            parts[-1] += each
    return parts


def split_names(text: str) -> list[str]:
    """Names separated by commas."""
    found = [name.strip() for name in split(text, ",") if name.strip()]
    if not found:
        raise ValueError(f"encodings must be names separated by commas, such as rotary,alibi; got {text!r}.")
    return found


def split_additions(name: str, known: Iterable[str]) -> tuple[str, list[str]]:
    """What stands before the first plus, and what is added behind each; raises for an addition that is not known."""
    (base, *added), known = split(name, "+"), list(known)
    if added and not base.strip():
        raise ValueError(f"{name}: + must stand behind an encoding, since something is added to it; got nothing there.")
    for each in added:
        if each not in known:
            cure = did_you_mean(each, known)
            raise ValueError(f"{name}: + must be followed by one of {', '.join(known)}; got {each!r}.{cure}")
    return base, added


def split_layers(base: str) -> tuple[tuple[str, ...], ...]:
    """For each layer until they repeat, the encodings that act in it."""
    return tuple(tuple(part.strip() for part in split(layer, "&")) for layer in split(base, "/"))


def name_of(part: str) -> str:
    """An encoding without its options."""
    return part.partition("(")[0]


def options_of(part: str) -> dict[str, Any]:
    """``name(a=1, b="x")`` as options, which must be Python literals."""
    name, bracket, rest = part.partition("(")
    if not bracket:
        return {}
    try:
        call = ast.parse(f"f({rest}", mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise ValueError("all must be named")
        return {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError) as problem:
        raise ValueError(
            f"options must be written {name}(name=value, ...) with plain values, such as shaw(max_distance=32); got "
            f"{part!r}."
        ) from problem
