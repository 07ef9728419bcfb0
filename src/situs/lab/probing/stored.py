"""Trained parameters of encodings, one small file each, for figures that show what a method learns.

A file is written by a recipe (``lab.probing.recipes``) and says so in its metadata: the whole recipe and its hash, the
encoding's options, versions, the text and the loss. Numbers are stored in half precision, which no figure shows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from situs.encodings.base import Encoding
from situs.lab.probing.recipes import RECIPES, Recipe, Training
from situs.registry import entry

FOLDER = Path(__file__).parent / "trained"
QUERY, KEY, OWN, METADATA = "sample.query", "sample.key", "encoding.", "training"


@dataclass(frozen=True)
class Trained:
    """Hold a trained encoding, and queries and keys that its layer made of a text, where the file has them."""

    recipe: Recipe
    encoding: Encoding
    query: Float[Tensor, "heads length head_dim"] | None = None
    key: Float[Tensor, "heads length head_dim"] | None = None

    @property
    def length(self) -> int:
        """Tokens of the texts that it was trained on; what lies beyond was never trained."""
        return self.recipe.sides[0]

    @property
    def said(self) -> str:
        """What a caption says of the training."""
        layers = self.recipe.size.layers
        where = "" if self.encoding.place == "input" else f"; layer {self.recipe.layer + 1} of {layers}"
        return f"{self.recipe.said}{where}."


def file_of(name: str) -> Path:
    """Tell where an encoding's trained parameters are stored."""
    return FOLDER / f"{name}.safetensors"


def as_file(training: Training) -> bytes:
    """Write what a recipe made as the bytes of a file."""
    tensors = {f"{OWN}{name}": value for name, value in training.encoding.state_dict().items()}
    if training.query is not None and training.key is not None:
        tensors |= {QUERY: training.query, KEY: training.key}
    halves = {name: value.detach().to(torch.float16).contiguous() for name, value in tensors.items()}
    facts = {
        "recipe": asdict(training.recipe),
        "recipe_hash": training.recipe.hash,
        "options": training.encoding.config,
        "loss": round(training.loss, 4),
        **training.made_with,
    }
    # under one key, since safetensors writes several in an order that differs from run to run
    return save(halves, {METADATA: json.dumps(facts)})


def metadata_of(name: str) -> dict[str, Any]:
    """Read what a file says about its making."""
    with safe_open(file_of(name), framework="pt") as file:
        found: dict[str, Any] = json.loads(file.metadata()[METADATA])
    return found


@lru_cache(maxsize=len(RECIPES))
def load(name: str) -> Trained | None:
    """Read the trained parameters of a registered encoding; None where there are none to train. Nobody may change
    them: all figures share them."""
    if name not in RECIPES:
        return None
    options = {option: _tuples(value) for option, value in metadata_of(name)["options"].items()}
    with torch.random.fork_rng(devices=()):  # nobody else's random numbers are used up
        encoding = entry(name).build(**options)
    with safe_open(file_of(name), framework="pt") as file:
        tensors = {key: file.get_tensor(key).float() for key in file.keys()}  # noqa: SIM118
    own = {key.removeprefix(OWN): value for key, value in tensors.items() if key.startswith(OWN)}
    encoding.load_state_dict(own, strict=True)
    encoding.requires_grad_(False).eval()
    return Trained(RECIPES[name], encoding, tensors.get(QUERY), tensors.get(KEY))


def misfit(trained: Trained, options: Mapping[str, Any]) -> str | None:
    """Say which chosen options the trained parameters do not have; None where they fit."""
    own = trained.encoding.config
    others = [name for name, value in options.items() if name in own and own[name] != _tuples(value)]
    return ", ".join(f"{name}={own[name]}" for name in others) or None


def _tuples(value: Any) -> Any:
    """Make tuples of lists, which JSON has instead."""
    return tuple(value) if isinstance(value, list) else value
