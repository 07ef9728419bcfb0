"""Make golden numbers: what a model's positions come to, in float64, for programs in any language to compare with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from situs.arguments import require_count, told
from situs.models.fingerprints import fingerprint
from situs.models.oracle.arrays import Computed
from situs.models.oracle.parts import Group, Part, Table, parts_of
from situs.models.oracle.places import POSITIONS
from situs.models.oracle.probes import RECIPE
from situs.models.oracle.record import SCHEMA, VERSION, Golden
from situs.models.oracle.tabled import KINDS
from situs.models.positions import ModelPositions, spans
from situs.models.reading import read
from situs.models.sources.strict import ConfigError

ERROR = "angles are off by at most |p| 2^-52 radians at position p; other numbers by a few roundings of float64"
FARTHEST = 2**48
"""Positions beyond it have no angle left in float64: it is off by a sixteenth of a radian there."""
LONGEST = 2**53
"""Lengths beyond it are no whole numbers of float64, in which scalings are computed."""


def golden(
    source: object,
    *,
    positions: Iterable[int] = POSITIONS,
    layers: Iterable[int] | None = None,
    length: int | None = None,
) -> Golden:
    """Compute what a model's positions come to, in float64: for tests of ports to other languages and engines.

    source: anything that `read` takes, or what it gave.
    positions: at which tables, rotated vectors and temperatures are computed.
    layers: numbers of layers, whose groups alone are computed; all if left out.
    length: of the sequence, for models whose frequencies go by it; both a short and a long one if left out.

    >>> from situs import models
    >>> sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2}
    >>> golden = models.golden({"model_type": "llama", **sizes}, positions=[0, 1, 1000])
    >>> golden["layer0.cos"].shape, golden["layer0.rotated_q"].shape, golden["batch.ids"].shape
    (torch.Size([3, 4]), torch.Size([3, 8]), torch.Size([3, 7]))
    """
    model = source if isinstance(source, ModelPositions) else read(source)
    with surroundings():
        return _recorded(model, *asked(model, positions, layers, length))


Asked = tuple[tuple[int, ...], tuple[int, ...] | None, int | None]


def asked(model: ModelPositions, positions: Iterable[int], layers: Iterable[int] | None, length: int | None) -> Asked:
    """Raise unless these are positions, layers of the model and a length."""
    reason = "tokens are counted from 0"
    listed = _listed("positions", positions, "numbers are computed at each")
    found = tuple(require_count("positions", each, reason, least=0, most=FARTHEST) for each in listed)
    if not found:
        raise ValueError("positions must be one or more, since numbers are computed at each; got none.")
    chosen = None
    if layers is not None:
        count = len(model.main.layers)
        rule = f"{model.main.model_type} has {count} layers"
        given = _listed("layers", layers, "the groups of these are computed")
        chosen = tuple(sorted({require_count("layers", each, rule, least=0, most=count - 1) for each in given}))
        if not chosen:
            raise ValueError("layers must be one or more; got none. Leave it out for all of them.")
    if length is not None:
        length = require_count("length", length, "it counts the tokens of a sequence", least=1, most=LONGEST)
    return tuple(sorted(set(found))), chosen, length


def _listed(name: str, given: Iterable[int], reason: str) -> list[int]:
    """Raise unless this is a list of something, text and mappings aside."""
    try:
        if isinstance(given, (str, bytes, bytearray, Mapping)):
            raise TypeError
        return list(given)
    except TypeError:
        raise TypeError(f"{name} must be a list of whole numbers, since {reason}; got {told(given)}.") from None


@contextmanager
def surroundings() -> Iterator[None]:
    """Compute within it on the CPU, without gradients, and use up nobody's random numbers."""
    # asked for only where it changes something, since it slows every operation down
    device = nullcontext() if torch.get_default_device().type == "cpu" else torch.device("cpu")
    with torch.no_grad(), device, torch.random.fork_rng(devices=()):
        yield


