"""DeBERTa's attention layers of transformers and ours, on the same queries, keys and values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers.models.deberta_v2.modeling_deberta_v2 import build_relative_position, make_log_bucket_position

from situs import Deberta, Positions
from situs.attention import reference
from situs.functional.buckets import deberta_rows
from tests.parity.score_models import (
    HEADS,
    TOLERANCE,
    assert_same,
    deberta_attention,
    deberta_encoding,
    deberta_v1,
    deberta_v2,
    default_dtype,
    padded,
    seen_by_deberta,
    tokens,
)
from tests.references import attention as attention_formula
from tests.references import deberta as formula

BOTH = ("c2p", "p2c")
LENGTHS = [9, 200]  # below every span, and far above every one

Build = Callable[[], Any]

TERMS: dict[str, tuple[str, ...]] = {"c2p": ("c2p",), "p2c": ("p2c",), "c2p and p2c": BOTH, "p2c and c2p": BOTH[::-1]}
MODELS: dict[str, Build] = {
    **{f"v1, {name}": partial(deberta_v1, terms) for name, terms in TERMS.items()},
    **{f"v2, {name}": partial(deberta_v2, terms) for name, terms in TERMS.items()},
    **{f"v2 shared, {name}": partial(deberta_v2, terms, share=True) for name, terms in TERMS.items()},
    "v1 of a long table": partial(deberta_v1, span=64),
    "v2, 8 buckets": partial(deberta_v2, span=16, buckets=8),
    "v2, 8 buckets up to 64": partial(deberta_v2, span=64, buckets=8),
    "v2, 32 buckets": partial(deberta_v2, span=64, buckets=32),
    "v2, as many buckets as distances": partial(deberta_v2, span=32, buckets=32),
    "v2, normalised": partial(deberta_v2, norm=True),
    "v3": partial(deberta_v2, span=64, buckets=32, share=True, norm=True),
    "v3, c2p": partial(deberta_v2, ("c2p",), span=64, buckets=8, share=True, norm=True),
    "v3, p2c": partial(deberta_v2, ("p2c",), span=64, buckets=8, share=True, norm=True),
}
each_model = pytest.mark.parametrize("build", MODELS.values(), ids=MODELS)
some_models = pytest.mark.parametrize("name", ["v1, c2p and p2c", "v2, 32 buckets", "v3"])
both_sides = pytest.mark.parametrize("side", ["left", "right"])


@each_model
@pytest.mark.parametrize("length", LENGTHS)
def test_attention_equals_ours(build: Build, length: int) -> None:
    model = build()
    seen = seen_by_deberta(model, lambda: model(tokens(length)))
    assert_same(seen, deberta_encoding(model))


@each_model
def test_attention_equals_ours_where_positions_are_looked_up(build: Build) -> None:
    model = build()
    seen = seen_by_deberta(model, lambda: model(tokens(200)))
    assert_same(seen, deberta_encoding(model), positions=Positions.explicit(torch.arange(200) + 1000))


@each_model
@both_sides
@pytest.mark.parametrize("length", LENGTHS)
def test_attention_equals_ours_with_padding(build: Build, side: str, length: int) -> None:
    model = build()
    mask = padded(length, 2 * length // 3, side)
    seen = seen_by_deberta(model, lambda: model(tokens(length), attention_mask=mask))
    positions = Positions.from_mask(mask, side="left" if side == "left" else "right")
    assert_same(seen, deberta_encoding(model), positions=positions)


@some_models
def test_a_single_token_sees_itself(name: str) -> None:
    model = MODELS[name]()
    seen = seen_by_deberta(model, lambda: model(tokens(1)))
    ours = reference(seen.query, seen.key, seen.value, encoding=deberta_encoding(model))
    assert (ours - seen.output).abs().max() <= TOLERANCE


@some_models
@pytest.mark.parametrize("queries", [1, 5, 39])
def test_the_last_queries_alone_give_the_last_outputs(name: str, queries: int) -> None:
    """transformers takes equal lengths only."""
    model = MODELS[name]()
    seen = seen_by_deberta(model, lambda: model(tokens(40)))
    ours = reference(seen.query[:, :, -queries:], seen.key, seen.value, encoding=deberta_encoding(model))
    assert (ours - seen.output[:, :, -queries:]).abs().max() <= TOLERANCE


@pytest.mark.parametrize(
    "build", [partial(deberta_v1, head_dim=16), partial(deberta_v2, head_dim=16)], ids=["v1", "v2"]
)
def test_heads_of_sixteen_agree_once_the_root_is_rounded_to_float32_as_released_code_does(build: Build) -> None:
    model = build()
    seen = seen_by_deberta(model, lambda: model(tokens(200)))
    encoding = deberta_encoding(model)
    rounded = 1 / float(torch.tensor(48.0).sqrt())
    assert encoding.softmax_scale == pytest.approx(rounded, rel=2**-24)
    assert_same(seen, encoding, scale=rounded)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("v1, c2p and p2c", {"p2c_row": "mirrored"}),
        ("v1, p2c", {"p2c_row": "mirrored"}),
        ("v2, 32 buckets", {"p2c_row": "mirrored"}),
        ("v3", {"p2c_row": "mirrored"}),
        ("v3", {"max_distance": 63}),
        ("v2, 32 buckets", {"max_distance": 65}),
        ("v2, as many buckets as distances", {"buckets": None}),
    ],
)
def test_an_encoding_that_is_nearly_right_is_told_apart(name: str, change: dict[str, Any]) -> None:
    model = MODELS[name]()
    seen = seen_by_deberta(model, lambda: model(tokens(200)))
    with pytest.raises(AssertionError, match="off by"):
        assert_same(seen, deberta_encoding(model, **change))


def test_every_weight_of_the_model_matters_but_the_bias_of_keys() -> None:
    """Which meets a query alike at every offset, and so drops out of the softmax."""
    model = deberta_v2(span=64, buckets=32, norm=True)
    seen = seen_by_deberta(model, lambda: model(tokens(200)))
    encoding = deberta_encoding(model)
    for name, parameter in encoding.named_parameters():
        kept = parameter.detach().clone()
        with torch.no_grad():
            parameter.add_(0.1 * torch.randn_like(parameter))
        if name == "key_projection.bias":
            assert_same(seen, encoding)
        else:
            with pytest.raises(AssertionError, match="off by"):
                assert_same(seen, encoding)
        with torch.no_grad():
            parameter.copy_(kept)
    assert_same(seen, encoding)


@pytest.mark.parametrize("name", ["v1, c2p and p2c", "v2, 32 buckets", "v2, normalised"])
def test_gradients_of_table_and_projections_equal_ours(name: str) -> None:
    model = MODELS[name]()
    given = tokens(40)
    seen = seen_by_deberta(model, lambda: model(given))
    encoding = deberta_encoding(model)
    weight = torch.randn_like(seen.output)
    (reference(seen.query, seen.key, seen.value, encoding=encoding) * weight).sum().backward()

    layer = deberta_attention(model)
    made: list[Tensor] = []
    handle = layer.register_forward_hook(lambda module, given, output: made.append(output[0]))
    model(given)
    handle.remove()
    (made[0] * weight.transpose(1, 2).flatten(2)).sum().backward()

    pairs = [(encoding.table, model.encoder.rel_embeddings.weight)]
    theirs = ("pos_q_proj", "pos_proj") if hasattr(layer, "pos_proj") else ("pos_query_proj", "pos_key_proj")
    for ours, each in zip((encoding.query_projection, encoding.key_projection), theirs, strict=True):
        assert ours is not None
        pairs += zip(ours.parameters(), getattr(layer, each).parameters(), strict=True)
    for one, other in pairs:
        assert one.grad is not None
        torch.testing.assert_close(one.grad, other.grad, atol=TOLERANCE, rtol=1e-10)


@pytest.mark.parametrize("row", ["same", "mirrored"])
@pytest.mark.parametrize("terms", [*TERMS.values(), ("c2p", "p2p"), ("c2p", "p2c", "p2p")], ids=" ".join)
@pytest.mark.parametrize("buckets", [None, 6])
def test_attention_equals_the_formula(row: Any, terms: tuple[str, ...], buckets: int | None) -> None:
    span, queries, keys = 8, 5, 14
    encoding = Deberta(
        dim=12, num_heads=2, head_dim=6, max_distance=span, buckets=buckets, terms=terms, p2c_row=row, init_std=0.5
    ).double()
    q, k, v = (torch.randn(1, 2, length, 6, dtype=torch.float64) for length in (queries, keys, keys))

    def projected(projection: nn.Linear | None) -> Any:
        rows = encoding.table if projection is None else projection(encoding.table)
        return rows.detach().view(-1, 2, 6).transpose(0, 1).numpy()

    def bucket(distance: int) -> int:
        return distance if buckets is None else formula.log_bucket(distance, buckets, span)

    query_rows, key_rows = projected(encoding.query_projection), projected(encoding.key_projection)
    places = np.arange(keys - queries, keys), np.arange(keys)
    term = np.zeros((2, queries, keys))
    if "c2p" in terms:
        term += formula.content_to_position(q[0].numpy(), *places, key_rows, bucket)
    if "p2c" in terms:
        term += formula.position_to_content(k[0].numpy(), *places, query_rows, bucket, row)
    if "p2p" in terms:
        term += formula.position_to_position(*places, query_rows, key_rows, bucket, "mirrored")
    scale = formula.scale(6, len(terms))
    expected = attention_formula.attention(
        q[0].numpy(), k[0].numpy(), v[0].numpy(), np.ones((queries, keys), dtype=bool), scale, scale * term
    )
    for positions in (None, Positions.range(queries, start=keys - queries)):
        actual = reference(q, k, v, encoding=encoding, positions=positions)
        np.testing.assert_allclose(actual[0].detach().numpy(), expected, atol=TOLERANCE)


# --- buckets

RELEASED_BUCKETS = [(256, 512), (32, 128), (128, 512), (256, 2048)]
each_bucketing = pytest.mark.parametrize(("buckets", "longest"), RELEASED_BUCKETS)
DISTANCES = torch.arange(-4096, 4097)  # query minus key


def our_rows(buckets: int, longest: int) -> Tensor:
    """The row of each of DISTANCES, held within the span as encodings do."""
    return deberta_rows(longest, buckets)[longest - DISTANCES.clamp(-longest, longest)]


@each_bucketing
def test_log_buckets_equal_those_of_transformers(buckets: int, longest: int) -> None:
    theirs = make_log_bucket_position(DISTANCES, buckets, longest).long()
    assert torch.equal(our_rows(buckets, longest), (theirs + buckets).clamp(0, 2 * buckets - 1))


@each_bucketing
def test_log_buckets_equal_those_of_exact_arithmetic(buckets: int, longest: int) -> None:
    sizes = [*range(longest + 2), 3000, 4096]
    ours = our_rows(buckets, longest)
    for sign in (1, -1):
        distances = [sign * size for size in sizes]
        expected = [formula.row(formula.log_bucket(distance, buckets, longest), buckets) for distance in distances]
        assert ours[torch.tensor(distances) + 4096].tolist() == expected
    assert (ours[4096 + longest :] == 2 * buckets - 1).all()
    assert (ours[: 4097 - longest] == 0).all()


@pytest.mark.parametrize(
    ("buckets", "longest", "distance", "row"),
    [
        (256, 512, 0, 256),
        (256, 512, 1, 257),
        (256, 512, 128, 384),
        (256, 512, -128, 128),
        (256, 512, 511, 511),
        (256, 512, 512, 511),
        (256, 512, -511, 1),
        (256, 512, -512, 0),
        (256, 512, 4096, 511),
        (256, 512, -4096, 0),
        (32, 128, 16, 48),
        (32, 128, 17, 49),
        (32, 128, 127, 63),
        (32, 128, -127, 1),
        (32, 128, -128, 0),
        (128, 512, -511, 1),
        (256, 2048, 2047, 511),
        (256, 2048, -2047, 1),
        (256, 2048, -2048, 0),
    ],
)
def test_log_buckets_equal_golden_values(buckets: int, longest: int, distance: int, row: int) -> None:
    assert int(our_rows(buckets, longest)[distance + 4096]) == row


@pytest.mark.parametrize("length", [1, 2, 7, 300])
@each_bucketing
def test_log_buckets_of_a_sequence_equal_the_matrix_of_transformers(buckets: int, longest: int, length: int) -> None:
    states = torch.zeros(1, length, 1)
    theirs = build_relative_position(states, states, buckets, longest)[0]
    distance = torch.arange(length)[:, None] - torch.arange(length)
    assert torch.equal(our_rows(buckets, longest)[distance + 4096], (theirs + buckets).clamp(0, 2 * buckets - 1))


@each_bucketing
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_log_buckets_do_not_depend_on_the_default_dtype_at_construction(
    buckets: int, longest: int, dtype: torch.dtype
) -> None:
    """A model to be loaded in bfloat16 is built under that default; transformers forms its buckets when run."""
    expected = our_rows(buckets, longest)
    with default_dtype(dtype):
        actual = our_rows(buckets, longest)
    assert torch.equal(actual, expected)


# --- half precision

HALVES = [torch.bfloat16, torch.float16]
each_half = pytest.mark.parametrize("dtype", HALVES, ids=str)


def large(encoding: Deberta, size: float) -> Deberta:
    """Rows such that a raw product with vectors of that size is far beyond float16's 65504."""
    with torch.no_grad():
        encoding.table.normal_(std=size)
    return encoding


