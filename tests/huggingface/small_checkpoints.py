"""Checkpoints of one layer, in one file or in shards, and what has to hold where one is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from situs.huggingface import convert
from tests.raising import raises_exactly

LLAMA = {"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "head_dim": 4}
NAME = "model.layers.0.self_attn."
INDEX = "model.safetensors.index.json"


def checkpoint(
    folder: Path, config: dict[str, Any] | None = None, weights: Mapping[str, Tensor | None] | None = None
) -> Path:
    """A checkpoint of one layer; weights may be added, or left out where they are None."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA if config is None else config))
    all_weights = {f"{part}_proj.weight": torch.randn(8, 8) for part in "qkvo"} | dict(weights or {})
    there = {NAME + name: each for name, each in all_weights.items() if each is not None}
    save_file(there, folder / "model.safetensors")
    return folder


def in_shards(folder: Path, first: Sequence[str]) -> Path:
    """The same checkpoint in two shards; the first has the weights that are named."""
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    files = {name: f"model-{2 - (name.removeprefix(NAME) in first)}.safetensors" for name in weights}
    for file in sorted(set(files.values())):
        save_file({name: weights[name] for name in weights if files[name] == file}, folder / file)
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": files}))
    return folder


def weights_of(folder: Path) -> dict[str, Tensor]:
    return {
        name: each.clone() for file in sorted(folder.glob("*.safetensors")) for name, each in load_file(file).items()
    }


def refused(source: Path, message: str, **options: Any) -> None:
    """Converting raises a whole message, and leaves nothing."""
    before = set(source.parent.iterdir())
    with raises_exactly(ValueError, message):
        convert(source, source.parent / "new", **{"pairing": "interleaved", **options})
    assert set(source.parent.iterdir()) == before
