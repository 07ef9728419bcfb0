"""One row of the table of released models."""

from __future__ import annotations

from typing import NamedTuple

from situs.registry.listed import ENCODINGS, SCALINGS


class Family(NamedTuple):
    """Hold how some released models tell positions."""

    models: str
    """As people call them."""
    model_types: str
    """As transformers calls them, separated by spaces."""
    encoding: str
    """The encodings of a layer, or of the input."""
    attend: str = ""
    """Other arguments of ``attend`` for such a layer."""
    note: str = ""

    @property
    def types(self) -> tuple[str, ...]:
        """The model types, one by one."""
        return tuple(self.model_types.split())

    @property
    def methods(self) -> tuple[str, ...]:
        """The registered names of the encodings and scalings in the call."""
        listed = [*ENCODINGS.items(), *((f"rotary+{name}", each) for name, each in SCALINGS.items())]
        return tuple(sorted(name for name, each in listed if f"situs.{each.cls}(" in self.encoding))
