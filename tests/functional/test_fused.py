"""The compiled loop gives what the chunked path gives, in any layout, dtype, number of threads and process."""

import multiprocessing
import os
import pathlib
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from situs.functional import RotationTable, fused, rotary_frequencies, rotate, rotate_real, unit_circle
from situs.functional.rotation import PAIRINGS, Pairing

pytestmark = pytest.mark.skipif(not fused.available(), reason="Numba is not installed")

both_pairings = pytest.mark.parametrize("pairing", PAIRINGS)
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
HALVES = [torch.bfloat16, torch.float16]
SHAPE = (2, 4, 48, 64)  # 24576 elements, above SMALLEST


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def table_for(
    rows: int, heads: int, length: int, turning: int, dtype: torch.dtype, magnitude: float = 1.0
) -> RotationTable:
    """Random positions near ten million, one a row, head and place."""
    positions = torch.randint(10_000_000, 10_100_000, (rows, heads, length, 1))
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    cos, sin = unit_circle(positions, rotary_frequencies(turning), wide)
    return RotationTable(cos * magnitude, sin * magnitude)


def rotate_chunked(x: Tensor, table: RotationTable, pairing: Pairing, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    with monkeypatch.context() as without:
        without.setattr(fused, "serves", lambda x, cos: False)
        return rotate(x, table, pairing)


def assert_agree(one: Tensor, other: Tensor) -> None:
    """To two roundings in the computing dtype of a pair, whose norm is below 6 here; these may tip the rounding
    to half precision over to a neighbour."""
    assert one.dtype == other.dtype
    half = one.dtype.itemsize == 2
    bound = 12 * torch.finfo(torch.float32 if half else one.dtype).eps
    neighbour = torch.finfo(one.dtype).eps if half else 0.0
    assert torch.allclose(one.double(), other.double(), rtol=neighbour, atol=bound)


@both_pairings
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "heads"), [(1, 1), (2, 1), (1, 4), (2, 4)])
@pytest.mark.parametrize("turning", [64, 40])
def test_the_compiled_loop_equals_the_chunked_path(
    pairing: Pairing, dtype: torch.dtype, rows: int, heads: int, turning: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(SHAPE).to(dtype)
    table = table_for(rows, heads, SHAPE[2], turning, dtype, magnitude=1.25)
    assert fused.serves(x, table.cos)
    turned = fused.rotate(x, table.cos, table.sin, pairing)
    assert_agree(turned, rotate_chunked(x, table, pairing, monkeypatch))
    assert torch.equal(turned[..., turning:], x[..., turning:])


@both_pairings
@pytest.mark.parametrize("dtype", DTYPES)
def test_transposed_and_sliced_tensors_are_read_where_they_lie(
    pairing: Pairing, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = torch.randn(2, 48, 4, 3 * 64 + 1).to(dtype)
    table = table_for(2, 4, 48, 64, dtype)
    shared = storage[:1, :, :, 1:65].expand(2, -1, -1, -1)
    for x in (storage.transpose(1, 2)[..., 65:129], storage.transpose(1, 2)[..., :64], shared.transpose(1, 2)):
        assert fused.serves(x, table.cos)
        assert_agree(fused.rotate(x, table.cos, table.sin, pairing), rotate_chunked(x, table, pairing, monkeypatch))


@both_pairings
@pytest.mark.parametrize("dtype", HALVES)
def test_infinities_and_nans_come_through(pairing: Pairing, dtype: torch.dtype) -> None:
    """Every bit is what float32 arithmetic and torch's own rounding give, not-a-numbers in the same channels."""
    x = torch.randn(SHAPE).to(dtype)
    tiny, largest = torch.finfo(dtype).smallest_normal, torch.finfo(dtype).max
    specials = torch.tensor([torch.inf, -torch.inf, torch.nan, largest, -largest, tiny / 4, -0.0])
    for number, special in enumerate(specials.to(dtype)):
        x[:, :, number::11, number::13] = special
    table = table_for(1, 1, SHAPE[2], 64, dtype)
    table.cos[..., 0, :], table.sin[..., 0, :] = 1.0, 0.0  # position 0
    turned = fused.rotate(x, table.cos, table.sin, pairing)
    expected = rotate_real(x.float(), table.cos, table.sin, pairing).to(dtype)
    assert bool(turned.isnan().any())
    assert bool(turned.isinf().any())
    assert torch.equal(turned.isnan(), expected.isnan())
    assert torch.equal(turned.nan_to_num(7.0, 8.0, 9.0), expected.nan_to_num(7.0, 8.0, 9.0))


@pytest.mark.parametrize("dtype", HALVES)
def test_every_half_number_is_read_and_written_unchanged_at_position_zero(dtype: torch.dtype) -> None:
    numbers = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    finite = torch.where(numbers.isfinite(), numbers, 0.0)
    x = torch.stack((finite, torch.zeros_like(finite)), -1).view(1, 1, -1, 2)
    still = torch.ones(1, 1, x.shape[2], 1)
    assert torch.equal(fused.rotate(x, still, still * 0, "interleaved")[..., 0], x[..., 0])


@pytest.mark.parametrize("dtype", HALVES)
def test_ties_go_to_the_even_neighbour_and_every_nan_stays_one(dtype: torch.dtype) -> None:
    half_step = torch.finfo(dtype).eps / 2
    strange = torch.tensor([0x7FFFFFFF, -1, 0x7F800001], dtype=torch.int32).view(torch.float32)  # nan, all bits set
    factors = torch.cat((1 + torch.arange(8) * half_step, -1 - torch.arange(8) * half_step, strange))
    cos = factors.view(1, 1, -1, 1)
    x = torch.tensor([1.0, 0.0]).to(dtype).expand(1, 1, len(factors), 2)
    turned = fused.rotate(x, cos, torch.zeros_like(cos), "interleaved")[0, 0, :, 0]
    assert turned[:4].tolist() == [1, 1, 1 + 2 * half_step, 1 + 4 * half_step]
    assert torch.equal(turned[:16], factors[:16].to(dtype))
    assert bool(turned[16:].isnan().all())


@both_pairings
@pytest.mark.parametrize("dtype", DTYPES)
def test_two_threads_give_the_bits_of_one(
    pairing: Pairing, dtype: torch.dtype, two_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused, "SMALLEST_PER_THREAD", 1)
    x = torch.randn(3, 5, 48, 64).to(dtype)
    table = table_for(3, 5, 48, 48, dtype)
    for given in (x, x.transpose(1, 2).contiguous().transpose(1, 2)):
        in_two = fused.rotate(given, table.cos, table.sin, pairing)
        torch.set_num_threads(1)
        assert torch.equal(fused.rotate(given, table.cos, table.sin, pairing), in_two)
        torch.set_num_threads(2)


def test_work_is_cut_into_whole_rows_for_the_threads(two_threads: None) -> None:
    done: list[tuple[int, int]] = []
    fused._in_threads(lambda first, last: done.append((first, last)), 7, most=8)
    assert sorted(done) == [(0, 3), (3, 7)]
    done.clear()
    fused._in_threads(lambda first, last: done.append((first, last)), 7, most=0)
    assert done == [(0, 7)]


def test_what_goes_wrong_in_a_thread_is_raised(two_threads: None) -> None:
    def fail(first: int, last: int) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("in a thread")

    with pytest.raises(RuntimeError, match=r"^in a thread$"):
        fused._in_threads(fail, 4, most=4)


def in_a_child(x: Tensor, table: RotationTable, expected: Tensor) -> None:
    turned = fused.rotate(x, table.cos, table.sin, "halves")
    os._exit(0 if turned.tolist() == expected.tolist() else 3)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="the system cannot fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own(two_threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "SMALLEST_PER_THREAD", 1)
    x, table = torch.randn(1, 2, 8, 16), table_for(1, 1, 8, 16, torch.float32)
    expected = fused.rotate(x, table.cos, table.sin, "halves")  # the parent's pool is at work by now
    child = multiprocessing.get_context("fork").Process(target=in_a_child, args=(x, table, expected))
    child.start()
    child.join(timeout=60)
    hangs = child.is_alive()
    child.kill()
    assert not hangs
    assert child.exitcode == 0


def test_only_tensors_it_can_reach_are_served() -> None:
    x, cos = torch.zeros(SHAPE), torch.zeros(1, 1, SHAPE[2], 32)
    assert fused.serves(x, cos)
    assert fused.serves(torch.nn.Parameter(x), cos)
    assert fused.serves(x.double(), cos.double())
    refused = {
        "small": x[:1, :1],
        "three axes": x[0],
        "meta": x.to("meta"),
        "whole numbers": x.long(),
        "channels apart": x.transpose(2, 3),
        "a subclass": x.as_subclass(type("Mine", (Tensor,), {})),
    }
    assert {name: fused.serves(tensor, cos) for name, tensor in refused.items()} == dict.fromkeys(refused, False)
    assert not fused.serves(x, cos.double())
    assert not fused.serves(x.double(), cos)


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    fused.available.cache_clear()
    monkeypatch.setenv("SITUS_FUSED", "0")
    try:
        assert not fused.available()
        assert not fused.serves(torch.zeros(SHAPE), torch.zeros(1, 1, SHAPE[2], 32))
    finally:
        fused.available.cache_clear()


@both_pairings
def test_rotate_takes_the_compiled_loop_where_it_serves(pairing: Pairing, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[tuple[int, ...]] = []

    def noted(x: Tensor, cos: Tensor, sin: Tensor, pairing: Pairing) -> Tensor:
        taken.append(tuple(x.shape))
        return torch.empty_like(x)

    monkeypatch.setattr(fused, "rotate", noted)
    table = table_for(1, 1, SHAPE[2], 40, torch.float32)
    rotate(torch.randn(SHAPE), table, pairing)
    rotate(torch.randn(SHAPE)[:1, :1], table, pairing)
    assert taken == [SHAPE]


ONCE = """
import torch
from situs.functional import fused
x, table = torch.ones(1, 1, 8, 16), torch.ones(1, 1, 8, 8)
fused.rotate(x, table, table, "halves")
"""


def test_the_compiled_loop_is_kept_for_the_next_process(tmp_path: pathlib.Path) -> None:
    kept = []
    for _ in range(2):
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
        subprocess.run([sys.executable, "-c", ONCE], env=environment, check=True, timeout=120)
        kept.append(sorted(path.name for path in tmp_path.rglob("*.nbc")))
    assert len(kept[0]) == 1
    assert kept[1] == kept[0]
