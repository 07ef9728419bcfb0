"""Which layer attends how: ``layer_types``, and the older spellings that say the same by a rule.

{"layer_types": ["sliding_attention", "full_attention"]}          by name
Every(6)                                                           one layer of six is full, the others slide
"""

from __future__ import annotations

from dataclasses import dataclass

from situs.models.positions import Kind
from situs.models.readers.view import View, told
from situs.models.sources.strict import ConfigError
from situs.registry.spelling import did_you_mean

KINDS: dict[str, Kind] = {
    "full_attention": "full",
    "attention": "full",
    "global": "full",
    "hybrid": "full",
    "indexed_attention": "full",
    "deepseek_sparse_attention": "full",
    "qwen_sparse_attention": "full",
    "compressed_sparse_attention": "full",
    "heavily_compressed_attention": "full",
    "minimax_m3_sparse": "full",
    "sliding_attention": "sliding",
    "window_attention": "sliding",
    "reference_sliding_attention": "sliding",
    "hybrid_sliding": "sliding",
    "local": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "linear",
    "mamba": "linear",
    "conv": "none",
    "moe": "none",
    "mlp": "none",
}  # fmt: skip
"""The names of layer types, and what each attends to; those of sparse attention choose among all tokens."""


@dataclass(frozen=True)
class Every:
    """Say that one layer of ``n`` attends otherwise than the rest.

    key: the settings that hold n; n is their default.
    at: which of the n it is, counted from 0; the last where left out.
    also: layers that are as the one too, counted from the end where negative.
    behind: layers before the first n.
    backwards: whether layers are counted from the last one.
    before: the setting that counts layers which come first, with a period of their own.
    """

    n: int
    key: tuple[str, ...] = ()
    one: str = "full_attention"
    rest: str = "sliding_attention"
    at: int = -1
    also: tuple[int, ...] = ()
    behind: int = 0
    backwards: bool = False
    before: str | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """The settings that it reads."""
        return self.key if self.before is None else (*self.key, f"prefix_dense_{self.key[0]}")

    def types(self, view: View, layers: int) -> list[str]:
        """The type of each layer."""
        n = (view.count(*self.key, reason="it counts layers") if self.key else None) or self.n
        if self.before is not None:
            return self._with_first(view, layers, n)
        ones = {layer for layer in range(self.behind, layers) if (layer - self.behind) % n == self.at % n}
        if self.backwards:
            ones = {layers - 1 - layer for layer in ones}
        ones |= {layer % layers for layer in self.also if -layers <= layer < layers}
        return [self.one if layer in ones else self.rest for layer in range(layers)]

    def _with_first(self, view: View, layers: int, n: int) -> list[str]:
        assert self.before is not None
        first = view.count(self.before, reason="it counts layers", default=0, least=0) or 0
        own = view.count(f"prefix_dense_{self.key[0]}", reason="it counts layers", default=1) or 1
        counts = [(layer, own) if layer < first else (layer - first, n) for layer in range(layers)]
        return [self.one if (layer + 1) % each == 0 else self.rest for layer, each in counts]


@dataclass(frozen=True)
class Behind:
    """Say that layers slide from one on, where sliding is switched on at all (Qwen 2)."""

    key: str = "max_window_layers"
    switch: str = "use_sliding_window"

    @property
    def keys(self) -> tuple[str, ...]:
        """The settings that it reads."""
        return (self.key, self.switch) if self.switch else (self.key,)

    def types(self, view: View, layers: int) -> list[str]:
        """The type of each layer."""
        on = view.flag(self.switch) if self.switch else True
        first = view.count(self.key, reason="it counts layers", default=layers, least=0)
        assert first is not None
        return ["sliding_attention" if on and layer >= first else "full_attention" for layer in range(layers)]


@dataclass(frozen=True)
class Same:
    """Say that all layers are alike: they slide where there is a window, unless they are named here.

    keys: settings that a list of layer types has taken the place of.
    """

    type: str | None = None
    keys: tuple[str, ...] = ()

    def types(self, view: View, layers: int) -> list[str]:
        """The type of each layer."""
        slides = view.get("sliding_window") is not None
        return [self.type or ("sliding_attention" if slides else "full_attention")] * layers


@dataclass(frozen=True)
class Indices:
    """Say by their numbers which layers attend; without them, all do (LFM2) or none (Bamba)."""

    key: str
    rest: str
    without: str = "full_attention"

    @property
    def keys(self) -> tuple[str, ...]:
        """The settings that it reads."""
        return (self.key,)

    def types(self, view: View, layers: int) -> list[str]:
        """The type of each layer."""
        listed = view.get(self.key)
        if listed is None:
            return [self.without] * layers
        if not isinstance(listed, list) or not all(type(each) is int for each in listed):
            raise ConfigError(f"{view.name(self.key)} must be a list of layers, by number; got {told(listed)}.")
        return ["full_attention" if layer in listed else self.rest for layer in range(layers)]


