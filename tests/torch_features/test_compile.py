"""torch.compile: whole graphs, forward and backward, on every kind of positions, and two of them at most."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.backends.registry import lookup_backend

import situs
from tests.torch_features.comparing import assert_same, parts, run
from tests.torch_features.forms import FORMS, LENGTHS, Inside, from_bounds, from_mask, packed, right_padded
from tests.torch_features.table import ROWS, SLOW, Cell, covers

pytestmark = [pytest.mark.compiled, pytest.mark.once]

LENGTH = 72
DOCUMENTS = (30, 2, 40)
TRACED = "aot_eager" if SLOW else "eager"
"""For graphs whose operations another test takes apart already: here it is asked whether Dynamo sees them whole."""


def compiled(
    module: nn.Module, backend: str = "aot_eager", *, dynamic: bool | None = None
) -> tuple[Callable[..., Tensor], list[int]]:
    """A module in whole graphs, and a list that grows by one with each of them."""
    graphs: list[int] = []
    make: Any = lookup_backend(backend)

    def count(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Any:
        graphs.append(len(graph.graph.nodes))
        return make(graph, inputs)

    return torch.compile(module, fullgraph=True, dynamic=dynamic, backend=count), graphs


@pytest.mark.thin(2)
@covers("compile", "range", "growing", thin=True)
def test_growing_lengths_are_compiled_at_most_twice(cell: Cell) -> None:
    module = cell.build()
    call, graphs = compiled(module)
    for length in LENGTHS:
        inputs = module.inputs(length)
        assert_same(run(module, inputs, call=call), run(module, inputs))
    assert len(graphs) <= 2


@covers("compile", "mask in graph", thin=True)
def test_padded_positions_are_made_in_the_graph(cell: Cell) -> None:
    module = Inside(form := cell.build(causal=False), from_mask)
    call, graphs = compiled(module)
    for length in LENGTHS if SLOW else (LENGTH,):
        mask, inputs = right_padded(length), form.inputs(length)
        made = run(module, (mask, *inputs), call=call, real=mask)
        assert_same(made, run(module, (mask, *inputs), real=mask))
    assert len(graphs) <= 2


@covers("compile", "padded", thin=True)
def test_padded_positions_are_handed_to_the_graph(cell: Cell) -> None:
    module = cell.build()
    call, _ = compiled(module, TRACED)
    mask, inputs = right_padded(LENGTH).flip(1), module.inputs(LENGTH)
    made = run(module, inputs, call=call, real=mask, positions=from_mask(module, mask, LENGTH))
    assert_same(made, run(module, inputs, real=mask, positions=from_mask(module, mask, LENGTH)))


@covers("compile", "packed", thin=True)
def test_packed_positions_are_handed_to_the_graph(cell: Cell) -> None:
    module = cell.build()
    call, _ = compiled(module, TRACED)
    inputs = module.inputs(sum(DOCUMENTS))
    made = run(module, inputs, call=call, positions=packed(module, DOCUMENTS))
    assert_same(made, run(module, inputs, positions=packed(module, DOCUMENTS)))


@covers("compile", "cu_seqlens in graph", thin=True)
def test_packed_positions_are_made_in_the_graph(cell: Cell) -> None:
    module = Inside(form := cell.build(), from_bounds)
    call, graphs = compiled(module)
    for length in LENGTHS if SLOW else (LENGTH,):
        bounds, inputs = torch.tensor([0, 30, 32, length]), form.inputs(length)
        made = run(module, (bounds, *inputs), call=call)
        assert_same(made, run(module, (bounds, *inputs)))
    assert len(graphs) <= 2


@covers("compile with a cache", "prefill", cached=True, thin=True)
@torch.no_grad()
def test_growing_prompts_are_compiled_at_most_twice(cell: Cell) -> None:
    module = cell.build()
    call, graphs = compiled(module, TRACED)
    for length in LENGTHS:
        inputs = module.inputs(length)
        made, expected = (each(*inputs, cache=module.make_cache(max_length=320)) for each in (call, module))
        assert_same([made], [expected])
    assert len(graphs) <= 2


@pytest.mark.thin(2)
@covers("compile with a cache", "decode", cached=True, thin=True)
@torch.no_grad()
def test_steps_behind_a_growing_cache_are_compiled_at_most_twice(cell: Cell) -> None:
    module = cell.build()
    call, graphs = compiled(module)
    inputs = module.inputs(300)
    cache = module.make_cache(max_length=320)
    made = []
    for part in parts(inputs, module.axis, 40, 1, 1, 30, 1, 77, 1, 148, 1):  # single tokens behind 40, 41, 72, 150, 299
        run_part = call if part[0].shape[module.axis] == 1 else module
        made.append(run_part(*part, cache=cache))
    assert cache.length == 300
    assert_same([torch.cat(made, module.axis)], [module(*inputs, positions=module.places(300))])
    assert len(graphs) <= 2


few = pytest.mark.parametrize("row", ROWS if SLOW else ("rotary", "t5", "shaw"))


@pytest.mark.thin(2)
@pytest.mark.parametrize("row", ROWS if SLOW else ("rotary", "shaw", "xpos", "cope"))
def test_graphs_that_are_dynamic_from_the_start_are_at_most_two(row: str) -> None:
    module = Cell("compile", ("range",), row, "attend").build()
    call, graphs = compiled(module, dynamic=True)
    for length in LENGTHS:
        inputs = module.inputs(length)
        assert_same(run(module, inputs, call=call), run(module, inputs))
    assert len(graphs) <= 2


def test_key_heads_and_a_scale_may_be_symbols() -> None:
    encoding = situs.Shaw(num_heads=4, head_dim=8)
    query, key = torch.randn(2, 4, 40, 8), torch.randn(2, 2, 40, 8)

    def attend(query: Tensor, key: Tensor, scale: float) -> Tensor:
        return situs.attend(query, key, key, encoding=encoding, causal=True, scale=scale)

    call = torch.compile(attend, fullgraph=True, dynamic=True, backend="eager")
    for scale in (0.3, 0.2):
        assert_same([call(query, key, scale)], [attend(query, key, scale)])


@pytest.mark.slow
@few
def test_inductor_gives_the_eager_outputs_and_gradients(row: str) -> None:
    for form in FORMS if SLOW else ["attend"]:
        torch.compiler.reset()
        module = Cell("compile", ("range",), row, form).build()
        call, _ = compiled(module, "inductor")
        for length in LENGTHS if SLOW else (LENGTH,):
            inputs = module.inputs(length)
            assert_same(run(module, inputs, call=call), run(module, inputs))
