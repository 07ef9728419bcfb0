"""Around an accelerated model: its twins, parts and copies, adapted tables, frozen parts, classes of one's own."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import nn

from situs.huggingface import accelerate, accelerated, describe, extended, restore
from situs.huggingface.classes import original
from tests.huggingface.small_models import (
    ENCODER,
    EVERY,
    FALCON,
    GROUPED,
    SEQ2SEQ,
    WORDS,
    expect_close,
    given,
    hf,
    made,
    padding,
    randomised,
    texts,
)  # fmt: skip
from tests.raising import raises_exactly

pytestmark = pytest.mark.once

BLOOM: dict[str, Any] = {"vocab_size": WORDS, "hidden_size": 32, "n_head": 4, "n_layer": 2}


def outputs(model: Any, **inputs: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(**inputs)[0]
    return found


def twins(name: str) -> tuple[Any, Any]:
    """Two models of one configuration."""
    config = {"bloom": lambda: hf.BloomConfig(**BLOOM), "llama": lambda: hf.LlamaConfig(**GROUPED)}[name]()
    cls = {"bloom": hf.BloomForCausalLM, "llama": hf.LlamaForCausalLM}[name]
    return randomised(lambda: cls(config)), randomised(lambda: cls(config))


@pytest.mark.parametrize("name", ["bloom", "llama"])
def test_a_model_of_the_same_configuration_stays_as_it_is(name: str) -> None:
    one, other = twins(name)
    config, ids = other.config, texts(2, 12)
    assert one.config is config
    expected, before = outputs(other, input_ids=ids), config._attn_implementation
    accelerate(one)
    assert other.config._attn_implementation == before
    assert torch.equal(outputs(other, input_ids=ids), expected)
    expect_close(outputs(one, input_ids=ids), expected, 1e-5)
    assert restore(one).config is config


def test_what_is_set_on_the_configuration_meanwhile_stays() -> None:
    one, other = twins("llama")
    accelerate(one)
    one.config.use_cache = False
    one.config.some_words = "kept"
    restore(one)
    assert (one.config.use_cache, one.config.some_words) == (False, "kept")
    assert one.config is other.config


def test_configurations_within_configurations_are_those_of_their_models() -> None:
    text = {**GROUPED, "head_dim": 8}
    vision = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4,
              "image_size": 16, "patch_size": 8}  # fmt: skip
    config = hf.LlavaConfig(text_config=hf.LlamaConfig(**text), vision_config=hf.CLIPVisionConfig(**vision))
    model = randomised(lambda: hf.LlavaForConditionalGeneration(config))
    accelerate(model, check=False)
    assert model.config.text_config is model.model.language_model.config
    assert config.text_config._attn_implementation != model.config.text_config._attn_implementation
    restore(model)
    assert model.config is config
    assert model.model.language_model.config is config.text_config


def test_an_accelerated_model_stays_so_behind_a_block() -> None:
    model = accelerate(made("bloom"))
    with accelerated(model):
        pass
    assert describe(model).startswith("BloomForCausalLM, accelerated\n")
    with accelerated(model.transformer):
        pass
    ids = texts(2, 9)
    expect_close(outputs(model, input_ids=ids), outputs(made("bloom"), input_ids=ids), 1e-5)
    assert describe(model.transformer).startswith("BloomModel, accelerated, as a part of BloomForCausalLM\n")


def test_a_part_may_be_accelerated_before_the_whole() -> None:
    model, ids = made("bloom"), texts(2, 9)
    expected, config = outputs(model, input_ids=ids), model.config
    accelerate(model.transformer)
    assert describe(model).startswith("BloomForCausalLM, accelerated in part (BloomModel). accelerate() would give:\n")
    expect_close(outputs(model, input_ids=ids), expected, 1e-5)
    with accelerated(model.transformer):
        accelerate(model)
    assert describe(model).startswith("BloomForCausalLM, accelerated\n")
    assert restore(model).config is model.transformer.config is config
    assert torch.equal(outputs(model, input_ids=ids), expected)


def test_a_part_stays_accelerated_where_the_whole_is_refused() -> None:
    model = made("bloom")
    accelerate(model.transformer)
    wrapper = nn.ModuleList([model])
    with pytest.raises(ValueError, match="check must be False for ModuleList"):
        accelerate(wrapper)
    assert describe(model.transformer).startswith("BloomModel, accelerated\n")


def test_one_layer_alone_may_be_accelerated() -> None:
    for name in ("bloom", "mpt", "llama"):
        model, ids = made(name), texts(2, 9)
        mask = padding(ids, "left")
        expected = outputs(model, **given(model, ids, mask))[mask.bool()]
        layers = {"bloom": "transformer.h", "mpt": "transformer.blocks", "llama": "model.layers"}[name]
        layer = model.get_submodule(layers)[0]
        accelerate(layer, check=False)
        assert any(original(each) for each in layer.modules()) or name == "llama"
        expect_close(outputs(model, **given(model, ids, mask))[mask.bool()], expected, 1e-5)


def test_copies_of_parts_can_be_restored() -> None:
    model, ids = made("t5"), texts(2, 9)
    expected = outputs(model.encoder, input_ids=ids)
    accelerate(model)
    for part in (copy.deepcopy(model.encoder), pickle.loads(pickle.dumps(model.encoder))):
        assert describe(part).startswith("T5Stack, accelerated\n")
        assert torch.equal(outputs(restore(part), input_ids=ids), expected)
        assert describe(part).startswith("T5Stack, not accelerated.")
    message = (
        "model must be the one that was accelerated, since its other parts hand over what own code does not take; got "
        "a T5Stack that is a part of an accelerated T5ForConditionalGeneration."
    )
    with raises_exactly(ValueError, message):
        restore(model.encoder)


def test_rotary_falcon_is_as_it_was_behind_a_block_of_an_extension() -> None:
    config = hf.FalconConfig(**FALCON, alibi=False, max_position_embeddings=64)
    model, ids = randomised(lambda: hf.FalconForCausalLM(config)), texts(2, 12)
    expected, settings = outputs(model, input_ids=ids), config.to_dict()
    with extended(model, 256, "yarn"):
        accelerate(model)
    assert not any(original(each) for each in model.modules())
    assert describe(model).startswith("FalconForCausalLM, not accelerated.")
    assert torch.equal(outputs(model, input_ids=ids), expected)
    accelerate(model)
    with extended(model, 256, "yarn"):
        restore(model)
    assert restore(model).config is config
    assert config.to_dict() == settings


def test_parts_that_are_frozen_stay_so() -> None:
    model = made("t5").train()
    model.decoder.eval()
    before = [each.training for each in model.modules()]
    accelerate(model)
    assert [each.training for each in model.modules()] == before
    assert model.training
    assert not model.decoder.block[0].training


@pytest.mark.parametrize("name", ["bloom", "mpt", "t5", "llama", "bert"])
def test_models_in_float64_are_accelerated(name: str) -> None:
    model, ids = made(name, torch.float64), texts(2, 9)
    expected = outputs(model, **given(model, ids))
    expect_close(outputs(accelerate(model), **given(model, ids)), expected, 1e-5)


class Adapted(nn.Module):
    """A table with something added, as adapters of low rank do it."""

    def __init__(self, base: Any) -> None:
        super().__init__()
        self.base = base
        self.num_embeddings = base.num_embeddings
        self.added = nn.Parameter(torch.zeros_like(base.weight))

    @property
    def weight(self) -> torch.Tensor:
        """What code that knows nothing of the adapter reads."""
        found: torch.Tensor = self.base.weight
        return found

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Look rows up."""
        found: torch.Tensor = self.base(rows) + self.added[rows]
        return found


