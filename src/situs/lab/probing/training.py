"""Training by recipe: the parameters that figures show.

One layer's encoding is stored, and for content-based terms the queries and keys that this layer makes of a text it was
not trained on. ``make trained`` follows every recipe and writes ``lab/probing/trained/``.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Callable

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from situs.encodings.base import Encoding
from situs.encodings.score import ScoreEncoding
from situs.lab.comparing.corpus import Corpus
from situs.lab.model import Decoder
from situs.lab.naming import parse
from situs.lab.probing.fields import FieldModel, Fields, draw_fields
from situs.lab.probing.recipes import Recipe, Training
from situs.registry import entry

HELD_OUT = 256  # texts or fields that the loss is measured on


def train(recipe: Recipe, corpus: Corpus | None = None) -> Training:
    """Follow a recipe; ``corpus`` is the standard library's text if left out."""
    if recipe.task == "fields":
        model = field_model(recipe)
        generator = torch.Generator().manual_seed(recipe.seed)
        _descend(model, lambda: model.loss(draw_fields(generator, recipe.batch, _image(recipe))), recipe)
        return trained_on_fields(recipe, model)
    corpus = Corpus.standard_library() if corpus is None else corpus
    decoder = text_model(recipe)
    generator = torch.Generator().manual_seed(recipe.seed)
    _descend(
        decoder, lambda: _nats(decoder, corpus.train_windows(generator, recipe.batch, recipe.sides[0])), recipe
    )  # fmt: skip
    return trained_on_text(recipe, decoder, corpus)


def text_model(recipe: Recipe) -> Decoder:
    """Make the decoder that a recipe trains."""
    method, length = parse(recipe.encoding), recipe.sides[0]
    return Decoder(method, vocabulary=256, size=recipe.size, train_length=length, seed=recipe.seed)


def field_model(recipe: Recipe) -> FieldModel:
    """Make the encoder of images that a recipe trains."""
    found, image = entry(recipe.encoding), _image(recipe)
    dim, heads = recipe.size.dim, recipe.size.heads
    sizes = {"dim": dim, "num_heads": heads, "head_dim": dim // heads, "size": image, "window": image}
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(recipe.seed)
        once = found.place == "input"
        layers = [[] if once and number else [found.build(**sizes)] for number in range(recipe.size.layers)]
        return FieldModel(layers, image=image, size=recipe.size)


def trained_on_text(recipe: Recipe, model: Decoder, corpus: Corpus) -> Training:
    """Take what is stored from a trained decoder."""
    held_out = corpus.test_windows(recipe.sides[0], HELD_OUT, recipe.seed)
    with torch.no_grad():
        loss = float(_nats(model.eval(), held_out))
    encoding = _of_layer(model, recipe)
    seen: tuple[Tensor | None, Tensor | None] = (None, None)
    if isinstance(encoding, ScoreEncoding) and not encoding.features:
        seen = _queries_and_keys(model, recipe, held_out[:1])
    return Training(recipe, encoding, *seen, loss, {**versions(), "text": f"{corpus.name}, {corpus.hash}"})


def trained_on_fields(recipe: Recipe, model: FieldModel) -> Training:
    """Take what is stored from a trained encoder of images."""
    others = torch.Generator().manual_seed(recipe.seed + 1)
    with torch.no_grad():
        fields = draw_fields(others, HELD_OUT, _image(recipe))
        loss = float(model.eval().loss(fields))
    encoding = _of_layer(model, recipe)
    seen: tuple[Tensor | None, Tensor | None] = (None, None)
    if isinstance(encoding, ScoreEncoding):
        seen = _queries_and_keys(model, recipe, Fields(fields.patches[:1], fields.hidden[:1]))
    return Training(recipe, encoding, *seen, loss, versions())


def _image(recipe: Recipe) -> tuple[int, int]:
    height, width = recipe.sides
    return height, width


def _nats(model: Decoder, tokens: Int64[Tensor, "batch length"]) -> Float[Tensor, ""]:
    """Give the loss of predicting each byte from those before it, in nats."""
    return cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def _descend(model: nn.Module, loss: Callable[[], Tensor], recipe: Recipe) -> None:
    """Train by AdamW with warm-up and a cosine down to a tenth."""
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.95), weight_decay=0.01, fused=True
    )
    model.train()
    for step in range(recipe.steps):
        done = max(0, step - recipe.warm_up) / max(1, recipe.steps - recipe.warm_up)
        share = min((step + 1) / recipe.warm_up, 0.1 + 0.45 * (1 + math.cos(math.pi * done)))
        for group in optimiser.param_groups:
            group["lr"] = recipe.learning_rate * share
        value = loss()
        optimiser.zero_grad(set_to_none=True)
        value.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()


def _of_layer(model: nn.Module, recipe: Recipe) -> Encoding:
    """Choose the encoding of the recipe's layer; one of the input is before all layers."""
    found = [each for each in model.modules() if isinstance(each, Encoding)]
    return found[recipe.layer] if len(found) > 1 else found[0]


@torch.no_grad()
def _queries_and_keys(model: Decoder | FieldModel, recipe: Recipe, shown: Tensor | Fields) -> tuple[Tensor, Tensor]:
    """Give the queries and keys that the recipe's layer makes of a text or an image, (heads, tokens, head_dim) each."""
    attention = model.get_submodule(f"layers.{recipe.layer}.attention")
    found: list[Tensor] = []

    def keep(module: nn.Module, given: tuple[Tensor, ...], made: Tensor) -> None:
        found.append(made[0].view(made.shape[1], recipe.size.heads, -1).transpose(0, 1))

    handles = [attention.get_submodule(name).register_forward_hook(keep) for name in ("query", "key")]
    model(shown)
    for handle in handles:
        handle.remove()
    query, key = found
    return query, key


def versions() -> dict[str, str]:
    """Tell which versions trained."""
    return {"python": platform.python_version(), "torch": torch.__version__.partition("+")[0]}