def computed_parts(model: ModelPositions, request: Asked) -> tuple[Part, ...]:
    """The parts of a model that have positions; raises where none has."""
    positions, layers, length = request
    every = [layer for _, part in model.stacks() for layer in part.layers]
    if any(layer.kind == "full" and layer.reach is not None for layer in every):
        raise ConfigError(
            "source must rotate each vector by its own position, since the numbers of single vectors are computed; got "
            "DualChunk, which goes by the pair of a query and a key. Read the configuration with engine='transformers'."
        )
    parts = parts_of(model, positions, length, layers)
    if not parts:
        raise ConfigError(f"source must be a model with layers, since their numbers are computed; got {model!r}.")
    return parts


def _recorded(model: ModelPositions, positions: Sequence[int], layers: Any, length: int | None) -> Golden:
    arrays: dict[str, Tensor] = {}
    roles: dict[str, str] = {}
    groups: dict[str, Any] = {}
    tables: dict[str, Any] = {}
    parts = computed_parts(model, (tuple(positions), layers, length))
    for part in parts:
        computed = Computed(part)
        outputs = {name: computed.numbers(name).value for name in computed.names}
        arrays |= {name: each.clone().contiguous() for name, each in {**computed.inputs, **outputs}.items()}
        roles |= {**dict.fromkeys(computed.inputs, "input"), **dict.fromkeys(outputs, "output")}
        groups |= {part.name(group): _group(part, group) for group in part.groups}
        tables |= {part.name(table): _table(part, table) for table in part.tables}
    meta = {
        "schema": SCHEMA,
        "version": VERSION,
        "model_type": model.model_type,
        "verified": model.verified,
        "fingerprint": fingerprint(model),
        "positions": list(positions),
        "layers": None if layers is None else list(layers),
        "length": length,
        "error": ERROR,
        "probes": RECIPE,
        "kinds": list(KINDS),
        "groups": groups,
        "tables": tables,
        "notes": _notes(model),
        "roles": dict(sorted(roles.items())),
        "dtypes": {name: str(each.dtype).removeprefix("torch.") for name, each in sorted(arrays.items())},
    }
    return Golden(meta, dict(sorted(arrays.items())))


def _group(part: Part, group: Group) -> dict[str, Any]:
    """What a group of layers is, as plain data."""
    layer, rule = group.layer, group.rule(part.name(group))
    assert layer.heads is not None
    found: dict[str, Any] = {
        "part": part.prefix.removesuffix("."),
        "layers": list(group.numbers),
        "said": f"layer{'s' * (len(group.numbers) > 1)} {spans(group.numbers)}: {layer}",
        "kind": layer.kind,
        "window": layer.window,
        "chunk": layer.chunk,
        "causal": layer.causal,
        "scale": group.scale,
        "softcap": layer.softcap,
        "sinks": layer.sinks,
        "norm": layer.norm,
        "heads": dict(vars(layer.heads)),
        "length": group.length,
        "encodings": [call.to_plain() for call in layer.calls],
    }
    if rule is not None:
        found["rotation"] = {
            "head_dim": rule.head_dim,
            "rotary_dim": 2 * rule.pairs,
            "pairing": rule.pairing,
            "channels": rule.channels,
            "blocks": list(rule.blocks),
            "axes": group.axes,
            "reverse": rule.reverse,
            "factor": rule.factor,
        }
    return found


def _table(part: Part, table: Table) -> dict[str, Any]:
    """What an encoding of the input is, and where it ends."""
    call = table.call
    found: dict[str, Any] = {"part": part.prefix.removesuffix("."), "encoding": call.to_plain()}
    if call.cls == "Learned":
        first = call.option("offset", 0)
        found |= {"rows": call.option("max_length"), "first_row": first, "padding_row": call.option("padding_row")}
        found["usable_length"] = call.option("max_length") - first
    elif call.cls == "LearnedGrid":
        height, width = call.option("size")
        first = call.option("prefix", 0)
        found |= {"rows": first + height * width, "first_row": first, "padding_row": None}
        found["usable_length"] = first + height * width
    else:
        found |= {
            "usable_length": part.model.lengths.limit,
            "scales_embeddings": call.option("scale_embeddings", False),
        }
    return found


def _notes(model: ModelPositions, name: str = "") -> list[str]:
    own = [f"{name}{': ' * bool(name)}{note}" for note in model.notes]
    return own + [
        note for part, each in model.submodels.items() for note in _notes(each, f"{name}{'.' * bool(name)}{part}")
    ]
