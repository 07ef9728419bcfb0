"""The oracle: against explicit loops, and the rules of who sees whom."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import pad

import situs
from situs import OffsetBias, Positions, ScoreEncoding
from situs.attention import reference, visibility
from situs.encodings.bias import Rule
from situs.positions import PositionsLike
from tests.raising import raises_exactly
from tests.references import attention as formula


class LinearBias(OffsetBias):
    """A bias that grows with distance: enough to tell where biases are added."""

    num_heads = 2

    def rule(self, device: torch.device, dtype: torch.dtype) -> Rule:
        return lambda offset, head: -0.3 * offset.abs().to(dtype) + 0 * head


class ContentTerm(ScoreEncoding):
    """A term of the queries alone, times the key's position."""

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
        assert isinstance(key_positions, Positions)
        assert scale is not None
        return scale * query.sum(-1, keepdim=True) * key_positions.ids[:, None, None, :].to(query)


@given(
    st.integers(1, 2), st.sampled_from([(4, 4), (4, 2), (6, 1)]), st.integers(1, 6), st.integers(0, 5), st.booleans()
)
def test_the_reference_equals_explicit_loops(
    batch: int, heads: tuple[int, int], queries: int, earlier: int, causal: bool
) -> None:
    keys = queries + earlier
    q, k, v = (
        torch.randn(batch, count, length, dim, dtype=torch.float64)
        for count, length, dim in ((heads[0], queries, 8), (heads[1], keys, 8), (heads[1], keys, 5))
    )
    allowed = np.ones((queries, keys), dtype=bool)
    if causal:
        allowed = np.arange(keys)[None] <= np.arange(queries)[:, None] + earlier
    actual = reference(q, k, v, causal=causal)
    for row in range(batch):
        expected = formula.attention(q[row].numpy(), k[row].numpy(), v[row].numpy(), allowed, 8**-0.5)
        np.testing.assert_allclose(actual[row].numpy(), expected, atol=1e-12)


def test_biases_are_added_as_they_are_and_content_terms_with_the_scale() -> None:
    q, k, v = torch.randn(3, 1, 2, 5, 4, dtype=torch.float64)
    distance = (torch.arange(5)[:, None] - torch.arange(5)[None]).abs().double()
    term = q.sum(-1, keepdim=True) * torch.arange(5)
    scores = 0.7 * (q @ k.mT + term) - 0.3 * distance
    expected = scores.softmax(-1) @ v
    torch.testing.assert_close(reference(q, k, v, encoding=[LinearBias(), ContentTerm()], scale=0.7), expected)


def test_encodings_compose_in_any_order() -> None:
    q, k, v = torch.randn(3, 1, 2, 5, 16)
    rotary, bias = situs.Rotary(head_dim=16), LinearBias()
    both = reference(q, k, v, encoding=[rotary, bias])
    torch.testing.assert_close(reference(q, k, v, encoding=[bias, rotary]), both)
    assert not torch.allclose(both, reference(q, k, v, encoding=rotary), atol=1e-3)


def test_rows_that_see_nothing_give_zeros_and_no_nan_gradients() -> None:
    q, k, v = (torch.randn(1, 2, 4, 8, requires_grad=True) for _ in range(3))
    mask = torch.tensor([[False, False, True, True]])
    out = reference(q, k, v, causal=True, positions=Positions.from_mask(mask))
    assert torch.equal(out[:, :, :2], torch.zeros(1, 2, 2, 8))
    for gradient in torch.autograd.grad(out.sum(), (q, k, v)):
        assert bool(torch.isfinite(gradient).all())


def test_a_sliding_window_sees_itself_and_the_few_before() -> None:
    places = Positions.range(6)
    seen = visibility(places, places, causal=True, window=3)
    assert seen is not None
    expected = [[0 <= i - j < 3 for j in range(6)] for i in range(6)]
    assert torch.equal(seen[0], torch.tensor(expected))


