"""Requests: which encodings act where, whatever else these know, and what is found once."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import situs
from situs import attend
from situs.attention.request import Request, make_request
from situs.functional.heads import share_heads
from situs.positions import PositionsLike
from tests.attention.attention_cases import HEADS, WIDTH, assert_same_as_reference, build, tensors

UNASKED: dict[str, Any] = {
    "causal": False,
    "positions": None,
    "key_positions": None,
    "mask": None,
    "window": None,
    "scale": None,
    "dropout": 0.0,
}


def requested(*encodings: situs.Encoding) -> Request:
    return make_request(*tensors(5, 5), encoding=encodings, **UNASKED)


class NamedAsOthersAre(situs.ScoreEncoding):
    """A user's own, whose attributes have names that encodings here use for something else."""

    def __init__(self) -> None:
        super().__init__()
        self.keys = nn.Parameter(torch.randn(WIDTH, WIDTH))
        self.values = nn.Parameter(torch.randn(WIDTH))
        self.span = nn.Parameter(torch.ones(()))

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
        shared = share_heads(key, query.shape[1]).transpose(-2, -1)
        return self.span * ((query @ self.keys + self.values) @ shared)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("beside", [[], [situs.Shaw(num_heads=HEADS, head_dim=WIDTH)]], ids=["alone", "with Shaw"])
def test_parameters_may_have_any_names(beside: list[situs.Encoding], masked: bool, causal: bool) -> None:
    own = NamedAsOthersAre().double()
    call: dict[str, Any] = {"encoding": [own, *(each.double() for each in beside)], "causal": causal}
    mask = torch.ones(7, 7, dtype=torch.bool).triu(-2) if masked else None
    assert_same_as_reference(tensors(7, 7, kv_heads=2), "auto", list(own.parameters()), mask=mask, **call)


def test_an_encoding_whose_term_is_nothing_is_not_asked_for_it() -> None:
    sizes: dict[str, Any] = {"num_heads": HEADS, "head_dim": WIDTH}
    both, of_keys = situs.Shaw(**sizes), situs.Shaw(**sizes, values=False)
    of_values, own = situs.Shaw(**sizes, keys=False), NamedAsOthersAre()
    assert [each.acts_on_scores for each in (both, of_keys, of_values, own)] == [True, True, False, True]
    request = requested(both, of_keys, of_values, own)
    assert request.contents == (both, of_keys, own)
    assert request.values == (both, of_values)


@pytest.mark.parametrize("name", ["cope", "deberta", "shaw of keys", "transformer xl"])
def test_terms_by_content_act_on_scores_unless_they_say_otherwise(name: str) -> None:
    assert len(requested(*build(name)).contents) == 1


def test_an_encoding_made_for_no_sizes_takes_any() -> None:
    own = NamedAsOthersAre()
    assert own.num_heads is None
    assert own.head_dim is None
    for heads in (1, 2, HEADS):
        qkv = tensors(3, 3, heads=heads, kv_heads=heads, dtype=torch.float32)
        assert attend(*qkv, encoding=own).shape == (2, heads, 3, WIDTH)


def test_a_product_of_positions_is_a_bias_and_no_content() -> None:
    request = requested(*build("tupe"))
    assert request.products == request.biases == tuple(request.encodings)
    assert request.contents == ()


def test_numbers_for_offsets_follow_the_tokens_and_not_the_span_of_their_positions() -> None:
    far = situs.Positions.explicit(torch.tensor([0, 1, 2, 10**9]))
    qkv = tensors(4, 4)
    request = make_request(*qkv, encoding=build("alibi"), **UNASKED | {"positions": far})
    assert request.offset_bounds is None
    clipped = make_request(*qkv, encoding=build("shaw"), **UNASKED | {"positions": far})
    assert clipped.offset_bounds == (-3, 3)
    near = make_request(*qkv, encoding=build("alibi"), **UNASKED | {"positions": torch.tensor([5, 6, 9, 30])})
    assert near.offset_bounds == (-25, 25)


def test_what_is_asked_besides_tensors_is_asked_by_name() -> None:
    kinds = [each.kind for each in inspect.signature(make_request).parameters.values()]
    assert kinds[3:] == [inspect.Parameter.KEYWORD_ONLY] * (len(kinds) - 3)
