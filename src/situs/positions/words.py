"""Positions in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from situs.positions.positions import Positions


def facts_about(positions: Positions) -> list[str]:
    """List what a reader wants to know of positions, most telling first."""
    facts: list[str] = [positions.structure]
    if positions.runs is not None and positions.structure == "range":
        facts[0] += " " + ", ".join(f"{first}..{last - 1}" for first, last in positions.runs)
    facts += [positions.note] if positions.note else []
    facts += [f"padded {positions.side}"] if positions.side else []
    facts += [f"documents of {', '.join(map(str, positions.document_lengths))}"] if positions.document_lengths else []
    facts.append(f"length {positions.length}")
    facts += [f"rows {positions.rows}"] if positions.rows > 1 else []
    facts += ["some without a position"] if positions.placed is not None and positions.structure != "grid" else []
    facts += [f"axes {positions.axes}"] if positions.axes > 1 else []
    if isinstance(positions.sequence_length, int) and positions.sequence_length != positions.length:
        facts.append(f"of a sequence of {positions.sequence_length}")
    facts += [f"on {positions.device}"] if positions.device.type != "cpu" else []
    return facts
