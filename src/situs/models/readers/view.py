"""A configuration while it is read: each setting is asked for by name, checked, and noted as read.

What nobody asked for and yet speaks of positions is found at the end (`View.unread`), so that no key is passed over in
silence. Names in errors are paths, such as ``text_config.rope_parameters.factor``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from situs.models.sources.strict import ConfigError
from situs.registry.spelling import did_you_mean


class View:
    """Read an object of a configuration; what it leaves out comes from the defaults of its model type."""

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        path: str = "",
        defaults: Mapping[str, Any] | None = None,
        renamed: Mapping[str, str] | None = None,
    ) -> None:
        """
        path: to this object, for errors.
        defaults: what holds where a setting is left out.
        renamed: common names of settings, with the names that this model type has for them.
        """
        self.config = config
        self.path = path
        self.defaults = defaults or {}
        self.renamed = renamed or {}
        self.read: set[str] = set()
        self.parts: dict[str, View] = {}

    def __contains__(self, key: str) -> bool:
        """Whether a key is written, with something other than null."""
        return self.config.get(key) is not None

    def name(self, key: str) -> str:
        """A key with the path to it."""
        return f"{self.path}.{key}" if self.path else key

    def get(self, *spellings: str, default: Any = None) -> Any:
        """What is written under any spelling of a key, else its default; null leaves it open, and has none of the
        model type's.

        Raises where two spellings say different things.
        """
        spellings = self._all(spellings)
        self.read.update(spellings)
        written = {key: self.config[key] for key in spellings if self.config.get(key) is not None}
        if written:
            (first, value), *others = written.items()
            for key, other in others:
                if other != value:
                    raise ConfigError(
                        f"{self.name(first)} and {self.name(key)} must say the same, since they are two names of one "
                        f"setting; got {told(value)} and {told(other)}. Remove one of them."
                    )
            return value
        if any(key in self.config for key in spellings):
            return default
        known = (self.defaults[key] for key in spellings if self.defaults.get(key) is not None)
        return next(known, default)

    def spelling(self, *spellings: str) -> str:
        """The path of the spelling that is written, for errors; the first where none is."""
        return self.name(next((key for key in self._all(spellings) if key in self), spellings[0]))

    def says(self, *spellings: str) -> bool:
        """Whether any spelling of a key is written, with something other than null."""
        return any(key in self for key in self._all(spellings))

    def _all(self, spellings: tuple[str, ...]) -> tuple[str, ...]:
        """Spellings with the other names of each: its own of this model type, and the common one."""
        found = dict.fromkeys(each for key in spellings for each in (key, self.renamed.get(key, key)))
        return (*found, *(common for common, own in self.renamed.items() if own in found and common not in found))

    def number(
        self,
        *spellings: str,
        reason: str,
        default: float | int | None = None,
        least: float | int | None = None,
        above: float | int | None = None,
        most: float | int | None = None,
    ) -> float | None:
        """A finite number within bounds, or the default."""
        value = self.get(*spellings, default=default)
        if value is None:
            return None
        return require_number(self.spelling(*spellings), value, reason, least=least, above=above, most=most)

    def count(self, *spellings: str, reason: str, default: int | None = None, least: int = 1) -> int | None:
        """A whole number that is large enough, or the default."""
        value = self.get(*spellings, default=default)
        return None if value is None else require_count(self.spelling(*spellings), value, reason, least=least)

    def require(self, *spellings: str, reason: str, least: int = 1) -> int:
        """A whole number that has to be there."""
        found = self.count(*spellings, reason=reason, least=least)
        if found is None:
            raise ConfigError(f"{self.spelling(*spellings)} must be given, since {reason}; got none.")
        return found

    def flag(self, *spellings: str, default: bool = False) -> bool:
        """A truth value, or the default."""
        value = self.get(*spellings, default=default)
        if not isinstance(value, bool):
            raise ConfigError(f"{self.spelling(*spellings)} must be true or false; got {told(value)}.")
        return value

    def choice(self, *spellings: str, choices: Iterable[str], reason: str, default: str | None = None) -> str | None:
        """One of some words, or the default."""
        value, choices = self.get(*spellings, default=default), tuple(choices)
        if value is None or (isinstance(value, str) and value in choices):
            return value
        near = did_you_mean(value, choices) if isinstance(value, str) else ""
        raise ConfigError(
            f"{self.spelling(*spellings)} must be one of {', '.join(choices)}, since {reason}; got {told(value)}.{near}"
        )

    def numbers(self, *spellings: str, reason: str, length: int | None = None) -> tuple[float, ...] | None:
        """Finite positive numbers in a list, or nothing."""
        value = self.get(*spellings)
        if value is None:
            return None
        name = self.spelling(*spellings)
        if not isinstance(value, (list, tuple)):
            raise ConfigError(f"{name} must be a list of numbers, since {reason}; got {told(value)}.")
        if length is not None and len(value) != length:
            raise ConfigError(f"{name} must have {length} numbers, since {reason}; got {len(value)}.")
        return tuple(require_number(f"{name}[{index}]", each, reason) for index, each in enumerate(value))

    def part(self, key: str, *, defaults: Mapping[str, Any] | None = None) -> View | None:
        """An object within this one; the same view each time."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise ConfigError(f"{self.name(key)} must be an object, since its settings have names; got {told(value)}.")
        if key not in self.parts:
            self.parts[key] = View(value, path=self.name(key), defaults=defaults)
        return self.parts[key]

    def over(self, settings: Mapping[str, Any]) -> View:
        """The same object with some settings replaced, as for one layer; what is read in it counts as read."""
        if not settings:
            return self
        own = View(
            {**self.config, **settings}, path=self.path,
            defaults={key: each for key, each in self.defaults.items() if key not in settings}, renamed=self.renamed,
        )  # fmt: skip
        own.read, own.parts = self.read, self.parts
        return own

    def unread(self) -> dict[str, Any]:
        """The keys that nobody has asked for, with their values: of this object alone."""
        return {key: value for key, value in self.config.items() if key not in self.read and value is not None}


