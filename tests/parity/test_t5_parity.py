"""T5's bias, and that of the models after it, in transformers and ours, on the same weights."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.models.longt5 import modeling_longt5
from transformers.models.t5.modeling_t5 import T5Attention

from situs import Positions, T5Bias
from tests.parity.attention_probe import SeenAttention
from tests.parity.bias_models import (
    BIDIRECTIONAL,
    CAUSAL,
    HEADS,
    LAYERS,
    LONG_T5,
    PADDINGS,
    VOCABULARY,
    Batch,
    BucketModel,
    Padding,
    Stack,
    assert_attention_is_ours,
    assert_steps_are_ours,
    batch,
)
from tests.parity.wide_transformers import in_float64

SHORT = 40
PAST_THE_LAST_BUCKET = 300  # max_distance is 128
PAST_512 = 600

ANY_NUMBER_OF_BUCKETS = (8, 16, 32, 64)
ANY_MAX_DISTANCE = (64, 128, 256, 800, 1024)

both_directions = pytest.mark.parametrize("bidirectional", [True, False], ids=["bidirectional", "causal"])
each_encoder = pytest.mark.parametrize("released", BIDIRECTIONAL, ids=str)
each_decoder = pytest.mark.parametrize("released", CAUSAL, ids=str)
each_padding = pytest.mark.parametrize("padding", PADDINGS)
far_and_padded = pytest.mark.parametrize(
    ("length", "padding"),
    [
        (PAST_THE_LAST_BUCKET, "unpadded"),
        (PAST_THE_LAST_BUCKET, "padded left"),
        (PAST_THE_LAST_BUCKET, "padded right"),
        (PAST_512, "padded left"),
    ],
)
each_layer = pytest.mark.parametrize("layer", range(LAYERS), ids=["first layer", "second layer"])


def encoder_attention(released: BucketModel, model: Any, layer: int, given: Batch) -> SeenAttention:
    if released.name == "MPNet":
        return released.watch(model, "encoder", layer, lambda: model(given.tokens, attention_mask=given.mask))
    return released.watch(model, "encoder", layer, lambda: model.encoder(given.tokens, attention_mask=given.mask))


def decoder_attention(released: BucketModel, model: Any, layer: int, given: Batch) -> SeenAttention:
    return released.watch(
        model,
        "decoder",
        layer,
        lambda: model(
            torch.randint(2, VOCABULARY, (2, 7)),
            decoder_input_ids=given.tokens,
            decoder_attention_mask=given.mask,
            use_cache=False,
        ),
    )


@each_encoder
@each_layer
@each_padding
def test_encoder_attention_equals_ours(released: BucketModel, layer: int, padding: Padding) -> None:
    model, given = released.build().double(), batch(SHORT, padding)
    seen = encoder_attention(released, model, layer, given)
    ours = released.encoding(model, "encoder", layer)
    assert_attention_is_ours(seen, ours, causal=False, positions=given.positions)


@each_encoder
@far_and_padded
def test_encoder_attention_equals_ours_past_the_last_bucket(
    released: BucketModel, length: int, padding: Padding
) -> None:
    model, given = released.build().double(), batch(length, padding)
    seen = encoder_attention(released, model, 0, given)
    ours = released.encoding(model, "encoder", 0)
    assert_attention_is_ours(seen, ours, causal=False, positions=given.positions)


@each_decoder
@each_layer
@each_padding
def test_decoder_attention_equals_ours(released: BucketModel, layer: int, padding: Padding) -> None:
    model, given = released.build().double(), batch(SHORT, padding)
    seen = decoder_attention(released, model, layer, given)
    ours = released.encoding(model, "decoder", layer)
    assert_attention_is_ours(seen, ours, causal=True, positions=given.positions)


@pytest.mark.thin(2)
@each_decoder
@far_and_padded
def test_decoder_attention_equals_ours_past_the_last_bucket(
    released: BucketModel, length: int, padding: Padding
) -> None:
    model, given = released.build().double(), batch(length, padding)
    seen = decoder_attention(released, model, 0, given)
    ours = released.encoding(model, "decoder", 0)
    assert_attention_is_ours(seen, ours, causal=True, positions=given.positions)


@each_decoder
@pytest.mark.parametrize(
    ("prompt", "padding", "layer"),
    [(20, "padded left", 0), (150, "unpadded", 0), (150, "padded left", 1), (520, "unpadded", 1)],
)
def test_decoding_with_a_cache_equals_ours_at_once_and_token_by_token(
    released: BucketModel, prompt: int, padding: Padding, layer: int
) -> None:
    model = released.build().double()
    ends = [prompt, prompt + 1, prompt + 2, prompt + 5, prompt + 6]  # one of the calls brings several tokens
    prompted = batch(prompt, padding)
    tokens = torch.cat((prompted.tokens, torch.randint(2, VOCABULARY, (2, 6))), 1)
    mask = torch.cat((prompted.mask, torch.ones(2, 6, dtype=torch.int64)), 1)
    source = torch.randint(2, VOCABULARY, (2, 7))

    def decode() -> None:
        past = None
        for start, end in pairwise([0, *ends]):
            past = model(
                source,
                decoder_input_ids=tokens[:, start:end],
                decoder_attention_mask=mask[:, :end],
                past_key_values=past,
                use_cache=True,
            ).past_key_values

    seen = released.watch(model, "decoder", layer, decode)
    assert seen.query.shape[2] == ends[-1]
    ours = released.encoding(model, "decoder", layer)
    padded = Positions.from_mask(mask, side="left")
    positions = Positions.range(ends[-1]) if padding == "unpadded" else padded
    assert_attention_is_ours(seen, ours, causal=True, positions=positions)
    assert_steps_are_ours(seen, ours, positions, ends)


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_t5_attention_by_a_fused_kernel_equals_ours(stack: Stack) -> None:
    released = BIDIRECTIONAL[0]
    model, given = released.build(attn_implementation="sdpa").double(), batch(PAST_THE_LAST_BUCKET, "padded left")
    attention = encoder_attention if stack == "encoder" else decoder_attention
    seen = attention(released, model, 0, given)
    ours = released.encoding(model, stack, 0)
    assert_attention_is_ours(seen, ours, causal=stack == "decoder", positions=given.positions)


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
@pytest.mark.parametrize(("num_buckets", "max_distance"), [(8, 64), (64, 800), (32, 20)])
def test_t5_attention_with_other_buckets_equals_ours(stack: Stack, num_buckets: int, max_distance: int) -> None:
    released = BIDIRECTIONAL[0]
    options = {"relative_attention_num_buckets": num_buckets, "relative_attention_max_distance": max_distance}
    model, given = released.build(**options).double(), batch(PAST_THE_LAST_BUCKET, "padded right")
    attention = encoder_attention if stack == "encoder" else decoder_attention
    seen = attention(released, model, 0, given)
    ours = released.encoding(model, stack, 0)
    assert (ours.num_buckets, ours.max_distance) == (num_buckets, max_distance)
    assert_attention_is_ours(seen, ours, causal=stack == "decoder", positions=given.positions)


@pytest.mark.parametrize(
    ("radius", "length", "padding"),
    [
        *((7, 40, padding) for padding in PADDINGS),
        *((7, 43, padding) for padding in PADDINGS),  # the last block is not full
        *((199, 300, padding) for padding in PADDINGS),
        (127, 600, "padded right"),
    ],
)
def test_longt5_local_attention_equals_ours_in_a_window(radius: int, length: int, padding: Padding) -> None:
    with in_float64(LONG_T5.architecture):
        model, given = LONG_T5.build(local_radius=radius), batch(length, padding)
        for layer in range(LAYERS):
            seen = encoder_attention(LONG_T5, model, layer, given)
            ours = LONG_T5.encoding(model, "encoder", layer)
            assert_attention_is_ours(seen, ours, causal=False, positions=given.positions, window=radius + 1)


@pytest.mark.parametrize("block", [1, 8, 128, 200])
@pytest.mark.parametrize("kind", ["local", "transient-global"])
def test_longt5_bias_of_three_blocks_is_ours_bit_for_bit(block: int, kind: str) -> None:
    model = LONG_T5.build(encoder_attention_type=kind)
    attention = model.encoder.block[0].layer[0]
    layer = attention.LocalSelfAttention if kind == "local" else attention.TransientGlobalSelfAttention
    ours = with_table(layer.relative_attention_bias.weight, bidirectional=True)
    bias = ours(Positions.range(block, start=block), Positions.range(3 * block))
    assert torch.equal(bias, layer.compute_bias(block).squeeze(0))


def test_longt5_bias_of_global_tokens_is_ours_between_block_numbers_bit_for_bit() -> None:
    model = LONG_T5.build(encoder_attention_type="transient-global", global_block_size=4)
    layer = model.encoder.block[0].layer[0].TransientGlobalSelfAttention
    mask = torch.ones(2, PAST_512)
    blocks, segments = modeling_longt5._make_global_fixed_block_ids(mask, 4)
    ours = with_table(layer.global_relative_attention_bias.weight, bidirectional=True)
    bias = ours(Positions.explicit(blocks), Positions.range(segments.shape[1]))
    assert segments.shape[1] > 128
    assert torch.equal(bias, layer.compute_side_bias(mask, segments))


@pytest.mark.thin(2)
@pytest.mark.parametrize(
    ("released", "stack"),
    [(each, "encoder") for each in BIDIRECTIONAL[:3]] + [(each, "decoder") for each in CAUSAL],
    ids=str,
)
@pytest.mark.parametrize(
    ("queries", "past", "keys"),
    [(40, 0, 40), (300, 0, 300), (600, 0, 600), (1, 0, 1), (1, 599, 600), (7, 293, 300), (30, 0, 50), (50, 0, 30)],
)
def test_released_bias_is_ours_bit_for_bit(
    released: BucketModel, stack: Stack, queries: int, past: int, keys: int
) -> None:
    model = released.build()
    for layer in range(LAYERS):
        theirs = released.table_owner(model, stack, layer).compute_bias(queries, keys, past_seen_tokens=past)
        ours = released.encoding(model, stack, layer)
        at_queries, at_keys = Positions.range(queries, start=past), Positions.range(keys)
        bias = ours(at_queries, at_keys)
        assert bias.dtype == theirs.dtype == torch.float32
        assert torch.equal(bias, theirs)
        assert torch.equal(ours(Positions.explicit(at_queries.ids), Positions.explicit(at_keys.ids)), theirs)


@pytest.mark.parametrize("length", [SHORT, PAST_THE_LAST_BUCKET, PAST_512])
def test_mpnets_bias_is_ours_bit_for_bit(length: int) -> None:
    released = BIDIRECTIONAL[3]
    model = released.build()
    theirs = model.encoder.compute_position_bias(torch.zeros(1, length, 1))
    assert torch.equal(released.encoding(model, "encoder", 0)(Positions.range(length)), theirs)


def test_umt5_has_a_table_in_every_layer_and_t5_one_for_all() -> None:
    t5, umt5 = BIDIRECTIONAL[0], BIDIRECTIONAL[2]
    stacks: tuple[Stack, ...] = ("encoder", "decoder")
    for stack in stacks:
        model = umt5.build()
        tables = [umt5.encoding(model, stack, layer).table for layer in range(LAYERS)]
        assert not torch.equal(*tables)
        model = t5.build()
        tables = [t5.encoding(model, stack, layer).table for layer in range(LAYERS)]
        assert torch.equal(*tables)
        assert [name for name in model.state_dict() if name.startswith(stack) and "attention_bias" in name] == [
            f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        ]


def test_a_bfloat16_table_is_read_as_the_released_layer_reads_it() -> None:
    released = BIDIRECTIONAL[0]
    model = released.build().bfloat16()
    theirs = released.table_owner(model, "encoder", 0).compute_bias(300, 300)
    ours = released.encoding(model, "encoder", 0)
    assert ours.table.dtype == theirs.dtype == torch.bfloat16
    assert torch.equal(ours(Positions.range(300)), theirs.float())


@both_directions
@pytest.mark.parametrize("num_buckets", ANY_NUMBER_OF_BUCKETS)
@pytest.mark.parametrize("max_distance", ANY_MAX_DISTANCE)
def test_buckets_are_the_released_ones(bidirectional: bool, num_buckets: int, max_distance: int) -> None:
    assert_released_rows(torch.arange(-4096, 4097), bidirectional, num_buckets, max_distance)


@pytest.mark.parametrize(("num_buckets", "max_distance", "distance"), [(32, 939, 728), (128, 441, 168)])
def test_where_a_float32_logarithm_crosses_a_boundary_the_bucket_is_the_released_one(
    num_buckets: int, max_distance: int, distance: int
) -> None:
    # the exact quotient of logarithms lies within one rounding of a whole number here
    offsets = torch.arange(-distance - 2, -distance + 3)
    assert_released_rows(offsets, False, num_buckets, max_distance)


@both_directions
def test_umt5s_own_copy_of_the_buckets_is_the_same(bidirectional: bool) -> None:
    model = BIDIRECTIONAL[2].build()
    layer = BIDIRECTIONAL[2].table_owner(model, "encoder" if bidirectional else "decoder", 0)
    offsets = torch.arange(-4096, 4097)
    ours = T5Bias(num_heads=1, bidirectional=bidirectional).rows_of(offsets)
    assert torch.equal(ours, layer._relative_position_bucket(offsets))


def test_mpnets_own_copy_of_the_buckets_is_the_same() -> None:
    bucket: Callable[[Tensor], Tensor] = BIDIRECTIONAL[3].build().encoder.relative_position_bucket
    offsets = torch.arange(-4096, 4097)
    assert torch.equal(T5Bias(num_heads=1).rows_of(offsets), bucket(offsets))


@pytest.mark.parametrize(
    "wrong",
    [{"bidirectional": False}, {"max_distance": 129}, {"softmax_scale": None}, {"softmax_scale": 0.99}],
    ids=str,
)
def test_an_encoding_that_is_nearly_t5s_is_told_apart(wrong: dict[str, Any]) -> None:
    seen, right = t5_encoder_and_ours()
    nearly = T5Bias(**{**right.config, **wrong}).double()
    nearly.load_state_dict(right.state_dict())
    with pytest.raises(AssertionError, match="off by"):
        assert_attention_is_ours(seen, nearly, causal=False)


def test_a_table_with_its_directions_exchanged_is_told_apart() -> None:
    seen, ours = t5_encoder_and_ours()
    ours.load_state_dict({"table": ours.table.detach().roll(ours.num_buckets // 2, 0)})
    with pytest.raises(AssertionError, match="off by"):
        assert_attention_is_ours(seen, ours, causal=False)


def test_one_layers_table_is_not_another_layers_in_umt5() -> None:
    released = BIDIRECTIONAL[2]
    model, given = released.build().double(), batch(SHORT, "unpadded")
    seen = encoder_attention(released, model, 1, given)
    with pytest.raises(AssertionError, match="off by"):
        assert_attention_is_ours(seen, released.encoding(model, "encoder", 0), causal=False)


def t5_encoder_and_ours() -> tuple[SeenAttention, T5Bias]:
    released = BIDIRECTIONAL[0]
    model = released.build().double()
    seen = encoder_attention(released, model, 0, batch(PAST_THE_LAST_BUCKET, "unpadded"))
    return seen, released.encoding(model, "encoder", 0)


def with_table(weight: Tensor, bidirectional: bool) -> T5Bias:
    ours = T5Bias(num_heads=HEADS, bidirectional=bidirectional)
    ours.load_state_dict({"table": weight})
    return ours


def assert_released_rows(offsets: Tensor, bidirectional: bool, num_buckets: int, max_distance: int) -> None:
    ours = T5Bias(num_heads=1, num_buckets=num_buckets, max_distance=max_distance, bidirectional=bidirectional)
    theirs = T5Attention._relative_position_bucket(offsets, bidirectional, num_buckets, max_distance)
    assert torch.equal(ours.rows_of(offsets), theirs)
