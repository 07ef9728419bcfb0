"""Sizes that a stack of layers cannot do without, and images in patches."""

from __future__ import annotations

from situs.models.positions import Heads
from situs.models.readers.families import Family
from situs.models.readers.schedule import KINDS
from situs.models.readers.view import View, told
from situs.models.sources.strict import ConfigError

CHANNELS, LAYERS, HEADS = "it counts channels", "it counts layers", "it counts heads"
MOST = 10_000  # layers
PIXELS = "images are cut into patches"


def layer_count(view: View, *spellings: str, least: int = 1) -> int:
    """How many layers there are; a model of more than ten thousand is a mistake."""
    return few(view.spelling(*spellings), view.require(*spellings, reason="it counts layers", least=least))


def few(name: str, layers: int) -> int:
    """Raise for more layers than any model has, which would fill the memory."""
    if layers > MOST:
        raise ConfigError(f"{name} must be at most {MOST:,}, since it counts layers; got {layers:,}.")
    return layers


def shared(view: View, names: tuple[str, ...], heads: int) -> int:
    """The channels of a head, which share those of the stack."""
    width = view.require(*names, reason=CHANNELS)
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
    return given.require("0", reason=reason), given.require("1", reason=reason)


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


def heads_of(view: View, family: Family, type_: str = "") -> Heads:
    """The sizes of a layer's attention."""
    queries = view.require("num_attention_heads", reason=HEADS)
    inner = view.part("attn_config") if family.inner else None
    keys = None if inner is None else inner.count("kv_n_heads", reason=HEADS)
    keys = keys or view.count("num_key_value_heads", reason=HEADS) or queries
    if family.latent:
        nope = view.count("qk_nope_head_dim", reason=CHANNELS, least=0) or 0
        rope = view.count("qk_rope_head_dim", reason=CHANNELS, least=0) or 0
        for key in ("head_dim", "qk_head_dim"):  # what both add up to, and what is rotated of it
            view.get(key)
        values = view.count("v_head_dim", reason=CHANNELS) or nope + rope
        latent = view.count("kv_lora_rank", reason=CHANNELS)
        return Heads(queries, queries, nope + rope, values, None if latent is None else latent + rope)
    dim = view.count("head_dim", reason=CHANNELS, least=0) or 0
    if type_ == "full_attention":
        wide = view.count("global_head_dim", reason=CHANNELS, default=family.wide)
        dim = (None if "per_layer_config" in view else wide) or dim
        keys = view.count("num_global_key_value_heads", reason=HEADS) or keys
    if KINDS.get(type_) == "sliding":
        keys *= family.sliding_keys
    if not dim:
        dim = view.require("hidden_size", reason="heads share its channels") // queries
    values = view.count("v_head_dim", reason=CHANNELS) or dim
    return Heads(queries, keys, dim, values)
