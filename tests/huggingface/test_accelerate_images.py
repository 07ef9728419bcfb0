"""Accelerated models that take images beside the same models as they are."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from situs.huggingface import accelerate, accelerated, describe, restore
from situs.huggingface.checking import _of_images
from situs.huggingface.classes import stand_in
from situs.huggingface.families import FAMILIES, sam
from tests.huggingface.small_images import BEIT, IMAGES, SAM, SIZES, images, layer_of, made_image
from tests.huggingface.small_models import (
    expect_close,
    expect_same_gradients,
    gradients,
    hf,
    randomised,
    without_dropout,
)  # fmt: skip

pytestmark = pytest.mark.once

OF_SAM = sorted((each.model, each.cls) for each in FAMILIES.values() if each.file == "sam")


def seen(model: Any, given: dict[str, torch.Tensor]) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(**given)[0]
    return found


@pytest.fixture(autouse=True)
def tiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small images go the way of large ones."""
    monkeypatch.setattr(sam, "DENSE_UP_TO", 0)


@pytest.mark.parametrize("name", IMAGES)
def test_images_give_the_same(name: str) -> None:
    model = made_image(name)
    expected = seen(model, images())
    with accelerated(model):
        expect_close(seen(model, images()), expected, 1e-5)
    assert torch.equal(seen(model, images()), expected)


@pytest.mark.parametrize("name", IMAGES)
def test_gradients_of_images_are_the_same(name: str) -> None:
    model = without_dropout(made_image(name))
    before = gradients(model, images())
    with accelerated(model):
        expect_same_gradients(gradients(model, images()), before)


@pytest.mark.parametrize("name", IMAGES)
def test_bfloat16_of_images_is_as_exact_as_before(name: str) -> None:
    model, given = made_image(name, torch.bfloat16), images(torch.bfloat16)
    expected = seen(made_image(name, torch.bfloat16).double(), {key: each.double() for key, each in given.items()})
    before = (seen(model, given).double() - expected).abs().mean()
    with accelerated(model):
        assert (seen(model, given).double() - expected).abs().mean() <= 2 * before


@pytest.mark.parametrize("name", IMAGES)
def test_models_of_images_are_left_as_they_were(name: str) -> None:
    model = made_image(name)
    seen(model, images())  # after which some models keep more than before
    before = [(path, type(module), set(vars(module))) for path, module in model.named_modules()]
    names = list(model.state_dict())
    for cycle in range(100):
        seen(accelerate(model, check=not cycle), images())
        assert list(model.state_dict()) == names
        restore(model)
    assert [(path, type(module), set(vars(module))) for path, module in model.named_modules()] == before


@pytest.mark.parametrize(("folder", "cls"), OF_SAM)
@pytest.mark.parametrize("cells", [(8, 8), (5, 11)])
def test_every_layer_of_the_kind_of_sam_gives_the_same(folder: str, cls: str, cells: tuple[int, int]) -> None:
    layer, states = layer_of(folder, cls), torch.randn(2, *cells, 32)
    with torch.no_grad():
        expected = layer(states)[0]
        layer.__class__ = stand_in(layer)
        found = layer(states)
    assert torch.is_tensor(found[0])
    assert all(each is None for each in found[1:])
    expect_close(found[0], expected, 1e-5)


def test_a_window_of_few_cells_keeps_its_own_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sam, "DENSE_UP_TO", 64)
    layer, states = layer_of("sam", "SamVisionSdpaAttention"), torch.randn(2, 8, 8, 32)
    expected = layer(states)[0]
    layer.__class__ = stand_in(layer)
    assert torch.equal(layer(states)[0], expected)


def test_dropout_of_weights_keeps_the_code_of_the_layer() -> None:
    layer, states = layer_of("sam", "SamVisionAttention").train(), torch.randn(2, 8, 8, 32)
    layer.dropout = 0.5
    torch.manual_seed(0)
    expected = layer(states)[0]
    layer.__class__ = stand_in(layer)
    torch.manual_seed(0)
    assert torch.equal(layer(states)[0], expected)


