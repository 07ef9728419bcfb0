"""The kinds of figures: what each shows, and which encodings it suits."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, cast

from matplotlib.figure import Figure

from situs.arguments import require_flag, require_instance, told
from situs.encodings.base import Encoding, InputEncoding, QueryKeyEncoding
from situs.encodings.bias import BiasEncoding, PositionProduct
from situs.encodings.boxes import Boxes
from situs.encodings.learned_grid import LearnedGrid
from situs.encodings.nope import NoPE
from situs.encodings.rotary import Rotary
from situs.encodings.rotary_value import RotaryValue
from situs.encodings.rotation import RotationEncoding
from situs.encodings.score import ScoreEncoding
from situs.encodings.sinusoidal import Sinusoidal
from situs.encodings.temperature import Temperature
from situs.lab.probing.sitters import Drawn, Sitter, sitters

P = ParamSpec("P")
LONGEST_MAP, LONGEST_CURVE, LONGEST_TEXT = 2048, 1_000_000, 1 << 27


@dataclass(frozen=True)
class Suits:
    """Tell which encodings a kind suits, as a rule and in words."""

    rule: Callable[[Sitter], bool]
    words: str


def _one(sitter: Sitter, kind: type[Encoding] | tuple[type[Encoding], ...], axes: int | None = 1) -> bool:
    """Tell whether a sitter is one encoding of that kind alone, over that many coordinates."""
    alone = len(sitter.encodings) == 1 and isinstance(sitter.encodings[0], kind)
    return alone and (axes is None or sitter.encodings[0].axes == axes)


def _own_rotation(sitter: Sitter) -> bool:
    """Tell whether vectors are encoded by themselves, and not by band of distance from others."""
    return not any(isinstance(each, QueryKeyEncoding) and each.by_pair for each in sitter.encodings)


def _spatial(sitter: Sitter) -> bool:
    of_images = (Sinusoidal, RotationEncoding, BiasEncoding, ScoreEncoding)
    return _one(sitter, LearnedGrid) or _one(sitter, of_images, 2) or _one(sitter, Boxes, 3)


def _flat(sitter: Sitter) -> bool:
    return all(each.axes == 1 for each in sitter.encodings) and not sitter.of_kind(LearnedGrid)


ADDED = Suits(lambda sitter: _one(sitter, InputEncoding), "an encoding that is added to the input")
COMPARED = Suits(
    lambda sitter: _flat(sitter) and _one(sitter, (InputEncoding, QueryKeyEncoding)) and _own_rotation(sitter),
    "an encoding that is added to the input, or acts on queries and keys by themselves",
)
ROTATING = Suits(
    lambda sitter: _one(sitter, (RotationEncoding, RotaryValue)) and _own_rotation(sitter),
    "an encoding that rotates queries and keys by themselves, or values",
)
WAVING = Suits(
    lambda sitter: _one(sitter, (Sinusoidal, RotationEncoding, RotaryValue), None) and _own_rotation(sitter),
    "an encoding with wavelengths, the same for all pairs of tokens",
)
MULTIPLYING = Suits(lambda sitter: _one(sitter, Temperature), "temperature")
BIASED = Suits(lambda sitter: _one(sitter, BiasEncoding), "an encoding that adds a bias to the scores")
BY_DISTANCE = Suits(
    lambda sitter: _one(sitter, BiasEncoding) and not _one(sitter, PositionProduct),
    "an encoding that adds a bias to the scores by distance",
)
BY_CONTENT = Suits(
    lambda sitter: _one(sitter, ScoreEncoding), "an encoding that adds a content-based term to the scores"
)
IN_TEXT = Suits(_flat, "an encoding for text")
TELLING = Suits(
    lambda sitter: _flat(sitter) and not all(isinstance(each, NoPE) for each in sitter.encodings),
    "an encoding for text that tells positions",
)
SCALED = Suits(lambda sitter: _one(sitter, Rotary), "rotary")
SPATIAL = Suits(
    _spatial,
    "an encoding for images: learned_grid, rope_mixed, swin, boxes, vitdet, sinusoidal(axes=2), or rotary with an "
    "axial split",
)


@dataclass(frozen=True)
class Kind:
    """Hold one kind of figure."""

    name: str
    about: str
    suits: Suits
    draw: Callable[..., Figure]
    many: bool
    """Whether several encodings go into one figure."""
    longest: int
    one_model: bool = False
    """Whether its encodings must have one number of heads and channels, since they meet the same queries and keys."""

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        """The options of the figure, besides the encodings."""
        return dict(list(inspect.signature(self.draw).parameters.items())[1:])

    @property
    def default_length(self) -> int | None:
        """Tokens of the text where none are chosen; None where it has no such option, or leaves it open."""
        chosen = self.options.get("length")
        return None if chosen is None else chosen.default

    def require(self, given: Drawn, options: dict[str, Any]) -> list[Sitter]:
        """Make sitters of what is given; raises unless they and the length suit."""
        for name, option in self.options.items():
            if isinstance(option.default, bool) and name in options:
                require_flag(name, options[name], "a figure has it or not")
        found = sitters(given)
        if len(found) > 1 and not self.many:
            raise ValueError(
                f"{self.name} must be given one encoding, since its figure has room for one; got {len(found)}: "
                f"{', '.join(sitter.name for sitter in found)}. Draw each by itself, or choose a kind that takes "
                f"several: {', '.join(each.name for each in KINDS.values() if each.many)}."
            )
        for sitter in found:
            if not self.suits.rule(sitter):
                fitting = suiting(sitter)
                cure = f" Kinds that suit it: {', '.join(fitting)}." if fitting else ""
                raise ValueError(f"{self.name} is for {self.suits.words}; got {sitter.name}.{cure}")
        self.require_lengths(options)
        return found

    def require_lengths(self, options: dict[str, Any]) -> None:
        """Raise if a length shows nothing, or cannot be shown."""
        for name in ("length", "train_length"):
            length = options.get(name)
            longest = self.longest if name in self.options else LONGEST_TEXT  # a scaling's, which is not drawn itself
            open_ = name not in self.options or self.options[name].default is None
            if name not in options or (length is None and open_):
                continue
            if isinstance(length, bool) or not isinstance(length, int) or not 2 <= length <= longest:
                raise ValueError(
                    f"{name} must be 2 to {longest:,} for {self.name}, since fewer show nothing and more cannot "
                    f"be seen in a figure; got {told(length)}."
                )

    def within(self, found: list[Sitter], options: dict[str, Any]) -> dict[str, Any]:
        """Fill in a length where none was chosen: within what tables have rows for, and not far beyond training."""
        default = self.default_length
        if default is None or "length" in options:
            return options
        ends = [int(each.usable_length or default) for one in found for each in one.encodings]
        if all(one.trained is not None for one in found):
            ends += [2 * one.trained.length for one in found if one.trained is not None]
            # nothing is predicted from the last position of a text, so that its row did not learn
            rows = (each.usable_length for one in found for each in one.encodings)
            ends += [int(each) - 1 for each in rows if each is not None]
        return {**options, "length": max(2, min([default, *ends]))}


KINDS: dict[str, Kind] = {}
ORDER = (
    "rotation", "factors", "grid", "table", "distance", "scores", "speeds", "dimensions", "wavelengths", "bias",
    "similarity", "decay", "likeness", "order", "attention", "scalings",
)  # fmt: skip
"""An encoding's portrait is the first kind that suits it."""


