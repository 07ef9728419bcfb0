"""Tables of frequencies that learn: cached by what the parameters hold, never while a derivative is recorded.

Versions of parameters would not do: torch does not count what is written through ``.data`` or by fused optimizers.
Frequencies are few, so that reading them takes less than a table does.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from torch import Tensor

from situs.compiled.watching import is_differentiated, is_plain
from situs.rotation import RotationTable


def cached_by_values(
    tables: dict[Any, Any], key: Hashable, parameters: Sequence[Tensor], make: Callable[[], RotationTable]
) -> RotationTable:
    """Find the table made of the values that parameters hold now, or make it. Nothing is cached while derivatives are
    recorded, in a graph, or where reading the values would make the host wait."""
    known = all(each.is_cpu and is_plain(each) for each in parameters)
    if not known or is_differentiated(any(each.requires_grad for each in parameters)):
        return make()
    values = [each.tolist() for each in parameters]
    held: tuple[Any, RotationTable] | None = tables.get(key)
    if held is None or held[0] != values:
        held = tables[key] = values, make()
    return held[1]
