"""Costs: numbers that have the right shape, see what is really held, and leave nothing changed behind."""

from __future__ import annotations

import gc
import inspect
import os
from typing import Any

import pytest
import torch
from torch import Tensor

from situs import BiasEncoding, QueryKeyEncoding
from situs.encodings.bias import ScoreMod
from situs.lab.model import Decoder
from situs.lab.naming import parse
from situs.lab.plain import from_json, to_json, to_plain
from situs.lab.probing import costs
from situs.lab.probing.findings import Cost, Costs, DecodeCost
from situs.lab.probing.memory import peak_beyond_result
from situs.lab.settings import Settings, Size

pytestmark = pytest.mark.once

TRAINING, OTHER = 32, 256
SETTINGS = Settings(train_length=TRAINING, batch=4)


@pytest.fixture(autouse=True)
def _brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """As few rounds as can be, and short texts behind a short cache."""
    for name, value in {"SECONDS": 0.0, "SECONDS_IF_LONG": 0.0, "LONG": OTHER, "CACHED": 96, "STEPS": 4}.items():
        monkeypatch.setattr(costs, name, value)


def measured(name: str, settings: Settings = SETTINGS, **options: Any) -> Costs:
    return costs.measure(parse(name), settings, **options)


@pytest.mark.parametrize(
    "name",
    [
        "none", "alibi", "cope", "deberta", "fire", "kerple", "rotary", "sandwich", "shaw", "sinusoidal", "t5",
        "transformer_xl", "xpos", "rotary/none", "rotary&alibi", "sinusoidal/t5", "rotary+yarn", "rotary+dynamic_ntk",
        "rotary+random", "t5+random",
    ],
)  # fmt: skip
def test_every_method_has_positive_times_and_memory(name: str) -> None:
    found = measured(name)
    assert from_json(Costs, to_json(found)) == found
    assert list(found.lengths) == [TRAINING, OTHER]
    for numbers in (to_plain(each) for each in found.lengths.values()):
        names = ["time", "time_low", "time_high", "rounds", "memory", "plain_milliseconds", "milliseconds"]
        assert list(numbers) == [*names, "plain_mib", "mib"]
        assert numbers["time_low"] <= numbers["time"] <= numbers["time_high"]
        assert numbers["rounds"] >= costs.LEAST
        assert numbers["time"] == pytest.approx(numbers["milliseconds"] / numbers["plain_milliseconds"])
        assert numbers["memory"] == pytest.approx(numbers["mib"] / numbers["plain_mib"])
        assert min(numbers.values()) > 0
    decode = to_plain(found.decode)
    assert list(decode) == ["time", "time_low", "time_high", "rounds", "plain_microseconds", "microseconds"]
    assert min(decode.values()) > 0


@pytest.mark.parametrize("name", ["learned", "tupe", "rotary&learned"])
def test_a_table_that_ends_says_where(name: str) -> None:
    found = measured(name)
    assert (found.lengths[OTHER], found.decode) == (Cost(ends=TRAINING), DecodeCost(ends=TRAINING))
    assert (found.lengths[TRAINING].time or 0) > 0


def test_positions_beyond_a_reach_are_not_asked_for() -> None:
    assert measured("xpos", lengths=(40_000,)).lengths == {40_000: Cost(ends=35965)}


def test_parameters_are_those_of_the_whole_model() -> None:
    for name, size in (("t5", Size()), ("t5/none", Size(layers=4)), ("learned", Size()), ("rotary", Size())):
        model = Decoder(parse(name), vocabulary=9, size=size, train_length=TRAINING, seed=0)
        found = measured(name, Settings(train_length=TRAINING, batch=1, size=size), lengths=())
        assert found.parameters == model.parameters_of_encodings()
    assert measured("t5", lengths=()).parameters == 2 * 32 * 4