def kind(
    about: str, suits: Suits, *, many: bool = False, longest: int = LONGEST_MAP, one_model: bool = False
) -> Callable[[Callable[Concatenate[list[Sitter], P], Figure]], Callable[Concatenate[Drawn, P], Figure]]:
    """Decorate a figure of sitters: register it by its name, and let it take encodings, lists of them or dicts."""

    def add(draw: Callable[Concatenate[list[Sitter], P], Figure]) -> Callable[Concatenate[Drawn, P], Figure]:
        @functools.wraps(draw)
        def checked(encodings: Drawn, *args: P.args, **options: P.kwargs) -> Figure:
            found = known.require(encodings, dict(options))
            return draw(found, *args, **cast("Any", known.within(found, dict(options))))

        first, *others = inspect.signature(draw).parameters.values()
        takes = first.replace(name="encodings", annotation="Drawn")
        checked.__signature__ = inspect.Signature([takes, *others], return_annotation="Figure")  # type: ignore[attr-defined]
        known = KINDS[draw.__name__] = Kind(draw.__name__, about, suits, checked, many, longest, one_model)
        return cast("Callable[Concatenate[Drawn, P], Figure]", checked)

    return add


def suiting(sitter: Sitter) -> list[str]:
    """List the names of the kinds that suit a sitter; the first is its portrait."""
    require_instance("sitter", sitter, Sitter, "kinds suit what is drawn", "a Sitter", "Use sitters(encoding)[0].")
    return [name for name in ORDER if KINDS[name].suits.rule(sitter)]


def noted(drawn: list[Sitter], said: str, length: int = 0) -> str:
    """Add to a caption where parameters come from, and what of so many positions was never trained."""
    groups: dict[str, list[str]] = {}
    for sitter in drawn:
        if sitter.note:
            groups.setdefault(_shared_note(sitter) if len(drawn) > 1 else sitter.note, []).append(sitter.name)
    if len(drawn) == 1:
        notes = list(groups)
    else:
        notes = [f"{', '.join(names)}: {note[0].lower()}{note[1:]}" for note, names in groups.items()]
    trained = [sitter.trained.length for sitter in drawn if sitter.trained is not None]
    if trained and min(trained) < length:
        notes.append(f"Distances of {min(trained)} and more were never trained.")
    return " ".join([said, *notes])


def _shared_note(sitter: Sitter) -> str:
    """Say of one encoding among several what can be said of all that were trained alike."""
    return sitter.note if sitter.trained is None else f"{sitter.trained.recipe.said}."
