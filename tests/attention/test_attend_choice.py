"""Which kernel serves a call, and what ``explain`` says of the others."""

from __future__ import annotations

import pytest
import torch

import situs
from situs import Positions, explain
from tests.attention.attention_cases import HEADS, PLACES, build, tensors

pytestmark = pytest.mark.compiled


@pytest.mark.parametrize(
    ("name", "places", "kernel"),
    [
        ("nothing", "a range", "flash"),
        ("none", "packed", "toeplitz"),
        ("rotary", "padded left", "toeplitz"),
        ("xpos", "a zigzag shard", "toeplitz"),
        ("alibi", "a range", "toeplitz"),
        ("t5", "packed", "toeplitz"),
        ("kerple", "padded left", "toeplitz"),
        ("sandwich", "a zigzag shard", "toeplitz"),
        ("fire", "a range", "blockwise"),
        ("shaw", "packed", "toeplitz"),
        ("shaw of values", "a range", "toeplitz"),
        ("transformer xl", "a range", "toeplitz"),
        ("tupe", "a zigzag shard", "toeplitz"),
        ("tupe, relative", "a range", "toeplitz"),
        ("deberta", "decoding by row", "toeplitz"),
        ("cope", "a range", "blockwise"),
        ("rotary, shaw and t5", "a range", "toeplitz"),
        ("fire and shaw of keys", "a range", "blockwise"),
        ("t5", "one decoded token", "dense"),
        ("tupe, relative", "one decoded token", "dense"),
        ("shaw", "one decoded token", "toeplitz"),
    ],
)
def test_auto_takes_the_fastest_kernel_that_serves(name: str, places: str, kernel: str) -> None:
    query, key = PLACES[places]()
    qkv = tensors(query.length, key.length)
    found = explain(*qkv, encoding=build(name), causal=True, positions=query, key_positions=key)
    assert found.impl == kernel


def test_an_explanation_says_who_serves_and_why_not_the_others() -> None:
    qkv = tensors(5, 5)
    assert str(explain(*qkv, encoding=build("rotary"), causal=True)) == (
        "flash serves this call.\n"
        "  toeplitz   could: slower here\n"
        "  flex       cannot: its CPU compilation has no backward\n"
        "  blockwise  could: slower here\n"
        "  dense      could: slower here\n"
        "  reference  could: slower here"
    )
    assert str(explain(*qkv, encoding=build("t5"))) == (
        "toeplitz serves this call.\n"
        "  flash      cannot: T5Bias acts on scores or values\n"
        "  flex       cannot: its CPU compilation has no backward\n"
        "  blockwise  could: slower here\n"
        "  dense      could: slower here\n"
        "  reference  could: slower here"
    )
    with torch.no_grad():
        assert str(explain(*(each.float() for each in qkv), encoding=build("fire"), impl="reference")) == (
            "reference serves this call.\n"
            "  flash      cannot: Fire acts on scores or values\n"
            "  toeplitz   cannot: Fire is no function of one offset\n"
            "  flex       cannot: its CPU compilation gives wrong numbers at some lengths that are no multiple of 128\n"
            "  blockwise  could: slower here\n"
            "  dense      could: slower here"
        )
    assert str(explain(*qkv, encoding=build("cope"), mask=torch.ones(5, 5, dtype=torch.bool))) == (
        "blockwise serves this call.\n"
        "  flash      cannot: CoPE acts on scores or values\n"
        "  toeplitz   cannot: CoPE is no function of offsets and their vectors\n"
        "  flex       cannot: CoPE depends on the content\n"
        "  dense      cannot: CoPE depends on the content\n"
        "  reference  could: slower here"
    )


def test_an_explanation_tells_what_dropout_masks_and_positions_prevent() -> None:
    qkv = tensors(5, 5)
    dropped = explain(*qkv, encoding=build("t5"), dropout=0.1)
    assert dropped.impl == "dense"
    assert explain(*qkv, encoding=build("shaw"), dropout=0.1).impl == "reference"
    assert dropped.others == {
        "flash": "cannot: T5Bias acts on scores or values",
        "toeplitz": "cannot: dropout needs every weight",
        "flex": "cannot: it takes neither a mask of the caller's own nor dropout",
        "blockwise": "cannot: dropout needs every weight",
        "reference": "could: slower here",
    }
    assert explain(*qkv, encoding=build("rotary"), dropout=0.1).impl == "flash"
    masked = explain(*qkv, encoding=build("t5"), mask=torch.ones(5, 5, dtype=torch.bool))
    assert masked.impl == "toeplitz"
    assert masked.others["flash"] == "cannot: T5Bias acts on scores or values"
    real_ids = Positions.explicit(torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0]))
    spread = explain(*qkv, encoding=build("alibi"), positions=real_ids)
    assert spread.impl == "blockwise"
    assert spread.others["toeplitz"] == (
        "cannot: these positions have no whole offsets, or lie too far apart for a number per offset"
    )
    swin = situs.SwinBias(num_heads=HEADS, window=(1, 5))
    grid = explain(*qkv, encoding=swin, positions=Positions.grid(1, 5))
    assert grid.others["toeplitz"] == "cannot: SwinBias is no function of one offset"
