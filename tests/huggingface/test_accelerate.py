"""Accelerated models beside the same models as they are: outputs, gradients, generated texts."""

import copy
import pickle
import warnings
from importlib import import_module
from typing import Any

import pytest
import torch

from situs.huggingface import TransformersChangedError, accelerate, accelerated, describe, restore
from situs.huggingface.classes import _made
from tests.huggingface.small_models import DECODERS, EVERY, PAIRED, REPLACED, SEQ2SEQ, given, made, padding, texts

pytestmark = pytest.mark.once


def outputs(model: Any, ids: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(**given(model, ids, mask))[0]
    return found if mask is None or model.config.is_encoder_decoder else found[mask.bool()]


def expect_close(found: torch.Tensor, expected: torch.Tensor, within: float) -> None:
    assert float((found - expected).abs().max()) <= within * float(expected.abs().max())


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize(
    "tokens", [1, 7, 130, pytest.param(512, marks=pytest.mark.heavy), pytest.param(2049, marks=pytest.mark.heavy)]
)
def test_outputs_are_the_same(name: str, tokens: int) -> None:
    model, ids = made(name), texts(2, tokens)
    masks = [None, *(padding(ids, side) for side in ("left", "right") if tokens > 1)]
    expected = [outputs(model, ids, mask) for mask in masks]
    with accelerated(model, check=tokens == 7):
        for mask, before in zip(masks, expected, strict=True):
            expect_close(outputs(model, ids, mask), before, 1e-5)
    assert torch.equal(outputs(model, ids, masks[-1]), expected[-1])


# experts are chosen by whatever is larger, and those of GPT-OSS take no float64
@pytest.mark.thin(3)
@pytest.mark.parametrize("name", [name for name in EVERY if name not in ("switch", "gpt-oss")])
def test_bfloat16_is_as_exact_as_before(name: str) -> None:
    model, ids = made(name, torch.bfloat16), texts(2, 40)
    rounded = made(name, torch.bfloat16).to(torch.float64)
    expected = outputs(rounded, ids)
    before = (outputs(model, ids).double() - expected).abs().mean()
    with accelerated(model):
        now = (outputs(model, ids).double() - expected).abs().mean()
    assert now <= 2 * before


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", EVERY)
def test_gradients_are_the_same(name: str) -> None:
    model, ids = made(name).train(), texts(2, 40)
    mask = padding(ids, "right")

    def gradients() -> dict[str, torch.Tensor]:
        model.zero_grad()
        out = model(**given(model, ids, mask))[0]
        (out[mask.bool()] ** 2).mean().backward()
        return {name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None}

    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    torch.manual_seed(0)
    before = gradients()
    with accelerated(model):
        torch.manual_seed(0)
        now = gradients()
    assert now.keys() == before.keys()
    largest = max(float(each.abs().max()) for each in before.values())
    for each, expected in before.items():
        torch.testing.assert_close(now[each], expected, atol=1e-4 * largest, rtol=1e-4, msg=each)


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", [*DECODERS, *PAIRED])
@pytest.mark.parametrize("way", [{}, {"num_beams": 3}, {"cache_implementation": "static"}], ids=str)
def test_generated_texts_are_the_same(name: str, way: dict[str, Any]) -> None:
    model, ids = made(name), texts(2, 9)
    mask = padding(ids, "left")
    options = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0, "eos_token_id": None, **way}
    if "cache_implementation" in way:
        options["disable_compile"] = True
    try:
        expected = model.generate(ids, attention_mask=mask, **options)
    except (IndexError, RuntimeError, ValueError) as cannot:
        pytest.skip(f"the model itself cannot: {cannot}")
    with accelerated(model):
        assert torch.equal(model.generate(ids, attention_mask=mask, **options), expected)


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", DECODERS)
def test_assisted_and_sampled_texts_are_the_same(name: str) -> None:
    model, ids = made(name), texts(1, 9)
    options = {"max_new_tokens": 12, "pad_token_id": 0, "eos_token_id": None}

    def generated() -> list[torch.Tensor]:
        torch.manual_seed(0)
        sampled = model.generate(ids, do_sample=True, **options)
        return [sampled, model.generate(ids, do_sample=False, prompt_lookup_num_tokens=3, **options)]

    try:
        expected = generated()
    except ValueError as cannot:
        pytest.skip(f"the model itself cannot: {cannot}")
    with accelerated(model):
        assert all(map(torch.equal, generated(), expected))


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", REPLACED)
def test_a_hundred_cycles_leave_a_model_as_it_was(name: str) -> None:
    model = made(name)
    outputs(model, texts(1, 5))  # after which some models keep more than before
    before = [(path, type(module), dict(vars(module))) for path, module in model.named_modules()]
    names, settings = list(model.state_dict()), model.config.to_dict()
    for _ in range(100):
        restore(accelerate(model, check=False))
    accelerate(model, check=False)
    outputs(model, texts(1, 5))
    assert list(model.state_dict()) == names
    restore(model)
    after = [(path, type(module), dict(vars(module))) for path, module in model.named_modules()]
    assert [each[:2] for each in after] == [each[:2] for each in before]
    assert [each[2].keys() for each in after] == [each[2].keys() for each in before]
    assert model.config.to_dict() == settings


