"""Recipes: how the parameters that figures show were trained, so that anyone can train them again.

Text: the decoder of ``situs compare`` (``lab.model``) predicts the next byte of Python's standard library. Images: a
small encoder fills in masked patches of smooth random fields (``lab.probing.fields``). ``lab.probing.training`` follows
recipes; it is a module of its own, since a figure needs no models, kernels and texts.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import Literal

from torch import Tensor

from situs.encodings.base import Encoding
from situs.lab.settings import Size

STEPS = 800


@dataclass(frozen=True)
class Recipe:
    """Hold all that decides what a training finds, and which layer's encoding is stored.

    sides: tokens of a text, or patches of an image down and right.
    layer: whose encoding is stored, from 0.
    """

    encoding: str
    task: Literal["text", "fields"] = "text"
    sides: tuple[int, ...] = (64,)
    steps: int = STEPS
    batch: int = 24
    learning_rate: float = 6e-3
    warm_up: int = 40
    seed: int = 0
    layer: int = 0
    size: Size = field(default_factory=Size)

    @property
    def hash(self) -> str:
        """A short hash of the whole recipe, by which a file tells whether it was made by this one."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]

    @property
    def said(self) -> str:
        """What a caption says of the training."""
        if self.task == "fields":
            image = " × ".join(map(str, self.sides))
            on = f"filling in hidden patches of smooth random fields of {image}"
        else:
            on = f"texts of {self.sides[0]} bytes, Python's standard library"
        return f"Trained for {self.steps} steps on {on}"


RECIPES = {
    recipe.encoding: recipe
    for recipe in (
        Recipe("boxes", "fields", (7, 7), steps=500, batch=32),
        Recipe("cope"),
        Recipe("deberta"),
        Recipe("fire"),
        Recipe("forgetting"),
        Recipe("gated"),
        Recipe("kerple"),
        Recipe("learned"),
        Recipe("learned_grid", "fields", (10, 10), steps=500, batch=32),
        Recipe("lerope"),
        Recipe("mlp"),
        Recipe("rope_mixed", "fields", (10, 10), steps=500, batch=32),
        Recipe("pope"),
        Recipe("projected"),
        Recipe("shaw"),
        Recipe("swin", "fields", (7, 7), steps=500, batch=32),
        Recipe("t5"),
        Recipe("transformer_xl"),
        Recipe("tupe"),
        Recipe("vitdet", "fields", (7, 7), steps=500, batch=32),
    )
}
"""One for each registered encoding that has parameters."""


@dataclass(frozen=True)
class Training:
    """Hold what a recipe made.

    query, key: of a text or an image that was not trained on, (heads, tokens, head_dim); for terms by content only.
    loss: on texts or fields that were not trained on: nats per byte, or squared error (1 where nothing is learnt).
    """

    recipe: Recipe
    encoding: Encoding
    query: Tensor | None
    key: Tensor | None
    loss: float
    made_with: dict[str, str]
