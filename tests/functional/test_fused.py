"""The compiled loop gives what tensor operations give, in any layout, dtype, width, number of threads and process."""

import copy
import ctypes
import multiprocessing
import os
import pickle
from array import array
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from situs.functional import RotationTable, fused, rotary_frequencies, rotate, rotate_both, rotate_real, unit_circle
from situs.functional.fused import loop, planning, threads
from situs.functional.fused.program import converts_halves
from situs.functional.rotation import PAIRINGS, Pairing

pytestmark = pytest.mark.skipif(
    not fused.available() or not converts_halves(), reason="llvmlite is not installed, or the machine has no float16"
)

both_pairings = pytest.mark.parametrize("pairing", PAIRINGS)
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
HALVES = [torch.bfloat16, torch.float16]
SHAPE = (2, 4, 48, 64)


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)
    planning._plan.cache_clear()


def table_for(
    rows: int, heads: int, length: int, turning: int, dtype: torch.dtype, magnitude: float = 1.0
) -> RotationTable:
    """Random positions near ten million, one a row, head and place."""
    positions = torch.randint(10_000_000, 10_100_000, (rows, heads, length, 1))
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    cos, sin = unit_circle(positions, rotary_frequencies(turning), wide)
    return RotationTable(cos * magnitude, sin * magnitude)


def turn(x: Tensor, table: RotationTable, pairing: Pairing) -> Tensor:
    """By the compiled loop, or not at all."""
    return turn_all((x,), table, pairing)[0]


def turn_all(tensors: tuple[Tensor, ...], table: RotationTable, pairing: Pairing) -> list[Tensor]:
    plan = fused.plan(tensors, table, pairing)
    assert plan is not None
    return plan.turn(tensors, table.cos, table.sin)


