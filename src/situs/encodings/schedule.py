"""Encodings by name: which one each layer of a model has.

    situs.schedule(["rotary", "rotary", "rotary", "none"], num_layers=48, head_dim=128)      every fourth layer has none
    situs.schedule([("rotary", {"base": 1e4})] * 5 + [("rotary", {"base": 1e6})], num_layers=26, head_dim=256)
    situs.schedule([["rotary", "alibi"]], num_layers=12, head_dim=64, num_heads=8)           two encodings per layer

A layer is named by what it has, never by what it lacks, so that no flag can be read the wrong way round. Names are
those that `situs.create` takes: of the registry, rotary+yarn, or MODULE:CLASS for an encoding of one's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, TypeGuard

from torch import nn

from situs.arguments import require_count, told
from situs.encodings.base import Encoding
from situs.registry import did_you_mean, entry, require_options

Single: TypeAlias = str | tuple[str, Mapping[str, Any]] | Encoding
Layer: TypeAlias = Single | Sequence[Single]


def schedule(pattern: Sequence[Layer], *, num_layers: int, **sizes: Any) -> nn.ModuleList:
    """Make an encoding for each layer, by a pattern that repeats; hand each to the attention of its layer.

    An item is a name, a name with options of its own, an encoding, or several of these that act together. Names get
    those of ``sizes`` that they know, and every layer its own parameters; an encoding that was made already is shared
    by the layers it stands for, as T5 shares its table.
    """
    given: object = pattern
    if isinstance(given, (str, bytes)) or not isinstance(given, Sequence) or not given:
        raise ValueError(
            f"pattern must be a list with an item for each layer until it repeats, since layers may differ; got "
            f'{told(pattern)}. Use ["rotary"] for one encoding in all layers.'
        )
    num_layers = require_count("num_layers", num_layers, "each layer has an encoding", least=1)
    if num_layers < len(pattern):
        raise ValueError(
            f"num_layers must be at least {len(pattern)}, since the pattern has that many items; got {num_layers}."
        )
    items = [pattern[layer % len(pattern)] for layer in range(num_layers)]
    _require_known(sizes, items)
    return nn.ModuleList(_layer(item, sizes) for item in items)


def _layer(item: Layer, sizes: Mapping[str, Any]) -> nn.Module:
    if _is_several(item):
        return nn.ModuleList(_single(each, sizes) for each in item)
    return _single(item, sizes)


def _is_several(item: Any) -> TypeGuard[Sequence[Single]]:
    return isinstance(item, Sequence) and not isinstance(item, str) and not _has_options(item)


def _has_options(item: Any) -> TypeGuard[tuple[str, Mapping[str, Any]]]:
    return isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str) and isinstance(item[1], Mapping)


def _single(item: Any, sizes: Mapping[str, Any]) -> Encoding:
    if isinstance(item, Encoding):
        encoding = item
    else:
        name, options = _named(item)
        found = entry(name)
        require_options(found.name, found.options, options)
        encoding = found.build(**{**sizes, **options})
    if encoding.place == "input":
        raise ValueError(
            f"pattern must name encodings of attention, since those of the input act once, before the first layer; got "
            f"{type(encoding).__name__}."
        )
    return encoding


def _named(item: Any) -> tuple[str, Mapping[str, Any]]:
    if isinstance(item, str):
        return item, {}
    if _has_options(item):
        return item
    raise TypeError(
        f'pattern must have names, ("name", {{options}}), encodings, or lists of these as items, since each stands for '
        f"a layer; got {told(item)}."
    )


def _require_known(sizes: Mapping[str, Any], items: Sequence[Layer]) -> None:
    """Raise for a size that no encoding of the pattern takes."""
    singles = [each for item in items for each in (item if _is_several(item) else [item])]
    taken = {option for each in singles if not isinstance(each, Encoding) for option in entry(_named(each)[0]).options}
    for name in sizes:
        if name not in taken:
            cure = did_you_mean(name, taken)
            raise TypeError(f"sizes must be options of an encoding in the pattern; got {name!r}.{cure}")