@dataclass(frozen=True)
class Numbered:
    """Say by their numbers, from 1 on and in an object of their own, which layers attend; without them, every fourth
    behind the first does (Kimi Linear)."""

    part: str
    key: str

    @property
    def keys(self) -> tuple[str, ...]:
        """The settings that it reads."""
        return (self.part,)

    def types(self, view: View, layers: int) -> list[str]:
        """The type of each layer."""
        part = view.part(self.part)
        listed = None if part is None else part.numbers(self.key, reason="each is a layer")
        full = set(range(5, layers + 1, 4)) if listed is None else {int(each) for each in listed}
        return ["full_attention" if layer + 1 in full else "linear_attention" for layer in range(layers)]


@dataclass(frozen=True)
class Period:
    """Say that layers attend from one on, with a period (Jamba)."""

    rest: str = "linear_attention"
    keys: tuple[str, ...] = ("attn_layer_period", "attn_layer_offset")

    def types(self, view: View, layers: int) -> list[str]:
        """The type of each layer."""
        period = view.count("attn_layer_period", reason="it counts layers", default=1) or 1
        first = view.count("attn_layer_offset", reason="it counts layers", default=0, least=0) or 0
        return ["full_attention" if layer % period == first else self.rest for layer in range(layers)]


@dataclass(frozen=True)
class Cycle:
    """Say that a list of names is repeated over the layers (RecurrentGemma)."""

    key: str
    names: tuple[tuple[str, str], ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """The settings that it reads."""
        return (self.key,)

    def types(self, view: View, layers: int) -> list[str]:
        """The type of each layer."""
        listed, names = view.get(self.key), dict(self.names)
        known = isinstance(listed, list) and all(isinstance(each, str) and each in names for each in listed)
        if not known or not listed:
            raise ConfigError(f"{view.name(self.key)} must be a list of {' and '.join(names)}; got {told(listed)}.")
        return [names[listed[layer % len(listed)]] for layer in range(layers)]


@dataclass(frozen=True)
class Listed:
    """Say by a number what each layer is, else by another rule; numbers behind those of the layers are for layers that
    predict further tokens (DeepSeek V4)."""

    key: str
    names: tuple[tuple[int, str], ...]
    otherwise: Every

    @property
    def keys(self) -> tuple[str, ...]:
        """The settings that it reads."""
        return (self.key, *self.otherwise.keys)

    def types(self, view: View, layers: int) -> list[str]:
        """The type of each layer."""
        listed, names = view.get(self.key), dict(self.names)
        if listed is None:
            return self.otherwise.types(view, layers)
        own = listed[:layers] if isinstance(listed, list) else []
        if len(own) < layers or any(type(each) is not int or each not in names for each in own):
            raise ConfigError(
                f"{view.name(self.key)} must have one of {', '.join(map(str, names))} for each of {layers} layers; got "
                f"{told(listed)}."
            )
        return [names[each] for each in own]


@dataclass(frozen=True)
class Pattern:
    """Say by a letter what each layer is, and by their number how many there are (Nemotron H).

    otherwise: what layers are where nothing is said.
    """

    key: str
    names: tuple[tuple[str, str], ...]
    otherwise: tuple[str, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """The settings that it reads."""
        return (self.key,)

    def count(self, view: View) -> int:
        """How many layers are named, whatever num_hidden_layers says."""
        listed = view.get("layer_types", "layers_block_type", default=view.get(self.key, default=self.otherwise))
        return len(listed) if isinstance(listed, (list, str, tuple)) else 0

    def types(self, view: View, layers: int) -> list[str]:
        """The type of each layer."""
        written, names = view.get(self.key), dict(self.names)
        if written is None:
            return list(self.otherwise)
        if not isinstance(written, str) or not written or any(letter not in names for letter in written):
            raise ConfigError(
                f"{view.name(self.key)} must be made of {', '.join(names)}, a letter for each layer; got "
                f"{told(written)}."
            )
        return [names[letter] for letter in written]


Rule = Every | Behind | Listed | Pattern | Same | Indices | Numbered | Period | Cycle


def layer_types(view: View, layers: int, rule: Rule) -> list[str]:
    """The type of each layer by name; those that are listed go before the rule of the model type."""
    listed = view.get("layer_types", "layers_block_type")
    if listed is None:
        return rule.types(view, layers)
    for key in rule.keys:  # which the list goes before
        view.get(key)
    name = view.spelling("layer_types", "layers_block_type")
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        raise ConfigError(f"{name} must be a list of names, since layers attend in different ways; got {told(listed)}.")
    for index, each in enumerate(listed):
        if each not in KINDS:
            raise ConfigError(
                f"{name}[{index}] must be one of {', '.join(KINDS)}, since each attends to other tokens; got "
                f"{told(each)}.{did_you_mean(each, KINDS)}"
            )
    if len(listed) != layers:
        raise ConfigError(f"{name} must name {layers} layers, since the model has that many; got {len(listed)}.")
    return listed
