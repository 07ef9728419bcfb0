"""Positions in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from situs.positions.places import Positions


def facts_about(places: Positions) -> list[str]:
    """What a reader wants to know of positions, most telling first."""
    facts: list[str] = [places.structure]
    if places.runs is not None and places.structure == "range":
        facts[0] += " " + ", ".join(f"{first}..{last - 1}" for first, last in places.runs)
    facts += [places.note] if places.note else []
    facts += [f"padded {places.side}"] if places.side else []
    facts += [f"documents of {', '.join(map(str, places.document_lengths))}"] if places.document_lengths else []
    facts.append(f"length {places.length}")
    facts += [f"rows {places.rows}"] if places.rows > 1 else []
    facts += [f"axes {places.axes}"] if places.axes > 1 else []
    if isinstance(places.sequence_length, int) and places.sequence_length != places.length:
        facts.append(f"of a sequence of {places.sequence_length}")
    facts += [f"on {places.device}"] if places.device.type != "cpu" else []
    return facts