class Dense(BiasEncoding):
    """A bias with its whole matrix, and more, in memory."""

    def __init__(self, *, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads

    def forward(self, query_positions: Any, key_positions: Any = None, *, dtype: torch.dtype | None = None) -> Tensor:
        key_positions = query_positions if key_positions is None else key_positions
        ids = torch.arange(1 + int(torch.maximum(query_positions.ids.max(), key_positions.ids.max())))
        whole = -(ids[:, None] - ids).abs().to(dtype or torch.float32) * torch.ones(self.num_heads, 1, 1)
        return whole[:, query_positions.ids[0]][:, :, key_positions.ids[0]][None]

    def score_mod(self, query_positions: Any, key_positions: Any = None) -> ScoreMod:
        bias = self(query_positions, key_positions)[0]
        return lambda score, batch, head, query, key: score + bias[head, query, key]


def test_memory_sees_a_matrix_that_is_materialised() -> None:
    matrix = 4 * 4 * OTHER**2 / costs.MIB  # heads, bytes
    dense, alibi = (
        to_plain(measured(name, lengths=(OTHER,)).lengths[OTHER]) for name in (f"{__name__}:Dense", "alibi")
    )
    assert dense["mib"] > matrix > alibi["mib"]
    assert dense["memory"] > 3 * alibi["memory"]


def test_memory_repeats_exactly_and_nothing_costs_nothing() -> None:
    first, second = (measured("sinusoidal").lengths for _ in range(2))
    none = measured("none").lengths
    for length in (TRAINING, OTHER):
        assert first[length].mib == second[length].mib
        assert (first[length].mib or 0) > (none[length].mib or 0) > 0
        assert none[length].memory == 1


def test_memory_is_what_is_held_beyond_the_result() -> None:
    def run() -> Tensor:
        large = torch.ones(1000, dtype=torch.float32)
        return large + (large + 1)

    run()
    assert peak_beyond_result(run) == pytest.approx(2 * 4000, abs=512)


class Fails(QueryKeyEncoding):
    """Raises in texts that are longer than those of training."""

    def __init__(self, *, head_dim: int) -> None:
        super().__init__()
        self.head_dim = head_dim

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        if x.shape[-2] > TRAINING:
            raise RuntimeError("too long")
        return x + 0


def test_an_encoding_that_fails_has_its_error_in_place_of_numbers() -> None:
    found = measured(f"{__name__}:Fails")
    line = inspect.getsourcelines(Fails.forward)[1] + 2
    assert found.lengths[OTHER] == Cost(error=f"RuntimeError: too long ({os.path.relpath(__file__)}:{line})")
    assert (found.lengths[TRAINING].time or 0) > 0


def test_nothing_is_left_changed(capfd: pytest.CaptureFixture[str]) -> None:
    before = torch.get_rng_state()
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        measured("alibi")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.is_grad_enabled()
    assert gc.isenabled()
    assert capfd.readouterr() == ("", "")


def test_turns_alternate_and_rounds_have_bounds() -> None:
    calls: list[str] = []
    taken = costs._rounds([lambda: calls.append("one"), lambda: calls.append("other")], 0.0)
    assert calls == ["one", "other", "other", "one", "one", "other"]
    assert [len(each) for each in taken] == [costs.LEAST] * 2
    calls.clear()
    costs._rounds([lambda: calls.append("one")], 10.0)
    assert len(calls) == costs.MOST


def test_the_interval_of_a_ratio_draws_rounds_with_both_times() -> None:
    plain = torch.tensor([1.0, 2.0, 4.0, 8.0], dtype=torch.float64)
    assert costs.ratio_interval(plain, 3 * plain) == pytest.approx((3.0, 3.0), abs=0.8)
    steady = torch.full((9,), 2.0, dtype=torch.float64)
    assert costs.ratio_interval(steady, 1.5 * steady) == (1.5, 1.5)


def test_the_interval_of_a_ratio_covers_the_truth_about_as_often_as_it_says() -> None:
    generator = torch.Generator().manual_seed(0)
    covered = 0
    for _ in range(100):
        plain = 1 + 0.1 * torch.randn(25, generator=generator, dtype=torch.float64)
        own = 2 * (1 + 0.1 * torch.randn(25, generator=generator, dtype=torch.float64))
        low, high = costs.ratio_interval(plain, own)
        covered += low <= 2 <= high
    assert covered >= 85