def test_causal_order_is_by_slot_never_by_position() -> None:
    image = Positions.mixed([2, situs.Vision(1, 2, 2), 2])
    seen = visibility(image, image, causal=True)
    assert seen is not None
    assert torch.equal(seen[0], torch.ones(8, 8, dtype=torch.bool).tril())


def test_sharded_queries_see_what_they_see_unsharded() -> None:
    whole = Positions.range(16)
    full = visibility(whole, whole, causal=True)
    assert full is not None
    for rank in range(2):
        mine = whole.shard(rank, 2, layout="zigzag")
        slots = mine.slots
        seen = visibility(mine, whole, causal=True)
        assert slots is not None
        assert seen is not None
        assert torch.equal(seen[0], full[0][slots[0]])


@pytest.mark.parametrize(
    ("name", "impl"),
    [
        (None, "auto"), (None, "reference"), (None, "blockwise"), (None, "dense"),
        ("alibi", "auto"), ("alibi", "reference"), ("alibi", "blockwise"), ("alibi", "toeplitz"),
    ],
)  # fmt: skip
def test_padded_queries_see_nothing(name: str | None, impl: Any) -> None:
    encoding = None if name is None else situs.create(name, num_heads=2)
    q, k, v = torch.randn(3, 2, 2, 5, 16)
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 0, 1, 1, 0]]).bool()
    out = situs.attend(q, k, v, encoding=encoding, positions=Positions.from_mask(mask), impl=impl).transpose(1, 2)
    assert not out[~mask].any()
    assert bool(out[mask].any(-1).all())


@pytest.mark.parametrize("attention", [reference, situs.attend])
def test_tensors_that_do_not_belong_together_are_refused(attention: Callable[..., Tensor]) -> None:
    q, k, v = torch.randn(3, 2, 2, 5, 16)
    with raises_exactly(
        ValueError,
        "query, key and value must be (batch, heads, sequence, head_dim); got shapes ((2, 5, 16), (2, 2, 5, 16), "
        "(2, 2, 5, 16)).",
    ):
        attention(q[0], k, v)
    for keys, values in ((k[:1], v[:1]), (k, v[:, :, :4])):
        with raises_exactly(
            ValueError,
            f"key must have the query's batch and head_dim, and value the key's batch, heads and sequence; got shapes "
            f"((2, 2, 5, 16), {tuple(keys.shape)}, {tuple(values.shape)}).",
        ):
            attention(q, keys, values)
    with raises_exactly(ValueError, "positions must have one row, or one for each of the 2 sequences; got 3 rows."):
        attention(q, k, v, positions=torch.zeros(3, 5, dtype=torch.int64))


LONG, SHORT = (13, 3), (6, 2)  # tokens of a sequence, and how many of them are new


