"""Rotary attention layers of transformers and ours, on the same queries, keys and values."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from transformers import RoFormerConfig, RoFormerModel

from situs import NTKByPartsScaling, Positions, ProportionalScaling, Rotary, YaRN
from situs.attention import reference
from tests.parity.attention_probe import Projections, assert_same_attention, enliven
from tests.parity.released_models import FAR, HEAD_DIM, PLAIN, VOCABULARY, ReleasedModel, rotary
from tests.parity.scaled_models import BY_LENGTH, SCALED
from tests.parity.wide_transformers import WIDE_TOLERANCE, in_float64

LENGTH = 40
LENGTHS = torch.tensor([LENGTH, 27])
MASK = (torch.arange(LENGTH) >= LENGTH - LENGTHS[:, None]).long()

each_model = pytest.mark.parametrize("released", [*PLAIN, *SCALED, *BY_LENGTH], ids=str)
# of a batch, transformers takes the longest sequence's frequencies for all: see test_length_dependent_parity.py
each_model_by_position = pytest.mark.parametrize("released", [*PLAIN, *SCALED], ids=str)
each_precision = pytest.mark.parametrize("precision", ["as released", "in float64"])


def tokens(rows: int = 2, length: int = LENGTH) -> torch.Tensor:
    return torch.randint(1, VOCABULARY, (rows, length))


def within(released: ReleasedModel, precision: str) -> Any:
    return released.widened() if precision == "in float64" else nullcontext()


@each_model
@each_precision
def test_attention_equals_ours_from_position_zero(released: ReleasedModel, precision: str) -> None:
    with within(released, precision):
        model = released.build()
        seen = released.catch(model, lambda: model(tokens()))
    assert_same_attention(seen, released.encoding, window=released.window, scale=released.scale)


@each_model_by_position
@each_precision
def test_attention_equals_ours_with_left_padding(released: ReleasedModel, precision: str) -> None:
    position_ids = (MASK.cumsum(-1) - 1).masked_fill(MASK == 0, 0)  # as generate() makes them
    with within(released, precision):
        model = released.build()
        seen = released.catch(model, lambda: model(tokens(), attention_mask=MASK, position_ids=position_ids))
    positions = Positions.from_mask(MASK, side="left")
    assert_same_attention(seen, released.encoding, positions=positions, window=released.window, scale=released.scale)


@each_model
def test_attention_equals_ours_at_scattered_far_positions(released: ReleasedModel) -> None:
    ids = torch.randint(FAR, (1, LENGTH)).sort().values
    with released.widened():
        model = released.build()
        seen = released.catch(
            model, lambda: model(tokens(1), position_ids=ids, attention_mask=torch.ones(1, LENGTH).long())
        )
    positions = Positions.explicit(ids, sequence_length=int(ids.max()) + 1)
    assert_same_attention(seen, released.encoding, positions=positions, window=released.window, scale=released.scale)


@each_model_by_position
@pytest.mark.parametrize("padded", [False, True], ids=["unpadded", "padded left"])
def test_generating_with_a_cache_equals_ours_at_once_and_token_by_token(released: ReleasedModel, padded: bool) -> None:
    new = 5
    mask = MASK if padded else torch.ones_like(MASK)
    with released.widened():
        model = released.build()
        prompt = tokens()
        seen = released.catch(
            model, lambda: model.generate(prompt, attention_mask=mask, max_new_tokens=new, do_sample=False)
        )
    whole = torch.cat((mask, torch.ones(2, new - 1, dtype=torch.int64)), 1)  # the last new token is never fed back
    assert seen.query.shape[2] == seen.key.shape[2] == whole.shape[1]
    positions = Positions.from_mask(whole, side="left") if padded else Positions.range(whole.shape[1])
    assert_same_attention(seen, released.encoding, positions=positions, window=released.window, scale=released.scale)
    for place in range(LENGTH, LENGTH + new - 1):
        one, seen_so_far = slice(place, place + 1), slice(0, place + 1)
        ours = reference(
            seen.query[:, :, one],
            seen.key[:, :, seen_so_far],
            seen.value[:, :, seen_so_far],
            encoding=released.encoding,
            causal=True,
            positions=positions[one],
            key_positions=positions[seen_so_far],
            window=released.window,
            scale=released.scale,
        )
        assert (ours - seen.output[:, :, one]).abs().max() <= WIDE_TOLERANCE


@each_precision
def test_attention_of_roformer_the_papers_own_model_equals_ours_with_right_padding(precision: str) -> None:
    config = RoFormerConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=32,
        max_position_embeddings=64,
    )
    mask = MASK.flip(1)
    with in_float64(RoFormerModel) if precision == "in float64" else nullcontext():
        model: Any = RoFormerModel(config)
        enliven(model.to(torch.get_default_dtype()).eval())
        table = model.encoder.embed_positions
        table.weight.data = table.create_weight().to(torch.get_default_dtype())
        layer = Projections(
            "encoder.layer.0.attention",
            HEAD_DIM,
            query="self.query",
            key="self.key",
            value="self.value",
            output="output.dense",
        )
        seen = layer(model, lambda: model(tokens(), attention_mask=mask))
    positions = Positions.from_mask(mask, side="right")
    assert_same_attention(seen, rotary(pairing="interleaved"), positions=positions, causal=False)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("llama", rotary(pairing="interleaved")),
        ("llama", rotary(base=10100.0)),
        ("gptj", rotary(rotary_dim=8)),
        ("gptneox", rotary(scaling=ProportionalScaling(fraction=0.25))),
        ("llama 3.1", rotary(base=5e5)),
        ("qwen2 yarn", rotary(base=1e6, scaling=NTKByPartsScaling(factor=4.0, original_length=512))),
        ("qwen2 yarn", rotary(base=1e6, scaling=YaRN(factor=4.0, original_length=512, dialect="paper"))),
    ],
    ids=str,
)
def test_an_encoding_that_is_nearly_right_is_told_apart(name: str, wrong: Rotary) -> None:
    released = next(each for each in (*PLAIN, *SCALED) if str(each) == name)
    model = released.build()
    seen = released.catch(model, lambda: model(tokens()))
    with pytest.raises(AssertionError, match="off by"):
        assert_same_attention(seen, wrong)


def test_deepseek_without_its_softmax_factor_is_told_apart() -> None:
    released = next(each for each in SCALED if str(each) == "deepseekv3 yarn")
    model = released.build()
    seen = released.catch(model, lambda: model(tokens()))
    scaling = YaRN(factor=40.0, original_length=4096, attention_factor=1.0)
    assert isinstance(released.encoding, Rotary)
    assert scaling.resolve(8, 1e4).rotation_factor == released.encoding.rotation_factor
    with pytest.raises(AssertionError, match="off by"):
        assert_same_attention(seen, rotary(head_dim=24, rotary_dim=8, pairing="interleaved", scaling=scaling))
