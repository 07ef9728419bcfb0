"""Write src/situs/models/readers/facts.json: what transformers' configuration classes say where a file is silent."""

from __future__ import annotations

import json
import warnings
from importlib import metadata
from pathlib import Path
from typing import Any

from situs.models.readers.keys import POSITIONS, SIZES

FILE = Path(__file__).parent.parent / "src" / "situs" / "models" / "readers" / "facts.json"
BY_LAYER = {"layer_types", "layers_block_type", "no_rope_layers", "layer_rope_theta", "num_attention_heads_per_layer"}
"""Lists that are as long as the model: their rules are in the table of families."""

PROBED = 12345.5  # a base and a share that no model has


def gathered() -> dict[str, Any]:
    """The facts of every model type."""
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        types = {name: _facts(CONFIG_MAPPING[name]) for name in sorted(CONFIG_MAPPING.keys())}
    return {"transformers": metadata.version("transformers"), "types": types}


def _facts(cls: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    parts = {name: getattr(part, "model_type", "") for name, part in (getattr(cls, "sub_configs", None) or {}).items()}
    if parts:
        found["parts"] = parts
    renamed = {new: old for new, old in cls.attribute_map.items() if {new, old} & (SIZES | POSITIONS)}
    if renamed:
        found["renamed"] = renamed
    try:
        config = cls()
    except Exception:  # two of them cannot be made without arguments
        return found
    held, other = config.to_dict(), _resized(cls, config)
    rope = held.get("rope_parameters")
    keys = {
        name: held[name]
        for name in sorted((SIZES | POSITIONS) & set(held) - BY_LAYER)
        if held[name] is not None and not isinstance(held[name], dict) and held[name] == other.get(name, held[name])
    }
    if keys:
        found["keys"] = keys
    if rope:
        found |= _of_rope(cls, rope)
    return json.loads(json.dumps(found, default=str))  # type: ignore[no-any-return]


def _resized(cls: Any, config: Any) -> dict[str, Any]:
    """A configuration of other sizes: what differs in it is not a default but computed from them."""
    names = [cls.attribute_map.get(name, name) for name in ("hidden_size", "num_attention_heads", "num_hidden_layers")]
    sizes = {name: getattr(config, name, None) for name in names}
    changed = {
        name: size * factor
        for (name, size), factor in zip(sizes.items(), (4, 2, 3), strict=True)
        if isinstance(size, int)
    }
    try:
        other: dict[str, Any] = cls(**changed).to_dict()
    except Exception:  # lists that are as long as the model by default
        return {}
    return {name: value for name, value in other.items() if name not in changed}


def _of_rope(cls: Any, rope: dict[str, Any]) -> dict[str, Any]:
    """Which of the rope parameters give way to older settings of a file."""
    if any(isinstance(each, dict) for each in rope.values()):
        return {"rope": rope}
    moved = cls(rope_theta=PROBED).rope_parameters
    if not moved or moved.get("rope_theta") != PROBED:
        return {"rope": rope}
    found = {"theta": rope["rope_theta"]}
    if rope.get("partial_rotary_factor") is not None:
        found["share"] = rope["partial_rotary_factor"]
    rest = set(rope) - {"rope_theta", "rope_type", "partial_rotary_factor"}
    return found if not rest and rope["rope_type"] in ("default", "axial") else {"rope": rope}


def write() -> None:
    """Write the file, a model type per line."""
    found = gathered()
    lines = [f'    "{name}": {json.dumps(each, separators=(",", ":"))}' for name, each in found["types"].items()]
    body = ",\n".join(lines)
    FILE.write_text(
        f'{{\n  "transformers": "{found["transformers"]}",\n  "types": {{\n{body}\n  }}\n}}\n', encoding="utf-8"
    )


if __name__ == "__main__":
    write()