def sequence(size: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """Queries of the new tokens, and keys and values of all."""
    q, k, v = torch.randn(3, 1, 2, size[0], 16)
    return q[:, :, -size[1] :], k, v


def attended_alone(size: tuple[int, int], vectors: tuple[Tensor, Tensor, Tensor], **told: Any) -> Tensor:
    return reference(*vectors, **told, positions=Positions.range(size[0])[-size[1] :])


@pytest.mark.parametrize("attention", [reference, situs.attend])
@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("side", ["left", "right"])
def test_new_tokens_of_a_batch_see_what_they_see_alone(
    attention: Callable[..., Tensor], window: int | None, side: Any
) -> None:
    told: dict[str, Any] = {"encoding": situs.ALiBi(num_heads=2), "causal": True, "window": window}
    one, other = sequence(LONG), sequence(SHORT)
    wholes = [Positions.range(length) for length, _ in (LONG, SHORT)]
    parts = [wholes[0][-LONG[1] :], wholes[1][-SHORT[1] :]]
    rows = []
    for mine, theirs in zip(one, other, strict=True):
        missing = mine.shape[2] - theirs.shape[2]
        rows.append(torch.cat((mine, pad(theirs, (0, 0, missing, 0) if side == "left" else (0, 0, 0, missing)))))
    places, of_keys = Positions.batch(parts, side=side), Positions.batch(wholes, side=side)
    out = attention(*rows, **told, positions=places, key_positions=of_keys)
    torch.testing.assert_close(out[:1], attended_alone(LONG, one, **told))
    real = slice(1, None) if side == "left" else slice(2)
    torch.testing.assert_close(out[1:, :, real], attended_alone(SHORT, other, **told))


@pytest.mark.parametrize("attention", [reference, situs.attend])
@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("bare", [False, True])
def test_new_tokens_of_packed_documents_see_what_they_see_alone(
    attention: Callable[..., Tensor], window: int | None, bare: bool
) -> None:
    told: dict[str, Any] = {"encoding": situs.ALiBi(num_heads=2), "causal": True, "window": window}
    one, other = sequence(LONG), sequence(SHORT)
    whole = Positions.packed([LONG[0], SHORT[0]])
    new = Positions.pack([Positions.range(LONG[0])[-LONG[1] :], Positions.range(SHORT[0])[-SHORT[1] :]])
    of_keys = Positions.explicit(whole.ids, documents=whole.documents) if bare else whole
    packed = [torch.cat(pair, 2) for pair in zip(one, other, strict=True)]
    out = attention(*packed, **told, positions=new, key_positions=of_keys)
    alone = attended_alone(LONG, one, **told), attended_alone(SHORT, other, **told)
    torch.testing.assert_close(out, torch.cat(alone, 2))


def test_a_bare_query_tensor_takes_the_place_of_the_last_keys() -> None:
    q, k, v = torch.randn(1, 1, 1, 16), torch.randn(1, 1, 9, 16), torch.randn(1, 1, 9, 16)
    rotary = situs.Rotary(head_dim=16)
    told = reference(q, k, v, encoding=rotary, causal=True, positions=torch.tensor([[8]]), key_positions=0)
    torch.testing.assert_close(told, reference(q, k, v, encoding=rotary, causal=True))


def test_boolean_and_additive_masks_agree() -> None:
    q, k, v = torch.randn(3, 2, 2, 5, 8)
    allowed = torch.rand(2, 1, 5, 5) > 0.3
    added = torch.zeros(2, 1, 5, 5).masked_fill(~allowed, -torch.inf)
    torch.testing.assert_close(reference(q, k, v, mask=allowed), reference(q, k, v, mask=added))


def test_input_encodings_have_acted_before() -> None:
    q, k, v = torch.randn(3, 1, 2, 5, 8)
    assert torch.equal(reference(q, k, v, encoding=situs.Sinusoidal(dim=16)), reference(q, k, v))


def test_errors_name_rule_value_and_cure() -> None:
    q, k = torch.randn(1, 3, 4, 8), torch.randn(1, 2, 4, 8)
    with pytest.raises(
        ValueError,
        match=r"^query heads must be a multiple of key heads, since each key head serves as many; got 3 and 2.$",
    ):
        reference(q, k, k)
    with pytest.raises(
        ValueError,
        match=r"^window must be 1 or more, since it counts the keys that a query sees, itself included; got 0.$",
    ):
        reference(k, k, k, window=0)
    packed = Positions.packed([2, 2])
    with pytest.raises(
        ValueError,
        match=r"^queries and keys must both have documents or neither, since a token sees only its own; got .*\.$",
    ):
        reference(k, k, k, positions=packed, key_positions=Positions.range(4))
    one, other = LinearBias(), LinearBias()
    one.softmax_scale, other.softmax_scale = 1.0, 0.5
    with pytest.raises(
        ValueError, match=r"^scale must be given, since these encodings declare different ones; got \[1.0, 0.5\].$"
    ):
        reference(k, k, k, encoding=[one, other])
