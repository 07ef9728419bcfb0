"""ALiBi of transformers' models and ours, on the same queries, keys and values.

The released bias belongs to a key, slope times its index; ours to a distance. Their difference is the same for all
keys of a query, which the softmax cannot see.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from transformers.models.bloom import modeling_bloom
from transformers.models.falcon import modeling_falcon
from transformers.models.mpt import modeling_mpt

from situs import ALiBi, Positions
from situs.attention import reference
from situs.functional.slopes import alibi_slopes
from tests.parity.bias_models import (
    BLOOM,
    FALCON,
    HEAD_DIM,
    MPT,
    PADDINGS,
    SLOPED,
    TOLERANCE,
    Padding,
    SlopeModel,
    assert_attention_is_ours,
    assert_steps_are_ours,
    batch,
    error_in_float32,
)
from tests.parity.wide_transformers import in_float64

LENGTH = 40
FAR = 600

each_model = pytest.mark.parametrize("released", SLOPED, ids=str)
each_padding = pytest.mark.parametrize("padding", PADDINGS)
each_head_count = pytest.mark.parametrize("heads", [4, 6, 12], ids=lambda heads: f"{heads} heads")
EVERY_HEAD_COUNT = range(1, 129)


@each_model
@each_head_count
@each_padding
def test_attention_equals_ours(released: SlopeModel, heads: int, padding: Padding) -> None:
    given = batch(LENGTH, padding)
    with released.widened():
        model = released.build(heads)
        seen = released.watch(model, lambda: model(given.tokens, attention_mask=given.mask))
    assert_attention_is_ours(seen, released.encoding(heads), causal=True, positions=given.positions)


@pytest.mark.thin(3)
@each_model
@pytest.mark.parametrize(("heads", "padding"), [(4, "unpadded"), (6, "padded left"), (6, "padded right")])
def test_attention_equals_ours_far_out(released: SlopeModel, heads: int, padding: Padding) -> None:
    given = batch(FAR, padding)
    with released.widened():
        model = released.build(heads)
        seen = released.watch(model, lambda: model(given.tokens, attention_mask=given.mask))
    assert_attention_is_ours(seen, released.encoding(heads), causal=True, positions=given.positions)


@pytest.mark.parametrize("released", [BLOOM, MPT], ids=str)
@each_head_count
@each_padding
def test_attention_as_released_differs_from_ours_by_the_rounding_of_float32(
    released: SlopeModel, heads: int, padding: Padding
) -> None:
    given = batch(LENGTH, padding)
    model, ours = released.build(heads), released.encoding(heads)
    seen = released.watch(model, lambda: model(given.tokens, attention_mask=given.mask))
    bound = error_in_float32(seen, ours)
    assert bound < 1e-3
    assert_attention_is_ours(seen, ours, causal=True, positions=given.positions, tolerance=bound)


@each_model
@pytest.mark.parametrize("heads", [4, 12], ids=lambda heads: f"{heads} heads")
@pytest.mark.parametrize("padding", ["unpadded", "padded left"])
def test_generating_with_a_cache_equals_ours_at_once_and_token_by_token(
    released: SlopeModel, heads: int, padding: Padding
) -> None:
    new, given = 5, batch(LENGTH, padding)
    with released.widened():
        model = released.build(heads)
        seen = released.watch(
            model,
            lambda: model.generate(given.tokens, attention_mask=given.mask, max_new_tokens=new, do_sample=False),
        )
    mask = torch.cat((given.mask, torch.ones(2, new - 1, dtype=torch.int64)), 1)  # the last one is never fed back
    assert seen.query.shape[2] == mask.shape[1]
    positions = Positions.range(mask.shape[1]) if padding == "unpadded" else Positions.from_mask(mask, side="left")
    ours = released.encoding(heads)
    assert_attention_is_ours(seen, ours, causal=True, positions=positions)
    assert_steps_are_ours(seen, ours, positions, list(range(LENGTH, mask.shape[1] + 1)))


@pytest.mark.parametrize("heads", [4, 6, 8], ids=lambda heads: f"{heads} heads")
@each_padding
def test_falcons_attention_as_released_equals_ours_while_its_bias_fits_bfloat16(heads: int, padding: Padding) -> None:
    given = batch(257, padding)  # the slopes are powers of two, and bfloat16 holds whole numbers up to 256
    model = FALCON.build(heads).double()
    seen = FALCON.watch(model, lambda: model(given.tokens, attention_mask=given.mask))
    assert_attention_is_ours(seen, FALCON.encoding(heads), causal=True, positions=given.positions)


@each_head_count
@pytest.mark.parametrize("length", [LENGTH, FAR])
def test_falcons_attention_as_released_is_that_of_its_rounded_bias(heads: int, length: int) -> None:
    given = batch(length, "unpadded")
    model = FALCON.build(heads).double()
    seen = FALCON.watch(model, lambda: model(given.tokens, attention_mask=given.mask))
    rounded = falcons_bias(given.mask, heads).double() / math.sqrt(HEAD_DIM)
    theirs = reference(seen.query, seen.key, seen.value, causal=True, mask=rounded)
    assert (theirs - seen.output).abs().max() <= TOLERANCE


def test_falcons_attention_of_12_heads_differs_from_ours_by_the_rounding_of_bfloat16() -> None:
    heads, given = 12, batch(LENGTH, "unpadded")
    model, ours = FALCON.build(heads).double(), FALCON.encoding(heads)
    seen = FALCON.watch(model, lambda: model(given.tokens, attention_mask=given.mask))
    error = (reference(seen.query, seen.key, seen.value, encoding=ours, causal=True) - seen.output).abs()
    # slope, index and product are each rounded to 8 bits; weights move by a factor of exp(2d) at most
    farthest = -ours.by_offset(torch.tensor([1 - LENGTH]), dtype=torch.float64).squeeze(-1)
    bound = seen.value.abs().amax((0, 2, 3)) * torch.expm1(2 * farthest * ((1 + 2**-8) ** 3 - 1))
    assert bool((error.amax((0, 2, 3)) <= bound).all())
    in_bfloat16 = [slope == float(torch.tensor(slope).bfloat16()) for slope in alibi_slopes(heads).tolist()]
    assert in_bfloat16 == [True] * 8 + [False] * 4
    assert bool((error.amax((0, 2, 3))[:8] <= TOLERANCE).all())
    assert bool((error.amax((0, 2, 3))[8:] > 1e-4).all())


@pytest.mark.skipif(not transformers.__version__.startswith("5.22."), reason="a defect of this version")
def test_falcons_eager_attention_counts_the_bias_twice() -> None:
    heads, given = 6, batch(LENGTH, "unpadded")
    with FALCON.widened():
        model = FALCON.build(heads, attn_implementation="eager")
        seen = FALCON.watch(model, lambda: model(given.tokens, attention_mask=given.mask))
    assert_attention_is_ours(seen, ALiBi(num_heads=heads, factor=2 * HEAD_DIM**-0.5), causal=True)
    with pytest.raises(AssertionError, match="off by"):
        assert_attention_is_ours(seen, FALCON.encoding(heads), causal=True)


def test_slopes_of_every_head_count_are_blooms() -> None:
    # it raises a rounded number to a power up to the number of heads
    for heads in EVERY_HEAD_COUNT:
        assert_close(alibi_slopes(heads).float(), blooms_slopes(heads), (heads + 2) * 2**-24)
    with in_float64(modeling_bloom.BloomModel):
        for heads in EVERY_HEAD_COUNT:
            assert_close(alibi_slopes(heads), blooms_slopes(heads), (heads + 2) * 2**-53)


@pytest.mark.parametrize("bias_max", [8, 16])
def test_slopes_of_every_head_count_are_mpts(bias_max: int) -> None:
    for heads in EVERY_HEAD_COUNT:
        assert_close(alibi_slopes(heads, float(bias_max)).float(), mpts_slopes(heads, bias_max), 3 * 2**-24)
    with in_float64(modeling_mpt.MptModel):
        for heads in EVERY_HEAD_COUNT:
            assert_close(alibi_slopes(heads, float(bias_max)), mpts_slopes(heads, bias_max), 3 * 2**-53)


def test_slopes_of_every_head_count_are_falcons_rounded_or_not() -> None:
    for heads in EVERY_HEAD_COUNT:
        assert_close(alibi_slopes(heads).float(), falcons_slopes(heads), 2**-8)
    with FALCON.widened():
        for heads in EVERY_HEAD_COUNT:
            assert_close(alibi_slopes(heads), falcons_slopes(heads), (heads + 2) * 2**-53)


@pytest.mark.parametrize("heads", [4, 6, 12])
@pytest.mark.parametrize("bias_max", [8, 16])
def test_mpts_bias_is_ours_of_the_last_query(heads: int, bias_max: int) -> None:
    with in_float64(modeling_mpt.MptModel):
        released = modeling_mpt.build_mpt_alibi_tensor(heads, FAR, bias_max)
    ours = ALiBi(num_heads=heads, bias_max=float(bias_max))
    bias = ours(Positions.range(1, start=FAR - 1), Positions.range(FAR), dtype=torch.float64)
    torch.testing.assert_close(bias[0], released, rtol=2**-50, atol=0)


@pytest.mark.skipif(not transformers.__version__.startswith("5.22."), reason="a defect of this version")
def test_mpt_falls_to_the_eighth_power_whatever_its_configuration_says() -> None:
    given = batch(LENGTH, "unpadded")
    with MPT.widened():
        model = MPT.build(4, attn_config={"alibi_bias_max": 16})
        seen = MPT.watch(model, lambda: model(given.tokens))
    assert model.config.attn_config.alibi_bias_max == 16
    assert_attention_is_ours(seen, ALiBi(num_heads=4, bias_max=8.0), causal=True)
    with pytest.raises(AssertionError, match="off by"):
        assert_attention_is_ours(seen, ALiBi(num_heads=4, bias_max=16.0), causal=True)


@each_padding
def test_blooms_bias_is_ours_up_to_a_constant_of_each_query(padding: Padding) -> None:
    heads, given = 12, batch(LENGTH, padding)
    with in_float64(modeling_bloom.BloomModel):
        released = modeling_bloom.build_alibi_tensor(given.mask, heads, torch.float64).view(2, heads, 1, LENGTH)
    bias = ALiBi(num_heads=heads)(given.positions, dtype=torch.float64)
    difference = released - bias
    seen = (torch.ones(LENGTH, LENGTH).tril() * given.mask[:, None, :] * given.mask[:, :, None]).bool()[:, None]
    own = difference.diagonal(dim1=-2, dim2=-1)[..., None]
    assert float((difference - own).masked_fill(~seen, 0).abs().max()) < 1e-12


@pytest.mark.parametrize("heads", [8, 12])
@pytest.mark.parametrize("learned", [False, True], ids=["fixed", "learned"])
def test_neighbours_past_257_that_merge_in_a_released_bfloat16_bias_stay_apart_in_ours(
    heads: int, learned: bool
) -> None:
    mask = torch.ones(1, FAR, dtype=torch.int64)
    falcon = falcons_bias(mask, heads)[0, :, 0]
    bloom = modeling_bloom.build_alibi_tensor(mask, heads, torch.bfloat16)[:, 0]
    naive = alibi_slopes(heads).bfloat16()[:, None] * torch.arange(FAR, dtype=torch.bfloat16)
    for released in (falcon, bloom, naive):
        assert bool((released.diff()[:, 257:] == 0).any(-1).all()), "every head merges some neighbours"
    for released in (falcon, naive):
        assert bool((released[:, 256] == released[:, 257]).all())
    ours = ALiBi(num_heads=heads, learned=learned).bfloat16()
    bias = ours(Positions.range(1, start=FAR - 1), Positions.range(FAR))[0, :, 0]
    assert bias.dtype == torch.float32
    assert bool((bias.diff() > 0).all())
    slopes = ours.behind.float() if learned else alibi_slopes(heads)
    torch.testing.assert_close(bias.diff(), slopes.float()[:, None].expand(-1, FAR - 1), rtol=2**-13, atol=0)


@pytest.mark.parametrize(
    ("released", "wrong"),
    [
        (BLOOM, {"slopes": [2 ** (-8 * head / 6) for head in range(1, 7)]}),
        (BLOOM, {"factor": 1.01}),
        (BLOOM, {"bias_max": 8.1}),
        (MPT, {"slopes": sorted(alibi_slopes(6).tolist(), reverse=True)}),
        (FALCON, {"factor": 1.0}),
    ],
    ids=["bloom by the formula", "bloom steeper", "bloom to another maximum", "mpt in order", "falcon unscaled"],
)
def test_an_encoding_that_is_nearly_right_is_told_apart(released: SlopeModel, wrong: dict[str, Any]) -> None:
    given = batch(LENGTH, "unpadded")
    with released.widened():
        model = released.build(6)
        seen = released.watch(model, lambda: model(given.tokens))
    assert_attention_is_ours(seen, released.encoding(6), causal=True)
    with pytest.raises(AssertionError, match="off by"):
        assert_attention_is_ours(seen, ALiBi(num_heads=6, **wrong), causal=True)


def assert_close(ours: Tensor, released: Tensor, relative: float) -> None:
    torch.testing.assert_close(ours, released, rtol=relative, atol=0)


def blooms_slopes(heads: int) -> Tensor:
    mask = torch.ones(1, 2, dtype=torch.int64)
    slopes: Tensor = modeling_bloom.build_alibi_tensor(mask, heads, torch.get_default_dtype())[:, 0, 1]
    return slopes


def mpts_slopes(heads: int, bias_max: int) -> Tensor:
    slopes: Tensor = -modeling_mpt.build_mpt_alibi_tensor(heads, 2, bias_max)[:, 0, 0]
    return slopes


def falcons_slopes(heads: int) -> Tensor:
    return falcons_bias(torch.ones(1, 2, dtype=torch.int64), heads)[0, :, 0, 1]


def falcons_bias(mask: Tensor, heads: int) -> Tensor:
    bias: Tensor = modeling_falcon.build_alibi_tensor(mask, heads, torch.get_default_dtype())
    return bias.view(mask.shape[0], heads, 1, -1)
