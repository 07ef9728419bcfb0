"""Modules that encodings borrow learn through every kernel, as DeBERTa's tied projections do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import situs
from situs import Positions, attend
from situs.attention import reference
from situs.functional.heads import share_heads
from situs.positions import PositionsLike
from tests.attention.attention_cases import (
    HEADS,
    LEFT,
    WIDTH,
    learning,
    parameters_of,
    real,
    sized,
    tensors,
    tied_deberta,
    use_small_blocks,
)

LENGTH = LEFT.shape[1]
CALLS: dict[str, dict[str, Any]] = {
    "a range": {},
    "a mask": {"mask": torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril(2)},
    "a float mask": {"mask": torch.linspace(-1, 1, LENGTH).expand(LENGTH, LENGTH)},
    "a window": {"window": 3},
    "padded": {"positions": Positions.from_mask(LEFT, side="left")},
    "packed": {"positions": Positions.packed([4, 3, 2])},
    "bare ids": {"positions": torch.tensor([3, 1, 4, 1, 5, 9, 2, 6, 5])},
    "far bare ids": {"positions": torch.tensor([3, 1, 4, 1, 5, 9, 2, 6, 5]) + 10_000_000},
}
every_call = pytest.mark.parametrize("situation", CALLS)
either_order = pytest.mark.parametrize("causal", [False, True])


def tied(dtype: torch.dtype = torch.float64, **options: Any) -> situs.Deberta:
    """An encoding and what it borrows, in one dtype."""
    encoding = tied_deberta(**options)
    learning([encoding]).to(dtype)
    return encoding


def assert_learn_as_in_the_reference(
    learned: Sequence[Tensor],
    *,
    length: int = LENGTH,
    dtype: torch.dtype = torch.float64,
    within: float = 1e-10,
    impl: Any = "auto",
    **call: Any,
) -> None:
    """To a part of the largest gradient, for real queries; what padding gives is nobody's business."""
    qkv, positions = tensors(length, length, kv_heads=2, dtype=dtype), call.get("positions")
    weights = torch.randn_like(qkv[0])
    if isinstance(positions, Positions):
        weights = weights * real(positions).to(dtype)
    wanted = torch.autograd.grad(reference(*qkv, **call), learned, weights)
    found = torch.autograd.grad(attend(*qkv, impl=impl, **call), learned, weights)
    largest = max(float(each.abs().max()) for each in wanted)
    for actual, right, source in zip(found, wanted, learned, strict=True):
        assert actual.dtype == source.dtype
        torch.testing.assert_close(actual, right, atol=within * largest, rtol=0.0)