def tripled(module: nn.Module, rows: Any, found: torch.Tensor) -> torch.Tensor:
    """Be a hook."""
    return 3 * found


class Doubled(nn.Module):
    """A parametrisation."""

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        """Double."""
        return 2 * weight


@pytest.mark.parametrize("way", ["adapted", "hooked", "parametrised"])
@pytest.mark.parametrize("name", ["t5", "umt5", "mpnet", "longt5", "udop"])
def test_tables_are_read_as_they_are_used(name: str, way: str) -> None:
    model, ids = made(name), texts(2, 20)
    for module in list(model.modules()):
        table = getattr(module, "relative_attention_bias", None)
        if type(table) is not nn.Embedding:
            continue
        if way == "adapted":
            module.relative_attention_bias = Adapted(table)
        elif way == "hooked":
            table.register_forward_hook(tripled)
        else:
            nn.utils.parametrize.register_parametrization(table, "weight", Doubled())
    accelerate(model)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, Adapted):
                module.added.normal_()
    found = outputs(model, **given(model, ids))
    copied = copy.deepcopy(model)
    expect_close(found, outputs(restore(model), **given(model, ids)), 1e-5)
    expect_close(outputs(copied, **given(model, ids)), found, 1e-6)


def test_gradients_reach_an_adapted_table() -> None:
    model, ids = made("t5"), texts(2, 20)
    layer = model.encoder.block[0].layer[0].SelfAttention
    layer.relative_attention_bias = Adapted(layer.relative_attention_bias)
    found = []
    for change in (accelerate, restore):
        change(model).zero_grad()
        (model(**given(model, ids))[0] ** 2).mean().backward()
        found.append(layer.relative_attention_bias.added.grad.clone())
    expect_close(found[0], found[1], 1e-4)