@pytest.mark.parametrize("name", ["t5", "bloom", "deberta v3", "xlnet", "llama"])
def test_copies_and_pickles_are_accelerated_too(name: str) -> None:
    model, ids = made(name), texts(2, 30)
    expected = outputs(model, ids)
    accelerate(model)
    outputs(model, ids)
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert "not accelerated" not in describe(copied)
        expect_close(outputs(copied, ids), expected, 1e-5)
        with torch.no_grad():
            for parameter in copied.parameters():
                parameter.zero_()
        assert torch.equal(outputs(restore(copied), ids), torch.zeros_like(expected)) or name == "xlnet"
    expect_close(outputs(model, ids), expected, 1e-5)


@pytest.mark.parametrize("name", ["t5", "bloom", "falcon", "deberta v3"])
def test_weights_are_saved_under_their_names(name: str, tmp_path: Any) -> None:
    model, ids = made(name), texts(2, 12)
    expected = outputs(model, ids)
    accelerate(model).save_pretrained(tmp_path)
    assert "situs" not in (tmp_path / "config.json").read_text()
    again = type(model).from_pretrained(tmp_path).eval()
    assert torch.equal(outputs(again, ids), expected)


@pytest.mark.parametrize("name", ["t5", "mpt", "mpnet", "llama"])
def test_a_table_that_was_replaced_is_read(name: str) -> None:
    model, ids = made(name), texts(2, 12)
    other = {each: torch.randn_like(value) for each, value in model.state_dict().items()}
    accelerate(model)
    outputs(model, ids)
    model.load_state_dict(other, assign=True)
    found = outputs(model, ids)
    expect_close(found, outputs(restore(model), ids), 1e-5)


@pytest.mark.parametrize("name", ["t5", "bloom", "deberta v3", "llama"])
def test_checkpointed_layers_have_the_same_gradients(name: str) -> None:
    model, ids = made(name).train(), texts(2, 20)

    def gradient() -> torch.Tensor:
        model.zero_grad()
        torch.manual_seed(0)
        (model(**given(model, ids), use_cache=False)[0] ** 2).mean().backward()
        return torch.cat([each.grad.flatten() for each in model.parameters() if each.grad is not None])

    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    accelerate(model)
    expected = gradient()
    model.gradient_checkpointing_enable()
    expect_close(gradient(), expected, 1e-5)


@pytest.mark.parametrize("name", ["t5", "mpnet", "llama", "gemma 3"])
def test_masks_of_pairs_are_taken_as_they_are(name: str) -> None:
    model, ids = made(name), texts(2, 12)
    allowed = torch.ones(12, 12, dtype=torch.bool).tril().triu(-4)[None, None].expand(2, 1, -1, -1)
    mask = torch.zeros(2, 1, 12, 12).masked_fill(~allowed, torch.finfo(torch.float32).min)
    with torch.no_grad():
        expected = model(**given(model, ids, mask))[0]
        with accelerated(model):
            found = model(**given(model, ids, mask))[0]
    expect_close(found, expected, 1e-5)


def test_longer_texts_than_mpt_was_made_for_are_taken() -> None:
    model = made("mpt")
    model.config.max_seq_len = 8
    ids = texts(1, 20)
    with pytest.raises(RuntimeError):
        outputs(model, ids)
    with accelerated(model, check=False):
        found = outputs(model, ids)
    model.config.max_seq_len = 20
    expect_close(found, outputs(model, ids), 1e-5)


@pytest.mark.parametrize("name", ["bloom", "mpnet", "deberta v3", "xlnet", "mpt", "t5", "llama", "bert"])
def test_weights_of_attention_are_refused(name: str) -> None:
    model = accelerate(made(name))
    with pytest.raises(ValueError, match="output_attentions must be False while a model is accelerated"):
        model(**given(model, texts(1, 4)), output_attentions=True)


