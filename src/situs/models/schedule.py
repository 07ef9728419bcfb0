"""Which layer attends how: ``layer_types``, and the older spellings that say the same by a rule.

    {"layer_types": ["sliding_attention", "full_attention"]}          by name
    Every(6)                                                           one layer of six is full, the others slide
"""

from __future__ import annotations

from dataclasses import dataclass

from situs.models.positions import Kind
from situs.models.strict import ConfigError
from situs.models.view import View, told
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

    key: the setting that holds n; n is its default.
    at: which of the n it is, counted from 0; the last where left out.
    """

    n: int
    key: str | tuple[str, ...] = ()
    one: str = "full_attention"
    rest: str = "sliding_attention"
    at: int | None = None

    def types(self, view: View, layers: int) -> list[str]:
        """The type of each layer."""
        keys = (self.key,) if isinstance(self.key, str) else self.key
        n = view.count(*keys, reason="it counts layers", default=self.n) if keys else self.n
        assert n is not None
        at = n - 1 if self.at is None else self.at
        return [self.one if layer % n == at % n else self.rest for layer in range(layers)]


@dataclass(frozen=True)
class Behind:
    """Say that layers slide from one on, where sliding is switched on at all (Qwen 2)."""

    key: str = "max_window_layers"
    switch: str = "use_sliding_window"

    def types(self, view: View, layers: int) -> list[str]:
        """The type of each layer."""
        on = view.flag(self.switch) if self.switch else True
        first = view.count(self.key, reason="it counts layers", default=layers, least=0)
        assert first is not None
        return ["sliding_attention" if on and layer >= first else "full_attention" for layer in range(layers)]


@dataclass(frozen=True)
class Same:
    """Say that all layers are alike: they slide where there is a window."""

    def types(self, view: View, layers: int) -> list[str]:
        """The type of each layer."""
        slides = view.get("sliding_window") is not None
        return ["sliding_attention" if slides else "full_attention"] * layers


Rule = Every | Behind | Same


def layer_types(view: View, layers: int, rule: Rule) -> list[str]:
    """The type of each layer by name; those that are listed go before the rule of the model type."""
    listed = view.get("layer_types", "layers_block_type")
    if listed is None:
        return rule.types(view, layers)
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
