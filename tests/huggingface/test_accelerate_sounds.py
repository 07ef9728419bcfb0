"""Accelerated models that take sounds beside the same models as they are."""

from typing import Any

import pytest
import torch

from situs.huggingface import accelerate, accelerated, describe, restore
from situs.huggingface.families import conformer, speecht5, wavlm
from tests.huggingface.small_models import (
    SEQ2SEQ,
    expect_close,
    expect_same_gradients,
    gradients,
    hf,
    randomised,
    texts,
    without_dropout,
)  # fmt: skip
from tests.huggingface.small_sounds import SOUNDS, made_sound, sounds

pytestmark = [
    pytest.mark.once,
    pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask:UserWarning"),  # WavLM's own call
]

PADDING_SEES_NOTHING = ("parakeet", "speecht5", "sew-d", "seamless v2, chunks")  # and is read by nobody
TEXT_TO_SPEECH: dict[str, Any] = {
    "vocab_size": 50, "hidden_size": 32, "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 48,
    "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 48, "encoder_max_relative_position": 9,
    "speech_decoder_prenet_units": 16, "speech_decoder_postnet_units": 16, "num_mel_bins": 8,
    "speaker_embedding_dim": 8,
}  # fmt: skip


def heard(model: Any, name: str, given: dict[str, Any]) -> list[torch.Tensor]:
    """What a model gives, and what its encoder gives; of real frames, where padding is not compared."""
    with torch.no_grad():
        out = model(**given)
    found = [out[0]] if name != "speecht5" else [out.logits, out.encoder_last_hidden_state]
    if name in PADDING_SEES_NOTHING and "attention_mask" in given:
        frames = found[-1].shape[1]
        found = [*found[:-1], found[-1][0], found[-1][1, : frames - frames // 3]]
    return found


@pytest.fixture(autouse=True)
def without_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short sounds go the way of long ones."""
    monkeypatch.setattr(conformer, "DENSE_UP_TO", {"relative": 0, "relative_key": 0})
    monkeypatch.setattr(speecht5, "DENSE_UP_TO", 0)
    monkeypatch.setattr(wavlm, "DENSE_UP_TO", 0)


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", SOUNDS)
@pytest.mark.parametrize(
    "frames", [1, 7, 130, pytest.param(512, marks=pytest.mark.heavy), pytest.param(2049, marks=pytest.mark.heavy)]
)
def test_sounds_give_the_same(name: str, frames: int) -> None:
    model = made_sound(name)
    several = [sounds(name, frames), *([sounds(name, frames, padded=True)] if frames > 1 else [])]
    expected = [heard(model, name, given) for given in several]
    with accelerated(model, check=frames == 7):
        for given, before in zip(several, expected, strict=True):
            for found, wanted in zip(heard(model, name, given), before, strict=True):
                expect_close(found, wanted, 1e-5)
    assert all(map(torch.equal, heard(model, name, several[-1]), expected[-1]))


@pytest.mark.short
@pytest.mark.parametrize("name", ["wav2vec2-conformer", "wav2vec2-bert", "seamless", "parakeet", "speecht5", "wavlm"])
def test_short_sounds_give_the_same_by_a_bias_of_pairs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conformer, "DENSE_UP_TO", {"relative": 40, "relative_key": 40})
    monkeypatch.setattr(speecht5, "DENSE_UP_TO", 40)
    monkeypatch.setattr(wavlm, "DENSE_UP_TO", 40)
    model, given = made_sound(name), sounds(name, 40, padded=True)
    expected = heard(model, name, given)
    with accelerated(model):
        for found, wanted in zip(heard(model, name, given), expected, strict=True):
            expect_close(found, wanted, 1e-5)


@pytest.mark.parametrize("name", ["wav2vec2-bert", "wav2vec2-bert, sinusoids", "seamless v2", "seamless v2, chunks"])
def test_sounds_may_be_padded_on_the_left(name: str) -> None:
    model, given = made_sound(name), sounds(name, 40, padded=True)
    given["attention_mask"] = given["attention_mask"].flip(1)
    expected = heard(model, name, given)
    with accelerated(model):
        expect_close(heard(model, name, given)[0], expected[0], 1e-5)


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", SOUNDS)
def test_gradients_of_sounds_are_the_same(name: str) -> None:
    model, given = without_dropout(made_sound(name)), sounds(name, 40, padded=True)
    shorter = None
    if name in PADDING_SEES_NOTHING and name != "speecht5":
        shorter = torch.arange(40) < torch.tensor([[40], [40 - 40 // 3]])
    before = gradients(model, given, shorter)
    with accelerated(model):
        expect_same_gradients(gradients(model, given, shorter), before)


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", SOUNDS)
def test_bfloat16_of_sounds_is_as_exact_as_before(name: str) -> None:
    model, given = made_sound(name, torch.bfloat16), sounds(name, 40, dtype=torch.bfloat16)
    wide = {key: each.double() if each.is_floating_point() else each for key, each in given.items()}
    expected = heard(made_sound(name, torch.bfloat16).double(), name, wide)

    def error() -> torch.Tensor:
        found = heard(model, name, given)
        return torch.stack([(each - wanted).abs().mean() for each, wanted in zip(found, expected, strict=True)])

    before = error()
    with accelerated(model):
        assert bool((error() <= 2 * before).all())


@pytest.mark.parametrize("name", ["wav2vec2-conformer", "seamless v2", "speecht5"])
def test_models_of_sounds_are_left_as_they_were(name: str) -> None:
    model, given = made_sound(name), sounds(name, 12)
    before = [(path, type(module), set(vars(module))) for path, module in model.named_modules()]
    names = list(model.state_dict())
    for cycle in range(100):
        heard(accelerate(model, check=not cycle), name, given)
        assert list(model.state_dict()) == names
        restore(model)
    assert [(path, type(module), set(vars(module))) for path, module in model.named_modules()] == before


def test_each_sound_has_positions_of_its_own_where_they_are_dropped_out() -> None:
    model, given = without_dropout(made_sound("parakeet")), sounds("parakeet", 20, padded=True)
    model.dropout_positions = model.config.dropout_positions = 0.5
    real = torch.arange(20) < torch.tensor([[20], [14]])
    before = gradients(model, given, real)
    with accelerated(model, check=False):
        expect_same_gradients(gradients(model, given, real), before)


def test_a_mask_of_pairs_that_is_none_of_tokens_is_taken_as_it_is() -> None:
    model = made_sound("parakeet")
    layer, states = model.layers[0].self_attn, torch.randn(2, 9, 32)
    mask = torch.ones(9, 9, dtype=torch.bool).tril().expand(2, 1, -1, -1)
    given = {"position_embeddings": model.encode_positions(states), "attention_mask": mask}
    with torch.no_grad():
        expected = layer(states, **given)[0]
        with accelerated(model):
            expect_close(layer(states, **given)[0], expected, 1e-5)


@pytest.mark.parametrize("way", [{}, {"num_beams": 3}], ids=str)
def test_transcripts_are_the_same(way: dict[str, Any]) -> None:
    model, given = made_sound("speecht5"), sounds("speecht5", 30, padded=True)
    given.pop("decoder_input_ids")
    options = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": None, **way}
    expected = model.generate(**given, **options)
    with accelerated(model):
        assert torch.equal(model.generate(**given, **options), expected)


def test_speech_is_made_of_text_as_before() -> None:
    config = hf.SpeechT5Config(**TEXT_TO_SPEECH)
    model = randomised(lambda: hf.SpeechT5ForTextToSpeech(config))
    ids = texts(2, 9) % 40 + 4
    given = {"input_ids": ids, "decoder_input_values": torch.randn(2, 12, 8), "speaker_embeddings": torch.randn(2, 8)}

    def spectrogram() -> torch.Tensor:
        torch.manual_seed(0)  # its prenet drops out even when it does not learn
        with torch.no_grad():
            found: torch.Tensor = model(**given)[0]
        return found

    expected = spectrogram()
    with pytest.raises(ValueError, match=r"^check must be False for SpeechT5ForTextToSpeech, since it does not take "):
        accelerate(model)
    with accelerated(model, check=False):
        expect_close(spectrogram(), expected, 1e-5)


def test_pop2piano_is_a_t5() -> None:
    model = randomised(lambda: hf.Pop2PianoForConditionalGeneration(hf.Pop2PianoConfig(**SEQ2SEQ)))
    mask = torch.ones(2, 30, dtype=torch.long)
    mask[1, 20:] = 0
    given = {"inputs_embeds": torch.randn(2, 30, 32), "attention_mask": mask, "decoder_input_ids": texts(2, 11)}
    with torch.no_grad():
        expected = model(**given)[0]
        with accelerated(model, check=False):
            expect_close(model(**given)[0], expected, 1e-5)


@pytest.mark.parametrize("name", ["wav2vec2-conformer", "wav2vec2-bert", "parakeet", "speecht5"])
def test_weights_of_sounds_are_refused(name: str) -> None:
    model = accelerate(made_sound(name))
    with pytest.raises(ValueError, match="output_attentions must be False while a model is accelerated"):
        model(**sounds(name, 7), output_attentions=True)


@pytest.mark.parametrize("name", ["wavlm", "speecht5", "wav2vec2-bert", "seamless v2"])
def test_hooked_tables_are_read_as_they_are_used(name: str) -> None:
    model, given = made_sound(name), sounds(name, 30)
    tables = [
        each
        for path, each in model.named_modules()
        if path.rpartition(".")[2] in ("rel_attn_embed", "pe_k", "distance_embedding")
    ]
    assert tables
    plain = heard(model, name, given)
    for table in tables:
        table.register_forward_hook(lambda module, rows, found: 3 * found)
    expected = heard(model, name, given)
    assert not torch.equal(plain[-1], expected[-1])
    with accelerated(model):
        for found, wanted in zip(heard(model, name, given), expected, strict=True):
            expect_close(found, wanted, 1e-5)


def test_conformers_are_described() -> None:
    assert describe(made_sound("seamless v2")) == (
        "SeamlessM4Tv2SpeechEncoder, not accelerated. accelerate() would give:\n"
        "1 x SeamlessM4Tv2ConformerEncoder: on situs.attend, its class replaced\n"
        "3 x SeamlessM4Tv2ConformerSelfAttention: on situs.attend, its class replaced"
    )


@pytest.mark.heavy
@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`:UserWarning")  # transformers' own
@pytest.mark.parametrize(
    "name", ["wav2vec2-conformer", "wav2vec2-bert", "seamless", "seamless v2", "parakeet", "speecht5", "wavlm"]
)
def test_compiled_models_of_sounds_give_the_same(name: str) -> None:
    model, given = made_sound(name), sounds(name, 20, padded=True)
    expected = heard(model, name, given)
    compiled = torch.compile(accelerate(model), backend="aot_eager")
    for found, wanted in zip(heard(compiled, name, given), expected, strict=True):
        expect_close(found, wanted, 1e-5)
