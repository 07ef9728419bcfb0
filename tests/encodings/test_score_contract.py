"""What every content-based encoding owes, whatever its formula: in each variant, at positions near and far."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.backends.debugging import aot_eager

import situs
from situs import CoPE, Deberta, Positions, ScoreEncoding, Shaw, TransformerXL, ViTDet
from situs.attention import reference
from situs.encodings.deberta import TERMS
from situs.positions import PositionsLike
from tests.encodings.score_situations import (
    FAR,
    HEAD_DIM,
    HEADS,
    VARIANTS,
    Layer,
    assert_exports,
    assert_gradients,
    ranges_and_bare_ids,
    stirred,
)

SIZES: dict[Any, dict[str, Any]] = {
    CoPE: {"max_position": 6},
    Shaw: {"max_distance": 2},
    TransformerXL: {"dim": 6},
    Deberta: {"dim": 6, "max_distance": 16},
}
# finite differences take every parameter in turn
SMALL: dict[Any, dict[str, Any]] = {
    CoPE: {"max_position": 3},
    Shaw: {"max_distance": 2},
    TransformerXL: {"dim": 4},
    Deberta: {"dim": 3, "max_distance": 2},
}


def made(cls: Any, options: dict[str, Any], *, num_heads: int = HEADS) -> ScoreEncoding:
    encoding: ScoreEncoding = cls(**{"num_heads": num_heads, "head_dim": HEAD_DIM, **SIZES[cls], **options})
    return stirred(encoding)


def over(chosen: dict[Any, list[dict[str, Any]]]) -> pytest.MarkDecorator:
    each = [(cls, options) for cls, several in chosen.items() for options in several]
    shown = [", ".join(f"{name}={value}" for name, value in options.items()) for _, options in each]
    ids = [f"{cls.__name__}({words})" for (cls, _), words in zip(each, shown, strict=True)]
    return pytest.mark.parametrize(("cls", "options"), each, ids=ids)


every_variant = over(VARIANTS)
every_compiled = over(
    {
        CoPE: [{}],
        Shaw: [{}],
        TransformerXL: [{}],
        Deberta: [{"terms": ("c2p", "p2c")}, {"terms": TERMS}],
    }
)
half_dtypes = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])


def test_every_content_based_encoding_of_the_package_is_among_these() -> None:
    classes = {situs.entry(name).cls for name in situs.names()}
    own = {each for each in classes if each.__module__.startswith("situs.") and issubclass(each, ScoreEncoding)}
    # which have two axes, or features, and tests of their own
    assert own == {*VARIANTS, ViTDet, situs.ProjectedBias, situs.GatedBias, situs.Forgetting}
    assert all("relative" in made(cls, {}).tags for cls in VARIANTS)


@every_variant
def test_its_configuration_makes_it_again(cls: Any, options: dict[str, Any]) -> None:
    encoding = made(cls, options)
    again = cls(**encoding.config)
    assert again.config == encoding.config
    again.load_state_dict(encoding.state_dict())
    x = torch.randn(1, HEADS, 5, HEAD_DIM)
    assert torch.equal(again(x, x), encoding(x, x))
    assert torch.equal(reference(x, x, x, encoding=again), reference(x, x, x, encoding=encoding))


@pytest.mark.parametrize("start", [70_000, FAR])
@every_variant
def test_only_the_offset_counts_however_far(cls: Any, options: dict[str, Any], start: int) -> None:
    encoding = made(cls, options)
    for length in (1, 6):
        q, k, v = torch.randn(3, 1, HEADS, length, HEAD_DIM)
        assert torch.equal(encoding(q, k, start, start), encoding(q, k))
        ids = torch.tensor([4, 0, 90, 1, 2, 2])[:length]
        assert torch.equal(encoding(q, k, ids + start), encoding(q, k, ids))
        there = reference(q, k, v, encoding=encoding, causal=True, positions=start, key_positions=start)
        assert torch.equal(there, reference(q, k, v, encoding=encoding, causal=True))


@pytest.mark.parametrize("chunks", [(1,) * 7, (3, 4), (5, 1, 1)], ids=str)
@every_variant
def test_cached_decoding_gives_the_rows_of_the_full_pass(
    cls: Any, options: dict[str, Any], chunks: tuple[int, ...]
) -> None:
    encoding = made(cls, options)
    q, k, v = torch.randn(3, 1, HEADS, 7, HEAD_DIM, dtype=torch.float64)
    whole, last = reference(q, k, v, encoding=encoding, causal=True), 0
    for chunk in chunks:
        now, last = slice(last, last + chunk), last + chunk
        step = reference(q[:, :, now], k[:, :, :last], v[:, :, :last], encoding=encoding, causal=True)
        torch.testing.assert_close(step, whole[:, :, now])


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "full"])
@every_variant
def test_a_document_or_padded_row_is_as_if_alone(cls: Any, options: dict[str, Any], causal: bool) -> None:
    encoding = made(cls, options)
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


@pytest.mark.thin(6)
@ranges_and_bare_ids
@every_variant
def test_every_gradient_is_right(
    cls: Any, options: dict[str, Any], places: tuple[PositionsLike, PositionsLike]
) -> None:
    assert_gradients(cls(**{"num_heads": 2, "head_dim": HEAD_DIM, **SMALL[cls], **options}), places)


UNSORTED = torch.tensor([5, 0, 1, 7, 2, 30, 3, 3, 9])


@half_dtypes
@every_variant
@torch.no_grad()
def test_tokens_too_large_for_products_in_half_precision_neither_overflow_nor_blur(
    cls: Any, options: dict[str, Any], dtype: torch.dtype
) -> None:
    encoding = made(cls, options, num_heads=2)
    q, k = (3e4 * torch.randn(2, 1, 2, 9, HEAD_DIM)).clamp(-6e4, 6e4).to(dtype)
    for places in (None, UNSORTED):
        for module in (encoding, copy.deepcopy(encoding).to(dtype)):
            exact = copy.deepcopy(module).double()(q.double(), k.double(), places)
            actual = module(q, k, places)
            assert actual.dtype == torch.float32
            assert bool(torch.isfinite(actual).all())
            assert float((actual.double() - exact).abs().max()) <= 1e-5 * float(exact.abs().max())
            out = reference(q, k, k, encoding=module, positions=places)
            assert out.dtype == dtype
            assert bool(torch.isfinite(out).all())


@every_variant
@torch.no_grad()
def test_autocast_changes_nothing_since_a_rounded_score_would_blur_positions(cls: Any, options: dict[str, Any]) -> None:
    encoding = made(cls, options, num_heads=2)
    q, k = torch.randn(2, 1, 2, 9, HEAD_DIM)
    half = q.bfloat16(), k.bfloat16()
    for places in (None, UNSORTED):
        plain, out = encoding(q, k, places), reference(q, k, k, encoding=encoding, positions=places)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(encoding(q, k, places), plain)
            assert torch.equal(reference(q, k, k, encoding=encoding, positions=places), out)
            assert torch.equal(encoding(*half, places), encoding(half[0].float(), half[1].float(), places))


@pytest.mark.thin(10)
@pytest.mark.compiled
@every_compiled
def test_growing_lengths_compile_at_most_twice(cls: Any, options: dict[str, Any]) -> None:
    torch._dynamo.reset()
    times: list[int] = []

    def counting(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Any:
        times.append(len(graph.graph.nodes))
        return aot_eager(graph, inputs)

    layer = Layer(made(cls, options, num_heads=2))
    compiled = torch.compile(layer, fullgraph=True, backend=counting)
    for length in (7, 16, 33):
        q, k, v = torch.randn(3, 1, 2, length, HEAD_DIM)
        torch.testing.assert_close(compiled(q, k, v), layer(q, k, v), atol=2e-5, rtol=1e-4)
    assert len(times) <= 2


@pytest.mark.thin(10)
@pytest.mark.compiled
@every_compiled
def test_an_exported_layer_takes_any_length(cls: Any, options: dict[str, Any]) -> None:
    assert_exports(made(cls, options, num_heads=2))