def rotate_by_operations(x: Tensor, table: RotationTable, pairing: Pairing, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    with monkeypatch.context() as without:
        without.setattr(planning, "available", lambda: False)
        return rotate(x, table, pairing)


def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let threads share what is small for a test."""
    monkeypatch.setattr(planning, "LEAST_TASK", 64)
    planning._plan.cache_clear()


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
def test_the_compiled_loop_equals_tensor_operations(
    pairing: Pairing, dtype: torch.dtype, rows: int, heads: int, turning: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(SHAPE).to(dtype)
    table = table_for(rows, heads, SHAPE[2], turning, dtype, magnitude=1.25)
    turned = turn(x, table, pairing)
    assert_agree(turned, rotate_by_operations(x, table, pairing, monkeypatch))
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
        assert_agree(turn(x, table, pairing), rotate_by_operations(x, table, pairing, monkeypatch))


@both_pairings
@given(data=st.data())
def test_any_sizes_are_turned_to_the_last_bit(pairing: Pairing, data: st.DataObject) -> None:
    """Widths that fill no register, blocks that do not come out even, tables of rows and heads, in any order."""
    dtype = data.draw(st.sampled_from(DTYPES))
    batch, heads, length = (data.draw(st.integers(1, most)) for most in (3, 9, 70))
    turning, still = 2 * data.draw(st.integers(1, 40)), data.draw(st.integers(0, 9))
    rows, of_heads = data.draw(st.sampled_from([1, batch])), data.draw(st.sampled_from([1, heads]))
    lies = data.draw(st.permutations(range(3)))
    x = torch.randn([(batch, heads, length)[axis] for axis in lies] + [turning + still]).to(dtype)
    x = x.permute(*(lies.index(axis) for axis in range(3)), 3)
    table = table_for(rows, of_heads, length, turning, dtype)
    expected = rotate_real(x, table.cos, table.sin, pairing)
    assert torch.equal(turn(x, table, pairing), expected)


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
    turned = turn(x, table, pairing)
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
    assert torch.equal(turn(x, RotationTable(still, still * 0), "interleaved")[..., 0], x[..., 0])


@pytest.mark.parametrize("dtype", HALVES)
def test_ties_go_to_the_even_neighbour_and_every_nan_stays_one(dtype: torch.dtype) -> None:
    half_step = torch.finfo(dtype).eps / 2
    strange = torch.tensor([0x7FFFFFFF, -1, 0x7F800001], dtype=torch.int32).view(torch.float32)  # nan, all bits set
    factors = torch.cat((1 + torch.arange(8) * half_step, -1 - torch.arange(8) * half_step, strange))
    cos = factors.view(1, 1, -1, 1)
    x = torch.tensor([1.0, 0.0]).to(dtype).expand(1, 1, len(factors), 2)
    turned = turn(x, RotationTable(cos, torch.zeros_like(cos)), "interleaved")[0, 0, :, 0]
    assert turned[:4].tolist() == [1, 1, 1 + 2 * half_step, 1 + 4 * half_step]
    assert torch.equal(turned[:16], factors[:16].to(dtype))
    assert bool(turned[16:].isnan().all())


@both_pairings
@pytest.mark.parametrize("dtype", DTYPES)
def test_two_threads_give_the_bits_of_one(
    pairing: Pairing, dtype: torch.dtype, two_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_tasks(monkeypatch)
    x = torch.randn(3, 5, 48, 64).to(dtype)
    table = table_for(3, 5, 48, 48, dtype)
    for lying in (x, x.transpose(1, 2).contiguous().transpose(1, 2)):
        in_two = turn(lying, table, pairing)
        torch.set_num_threads(1)
        assert torch.equal(turn(lying, table, pairing), in_two)
        torch.set_num_threads(2)


@both_pairings
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_tensors_turned_in_one_pass_have_the_bits_of_each_alone(
    pairing: Pairing, dtype: torch.dtype, count: int, two_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of as many heads as they like, and whichever threads there are, also more than there are tasks."""
    small_tasks(monkeypatch)
    torch.set_num_threads(count)
    query, key, few = (torch.randn(2, heads, 48, 64).to(dtype) for heads in (8, 4, 1))
    table = table_for(2, 1, 48, 48, dtype)
    for tensors in ((query, key), (key, query, key), (few, few)):
        for each, alone in zip(turn_all(tensors, table, pairing), tensors, strict=True):
            assert torch.equal(each, rotate_real(alone, table.cos, table.sin, pairing))


@both_pairings
def test_queries_and_keys_that_lie_differently_are_turned_apart(pairing: Pairing) -> None:
    query, key = torch.randn(2, 4, 48, 64), torch.randn(2, 48, 4, 64).transpose(1, 2)
    table = table_for(1, 1, 48, 64, torch.float32)
    assert fused.plan((query, key), table, pairing) is None
    for turned, x in zip(rotate_both(query, key, table, pairing), (query, key), strict=True):
        assert torch.equal(turned, rotate_real(x, table.cos, table.sin, pairing))


@both_pairings
def test_queries_and_keys_take_one_pass(pairing: Pairing, monkeypatch: pytest.MonkeyPatch) -> None:
    original, passes = fused.Plan.turn, []

    def noted(plan: fused.Plan, tensors: tuple[Tensor, ...], cos: Tensor, sin: Tensor) -> list[Tensor]:
        passes.append([x.shape[1] for x in tensors])
        return original(plan, tensors, cos, sin)

    monkeypatch.setattr(fused.Plan, "turn", noted)
    query, key = torch.randn(2, 8, 48, 64), torch.randn(2, 4, 48, 64)
    table = table_for(1, 1, 48, 64, torch.float32)
    rotate_both(query, key, table, pairing)
    rotate_both(query.requires_grad_(), key, table, pairing)
    assert passes == [[8, 4], [8], [4]]


def in_a_child(x: Tensor, table: RotationTable, expected: Tensor) -> None:
    turned = turn(x, table, "halves")
    os._exit(0 if turned.tolist() == expected.tolist() else 3)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="the system cannot fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own(two_threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    small_tasks(monkeypatch)
    x, table = torch.randn(1, 2, 8, 16), table_for(1, 1, 8, 16, torch.float32)
    expected = turn(x, table, "halves")  # the parent's pool is at work by now
    child = multiprocessing.get_context("fork").Process(target=in_a_child, args=(x, table, expected))
    child.start()
    child.join(timeout=60)
    hangs = child.is_alive()
    child.kill()
    assert not hangs
    assert child.exitcode == 0


def test_only_tensors_it_can_reach_are_served() -> None:
    x, cos = torch.zeros(SHAPE), torch.zeros(1, 1, SHAPE[2], 32)

    def serves(x: Tensor, cos: Tensor) -> bool:
        return fused.plan((x,), RotationTable(cos, cos), "halves") is not None

    assert serves(x, cos)
    assert serves(torch.nn.Parameter(x), cos)
    assert serves(x.double(), cos.double())
    refused = {
        "three axes": x[0],
        "meta": x.to("meta"),
        "whole numbers": x.long(),
        "channels apart": x.transpose(2, 3),
        "a subclass": x.as_subclass(type("Mine", (Tensor,), {})),
        "nothing": x[:, :, :0],
        "wider than a program may be": torch.zeros(1, 1, SHAPE[2], 2 * planning.WIDEST),
        "turned minus signs": torch._neg_view(x),
        "zeros that are nowhere": torch._efficientzerotensor(*SHAPE),
        "vectors within one another": torch.zeros(111).unfold(0, 64, 1).expand(2, 4, 48, 64),
        "another number of places": x[:, :, 1:],
        "fewer channels than turn": x[..., :32],
    }
    assert {name: serves(tensor, cos) for name, tensor in refused.items()} == dict.fromkeys(refused, False)
    tables = {
        "too exact": cos.double(),
        "learned": cos.clone().requires_grad_(),
        "channels apart": cos.transpose(2, 3).contiguous().transpose(2, 3),
        "a subclass": cos.as_subclass(type("Mine", (Tensor,), {})),
        "turned minus signs": torch._neg_view(cos),
        "other rows": cos.expand(3, -1, -1, -1),
        "other heads": cos.expand(-1, 3, -1, -1),
    }
    assert {name: serves(x, table) for name, table in tables.items()} == dict.fromkeys(tables, False)
    for sin in (cos.double(), cos.clone().requires_grad_(), cos[:, :, 1:]):
        table = RotationTable(cos, cos)
        table.sin = sin
        assert fused.plan((x,), table, "halves") is None
    assert not serves(x.double(), cos)


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    planning._wanted.cache_clear()
    monkeypatch.setenv("SITUS_FUSED", "0")
    try:
        assert not fused.available()
        table = table_for(1, 1, SHAPE[2], 64, torch.float32)
        assert fused.plan((torch.zeros(SHAPE),), table, "halves") is None
    finally:
        planning._wanted.cache_clear()


@both_pairings
@pytest.mark.parametrize("grad", [False, True])
def test_rotate_takes_the_compiled_loop_where_it_serves(
    pairing: Pairing, grad: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[tuple[int, ...]] = []

    def noted(plan: fused.Plan, tensors: tuple[Tensor, ...], cos: Tensor, sin: Tensor) -> list[Tensor]:
        taken.extend(tuple(x.shape) for x in tensors)
        return [torch.empty_like(x) for x in tensors]

    monkeypatch.setattr(fused.Plan, "turn", noted)
    table = table_for(1, 1, SHAPE[2], 40, torch.float32)
    rotate(torch.randn(SHAPE, requires_grad=grad), table, pairing)
    rotate(torch.randn(SHAPE)[:1, :1], table, pairing)
    rotate(torch.randn(SHAPE).transpose(2, 3).contiguous().transpose(2, 3), table, pairing)
    assert taken == [SHAPE, (1, 1, *SHAPE[2:])]


@both_pairings
def test_vectors_within_one_another_are_turned(pairing: Pairing) -> None:
    x = torch.randn(20).unfold(0, 16, 1)[None, None]
    table = table_for(1, 1, 5, 16, torch.float32)
    assert_agree(rotate(x, table, pairing), rotate(x.contiguous(), table, pairing))


@both_pairings
@pytest.mark.parametrize("heads", [1, 2, 3, 4, 5, 6, 8, 12])
def test_any_number_of_heads_shares_the_table(pairing: Pairing, heads: int) -> None:
    x, table = torch.randn(2, heads, 7, 16), table_for(1, 1, 7, 16, torch.float32)
    expected = rotate_real(x, table.cos, table.sin, pairing)
    assert torch.equal(turn(x, table, pairing), expected)
    assert torch.equal(turn(x.transpose(1, 2).contiguous().transpose(1, 2), table, pairing), expected)


def test_little_work_is_left_to_one_thread(two_threads: None) -> None:
    table = table_for(16, 1, 1, 64, torch.float32)
    plan = fused.plan((torch.zeros(16, 8, 1, 64),), table, "halves")
    assert plan is not None
    assert plan.threads == 1


def test_a_table_that_was_used_can_be_copied_and_sent() -> None:
    x, table = torch.randn(SHAPE), table_for(1, 1, SHAPE[2], 64, torch.float32)
    expected = turn(x, table, "halves")
    for twin in (copy.copy(table), copy.deepcopy(table), pickle.loads(pickle.dumps(table))):
        assert torch.equal(turn(x, twin, "halves"), expected)


def test_places_of_a_table_share_their_plans() -> None:
    x, table = torch.randn(1, 4, 3, 16), table_for(1, 1, 3, 16, torch.float32)
    whole = turn(x, table, "halves")
    parts = [turn(x[:, :, place : place + 1], table.at(place), "halves") for place in range(3)]
    assert torch.equal(torch.cat(parts, 2), whole)
    assert len(table.at(0).plans) == 1
    for place in (-1, 3):
        with pytest.raises(IndexError, match=rf"^place must be one of the table's 3; got {place}\.$"):
            table.at(place)


@both_pairings
def test_the_way_back_takes_the_loop_too(pairing: Pairing, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the table is part of a larger one, and its negative is not."""
    whole = table_for(2, 1, 60, 64, torch.float32)
    table = RotationTable(whole.cos[:, :, : SHAPE[2]], whole.sin[:, :, : SHAPE[2]])
    x = torch.randn(SHAPE, requires_grad=True)
    turned = rotate(x, table, pairing)
    taken: list[fused.Plan] = []
    original = fused.Plan.turn

    def noted(plan: fused.Plan, tensors: tuple[Tensor, ...], cos: Tensor, sin: Tensor) -> list[Tensor]:
        taken.append(plan)
        return original(plan, tensors, cos, sin)

    monkeypatch.setattr(fused.Plan, "turn", noted)
    gradient = torch.randn(SHAPE)
    turned.backward(gradient)
    assert len(taken) == 1
    assert x.grad is not None
    assert_agree(x.grad, rotate_real(gradient, table.cos, -table.sin, pairing))


@both_pairings
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_who_watches_operations_sees_them(pairing: Pairing) -> None:
    table = table_for(1, 1, SHAPE[2], 64, torch.float32)
    x, other = torch.randn(SHAPE), torch.randn(SHAPE)
    expected = rotate(other, table, pairing)
    graph = make_fx(lambda x: rotate(x, table, pairing))(x)
    assert_agree(graph(other), expected)
    traced = torch.jit.trace(lambda x: rotate(x, table, pairing), x)
    assert_agree(traced(other), expected)


def test_a_machine_that_cannot_compile_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(work: loop.Work) -> int:
        raise OSError("no executable memory")

    monkeypatch.setattr(loop, "compiled", fail)
    monkeypatch.setattr(planning, "_failure", None)
    planning._plan.cache_clear()
    x, table = torch.randn(SHAPE), table_for(1, 1, SHAPE[2], 64, torch.float32)
    with pytest.warns(UserWarning, match=r"^situs\[fast\] must compile") as told:
        turned = rotate(x, table, "halves")
    assert [str(each.message) for each in told] == [
        "situs[fast] must compile its loop with llvmlite 0.45 or newer, since rotary runs fastest so; got OSError: no "
        "executable memory. Tensor operations are used instead; SITUS_FUSED=0 leaves this out."
    ]
    assert_agree(turned, rotate_real(x, table.cos, table.sin, "halves"))
    assert not fused.available()
    assert torch.equal(rotate(x, table, "halves"), turned)
    planning._plan.cache_clear()


def test_threads_of_python_serve_where_torch_has_none(two_threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    small_tasks(monkeypatch)
    x, table = torch.randn(3, 5, 48, 64), table_for(1, 1, 48, 64, torch.float32)
    expected = turn(x, table, "halves")
    names: set[str] = set()

    class Lonely:
        def __init__(self, path: str) -> None:
            """A library without OpenMP."""

    original = threads._run_in_threads

    def noted(program: int, given: "array[int]", count: int, kept: object) -> None:
        names.add(f"{count} threads")
        original(program, given, count, kept)

    monkeypatch.setattr(ctypes, "CDLL", Lonely)
    monkeypatch.setattr(threads, "_run_in_threads", noted)
    threads.team.cache_clear()
    try:
        assert torch.equal(turn(x, table, "halves"), expected)
    finally:
        threads.team.cache_clear()
    assert names == {"2 threads"}
