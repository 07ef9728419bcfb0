"""Compiled and exported models: no graph breaks, few compilations, real-valued graphs."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import situs
from situs import Positions
from situs.attention import reference

pytestmark = pytest.mark.compiled


class Model(nn.Module):
    """Two attention layers that share positions."""

    def __init__(self, encoding: situs.Encoding) -> None:
        super().__init__()
        self.encoding = encoding
        self.projections = nn.ModuleList(nn.Linear(32, 96) for _ in range(2))

    def forward(self, x: Tensor, positions: Positions | Tensor | None = None) -> Tensor:
        positions = Positions.range(x.shape[1]) if positions is None else positions
        if isinstance(self.encoding, situs.InputEncoding):
            x = self.encoding(x, positions)
        for projection in self.projections:
            q, k, v = projection(x).view(*x.shape[:2], 3, 2, 16).permute(2, 0, 3, 1, 4)
            out = reference(q, k, v, encoding=self.encoding, causal=True, positions=positions)
            x = x + out.transpose(1, 2).flatten(2)
        return x


@pytest.fixture
def counted() -> Callable[[nn.Module], tuple[Callable[..., Tensor], list[int]]]:
    """Compile a module and count how often."""
    torch._dynamo.reset()

    def make(module: nn.Module) -> tuple[Callable[..., Tensor], list[int]]:
        times: list[int] = []

        def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Tensor]:
            times.append(len(graph.graph.nodes))
            return graph.forward

        return torch.compile(module, fullgraph=True, backend=backend), times

    return make


@pytest.mark.thin(5)
@pytest.mark.parametrize("name", ["none", "sinusoidal", "learned", "rotary", "xpos"])
def test_growing_lengths_compile_at_most_twice(name: str, counted: Callable) -> None:
    model = Model(situs.entry(name).build(dim=32, head_dim=16, max_length=4096))
    compiled, times = counted(model)
    for length in (7, 16, 33, 64, 100, 257):
        x = torch.randn(1, length, 32)
        torch.testing.assert_close(compiled(x), model(x), atol=2e-5, rtol=1e-4)
    assert len(times) <= 2


SCALINGS = {
    "dynamic ntk": situs.DynamicNTKScaling(factor=2.0, original_length=40),
    "longrope": situs.LongRoPE(
        factor=4.0, original_length=40, short_factors=(1.0,) * 8, long_factors=tuple(range(1, 9))
    ),
    "yarn": situs.YaRN(factor=4.0, original_length=40),
}


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", SCALINGS)
def test_growing_lengths_compile_a_scaled_rotary_at_most_twice(name: str, counted: Callable) -> None:
    model = Model(situs.Rotary(head_dim=16, scaling=SCALINGS[name]))
    compiled, times = counted(model)
    for length in (7, 16, 33, 39, 40, 41, 64, 100, 257):
        x = torch.randn(1, length, 32)
        torch.testing.assert_close(compiled(x), model(x), atol=2e-5, rtol=1e-4)
    assert len(times) <= 2


@pytest.mark.parametrize("name", ["dynamic ntk", "longrope"])
def test_growing_lengths_of_decoded_sequences_compile_at_most_twice(name: str, counted: Callable) -> None:
    rotary = situs.Rotary(head_dim=16, scaling=SCALINGS[name])
    compiled, times = counted(rotary)
    x = torch.randn(1, 2, 1, 16)
    for start in (5, 6, 38, 39, 40, 41, 100, 4000):
        last = Positions.range(1, start=start, sequence_length=start + 1)
        again = Positions.range(1, start=start, sequence_length=start + 1)
        torch.testing.assert_close(compiled(x, last), rotary(x, again))
    assert len(times) <= 2


SPLITS: dict[str, situs.Split] = {
    "axial": situs.Axial(axes=2),
    "shared axial": situs.Axial(axes=2, ladder="shared"),
    "m-rope": situs.Sections(sizes=(2, 3, 3)),
    "interleaved m-rope": situs.Sections(sizes=(4, 2, 2), order="interleaved"),
}


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", SPLITS)
def test_growing_lengths_of_grids_compile_at_most_twice(name: str, counted: Callable) -> None:
    split = SPLITS[name]
    rotary = situs.Rotary(head_dim=16, split=split)
    compiled, times = counted(rotary)
    for length in (7, 16, 33, 64, 100, 257):
        x, ids = torch.randn(1, 2, length, 16), torch.randint(0, 100_000, (1, length, split.axes))
        torch.testing.assert_close(compiled(x, ids), rotary(x, ids))
    assert len(times) <= 2


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", SCALINGS)
@pytest.mark.parametrize("strict", [False, True], ids=["traced", "by dynamo"])
def test_an_exported_rotary_chooses_by_the_length_it_is_given(name: str, strict: bool) -> None:
    rotary = situs.Rotary(head_dim=16, scaling=SCALINGS[name])
    length = torch.export.Dim("length", min=2, max=4096)
    program = torch.export.export(rotary, (torch.randn(1, 2, 10, 16),), dynamic_shapes=({2: length},), strict=strict)
    for given in (7, 39, 40, 41, 300):
        x = torch.randn(1, 2, given, 16)
        torch.testing.assert_close(program.module()(x), rotary(x), atol=1e-6, rtol=1e-6)


def test_growing_cache_offsets_compile_at_most_twice(counted: Callable) -> None:
    rotary = situs.Rotary(head_dim=16)
    compiled, times = counted(rotary)
    x = torch.randn(1, 2, 1, 16)
    for start in (5, 6, 7, 100, 4000):
        torch.testing.assert_close(compiled(x, Positions.range(1, start=start)), rotary(x, start))
    assert len(times) <= 2


@pytest.mark.parametrize("pairing", ["interleaved", "halves"])
def test_inductor_gives_the_eager_result_and_gradient(pairing: str) -> None:
    torch._dynamo.reset()
    rotary = situs.Rotary(head_dim=16, pairing=pairing)  # type: ignore[arg-type]
    compiled = torch.compile(rotary, fullgraph=True)
    x = torch.randn(2, 3, 40, 16, requires_grad=True)
    positions = Positions.range(40, start=1_000_000)
    results, gradients = [], []
    for run in (rotary, compiled):
        result = run(x, positions)
        results.append(result)
        gradients.append(torch.autograd.grad(result.square().sum() + result.sum(), x)[0])
    torch.testing.assert_close(results[1], results[0], atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(gradients[1], gradients[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("pairing", ["interleaved", "halves"])
def test_an_exported_rotary_is_real_valued_and_takes_any_length(pairing: str) -> None:
    rotary = situs.Rotary(head_dim=16, pairing=pairing)  # type: ignore[arg-type]
    length = torch.export.Dim("length", min=2, max=4096)
    x, ids = torch.randn(1, 2, 10, 16), torch.arange(10)[None]
    program = torch.export.export(rotary, (x, ids), dynamic_shapes=({2: length}, {1: length}), strict=False)
    for node in program.graph.nodes:
        value = node.meta.get("val")
        assert not (isinstance(value, Tensor) and value.is_complex())
    longer, far = torch.randn(1, 2, 300, 16), torch.arange(300)[None] + 5_000_000
    torch.testing.assert_close(program.module()(longer, far), rotary(longer, far), atol=1e-6, rtol=1e-6)


def test_a_compiled_learned_table_still_refuses_positions_beyond_it() -> None:
    torch._dynamo.reset()
    learned = situs.Learned(dim=8, max_length=12)
    compiled = torch.compile(learned, fullgraph=True, backend="aot_eager")
    compiled(torch.randn(1, 4, 8), torch.tensor([[8, 9, 10, 11]]))
    with pytest.raises(RuntimeError, match=r"positions must lie in 0 \.\. 11"):
        compiled(torch.randn(1, 4, 8), torch.tensor([[8, 9, 10, 12]]))


def test_equal_tables_of_several_layers_are_made_once() -> None:
    torch._dynamo.reset()
    seen: list[int] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Tensor]:
        from torch._functorch.aot_autograd import aot_module_simplified

        def count(inner: torch.fx.GraphModule, inputs: object) -> Callable[..., Tensor]:
            seen.append(sum(node.target is torch.ops.aten.cos.default for node in inner.graph.nodes))
            return inner.forward

        return aot_module_simplified(graph, inputs, fw_compiler=count)  # type: ignore[arg-type]

    model = Model(situs.Rotary(head_dim=16))
    with torch.no_grad():
        torch.compile(model, fullgraph=True, backend=backend)(torch.randn(1, 20, 32))
    assert seen == [1]
