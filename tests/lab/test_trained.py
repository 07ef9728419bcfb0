"""Trained parameters: the stored files fit their classes and recipes, and following a recipe gives a file again."""

import json
import math
import os
from dataclasses import asdict, replace
from typing import Any

import pytest
import torch
from safetensors.torch import load as load_bytes

import situs
from situs.lab.comparing.corpus import Corpus
from situs.lab.probing import stored
from situs.lab.probing.fields import PIXELS, draw_fields
from situs.lab.probing.recipes import RECIPES, Recipe
from situs.lab.probing.stored import Trained, as_file, file_of, load, metadata_of
from situs.lab.probing.training import train
from situs.lab.settings import Size

SMALL = Size(dim=16, layers=2, heads=2)
SIZES: dict[str, Any] = {"dim": 16, "num_heads": 2, "head_dim": 8, "size": (2, 2), "max_length": 4}


def loaded(name: str) -> Trained:
    found = load(name)
    assert found is not None
    return found


def corpus() -> Corpus:
    texts = {f"{number}.txt": f"line {number} of a text {number * 37}\n".encode() * 200 for number in range(12)}
    return Corpus(name="lines", texts=texts)


def test_every_encoding_with_parameters_has_a_recipe_and_every_recipe_a_file() -> None:
    learning = {
        name for name in situs.names() if any(True for _ in situs.entry(name).build(**SIZES).parameters())
    }  # fmt: skip
    assert set(RECIPES) == learning
    assert {path.name for path in stored.FOLDER.iterdir()} == {file_of(name).name for name in RECIPES}


@pytest.mark.parametrize("name", RECIPES)
def test_a_file_fits_its_class_and_says_how_it_was_made(name: str) -> None:
    metadata = metadata_of(name)
    assert metadata["recipe_hash"] == RECIPES[name].hash, f"run make trained ARGS={name}"
    assert metadata["recipe"] == json.loads(json.dumps(asdict(RECIPES[name])))
    assert set(metadata) == {"recipe", "recipe_hash", "options", "loss", "python", "torch"} | (
        {"text"} if RECIPES[name].task == "text" else set()
    )
    trained = loaded(name)
    assert type(trained.encoding) is situs.entry(name).cls
    initial = type(trained.encoding)(**trained.encoding.config)
    assert set(initial.state_dict()) == set(trained.encoding.state_dict())
    for key, value in trained.encoding.state_dict().items():
        assert bool(value.isfinite().all()), key
    assert not trained.encoding.training
    assert all(not parameter.requires_grad for parameter in trained.encoding.parameters())


def test_files_are_small() -> None:
    sizes = {name: file_of(name).stat().st_size for name in RECIPES}
    assert max(sizes.values()) < 64 * 1024, sizes
    assert sum(sizes.values()) < 256 * 1024, sizes


@pytest.mark.parametrize("name", RECIPES)
def test_training_did_better_than_an_encoding_without_it_would(name: str) -> None:
    loss = metadata_of(name)["loss"]
    if RECIPES[name].task == "fields":
        assert loss < 0.2  # 1 where nothing is learnt
    else:
        assert loss < 2.2  # what the decoder reaches without positions, in more steps than these


def test_queries_and_keys_are_stored_with_terms_by_content_only() -> None:
    for name, recipe in RECIPES.items():
        trained = loaded(name)
        if isinstance(trained.encoding, situs.ScoreEncoding) and not trained.encoding.features:
            assert trained.query is not None
            assert trained.key is not None
            assert trained.query.shape == trained.key.shape == (4, math.prod(recipe.sides), 16)
        else:
            assert trained.query is None


def test_trained_t5_prefers_keys_that_are_near() -> None:
    encoding = loaded("t5").encoding
    assert isinstance(encoding, situs.T5Bias)
    text = situs.Positions.range(64)
    added = encoding(text[-1:], text)[0, :, 0].flip(-1)
    assert bool((added[:, 1:5].mean(1) > added[:, 16:].mean(1)).all())


def test_what_has_no_parameters_has_no_trained_ones() -> None:
    assert load("rotary") is None
    assert load("my_module:Mine") is None


@pytest.mark.parametrize("recipe", [Recipe("shaw", layer=1), Recipe("t5"), Recipe("swin", "fields", (3, 4))])
def test_following_a_recipe_gives_a_file_of_its_layer_twice_the_same(recipe: Recipe) -> None:
    small = replace(recipe, size=SMALL, steps=3, batch=2, sides=recipe.sides if recipe.task == "fields" else (16,))
    first, again = (as_file(train(small, corpus())) for _ in range(2))
    assert first == again
    tensors = load_bytes(first)
    own = {key.removeprefix("encoding.") for key in tensors if key.startswith("encoding.")}
    made = train(small, corpus())
    assert own == set(made.encoding.state_dict())
    assert all(value.dtype == torch.float16 for value in tensors.values())
    assert ("sample.query" in tensors) == (recipe.encoding == "shaw")
    assert as_file(train(replace(small, seed=1), corpus())) != first


def test_a_recipes_hash_follows_everything_in_it() -> None:
    recipe = Recipe("t5")
    others = [replace(recipe, steps=1), replace(recipe, seed=1), replace(recipe, layer=1), replace(recipe, size=SMALL)]
    assert len({recipe.hash, *(each.hash for each in others)}) == 5


def test_fields_are_smooth_have_a_variance_of_one_and_half_their_patches_hidden() -> None:
    fields = draw_fields(torch.Generator().manual_seed(0), 400, (5, 6))
    assert fields.patches.shape == (400, 30, PIXELS**2)
    assert float(fields.patches.var()) == pytest.approx(1, abs=0.1)
    assert float(fields.hidden.float().mean()) == pytest.approx(0.5, abs=0.02)
    image = fields.patches[:, :, 0].view(400, 5, 6)
    near, far = ((image[:, :, 0] * image[:, :, apart]).mean() for apart in (1, 5))
    assert float(near) > 0.75  # exp(-(2 / 5)^2) for neighbours 2 pixels apart
    assert abs(float(far)) < 0.1


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.skipif(os.environ.get("SITUS_SLOW") != "1", reason="trains for minutes; SITUS_SLOW=1")
def test_the_recipe_of_swin_gives_the_stored_parameters_again() -> None:
    """Other versions and machines round differently, so that the numbers agree and not their last digits."""
    again = train(RECIPES["swin"]).encoding.state_dict()
    for key, value in loaded("swin").encoding.state_dict().items():
        assert torch.allclose(again[key], value, atol=0.05), key
