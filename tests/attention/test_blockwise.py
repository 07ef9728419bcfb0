"""Blocks of scores: gradients by finite differences, blocks of any size, and nothing as large as all scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import situs
from situs import Encoding, Positions, attend
from situs.attention.kernels import loop
from situs.attention.kernels.blockwise import AskedTerm
from situs.attention.kernels.softmax import Scratch
from situs.attention.kernels.tails import tail_backward
from tests.attention.attention_cases import (
    Largest,
    assert_same_as_reference,
    build,
    gradients,
    parameters_of,
    tensors,
    use_small_blocks,
)

LONG = 4096
small: dict[str, Any] = {"num_heads": 2, "head_dim": 3}
wide: dict[str, Any] = {**small, "dim": 4, "init_std": 0.7}

ENCODINGS: dict[str, Encoding] = {
    "shaw": situs.Shaw(**small, max_distance=2),
    "shaw of keys": situs.Shaw(**small, max_distance=2, values=False),
    "shaw of values": situs.Shaw(**small, max_distance=2, keys=False, per_head=True),
    "transformer xl": situs.TransformerXL(**wide),
    "tupe": situs.Tupe(**wide, max_length=8, relative_buckets=8),
    "deberta": situs.Deberta(**wide, max_distance=4, terms=("c2p", "p2c", "p2p")),
    "cope": situs.CoPE(**small, max_position=3, init_std=1.0),
    "fire": situs.Fire(num_heads=2, width=4, threshold=3.0),
}

CASES: dict[str, dict[str, Any]] = {
    "causal ranges": {"causal": True},
    "a window between ranges": {"window": 3},
    "a zigzag shard": {"causal": True, "positions": Positions.range(10).randomised(10, seed=0).shard(0, 2)},
    "padded": {"causal": True, "positions": Positions.from_mask(torch.tensor([[0, 1, 1, 1, 1]]))},
    "a mask": {"mask": torch.tensor([[1, 1, 0, 1, 1]]).bool()},
}


class _Attending(nn.Module):
    def __init__(self, encoding: nn.Module) -> None:
        super().__init__()
        self.encoding = encoding

    def forward(self, query: Tensor, key: Tensor, value: Tensor, call: dict[str, Any]) -> Tensor:
        return attend(query, key, value, encoding=self.encoding, impl="blockwise", **call)


@pytest.mark.thin(12)
@pytest.mark.once
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ENCODINGS)
def test_gradients_agree_with_finite_differences(name: str, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_blocks(monkeypatch)
    module = _Attending(ENCODINGS[name].double())
    learned = dict(module.named_parameters())
    qkv = tensors(5, 5, heads=2, kv_heads=1, width=3, batch=1)

    def run(query: Tensor, key: Tensor, value: Tensor, *given: Tensor) -> Tensor:
        own = dict(zip(learned, given, strict=True))
        result: Tensor = torch.func.functional_call(module, own, (query, key, value, CASES[case]))
        return result

    given = [each.detach().clone().requires_grad_() for each in learned.values()]
    assert torch.autograd.gradcheck(run, (*qkv, *given))


@pytest.mark.parametrize(
    ("name", "impl"),
    [
        *((name, "blockwise") for name in ("shaw", "transformer xl", "tupe, relative", "fire", "cope")),
        *((name, "toeplitz") for name in ("shaw", "transformer xl", "deberta, all terms", "tupe, relative")),
    ],
)
def test_the_size_of_tiles_and_of_groups_of_heads_changes_rounding_alone(
    name: str, impl: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoding, qkv = build(name), tensors(40, 40, kv_heads=2)
    weights, found = torch.randn_like(qkv[0]), []
    for size, scores, kept in ((1, 1, 0), (7, 600, 1 << 18), (64, 1 << 18, 0), (256, 3000, 1 << 18)):
        monkeypatch.setattr("situs.attention.kernels.loop.Term.queries", size)
        monkeypatch.setattr("situs.attention.kernels.blockwise.FEW_QUERIES", size)
        monkeypatch.setattr("situs.attention.kernels.cutting.SCORES", scores)
        monkeypatch.setattr("situs.attention.kernels.blockwise.KEPT", kept)
        out = attend(*qkv, encoding=encoding, causal=True, window=25, impl=impl)
        found.append([out, *gradients(out, weights, (*qkv, *parameters_of(encoding)))])
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            torch.testing.assert_close(one, other, atol=1e-11, rtol=1e-11)


@pytest.mark.parametrize(("kept", "times"), [(0, [2, 3]), (1 << 18, [1, 2])])
def test_few_scores_are_formed_once_and_again_if_gradients_are_asked_for_twice(
    kept: int, times: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("situs.attention.kernels.blockwise.KEPT", kept)
    encoding, qkv = build("cope"), tensors(40, 40)
    formed, form = [], AskedTerm._formed

    def noted(term: AskedTerm, *given: Any) -> Tensor | None:
        formed.append(term)
        return form(term, *given)

    monkeypatch.setattr(AskedTerm, "_formed", noted)
    out = attend(*qkv, encoding=encoding, causal=True, impl="blockwise")
    weights, counts, found = torch.randn_like(out), [], []
    for _ in range(2):
        found.append(torch.autograd.grad(out, qkv, weights, retain_graph=True))
        counts.append(len(formed))
    assert counts == times
    assert all(map(torch.equal, *found))
    formed.clear()
    with torch.no_grad():
        assert torch.allclose(attend(*qkv, encoding=encoding, causal=True, impl="blockwise"), out, atol=1e-12)
    assert len(formed) == 1


@pytest.mark.parametrize("name", ["shaw", "transformer xl", "tupe", "deberta", "cope"])
def test_nothing_of_the_size_of_all_scores_exists(name: str) -> None:
    sizes: dict[str, Any] = {"num_heads": 1, "head_dim": 16, "dim": 16, "max_length": LONG}
    encoding = situs.entry(name.replace(" ", "_")).build(**sizes)
    qkv = tensors(LONG, LONG, heads=1, kv_heads=1, width=16, batch=1, dtype=torch.float32)
    with Largest() as forward:
        out = attend(*qkv, encoding=encoding, causal=True)
    with Largest() as backward:
        out.sum().backward()
    assert 0 < forward.bytes < 4 * LONG * LONG / 4
    assert 0 < backward.bytes < 4 * LONG * LONG / 4


def test_plain_attention_by_blocks_is_plain_attention() -> None:
    qkv = tensors(300, 300, heads=1, kv_heads=1, batch=1)
    for causal in (False, True):
        blocks = attend(*qkv, causal=causal, impl="blockwise")
        torch.testing.assert_close(blocks, attend(*qkv, causal=causal, impl="flash"), atol=1e-12, rtol=1e-12)


def test_scratch_is_used_again_and_grows_as_needed() -> None:
    scratch = Scratch(torch.float32, torch.device("cpu"))
    first = scratch.take("scores", (2, 3))
    assert first.shape == (2, 3)
    assert first.dtype == torch.float32
    assert scratch.take("scores", (3, 2)).data_ptr() == first.data_ptr()
    assert scratch.take("others", (2, 3)).data_ptr() != first.data_ptr()
    larger = scratch.take("scores", (4, 4))
    assert larger.shape == (4, 4)
    assert scratch.take("scores", (1,)).data_ptr() == larger.data_ptr()


TAILED: dict[str, Callable[[], Encoding]] = {
    "shaw": lambda: situs.Shaw(num_heads=2, head_dim=8, max_distance=5),
    "shaw of keys, per head": lambda: situs.Shaw(num_heads=2, head_dim=8, max_distance=5, per_head=True, values=False),
    "deberta": lambda: situs.Deberta(dim=8, num_heads=2, head_dim=8, max_distance=6, terms=("c2p", "p2c", "p2p")),
    "transformer xl, clamped": lambda: situs.TransformerXL(dim=8, num_heads=2, head_dim=8, clamp_len=7),
    "cope": lambda: situs.CoPE(num_heads=2, head_dim=8, max_position=6, init_std=1.0),
}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("name", TAILED)
def test_far_keys_are_met_without_a_term_of_their_own(
    name: str, rotary: bool, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("situs.attention.kernels.loop.Term.queries", 16)
    monkeypatch.setattr("situs.attention.kernels.blockwise.FEW_QUERIES", 16)
    monkeypatch.setattr("situs.attention.kernels.blockwise.LONG", 16)
    monkeypatch.setattr("situs.encodings.cope.CHUNK", 8)
    tails: list[int] = []

    def watched(gradient: Tensor, inputs: Any, tail: Any, *rest: Any) -> Any:
        tails.append(inputs.key.shape[2])
        return tail_backward(gradient, inputs, tail, *rest)

    monkeypatch.setattr(loop, "tail_backward", watched)
    encoding = TAILED[name]().double()
    encodings = [encoding, situs.Rotary(head_dim=8)] if rotary else [encoding]
    qkv = tensors(200, 200, heads=2, kv_heads=1, width=8, batch=2)
    assert_same_as_reference(qkv, "auto", parameters_of(encodings), encoding=encodings, causal=causal)
    assert max(tails) > 100