def test_what_cannot_be_served_keeps_its_own_code_and_is_told() -> None:
    model, ids = made("deberta"), texts(1, 6)
    for module in model.modules():
        if hasattr(module, "talking_head"):
            module.talking_head = True
            module.head_logits_proj = torch.nn.Linear(4, 4, bias=False)
            module.head_weights_proj = torch.nn.Linear(4, 4, bias=False)
    expected = outputs(model, ids)
    with pytest.raises(ValueError, match="heads that mix their scores need them all"):
        accelerate(model)
    assert torch.equal(outputs(model, ids), expected)


def test_a_model_without_attention_is_refused() -> None:
    with pytest.raises(ValueError, match="model must have attention that Situs knows"):
        accelerate(torch.nn.Linear(2, 2), check=False)


def test_a_part_cannot_be_restored_alone() -> None:
    model = accelerate(made("t5"))
    with pytest.raises(ValueError, match="model must be the one that was accelerated"):
        restore(model.encoder)
    assert accelerate(model) is model


def test_it_tells_what_it_replaced() -> None:
    model = made("t5")
    assert describe(model).startswith("T5ForConditionalGeneration, not accelerated")
    assert describe(accelerate(model)) == (
        "T5ForConditionalGeneration, accelerated\n6 x T5Attention: on situs.attend, its class replaced"
    )
    assert "2 x LlamaAttention: on situs.attend, by transformers' interface" in describe(made("llama"))


def test_nothing_is_said_where_all_is_served() -> None:
    with warnings.catch_warnings(record=True) as said:
        accelerate(made("bloom"))
    assert not said


def test_sounds_go_through_sew_d() -> None:
    transformers: Any = import_module("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 48}
    buckets = {"position_buckets": 8, "max_position_embeddings": 64, "conv_dim": (16, 16), "conv_stride": (5, 4),
               "conv_kernel": (10, 8), "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2}  # fmt: skip
    model = transformers.SEWDModel(transformers.SEWDConfig(**sizes, **buckets)).eval()
    wave = torch.randn(2, 4000)
    real = torch.ones(2, 4000, dtype=torch.long)
    real[1, 2000:] = 0
    with torch.no_grad():
        expected = [model(wave)[0], model(wave, attention_mask=real)[0][:, :40]]
        with accelerated(model):
            found = [model(wave)[0], model(wave, attention_mask=real)[0][:, :40]]
    for each, before in zip(found, expected, strict=True):
        expect_close(each, before, 1e-5)


def test_pop2piano_is_a_t5() -> None:
    transformers: Any = import_module("transformers")
    torch.manual_seed(0)
    config = transformers.Pop2PianoConfig(**SEQ2SEQ)
    model = transformers.Pop2PianoForConditionalGeneration(config).eval()
    features, ids = torch.randn(2, 30, 32), texts(2, 11)
    mask = torch.ones(2, 30, dtype=torch.long)
    mask[1, 20:] = 0
    given = {"inputs_embeds": features, "attention_mask": mask, "decoder_input_ids": ids}
    with torch.no_grad():
        expected = model(**given)[0]
        with accelerated(model):
            expect_close(model(**given)[0], expected, 1e-5)


def test_another_release_of_transformers_is_refused_before_anything_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    model = made("bloom")
    cls = type(next(each for each in model.modules() if type(each).__name__ == "BloomAttention"))
    _made.cache_clear()
    monkeypatch.setattr(cls, "forward", lambda self, states, mask: states)
    with pytest.raises(TransformersChangedError, match=r"BloomAttention.forward of transformers must take \(self, "):
        accelerate(model)
    assert model.config._attn_implementation == "eager"
    _made.cache_clear()


def test_the_public_interface_takes_the_name_with_its_masks(tmp_path: Any) -> None:
    for name in ("llama", "t5"):
        made(name).save_pretrained(tmp_path / name)
        ids = texts(2, 12)
        mask = padding(ids, "left")
        expected = outputs(made(name), ids, mask)
        model = type(made(name)).from_pretrained(tmp_path / name, attn_implementation="situs").eval()
        assert model.config._attn_implementation == "situs"
        expect_close(outputs(model, ids, mask), expected, 1e-5)


@pytest.mark.parametrize("name", ["llama", "mistral", "gpt-oss", "modernbert"])
def test_packed_documents_do_not_see_each_other(name: str) -> None:
    model, ids = made(name), texts(1, 12)
    places = torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6]])
    with torch.no_grad():
        expected = model(input_ids=ids, position_ids=places)[0]
        with accelerated(model):
            found = model(input_ids=ids, position_ids=places)[0]
    expect_close(found, expected, 1e-5)


