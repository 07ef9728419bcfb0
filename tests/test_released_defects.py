"""Mistakes that released systems have shipped, each shown not to be here."""

import math

import pytest
import torch

import situs
from situs import Positions
from situs.functional import rotary_frequencies


def turned(encoding: situs.Rotary, x: torch.Tensor, start: int) -> torch.Tensor:
    result: torch.Tensor = encoding(x, start)
    return result


@pytest.mark.parametrize("dialect", ["hf", "paper"])
def test_yarn_keeps_fast_pairs_and_divides_slow_ones(dialect: str) -> None:
    # inverted in one release, whose test fed its own tables to both sides
    plain = rotary_frequencies(128)
    scaling = situs.YaRN(factor=8.0, original_length=4096, dialect=dialect)  # type: ignore[arg-type]
    ratio = scaling.resolve(128, 10000.0).frequencies / plain
    turns = 4096 * plain / (2 * math.pi)
    assert torch.equal(ratio[turns > 40], torch.ones_like(ratio[turns > 40]))
    torch.testing.assert_close(ratio[turns < 0.9], torch.full_like(ratio[turns < 0.9], 1 / 8))
    assert bool((ratio.diff() <= 1e-12).all())


def test_dynamic_ntk_leaves_the_first_frequency_alone() -> None:
    scaling = situs.DynamicNTKScaling(factor=4.0, original_length=1024)
    for length in (1024, 1025, 8192, 1_000_000):
        assert float(scaling.resolve(64, 10000.0, length).frequencies[0]) == 1.0


def test_positions_of_bfloat16_queries_do_not_collide_past_257() -> None:
    rotary = situs.Rotary(head_dim=64).bfloat16()
    x = torch.randn(1, 1, 1, 64, dtype=torch.bfloat16).expand(1, 1, 64, 64)
    for start in (257, 2049, 65_537, 10_000_000):
        rows = rotary(x, Positions.range(64, start=start))[0, 0].float()
        distances = torch.cdist(rows, rows) + torch.eye(64) * 1e9
        assert float(distances.min()) > 0.5, f"neighbours collide at {start}"


def test_two_bases_never_share_a_table() -> None:
    positions = Positions.range(300)
    x = torch.randn(1, 2, 300, 64)
    small, large = situs.Rotary(head_dim=64), situs.Rotary(head_dim=64, base=500_000.0)
    alone = large(x, Positions.range(300))
    small(x, positions)
    assert torch.equal(large(x, positions), alone)
    assert not torch.equal(small(x, positions), alone)


@pytest.mark.parametrize("centre", ["origin", "middle", 40.0])
def test_xpos_decodes_what_it_prefills(centre: str | float) -> None:
    xpos = situs.XPos(head_dim=16, centre=centre)  # type: ignore[arg-type]
    q, k = torch.randn(2, 1, 2, 50, 16, dtype=torch.float64)
    whole = Positions.range(50)
    scores = xpos(q, whole) @ xpos(k, whole, role="key").mT
    keys = torch.cat([xpos(k[:, :, i : i + 1], whole[i : i + 1], role="key") for i in range(50)], 2)
    steps = [xpos(q[:, :, i : i + 1], whole[i : i + 1]) @ keys.mT for i in range(50)]
    torch.testing.assert_close(torch.cat(steps, 2), scores)


def test_shifting_cached_keys_under_yarn_applies_its_magnitude_once() -> None:
    rotary = situs.Rotary(head_dim=64, scaling=situs.YaRN(factor=16.0, original_length=4096))
    assert rotary.rotation_factor > 1.2
    keys = torch.randn(1, 2, 20, 64, dtype=torch.float64)
    cached = turned(rotary, keys, 100)
    for shift in range(1, 51):
        cached = rotary.rerotate(cached, 100 - shift + 1, 100 - shift)
    torch.testing.assert_close(cached, turned(rotary, keys, 50))


def test_a_long_sequence_leaves_no_trace_in_a_short_one() -> None:
    for scaling in (
        situs.DynamicNTKScaling(factor=4.0, original_length=64),
        situs.LongRoPE(factor=4.0, original_length=64, short_factors=(1.0,) * 8, long_factors=(3.0,) * 8),
    ):
        rotary = situs.Rotary(head_dim=16, scaling=scaling)
        short, long = torch.randn(1, 1, 32, 16), torch.randn(1, 1, 512, 16)
        before = rotary(short)
        rotary(long)
        assert torch.equal(rotary(short), before)


def test_a_cache_of_short_factors_cannot_meet_a_query_of_long_ones() -> None:
    scaling = situs.LongRoPE(factor=4.0, original_length=64, short_factors=(1.0,) * 8, long_factors=(3.0,) * 8)
    rotary = situs.Rotary(head_dim=16, scaling=scaling)
    keys = torch.randn(1, 1, 65, 16)
    for length in (63, 64):
        rotary.both(keys[:, :, :1], keys[:, :, :63], Positions.range(1, start=62, sequence_length=length), 0)
    with pytest.raises(ValueError, match=r"^queries and keys must be made for one sequence length, since LongRoPE"):
        rotary.both(
            keys[:, :, :1],
            keys,
            Positions.range(1, start=64, sequence_length=65),
            Positions.range(65, sequence_length=64),
        )


def test_rows_of_a_padded_cache_cannot_meet_queries_of_another_length() -> None:
    rotary = situs.Rotary(head_dim=16, scaling=situs.DynamicNTKScaling(factor=4.0, original_length=4))
    x = torch.randn(2, 1, 8, 16)
    keys = Positions.from_mask(torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1], [1] * 8]))
    rotary.both(x[:, :, :1], x, keys[7:], keys)
    with pytest.raises(
        ValueError, match=r"^queries and keys must be made for one sequence length, since DynamicNTKScaling"
    ):
        rotary.both(x[:, :, :1], x, keys[7:].with_sequence_length(torch.tensor([[6], [9]])), keys)


def test_left_padding_does_not_shift_positions() -> None:
    rotary = situs.Rotary(head_dim=16)
    x = torch.randn(1, 1, 4, 16)
    padded = torch.cat((torch.zeros(1, 1, 3, 16), x), 2)
    mask = torch.tensor([[0, 0, 0, 1, 1, 1, 1]])
    assert torch.equal(rotary(padded, Positions.from_mask(mask))[:, :, 3:], rotary(x))


def test_an_explicit_attention_factor_of_one_is_used_as_given() -> None:
    assert situs.YaRN(factor=8.0, original_length=4096, attention_factor=1.0).resolve(64, 1e4).rotation_factor == 1.0
    assert situs.YaRN(factor=8.0, original_length=4096).resolve(64, 1e4).rotation_factor == 0.1 * math.log(8) + 1


def test_strict_loading_tolerates_the_tables_that_old_checkpoints_hold() -> None:
    class Attention(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rotary_emb = situs.Rotary(head_dim=16)
            self.q_proj = torch.nn.Linear(16, 16)

    module = Attention()
    checkpoint = {**module.state_dict(), "rotary_emb.inv_freq": torch.zeros(8)}
    assert set(module.state_dict()) == {"q_proj.weight", "q_proj.bias"}
    module.load_state_dict(checkpoint, strict=True)
    with pytest.raises(RuntimeError, match="Unexpected key"):
        module.load_state_dict({**checkpoint, "rotary_emb.typo": torch.zeros(8)}, strict=True)
