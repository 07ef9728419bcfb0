"""The self-test of ``accelerate``: models that it takes, and what it tells of others."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from situs.huggingface import accelerate, accelerated, describe
from situs.huggingface.checking import AccelerationError
from situs.huggingface.interface import TAKEN
from tests.huggingface.small_models import (
    DEBERTA,
    ENCODER,
    GROUPED,
    SEQ2SEQ,
    WORDS,
    expect_close,
    given,
    hf,
    made,
    randomised,
    texts,
)  # fmt: skip
from tests.raising import raises_exactly

pytestmark = pytest.mark.once

BART: dict[str, Any] = {
    "vocab_size": WORDS, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "pad_token_id": 0, "eos_token_id": 1,
    "decoder_start_token_id": 1,
}  # fmt: skip
WHISPER: dict[str, Any] = {
    "vocab_size": WORDS, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "num_mel_bins": 16,
    "max_source_positions": 20, "max_target_positions": 20, "pad_token_id": 0, "eos_token_id": 1,
    "decoder_start_token_id": 2,
}  # fmt: skip
OF_WHOLE_TEXTS: dict[str, Callable[[], Any]] = {
    "bert": lambda: hf.BertForSequenceClassification(hf.BertConfig(**ENCODER)),
    "as many labels as tokens": lambda: hf.BertForSequenceClassification(hf.BertConfig(**ENCODER, num_labels=9)),
    "choices": lambda: hf.BertForMultipleChoice(hf.BertConfig(**ENCODER)),
    "next sentence": lambda: hf.BertForNextSentencePrediction(hf.BertConfig(**ENCODER)),
    "vector of a question": lambda: hf.DPRQuestionEncoder(hf.DPRConfig(**ENCODER)),
    "deberta": lambda: hf.DebertaV2ForSequenceClassification(hf.DebertaV2Config(**DEBERTA, max_relative_positions=20)),
    "llama, no padding": lambda: hf.LlamaForSequenceClassification(hf.LlamaConfig(**{**GROUPED, "pad_token_id": None})),
    "mpt": lambda: hf.MptForSequenceClassification(
        hf.MptConfig(vocab_size=WORDS, d_model=32, n_heads=4, n_layers=2, pad_token_id=0)
    ),
    "t5": lambda: hf.T5ForSequenceClassification(hf.T5Config(**SEQ2SEQ)),
    "bart": lambda: hf.BartForSequenceClassification(hf.BartConfig(**BART)),
}


@pytest.mark.parametrize("name", OF_WHOLE_TEXTS)
def test_models_of_whole_texts_are_tested_beneath_their_heads(name: str) -> None:
    model = randomised(OF_WHOLE_TEXTS[name])
    ids = texts(1, 12)
    ids[0, -1] = 1  # which ends a text
    inputs = ids[:, None] if name == "choices" else ids
    with torch.no_grad():
        expected = model(input_ids=inputs)[0]
        with accelerated(model):
            expect_close(model(input_ids=inputs)[0], expected, 1e-5)


@pytest.mark.parametrize(
    "make",
    [
        lambda: hf.WhisperForConditionalGeneration(hf.WhisperConfig(**WHISPER)),
        lambda: hf.WhisperForAudioClassification(hf.WhisperConfig(**WHISPER)),
        lambda: hf.WhisperModel(hf.WhisperConfig(**WHISPER)).encoder,
    ],
    ids=["transcripts", "classes", "encoder"],
)
def test_whisper_is_tested_with_a_sound_of_the_length_that_it_takes(make: Callable[[], Any]) -> None:
    model = randomised(make)
    given = {"input_features": torch.randn(1, 16, 40)}
    if type(model) is hf.WhisperForConditionalGeneration:
        given["decoder_input_ids"] = texts(1, 5)
    with torch.no_grad():
        expected = model(**given)[0]
        with accelerated(model):
            expect_close(model(**given)[0], expected, 1e-5)


@pytest.mark.parametrize("name", ["bert", "choices", "bart", "whisper"])
def test_a_model_that_gives_something_else_is_restored(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def zeros(module: Any, query: torch.Tensor, *rest: Any, **more: Any) -> tuple[torch.Tensor, None]:
        return torch.zeros_like(query).transpose(1, 2), None

    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS._global_mapping, TAKEN, zeros)
    makes = {**OF_WHOLE_TEXTS, "whisper": lambda: hf.WhisperForConditionalGeneration(hf.WhisperConfig(**WHISPER))}
    model = randomised(makes[name])
    message = (
        rf"^{type(model).__name__} must give the same accelerated, since only its attention runs elsewhere; for a "
        r"(text alone|sound) it gave outputs up to [0-9.e+-]+ apart, of up to [0-9.e+-]+\. The model was restored\. "
        rf"{re.escape('Please report its configuration.')}$"
    )
    with pytest.raises(AccelerationError, match=message):
        accelerate(model)
    assert describe(model).startswith(f"{type(model).__name__}, not accelerated. ")


@pytest.mark.parametrize("name", ["llama", "t5"])
def test_a_model_that_asks_by_name_is_described_and_told_how_to_get_weights(name: str) -> None:
    model = made(name)
    model.set_attn_implementation("situs")
    first = (
        f'{type(model).__name__}, not accelerated, but on situs.attend by attn_implementation="situs". accelerate() '
        "would give:"
    )
    assert describe(model).splitlines()[0] == first
    inputs = given(model, texts(1, 6))
    message = (
        'output_attentions must be False while attn_implementation is "situs", since no weights are formed; got True. '
        'Call model.set_attn_implementation("eager") first.'
    )
    with raises_exactly(ValueError, message):
        model(**inputs, output_attentions=True)
    model.set_attn_implementation("eager")
    model(**inputs, output_attentions=True)
    assert describe(model).splitlines()[0] == f"{type(model).__name__}, not accelerated. accelerate() would give:"


def test_a_name_that_no_layer_asks_for_is_not_described() -> None:
    model = made("bloom")
    model.config._attn_implementation = "situs"
    assert describe(model).splitlines()[0] == "BloomForCausalLM, not accelerated. accelerate() would give:"


def test_without_transformers_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.split(".")[:2] == ["situs", "huggingface"]]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "transformers", None)
    message = (
        "transformers must be installed for situs.huggingface, since it works on its models: pip install "
        "'situs[huggingface]', or '.[huggingface]' in the repository."
    )
    with raises_exactly(ImportError, message):
        importlib.import_module("situs.huggingface")
