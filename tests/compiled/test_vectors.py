"""Vectors of programs compute what torch does."""

import ctypes
import math
from array import array
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from situs import compiled

if not compiled.available():
    pytest.skip("llvmlite is not installed", allow_module_level=True)

from situs.compiled.program import FLOAT, INT32, Program, Value, whole
from situs.compiled.vectors import Vectors, lanes

pytestmark = pytest.mark.skipif(not lanes(), reason="attention is not compiled for this machine")
WIDTHS = [each for each in (8, 16) if each <= lanes()]


def ran(write: Callable[[Vectors, dict[str, Value]], None], *tensors: Tensor, width: int) -> None:
    """Compile a program that is given the addresses of tensors, and run it."""
    program = Program()
    given = program.read([str(number) for number in range(len(tensors))], program.given)
    write(Vectors(program, width), given)
    program.build.ret_void()
    address = program.compiled()
    numbers = array("q", [each.data_ptr() for each in tensors])
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)(numbers.buffer_info()[0])


@pytest.mark.parametrize("width", WIDTHS)
def test_exp_is_right_to_a_unit_in_the_last_place_and_nothing_far_below(width: int) -> None:
    x = torch.cat([torch.linspace(-87.3, 20, 4096 - 64), torch.linspace(-1e-6, 1e-6, 64)])
    found = torch.empty_like(x)

    def write(vectors: Vectors, given: dict[str, Value]) -> None:
        with vectors.program.each(whole(0), whole(4 * len(x)), 4 * width) as place:
            source, target = (vectors.program.moved(given[name], place) for name in ("0", "1"))
            vectors.store(vectors.exp(vectors.load(source)), target)

    ran(write, x, found, width=width)
    exact = x.double().exp()
    units = (found.double() - exact).abs() / (torch.finfo(torch.float32).eps * exact)
    assert float(units.max()) < 1.0


@pytest.mark.parametrize("width", WIDTHS)
def test_exp_of_what_is_hidden_is_0_and_of_no_number_is_none(width: int) -> None:
    x = torch.full((width,), -math.inf)
    x[0], x[1], x[2], x[3] = math.nan, 0.0, -87.4, torch.finfo(torch.float32).min
    found = torch.empty_like(x)
    ran(lambda vectors, given: vectors.store(vectors.exp(vectors.load(given["0"])), given["1"]), x, found, width=width)
    assert found[0].isnan()
    assert found[1:].tolist() == [1.0] + [0.0] * (width - 2)


@pytest.mark.parametrize("width", WIDTHS)
def test_rows_become_columns(width: int) -> None:
    x = torch.arange(width * width, dtype=torch.float32).view(width, width)
    found = torch.empty_like(x)

    def write(vectors: Vectors, given: dict[str, Value]) -> None:
        rows = [vectors.load(given["0"], 4 * width * row) for row in range(width)]
        for row, vector in enumerate(vectors.transposed(rows)):
            vectors.store(vector, given["1"], 4 * width * row)

    ran(write, x, found, width=width)
    assert torch.equal(found, x.T)


@pytest.mark.parametrize("width", WIDTHS)
def test_lanes_that_are_not_chosen_are_neither_read_nor_written(width: int) -> None:
    x, found = torch.full((width,), 3.0), torch.full((width,), 7.0)

    def write(vectors: Vectors, given: dict[str, Value]) -> None:
        from llvmlite import ir

        chosen = vectors.between(ir.Constant(INT32, 2), ir.Constant(INT32, 5))
        vectors.store_some(chosen, vectors.load_some(chosen, given["0"]), given["1"])
        none = vectors.between(ir.Constant(INT32, 5), ir.Constant(INT32, 2))
        vectors.load_some(none, whole(0))  # of address 0, which nobody may read

    ran(write, x, found, width=width)
    assert found.tolist() == [7.0] * 2 + [3.0] * 3 + [7.0] * (width - 5)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_vector_is_reduced_to_its_greatest_number_and_to_its_sum(width: int) -> None:
    x = torch.randn(width).mul(8).round()  # whole numbers, whose sums are exact
    found = torch.empty(2)

    def write(vectors: Vectors, given: dict[str, Value]) -> None:
        vector, program = vectors.load(given["0"]), vectors.program
        program.store_one(vectors.reduced(vector, vectors.greater), given["1"])
        program.store_one(vectors.reduced(vector, vectors.build.fadd), given["1"], 4)

    ran(write, x, found, width=width)
    assert found.tolist() == [float(x.max()), float(x.sum())]


@pytest.mark.parametrize("rounds", [0, 1, 5])
def test_a_loop_hands_on_what_its_body_leaves(rounds: int) -> None:
    found = torch.empty(1)

    def write(vectors: Vectors, given: dict[str, Value]) -> None:
        program, build = vectors.program, vectors.build
        one = program.load_one(FLOAT, given["1"])
        with program.each_with(whole(0), whole(rounds), [one, one]) as (_, values):
            values[:] = values[1], build.fadd(*values)
        program.store_one(values[1], given["0"])

    ran(write, found, torch.ones(1), width=WIDTHS[0])
    assert found.item() == {0: 1, 1: 2, 5: 13}[rounds]  # Fibonacci's
