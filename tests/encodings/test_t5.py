"""T5's bias: rows by bucket, directions, its softmax scale, and tables that layers share."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn

from situs import Positions, T5Bias
from situs.attention import reference as attention
from tests.encodings.bias_places import FAR, starts, whole_ids
from tests.references import t5 as paper

SIZES = [(32, 128), (8, 20), (4, 5), (16, 1000)]
both_directions = pytest.mark.parametrize("bidirectional", [True, False])
both_kinds = pytest.mark.parametrize("buckets", ["log", "clipped"])


def by_paper(encoding: T5Bias, query: NDArray[Any], key: NDArray[Any]) -> NDArray[np.float64]:
    return paper.bias(
        encoding.table.detach().double().numpy(),
        query,
        key,
        encoding.max_distance,
        encoding.bidirectional,
        "bucketed" if encoding.buckets == "log" else "clipped",
    )


def made(heads: int, size: tuple[int, int], bidirectional: bool, buckets: Any) -> T5Bias:
    return T5Bias(
        num_heads=heads,
        num_buckets=size[0],
        max_distance=size[1],
        bidirectional=bidirectional,
        buckets=buckets,
        init_std=1.0,
    )


@given(
    st.integers(1, 5), st.sampled_from(SIZES), st.booleans(), st.sampled_from(["log", "clipped"]), st.integers(1, 6),
    st.integers(1, 6), starts, st.integers(-150, 150),
)  # fmt: skip
def test_ranges_get_the_papers_bias(
    heads: int, size: tuple[int, int], two: bool, buckets: str, queries: int, keys: int, start: int, ahead: int
) -> None:
    encoding = made(heads, size, two, buckets)
    query, key = Positions.range(queries, start=start), Positions.range(keys, start=start + ahead)
    expected = by_paper(encoding, query.ids[0].numpy(), key.ids[0].numpy())
    assert np.array_equal(encoding(query, key, dtype=torch.float64)[0].detach().numpy(), expected)


@given(
    st.integers(1, 3), st.sampled_from(SIZES), st.booleans(), st.sampled_from(["log", "clipped"]), whole_ids, whole_ids
)
def test_any_whole_positions_get_the_papers_bias(
    heads: int, size: tuple[int, int], two: bool, buckets: str, query: list[int], key: list[int]
) -> None:
    encoding = made(heads, size, two, buckets)
    bias = encoding(torch.tensor(query), torch.tensor(key), dtype=torch.float64)
    assert np.array_equal(bias[0].detach().numpy(), by_paper(encoding, np.array(query), np.array(key)))


@both_directions
@pytest.mark.parametrize("size", SIZES)
def test_every_offset_takes_the_papers_row(size: tuple[int, int], bidirectional: bool) -> None:
    near = list(range(-2 * size[1], 2 * size[1] + 1))
    offsets = torch.tensor([*near, *FAR])
    rows = made(1, size, bidirectional, "log").rows_of(offsets)
    assert rows.tolist() == [paper.bucket(offset, bidirectional, *size) for offset in offsets.tolist()]
    clipped = made(1, size, bidirectional, "clipped").rows_of(offsets)
    assert clipped.tolist() == [paper.clipped_row(offset, size[1], bidirectional) for offset in offsets.tolist()]


def test_the_rows_of_the_paper_are_golden() -> None:
    encoding = T5Bias(num_heads=1)
    assert encoding.rows_of(torch.tensor([0, -1, -7, -8, -127, -128, 1, 7, 8, 128])).tolist() == [
        *(0, 1, 7, 8, 15, 15),
        *(17, 23, 24, 31),
    ]
    assert encoding.rows_of(torch.tensor(FAR)).tolist() == [15, 15, 31, 31]


def test_log_and_clipped_rows_are_alike_near_and_differ_far() -> None:
    log, clipped = (made(1, (32, 128), False, kind) for kind in ("log", "clipped"))
    near, far = -torch.arange(16), -torch.arange(24, 128)
    assert torch.equal(log.rows_of(near), clipped.rows_of(near))
    assert bool((log.rows_of(far) < clipped.rows_of(far)).all())
    assert (log.table.shape[0], clipped.table.shape[0]) == (32, 129)
    assert made(1, (32, 128), True, "clipped").table.shape[0] == 257


@both_kinds
def test_decoders_count_keys_ahead_as_distance_zero_and_encoders_tell_them_apart(buckets: str) -> None:
    ahead = torch.tensor([1, 2, 100, 70_000, 10_000_000])
    assert made(1, (32, 128), False, buckets).rows_of(ahead).tolist() == [0] * 5
    encoder = made(1, (32, 128), True, buckets)
    assert not set(encoder.rows_of(ahead).tolist()) & set(encoder.rows_of(-ahead).tolist())


@both_kinds
@both_directions
def test_all_beyond_the_largest_distance_share_a_row(buckets: str, bidirectional: bool) -> None:
    encoding = made(3, (8, 20), bidirectional, buckets)
    last = encoding.by_offset(torch.tensor([-20]))
    for offset in (-21, -70_000, -10_000_000):
        assert torch.equal(encoding.by_offset(torch.tensor([offset])), last)


@both_kinds
@both_directions
def test_gradients_are_those_of_finite_differences(buckets: str, bidirectional: bool) -> None:
    encoding = made(2, (8, 6), bidirectional, buckets).double()
    ids = torch.tensor([[0, 3, 1, 10_000_000], [70_000, 69_999, 4, 2]])
    offsets = torch.tensor([0, 1, -1, 4, -9, 10_000_000])
    assert torch.autograd.gradcheck(lambda _: encoding(ids), encoding.table)
    assert torch.autograd.gradcheck(lambda _: encoding(Positions.range(5, start=70_000)), encoding.table)
    assert torch.autograd.gradcheck(lambda _: encoding.by_offset(offsets), encoding.table)


def test_rows_that_no_offset_takes_get_no_gradient() -> None:
    encoding = T5Bias(num_heads=2)
    encoding(Positions.range(4, start=10_000_000)).sum().backward()
    assert encoding.table.grad is not None
    used = encoding.table.grad.abs().sum(1).nonzero().flatten().tolist()
    assert used == [0, 1, 2, 3, 17, 18, 19]


def test_its_softmax_scale_is_one_unless_told_otherwise() -> None:
    query, key, value = torch.randn(3, 1, 2, 6, 16)
    positions = Positions.range(6, start=10_000_000)
    as_t5, as_mpnet = T5Bias(num_heads=2), T5Bias(num_heads=2, softmax_scale=None)
    as_mpnet.load_state_dict(as_t5.state_dict())
    bias = as_t5(positions)
    for encoding, scale in ((as_t5, 1.0), (as_mpnet, 0.25)):
        expected = (scale * query @ key.mT + bias).softmax(-1) @ value
        torch.testing.assert_close(attention(query, key, value, encoding=encoding, positions=positions), expected)
        assert encoding.scale_for(16) == scale
    told = attention(query, key, value, encoding=as_t5, positions=positions, scale=0.25)
    torch.testing.assert_close(told, attention(query, key, value, encoding=as_mpnet, positions=positions))


class TwoLayers(nn.Module):
    """T5 and mT5 give both the same encoding, UMT5 one each."""

    def __init__(self, first: T5Bias, second: T5Bias) -> None:
        super().__init__()
        self.encodings = nn.ModuleList([first, second])

    def forward(self, x: Tensor, positions: Positions) -> Tensor:
        for encoding in self.encodings:
            x = x + attention(x, x, x, encoding=encoding, causal=True, positions=positions)
        return x


def test_a_table_that_layers_share_learns_from_both() -> None:
    table = T5Bias(num_heads=2).double()
    first, second = T5Bias(num_heads=2).double(), T5Bias(num_heads=2).double()
    for each in (first, second):
        each.load_state_dict(table.state_dict())
    shared, apart = TwoLayers(table, table), TwoLayers(first, second)
    assert (len(list(shared.parameters())), len(list(apart.parameters()))) == (1, 2)
    x, positions = torch.randn(1, 2, 7, 8, dtype=torch.float64), Positions.range(7, start=70_000)
    together, separate = shared(x, positions), apart(x, positions)
    torch.testing.assert_close(together, separate)
    together.square().sum().backward()
    separate.square().sum().backward()
    assert table.table.grad is not None
    assert first.table.grad is not None
    assert second.table.grad is not None
    assert not torch.allclose(first.table.grad, second.table.grad)
    torch.testing.assert_close(table.table.grad, first.table.grad + second.table.grad)


def test_the_start_is_normal_and_can_be_drawn_anew() -> None:
    encoding = T5Bias(num_heads=100, num_buckets=64, init_std=0.5)
    assert float(encoding.table.detach().std()) == pytest.approx(0.5, rel=0.05)
    before = encoding.table.detach().clone()
    encoding.reset_parameters()
    assert not torch.equal(encoding.table, before)


def test_its_configuration_makes_it_again_and_describe_counts_rows() -> None:
    for buckets, rows in (("log", 8), ("clipped", 41)):
        encoding = made(3, (8, 20), True, buckets)
        assert T5Bias(**encoding.config).config == encoding.config
        described = encoding.describe()
        assert (described["rows"], described["parameters"], described["softmax_scale"]) == (rows, 3 * rows, 1.0)
    assert T5Bias(num_heads=1, softmax_scale=None).describe()["softmax_scale"] == "1/sqrt(head_dim)"


@pytest.mark.parametrize(("buckets", "bidirectional"), [(6, True), (30, True), (31, True), (31, False), (7, False)])
def test_any_number_of_buckets_is_divided_as_the_formula_divides_it(buckets: int, bidirectional: bool) -> None:
    encoding = T5Bias(num_heads=1, num_buckets=buckets, bidirectional=bidirectional)
    offsets = torch.arange(-200, 201)
    expected = [paper.bucket(offset, bidirectional, buckets, 128) for offset in offsets.tolist()]
    assert encoding.rows_of(offsets).tolist() == expected
