"""Scalings of a released model: by name, set on the loaded model for a while, and as the settings that say them.

    none                                         the model as it was released
    linear ntk dynamic yarn llama3 longrope      other frequencies, which a configuration says
    self-extend rerope dual-chunk                other distances for far keys, which no configuration says

Each is set for the longest length that is measured, and so measured at every length, as it would be used; a factor in
brackets, such as yarn(factor=2), is used as written.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast, get_args

from situs import models
from situs.encodings.bands import Bands
from situs.lab.evaluating.records import NONE, Chosen, Setup
from situs.lab.naming.grammar import has_bands, parse, split_outside_brackets
from situs.lab.naming.scalings import class_of, make_scaling
from situs.models.extendable import Method
from situs.models.extending import Extension
from situs.registry.spelling import did_you_mean

METHODS = get_args(Method)
BANDED = {"selfextend": "self-extend", "rerope": "rerope", "dualchunk": "dual-chunk"}
"""How scalings by bands are called here, by their names in the registry."""
OTHERWISE = {"dynamic_ntk": "dynamic"}
"""Names of the registry for what is called as in ``situs extend`` here."""
NAMES = (NONE, *METHODS, *BANDED.values())
DEFAULT = (NONE, "linear", "ntk", "dynamic", "yarn", "llama3", "self-extend")


@dataclass(frozen=True)
class Named:
    """Hold a scaling as it was written, taken apart."""

    text: str
    """Its name in tables and records, with its options."""
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_none(self) -> bool:
        """Whether the model stays as it was released."""
        return self.name == NONE

    @property
    def has_bands(self) -> bool:
        """Whether it goes by bands of distance."""
        return self.name in BANDED.values()


def named(text: str) -> Named:
    """Take a scaling apart, such as ``yarn`` or ``yarn(factor=2)``."""
    written, bracket, _ = text.strip().partition("(")
    name = _canonical(written.strip())
    if name is None:
        raise ValueError(
            f"scalings must be among {', '.join(NAMES)}; got {written.strip()!r}.{did_you_mean(written.strip(), NAMES)}"
        )
    options = parse(f"rotary+{text.strip()}").additions[0].options if bracket else {}
    _require_options(name, options)
    shown = ", ".join(f"{key}={value!r}" for key, value in options.items())
    return Named(f"{name}({shown})" if options else name, name, options)


def _canonical(written: str) -> str | None:
    folded = written.casefold().replace("-", "").replace("_", "").replace(" ", "")
    spellings = {name.replace("-", ""): name for name in NAMES}
    spellings |= {other.replace("_", ""): name for other, name in OTHERWISE.items()}
    return spellings.get(folded)


def _require_options(name: str, options: Mapping[str, Any]) -> None:
    takes: tuple[str, ...] = ("factor",)
    if name == NONE:
        takes = ()
    elif name == "longrope":
        takes = ("factor", "short_factor", "long_factor")
    elif name in BANDED.values():
        takes = tuple(inspect.signature(class_of(_of_situs(name))).parameters)
    unknown = [key for key in options if key not in takes]
    if unknown:
        raise ValueError(
            f"{name} must be written with {' and '.join(takes) or 'no options'}, since the rest follows from the "
            f"model; got {unknown[0]!r}."
        )


def _of_situs(name: str) -> str:
    """The registry's name of a scaling by bands."""
    return next(each for each, shown in BANDED.items() if shown == name)


def names_in(text: str) -> list[Named]:
    """Take apart scalings that are separated by commas, each once; ``none`` comes first, since others are compared
    with it."""
    found = [named(each) for each in split_outside_brackets(text, ",") if each.strip()]
    if not found:
        raise ValueError(f"scalings must be names separated by commas, such as none,linear,yarn; got {text!r}.")
    unique = {each.text: each for each in found}
    return [named(NONE), *(each for each in unique.values() if not each.is_none)]


def bands_of(scaling: Named, setup: Setup) -> Bands:
    """Make a scaling by bands, fitted to the trained and the longest length where no options are written."""
    of_situs = _of_situs(scaling.name)
    assert has_bands(of_situs)
    written = f"({', '.join(f'{key}={value!r}' for key, value in scaling.options.items())})" * bool(scaling.options)
    made = make_scaling(f"{of_situs}{written}", factor=setup.target / setup.trained, train_length=setup.trained)
    return cast(Bands, made)


@contextmanager
def applied(model: Any, scaling: Named, setup: Setup) -> Iterator[Chosen]:
    """Set a scaling on a loaded model for the length of a ``with`` block; gives what it sets."""
    from situs import huggingface  # not before a model is there: reports are made without transformers
    from situs.huggingface.extending import restored

    if scaling.is_none:
        with restored(model):  # released with dynamic NTK, it goes by the longest text that it has read
            yield Chosen()
    elif scaling.has_bands:
        bands = bands_of(scaling, setup)
        with huggingface.rotated_in_bands(model, bands):
            yield Chosen(code=f"situs.Rotary(..., scaling=situs.{bands!r})")
    else:
        with huggingface.extended(model, **_extension(scaling, setup)) as longer:
            yield Chosen(settings=json.dumps(longer.pasted()), notes=longer.notes)


def _extension(scaling: Named, setup: Setup) -> dict[str, Any]:
    """What ``situs.models.extend`` is asked for."""
    lists = {key: scaling.options[key] for key in ("short_factor", "long_factor") if key in scaling.options}
    factor = scaling.options.get("factor")
    return {
        "target": setup.target if factor is None else None, "factor": factor, "method": scaling.name,
        "original": setup.original, "factors": lists or None,
    }  # fmt: skip


def extension_of(source: object, scaling: Named, setup: Setup) -> Extension:
    """Give a configuration with a scaling that a configuration says, as transformers reads it.

    source: the released configuration: a folder, a file, or JSON text.
    """
    return models.extend(source, **_extension(scaling, setup))
