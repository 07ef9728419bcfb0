"""What is computed: the parts of a model, their groups of equal layers, and where tokens stand in each.

A `Part` says what a program does, right or wrong: `parts_of` makes the right one, mistakes change copies of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from situs.models.calls import Call
from situs.models.oracle.places import Batch, batch_of, cells_of, coordinates_of, offsets_of, positions_in
from situs.models.oracle.rules import Rule, rotation_at, rule_of
from situs.models.positions import Layer, ModelPositions

ROTATIONS = ("Rotary", "LeRoPE", "RoPEMixed")
BIASES = ("T5Bias", "ALiBi", "Boxes", "SwinBias")
TERMS = ("Deberta", "TransformerXL", "Shaw", "ProjectedBias", "GatedBias", "ViTDet")
CELLS = ("SwinBias", "ViTDet")
"""Whose positions are cells of a window."""

Coordinates = tuple[tuple[float | int, ...], ...]
Change = Callable[[Rule, "Group"], Rule]
Move = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Group:
    """Hold a group of equal layers, and what a program does in them.

    name: "layer0" for the group whose first layer is 0; "layer0.long" where long sequences are rotated otherwise.
    length: of the sequence, where frequencies go by it.
    coordinates: of the tokens, a row each; offsets: of keys from queries, for biases.
    changes: what is done otherwise to how vectors are rotated; moves: to positions that rotate.
    mirrored: whether offsets are query minus key.
    absolute: whether a bias goes by the key's index instead of the offset.
    """

    name: str
    numbers: tuple[int, ...]
    layer: Layer
    length: int | None = None
    coordinates: Coordinates = ()
    offsets: Coordinates = ()
    rotation: Call | None = None
    values: Call | None = None
    rotates_back: bool = False
    temperature: Call | None = None
    biases: tuple[Call, ...] = ()
    terms: tuple[Call, ...] = ()
    scale: float = 1.0
    has_batch: bool = False
    shows_rotation: bool = False
    changes: tuple[Change, ...] = ()
    moves: tuple[Move, ...] = ()
    heated: tuple[Move, ...] = ()
    """What is done otherwise to positions before a temperature is made of them."""
    rotates_keys: bool = True
    heat_by_index: bool = False
    mirrored: bool = False
    absolute: bool = False
    adds: bool = True
    """Whether biases and terms are added to scores."""

    @property
    def axes(self) -> int:
        """Coordinates of a position."""
        return len(self.coordinates[0]) if self.coordinates else 1

    def rule(self, name: str, call: Call | None = None) -> Rule | None:
        """How queries and keys are rotated, or what another call rotates; None where nothing is."""
        call = self.rotation if call is None else call
        if call is None:
            return None
        found = rule_of(call, self.length, name)
        for change in self.changes:
            found = change(found, self)
        return found


@dataclass(frozen=True)
class Table:
    """Hold an encoding of the input, the positions that it is asked for, and what a program does otherwise."""

    name: str
    call: Call
    coordinates: Coordinates
    has_batch: bool = False
    moves: tuple[Move, ...] = ()


@dataclass(frozen=True)
class Part:
    """Hold a stack of layers, with everything that its arrays are computed from.

    prefix: of its arrays' names, such as "text.".
    layers: of the schedule; groups: those that have arrays.
    """

    prefix: str
    model: ModelPositions
    layers: tuple[Layer, ...]
    groups: tuple[Group, ...]
    tables: tuple[Table, ...]
    batch: Batch | None
    moves: tuple[Move, ...] = ()
    """What is done otherwise to the positions of a batch."""

    def name(self, group: Group | Table) -> str:
        """The name of a group with that of its part."""
        return f"{self.prefix}{group.name}"

    def change(self, each: Callable[[Group], Group | None]) -> Part | None:
        """Change every group; None where none is."""
        changed = [each(group) for group in self.groups]
        if not any(changed):
            return None
        pairs = zip(changed, self.groups, strict=True)
        return replace(self, groups=tuple(new if new is not None else old for new, old in pairs))


def parts_of(
    model: ModelPositions, positions: Sequence[int], length: int | None, layers: Sequence[int] | None
) -> tuple[Part, ...]:
    """List the parts that have positions, the main one alone where layers are chosen."""
    main = model.main
    found = []
    for prefix, each in _walk(model, ""):
        if layers is not None and each is not main:
            continue
        part = _part(prefix, each, positions, length, None if layers is None else frozenset(layers))
        if part.groups or part.tables or part.layers:
            found.append(part)
    return tuple(found)


def _walk(model: ModelPositions, prefix: str) -> Iterator[tuple[str, ModelPositions]]:
    yield prefix, model
    for name, each in model.submodels.items():
        yield from _walk(each, f"{prefix}{name}.")


def _part(
    prefix: str, model: ModelPositions, positions: Sequence[int], length: int | None, layers: frozenset[int] | None
) -> Part:
    groups: list[Group] = []
    rotates = any(call.cls in ROTATIONS for layer in model.layers for call in layer.calls)
    for numbers, layer in model.groups():
        if layer.kind in ("linear", "none") or layer.heads is None or (layers and not layers & set(numbers)):
            continue
        groups += _groups(model, numbers, layer, positions, length, shows_rotation=rotates)
    tables = tuple(_tables(model, positions)) if layers is None else ()
    batch = batch_of(model) if groups or tables else None
    return Part(prefix, model, model.layers, tuple(groups), tables, batch)


def _groups(
    model: ModelPositions, numbers: tuple[int, ...], layer: Layer, positions: Sequence[int], length: int | None, *,
    shows_rotation: bool,
) -> Iterator[Group]:  # fmt: skip
    name = f"layer{numbers[0]}"
    made = replace(contents(layer, Group(name, numbers, layer)), shows_rotation=shows_rotation)
    for index, (long, each) in enumerate(_lengths(made.rotation, model, positions, length)):
        where = positions_in(positions, model.lengths.limit if each is None else each)
        coordinates = _coordinates(made, where)
        if not coordinates:
            continue
        relative = made.biases + made.terms
        offsets = offsets_of(relative[0], coordinates) if relative else ()
        single = len(coordinates[0]) == 1 or _text_has_one(made.rotation)
        yield replace(
            made,
            name=f"{name}.long" if long else name,
            length=each,
            coordinates=coordinates,
            offsets=offsets,
            has_batch=single and index == 0 and batch_of(model) is not None,
        )


def contents(layer: Layer, group: Group) -> Group:
    """Give a group what a layer does, whosever it is."""
    calls = {call.cls: call for call in layer.calls}
    rotation = next((call for call in layer.calls if call.cls in ROTATIONS), None)
    values = calls.get("RotaryValue")
    assert layer.heads is not None
    if values is not None:
        kept = {key: each for key, each in values.options if key not in ("value_dim", "rotate_back")}
        width = values.option("value_dim", values.option("head_dim"))
        values, back = Call.of("Rotary", **{**kept, "head_dim": width}), bool(values.option("rotate_back", True))
    return replace(
        group,
        rotation=rotation,
        values=values,
        rotates_back=values is not None and back,
        temperature=calls.get("Temperature"),
        biases=tuple(call for call in layer.calls if call.cls in BIASES),
        terms=tuple(call for call in layer.calls if call.cls in TERMS),
        scale=layer.heads.dim**-0.5 if layer.scale is None else layer.scale,
    )


def _lengths(
    rotation: Call | None, model: ModelPositions, positions: Sequence[int], length: int | None
) -> list[tuple[bool, int | None]]:
    """The lengths of sequences to show: within the original one and beyond it, where they are rotated otherwise."""
    scaling = None if rotation is None else rotation.option("scaling")
    if scaling is None or scaling.cls not in ("LongRoPE", "DynamicNTKScaling"):
        return [(False, length)]
    if length is not None:
        return [(False, length)]
    original = scaling.option("original_length") or model.lengths.declared or 1
    far = max(round(original * scaling.option("factor", 1.0)), model.lengths.declared or 0, max(positions) + 1)
    return [(False, original), (True, max(far, original + 1))]


def _coordinates(group: Group, positions: Sequence[int]) -> Coordinates:
    relative = group.biases + group.terms
    cells = next((call for call in relative if call.cls in CELLS), None)
    if cells is not None:
        return cells_of(cells.option("window"))
    boxes = next((call for call in relative if call.cls == "Boxes"), None)
    axes = 1
    if boxes is not None:
        axes = len(boxes.option("num_buckets"))
    elif group.rotation is not None:
        axes = 2 if group.rotation.cls == "RoPEMixed" else rotation_at(group.rotation, 1).axes
    fractions = (group.rotation is not None and group.rotation.cls == "RoPEMixed") or (
        boxes is not None and boxes.option("resolution") is not None
    )
    return coordinates_of(positions, axes, near=bool(relative), text=_text_has_one(group.rotation), fractions=fractions)


def _text_has_one(rotation: Call | None) -> bool:
    split = None if rotation is None else rotation.option("split")
    return split is not None and split.cls == "Sections"


def _tables(model: ModelPositions, positions: Sequence[int]) -> Iterator[Table]:
    for index, call in enumerate(model.input):
        name = f"input{index}"
        if call.cls == "LearnedGrid":
            yield Table(name, call, cells_of(call.option("size")))
            continue
        usable = None
        if call.cls == "Learned":
            usable = call.option("max_length") - call.option("offset", 0)
        where = positions_in(positions, usable if usable is not None else model.lengths.limit)
        yield Table(name, call, tuple((each,) for each in where), has_batch=batch_of(model) is not None)
