"""What cannot be served is refused, with rule, reason, value and cure, and by every kernel alike."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jaxtyping
import pytest
import torch

import situs
from situs import Positions, attend, explain
from situs.attention import reference
from tests.attention.attention_cases import HEADS, WIDTH, build, tensors
from tests.raising import SHAPES_ARE_CHECKED, raises_exactly


def _cannot(impl: str, why: str) -> str:
    return f'impl="{impl}" cannot serve this call, since {why}. Use impl="auto".'


@pytest.mark.parametrize(
    ("name", "impl", "call", "why"),
    [
        ("t5", "flash", {}, "T5Bias acts on scores or values"),
        ("shaw of values", "flash", {}, "Shaw acts on scores or values"),
        ("rotary", "flash", {"window": 2}, "a mask or a window is more than a causal flag"),
        (
            "rotary",
            "flash",
            {"positions": Positions.packed([2, 2])},
            "a causal flag does not say which keys queries at these positions see",
        ),
        ("rotary", "flash", {"scale": 0.0}, "with a scale of 0 or less torch's own causal attention gives NaN"),
        ("tupe", "toeplitz", {"scale": 0.0}, "a scale of 0 hides products of positions"),
        ("cope", "toeplitz", {}, "CoPE is no function of offsets and their vectors"),
        ("shaw", "dense", {}, "Shaw depends on the content"),
        ("fire", "toeplitz", {}, "Fire is no function of one offset"),
        ("t5", "toeplitz", {"dropout": 0.1}, "dropout needs every weight"),
        ("t5", "blockwise", {"dropout": 0.1}, "dropout needs every weight"),
        (
            "alibi",
            "toeplitz",
            {"positions": torch.tensor([[0.5, 1.0, 1.5, 2.0]])},
            "these positions have no whole offsets, or lie too far apart for a number per offset",
        ),
        ("t5", "flex", {}, "its CPU compilation has no backward"),
        ("cope", "flex", {}, "CoPE depends on the content"),
    ],
)
def test_a_kernel_that_cannot_serve_says_why(name: str, impl: Any, call: dict[str, Any], why: str) -> None:
    for function in (attend, explain):
        with raises_exactly(ValueError, _cannot(impl, why)):
            function(*tensors(4, 4), encoding=build(name), impl=impl, **call)


def test_an_unknown_kernel_is_refused_with_all_that_are_known() -> None:
    with raises_exactly(
        ValueError,
        "impl must be one of 'auto', 'flash', 'toeplitz', 'banded', 'flex', 'blockwise', 'dense', 'reference', "
        "since each names a kernel; got 'fast'.",
    ):
        attend(*tensors(4, 4), impl="fast")  # type: ignore[arg-type]


def test_tensors_must_fit_each_other() -> None:
    q, k, v = tensors(4, 4)
    with raises_exactly(
        ValueError,
        "query, key and value must be (batch, heads, sequence, head_dim); got shapes ((4, 4, 8), (2, 4, 4, 8), "
        "(2, 4, 4, 8)).",
    ):
        attend(q[0], k, v)
    rule = "key must have the query's batch and head_dim, and value the key's batch, heads and sequence; got shapes "
    for key, value in ((k[:1], v), (k, v[:, :2]), (k, v[:, :, :3]), (k[..., :6], v), (k[:, :2], v)):
        shapes = tuple(tuple(each.shape) for each in (q, key, value))
        with raises_exactly(ValueError, f"{rule}{shapes}."):
            attend(q, key, value)
    with raises_exactly(
        ValueError, "query heads must be a multiple of key heads, since each key head serves as many; got 4 and 3."
    ):
        attend(q, k[:, :3], v[:, :3])


def test_positions_must_have_a_row_for_each_sequence() -> None:
    qkv, three = tensors(4, 4), Positions.from_mask(torch.ones(3, 4, dtype=torch.bool))
    for name in ("positions", "key_positions"):
        call: dict[str, Any] = {"positions": Positions.range(4), "key_positions": Positions.range(4), name: three}
        with raises_exactly(ValueError, f"{name} must have one row, or one for each of the 2 sequences; got 3 rows."):
            attend(*qkv, **call)


@pytest.mark.parametrize("window", [0, -3])
def test_a_window_holds_at_least_its_own_place(window: int) -> None:
    with raises_exactly(
        ValueError,
        f"window must be 1 or more, since it counts the keys that a query sees, itself included; got {window}.",
    ):
        attend(*tensors(4, 4), window=window)


@pytest.mark.parametrize("dropout", [-0.1, 1.0, 1.5])
def test_dropout_is_a_probability(dropout: float) -> None:
    with raises_exactly(
        ValueError,
        f"dropout must be at least 0 and below 1, since it is a probability and 1 leaves nothing; got {dropout}.",
    ):
        attend(*tensors(4, 4), dropout=dropout)


def test_encodings_must_be_encodings() -> None:
    with raises_exactly(
        TypeError,
        "encoding must be a situs.Encoding or a list of them, since it tells attention where tokens stand; got "
        "'rotary'. Use situs.create('rotary', ...).",
    ):
        attend(*tensors(4, 4), encoding="rotary")  # type: ignore[arg-type]


def test_encodings_that_declare_different_scales_need_one() -> None:
    encoding = [*build("t5"), *build("tupe")]
    with raises_exactly(
        ValueError, "scale must be given, since these encodings declare different ones; got [1.0, 0.25]."
    ):
        attend(*tensors(4, 4), encoding=encoding)
    torch.testing.assert_close(
        attend(*(qkv := tensors(4, 4)), encoding=encoding, scale=0.5), reference(*qkv, encoding=encoding, scale=0.5)
    )


@pytest.mark.parametrize("name", ["nothing", "rotary", "t5", "shaw", "deberta", "tupe", "fire", "cope"])
def test_documents_on_one_side_alone_are_refused(name: str) -> None:
    packed, whole = Positions.packed([3, 1]), Positions.range(4)
    rule = r"^queries and keys must both have documents or neither, since a token sees only its own; got .* and .*\.$"
    for query, key in ((packed, whole), (whole, packed)):
        with pytest.raises(ValueError, match=rule):
            attend(*tensors(4, 4), encoding=build(name), positions=query, key_positions=key)


sized: dict[str, Any] = {"dim": 8, "head_dim": WIDTH}


@pytest.mark.parametrize(
    "encoding",
    [
        situs.Shaw(num_heads=8, head_dim=WIDTH),
        situs.Shaw(num_heads=HEADS, head_dim=16),
        situs.Shaw(num_heads=HEADS, head_dim=16, keys=False),
        situs.TransformerXL(num_heads=8, **sized),
        situs.Deberta(num_heads=8, **sized),
        situs.Tupe(num_heads=8, **sized),
        situs.Tupe(num_heads=HEADS, **sized, max_length=3),
        situs.CoPE(num_heads=8, head_dim=WIDTH),
    ],
    ids=lambda encoding: f"{type(encoding).__name__} for {encoding.num_heads} heads of {encoding.head_dim}",
)
def test_encodings_made_for_other_sizes_are_refused_as_the_reference_refuses_them(encoding: situs.Encoding) -> None:
    qkv = tensors(6, 6, dtype=torch.float32)
    with pytest.raises((ValueError, RuntimeError)) as wanted:
        reference(*qkv, encoding=encoding)
    if wanted.type is RuntimeError:
        with pytest.raises((ValueError, RuntimeError)):
            attend(*qkv, encoding=encoding)
        return
    with raises_exactly(ValueError, str(wanted.value)):
        attend(*qkv, encoding=encoding)


@pytest.mark.parametrize("impl", ["auto", "toeplitz", "blockwise"])
@pytest.mark.parametrize(("num_heads", "kv_heads"), [(2, 2), (2, 4), (8, 4), (8, 2), (3, 1)])
def test_biases_of_other_heads_are_refused(num_heads: int, kv_heads: int, impl: Any) -> None:
    bias = situs.T5Bias(num_heads=num_heads)
    with pytest.raises((ValueError, RuntimeError, jaxtyping.TypeCheckError)):
        attend(*tensors(6, 6, kv_heads=kv_heads, dtype=torch.float32), encoding=bias, impl=impl)


TAKING_MASKS: dict[str, Callable[..., Any]] = {"attend": attend, "explain": explain, "reference": reference}


@pytest.mark.parametrize("function", TAKING_MASKS)
@pytest.mark.parametrize("dtype", [torch.bool, torch.float32], ids=str)
@pytest.mark.parametrize("name", ["nothing", "t5", "shaw", "fire"])
def test_masks_that_do_not_broadcast_are_refused(name: str, dtype: torch.dtype, function: str) -> None:
    qkv, encoding = tensors(6, 7), build(name)
    for shape in ((2, 7), (6, 6), (2, 6, 7), (3, 1, 6, 7), (2, 3, 6, 7), (1, 1, 1, 6, 7), (2, 4, 0, 7)):
        with raises_exactly(
            ValueError,
            "mask must broadcast to (batch, heads, query, key) = (2, 4, 6, 7), since it tells which query may see "
            f"which key; got shape {shape}. For padding, use positions=Positions.from_mask(...).",
        ):
            TAKING_MASKS[function](*qkv, encoding=encoding, mask=torch.ones(shape, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.int32, torch.complex64], ids=str)
@pytest.mark.parametrize("name", ["nothing", "t5", "shaw", "fire"])
def test_masks_of_ones_and_zeros_are_refused_rather_than_added(name: str, dtype: torch.dtype) -> None:
    mask, encoding = torch.ones(6, 6).tril().to(dtype), build(name, torch.float32)
    layer = situs.Attention(dim=HEADS * WIDTH, num_heads=HEADS, encoding=encoding)
    x = torch.randn(1, 6, HEADS * WIDTH)
    call: dict[str, Any] = {"encoding": encoding, "mask": mask}
    runs = [partial(function, *tensors(6, 6, dtype=torch.float32), **call) for function in TAKING_MASKS.values()]
    cached = partial(layer, x, cache=layer.make_cache(batch=1, max_length=6), mask=mask)
    for run in (*runs, partial(layer, x, mask=mask), cached):
        with raises_exactly(
            TypeError,
            "mask must be bool, true where a query may see a key, or a float to add to the scores; got dtype "
            f"{dtype}. Use mask.bool().",
        ):
            run()


def test_gradients_of_gradients_are_refused_rather_than_wrong() -> None:
    if SHAPES_ARE_CHECKED:
        pytest.skip("the annotations have nothing to say here")
    for name in ("t5", "shaw"):
        qkv = tensors(4, 4)
        (first,) = torch.autograd.grad(attend(*qkv, encoding=build(name)).square().sum(), qkv[0], create_graph=True)
        with pytest.raises(RuntimeError, match=r"double backward|once_differentiable"):
            first.sum().backward()