@each_half
@pytest.mark.parametrize("name", ["v1, c2p and p2c", "v2, 32 buckets"])
@pytest.mark.parametrize("size", [1.0, 100.0])
def test_half_precision_stays_finite_and_close_to_float64(name: str, size: float, dtype: torch.dtype) -> None:
    encoding = large(deberta_encoding(MODELS[name]()), size).to(dtype)
    q, k = (size * torch.randn(2, HEADS, 50, 12) for _ in range(2))
    q, k, v = (each.to(dtype) for each in (q, k, torch.randn(2, HEADS, 50, 12)))
    ours = reference(q, k, v, encoding=encoding)
    wide = encoding.double()  # of the rounded weights, so exactly the same numbers
    q, k = q.double(), k.double()
    exact = reference(q, k, v.double(), encoding=wide)
    raw = (q @ k.transpose(-2, -1) + wide(q, k, scale=1.0)).detach()
    assert size == 1 or raw.abs().max() > torch.finfo(torch.float16).max
    assert ours.dtype == dtype
    assert ours.isfinite().all()
    # float32 sums of 12 products, three a score, rows having been projected from 48 channels before
    score_error = float(raw.abs().max()) / 6 * (3 * 12 + 48) * 2**-24
    rounding = torch.finfo(dtype).eps / 2
    tolerance = float(v.abs().max()) * (2 * score_error + 2 * rounding)
    assert (ours.double() - exact).abs().max() <= tolerance


