"""The softmax scale that an encoding declares, and a warning where another was made for a smaller one."""

from __future__ import annotations

import warnings

import pytest
import torch

import situs
from situs.attention import attend, explain, reference
from tests.raising import SHAPES_ARE_CHECKED

HEADS, WIDTH = 2, 16
SET = "^T5Bias sets the softmax scale to 1, "
WARNED = (
    "T5Bias sets the softmax scale to 1, and {other} is made for 1 / sqrt(head_dim) = 0.25: with both, q . k is 4 "
    "times as large as {other} expects. Use T5Bias(softmax_scale=None) for 1 / sqrt(head_dim)"
)


def qkv() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    query, key, value = torch.randn(3, 1, HEADS, 5, WIDTH)
    return query, key, value


def rotary() -> situs.Rotary:
    return situs.Rotary(head_dim=WIDTH)


def t5(scale: float | None = 1.0) -> situs.T5Bias:
    return situs.T5Bias(num_heads=HEADS, softmax_scale=scale)


@pytest.mark.parametrize("call", [attend, explain, reference], ids=lambda call: call.__name__)
@pytest.mark.parametrize(
    "other",
    [rotary(), situs.ALiBi(num_heads=HEADS), situs.Shaw(num_heads=HEADS, head_dim=WIDTH)],
    ids=lambda each: type(each).__name__,
)
def test_t5_beside_an_encoding_that_is_made_for_another_scale_warns(call: object, other: situs.Encoding) -> None:
    assert callable(call)
    expected = WARNED.format(other=type(other).__name__) + ", or choose with scale=."
    with pytest.warns(UserWarning, match=SET) as caught:
        call(*qkv(), encoding=[other, t5()])
    assert [str(each.message) for each in caught] == [expected]


def test_the_warning_is_shown_at_the_line_that_called() -> None:
    with pytest.warns(UserWarning, match=SET) as by_a_call:
        attend(*qkv(), encoding=[rotary(), t5()])
    with pytest.warns(UserWarning, match=SET) as by_a_layer:
        situs.Attention(dim=HEADS * WIDTH, num_heads=HEADS, encoding=[rotary(), t5()])
    if not SHAPES_ARE_CHECKED:  # which puts functions between
        assert [each.filename for each in (*by_a_call, *by_a_layer)] == [__file__] * 2


def test_a_layer_warns_when_it_is_made_and_not_when_it_is_called() -> None:
    with pytest.warns(UserWarning, match=SET) as caught:
        layer = situs.Attention(dim=HEADS * WIDTH, num_heads=HEADS, encoding=[rotary(), t5()])
    assert [str(each.message) for each in caught] == [WARNED.format(other="Rotary") + "."]
    layer(torch.randn(1, 4, HEADS * WIDTH))
    cache = layer.make_cache(batch=1, max_length=8)
    with torch.no_grad():
        layer(torch.randn(1, 4, HEADS * WIDTH), cache=cache)
        layer(torch.randn(1, 1, HEADS * WIDTH), cache=cache)


def test_nothing_is_said_where_the_scale_is_chosen_or_nothing_else_acts() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        attend(*qkv(), encoding=[rotary(), t5()], scale=1.0)
        attend(*qkv(), encoding=[rotary(), t5(None)])
        attend(*qkv(), encoding=[t5(), situs.NoPE(), t5()])
        attend(*qkv(), encoding=t5())
        attend(*qkv(), encoding=[rotary(), situs.ALiBi(num_heads=HEADS)])
        # a scale below the usual one makes room for the terms that come with it
        attend(*qkv(), encoding=[rotary(), situs.Deberta(dim=8, num_heads=HEADS, head_dim=WIDTH)])
        situs.Attention(dim=HEADS * WIDTH, num_heads=HEADS, encoding=[rotary(), t5(None)])
    assert [str(each.message) for each in caught] == []


@pytest.mark.compiled
def test_a_graph_is_compiled_without_a_word() -> None:
    both = torch.nn.ModuleList([situs.ALiBi(num_heads=HEADS), t5()])

    class Attending(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.both = both

        def forward(self, *given: torch.Tensor) -> torch.Tensor:
            return attend(*given, encoding=self.both, causal=True)

    compiled = torch.compile(Attending(), fullgraph=True, backend="eager")
    given = qkv()
    expected = reference(*given, encoding=both, causal=True, scale=1.0)
    torch.testing.assert_close(compiled(*given), expected, atol=1e-5, rtol=0)


def test_a_layer_has_the_scale_that_its_encodings_declare() -> None:
    x = torch.randn(1, 6, HEADS * WIDTH)
    for declared, scale in ((1.0, 1.0), (None, WIDTH**-0.5)):
        layer = situs.Attention(dim=HEADS * WIDTH, num_heads=HEADS, encoding=t5(declared))
        query, key, value = (
            part(x).view(1, 6, HEADS, WIDTH).transpose(1, 2) for part in (layer.query, layer.key, layer.value)
        )
        wanted = reference(query, key, value, encoding=layer.encodings, causal=True, scale=scale)
        torch.testing.assert_close(layer(x), layer.out(wanted.transpose(1, 2).flatten(2)), atol=1e-5, rtol=0)


def test_a_scale_that_the_caller_gives_is_used_as_it_is() -> None:
    yarn = situs.YaRN(factor=40.0, original_length=64, mscale=1.0, mscale_all_dim=1.0)
    rotary = situs.Rotary(head_dim=8, scaling=yarn)  # which multiplies the usual scale by 1.87
    q, k, v = torch.randn(3, 1, HEADS, 6, 8, dtype=torch.float64)
    rotated = rotary.both(q, k)
    own = rotary.softmax_factor / 8**0.5
    for given, taken in ((0.3, 0.3), (own, own), (None, own)):
        expected = torch.softmax(taken * rotated[0] @ rotated[1].mT, -1) @ v
        torch.testing.assert_close(situs.attend(q, k, v, encoding=rotary, scale=given), expected)
        torch.testing.assert_close(situs.attention.reference(q, k, v, encoding=rotary, scale=given), expected)
    biased = t5(1.0).double()  # whose own is 1
    where = situs.Positions.range(6)
    expected = torch.softmax(0.3 * q @ k.mT + biased(where, where, dtype=torch.float64), -1) @ v
    torch.testing.assert_close(situs.attend(q, k, v, encoding=biased, scale=0.3), expected)
