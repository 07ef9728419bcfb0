"""What models of transformers do otherwise than their papers or settings say, accelerated as they do it."""

import random
from typing import Any

import pytest
import torch

from situs.huggingface import accelerate, accelerated
from situs.huggingface.interface import PlacedBias, attended, situs_attention
from situs.huggingface.seeing import Rules, Sight
from tests.huggingface.small_models import (
    DEBERTA,
    ENCODER,
    FALCON,
    GROUPED,
    INKLING,
    SEQ2SEQ,
    WORDS,
    expect_close,
    given,
    hf,
    made,
    padding,
    prompt,
    randomised,
    texts,
)  # fmt: skip

pytestmark = pytest.mark.once

XLNET = {
    "vocab_size": WORDS, "d_model": 32, "n_head": 4, "n_layer": 2, "d_inner": 48, "dropout": 0.0, "pad_token_id": 0,
}  # fmt: skip


def expect_same(model: Any, *, check: bool = True, **inputs: Any) -> None:
    """Raise unless a model gives the same accelerated."""
    with torch.no_grad():
        expected = model(**inputs)[0]
        with accelerated(model, check=check):
            expect_close(model(**inputs)[0], expected, 1e-5)


def test_mpt_adds_its_bias_whatever_its_settings_say() -> None:
    sizes = {"vocab_size": WORDS, "d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 64}
    config = hf.MptConfig(**sizes, attn_config={"alibi": False, "alibi_bias_max": 3})
    expect_same(randomised(lambda: hf.MptForCausalLM(config)), input_ids=texts(2, 30))


@pytest.mark.parametrize("settings", [{"clip_qkv": 0.05}, {"softmax_scale": 0.7}], ids=str)
def test_mpt_clips_and_scales_as_its_settings_say(settings: dict[str, float]) -> None:
    sizes = {"vocab_size": WORDS, "d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 64}
    config = hf.MptConfig(**sizes, attn_config=settings)
    expect_same(randomised(lambda: hf.MptForCausalLM(config)), input_ids=texts(2, 30))


@pytest.mark.parametrize("check", [True, False])
def test_bloom_that_sums_up_rank_by_rank_keeps_its_attention_and_says_so(check: bool) -> None:
    sizes = {"vocab_size": WORDS, "hidden_size": 32, "n_head": 4, "n_layer": 2}
    config = hf.BloomConfig(**sizes, pretraining_tp=2, slow_but_exact=True)
    model, ids = randomised(lambda: hf.BloomForCausalLM(config)), texts(2, 30)
    said = (
        "^Some attention of BloomForCausalLM keeps its own code. 2 x BloomGelu: in one pass over memory, its class "
        "replaced\nBloomAttention: left as it is, since slow_but_exact sums its output up rank by rank$"
    )
    with pytest.warns(UserWarning, match=said) as warned:
        expect_same(model, check=check, input_ids=ids, attention_mask=padding(ids, "right"))
    assert len(warned) == 1


def test_mpnet_has_32_buckets_whatever_its_settings_say() -> None:
    config = hf.MPNetConfig(**ENCODER, relative_attention_num_buckets=40)
    expect_same(randomised(lambda: hf.MPNetModel(config)), input_ids=texts(2, 200))


def test_falcon_shares_keys_among_heads_beside_its_bias() -> None:
    config = hf.FalconConfig(**FALCON, alibi=True, new_decoder_architecture=True, num_kv_heads=2)
    ids = texts(2, 30)
    expect_same(randomised(lambda: hf.FalconForCausalLM(config)), input_ids=ids)


@pytest.mark.parametrize("terms", [["c2p"], ["p2c"], []], ids=str)
@pytest.mark.parametrize("version", ["Deberta", "DebertaV2"])
def test_deberta_scales_by_the_terms_that_it_has(version: str, terms: list[str]) -> None:
    settings = {**DEBERTA, "pos_att_type": terms, "max_relative_positions": 20}
    config = getattr(hf, f"{version}Config")(**settings)
    expect_same(randomised(lambda: getattr(hf, f"{version}Model")(config)), input_ids=texts(2, 50))


@pytest.mark.parametrize("settings", [{"clamp_len": 6}, {"bi_data": True}, {"attn_type": "uni"}], ids=str)
def test_xlnet_clamps_reverses_and_looks_back_alone(settings: dict[str, Any]) -> None:
    config = hf.XLNetConfig(**XLNET, **settings)
    check = "attn_type" not in settings  # which takes no padding of several texts
    expect_same(randomised(lambda: hf.XLNetModel(config)), check=check, input_ids=texts(2, 30))


def test_xlnet_tells_segments_and_follows_an_order_in_two_streams() -> None:
    model, ids = randomised(lambda: hf.XLNetModel(hf.XLNetConfig(**XLNET))), texts(2, 12)
    order = torch.ones(2, 12, 12).tril()  # 1 where a token may not see another
    wanted = torch.zeros(2, 3, 12)
    wanted[:, torch.arange(3), torch.tensor([2, 5, 7])] = 1
    segments = (torch.arange(12) > 6).long().expand(2, -1)
    expect_same(model, input_ids=ids, perm_mask=order, target_mapping=wanted, token_type_ids=segments)


def test_xlnet_remembers_earlier_segments() -> None:
    model, ids = randomised(lambda: hf.XLNetModel(hf.XLNetConfig(**XLNET, mem_len=20))), texts(2, 24)
    with torch.no_grad():
        memories = model(input_ids=ids[:, :14], use_mems=True).mems
    expect_same(model, input_ids=ids[:, 14:], mems=memories, use_mems=True)


def test_udop_sees_patches_of_the_page_beside_its_words() -> None:
    config = hf.UdopConfig(**SEQ2SEQ, max_2d_position_embeddings=64, image_size=32, patch_size=8)
    model, ids = randomised(lambda: hf.UdopForConditionalGeneration(config)), texts(2, 20)
    pixels = torch.randn(2, 3, 32, 32)
    expect_same(model, **given(model, ids, padding(ids, "right")), pixel_values=pixels)


@pytest.mark.parametrize(
    "axes",
    [
        [{"type": "vertical"}],
        [{"type": "1d"}, {"type": "horizontal", "prefix_bucket": True}],
        [{"type": each, "relative_attention_num_buckets": 64} for each in ("1d", "horizontal", "vertical")],
    ],
    ids=["one axis", "a prefix", "many buckets"],
)
def test_udop_may_have_other_axes_and_buckets(axes: list[dict[str, Any]]) -> None:
    buckets = axes[0].get("relative_attention_num_buckets", 32)  # the decoder shares the table of the text
    sizes = {**SEQ2SEQ, "max_2d_position_embeddings": 64, "relative_attention_num_buckets": buckets}
    config = hf.UdopConfig(**sizes, relative_bias_args=axes)
    model, ids = randomised(lambda: hf.UdopForConditionalGeneration(config)), texts(2, 20)
    expect_same(model, **given(model, ids, padding(ids, "right")))


def test_udop_stretches_boxes_at_random_while_it_learns() -> None:
    axes = [{"type": "1d"}, {"type": "horizontal", "augmentation": True}]
    config = hf.UdopConfig(**SEQ2SEQ, max_2d_position_embeddings=64, relative_bias_args=axes)
    model, ids = randomised(lambda: hf.UdopForConditionalGeneration(config)).train(), texts(2, 20)
    found = []
    for _ in range(2):
        random.seed(3)
        found.append(model.encoder.relative_bias(torch.ones(2, 20), given(model, ids)["bbox"]))
        accelerate(model, check=False)
    assert torch.equal(*found)


def test_afmoe_views_what_attention_gives() -> None:
    sizes = {**GROUPED, "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 16, "sliding_window": 8}
    expect_same(randomised(lambda: hf.AfmoeForCausalLM(hf.AfmoeConfig(**sizes))), input_ids=texts(2, 30))


def test_pages_of_a_cache_are_refused() -> None:
    query = torch.randn(1, 2, 3, 4)
    message = (
        '^attn_implementation must not be "situs" in continuous batching, since pages of its cache lie apart; got a '
        'paged cache\\. Set attn_implementation="sdpa" for it\\.$'
    )
    with pytest.raises(NotImplementedError, match=message):
        situs_attention(torch.nn.Identity(), query, query, query, None, cache=object())


@pytest.mark.parametrize("name", ["t5", "umt5", "longt5", "udop"])
@pytest.mark.parametrize("tokens", [1, 7, 300])
def test_a_text_that_is_padding_alone_gets_the_mean_of_all_values(name: str, tokens: int) -> None:
    model, ids = made(name), texts(2, tokens)
    mask = torch.ones_like(ids)
    mask[1] = 0
    inputs = given(model, ids, mask)
    expect_same(model, **inputs)
    expect_same(model.get_encoder(), **{key: each for key, each in inputs.items() if "decoder" not in key})


@pytest.mark.parametrize("name", ["t5", "umt5"])
def test_a_text_that_is_padding_alone_is_answered_as_before(name: str) -> None:
    model, ids = made(name), texts(2, 9)
    mask = torch.ones_like(ids)
    mask[1] = 0
    asked = {**prompt(model, ids, mask), "max_new_tokens": 8, "min_new_tokens": 8}
    expected = model.generate(**asked)
    with accelerated(model):
        assert torch.equal(model.generate(**asked), expected)


@pytest.mark.compiled
def test_padding_breaks_no_graph_of_a_layer() -> None:
    real = torch.tensor([[True] * 9, [False] * 9])
    vectors = [torch.randn(2, 3, tokens, 4) for tokens in (5, 9, 9)]

    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return attended(query, key, value, Sight(Rules(), 5, 9, 0, 0, real), bias=PlacedBias(None))

    found = torch.compile(attend, backend="aot_eager", fullgraph=True)(*vectors)
    torch.testing.assert_close(found, attend(*vectors))
    torch.testing.assert_close(found[1], vectors[2][1].mean(1).expand(5, 3, 4))


def test_longt5_is_refused_without_a_mask() -> None:
    model = randomised(lambda: hf.LongT5EncoderModel(hf.LongT5Config(**SEQ2SEQ, local_radius=5)))
    message = (
        r"^mask must be given while a model is accelerated, since LongT5 hides far keys by it; got None\. Call "
        r"situs\.huggingface\.restore\(model\) first\.$"
    )
    with accelerated(model), pytest.raises(ValueError, match=message):
        model.encoder.block[0].layer[0].LocalSelfAttention(torch.randn(1, 7, 32))


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("watched", [False, True], ids=["inference", "gradients"])
@pytest.mark.parametrize("calls", [[1, 29], [1] * 30, [30], [5, 25], [8, 1, 1, 20], [29, 1]], ids=str)
def test_inkling_lets_its_convolutions_read_padding_that_comes_alone(
    calls: list[int], watched: bool, cache: str
) -> None:
    model, ids = randomised(lambda: hf.InklingForCausalLM(hf.InklingTextConfig(**INKLING))), texts(2, 30)
    mask = torch.ones_like(ids)
    mask[1, :5] = 0

    def found() -> torch.Tensor:
        made = hf.StaticCache(config=model.config, max_cache_len=30) if cache == "static" else None
        made = hf.DynamicCache(config=model.config) if made is None else made
        ends = [sum(calls[: number + 1]) for number in range(len(calls))]
        parts = [
            model(input_ids=ids[:, end - call : end], attention_mask=mask[:, :end], past_key_values=made).logits
            for call, end in zip(calls, ends, strict=True)
        ]
        return torch.cat(parts, 1)[mask.bool()].detach()

    with torch.set_grad_enabled(watched):
        expected = found()
        with accelerated(model, check=False):
            expect_close(found(), expected, 1e-5)


def test_padding_that_comes_alone_stays_finite_in_float64() -> None:
    model = randomised(lambda: hf.InklingForCausalLM(hf.InklingTextConfig(**INKLING)), torch.float64)
    ids, mask = texts(2, 4), torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1]])

    def found() -> torch.Tensor:
        cache, parts = hf.DynamicCache(config=model.config), []
        for end in range(1, 5):
            call = {"input_ids": ids[:, end - 1 : end], "attention_mask": mask[:, :end], "past_key_values": cache}
            parts.append(model(**call).logits)
        return torch.cat(parts, 1)[mask.bool()]

    with torch.no_grad():
        expected = found()
        with accelerated(model, check=False):
            expect_close(found(), expected, 1e-6)


@pytest.mark.short
@pytest.mark.parametrize("chunk", [None, 1, 7])
def test_inkling_generates_the_same_behind_padding(chunk: int | None) -> None:
    model, ids = randomised(lambda: hf.InklingForCausalLM(hf.InklingTextConfig(**INKLING))), texts(2, 20)
    asked = {"max_new_tokens": 12, "do_sample": False, "prefill_chunk_size": chunk, "output_logits": True}
    inputs = {"input_ids": ids, "attention_mask": padding(ids, "left"), "return_dict_in_generate": True}
    expected = model.generate(**inputs, **asked)
    with accelerated(model, check=False):
        found = model.generate(**inputs, **asked)
    assert torch.equal(found.sequences, expected.sequences)
    expect_close(torch.cat(found.logits), torch.cat(expected.logits), 1e-5)
