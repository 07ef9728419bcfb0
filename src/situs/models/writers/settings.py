"""A stack of layers as settings: what it does with positions by the layers, everything else as it was read.

today   {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}}
older   {"rope_theta": 10000.0, "rope_scaling": {"type": "linear", "factor": 2.0}}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from situs.models.calls import Call
from situs.models.numbers import rotation_call
from situs.models.positions import Kind, ModelPositions
from situs.models.readers.facts import Facts
from situs.models.readers.families import Family
from situs.models.readers.ladders import BASE, PER_LAYER, SECTIONS, SHARE
from situs.models.readers.rotary import LENGTH
from situs.models.readers.schedule import KINDS, Behind, Every, Listed, layer_types
from situs.models.readers.view import View
from situs.models.readers.vision import STACKS
from situs.models.reading import READERS
from situs.models.sources.strict import ConfigError
from situs.models.writers.ropes import older, rope_parameters, share_of

Spelling = Literal["today", "older"]

LEGACY = {
    "gpt_neox": ("rotary_emb_base", "rotary_pct"),
    "gpt_neox_japanese": ("rotary_emb_base", "rotary_pct"),
    "nomic_bert": ("rotary_emb_base", "rotary_emb_fraction"),
}
"""The older names of base and share, where they are not rope_theta and partial_rotary_factor."""

TYPE_OF: dict[Kind, str] = {
    "full": "full_attention",
    "sliding": "sliding_attention",
    "chunked": "chunked_attention",
    "linear": "linear_attention",
    "none": "conv",
}


def has_rope(model: ModelPositions) -> bool:
    """Whether rope parameters say how a stack rotates."""
    rotates = model.model_type not in READERS or model.model_type == "falcon"
    return rotates and any(map(rotation_call, model.layers))


class Settings:
    """Hold a copy of the settings of a stack while it is written."""

    def __init__(self, model: ModelPositions, config: dict[str, Any], family: Family, facts: Facts) -> None:
        self.model = model
        self.config = config
        self.family = family
        self.facts = facts
        self.rotations = [rotation_call(layer) for layer in model.layers]

    @property
    def view(self) -> View:
        """The settings as they stand now, with the defaults of their model type."""
        return View(self.config, defaults=self.facts.keys, renamed=self.facts.renamed)

    def spelled(self, *spellings: str) -> str:
        """The name of a setting that is written, or else the one that its model type has for it."""
        names = [each for key in spellings for each in (self.facts.renamed.get(key, key), key)]
        return next((key for key in names if key in self.config), names[0])

    def write_schedule(self, before: ModelPositions, spelling: Spelling) -> list[str]:
        """Write which layers attend how, and how far, where that is not what was read; tell the types of layers."""
        layers, rule = self.model.layers, self.family.schedule
        types = layer_types(self.view, len(layers), rule)
        kinds = [layer.kind for layer in layers]
        changed = kinds != [layer.kind for layer in before.layers]
        if changed:
            known = {KINDS[type_]: type_ for type_ in reversed(types)}
            names = {kind: known.get(kind, TYPE_OF[kind]) for kind in kinds}
            types = [type_ if KINDS[type_] == kind else names[kind] for type_, kind in zip(types, kinds, strict=True)]
        by_rule = isinstance(rule, (Every, Behind, Listed)) and self.view.says(*rule.keys) and len(set(types)) > 1
        if changed or (by_rule and spelling == "today"):
            self.config[self.spelled("layer_types", "layers_block_type")] = types
        self._write_spans(before)
        self._write_rotating(before)
        return types

    def _write_spans(self, before: ModelPositions) -> None:
        """Windows, chunks and the longest text."""
        windows = {layer.window for layer in self.model.layers if layer.kind == "sliding"}
        if len(windows) == 1 and windows != {layer.window for layer in before.layers if layer.kind == "sliding"}:
            (window,) = windows
            self.config[self.spelled(*self.family.window)] = self._stored(window)
        chunks = {layer.chunk for layer in self.model.layers if layer.kind == "chunked"}
        if len(chunks) == 1 and chunks != {layer.chunk for layer in before.layers if layer.kind == "chunked"}:
            (self.config["attention_chunk_size"],) = chunks
        declared = self.model.lengths.declared
        if declared is not None and declared != before.lengths.declared:
            longest = self.family.longest or ""
            self.config[longest if longest in self.config else self.spelled(*LENGTH)] = declared

    def _stored(self, window: int | None) -> int | None:
        spans = "half of each side" if self.family.causal and not self.model.layers[0].causal else self.family.spans
        if window is None or spans == "keys":
            return window
        return {"half": 2 * window, "half of each side": 2 * (window - 1), "each side": window - 1}[spans]

    def _write_rotating(self, before: ModelPositions) -> None:
        """Which layers rotate, where settings list them."""
        rotates = [call is not None for call in self.rotations]
        bases = [0.0 if call is None else call.option("base") for call in self.rotations]
        differ = rotates != [rotation_call(layer) is not None for layer in before.layers]
        if self.family.rotates == "no_rope_layers" and differ:
            self.config["no_rope_layers"] = [int(each) for each in rotates]
        if self.family.rotates == "layer_rope_theta" and (self.view.says("layer_rope_theta") or len(set(bases)) > 1):
            self.config["layer_rope_theta"] = bases
        key = self.family.scaled_layers
        scaled = [index for index, call in enumerate(self.rotations) if call is not None and call.option("scaling")]
        if key is not None and scaled and (self.view.says(key) or len(scaled) < sum(rotates)):
            self.config[key] = scaled

    def write_rope(self, types: Sequence[str], spelling: Spelling) -> None:
        """Write how layers rotate."""
        if not any(self.rotations):
            return
        told = self.view.get("rope_parameters", "rope_scaling") or {}
        shares = {key: self.view.get(key) for key in SHARE}
        own = {"": told} if not self.family.by_type else {label: told.get(label) or {} for label in self._labels(types)}
        found = {label: self._parameters(label, types, own[label], shares) for label in own}
        self._clear()
        if spelling == "today":
            kept = {key: each for key, each in told.items() if key in dict(self.family.labels).values() or key in KINDS}
            self.config["rope_parameters"] = {**kept, **found} if self.family.by_type else found[""]
        elif self.family.by_type:
            self._write_older_by_type(types, found)
        else:
            self._write_older(found[""] or {})

    def _labels(self, types: Sequence[str]) -> list[str]:
        labels = dict(self.family.labels)
        found = [labels.get(type_, type_) for type_ in types if KINDS[type_] not in ("linear", "none")]
        return list(dict.fromkeys(found))

    def _layers_of(self, label: str, types: Sequence[str]) -> list[int]:
        """The layers that a label is for, those that rotate first; all of them for ""."""
        labels = dict(self.family.labels)
        found = [index for index, type_ in enumerate(types) if label in ("", labels.get(type_, type_))]
        return sorted(found, key=lambda index: (self.rotations[index] is None, not self._scales(index), index))

    def _scales(self, index: int) -> bool:
        call = self.rotations[index]
        return call is not None and call.option("scaling") is not None

    def _parameters(
        self, label: str, types: Sequence[str], told: dict[str, Any], shares: dict[str, Any]
    ) -> dict[str, Any] | None:
        """The rope parameters of a type of layers; None where they do not rotate."""
        first = self._layers_of(label, types)[0]
        rotary = self.rotations[first]
        if rotary is None:
            return None
        share = None
        if self.family.partial and not self._counts_rotated():
            known = (told.get("partial_rotary_factor"), *shares.values(), self.facts.share)
            share = share_of(rotary, next((each for each in known if each is not None), None))
        found = rope_parameters(rotary, share=share)
        if found["rope_type"] == "longrope" and found.get("original_max_position_embeddings"):
            ratio = (self.model.lengths.declared or 0) / found["original_max_position_embeddings"]
            if found["factor"] == ratio:  # which it is without being said
                del found["factor"]
        found |= self._sections(rotary, told)
        for call in self.model.layers[first].calls:
            if call.cls == "Temperature" and call.option("dialect") == "ministral3":
                found["llama_4_scaling_beta"] = call.option("factor")
        return found

    def _counts_rotated(self) -> bool:
        """Whether head_dim, which a share is of, counts the rotated channels alone: all of it is rotated."""
        return self.facts.renamed.get("head_dim") == "qk_rope_head_dim"

    def _sections(self, rotary: Call, told: dict[str, Any]) -> dict[str, Any]:
        split = rotary.option("split")
        if self.family.sections is None or split is None:
            return {}
        sizes = list(split.option("sizes"))
        order = self.family.sections[0]
        key = "xdrope_section" if "xdrope_section" in told else "mrope_section"
        found: dict[str, Any] = {key: [*sizes[1:], sizes[0]] if order == "ernie" else sizes}
        if order == "interleaved":
            found["mrope_interleaved"] = True
        return found | {key: told[key] for key in SECTIONS[2:] if key in told}

    def _clear(self) -> None:
        """Remove what said it before."""
        bases = [key for _, keys in self.family.bases for key in keys]
        gone = {"rope_parameters", "rope_scaling", *BASE, *SHARE, *bases, *(PER_LAYER if self.family.per_layer else ())}
        gone |= {"rotary_dim"} if self.family.rotated == "rotary_dim" else set()
        for key in gone:
            self.config.pop(key, None)
        if self.family.inner and isinstance(self.config.get("attn_config"), dict):
            self.config["attn_config"].pop("rope_theta", None)
        original = next((call for call in self.rotations if call is not None and call.option("scaling")), None)
        key = "original_max_position_embeddings"
        if self.view.get(key) is not None and original is not None:
            length = original.option("scaling").option("original_length")
            self.config |= {} if length is None else {key: length}

    def _write_older(self, parameters: dict[str, Any]) -> None:
        base, share = LEGACY.get(self.model.model_type, ("rope_theta", "partial_rotary_factor"))
        if self.family.inner:
            self.config.setdefault("attn_config", {})["rope_theta"] = parameters["rope_theta"]
        else:
            self.config[base] = parameters["rope_theta"]
        if self.family.rotated is not None:
            call = next(each for each in self.rotations if each is not None)
            self.config[self.family.rotated] = call.option("rotary_dim") or call.option("head_dim")
        elif "partial_rotary_factor" in parameters:
            self.config[share] = parameters["partial_rotary_factor"]
        scaling = older(parameters)
        if scaling is None and (self.facts.rope or {}).get("rope_type", "default") != "default":
            scaling = {"rope_type": "default"}  # lest the scaling that the model type has without it hold
        if scaling is not None:
            if "original_max_position_embeddings" in self.facts.keys and scaling.get("type") == "longrope":
                scaling.pop("original_max_position_embeddings", None)
            self.config["rope_scaling"] = scaling

    def _write_older_by_type(self, types: Sequence[str], found: dict[str, dict[str, Any] | None]) -> None:
        if self.family.per_layer:
            self._write_listed(types, found)
        elif not self.family.bases:
            raise ConfigError(
                f"form must be 'transformers', since {self.model.model_type} rotates each type of layer by rope "
                f"parameters of its own, for which it has no older settings; got 'legacy'."
            )
        labels = dict(self.family.labels)
        for type_, keys in self.family.bases:
            parameters = found.get(labels.get(type_, type_))
            if parameters is not None:
                self.config.setdefault(keys[0], parameters["rope_theta"])
        for type_ in self.family.scaled:
            parameters = found.get(labels.get(type_, type_))
            scaling = None if parameters is None else older(parameters)
            if scaling is not None:
                self.config["rope_scaling"] = scaling
        if self.family.partial and self.family.rotated is None and not self.family.per_layer:
            shares = [each["partial_rotary_factor"] for each in found.values() if each is not None]
            self.config["partial_rotary_factor"] = shares[0]

    def _write_listed(self, types: Sequence[str], found: dict[str, dict[str, Any] | None]) -> None:
        """Bases and shares as a list of all layers, as Step 3.5 has them."""
        listed = [found.get(type_) or {} for type_ in types]
        for key, name in zip(PER_LAYER, ("rope_theta", "partial_rotary_factor"), strict=True):
            self.config[key] = [each.get(name, 1.0) for each in listed]

    def write_stack_base(self, before: ModelPositions, spelling: Spelling) -> None:
        """Write the base of a stack that rotates by coordinates of images, where settings say one or must."""
        stack, keys = STACKS[self.model.model_type], ("rope_parameters", "rope_scaling", "rope_theta")
        rotary, old = (rotation_call(each.layers[0]) for each in (self.model, before))
        if rotary is None or (rotary == old and not any(key in self.config for key in keys)):
            return
        for key in keys:
            self.config.pop(key, None)
        base = rotary.option("base")
        if stack.base == "rope_theta" or spelling == "older":
            self.config["rope_theta"] = base
        else:
            self.config["rope_parameters"] = {"rope_type": stack.rope_type, "rope_theta": base}