@pytest.mark.thin(2)
@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # BLOOM's own GELU, under dynamo
@pytest.mark.parametrize("name", ["t5", "bloom", "deberta v3", "llama"])
def test_compiled_models_give_the_same(name: str) -> None:
    model, ids = made(name), texts(2, 20)
    mask = padding(ids, "left")
    expected = outputs(model, ids, mask)
    accelerate(model)
    compiled = torch.compile(model, backend="aot_eager")
    with torch.no_grad():
        found = compiled(**given(model, ids, mask))[0]
    expect_close(found if model.config.is_encoder_decoder else found[mask.bool()], expected, 1e-5)


def test_inputs_that_the_self_test_cannot_make_are_named() -> None:
    transformers: Any = import_module("transformers")
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 1, "intermediate_size": 48}
    model = transformers.ViTModel(transformers.ViTConfig(**sizes, image_size=32, patch_size=8)).eval()
    with pytest.raises(ValueError, match="check must be False for ViTModel"):
        accelerate(model)
    pixels = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        expected = model(pixels)[0]
        with accelerated(model, check=False):
            expect_close(model(pixels)[0], expected, 1e-5)


@pytest.mark.parametrize("name", ["beit", "parakeet", "bart", "gpt2", "opt", "wav2vec2-conformer", "longt5"])
def test_layers_that_look_into_masks_get_masks(name: str) -> None:
    transformers: Any = import_module("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 48}
    ids = texts(2, 30)
    mask = padding(ids, "right")
    frames = torch.ones(2, 400, dtype=torch.long)
    frames[1, 200:] = 0
    model, given = {
        "beit": lambda: (
            transformers.BeitModel(
                transformers.BeitConfig(**sizes, image_size=32, patch_size=8, use_relative_position_bias=True)
            ),
            {"pixel_values": torch.randn(1, 3, 32, 32)},
        ),
        "parakeet": lambda: (
            transformers.ParakeetEncoder(
                transformers.ParakeetEncoderConfig(**sizes, num_mel_bins=16, subsampling_conv_channels=8)
            ),
            {"input_features": torch.randn(2, 400, 16), "attention_mask": frames},
        ),
        "bart": lambda: (
            transformers.BartModel(transformers.BartConfig(
                vocab_size=99, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4,
                decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48,
            )),
            {"input_ids": ids, "decoder_input_ids": ids, "attention_mask": mask},
        ),
        "gpt2": lambda: (
            transformers.GPT2Model(transformers.GPT2Config(
                vocab_size=99, n_embd=32, n_head=4, n_layer=2, bos_token_id=1, eos_token_id=1,
            )),
            {"input_ids": ids, "attention_mask": mask},
        ),
        "opt": lambda: (
            transformers.OPTModel(transformers.OPTConfig(
                vocab_size=99, hidden_size=32, num_attention_heads=4, num_hidden_layers=2, ffn_dim=48,
                word_embed_proj_dim=32,
            )),
            {"input_ids": ids, "attention_mask": mask},
        ),
        "wav2vec2-conformer": lambda: (
            transformers.Wav2Vec2ConformerModel(transformers.Wav2Vec2ConformerConfig(
                **sizes, conv_dim=(16, 16), conv_stride=(5, 4), conv_kernel=(10, 8), num_feat_extract_layers=2,
                num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2, position_embeddings_type="relative",
            )),
            {"input_values": torch.randn(2, 3000)},
        ),
        "longt5": lambda: (
            transformers.LongT5ForConditionalGeneration(transformers.LongT5Config(**SEQ2SEQ, local_radius=5)),
            {"input_ids": ids, "decoder_input_ids": ids, "attention_mask": mask},
        ),
    }[name]()  # fmt: skip
    model.eval()
    with torch.no_grad(), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        expected = model(**given)[0]
        with accelerated(model, check=False):
            found = model(**given)[0]
    if name in ("gpt2", "opt"):
        found, expected = found[mask.bool()], expected[mask.bool()]
    if name == "parakeet":
        found, expected = found[0], expected[0]
    expect_close(found, expected, 1e-5)
    kept = [str(each.message) for each in said if "keeps its own code" in str(each.message)]
    assert len(kept) == (name == "longt5")
