"""Short texts and single queries of models, attended at once, beside `situs.attend` and float64."""

import gc
import weakref
from typing import Any

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from situs import ALiBi, T5Bias, attend
from situs.attention.kernels import dense
from situs.huggingface import at_once as module
from situs.huggingface.at_once import at_once
from situs.huggingface.interface import PlacedBias, attended
from situs.huggingface.seeing import Rules, Sight
from situs.huggingface.short import as_long

pytestmark = [pytest.mark.once, pytest.mark.short]
NOTHING: dict[str, Any] = {"encoding": None, "row": None, "source": None, "scale": None, "dropout": 0.0}


def vectors(heads: int, tokens: int, *, width: int = 16, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(2, heads, tokens, width, dtype=dtype)


def step(keys: int, *, real: torch.Tensor | None = None, window: int | None = None) -> Sight:
    """A decode step."""
    return Sight(Rules(causal=True, window=window), 1, keys, keys - 1, 0, real)


def padded(keys: int) -> torch.Tensor:
    real = torch.ones(2, keys, dtype=torch.bool)
    real[1, : keys // 3] = False
    return real


@pytest.mark.parametrize("bias", ["none", "row", "t5", "alibi"])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("padding", [False, True])
@pytest.mark.parametrize("window", [None, 5, 40])
def test_a_single_query_gives_what_attend_gives(bias: str, kv_heads: int, padding: bool, window: int | None) -> None:
    query, key, value = vectors(4, 1), vectors(kv_heads, 33), vectors(kv_heads, 33)
    mask = step(33, real=padded(33) if padding else None, window=window)
    encoding = {"t5": T5Bias(num_heads=4, bidirectional=False), "alibi": ALiBi(num_heads=4)}.get(bias)
    row = torch.randn(2, 4, 1, 33) if bias == "row" else None
    with torch.no_grad():
        found = at_once(
            query, key, value, mask, encoding=encoding, row=row, source=None, scale=0.3, dropout=0.0, rounded=False
        )
        seen = mask.arguments(every_query=True)
        expected = attend(
            query, key, value, encoding=encoding, scale=0.3, causal=seen["causal"], window=window, mask=row,
            positions=seen["positions"], key_positions=seen["key_positions"],
        )  # fmt: skip
    assert found is not None
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kv_heads", [8, 2])
@pytest.mark.parametrize("keys", [1, 63, 700])
def test_a_single_query_in_half_precision_is_as_exact_as_torchs(dtype: torch.dtype, kv_heads: int, keys: int) -> None:
    query = 4 * vectors(8, 1, width=64, dtype=dtype)  # scores of up to 30 or so
    key, value = (vectors(kv_heads, keys, width=64, dtype=dtype) for _ in range(2))
    with torch.no_grad():
        found = at_once(query, key, value, step(keys), rounded=False, **NOTHING)
        shared = kv_heads != 8
        own = scaled_dot_product_attention(query, key, value, enable_gqa=shared)
        exact = scaled_dot_product_attention(query.double(), key.double(), value.double(), enable_gqa=shared)
    assert found is not None
    assert found.dtype == dtype
    assert (found.double() - exact).abs().mean() <= 1.5 * (own.double() - exact).abs().mean() + 1e-12


def test_keys_are_converted_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    query, key, value = (vectors(4, tokens, dtype=torch.bfloat16) for tokens in (1, 50, 50))
    with torch.no_grad():
        whole = at_once(query, key, value, step(50), rounded=False, **NOTHING)
        monkeypatch.setattr(module, "CONVERTED", 3 * 50 * 16)  # three of eight rows
        parts = at_once(query, key, value, step(50), rounded=False, **NOTHING)
    assert whole is not None
    assert parts is not None
    assert torch.equal(whole, parts)


@pytest.mark.parametrize("tokens", [2, 31, 256])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_short_texts_give_what_long_ones_give(tokens: int, causal: bool, dtype: torch.dtype) -> None:
    query, key, value = (vectors(4, tokens, dtype=dtype)[:1] for _ in range(3))
    row = torch.randn(1, 4, 1, tokens, dtype=dtype)
    with torch.no_grad():
        for bias in (None, row):
            found = [
                attended(query, key, value, Sight(Rules(causal=causal), tokens, tokens, 0, 0, None), bias=bias)
                for _ in range(2)
            ]
            with as_long():
                mask = Sight(Rules(causal=causal), tokens, tokens, 0, 0, None)
                expected = attended(query, key, value, mask, bias=bias)
            tolerance = 2e-2 if dtype == torch.bfloat16 else 1e-5
            torch.testing.assert_close(found[0], expected, rtol=tolerance, atol=tolerance)
            assert torch.equal(*found)


def test_queries_that_see_nothing_stay_finite() -> None:
    query, key, value, row = *(vectors(4, 6) for _ in range(3)), torch.randn(2, 4, 1, 6)
    real = torch.tensor([[False] * 6, [False] * 3 + [True] * 3])
    mask = Sight(Rules(causal=True), 6, 6, 0, 0, real)
    with torch.no_grad():
        assert attended(query, key, value, mask, bias=row).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_padding_that_comes_alone_is_0_in_models_that_add_nothing(dtype: torch.dtype, kv_heads: int) -> None:
    query, (key, value) = vectors(4, 1, dtype=dtype), (vectors(kv_heads, 3, dtype=dtype) for _ in range(2))
    real = torch.tensor([[False] * 3, [False, True, True]])
    with torch.no_grad():
        found = attended(query, key, value, step(3, real=real)).transpose(1, 2)
        seen = attended(query[1:], key[1:, :, 1:], value[1:, :, 1:], step(2)).transpose(1, 2)
    assert torch.equal(found[0], torch.zeros_like(found[0]))
    torch.testing.assert_close(found[1:], seen)


@pytest.mark.parametrize("why", ["gradients", "dropout", "long", "ahead"])
def test_what_kernels_serve_better_is_left_to_them(why: str) -> None:
    tokens = 300 if why == "long" else 9
    query, key, value = (vectors(4, tokens) for _ in range(3))
    first = 2 if why == "ahead" else 0
    mask = Sight(Rules(causal=True), tokens, tokens, first, 0, None)
    given = {**NOTHING, "dropout": 0.1 if why == "dropout" else 0.0}
    if why != "ahead":
        given["encoding"] = T5Bias(num_heads=4)
    with torch.set_grad_enabled(why == "gradients"):
        assert at_once(query, key, value, mask, rounded=False, **given) is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("kv_heads", [8, 2])
@pytest.mark.parametrize("bias", [False, True])
def test_a_single_query_under_autocast_is_as_exact_as_torchs(dtype: torch.dtype, kv_heads: int, bias: bool) -> None:
    query = 4 * vectors(8, 1, width=64, dtype=dtype)
    key, value = (vectors(kv_heads, 700, width=64, dtype=dtype) for _ in range(2))
    row = torch.randn(2, 8, 1, 700) if bias else None
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found = attended(query, key, value, step(700), bias=row).transpose(1, 2)
        own = scaled_dot_product_attention(query, key, value, row, enable_gqa=kv_heads != 8)
    bias64 = None if row is None else row.double()
    exact = scaled_dot_product_attention(query.double(), key.double(), value.double(), bias64, enable_gqa=kv_heads != 8)
    assert (found.double() - exact).abs().mean() <= 1.5 * (own.double() - exact).abs().mean()


def test_a_single_query_of_several_dtypes_under_autocast_is_torchs() -> None:
    query, key = (vectors(heads, tokens) for heads, tokens in ((8, 1), (2, 33)))
    value = vectors(2, 33, dtype=torch.bfloat16)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found = attended(query, key, value, step(33)).transpose(1, 2)
        expected = scaled_dot_product_attention(query, key, value, enable_gqa=True)
    assert torch.equal(found, expected)


OTHER = "meta"
"""A device that is not the processor."""


@pytest.mark.parametrize("tokens", [1, 7])
@pytest.mark.parametrize("padding", [False, True])
@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("bias", ["none", "row", "t5", "alibi"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_off_the_processor_biases_and_masks_are_where_queries_are(
    tokens: int, padding: bool, window: int | None, bias: str, dtype: torch.dtype
) -> None:
    query, key = (vectors(4, each, dtype=dtype).to(OTHER) for each in (tokens, 7))
    encoding = {"t5": T5Bias(num_heads=4, bidirectional=False).to(OTHER), "alibi": ALiBi(num_heads=4)}.get(bias)
    row = torch.randn(2, 4, 1, 7).to(OTHER) if bias == "row" else None
    mask = Sight(Rules(causal=True, window=window), tokens, 7, 7 - tokens, 0, padded(7).to(OTHER) if padding else None)
    with torch.no_grad():
        found = attended(query, key, key, mask, bias=row if encoding is None else PlacedBias(encoding))
    assert (found.shape, found.dtype, found.device) == ((2, tokens, 4, 16), dtype, query.device)


@pytest.mark.parametrize("tokens", [1, 7])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("padding", [False, True])
def test_off_the_processor_torch_gets_no_mask_wider_than_queries(
    tokens: int, bias: bool, padding: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its memory-efficient kernel refuses one, and cuDNN's misreads it."""

    def checked(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any, **given: Any) -> Any:
        mask = args[0] if args else given.get("attn_mask")
        assert mask is None or mask.dtype in (torch.bool, query.dtype)
        return scaled_dot_product_attention(query, key, value, *args, **given)

    monkeypatch.setattr(module, "scaled_dot_product_attention", checked)
    monkeypatch.setattr(dense, "scaled_dot_product_attention", checked)
    query, key = (vectors(4, each, dtype=torch.bfloat16).to(OTHER) for each in (tokens, 7))
    encoding = ALiBi(num_heads=4) if bias else None
    mask = Sight(Rules(causal=True), tokens, 7, 7 - tokens, 0, padded(7).to(OTHER) if padding else None)
    with torch.no_grad():
        attended(query, key, key, mask, bias=None if encoding is None else PlacedBias(encoding))
        found = attend(query, key, key, encoding=encoding, causal=True, impl="dense")
    assert found.dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize(("rows", "keys"), [(0, 5), (2, 0), (0, 0)])
@pytest.mark.parametrize("rounded", [False, True])
def test_a_single_query_may_have_no_rows_or_keys(
    dtype: torch.dtype, kv_heads: int, rows: int, keys: int, rounded: bool
) -> None:
    query, key = vectors(4, 1, dtype=dtype)[:rows], vectors(kv_heads, keys, dtype=dtype)[:rows]
    with torch.no_grad():
        found = attended(query, key, key, Sight(Rules(), 1, keys, 0, 0, None), rounded=rounded)
    assert torch.equal(found, torch.zeros(rows, 1, 4, 16, dtype=dtype))


@pytest.mark.parametrize(("dtype", "kv_heads"), [(torch.bfloat16, 8), (torch.float32, 8), (torch.float32, 2)])
def test_biases_may_be_mapped_over_while_queries_are_not(dtype: torch.dtype, kv_heads: int) -> None:
    query, key, rows = vectors(8, 1, dtype=dtype), vectors(kv_heads, 99, dtype=dtype), torch.randn(3, 2, 8, 1, 99)

    def attending(row: torch.Tensor) -> torch.Tensor:
        return attended(query, key, key, step(99), bias=row)

    with torch.no_grad():
        found = torch.vmap(attending)(rows)
        torch.testing.assert_close(found, torch.stack([attending(row) for row in rows]))


@pytest.mark.parametrize("bias", ["none", "row", "alibi"])
def test_what_a_step_hides_is_freed_with_its_mask(bias: str) -> None:
    """Not when garbage is next collected: steps of long texts would pile up."""
    query, key, mask = vectors(4, 1), vectors(4, 9), step(9, real=padded(9))
    row = torch.randn(2, 4, 1, 9) if bias == "row" else None
    placed = PlacedBias(ALiBi(num_heads=4)) if bias == "alibi" else None
    gc.disable()
    try:
        with torch.no_grad():
            attended(query, key, key, mask, bias=row if placed is None else placed)
        left = weakref.ref(mask)
        del mask
        assert left() is None
    finally:
        gc.enable()
