"""Tables that fit and tables that do not, whoever turns: what comes out has the shape of what went in."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from situs.functional import rotary_frequencies, rotate_real, unit_circle
from situs.functional.rotation import PAIRINGS, Pairing
from situs.rotation import RotationTable, rotate, rotate_both
from situs.rotation.fused import planning
from tests.raising import raises_exactly

both_pairings = pytest.mark.parametrize("pairing", PAIRINGS)


def table_of(*shape: int, turning: int = 8) -> RotationTable:
    """A table of that shape, without its pairs, for positions from 500 on."""
    count = torch.Size(shape).numel()
    positions = torch.arange(500, 500 + count).view(*shape, 1)
    return RotationTable(*unit_circle(positions, rotary_frequencies(turning), torch.float32))


def misfit(table: tuple[int, ...], x: tuple[int, ...]) -> str:
    return (
        "table must have an entry for every position of x, and for one or all of its rows and heads, since it rotates "
        f"each vector; got a table of shape {table} for x of shape {x}."
    )


# shapes of tables, without their pairs, and of vectors
FITTING = [
    ((1, 1, 5), (5, 8)),
    ((1, 1, 5), (3, 5, 8)),
    ((1, 3, 5), (3, 5, 8)),
    ((1, 1, 5), (2, 3, 5, 8)),
    ((2, 3, 5), (2, 3, 5, 8)),
    ((1, 1, 5), (2, 2, 3, 5, 8)),
    ((2, 3, 5), (4, 2, 3, 5, 8)),
    ((3, 5), (2, 3, 5, 8)),
    ((5,), (2, 3, 5, 8)),
    ((1, 1, 1), (2, 3, 1, 8)),
    ((1, 1, 5), (0, 3, 5, 8)),
]
MISFITS = [
    ((1, 1, 5), (1, 2, 1, 8)),
    ((1, 1, 1), (1, 2, 5, 8)),
    ((1, 1, 5), (2, 1, 8)),
    ((2, 1, 5), (3, 5, 8)),
    ((1, 2, 5), (3, 5, 8)),
    ((1, 2, 5), (5, 8)),
    ((2, 1, 5), (1, 3, 5, 8)),
    ((1, 3, 5), (2, 1, 5, 8)),
    ((3, 1, 5), (4, 2, 1, 5, 8)),
    ((2, 1, 1, 5), (2, 3, 5, 8)),
    ((4,), (2, 3, 5, 8)),
    ((1, 1, 5), (2, 3, 5, 6)),
]


def compiled(x: Tensor, table: RotationTable, pairing: Pairing) -> Tensor:
    torch._dynamo.reset()
    return torch.compile(lambda x: rotate(x, table, pairing), backend="aot_eager")(x)


def traced(x: Tensor, table: RotationTable, pairing: Pairing) -> Tensor:
    turned: Tensor = torch.jit.trace(lambda x: rotate(x, table, pairing), x, check_trace=False)(x)
    return turned


def on_meta(x: Tensor, table: RotationTable, pairing: Pairing) -> Tensor:
    return rotate(x.to("meta"), RotationTable(table.cos.to("meta"), table.sin.to("meta")), pairing)


def learning(x: Tensor, table: RotationTable, pairing: Pairing) -> Tensor:
    return rotate(x, RotationTable(table.cos.clone().requires_grad_(), table.sin), pairing)


def watched(x: Tensor, table: RotationTable, pairing: Pairing) -> Tensor:
    return rotate(x.requires_grad_(), table, pairing)


WAYS: dict[str, Callable[[Tensor, RotationTable, Pairing], Tensor]] = {
    "eager": rotate,
    "watched": watched,
    "a table that learns": learning,
    "on meta": on_meta,
    "traced": traced,
}
every_way = pytest.mark.parametrize("way", WAYS)
quietly_traced = pytest.mark.filterwarnings(
    "ignore:.*torch.jit.*:DeprecationWarning", "ignore::torch.jit.TracerWarning"
)


@quietly_traced
@pytest.mark.parametrize(("table_shape", "shape"), FITTING, ids=str)
@every_way
@both_pairings
def test_what_fits_is_turned_and_keeps_its_shape(
    pairing: Pairing, way: str, table_shape: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    x, table = torch.randn(shape), table_of(*table_shape, turning=6)
    turned = WAYS[way](x, table, pairing)
    assert turned.shape == shape
    if way != "on meta":
        first = (0,) * max(0, table.cos.ndim - x.ndim)
        expected = rotate_real(x, table.cos[first], table.sin[first], pairing)
        torch.testing.assert_close(turned, expected, atol=1e-6, rtol=0.0)


@quietly_traced
@pytest.mark.parametrize(("table_shape", "shape"), MISFITS, ids=str)
@every_way
@both_pairings
def test_what_does_not_fit_is_refused_whoever_turns(
    pairing: Pairing, way: str, table_shape: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    with raises_exactly(ValueError, misfit((*table_shape, 4), shape)):
        WAYS[way](torch.randn(shape), table_of(*table_shape), pairing)


@pytest.mark.thin(2)
@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore:Dynamo:UserWarning")
@pytest.mark.parametrize(("table_shape", "shape"), [MISFITS[0], MISFITS[3], MISFITS[7]], ids=str)
@both_pairings
def test_what_does_not_fit_is_refused_in_compiled_graphs_too(
    pairing: Pairing, table_shape: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    with raises_exactly(ValueError, misfit((*table_shape, 4), shape)):
        compiled(torch.randn(shape), table_of(*table_shape), pairing)


@pytest.mark.compiled
@pytest.mark.parametrize(("table_shape", "shape"), FITTING[:4], ids=str)
def test_what_fits_keeps_its_shape_in_compiled_graphs(table_shape: tuple[int, ...], shape: tuple[int, ...]) -> None:
    x, table = torch.randn(shape), table_of(*table_shape)
    torch.testing.assert_close(compiled(x, table, "halves"), rotate(x, table, "halves"), atol=1e-6, rtol=0.0)


@pytest.mark.compiled
def test_tables_of_growing_lengths_compile_at_most_twice() -> None:
    torch._dynamo.reset()
    times: list[int] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Tensor]:
        times.append(len(inputs))
        return graph.forward

    def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        return rotate(x, RotationTable(cos, sin), "halves")

    run = torch.compile(turn, fullgraph=True, backend=backend)
    for length in (7, 16, 33, 64, 257):
        x, table = torch.randn(2, 3, length, 8), table_of(1, 1, length)
        torch.testing.assert_close(run(x, table.cos, table.sin), rotate(x, table, "halves"), atol=1e-6, rtol=0.0)
    assert len(times) <= 2


@pytest.mark.parametrize("loop", [True, False])
@both_pairings
def test_queries_and_keys_of_any_axes_fit_together(
    pairing: Pairing, loop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not loop:
        monkeypatch.setattr(planning, "available", lambda: False)
    query, key, table = torch.randn(2, 3, 5, 8), torch.randn(2, 1, 5, 8), table_of(1, 1, 5)
    whole = rotate_both(query, key, table, pairing)
    for number in range(2):
        parts = rotate_both(query[number], key[number], table, pairing)
        assert [each.shape for each in parts] == [(3, 5, 8), (1, 5, 8)]
        for part, of_all in zip(parts, whole, strict=True):
            torch.testing.assert_close(part, of_all[number], atol=1e-6, rtol=0.0)
    with raises_exactly(ValueError, misfit((1, 1, 5, 4), (2, 3, 4, 8))):
        rotate_both(query[:, :, 1:], key[:, :, 1:], table, pairing)
