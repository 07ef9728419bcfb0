"""Sizes that a stack of layers cannot do without, and images in patches."""

from __future__ import annotations

from situs.models.strict import ConfigError
from situs.models.view import View, told

CHANNELS, LAYERS, HEADS = "it counts channels", "it counts layers", "it counts heads"
PIXELS = "images are cut into patches"


def require(view: View, names: tuple[str, ...], reason: str, *, least: int = 1) -> int:
    """A size that must be known."""
    found = view.count(*names, reason=reason, least=least)
    if found is None:
        raise ConfigError(f"{view.spelling(*names)} must be given, since {reason}; got none.")
    return found


def shared(view: View, names: tuple[str, ...], heads: int) -> int:
    """The channels of a head, which share those of the stack."""
    width = require(view, names, CHANNELS)
    if width % heads:
        raise ConfigError(
            f"{view.spelling(*names)} must be a multiple of {heads}, since so many heads share its channels; got "
            f"{width}."
        )
    return width // heads


def sides(view: View, *names: str, reason: str = PIXELS) -> tuple[int, int] | None:
    """A size in two directions, which may be one number for both."""
    value = view.get(*names)
    if value is None:
        return None
    both = value if isinstance(value, (list, tuple)) else (value, value)
    name = view.spelling(*names)
    if len(both) != 2:
        raise ConfigError(f"{name} must be a number, or a height and a width, since {reason}; got {told(value)}.")
    given = View({str(index): each for index, each in enumerate(both)}, path=name)
    return require(given, ("0",), reason), require(given, ("1",), reason)


def grid_of(view: View, image: str = "image_size", patch: str = "patch_size") -> tuple[int, int]:
    """The patches of an image of the size that a model is made for."""
    whole, part = sides(view, image), sides(view, patch)
    for name, each in ((image, whole), (patch, part)):
        if each is None:
            raise ConfigError(f"{view.name(name)} must be given, since {PIXELS}; got none.")
    assert whole is not None
    assert part is not None
    if part[0] > whole[0] or part[1] > whole[1]:
        raise ConfigError(
            f"{view.name(patch)} must be at most {view.name(image)}, since {PIXELS}; got {told(view.get(patch))} and "
            f"{told(view.get(image))}."
        )
    return whole[0] // part[0], whole[1] // part[1]
