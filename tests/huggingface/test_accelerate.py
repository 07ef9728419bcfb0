"""Accelerated models beside the same models as they are: outputs, gradients, generated texts."""

import copy
import inspect
import pickle
import warnings
from typing import Any

import pytest
import torch

from situs.attention import attend
from situs.huggingface import (
    AccelerationError,
    TransformersChangedError,
    accelerate,
    accelerated,
    describe,
    interface,
    restore,
)
from situs.huggingface.classes import _made
from situs.huggingface.seeing import Sight
from tests.huggingface.small_models import (
    DECODERS,
    EVERY,
    PAIRED,
    REPLACED,
    expect_close,
    expect_same_gradients,
    given,
    gradients,
    made,
    outputs,
    padding,
    prompt,
    texts,
    without_dropout,
)  # fmt: skip

pytestmark = pytest.mark.once


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


def behind_cache(model: Any, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """What a model gives for a text in three parts: nine tokens, one behind them, and the others behind these."""
    paired, found, cache = model.config.is_encoder_decoder, [], None
    counts = "position_ids" in inspect.signature(model.forward).parameters
    for start, end in ((0, 9), (9, 10), (10, ids.shape[1])):
        inputs = given(model, ids, mask if paired else mask[:, :end])
        inputs["decoder_input_ids" if paired else "input_ids"] = ids[:, start:end]
        if counts and not paired:
            inputs["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)[:, start:end]
        with torch.no_grad():
            out = model(**inputs, past_key_values=cache, use_cache=True)
        found.append(out.logits)
        cache = out.past_key_values
    logits = torch.cat(found, 1)
    return logits if paired else logits[mask.bool()]


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", [name for name in (*DECODERS, *PAIRED) if name != "switch"])  # which takes no cache
@pytest.mark.parametrize("side", ["left", "right"])
def test_outputs_behind_a_cache_are_the_same(name: str, side: str) -> None:
    model, ids = made(name), texts(2, 13)
    mask = padding(ids, side)
    expected = behind_cache(model, ids, mask)
    with accelerated(model):
        expect_close(behind_cache(model, ids, mask), expected, 1e-5)


@pytest.mark.short
@pytest.mark.thin(2)
@pytest.mark.parametrize("name", [name for name in EVERY if not name.startswith("inkling")])
@pytest.mark.parametrize("tokens", [7, 150])
def test_short_texts_give_the_same(name: str, tokens: int) -> None:
    model, ids = made(name), texts(2, tokens)
    masks = [None, padding(ids, "left"), padding(ids, "right")]
    expected = [outputs(model, ids, mask) for mask in masks]
    with accelerated(model, check=False):
        for mask, before in zip(masks, expected, strict=True):
            expect_close(outputs(model, ids, mask), before, 1e-5)


@pytest.mark.short
@pytest.mark.parametrize("name", ["t5 encoder", "mpnet", "bloom", "falcon", "mpt"])
def test_layers_share_the_bias_of_a_short_text(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = made(name), texts(2, 9)
    made_of: list[torch.Tensor] = []
    hiding = Sight.added_to

    def counted(sight: Sight, bias: torch.Tensor) -> torch.Tensor:
        made_of.append(bias)
        return hiding(sight, bias)

    monkeypatch.setattr(Sight, "added_to", counted)
    with accelerated(model):
        made_of.clear()
        outputs(model, ids)
        once = len(made_of)
        outputs(model, ids)
    assert (once, len(made_of)) == (1, 2)  # for two layers, and anew for the next text


@pytest.mark.short
def test_a_short_text_is_tested_as_a_long_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interface, "attend", lambda query, key, value, **asked: torch.zeros_like(query))
    with pytest.raises(AccelerationError, match=r"^T5EncoderModel must give the same accelerated"):
        accelerate(made("t5 encoder"))


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
    model, ids = without_dropout(made(name)), texts(2, 40)
    mask = padding(ids, "right")
    before = gradients(model, given(model, ids, mask), mask.bool())
    with accelerated(model):
        expect_same_gradients(gradients(model, given(model, ids, mask), mask.bool()), before)


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
        expected = model.generate(**prompt(model, ids, mask), **options)
    except (IndexError, RuntimeError, ValueError) as cannot:
        pytest.skip(f"the model itself cannot: {cannot}")
    with accelerated(model):
        assert torch.equal(model.generate(**prompt(model, ids, mask), **options), expected)


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", [*DECODERS, *PAIRED])
def test_assisted_and_sampled_texts_are_the_same(name: str) -> None:
    model, ids = made(name), texts(1, 9)
    start = prompt(model, ids, torch.ones_like(ids))
    options = {"max_new_tokens": 12, "pad_token_id": 0, "eos_token_id": None}

    def generated() -> list[torch.Tensor]:
        torch.manual_seed(0)
        sampled = model.generate(**start, do_sample=True, **options)
        return [sampled, model.generate(**start, do_sample=False, prompt_lookup_num_tokens=3, **options)]

    try:
        expected = generated()
    except ValueError as cannot:
        pytest.skip(f"the model itself cannot: {cannot}")
    with accelerated(model):
        assert all(map(torch.equal, generated(), expected))


@pytest.mark.parametrize("name", ["t5", "bloom", "falcon", "mpnet", "deberta v3", "xlnet", "inkling", "llama", "bert"])
def test_dropout_of_weights_is_in_force_in_training_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids, used = made(name), texts(2, 20), set()
    for module in model.modules():
        if "Attention" in type(module).__name__:
            for own in {"dropout", "attention_dropout"} & vars(module).keys():
                setattr(module, own, 0.3)
            for inner in module.children():
                if isinstance(inner, torch.nn.Dropout):
                    inner.p = 0.3

    def watched(*args: Any, dropout: float = 0.0, **asked: Any) -> torch.Tensor:
        used.add(dropout)
        return attend(*args, dropout=dropout, **asked)

    monkeypatch.setattr(interface, "attend", watched)
    expected = outputs(model, ids)
    accelerate(model)
    expect_close(outputs(model, ids), expected, 1e-5)
    assert used <= {0.0}
    used.clear()
    model.train()
    found = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        found.append(outputs(model, ids))
    once, again, other = found
    assert used == {0.3}
    assert torch.equal(once, again)
    assert not torch.equal(once, other)


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", REPLACED)
def test_a_hundred_cycles_leave_a_model_as_it_was(name: str) -> None:
    model = made(name)
    outputs(model, texts(1, 5))  # after which some models keep more than before
    before = [(path, type(module), dict(vars(module))) for path, module in model.named_modules()]
    names, settings = list(model.state_dict()), model.config.to_dict()
    for _ in range(100):
        outputs(accelerate(model, check=False), texts(1, 5))
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
    model, ids = without_dropout(made(name)), texts(2, 20)

    def gradient() -> torch.Tensor:
        model.zero_grad()
        torch.manual_seed(0)
        (model(**given(model, ids), use_cache=False)[0] ** 2).mean().backward()
        return torch.cat([each.grad.flatten() for each in model.parameters() if each.grad is not None])

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


def test_the_activation_of_bloom_is_described_as_what_it_is() -> None:
    with accelerated(made("bloom")) as model:
        assert describe(model) == (
            "BloomForCausalLM, accelerated\n2 x BloomAttention: on situs.attend, its class replaced\n"
            "2 x BloomGelu: in one pass over memory, its class replaced"
        )


def test_nothing_is_said_where_all_is_served() -> None:
    with warnings.catch_warnings(record=True) as said:
        accelerate(made("bloom"))
    assert not said


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


COMPILED = ["t5", "bloom", "deberta v3", "llama"]
COMPILED_LATER = [
    "inkling", "longt5", "longt5, summaries", "pix2struct text", "udop", "layoutlmv3", "gpt-j", "codegen",
]  # fmt: skip


@pytest.mark.thin(2)
@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # BLOOM's own GELU, under dynamo
@pytest.mark.parametrize("name", [*COMPILED, *(pytest.param(name, marks=pytest.mark.heavy) for name in COMPILED_LATER)])
def test_compiled_models_give_the_same(name: str) -> None:
    model, ids = made(name), texts(2, 20)
    mask = padding(ids, "left")
    expected = outputs(model, ids, mask)
    accelerate(model)
    compiled = torch.compile(model, backend="aot_eager")
    with torch.no_grad():
        found = compiled(**given(model, ids, mask))[0]
    expect_close(found if model.config.is_encoder_decoder else found[mask.bool()], expected, 1e-5)
