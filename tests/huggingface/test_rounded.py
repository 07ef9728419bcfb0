"""Attention in bfloat16 with scores that own code rounds, beside the same in float64 and beside own code."""

import math
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from situs import ALiBi, T5Bias
from situs.huggingface import accelerated, rounded
from situs.huggingface import at_once as module
from situs.huggingface.at_once import at_once
from situs.huggingface.interface import attended
from situs.huggingface.rounded import attend_rounded
from situs.huggingface.seeing import Rules, Sight
from tests.huggingface.small_models import made, outputs, padding, texts

pytestmark = pytest.mark.once
HEADS, WIDTH = 4, 16
BIASES: dict[str, Any] = {
    "nothing": None, "t5": T5Bias(num_heads=HEADS, bidirectional=True), "alibi": ALiBi(num_heads=HEADS),
}  # fmt: skip


def vectors(tokens: int, *, sharper: float = 1.0) -> torch.Tensor:
    return (sharper * torch.randn(2, HEADS, tokens, WIDTH)).bfloat16()


def exact(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Sight, bias: Any, row: Any) -> Any:
    """The same with all pairs, in float64, with 0 for queries that see nothing."""
    offsets = (mask.first_key + torch.arange(mask.keys)) - (mask.first_query + torch.arange(mask.queries))[:, None]
    scores = query.double() @ key.double().transpose(2, 3) / math.sqrt(WIDTH)
    if bias is not None:
        scores = scores + bias.by_offset(offsets.flatten()).double().view(HEADS, *offsets.shape)
    if row is not None:
        scores = scores + row.double()
    seen = torch.ones_like(offsets, dtype=torch.bool)
    if mask.rules.causal:
        seen &= offsets <= 0
    if mask.rules.window is not None:
        seen &= offsets.abs() < mask.rules.window
    seen = seen.expand(2, 1, -1, -1) if mask.real is None else seen & mask.real[:, None, None]
    return scores.masked_fill(~seen, -math.inf).softmax(-1).nan_to_num(0) @ value.double(), seen.any(-1, keepdim=True)


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize(("causal", "window"), [(False, None), (True, None), (True, 30), (False, 7)])
@pytest.mark.parametrize("row", [False, True])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("sizes", [(2, 2, 0), (70, 70, 0), (33, 70, 37), (5, 9, 0)], ids=str)
def test_what_is_seen_and_added_is_so_in_every_tile(
    bias: str, causal: bool, window: int | None, row: bool, padded: bool, sizes: tuple[int, int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(rounded, "QUERIES", 16)
    monkeypatch.setattr(rounded, "SCORES", 3000)
    queries, keys, first = sizes
    query, key, value = vectors(queries), vectors(keys), vectors(keys)
    real = torch.ones(2, keys, dtype=torch.bool)
    real[1, : keys // 3] = False
    mask = Sight(Rules(causal, window), queries, keys, first, 0, real if padded else None)
    added = torch.randn(2, HEADS, 1, keys) if row else None
    with torch.no_grad():
        found = attend_rounded(
            query, key, value, mask, encoding=BIASES[bias], row=added, source=None, scale=WIDTH**-0.5
        )  # fmt: skip
        expected, sees = exact(query, key, value, mask, BIASES[bias], added)
    assert found.isfinite().all()
    difference = torch.where(sees, found.double() - expected, 0.0)
    assert difference.abs().max() < 0.05
    assert difference.abs().mean() < 0.004


def test_short_texts_share_a_product() -> None:
    formed = []

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            formed.extend([func] if func is torch.ops.aten._softmax.default else [])
            return func(*args, **(kwargs or {}))

    query, key, value = (torch.randn(64, HEADS, 8, WIDTH).bfloat16() for _ in range(3))
    with torch.no_grad(), Counting():
        attended(query, key, value, Sight(Rules(), 8, 8, 0, 0, None), rounded=True)
    assert len(formed) == 1


@pytest.mark.parametrize("sharper", [1.0, 4.0])
def test_scores_are_rounded_no_more_than_by_own_code(sharper: float) -> None:
    query, key, value = vectors(300, sharper=sharper), vectors(300), vectors(300)
    mask = Sight(Rules(), 300, 300, 0, 0, None)
    with torch.no_grad():
        found = attended(query, key, value, mask, rounded=True).transpose(1, 2)
        own = ((query @ key.transpose(2, 3)) / math.sqrt(WIDTH)).softmax(-1) @ value
        expected, _ = exact(query, key, value, mask, None, None)
    assert (found.double() - expected).abs().mean() <= 1.1 * (own.double() - expected).abs().mean()


@pytest.mark.parametrize("why", ["gradients", "dropout", "documents", "float32", "float16", "exact", "autocast"])
def test_it_serves_only_where_own_code_would_round_so(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        pytest.fail("scores are rounded")

    monkeypatch.setattr(module, "attend_rounded", fail)
    dtype = {"float32": torch.float32, "float16": torch.float16}.get(why, torch.bfloat16)
    query, key, value = (vectors(9).to(dtype) for _ in range(3))
    documents = torch.zeros(2, 9, dtype=torch.int64) if why == "documents" else None
    with torch.set_grad_enabled(why == "gradients"), torch.autocast("cpu", torch.bfloat16, enabled=why == "autocast"):
        at_once(
            query, key, value, Sight(Rules(documents=documents), 9, 9, 0, 0, None), encoding=BIASES["t5"], row=None,
            source=None, scale=None, dropout=0.5 if why == "dropout" else 0.0, rounded=why != "exact",
        )  # fmt: skip


@pytest.mark.parametrize("name", ["mpnet", "bloom", "mpt"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_long_texts_of_models_are_as_exact_as_before(name: str, side: str) -> None:
    model, ids = made(name, torch.bfloat16), texts(2, 400)
    mask = padding(ids, side)
    # float32 is exact enough: in float64, own code gives NaN behind padding
    expected = outputs(made(name, torch.bfloat16).float(), ids, mask).double()
    before = (outputs(model, ids, mask).double() - expected).abs().mean()
    with accelerated(model):
        now = (outputs(model, ids, mask).double() - expected).abs().mean()
    assert now <= 1.2 * before
