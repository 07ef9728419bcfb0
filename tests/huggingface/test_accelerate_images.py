"""Accelerated models that take images beside the same models as they are."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from situs.huggingface import accelerate, accelerated
from tests.huggingface.small_models import expect_close, hf, randomised

pytestmark = pytest.mark.once

SIZES = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 48}
IMAGES: dict[str, Callable[[], Any]] = {
    "vit": lambda: hf.ViTModel(hf.ViTConfig(**SIZES, image_size=32, patch_size=8)),
    "beit": lambda: hf.BeitModel(hf.BeitConfig(**SIZES, image_size=32, patch_size=8, use_relative_position_bias=True)),
}


@pytest.mark.parametrize("name", IMAGES)
def test_images_give_the_same(name: str) -> None:
    model, pixels = randomised(IMAGES[name]), torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        expected = model(pixels)[0]
        with accelerated(model, check=False):
            expect_close(model(pixels)[0], expected, 1e-5)


def test_inputs_that_the_self_test_cannot_make_are_named() -> None:
    message = (
        r"^check must be False for ViTModel, since it does not take the texts, sounds or features of sounds that the "
        r"self-test makes \(ValueError: its main input is pixel_values\); got True\.$"
    )
    with pytest.raises(ValueError, match=message):
        accelerate(randomised(IMAGES["vit"]))


@pytest.mark.parametrize("way", [{}, {"num_beams": 3}, {"cache_implementation": "static"}], ids=str)
def test_texts_of_images_are_the_same(way: dict[str, Any]) -> None:
    text = {"vocab_size": 50, "hidden_size": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
    vision = {**SIZES, "d_kv": 8, "d_ff": 48, "patch_embed_hidden_size": 12, "seq_len": 64}
    model = randomised(
        lambda: hf.Pix2StructForConditionalGeneration(hf.Pix2StructConfig(text_config=text, vision_config=vision))
    )
    patches = torch.rand(2, 20, 14) + 1  # row and column, then pixels
    mask = torch.ones(2, 20)
    mask[1, 12:] = 0
    given = {"flattened_patches": patches, "attention_mask": mask}
    options = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": None, **way}
    if "cache_implementation" in way:
        options["disable_compile"] = True
    expected = model.generate(**given, **options)
    with accelerated(model, check=False):
        assert torch.equal(model.generate(**given, **options), expected)