def test_float16_overflows_in_transformers_where_ours_is_right() -> None:
    model = deberta_v2()
    with torch.no_grad():
        model.encoder.rel_embeddings.weight.mul_(100)
        deberta_attention(model).query_proj.weight.mul_(100)
        deberta_attention(model).key_proj.weight.mul_(100)
    model.half()
    seen = seen_by_deberta(model, lambda: model(tokens(50)))
    assert seen.query.isfinite().all()
    assert seen.key.isfinite().all()
    assert not seen.output.isfinite().all()
    encoding = deberta_encoding(model)
    q, k, v = seen.query.double(), seen.key.double(), seen.value.double()
    exact = reference(q, k, v, encoding=encoding)
    ours = reference(seen.query, seen.key, seen.value, encoding=encoding.half())
    assert ours.isfinite().all()
    raw = (q @ k.transpose(-2, -1) + encoding.double()(q, k, scale=1.0)).detach()
    largest = float(raw.abs().max()) / 6
    tolerance = float(v.abs().max()) * (2 * largest * (3 * 12 + 48) * 2**-24 + 2**-10)
    assert (ours.double() - exact).abs().max() <= tolerance


def test_in_bfloat16_only_the_output_is_rounded_unlike_in_transformers() -> None:
    model = deberta_v2(span=64, buckets=32, share=True, norm=True).bfloat16()
    seen = seen_by_deberta(model, lambda: model(tokens(100)))
    encoding = deberta_encoding(model)
    exact = reference(seen.query.double(), seen.key.double(), seen.value.double(), encoding=encoding)
    ours = reference(seen.query, seen.key, seen.value, encoding=encoding.bfloat16())
    allowed = exact.abs() * 2**-8 + 1e-5
    assert ((ours.double() - exact).abs() <= allowed).all()
    assert not ((seen.output.double() - exact).abs() <= allowed).all()


