"""The fuzzer: attention against an oracle that is written from formulas, on cases drawn from seeds.

    pytest tests/fuzz                                thinned, about a minute
    SITUS_SLOW=1 pytest -n 2 tests/fuzz              more than 200,000 comparisons of outputs and gradients
    SITUS_FUZZ_SEED=17,layer:4,loop:9 pytest tests/fuzz     these cases alone

A failure prints the seed to set, and the case as the Python that makes it.
"""

from __future__ import annotations

import itertools
import os
import pathlib
import sys
import warnings

import pytest
import torch

import situs
from situs import compiled
from situs.compiled.attending import calling
from tests.fuzz.cases import DTYPES, Case, draw
from tests.fuzz.corners import CORNERS, FLEX
from tests.fuzz.draw_encodings import make
from tests.fuzz.judging import Expected, Report, check
from tests.fuzz.layer_cases import draw_layer
from tests.fuzz.layers import run_layer
from tests.fuzz.trials import ask, build, run, run_flex

SLOW = os.environ.get("SITUS_SLOW") == "1"
SEEDS = [seed for seed in os.environ.get("SITUS_FUZZ_SEED", "").split(",") if seed]
CHUNKS, QUOTA = (40, 5_000) if SLOW else (2, 500)
LAYER_CHUNKS, LAYER_QUOTA = (8, 2_500) if SLOW else (1, 700)
LOOP_CHUNKS, LOOP_QUOTA = (8, 5_000) if SLOW else (1, 500)

pytestmark = [
    pytest.mark.once,
    pytest.mark.filterwarnings("ignore:T5Bias sets the softmax scale to 1"),  # pairs are drawn with any scale
]
unless_seeds_are_given = pytest.mark.skipif(bool(SEEDS), reason="SITUS_FUZZ_SEED names the cases to run")


def expect_agreement(report: Report) -> None:
    """Fail with what was found."""
    if report.failures:
        pytest.fail(str(report), pytrace=False)


def tell(name: str, report: Report, capfd: pytest.CaptureFixture[str], folder: pathlib.Path) -> None:
    """Print how many comparisons were made, here and by all workers of this run so far."""
    counts = folder / f"comparisons-{os.environ.get('PYTEST_XDIST_TESTRUNUID', os.getpid())}"
    with counts.open("a") as file:
        file.write(f"{report.comparisons}\n")
    total = sum(map(int, counts.read_text().split()))
    left_out = f", {report.left_out} gradients left out where a derivative jumps" if report.left_out else ""
    with capfd.disabled():
        print(f"\nfuzz, {name}: {report.comparisons:,} comparisons{left_out}; {total:,} so far", file=sys.stderr)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Cases are small: threads would cost more than they gain."""
    torch.set_num_threads(1)


@unless_seeds_are_given
@pytest.mark.parametrize("name", CORNERS)
def test_corners_are_as_the_oracle_says(name: str) -> None:
    case = CORNERS[name]
    expect_agreement(run(case) if isinstance(case, Case) else run_layer(case))


@unless_seeds_are_given
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_attention_is_as_the_oracle_says(
    chunk: int, capfd: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    report = Report()
    for seed in itertools.count(10_000 * chunk):
        report.join(run(draw(seed)))
        if report.comparisons >= QUOTA:
            break
    tell(f"chunk {chunk}", report, capfd, tmp_path_factory.getbasetemp().parent)
    expect_agreement(report)


@pytest.fixture
def loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled loops attend however little there is to do."""
    if not (compiled.available() and calling._lanes()):
        pytest.skip("llvmlite is not installed, or not for this machine")
    monkeypatch.setattr(calling, "LEAST_WORK", 0)
    monkeypatch.setattr(calling, "FEW_QUERIES", 1)


@unless_seeds_are_given
@pytest.mark.parametrize("chunk", range(LOOP_CHUNKS))
def test_attention_by_compiled_loops_is_as_the_oracle_says(
    chunk: int, loops: None, capfd: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    report = Report()
    for seed in itertools.count(10_000 * chunk):
        report.join(run(draw(seed, looped=True)))
        if report.comparisons >= LOOP_QUOTA:
            break
    tell(f"loops {chunk}", report, capfd, tmp_path_factory.getbasetemp().parent)
    expect_agreement(report)


@unless_seeds_are_given
@pytest.mark.parametrize("chunk", range(LAYER_CHUNKS))
def test_layers_and_caches_are_as_the_oracle_says(
    chunk: int, capfd: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    report = Report()
    for seed in itertools.count(10_000 * chunk):
        report.join(run_layer(draw_layer(seed)))
        if report.comparisons >= LAYER_QUOTA:
            break
    tell(f"layers {chunk}", report, capfd, tmp_path_factory.getbasetemp().parent)
    expect_agreement(report)


@unless_seeds_are_given
@pytest.mark.compiled
@pytest.mark.skipif(not SLOW, reason="compiles for each; set SITUS_SLOW=1")
@pytest.mark.parametrize("name", FLEX)
def test_flex_is_as_the_oracle_says_or_refuses(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler's own
        expect_agreement(run_flex(FLEX[name]))


@pytest.mark.skipif(not SEEDS, reason="no seed was given")
@pytest.mark.parametrize("seed", SEEDS)
def test_the_given_seeds_are_as_the_oracle_says(seed: str, request: pytest.FixtureRequest) -> None:
    kind, _, number = seed.rpartition(":")
    if kind == "loop":
        request.getfixturevalue("loops")
    case = draw_layer(int(number)) if kind == "layer" else draw(int(number), looped=kind == "loop")
    print(case)
    expect_agreement(run(case) if isinstance(case, Case) else run_layer(case))


def test_every_registered_encoding_is_drawn() -> None:
    drawn = {type(make(each)) for seed in range(400) for each in draw(seed).encodings}
    assert {situs.entry(name).cls for name in situs.names()} <= drawn


def test_a_seed_draws_the_same_case_every_time() -> None:
    for seed in range(200):
        assert repr(draw(seed)) == repr(draw(seed))
        assert repr(draw_layer(seed)) == repr(draw_layer(seed))


@pytest.mark.parametrize(
    ("dtype", "error"), [("float64", 1e-9), ("float32", 2e-4), ("bfloat16", 0.3), ("float16", 0.05)]
)
def test_small_errors_are_seen(dtype: str, error: float) -> None:
    alibi = "situs.ALiBi(num_heads=2, learned=True)"
    case = Case(-1, (alibi,), queries=64, keys=64, dtype=dtype, parameter_dtype=dtype)
    built = build(case)
    truth = Expected(lambda rounding: ask(built, rounding), DTYPES[dtype], {}, built.upstream)
    for name, value in truth.values.items():
        report = Report()
        check(case, name, value, truth, "exact", report)
        assert not report.failures
        off = value.clone(memory_format=torch.contiguous_format)
        off.view(-1)[0] += error * value.abs().max()
        check(case, name, off, truth, "wrong", report)
        assert report.comparisons == 2
        assert len(report.failures[case]) == 1
        first = ", ".join("0" * value.ndim)
        assert report.failures[case][0].startswith(f"wrong of {name}: 1 of {value.numel()} differ, at ({first}")
        off.view(-1)[0] = torch.nan
        check(case, name, off, truth, "nothing", report)
        assert len(report.failures[case]) == 2
