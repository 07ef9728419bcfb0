"""No call leaves a tensor in a reference cycle, where it would stay until garbage is collected."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

import situs
from situs.attention import attend
from situs.attention.attend import Impl
from tests.attention.attention_cases import ALWAYS, BATCH, ENCODINGS, HEADS, PLACES, WIDTH

pytestmark = pytest.mark.once


@contextmanager
def collecting(found: list[object]) -> Iterator[None]:
    """Find the objects that only the collector would free."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.garbage.clear()
    try:
        yield
        gc.collect()
        found += gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def test_the_finder_finds_a_tensor_that_only_the_collector_would_free() -> None:
    found: list[object] = []
    with collecting(found):
        held: list[object] = [torch.zeros(1)]
        held.append(held)
        del held
    assert any(isinstance(each, torch.Tensor) for each in found)


@pytest.mark.parametrize("impl", ALWAYS)
@pytest.mark.parametrize("place", ["a range", "padded in holes", "one decoded token", "randomised"])
@pytest.mark.parametrize("name", ENCODINGS)
def test_a_call_and_its_backward_pass_leave_no_tensor_for_the_collector(name: str, place: str, impl: Impl) -> None:
    encodings, (positions, key_positions) = ENCODINGS[name](), PLACES[place]()
    q = torch.randn(BATCH, HEADS, positions.length, WIDTH, requires_grad=True)
    k, v = (torch.randn(BATCH, HEADS, key_positions.length, WIDTH, requires_grad=True) for _ in range(2))

    def run() -> None:
        out = attend(
            q, k, v, encoding=encodings, causal=True, positions=positions, key_positions=key_positions, impl=impl
        )
        out.sum().backward()

    run()  # what is made once stays
    found: list[object] = []
    with collecting(found):
        run()
    assert [type(each).__name__ for each in found if isinstance(each, torch.Tensor)] == []


@pytest.mark.parametrize("name", ["rotary", "t5", "shaw", "deberta", "cope"])
def test_a_layer_that_decodes_leaves_no_tensor_for_the_collector(name: str) -> None:
    layer = situs.Attention(dim=HEADS * WIDTH, num_heads=HEADS, encoding=ENCODINGS[name]()[0])

    def generate() -> None:
        cache = layer.make_cache(batch=1, max_length=12)
        for tokens in (7, 1, 1):
            layer(torch.randn(1, tokens, HEADS * WIDTH), cache=cache)

    found: list[object] = []
    with torch.no_grad():
        generate()
        with collecting(found):
            generate()
    assert [type(each).__name__ for each in found if isinstance(each, torch.Tensor)] == []
