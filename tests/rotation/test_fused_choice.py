"""Who takes the compiled loop: which tensors, in whose threads and processes, and what happens where it cannot be."""

import ctypes
import multiprocessing
import os
from array import array

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from situs import compiled
from situs.compiled import threads
from situs.functional import rotate_real
from situs.functional.rotation import Pairing
from situs.rotation import RotationTable, fused, rotate, rotate_both
from situs.rotation.fused import loop, planning
from tests.rotation.fused_cases import (
    SHAPE,
    assert_agree,
    both_pairings,
    needs_the_loop,
    small_tasks,
    table_for,
    turn,
)

pytestmark = needs_the_loop


def noted_passes(monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[int, ...]]]:
    """The shapes of tensors that the loop turns from now on, pass by pass."""
    passes: list[list[tuple[int, ...]]] = []
    original = fused.Plan.rotate

    def noted(plan: fused.Plan, tensors: tuple[Tensor, ...], cos: Tensor, sin: Tensor) -> list[Tensor]:
        passes.append([tuple(x.shape) for x in tensors])
        return original(plan, tensors, cos, sin)

    monkeypatch.setattr(fused.Plan, "rotate", noted)
    return passes


@both_pairings
def test_queries_and_keys_that_lie_differently_are_turned_apart(pairing: Pairing) -> None:
    query, key = torch.randn(2, 4, 48, 64), torch.randn(2, 48, 4, 64).transpose(1, 2)
    table = table_for(1, 1, 48, 64, torch.float32)
    assert table.plan_for((query, key), pairing) is None
    for turned, x in zip(rotate_both(query, key, table, pairing), (query, key), strict=True):
        assert torch.equal(turned, rotate_real(x, table.cos, table.sin, pairing))


@both_pairings
def test_queries_and_keys_take_one_pass(pairing: Pairing, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = noted_passes(monkeypatch)
    query, key = torch.randn(2, 8, 48, 64), torch.randn(2, 4, 48, 64)
    table = table_for(1, 1, 48, 64, torch.float32)
    rotate_both(query, key, table, pairing)
    rotate_both(query.requires_grad_(), key, table, pairing)
    assert [[shape[1] for shape in each] for each in passes] == [[8, 4], [8], [4]]


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
        return RotationTable(cos, cos).plan_for((x,), "halves") is not None

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
        assert table.plan_for((x,), "halves") is None
    assert not serves(x.double(), cos)


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled._wanted.cache_clear()
    monkeypatch.setenv("SITUS_FUSED", "0")
    try:
        assert not fused.available()
        table = table_for(1, 1, SHAPE[2], 64, torch.float32)
        assert table.plan_for((torch.zeros(SHAPE),), "halves") is None
    finally:
        compiled._wanted.cache_clear()


@both_pairings
@pytest.mark.parametrize("grad", [False, True])
def test_rotate_takes_the_compiled_loop_where_it_serves(
    pairing: Pairing, grad: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = noted_passes(monkeypatch)
    table = table_for(1, 1, SHAPE[2], 40, torch.float32)
    rotate(torch.randn(SHAPE, requires_grad=grad), table, pairing)
    rotate(torch.randn(SHAPE)[:1, :1], table, pairing)
    rotate(torch.randn(SHAPE).transpose(2, 3).contiguous().transpose(2, 3), table, pairing)
    assert taken == [[SHAPE], [(1, 1, *SHAPE[2:])]]


@both_pairings
def test_a_plan_is_looked_up_once_also_where_gradients_are_wanted(
    pairing: Pairing, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, x = table_for(1, 1, SHAPE[2], 64, torch.float32), torch.randn(SHAPE, requires_grad=True)
    asked, original = [], RotationTable.plan_for

    def noted(table: RotationTable, tensors: tuple[Tensor, ...], pairing: Pairing) -> fused.Plan | None:
        asked.append([tuple(x.shape) for x in tensors])
        return original(table, tensors, pairing)

    monkeypatch.setattr(RotationTable, "plan_for", noted)
    rotate(x, table, pairing)
    assert asked == [[SHAPE]]


def test_little_work_is_left_to_one_thread(two_threads: None) -> None:
    table = table_for(16, 1, 1, 64, torch.float32)
    plan = table.plan_for((torch.zeros(16, 8, 1, 64),), "halves")
    assert plan is not None
    assert plan.threads == 1


@both_pairings
def test_the_way_back_takes_the_loop_too(pairing: Pairing, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the table is part of a larger one, and its negative is not."""
    whole = table_for(2, 1, 60, 64, torch.float32)
    table = RotationTable(whole.cos[:, :, : SHAPE[2]], whole.sin[:, :, : SHAPE[2]])
    x = torch.randn(SHAPE, requires_grad=True)
    turned = rotate(x, table, pairing)
    taken = noted_passes(monkeypatch)
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
    monkeypatch.setattr(compiled, "_failure", None)
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
