"""Temperature: the formulas of released models, at the true position, on queries alone."""

import math
from typing import Any

import pytest
import torch

import situs
from situs import Positions, Temperature
from situs.functional.temperature import temperature_at
from tests.raising import raises_exactly
from tests.references import temperature as reference

FIXED = ("llama4", "ministral3", "inkling", "log_n", "power")
each_formula = pytest.mark.parametrize("dialect", FIXED)


def made(dialect: str, length: int = 7) -> Temperature:
    given: dict[str, Any] = {} if dialect == "log_n" else {"factor": 0.3}
    return Temperature(dialect=dialect, original_length=length, **given)  # type: ignore[arg-type]


@each_formula
def test_factors_are_those_of_the_formula_near_and_far(dialect: str) -> None:
    ids = [0, 1, 5, 6, 7, 8, 13, 14, 63, 100_000, 10_000_019]
    found = made(dialect).factors(Positions.explicit(torch.tensor(ids)), dtype=torch.float64).flatten().tolist()
    expected = [reference.factor(i, dialect, 7, 0.3) for i in ids]
    assert found == pytest.approx(expected, rel=1e-14)
    assert [temperature_at(i, dialect, 7, 0.3) for i in ids] == pytest.approx(expected, rel=1e-14)  # type: ignore[arg-type]
    assert temperature_at(-3, dialect, 7, 0.3) == temperature_at(0, dialect, 7, 0.3)  # type: ignore[arg-type]


@each_formula
def test_queries_are_multiplied_and_keys_are_the_very_tensor(dialect: str) -> None:
    encoding, x = made(dialect), torch.randn(2, 3, 20, 4)
    assert encoding(x, role="key") is x
    one = encoding(x[:, :, :1], 30)  # the host knows the number of a decode step
    many = encoding(x, Positions.explicit(torch.arange(30, 50)))
    torch.testing.assert_close(one, many[:, :, :1])
    torch.testing.assert_close(many, x * encoding.factors(Positions.range(20, start=30)))
    assert encoding(x.bfloat16(), 30).dtype == torch.bfloat16


def test_queries_within_the_original_length_are_the_very_tensor() -> None:
    x = torch.randn(1, 1, 6, 4)
    assert all(made(dialect)(x) is x for dialect in ("llama4", "ministral3", "inkling", "log_n"))
    assert made("llama4")(torch.randn(1, 1, 7, 4), 0) is not x  # whose last is the first step


def test_documents_begin_anew() -> None:
    encoding, x = made("inkling", 3), torch.randn(1, 2, 9, 4)
    packed = encoding(x, Positions.packed([5, 4]))
    torch.testing.assert_close(packed, torch.cat((encoding(x[:, :, :5]), encoding(x[:, :, 5:])), 2))


def test_tokens_of_images_count_by_where_they_lie() -> None:
    encoding, mixed = made("inkling", 2), Positions.mixed([3, situs.Vision(1, 2, 2), 2])
    torch.testing.assert_close(encoding.factors(mixed), encoding.factors(Positions.range(mixed.length)))


def test_scalable_softmax_is_the_papers() -> None:
    encoding = Temperature(dialect="ssmax", num_heads=2, original_length=16).double()
    q, k, v = torch.randn(3, 1, 2, 12, 4, dtype=torch.float64)
    torch.testing.assert_close(encoding.factors(Positions.range(16))[0, :, 15, 0], torch.ones(2))
    with torch.no_grad():
        encoding.s.copy_(torch.tensor([0.4, 1.1]))
        encoding.b.copy_(torch.tensor([0.2, -0.3]))
        found = situs.attend(q, k, v, encoding=encoding, causal=True)
    for head in range(2):
        scores = (q[0, head] @ k[0, head].T / 2).numpy()
        weights = reference.scalable_softmax(scores, encoding.s[head].item(), encoding.b[head].item())
        torch.testing.assert_close(found[0, head], torch.from_numpy(weights) @ v[0, head], rtol=0, atol=1e-12)


def test_it_composes_and_a_cache_evicts_with_it() -> None:
    rotary = situs.Rotary(head_dim=8)
    layer = situs.Attention(dim=16, num_heads=2, encoding=[made("ministral3", 4), rotary]).eval()
    x = torch.randn(1, 13, 16)
    with torch.no_grad():
        cache, short = (layer.make_cache(batch=1, max_length=16) for _ in range(2))
        parts = [layer(part, cache=cache) for part in x[:, :12].split([5, 1, 6], 1)]
        torch.testing.assert_close(torch.cat(parts, 1), layer(x[:, :12]), rtol=0, atol=1e-6)
        cache.evict(4)
        layer(x[:, 4:12], cache=short)
        torch.testing.assert_close(cache.keys[:, :, :8], short.keys[:, :, :8], rtol=0, atol=1e-6)
        torch.testing.assert_close(layer(x[:, 12:], cache=cache), layer(x[:, 12:], cache=short), rtol=0, atol=1e-6)
        assert cache.rotated_by == (rotary,)


def test_terms_by_content_are_not_multiplied() -> None:
    shaw, encoding = situs.Shaw(num_heads=2, head_dim=8), made("power", 2)
    q, k, v = torch.randn(3, 1, 2, 9, 8)
    plain = situs.attend(q * 0, k, v, encoding=shaw, causal=True)  # of which the keys' terms alone are left
    torch.testing.assert_close(situs.attend(q * 0, k, v, encoding=[shaw, encoding], causal=True), plain)
    where = Positions.range(9)
    scores = [
        situs.attention.reference(q, k, torch.eye(9).expand(1, 2, 9, 9), encoding=each, causal=True)
        for each in (encoding, [encoding, situs.ALiBi(num_heads=2)])
    ]
    logits = q * encoding.factors(where) @ k.mT / math.sqrt(8)
    causal = logits.masked_fill(torch.ones(9, 9).triu(1).bool(), -math.inf)
    torch.testing.assert_close(scores[0], causal.softmax(-1))
    torch.testing.assert_close(scores[1], (causal + situs.ALiBi(num_heads=2)(where, where)).softmax(-1))


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        (
            {"dialect": "log_n", "factor": 0.2},
            ValueError,
            "factor must be left out with dialect='log_n', since its formula has none; got 0.2.",
        ),
        (
            {"dialect": "ssmax"},
            ValueError,
            "num_heads must be given with dialect='ssmax', since each head learns numbers; got None.",
        ),
        (
            {"dialect": "log_n", "original_length": 1},
            ValueError,
            "original_length must be 2 or more, since it counts tokens; got 1.",
        ),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], error: type[Exception], words: str) -> None:
    with raises_exactly(error, words):
        Temperature(**options)


def test_queries_of_other_heads_and_bare_coordinates_are_refused() -> None:
    encoding = Temperature(dialect="ssmax", num_heads=2)
    words = "x must have 2 heads, since this Temperature was made for as many; got shape (1, 3, 4, 8)."
    with raises_exactly(ValueError, words):
        encoding(torch.ones(1, 3, 4, 8))
    bare = Positions.explicit(torch.zeros(1, 4, 2, dtype=torch.int64))
    words = f"positions must have 1 coordinate each, since this Temperature encodes that many; got 2 in {bare!r}."
    with raises_exactly(ValueError, words):
        encoding.factors(bare)


def test_tokens_without_a_position_are_refused() -> None:
    positions = Positions.range(3).prefixed(1)
    words = (
        "positions must be those of tokens that all have one, since this Temperature has nothing for others; got "
        f"{positions!r}."
    )
    with raises_exactly(ValueError, words):
        Temperature(original_length=2)(torch.randn(1, 1, 4, 8), positions)
