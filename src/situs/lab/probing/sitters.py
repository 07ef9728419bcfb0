"""Sitters: what is drawn in a portrait: encodings that a person has, or that are made by method names.

A registered encoding that is made by its name alone has trained parameters (``lab.probing.stored``). With other options
it is as its class initialises it, and so is a class of one's own; captions say which it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor

from situs.arguments import require_count, require_flag
from situs.checks.bench import Bench
from situs.encodings.base import Encoding, Encodings, InputEncoding, as_encodings
from situs.encodings.rotary import Rotary
from situs.encodings.split import Axial
from situs.lab.naming.grammar import AXIAL, Method, Part, parse_all, require_additions
from situs.lab.naming.methods import build, require_part
from situs.lab.naming.scalings import made_again, require_scaling, scaled
from situs.lab.probing.stored import Trained, load, misfit
from situs.positions import Positions
from situs.registry import SCALINGS, entry, names, require_options

HEADS, HEAD_DIM = 1, 64  # of encodings that do not say
SIZES = {"dim": 128, "head_dim": 64, "num_heads": 8, "size": (14, 14)}
FEWEST_ROWS, TRAINED, FACTOR = 512, 2048, 4
INITIAL = "As initialised"


@dataclass(frozen=True)
class Sitter:
    """Hold what is drawn: an encoding, or several that act together, and what it is called."""

    name: str
    encodings: tuple[Encoding, ...]
    trained: Trained | None = None
    """Where its parameters come from, if they were trained for figures."""
    initial: str = ""
    """What a caption says of parameters that are as initialised."""
    sizes: tuple[int, int] | None = None
    """Heads and their channels, where it is to be drawn beside others; those that its encodings say if left out."""

    @property
    def heads(self) -> int:
        """How many heads it was made for, or as many as its sizes make."""
        if self.sizes is not None:
            return self.sizes[0]
        dim, head_dim = self._said("dim", 0), self._said("head_dim", 0)
        return self._said("num_heads", max(1, dim // head_dim) if dim and head_dim else HEADS)

    @property
    def head_dim(self) -> int:
        """Channels of a head."""
        if self.sizes is not None:
            return self.sizes[1]
        return self._said("head_dim", max(1, self._said("dim", HEAD_DIM) // self.heads))

    @property
    def note(self) -> str:
        """What a caption says of its parameters: how they were trained, or that they are as initialised."""
        if self.trained is not None:
            return self.trained.said
        parameters = [parameter.detach() for each in self.encodings for parameter in each.parameters()]
        if parameters and not any(bool(parameter.any()) for parameter in parameters):
            return f"{self.initial or f'{INITIAL}.'} All parameters are 0."
        return self.initial

    @property
    def sample(self) -> tuple[Tensor, Tensor] | None:
        """Queries and keys that its layer made of a text, (heads, tokens, head_dim) each, where there are some."""
        if self.trained is None or self.trained.query is None or self.trained.key is None:
            return None
        return self.trained.query, self.trained.key

    def of_kind(self, kind: type[Encoding]) -> list[Encoding]:
        """Select its encodings of one kind."""
        return [each for each in self.encodings if isinstance(each, kind)]

    @contextmanager
    def bench(self) -> Iterator[Bench]:
        """Put the encodings to work in a layer, without dropout and gradients."""
        declared = next((each.softmax_scale for each in self.encodings if each.softmax_scale is not None), None)
        # T5 draws smaller weights instead of dividing by sqrt(d)
        gain = 1.0 if declared is None else (self.head_dim**-0.5 / declared) ** 0.5
        with still(self.encodings):
            yield Bench(self.encodings, dim=self.heads * self.head_dim, heads=self.heads, gain=gain)

    def _said(self, name: str, otherwise: int) -> int:
        found = (getattr(each, name, None) for each in self.encodings)  # dim is an option of some
        return next((int(number) for number in found if number is not None), otherwise)


def patches_of(encodings: Sequence[Encoding], size: tuple[int, int]) -> Positions:
    """Give the patches of an image their positions: (row, column), or for boxes their number, column and row."""
    patches = Positions.grid(*size)
    if all(each.axes < 3 for each in encodings):
        return patches
    rows, columns = patches.ids.unbind(-1)
    return Positions.explicit(torch.stack((torch.arange(patches.length)[None], columns, rows), -1))


Drawn: TypeAlias = "Encodings | Mapping[str, Encodings] | Sequence[Sitter]"


def sitters(given: Drawn) -> list[Sitter]:
    """Take one encoding, a list of them, or several by the names they shall have; a list under a name acts together."""
    found: list[Sitter]
    if isinstance(given, Sequence) and all(isinstance(each, Sitter) for each in given):
        found = [each for each in given if isinstance(each, Sitter)]
    elif isinstance(given, Mapping):
        found = [Sitter(str(name), tuple(as_encodings(each, "encodings"))) for name, each in given.items()]
    else:
        found = [Sitter(label(each), (each,)) for each in as_encodings(cast(Encodings, given), "encodings")]
    if not found:
        raise ValueError("encodings must be one or more, since there is nothing to draw otherwise; got none.")
    taken: dict[str, int] = {}
    for number, sitter in enumerate(found):
        taken[sitter.name] = taken.get(sitter.name, 0) + 1
        if taken[sitter.name] > 1:
            found[number] = replace(sitter, name=f"{sitter.name} ({taken[sitter.name]})")
    return found


def alike(found: Sequence[Sitter]) -> list[Sitter]:
    """Put sitters into layers of one size, so that they meet the same queries and keys."""
    together = Sitter("", tuple(each for sitter in found for each in sitter.encodings))
    sizes = together.heads, together.head_dim
    for sitter in found:
        for name, size in (("num_heads", sizes[0]), ("head_dim", sizes[1]), ("dim", sizes[0] * sizes[1])):
            whose = sitter.of_kind(InputEncoding) if name == "dim" else sitter.encodings
            for own in (getattr(each, name, None) for each in whose):
                if own not in (None, size):
                    raise ValueError(
                        f"encodings must be of one size to be drawn beside each other, since they meet the same "
                        f"queries and keys; got {name}={own} of {sitter.name} with {sizes[0]} heads of {sizes[1]}."
                    )
    return [replace(sitter, sizes=sizes) for sitter in found]


def label(encoding: Encoding) -> str:
    """Name an encoding as the registry does, with its scaling, or by its class where it is not registered."""
    known = {entry(name).cls: name for name in names()}
    name = known.get(type(encoding), type(encoding).__name__)
    scaling = encoding.scaling if isinstance(encoding, Rotary) else None
    return name if scaling is None else f"{name}+{type(scaling).__name__.removesuffix('Scaling')}"


@contextmanager
def still(encodings: Sequence[Encoding]) -> Iterator[None]:
    """Switch off dropout and gradients, and leave encodings as they were afterwards."""
    training = [each.training for each in encodings]
    try:
        for each in encodings:
            each.eval()
        with torch.no_grad():
            yield
    finally:
        for each, was in zip(encodings, training, strict=True):
            each.train(was)


def sitters_of(
    methods: Sequence[Method],
    options: Mapping[str, Any],
    *,
    length: int,
    needed: int = 1,
    trained: int = TRAINED,
    stretched: int | None = None,
    untrained: bool = False,
    one_model: bool = False,
) -> list[Sitter]:
    """Make encodings by the names of methods; options go to those that take them.

    length: tables that are not trained have rows for so many tokens.
    needed: the text's length where a person chose it; trained tables that are shorter are not drawn.
    trained, stretched: scalings stretch from the one to the other, four times as many tokens if left out.
    untrained: draw all as initialised.
    one_model: give all one number of heads and channels, so that they can meet the same queries and keys.
    """
    lengths = trained, max(trained, stretched or FACTOR * trained)
    sizes: dict[str, Any] = {**SIZES, "max_length": max(length, needed, FEWEST_ROWS)}
    stored = {method: None if untrained else _stored(method, options, needed) for method in methods}
    if one_model and any(isinstance(each, Trained) for each in stored.values()):
        size = next(each.recipe.size for each in stored.values() if isinstance(each, Trained))
        sizes |= {"dim": size.dim, "num_heads": size.heads, "head_dim": size.dim // size.heads}
    elif len(methods) > 1 or len(methods[0].parts) > 1:
        given = {**sizes, **options}
        sizes["dim"] = given["num_heads"] * given["head_dim"]  # all in one model
    sizes |= options
    found = [_sitter(method, stored[method], sizes, length, lengths) for method in methods]
    taken = {option for each in found for encoding in each.encodings for option in encoding.config}
    require_options(",".join(map(str, methods)), sorted(taken), options)
    return found


def named(names: str, *, length: int | None = None, untrained: bool = False, **options: Any) -> list[Sitter]:
    """Make encodings by their names, as ``situs plot`` does, for any figure: with trained parameters where there are.

    names: such as "shaw", or "rotary,alibi,t5(num_buckets=16)".
    length: tokens that tables must have rows for.
    untrained: have all parameters as initialised.
    options: arguments of the encodings.

    >>> [each.note for each in named("shaw", untrained=True)]
    ['As initialised, not trained.']
    """
    require_flag("untrained", untrained, "parameters are as initialised or trained")
    needed = 1 if length is None else require_count("length", length, "it counts tokens", least=1)
    return sitters_of(parse_all(names), options, length=needed, needed=needed, untrained=untrained, one_model=True)


def _stored(method: Method, options: Mapping[str, Any], needed: int) -> Trained | str | None:
    """Find the trained parameters of a method; or say why there are some, but not for this; or None."""
    parts = [part for part in method.parts if not part.of_ones_own]
    if not any(load(part.name) for part in parts):
        return None
    if len(method.parts) > 1 or method.added:
        return f"{INITIAL}: trained parameters are stored for single encodings only."
    own = load(parts[0].name)
    assert own is not None
    other = misfit(own, {**options, **parts[0].options})
    if other is not None:
        return f"{INITIAL}: trained parameters are stored for {other} only."
    rows = own.encoding.usable_length
    if rows is not None and rows < needed:
        return f"{INITIAL}: the trained table has {rows} positions only."
    return own


def _sitter(
    method: Method, stored: Trained | str | None, sizes: Mapping[str, Any], length: int, lengths: tuple[int, int]
) -> Sitter:
    require_additions(method, [*SCALINGS, AXIAL])
    if len(method.pattern) > 1:
        raise ValueError(
            f"{method}: / must not stand between encodings that are drawn, since a figure shows one layer; got "
            f"{len(method.pattern)} layers. Separate them by commas."
        )
    (parts,) = method.pattern
    for part in parts:
        require_part(part)
    require_scaling(method)
    if isinstance(stored, Trained):
        return Sitter(method.name, (stored.encoding,), trained=stored)
    made = _made(parts, sizes, length)
    for change in method.added:
        if not any(isinstance(each, Rotary) for each in made):
            raise ValueError(f"{method}: +{change} must follow rotary, since it changes that; got {method.base!r}.")
        made = [_changed(each, change, *lengths) if isinstance(each, Rotary) else each for each in made]
    learns = any(True for each in made for _ in each.parameters())
    return Sitter(method.name, tuple(made), initial=(stored or f"{INITIAL}, not trained.") if learns else "")


def _made(parts: Sequence[Part], sizes: Mapping[str, Any], length: int) -> list[Encoding]:
    """Make encodings as their classes initialise them, the same every time."""
    fitted: dict[str, dict[str, Any]] = {
        "fire": {"threshold": max(4.0, length / 4)}  # so that one sees what it does to longer texts
    }
    if len(parts) > 1:
        fitted["t5"] = {"softmax_scale": None}  # beside encodings that are made for 1 / sqrt(head_dim)
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        return [build(part, {**fitted.get(part.name, {}), **sizes}) for part in parts]


def _changed(rotary: Rotary, change: str, trained: int, stretched: int) -> Rotary:
    if change == AXIAL:
        return made_again(rotary, split=Axial())
    return scaled(rotary, change, factor=stretched / trained, train_length=trained)
