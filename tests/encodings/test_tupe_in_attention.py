"""TUPE within attention, in each variant: decoding, padding, gradients, half precision, compiling and exporting."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.backends.debugging import aot_eager

from situs import Positions, Tupe
from situs.attention import reference
from situs.positions import PositionsLike
from tests.encodings.score_situations import (
    HEAD_DIM,
    HEADS,
    Layer,
    assert_exports,
    assert_gradients,
    ranges_and_bare_ids,
    stirred,
)
from tests.encodings.test_tupe import all_variants

half_dtypes = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
UNSORTED = torch.tensor([5, 0, 1, 7, 2, 30, 3, 3, 9])


def made(num_heads: int = HEADS, **options: Any) -> Tupe:
    return stirred(Tupe(**{"dim": 6, "num_heads": num_heads, "head_dim": HEAD_DIM, "max_length": 64, **options}))


@pytest.mark.parametrize("chunks", [(1,) * 7, (3, 4), (5, 1, 1)], ids=str)
@all_variants
def test_cached_decoding_gives_the_rows_of_the_full_pass(options: dict[str, Any], chunks: tuple[int, ...]) -> None:
    encoding = made(**options)
    q, k, v = torch.randn(3, 1, HEADS, 7, HEAD_DIM, dtype=torch.float64)
    whole, last = reference(q, k, v, encoding=encoding, causal=True), 0
    for chunk in chunks:
        now, last = slice(last, last + chunk), last + chunk
        step = reference(q[:, :, now], k[:, :, :last], v[:, :, :last], encoding=encoding, causal=True)
        torch.testing.assert_close(step, whole[:, :, now])


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "full"])
@all_variants
def test_a_document_or_padded_row_is_as_if_alone(options: dict[str, Any], causal: bool) -> None:
    encoding = made(**options)
    q, k, v = torch.randn(3, 1, HEADS, 7, HEAD_DIM, dtype=torch.float64)
    last, among = torch.arange(7) >= 3, torch.tensor([0, 1, 0, 1, 1, 0, 1]).bool()
    for real, places in (
        (last, Positions.packed([3, 4])),
        (last, Positions.from_mask(last[None], side="left")),
        (among, Positions.from_mask(among[None])),
    ):
        alone = reference(q[:, :, real], k[:, :, real], v[:, :, real], encoding=encoding, causal=causal)
        together = reference(q, k, v, encoding=encoding, causal=causal, positions=places)
        torch.testing.assert_close(together[:, :, real], alone)


@pytest.mark.thin(2)
@ranges_and_bare_ids
@all_variants
def test_every_gradient_is_right(options: dict[str, Any], places: tuple[PositionsLike, PositionsLike]) -> None:
    # finite differences take every parameter in turn
    assert_gradients(Tupe(dim=4, num_heads=2, head_dim=HEAD_DIM, max_length=10, **options), places)


@half_dtypes
@all_variants
@torch.no_grad()
def test_large_parameters_in_half_precision_neither_overflow_nor_blur(
    options: dict[str, Any], dtype: torch.dtype
) -> None:
    encoding = made(num_heads=2, **options)
    for projection in (encoding.query_projection, encoding.key_projection):
        projection.weight.mul_(300)
    q, k = (3e4 * torch.randn(2, 1, 2, 9, HEAD_DIM)).clamp(-6e4, 6e4).to(dtype)
    for places in (Positions.range(9), UNSORTED):
        for module in (encoding, copy.deepcopy(encoding).to(dtype)):
            exact = copy.deepcopy(module).double()(places)
            actual = module(places)
            assert actual.dtype == torch.float32
            assert float(exact.abs().max()) > 1e5
            assert float((actual.double() - exact).abs().max()) <= 1e-5 * float(exact.abs().max())
            out = reference(q, k, k, encoding=module, positions=places)
            assert out.dtype == dtype
            assert bool(torch.isfinite(out).all())


@all_variants
@torch.no_grad()
def test_autocast_changes_no_attention(options: dict[str, Any]) -> None:
    encoding = made(num_heads=2, **options)
    q, k = torch.randn(2, 1, 2, 9, HEAD_DIM)
    for places in (Positions.range(9), UNSORTED):
        plain, out = encoding(places), reference(q, k, k, encoding=encoding, positions=places)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(encoding(places), plain)
            assert torch.equal(reference(q, k, k, encoding=encoding, positions=places), out)


@pytest.mark.thin(4)
@pytest.mark.compiled
@all_variants
def test_growing_lengths_compile_at_most_twice(options: dict[str, Any]) -> None:
    torch._dynamo.reset()
    times: list[int] = []

    def counting(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Any:
        times.append(len(graph.graph.nodes))
        return aot_eager(graph, inputs)

    layer = Layer(made(num_heads=2, **options))
    compiled = torch.compile(layer, fullgraph=True, backend=counting)
    for length in (7, 16, 33):
        q, k, v = torch.randn(3, 1, 2, length, HEAD_DIM)
        torch.testing.assert_close(compiled(q, k, v), layer(q, k, v), atol=2e-5, rtol=1e-4)
    assert len(times) <= 2


@pytest.mark.thin(4)
@pytest.mark.compiled
@all_variants
def test_an_exported_layer_takes_any_length(options: dict[str, Any]) -> None:
    assert_exports(made(num_heads=2, **options))
