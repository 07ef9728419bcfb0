"""The call that makes an encoding, as data: known before torch is loaded, equal where encodings are, shown as code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False)
class Call:
    """Hold a class of Situs by name, and the options it is called with; their order is for the eye alone.

    >>> from situs.models.calls import Call
    >>> Call.of("Rotary", head_dim=8, base=10000.0, scaling=Call.of("LinearScaling", factor=2.0))
    Rotary(head_dim=8, base=10000.0, scaling=LinearScaling(factor=2.0))
    """

    cls: str
    options: tuple[tuple[str, Any], ...]

    @staticmethod
    def of(cls: str, /, **options: Any) -> Call:
        """Make one; options that are None are left out, lists are tuples."""
        given = {name: tuple(each) if isinstance(each, list) else each for name, each in options.items()}
        return Call(cls, tuple((name, each) for name, each in given.items() if each is not None))

    def option(self, name: str, default: Any = None) -> Any:
        """What an option is called with."""
        return dict(self.options).get(name, default)

    def replace(self, **options: Any) -> Call:
        """The same call with some options changed; None removes one."""
        return Call.of(self.cls, **{**dict(self.options), **options})

    def __eq__(self, other: object) -> bool:
        """Whether both make the same object."""
        if not isinstance(other, Call):
            return NotImplemented
        return self.cls == other.cls and dict(self.options) == dict(other.options)

    def __hash__(self) -> int:
        return hash((self.cls, frozenset(self.options)))

    def build(self) -> Any:
        """The object itself."""
        import situs

        made = {name: each.build() if isinstance(each, Call) else each for name, each in self.options}
        return getattr(situs, self.cls)(**made)

    def outline(self) -> Any:
        """The object itself, with parameters that take no memory: tables may have millions of rows."""
        import torch

        with torch.device("meta"):
            return self.build()

    def to_plain(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {"class": self.cls, **{name: _plain(each) for name, each in self.options}}

    def shown(self) -> str:
        """As code, with long lists told by their length."""
        return f"{self.cls}({', '.join(f'{name}={_shown(each)}' for name, each in self.options)})"

    def __repr__(self) -> str:
        return f"{self.cls}({', '.join(f'{name}={each!r}' for name, each in self.options)})"


def _shown(value: Any) -> str:
    if isinstance(value, Call):
        return value.shown()
    return f"({len(value)} numbers)" if isinstance(value, tuple) and len(value) > 8 else repr(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Call):
        return value.to_plain()
    return [_plain(each) for each in value] if isinstance(value, tuple) else value
