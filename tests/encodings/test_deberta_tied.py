"""DeBERTa with the attention's own projections, as v2 and v3 share them: tied, never copied."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from situs import Deberta
from situs.attention import reference
from situs.encodings.deberta import TERMS
from situs.positions import PositionsLike
from tests.encodings.score_situations import HEAD_DIM, assert_exports, assert_gradients, ranges_and_bare_ids, stirred
from tests.encodings.test_deberta import DIM, Row, all_terms, made
from tests.raising import raises_exactly

both_rows = pytest.mark.parametrize("p2c_row", ["same", "mirrored"])


class Attention(nn.Module):
    """An attention that shares its projections with its encoding, as v2 and v3 do."""

    def __init__(self, *, bias: bool = True, **options: Any) -> None:
        super().__init__()
        width = 2 * HEAD_DIM
        self.query, self.key = (nn.Linear(DIM, width, bias=bias) for _ in range(2))
        sizes: dict[str, Any] = {"dim": DIM, "num_heads": 2, "head_dim": HEAD_DIM, "max_distance": 16}
        self.encoding = Deberta(**{**sizes, "share_att_key": True, "layer_norm": True, **options})
        self.encoding.tie(query=self.query, key=self.key)

    def forward(self, x: Tensor, positions: PositionsLike = None) -> Tensor:
        q, k = (projection(x).view(*x.shape[:2], 2, HEAD_DIM).transpose(1, 2) for projection in (self.query, self.key))
        return reference(q, k, k, encoding=self.encoding, positions=positions)


@pytest.mark.parametrize("bias", [True, False])
@both_rows
@all_terms
def test_tied_projections_act_as_if_they_were_its_own(terms: tuple[str, ...], p2c_row: Row, bias: bool) -> None:
    model = stirred(Attention(terms=terms, p2c_row=p2c_row, bias=bias))
    own = made(num_heads=2, terms=terms, p2c_row=p2c_row, layer_norm=True)
    own.table, own.norm = model.encoding.table, model.encoding.norm
    own.query_projection, own.key_projection = model.query, model.key
    for at in (None, torch.tensor([9, 0, 2, 70_000, 5])):
        q, k = torch.randn(2, 1, 2, 5, HEAD_DIM)
        assert torch.equal(model.encoding(q, k, at), own(q, k, at))


def test_tied_projections_stay_the_attentions() -> None:
    model = Attention()
    assert sorted(model.encoding.state_dict()) == ["norm.bias", "norm.weight", "table"]
    assert [name for name, _ in model.encoding.named_parameters()] == ["table", "norm.weight", "norm.bias"]
    names = ["encoding.norm.bias", "encoding.norm.weight", "encoding.table", "key.bias", "key.weight", "query.bias"]
    assert sorted(model.state_dict()) == [*names, "query.weight"]
    assert len(list(model.parameters())) == 7
    assert len(list(model.modules())) == 5
    assert model.encoding.tie(query=model.query, key=model.key) is model.encoding


def test_the_encoding_tells_which_projections_it_borrows() -> None:
    model = Attention()
    assert model.encoding.borrowed == (model.query, model.key)
    assert made(num_heads=2).borrowed == made(num_heads=2, share_att_key=True).borrowed == ()


def test_gradients_and_updates_reach_the_tied_projections() -> None:
    model = stirred(Attention())
    q, k = torch.randn(2, 1, 2, 5, HEAD_DIM)
    before = model.encoding(q, k)
    before.sum().backward()
    for projection in (model.query, model.key):
        assert projection.weight.grad is not None
        assert bool(projection.weight.grad.any())
    with torch.no_grad():
        model.key.weight.add_(1)
    assert not torch.allclose(model.encoding(q, k), before)


@ranges_and_bare_ids
@both_rows
def test_every_gradient_is_right_with_projections_that_are_tied(
    p2c_row: Row, places: tuple[PositionsLike, PositionsLike]
) -> None:
    options: dict[str, Any] = {"buckets": 4, "layer_norm": True, "p2c_row": p2c_row, "share_att_key": True}
    encoding = Deberta(dim=3, num_heads=2, head_dim=HEAD_DIM, max_distance=6, **options)
    query, key = nn.Linear(3, 8), nn.Linear(3, 8)
    assert_gradients(encoding.tie(query=query, key=key), places, query, key)


@pytest.mark.parametrize("way", ["deepcopy", "pickle"])
def test_a_copy_of_the_model_is_tied_to_its_own_projections(way: str) -> None:
    model = stirred(Attention())
    other: Attention = copy.deepcopy(model) if way == "deepcopy" else pickle.loads(pickle.dumps(model))
    x = torch.randn(1, 5, DIM)
    expected = model(x)
    assert torch.equal(other(x), expected)
    with torch.no_grad():
        model.query.weight.zero_()
        model.key.weight.zero_()
    assert torch.equal(other(x), expected)
    q, k = torch.randn(2, 1, 2, 5, HEAD_DIM)
    before = other.encoding(q, k)
    with torch.no_grad():
        other.key.weight.zero_()
    assert not torch.allclose(other.encoding(q, k), before)
    assert sorted(other.state_dict()) == sorted(model.state_dict())


def test_a_tied_model_loads_its_checkpoint_and_changes_dtype_as_one() -> None:
    model, other = stirred(Attention()), Attention()
    other.load_state_dict(model.state_dict(), strict=True)
    x = torch.randn(1, 5, DIM)
    assert torch.equal(other(x), model(x))
    torch.testing.assert_close(other.double()(x.double()).float(), model(x))
    assert other.bfloat16()(x.bfloat16()).dtype == torch.bfloat16


@pytest.mark.compiled
def test_a_tied_model_compiles_and_follows_its_projections() -> None:
    torch._dynamo.reset()
    model = stirred(Attention())
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    x = torch.randn(1, 5, DIM)
    torch.testing.assert_close(compiled(x), model(x), atol=1e-5, rtol=1e-4)
    with torch.no_grad():
        model.key.weight.add_(0.5)
    torch.testing.assert_close(compiled(x), model(x), atol=1e-5, rtol=1e-4)


@pytest.mark.compiled
def test_an_exported_layer_with_tied_projections_takes_any_length() -> None:
    query, key = nn.Linear(DIM, 8), nn.Linear(DIM, 8)
    encoding = made(num_heads=2, terms=TERMS, buckets=8, share_att_key=True).tie(query=query, key=key)
    assert_exports(encoding, query, key)


def test_projections_must_be_tied_before_use() -> None:
    encoding, x = made(num_heads=2, share_att_key=True), torch.zeros(1, 2, 3, HEAD_DIM)
    for places in (None, torch.tensor([5, 0, 2])):
        with raises_exactly(
            ValueError,
            "tie(query=..., key=...) must be called first, since share_att_key means the attention's own projections "
            "are used; got none.",
        ):
            encoding(x, x, places)


def test_only_fitting_projections_are_tied_and_only_where_asked() -> None:
    fitting = nn.Linear(DIM, 8)
    with raises_exactly(
        ValueError,
        ("share_att_key must be True to tie projections, since this encoding has its own; got share_att_key=False."),
    ):
        made(num_heads=2).tie(query=fitting, key=fitting)
    encoding = made(num_heads=2, share_att_key=True)
    with raises_exactly(
        ValueError, "query must project 6 channels to 8, since rows of the table go through it; got 5 to 8."
    ):
        encoding.tie(query=nn.Linear(5, 8), key=fitting)
    with raises_exactly(
        ValueError, "key must project 6 channels to 8, since rows of the table go through it; got 6 to 9."
    ):
        encoding.tie(query=fitting, key=nn.Linear(6, 9))