@pytest.mark.parametrize("impl", ["auto", "blockwise"])
@either_order
@every_call
def test_tied_projections_learn_as_in_the_reference(
    situation: str, causal: bool, impl: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_small_blocks(monkeypatch)
    encoding = tied(terms=("c2p", "p2c", "p2p"))
    projections = [parameter for module in encoding.borrowed for parameter in module.parameters()]
    assert len(projections) == 4
    learned, call = [*encoding.parameters(), *projections], {**CALLS[situation], "causal": causal}
    assert_learn_as_in_the_reference(learned, impl=impl, encoding=encoding, **call)


@pytest.mark.parametrize("beside", ["ALiBi", "Rotary"])
@every_call
def test_tied_projections_learn_beside_other_encodings(situation: str, beside: str) -> None:
    encoding = tied()
    other = situs.ALiBi(num_heads=HEADS) if beside == "ALiBi" else situs.Rotary(head_dim=WIDTH)
    assert_learn_as_in_the_reference(parameters_of([encoding]), encoding=[other, encoding], **CALLS[situation])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@either_order
@every_call
def test_tied_projections_of_half_precision_learn_as_in_the_reference(
    situation: str, causal: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_small_blocks(monkeypatch)
    encoding, call = tied(dtype), {**CALLS[situation], "causal": causal}
    within = 4 * torch.finfo(dtype).eps
    assert_learn_as_in_the_reference(parameters_of([encoding]), dtype=dtype, within=within, encoding=encoding, **call)


@pytest.mark.thin(4)
@pytest.mark.once
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_gradients_of_many_blocks_are_rounded_once(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("situs.attention.kernels.loop.Term.queries", 1)
    encoding, mask = tied(dtype), torch.ones(1, 200, dtype=torch.bool)
    within = 2 * torch.finfo(dtype).eps
    call: dict[str, Any] = {"length": 200, "dtype": dtype, "encoding": encoding, "mask": mask}
    assert_learn_as_in_the_reference(parameters_of([encoding]), within=within, **call)


@every_call
def test_one_projection_tied_as_both_learns_from_both_and_stays_as_it_was(situation: str) -> None:
    both = nn.Linear(sized["dim"], HEADS * WIDTH).double()
    encoding = situs.Deberta(**sized, share_att_key=True).double().tie(query=both, key=both)
    held = dict(both.named_parameters())
    assert_learn_as_in_the_reference(list(held.values()), encoding=encoding, **CALLS[situation])
    assert all(parameter is held[name] for name, parameter in both.named_parameters())


@every_call
def test_two_encodings_tied_to_the_same_projections_both_teach_them(situation: str) -> None:
    first, second = tied(), tied()
    query, key = first.borrowed
    assert isinstance(query, nn.Linear)
    assert isinstance(key, nn.Linear)
    second.tie(query=query, key=key)
    learned = parameters_of([first, second])
    assert len(learned) == 6
    assert_learn_as_in_the_reference(learned, encoding=[first, second], **CALLS[situation])


@every_call
def test_what_is_frozen_gets_no_gradient_and_the_rest_does(situation: str) -> None:
    encoding, qkv = tied(), tensors(LENGTH, LENGTH)
    query, key = encoding.borrowed
    query.requires_grad_(False)
    attend(*qkv, encoding=encoding, **CALLS[situation]).sum().backward()
    assert all(parameter.grad is None for parameter in query.parameters())
    assert all(parameter.grad is not None for parameter in (*key.parameters(), encoding.table))


@either_order
@every_call
def test_a_layer_whose_projections_are_tied_learns_as_with_the_reference(situation: str, causal: bool) -> None:
    dim, call = HEADS * WIDTH, dict(CALLS[situation])
    encoding = situs.Deberta(dim=dim, num_heads=HEADS, head_dim=WIDTH, max_distance=4, share_att_key=True)
    rules: dict[str, Any] = {"causal": causal, "window": call.pop("window", None)}
    layer = situs.Attention(dim=dim, num_heads=HEADS, encoding=encoding, bias=True, **rules).double()
    encoding.tie(query=layer.query, key=layer.key)
    nn.init.normal_(encoding.table)
    x, places = torch.randn(2, LENGTH, dim, dtype=torch.float64), call.get("positions")
    weights = torch.randn_like(x) * (real(places)[:, 0] if isinstance(places, Positions) and places.rows > 1 else 1)
    found, wanted = (
        torch.autograd.grad(layer(x, **call, impl=impl), list(layer.parameters()), weights)
        for impl in ("auto", "reference")
    )
    for actual, right in zip(found, wanted, strict=True):
        torch.testing.assert_close(actual, right, atol=1e-9, rtol=1e-9)


class ThroughALayer(situs.ScoreEncoding):
    """A user's own encoding, which lets queries meet keys once more by a layer that is another's, and knows one
    parameter under two names."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.layers = (layer,)
        self.strength = nn.Parameter(torch.ones(()))
        self.same = self.strength

    @property
    def borrowed(self) -> tuple[nn.Module, ...]:
        return self.layers

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        query_positions: PositionsLike = None,
        key_positions: PositionsLike = None,
        *,
        scale: float | None = None,
        visible: Tensor | None = None,
    ) -> Tensor:
        met: Tensor = self.layers[0](query) @ share_heads(key, query.shape[1]).transpose(-2, -1)
        return self.strength * self.same * met


@every_call
def test_encodings_of_ones_own_may_borrow_too(situation: str) -> None:
    layer = nn.Linear(WIDTH, WIDTH).double()
    encoding = ThroughALayer(layer).double()
    learned = [*layer.parameters(), encoding.strength]
    assert_learn_as_in_the_reference(learned, encoding=encoding, **CALLS[situation])