def test_models_can_be_copied_behind_a_functional_call() -> None:
    model, ids = accelerate(made("t5")), texts(2, 9)
    weights = {name: 1.1 * each for name, each in model.named_parameters()}
    torch.func.functional_call(model, weights, (), given(model, ids))
    expected = outputs(model, **given(model, ids))
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(outputs(copied, **given(model, ids)), expected)


def test_a_query_of_xlnet_that_sees_nothing_takes_the_mean_of_all_values() -> None:
    model, ids = made("xlnet"), texts(2, 12)
    order = torch.ones(2, 12, 12).triu()  # 1 where a token may not see another: the first sees none
    wanted = torch.zeros(2, 2, 12)
    wanted[:, torch.arange(2), torch.tensor([0, 7])] = 1
    inputs = {"input_ids": ids, "perm_mask": order, "target_mapping": wanted}
    expected = outputs(model, **inputs)
    expect_close(outputs(accelerate(model), **inputs), expected, 1e-5)


def test_an_attention_class_of_ones_own_keeps_its_code_and_is_named() -> None:
    model, ids = made("bloom"), texts(2, 9)
    layer = model.transformer.h[1].self_attention
    layer.__class__ = type("Mine", (type(layer),), {})
    expected = outputs(model, input_ids=ids)
    reason = (
        "BloomAttention: left as it is, since Mine inherits from an attention class with code that Situs does not know"
    )
    assert reason in describe(model)
    with pytest.raises(ValueError, match=f"there is nothing to accelerate; got BloomForCausalLM.* {reason}"):
        accelerate(model)
    assert torch.equal(outputs(model, input_ids=ids), expected)


def test_a_class_of_ones_own_that_asks_the_interface_is_served_with_its_own_rotation() -> None:
    model, ids = made("llama", torch.bfloat16), texts(2, 9)
    layer = model.model.layers[1].self_attn
    layer.__class__ = type("Mine", (type(layer),), {})
    expected = outputs(model, input_ids=ids)
    accelerate(model)
    assert "1 x Mine: on situs.attend, by transformers' interface\n" in describe(model)
    assert "LlamaRotaryEmbedding: left as it is, since Mine is none of transformers' classes" in describe(model)
    expect_close(outputs(model, input_ids=ids), expected, 2e-2)


@pytest.mark.parametrize("call", [accelerate, describe, restore])
def test_a_folder_is_no_model(call: Any) -> None:
    message = (
        "model must be a loaded model, since its modules are given other classes; got str. Load it with "
        "AutoModel.from_pretrained first."
    )
    with raises_exactly(TypeError, message):
        call("my_model/")


def test_what_has_no_attention_is_described_in_a_sentence() -> None:
    said = "Linear, not accelerated, since it has no attention that Situs can take over."
    assert describe(nn.Linear(2, 2)) == said


