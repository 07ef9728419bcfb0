"""What biases, temperatures, tables and caches do at a length, against their formulas."""

import math
from typing import Any

import pytest

from situs.models import read
from situs.models.inspecting.memory import caches_of, table_bytes
from situs.models.inspecting.others import lines_of, table_lines


def told(config: dict[str, Any], target: int, layer: int = 0) -> list[str]:
    return list(lines_of(read(config).main.layers[layer], target))


def test_alibi_tells_how_far_heads_reach() -> None:
    config = {"model_type": "bloom", "n_head": 8, "hidden_size": 64, "n_layer": 1}
    assert told(config, 1000) == [
        "ALiBi: heads reach 10 to 1,280 tokens back (5 / slope: farther keys weigh less than a hundredth); 7 of 8 do "
        "not reach 1,000"
    ]


def test_falcons_slopes_reach_farther_by_the_root_of_the_head() -> None:
    config = {"model_type": "falcon", "alibi": True, "num_attention_heads": 8, "hidden_size": 512,
              "num_hidden_layers": 1}  # fmt: skip
    assert f"reach 80 to {1280 * 8:,} tokens back" in told(config, 1000)[0]


@pytest.mark.parametrize(("target", "ending"), [
    (100, "every distance below 100 is told apart from the farthest"),
    (1000, "distances from 113 on look alike, 887 of 1,000 (88.7 %)"),
])  # fmt: skip
def test_t5_tells_from_which_distance_on_buckets_are_one(target: int, ending: str) -> None:
    assert told({"model_type": "t5"}, target) == [f"T5's bias: {ending}"]


def test_deberta_tells_from_which_distance_on_buckets_are_one() -> None:
    config = {
        "model_type": "deberta-v2", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 1,
        "relative_attention": True, "position_buckets": 256, "pos_att_type": ["p2c", "c2p"],
        "max_relative_positions": -1, "position_biased_input": False, "max_position_embeddings": 512,
    }  # fmt: skip
    (line,) = told(config, 2048)
    # ceil(log(d / 128) / log(511 / 128) * 127) is 127 from the d on at which the logarithm passes 126
    first = math.floor(128 * (511 / 128) ** (126 / 127)) + 1
    assert line == f"DeBERTa's terms: distances from {first} on look alike, {2048 - first:,} of 2,048 (75.3 %)"


def test_temperature_is_told_at_the_ends() -> None:
    config = {
        "model_type": "llama4_text", "hidden_size": 64, "num_attention_heads": 4, "head_dim": 16,
        "num_hidden_layers": 4, "floor_scale": 8192, "attn_scale": 0.1,
    }  # fmt: skip
    last = 1 + 0.1 * math.log1p(1_000_000 // 8192)
    assert told(config, 1_000_000, layer=3) == [
        f"temperature: queries are multiplied by 1 at position 0, and by {last:.4g} at 999,999"
    ]


def test_tables_tell_where_they_end() -> None:
    gpt2 = read({"model_type": "gpt2"})
    assert list(table_lines(gpt2, 1024)) == ["learned table ends at 1,024 tokens; 1,024 tokens fit"]
    assert list(table_lines(gpt2, 1025)) == ["learned table ends at 1,024 tokens; 1,025 tokens do not fit"]
    roberta = read({"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1})
    assert list(table_lines(roberta, 512)) == ["learned table ends at 512 tokens (514 rows); 512 tokens fit"]


SIZES = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}


def test_sliding_layers_cache_their_window_alone() -> None:
    config = {"model_type": "gemma3_text", **SIZES, "num_hidden_layers": 12, "sliding_window": 512}
    sliding, full = caches_of(read(config), 10_000)
    assert (sliding.kind, sliding.layers, sliding.tokens) == ("sliding", "0-4, 6-10", 512)
    assert sliding.bytes == 10 * 512 * 2 * (16 + 16) * 2
    assert (full.kind, full.layers, full.tokens, full.bytes) == ("full", "5, 11", 10_000, 2 * 10_000 * 2 * 32 * 2)


def test_a_window_that_the_text_does_not_fill_is_cached_as_far_as_it_goes() -> None:
    config = {"model_type": "gemma3_text", **SIZES, "num_hidden_layers": 12, "sliding_window": 512}
    assert {cache.tokens for cache in caches_of(read(config), 100)} == {100}


def test_latent_attention_caches_its_latents() -> None:
    config = {"model_type": "deepseek_v3", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 3,
              "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}  # fmt: skip
    (cache,) = caches_of(read(config), 1000)
    assert cache.bytes == 3 * 1000 * (512 + 64) * 2


def test_layers_with_a_state_and_encoders_cache_no_keys() -> None:
    config = {"model_type": "qwen3_next", **SIZES, "num_hidden_layers": 4}
    (cache,) = caches_of(read(config), 1000)
    assert cache.layers == "3"
    assert caches_of(read({"model_type": "modernbert"}), 1000) == ()


def test_tables_of_cosines_count_each_rotation_once() -> None:
    gemma = {"model_type": "gemma3_text", **SIZES, "num_hidden_layers": 12}
    llama = {"model_type": "llama", **SIZES, "num_hidden_layers": 12}
    assert table_bytes(read(gemma), 1000) == 2 * table_bytes(read(llama), 1000) == 2 * (1000 * 8 * 2 * 4)


def test_compressed_layers_cache_their_window_and_an_entry_for_several_tokens() -> None:
    """DeepSeek V4: 512 numbers are key and value in one; sparse layers have 128 of an indexer beside each entry."""
    model = read({"model_type": "deepseek_v4", "num_hidden_layers": 4, "compress_ratios": [0, 4, 128, 4]})
    length = 2**20
    found = {cache.layers: cache for cache in caches_of(model, length)}
    window = 128 * 512
    assert {layers: cache.bytes for layers, cache in found.items()} == {
        "0": 2 * window,
        "1, 3": 2 * 2 * (window + length // 4 * (512 + 128)),
        "2": 2 * (window + length // 128 * 512),
    }
    assert [(cache.tokens, cache.entries) for cache in found.values()] == [(128, 0), (128, 2**18), (128, 2**13)]
    near = {cache.layers: (cache.tokens, cache.entries) for cache in caches_of(model, 6)}
    assert near == {"0": (6, 0), "1, 3": (6, 1), "2": (6, 0)}


@pytest.mark.parametrize("settings", [
    {"compress_rates": {"compressed_sparse_attention": 8, "heavily_compressed_attention": 64}},
    {"compress_rate_csa": 8, "compress_rate_hca": 64},
])  # fmt: skip
def test_rates_of_compressed_layers_are_those_of_the_file(settings: dict[str, Any]) -> None:
    model = read({"model_type": "deepseek_v4", "num_hidden_layers": 3, "compress_ratios": [0, 4, 128], **settings})
    assert [cache.entries for cache in caches_of(model, 6400)] == [0, 800, 100]
    assert str(model.layer(1)).endswith("sees an entry for every 8 tokens and the last 128, sinks")
