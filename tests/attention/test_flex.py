"""FlexAttention, compiled for the CPU, gives what the reference gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import situs
from situs import Positions, attend, explain
from situs.attention import reference
from tests.attention.attention_cases import tensors
from tests.raising import raises_exactly

LENGTH, WIDTH = 128, 16

ENCODINGS: dict[str, situs.Encoding] = {
    "rotary": situs.Rotary(head_dim=WIDTH),
    "alibi": situs.ALiBi(num_heads=2),
    "t5": situs.T5Bias(num_heads=2, init_std=1.0),
}

PLACES = {
    "range": Positions.range(LENGTH),
    "packed": Positions.packed([50, 30, 48]),
    "padded": Positions.from_mask(torch.arange(LENGTH) >= torch.tensor([[0], [37]]), side="left"),
}

CALLS: list[tuple[str, str, dict[str, Any], int]] = [
    ("t5", "range", {"causal": True}, 2),
    ("alibi", "packed", {"causal": True}, 2),
    ("rotary", "padded", {"causal": True, "window": 20}, 1),
]


@pytest.mark.compiled
@pytest.mark.parametrize(("name", "places", "rules", "kv_heads"), CALLS)
@torch.no_grad()
def test_compiled_flex_equals_the_reference(name: str, places: str, rules: dict[str, Any], kv_heads: int) -> None:
    torch._dynamo.reset()
    q, k, v = tensors(LENGTH, LENGTH, heads=2, kv_heads=kv_heads, width=WIDTH, dtype=torch.float32)
    qkv = q.detach(), k.detach(), v.detach()
    call: dict[str, Any] = {"encoding": ENCODINGS[name], "positions": PLACES[places], **rules}
    out = attend(*qkv, **call, impl="flex")
    torch.testing.assert_close(out, reference(*qkv, **call), atol=5e-6, rtol=0.0)


def test_flex_on_the_cpu_has_no_backward() -> None:
    qkv = tensors(LENGTH, LENGTH, heads=2, kv_heads=2, width=WIDTH, dtype=torch.float32)
    with raises_exactly(
        ValueError,
        'impl="flex" cannot serve this call, since its CPU compilation has no backward. Use impl="auto".',
    ):
        attend(*qkv, encoding=ENCODINGS["alibi"], impl="flex")
    plain = [each.detach() for each in qkv]
    assert explain(*plain, encoding=ENCODINGS["alibi"], impl="flex").impl == "flex"
    assert explain(*plain, encoding=ENCODINGS["t5"]).others["flex"] == "cannot: its CPU compilation has no backward"


@torch.no_grad()
def test_flex_says_what_it_cannot_serve() -> None:
    qkv = tensors(4, 4, heads=2, kv_heads=2, width=WIDTH, dtype=torch.float32)
    with raises_exactly(
        ValueError, 'impl="flex" cannot serve this call, since Shaw depends on the content. Use impl="auto".'
    ):
        attend(*qkv, encoding=situs.Shaw(num_heads=2, head_dim=WIDTH), impl="flex")
    for call in ({"mask": torch.ones(4, 4, dtype=torch.bool)}, {"dropout": 0.5}):
        with raises_exactly(
            ValueError,
            'impl="flex" cannot serve this call, since it takes neither a mask of the caller\'s own nor dropout. '
            'Use impl="auto".',
        ):
            attend(*qkv, impl="flex", **call)


@torch.no_grad()
def test_flex_on_the_cpu_cannot_serve_double_precision() -> None:
    qkv = tensors(4, 4, heads=2, kv_heads=2, width=WIDTH)
    with pytest.raises(ValueError, match=r'^impl="flex" cannot serve this call, since .*\. Use impl="auto"\.$'):
        explain(*qkv, impl="flex")


@pytest.mark.compiled
@torch.no_grad()
def test_flex_without_gradients_serves_tensors_that_could_have_some() -> None:
    torch._dynamo.reset()
    qkv = tensors(LENGTH, LENGTH, heads=2, kv_heads=2, width=WIDTH, dtype=torch.float32)
    out = attend(*qkv, encoding=ENCODINGS["alibi"], impl="flex")
    torch.testing.assert_close(out, reference(*qkv, encoding=ENCODINGS["alibi"]), atol=5e-6, rtol=0.0)


@pytest.mark.parametrize(("queries", "keys"), [(40, 40), (72, 72), (128, 72), (1, 128), (300, 300)])
@torch.no_grad()
def test_lengths_at_which_the_cpu_compilation_may_be_wrong_are_refused(queries: int, keys: int) -> None:
    qkv = tensors(queries, keys, heads=2, kv_heads=2, width=WIDTH, dtype=torch.float32)
    with raises_exactly(
        ValueError,
        'impl="flex" cannot serve this call, since its CPU compilation gives wrong numbers at some lengths that are no '
        'multiple of 128. Use impl="auto".',
    ):
        attend(*qkv, encoding=ENCODINGS["alibi"], impl="flex")