def require_number(
    name: str,
    value: object,
    reason: str,
    *,
    least: float | int | None = None,
    above: float | int | None = None,
    most: float | int | None = None,
) -> float:
    """A finite number within bounds, as a float."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigError(f"{name} must be a number, since {reason}; got {told(value)}.")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    low = (least is None or number >= least) and (above is None or number > above)
    if not math.isfinite(number) or not low or (most is not None and number > most):
        named = (("at least", least), ("more than", above), ("at most", most))
        bounds = [f"{words} {bound:g}" for words, bound in named if bound is not None]
        raise ConfigError(f"{name} must be {' and '.join(bounds) or 'finite'}, since {reason}; got {told(value)}.")
    return number


def require_count(name: str, value: object, reason: str, *, least: int = 1) -> int:
    """A whole number that is large enough; 4096.0 is one, as JSON does not tell the two apart."""
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not whole:
        raise ConfigError(f"{name} must be a whole number, since {reason}; got {told(value)}.")
    number: int = int(value)  # type: ignore[call-overload]
    if number < least:
        raise ConfigError(f"{name} must be {least} or more, since {reason}; got {told(value)}.")
    if number > 2**53:
        raise ConfigError(f"{name} must be at most 2^53, since {reason}; got {told(value)}.")
    return number


def told(value: object) -> str:
    """A value as an error shows it: as JSON has it, shortened."""
    words = {True: "true", False: "false", None: "null"}
    shown = words[value] if value is None or isinstance(value, bool) else repr(value)
    if len(shown) <= 60:
        return shown
    if isinstance(value, Mapping):
        names = list(map(str, value))
        return f"an object with {', '.join(names[:4])}{' ...' if len(names) > 4 else ''}"[:120]
    return f"a list of {len(value)}" if isinstance(value, list) else f"{shown[:40]} ..."