class Largest(TorchDispatchMode):
    """Record how many numbers the largest tensor has that is made."""

    numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for each in found if isinstance(found, (tuple, list)) else [found]:
            if isinstance(each, torch.Tensor):
                self.numbers = max(self.numbers, each.untyped_storage().nbytes() // each.element_size())
        return found


def test_no_number_is_made_for_each_pair_of_cells() -> None:
    layer, states = layer_of("sam", "SamVisionSdpaAttention"), torch.randn(1, 32, 32, 32)
    with torch.no_grad(), Largest() as before:
        layer(states)
    layer.__class__ = stand_in(layer)
    with torch.no_grad(), Largest() as now:
        layer(states)
    assert before.numbers == 4 * 1024**2
    assert now.numbers <= before.numbers / 8


def test_large_images_are_tested_layer_by_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sam, "DENSE_UP_TO", 20)
    model = randomised(lambda: hf.SamVisionModel(hf.SamVisionConfig(**{**SAM, "image_size": 1024, "patch_size": 16})))
    ran: list[tuple[int, ...]] = []
    for layer in model.vision_encoder.layers:
        layer.attn.register_forward_hook(lambda _, given, __: ran.append(tuple(given[0].shape)))
    accelerate(model)
    assert ran == 2 * [(1, 5, 6, 32), (1, 5, 6, 32)]


def test_a_wrong_layer_of_a_large_image_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sam, "DENSE_UP_TO", 20)
    model = made_image("sam")
    monkeypatch.setattr(sam.Sam, "vectors", lambda self, size, table: self.get_rel_pos(size, size, table).flip(0))
    with pytest.raises(RuntimeError, match=r"^SamVisionModel must give the same accelerated, since only its attention"):
        accelerate(model)
    assert "not accelerated" in describe(model)


@pytest.mark.parametrize("name", ["sam", "sam, eager", "vitdet", "swin v2", "beit"])
def test_weights_of_images_are_refused(name: str) -> None:
    model = accelerate(made_image(name))
    with pytest.raises(ValueError, match="output_attentions must be False while a model is accelerated"):
        model(**images(), output_attentions=True)
    assert model(**images(), output_hidden_states=True).hidden_states is not None


def test_images_are_described() -> None:
    assert describe(made_image("sam")) == (
        "SamVisionModel, not accelerated. accelerate() would give:\n"
        "2 x SamVisionSdpaAttention: on situs.attend, its class replaced"
    )


def test_data2vec_gains_nothing_and_is_left_with_a_reason() -> None:
    model = randomised(lambda: hf.Data2VecVisionModel(hf.Data2VecVisionConfig(**BEIT)))
    reason = (
        "Data2VecVisionSdpaSelfAttention: left as it is, since torch's own attention takes its bias of all pairs as it "
        "is"
    )
    assert describe(model).endswith(reason)
    with pytest.raises(ValueError, match=f"there is nothing to accelerate; got Data2VecVisionModel. {reason}.$"):
        accelerate(model)


def test_inputs_that_the_self_test_cannot_make_are_named() -> None:
    model = randomised(
        lambda: hf.Pix2StructVisionModel(hf.Pix2StructVisionConfig(**SIZES, d_kv=8, d_ff=48, seq_len=64))
    )
    message = (
        r"^check must be False for Pix2StructVisionModel, since it does not take the texts, sounds, features of sounds "
        r"or images that the self-test makes \(ValueError: its main input is flattened_patches\); got True\.$"
    )
    with pytest.raises(ValueError, match=message):
        accelerate(model)


def test_images_that_are_too_large_are_named() -> None:
    model = made_image("vit")
    model.config.image_size = 1024
    message = (
        r"^check must be False for ViTModel, since it does not take the texts, sounds, features of sounds or images "
        r"that the self-test makes \(ValueError: its images are of 1024 x 1024 pixels\); got True\.$"
    )
    with pytest.raises(ValueError, match=message):
        accelerate(model)


def test_a_configuration_that_tells_no_size_of_images_is_named() -> None:
    message = r"^its configuration does not tell how large its images are$"
    with pytest.raises(ValueError, match=message):
        _of_images(SimpleNamespace(config=SimpleNamespace()), torch.device("cpu"))


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


@pytest.mark.heavy
@pytest.mark.compiled
@pytest.mark.parametrize("name", ["sam", "beit", "swin v2"])
def test_compiled_models_of_images_give_the_same(name: str) -> None:
    model = made_image(name)
    expected = seen(model, images())
    compiled = torch.compile(accelerate(model), backend="aot_eager")
    expect_close(seen(compiled, images()), expected, 1e-5)
