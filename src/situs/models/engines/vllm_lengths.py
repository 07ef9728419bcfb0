"""How many tokens vLLM serves of a configuration, where it is not told otherwise (``_get_and_verify_max_len``)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from situs.models.readers.facts import Facts, facts_of
from situs.models.readers.schedule import KINDS
from situs.models.readers.view import View
from situs.models.sources.source import load

LENGTHS = (
    "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length", "max_target_positions",
    "max_sequence_length", "max_seq_length", "seq_len",
)  # fmt: skip
"""Where the longest text is looked for; the smallest is taken, but model_max_length goes before all."""
UNKNOWN = 2048  # tokens, where nothing says


def served_length(config: Mapping[str, Any], model_type: str, folder: Path | None = None) -> tuple[int, str]:
    """How many tokens vLLM serves where --max-model-len is not given, and why where that is not what is declared."""
    facts = facts_of(model_type) or Facts()
    view = View(config, defaults=facts.keys, renamed=facts.renamed)
    counted = {key: view.count(key, reason="it counts tokens") for key in LENGTHS if view.get(key) is not None}
    found = {key: each for key, each in counted.items() if each is not None}
    length: float | int = found.get("model_max_length") or min(found.values(), default=UNKNOWN)
    why = "" if found else "its configuration names no length"
    if len(set(found.values())) > 1:
        key = "model_max_length" if "model_max_length" in found else min(found, key=lambda each: found[each])
        why = f"it goes by {key}"
    ropes = _ropes(view, facts)
    if "gemma3" not in model_type:
        factor: float = 1.0
        for rope in ropes:
            kind = rope.get("rope_type", "type", default="default")
            if kind in ("su", "longrope", "llama3"):
                continue
            factor = rope.number("factor", reason="the length is multiplied by it", default=factor, above=0) or factor
            if kind == "yarn":
                length = rope.count("original_max_position_embeddings", reason="it counts tokens") or length
                why = f"the original length times {factor:g}"
            elif factor != 1:
                why = f"it takes {length:,.0f} for the length before scaling, times {factor:g}"
        length *= factor
    bounded, bound = _bounded(view, length, folder)
    if bound:
        length, why = bounded, bound
    if any(rope.get("rope_type", "type") in ("su", "longrope") for rope in ropes):
        original = view.count("original_max_position_embeddings", reason="it counts tokens")
        if original is not None:
            return original, "with longrope it goes by original_max_position_embeddings"
    declared = found.get("max_position_embeddings")
    return int(length), "" if int(length) == declared else why


def _ropes(view: View, facts: Facts) -> list[View]:
    """Rope parameters: one object, or one for each type of layer."""
    given = view.part("rope_parameters") or view.part("rope_scaling")
    if given is None:
        given = View(facts.rope or {}, path="rope_parameters")
    if given.config and set(given.config) <= set(KINDS):
        parts = [given.part(key) for key in given.config]
        return [part for part in parts if part is not None]
    return [given]


def _bounded(view: View, length: float | int, folder: Path | None) -> tuple[float | int, str]:
    """A length that another file of the folder sets, for models that embed."""
    if folder is None:
        return length, ""
    setting = _other(folder / "sentence_bert_config.json", "max_seq_length")
    if setting is not None:
        return setting, "sentence_bert_config.json says so"
    if view.get("position_embedding_type") == "absolute":
        setting = _other(folder / "tokenizer_config.json", "model_max_length")
        if setting is not None and setting < length:
            return setting, "model_max_length of tokenizer_config.json is less than the table of positions"
    return length, ""


def _other(path: Path, key: str) -> int | None:
    if not path.is_file():
        return None
    value = load(path).config.get(key)
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 2**53 else None