@each_half
def test_padded_rows_of_half_precision_stay_finite(dtype: torch.dtype) -> None:
    encoding = large(deberta_encoding(deberta_v2()), 100.0).to(dtype)
    q, k, v = (100 * torch.randn(2, HEADS, 50, 12, dtype=dtype) for _ in range(3))
    positions = Positions.from_mask(padded(50, 0, "right"), side="right")  # one row of nothing but padding
    ours = reference(q, k, v, encoding=encoding, positions=positions)
    assert ours.isfinite().all()
    assert not ours[1].any()


@each_half
@pytest.mark.parametrize("size", [1.0, 100.0])
def test_attention_under_autocast_stays_finite(size: float, dtype: torch.dtype) -> None:
    encoding = large(deberta_encoding(deberta_v2()), size).float()
    q, k, v = (size * torch.randn(2, HEADS, 50, 12) for _ in range(3))
    with torch.autocast("cpu", dtype=dtype):
        ours = reference(q, k, v, encoding=encoding)
    assert ours.isfinite().all()


# --- exported


class Layer(nn.Module):
    """An attention layer with DeBERTa's term."""

    def __init__(self, shared: bool, buckets: int | None) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(24, 24) for _ in range(4))
        self.encoding = Deberta(
            dim=24,
            num_heads=2,
            head_dim=12,
            max_distance=16,
            buckets=buckets,
            share_att_key=shared,
            layer_norm=shared,
            init_std=1.0,
        )
        if shared:
            self.encoding.tie(query=self.query, key=self.key)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = (each(x).unflatten(-1, (2, 12)).transpose(1, 2) for each in (self.query, self.key, self.value))
        positions = None if mask is None else Positions.from_mask(mask)
        attended = reference(q, k, v, encoding=self.encoding, positions=positions)
        attended = self.out(attended.transpose(1, 2).flatten(2))
        assert isinstance(attended, Tensor)
        return attended