def test_weights_that_a_configuration_asks_for_are_refused_before_anything_changes() -> None:
    model = made("bloom")
    model.config.output_attentions = True
    message = (
        "output_attentions of a model's configuration must be False before it is accelerated, since no weights are "
        "formed then; got True. Set model.config.output_attentions = False first."
    )
    with raises_exactly(ValueError, message):
        accelerate(model)


@pytest.mark.parametrize("name", ["mt5", "umt5", "longt5", "longt5, summaries", "bart"])
def test_texts_are_generated_where_they_are_read_in_chunks(name: str) -> None:
    model, ids = made(name), texts(2, 20)
    inputs = {"input_ids": ids, "attention_mask": padding(ids, "right"), "decoder_input_ids": texts(2, 7)}
    options = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": None, "prefill_chunk_size": 6}
    logits = {"output_logits": True, "return_dict_in_generate": True}
    expected = model.generate(**inputs, **options, **logits)
    with accelerated(model):
        found = model.generate(**inputs, **options, **logits)
    assert torch.equal(found.sequences, expected.sequences)
    expect_close(torch.cat(found.logits), torch.cat(expected.logits), 1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", ["t5 encoder", "umt5", "longt5", "longt5, summaries", "mpnet"])
def test_padding_of_an_encoder_gets_what_it_gets_from_its_own_code(name: str, side: str) -> None:
    model, ids = made(name), texts(2, 23)
    model = model.get_encoder() if model.config.is_encoder_decoder else model
    inputs = {"input_ids": ids, "attention_mask": padding(ids, side)}
    expected = outputs(model, **inputs)
    with accelerated(model):
        expect_close(outputs(model, **inputs), expected, 1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
def test_mpt_hides_where_a_mask_of_pairs_is_true_once_it_is_cast(dtype: torch.dtype) -> None:
    model, ids = made("mpt"), texts(2, 12)
    hidden = torch.ones(12, 12, dtype=torch.bool).triu(1)[None, None].expand(2, 1, -1, -1)
    mask = hidden if dtype == torch.bool else torch.zeros(2, 1, 12, 12).masked_fill(hidden, torch.finfo(dtype).min)
    expected = outputs(model, input_ids=ids, attention_mask=mask)
    expect_close(outputs(model, input_ids=ids), expected, 1e-5)
    expect_close(outputs(accelerate(model), input_ids=ids, attention_mask=mask), expected, 1e-5)


@pytest.mark.parametrize("name", ["bloom", "mpt", "codegen", "mpnet"])
def test_the_name_alone_leaves_models_that_do_not_ask_as_they_are_and_says_so(name: str, tmp_path: Any) -> None:
    made(name).save_pretrained(tmp_path)
    ids = texts(2, 12)
    inputs = given(made(name), ids, padding(ids, "right"))
    expected = outputs(made(name), **inputs)
    model = type(made(name)).from_pretrained(tmp_path, attn_implementation="situs").eval()
    with pytest.warns(UserWarning, match='^attn_implementation="situs" changes nothing for models of'):
        assert torch.equal(outputs(model, **inputs), expected)
    with pytest.warns(UserWarning, match="changes nothing"):
        accelerate(model)
    real = inputs["attention_mask"].bool()
    expect_close(outputs(model, **inputs)[real], expected[real], 1e-5)


WEIGHTS = {
    "stablelm": lambda: hf.StableLmForCausalLM(hf.StableLmConfig(**{**GROUPED, "num_key_value_heads": 4})),
    "gpt-bigcode": lambda: hf.GPTBigCodeForCausalLM(
        hf.GPTBigCodeConfig(vocab_size=WORDS, n_embd=32, n_head=4, n_layer=2, n_positions=64)
    ),
    "gpt2": EVERY["gpt2"],
    "opt": EVERY["opt"],
    "mpnet": lambda: hf.MPNetModel(hf.MPNetConfig(**ENCODER)),
    "mt5": lambda: hf.MT5Model(hf.MT5Config(**SEQ2SEQ)),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_are_refused_where_layers_are_not_told_of_them(name: str) -> None:
    model = accelerate(randomised(WEIGHTS[name]))
    with pytest.raises(ValueError, match="output_attentions must be False while a model is accelerated"):
        model(**given(model, texts(1, 4)), output_attentions=True)