each_layer = pytest.mark.parametrize(("shared", "buckets"), [(False, None), (True, 8)], ids=["v1", "v3"])
padded_or_not = pytest.mark.parametrize("inputs", [1, 2], ids=["unpadded", "padded"])


def inputs_of(length: int, count: int) -> tuple[Tensor, ...]:
    """Tokens, and a mask if two are wanted."""
    return (torch.randn(2, length, 24), padded(length, length // 2 + 1, "right"))[:count]


def exported(layer: Layer, count: int, shortest: int) -> nn.Module:
    """The layer with a length that may vary."""
    length = torch.export.Dim("length", min=shortest, max=4096)
    shapes = tuple({1: length} for _ in range(count))
    return torch.export.export(layer, inputs_of(40, count), dynamic_shapes=shapes, strict=False).module()


@pytest.mark.thin(4)
@pytest.mark.compiled
@padded_or_not
@each_layer
def test_an_exported_layer_gives_the_eager_result_at_any_length(shared: bool, buckets: int | None, inputs: int) -> None:
    layer = Layer(shared, buckets).eval()
    program = exported(layer, inputs, 3)
    for length in (3, 17, 40, 100):
        given = inputs_of(length, inputs)
        torch.testing.assert_close(program(*given), layer(*given), atol=1e-5, rtol=1e-5)


@pytest.mark.compiled
@padded_or_not
def test_an_exported_layer_may_be_as_short_as_two_tokens(inputs: int) -> None:
    layer = Layer(False, None).eval()
    program = exported(layer, inputs, 2)
    given = inputs_of(2, inputs)
    torch.testing.assert_close(program(*given), layer(*given), atol=1e-5, rtol=1e-5)
