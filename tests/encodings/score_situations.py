"""What tests of content-based encodings share: variants, places of every kind, and what a formula says there."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn

import situs
from situs import CoPE, Deberta, Positions, Shaw, TransformerXL
from situs.attention import reference
from situs.encodings.deberta import TERMS
from situs.positions import PositionsLike

HEADS, HEAD_DIM = 4, 4
FAR = 10_000_000

Module = TypeVar("Module", bound=nn.Module)
Array = NDArray[Any]
Formula = Callable[[Array, Array, Array, Array], Array]

SETS_OF_TERMS = [chosen for count in (1, 2, 3) for chosen in itertools.combinations(TERMS, count)]
VARIANTS: dict[Any, list[dict[str, Any]]] = {
    CoPE: [{}, {"per_head": True}, {"scaled": False}, {"max_position": 2}],
    Shaw: [
        {},
        {"values": False},
        {"keys": False},
        {"per_head": True},
        {"per_head": True, "values": False},
        {"per_head": True, "keys": False},
    ],
    TransformerXL: [{}, {"clamp_len": 3}, {"clamp_len": 400, "base": 500.0, "init_std": 0.1}],
    Deberta: [
        *({"terms": terms} for terms in SETS_OF_TERMS),
        {"terms": TERMS, "layer_norm": True},
        {"terms": TERMS, "layer_norm": True, "buckets": 8, "max_distance": 16},
        {
            "terms": TERMS,
            "layer_norm": True,
            "buckets": 8,
            "max_distance": 16,
            "p2c_row": "mirrored",
            "key_bias": False,
        },
    ],
}


@dataclass(frozen=True)
class Situation:
    """Where queries and keys stand: as an encoding is told, and in plain numbers, (rows, places)."""

    query: PositionsLike
    key: PositionsLike
    query_ids: Tensor
    key_ids: Tensor
    batch: int
    real_queries: Tensor | None = None
    real_keys: Tensor | None = None

    def row(self, number: int) -> tuple[Array, Array]:
        """The positions of one sequence's queries and keys."""
        of_queries, of_keys = (ids.expand(self.batch, -1)[number].numpy() for ids in (self.query_ids, self.key_ids))
        return of_queries, of_keys

    def compared(self, number: int) -> Array:
        """The pairs of real tokens of one sequence, (queries, keys)."""
        queries, keys = (
            np.ones(ids.shape[1], dtype=bool) if real is None else real.expand(self.batch, -1)[number].numpy()
            for ids, real in ((self.query_ids, self.real_queries), (self.key_ids, self.real_keys))
        )
        return np.asarray(queries[:, None] & keys[None])

    def contents(self, heads: int = HEADS, kv_heads: int = HEADS, dim: int = HEAD_DIM) -> tuple[Tensor, Tensor]:
        """Random queries and keys."""
        query = torch.randn(self.batch, heads, self.query_ids.shape[1], dim, dtype=torch.float64)
        return query, torch.randn(self.batch, kv_heads, self.key_ids.shape[1], dim, dtype=torch.float64)


def of_one(whole: Positions, queries: int, batch: int) -> Situation:
    """The last of a whole's places as queries, all of them as keys."""
    last = whole[whole.length - queries :]
    return Situation(last, whole, last.ids, whole.ids, batch, last.valid, whole.valid)


KINDS = (
    "memory", "ranges", "cached", "explicit", "by row", "left", "right", "holes", "packed", "randomised", "skipped",
    "zigzag", "batch",
)  # fmt: skip


def situated(
    data: st.DataObject, kinds: Sequence[str] = KINDS, *, lowest: int = -FAR, past: int = FAR + 20
) -> Situation:
    """Queries and keys of any kind, whose positions lie in ``lowest .. past - 1``."""
    draw = data.draw
    kind = draw(st.sampled_from(kinds))
    queries, batch = draw(st.integers(1, 5)), draw(st.integers(1, 2))
    keys = queries + draw(st.integers(0, 4))
    starts = st.sampled_from([start for start in (0, 3, 17, 70_000, FAR) if start + keys <= past])
    if kind == "memory":
        return Situation(None, None, torch.arange(keys)[None, keys - queries :], torch.arange(keys)[None], batch)
    if kind == "cached":
        here = Positions.range(queries, start=keys - queries)
        return Situation(here, None, here.ids, torch.arange(keys)[None], batch)
    if kind == "ranges":
        first, other = draw(starts), draw(starts)
        ids = [torch.arange(start, start + count)[None] for start, count in ((first, queries), (other, keys))]
        return Situation(first, Positions.range(keys, start=other), ids[0], ids[1], batch)
    if kind == "explicit":
        near = st.integers(0, 12) if draw(st.booleans()) else st.integers(lowest, past - 1)
        rows = draw(st.sampled_from([1, batch]))
        told = [torch.tensor([[draw(near) for _ in range(count)] for _ in range(rows)]) for count in (queries, keys)]
        return Situation(told[0], told[1], told[0], told[1], batch)
    if kind == "by row":
        per_row = Positions.range(keys, start=torch.tensor([draw(starts) for _ in range(batch)]))
        return of_one(per_row, queries, batch)
    if kind in ("left", "right", "holes"):
        padding = [draw(st.integers(0, keys - 1)) for _ in range(batch)]
        places = torch.arange(keys).expand(batch, -1)
        mask = {
            "left": places >= torch.tensor(padding)[:, None],
            "right": places < keys - torch.tensor(padding)[:, None],
            "holes": torch.tensor([[draw(st.booleans()) for _ in range(keys)] for _ in range(batch)]),
        }[kind]
        return of_one(Positions.from_mask(mask, side=None if kind == "holes" else kind), queries, batch)  # type: ignore[arg-type]
    if kind == "packed":
        cut = draw(st.integers(0, keys))
        return of_one(Positions.packed([cut, keys - cut]), queries, batch)
    if kind in ("randomised", "skipped"):
        whole = Positions.range(keys)
        if draw(st.booleans()):
            whole = Positions.from_mask(torch.arange(keys)[None] >= draw(st.integers(0, keys - 1)))
        drawn = whole.randomised if kind == "randomised" else whole.skipped
        return of_one(drawn(draw(st.integers(keys, min(past, 5000))), seed=draw(st.integers(0, 99))), queries, batch)
    if kind == "zigzag":
        start = draw(st.sampled_from([start for start in (0, 5, FAR) if start + 8 <= past]))
        shards = [Positions.range(8, start=start).shard(rank, 2, layout="zigzag") for rank in range(2)]
        held, seen = draw(st.sampled_from(shards)), draw(st.sampled_from(shards))
        return Situation(held, seen, held.ids, seen.ids, batch)
    assert kind == "batch"
    rows_of = [Positions.range(draw(st.integers(1, keys)), start=draw(starts)) for _ in range(batch)]
    joined = Positions.batch(rows_of, side=draw(st.sampled_from(["left", "right"])))
    return of_one(joined, min(queries, joined.length), batch)


def stirred(module: Module) -> Module:
    """All parameters random, since zeros and small starts hide mistakes."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_()
    return module


def assert_follows(
    encoding: situs.ScoreEncoding,
    situation: Situation,
    formula: Formula,
    *,
    kv_heads: int = HEADS,
    scale: float | None = None,
    own_scale: float = HEAD_DIM**-0.5,
    tolerance: float = 1e-9,
) -> None:
    """The term is the formula's, times the softmax scale, for every pair of real tokens."""
    q, k = situation.contents(kv_heads=kv_heads)
    actual = encoding(q, k, situation.query, situation.key, scale=scale)
    assert actual.dtype == torch.float64
    assert actual.shape == (situation.batch, HEADS, q.shape[2], k.shape[2])
    shared = k.repeat_interleave(HEADS // kv_heads, 1)
    for row in range(situation.batch):
        expected = formula(q[row].numpy(), shared[row].numpy(), *situation.row(row))
        expected = (own_scale if scale is None else scale) * expected
        pairs = situation.compared(row)
        np.testing.assert_allclose(actual[row].detach().numpy()[:, pairs], expected[:, pairs], atol=tolerance, rtol=0)


class Layer(nn.Module):
    """Attention with an encoding, of given queries, keys and values; ``others`` are modules the encoding uses."""

    def __init__(self, encoding: situs.Encoding, *others: nn.Module, causal: bool = True) -> None:
        super().__init__()
        self.encoding, self.others, self.causal = encoding, nn.ModuleList(others), causal

    def forward(self, q: Tensor, k: Tensor, v: Tensor, at: PositionsLike = None, keys_at: PositionsLike = None) -> Any:
        return reference(q, k, v, encoding=self.encoding, causal=self.causal, positions=at, key_positions=keys_at)


BARE_IDS = (torch.tensor([[4, 0, 9]]), torch.tensor([[0, 9, 2, 4]]))
PLACES: list[tuple[PositionsLike, PositionsLike]] = [(None, None), BARE_IDS]
ranges_and_bare_ids = pytest.mark.parametrize("places", PLACES, ids=["ranges", "bare ids"])


def assert_gradients(encoding: situs.Encoding, places: tuple[PositionsLike, PositionsLike], *others: nn.Module) -> None:
    """Gradients of queries, keys, values and every parameter are those of finite differences."""
    causal = places[0] is None
    layer = stirred(Layer(encoding, *others, causal=causal)).double()
    names = [name for name, _ in layer.named_parameters()]
    contents = [
        torch.randn(1, heads, length, HEAD_DIM, dtype=torch.float64, requires_grad=True)
        for heads, length in ((2, 3), (1, 4), (1, 4))
    ]

    def run(q: Tensor, k: Tensor, v: Tensor, *values: Tensor) -> Any:
        given = dict(zip(names, values, strict=True))
        return torch.func.functional_call(layer, given, (q, k, v, *places))

    assert names
    assert torch.autograd.gradcheck(run, (*contents, *layer.parameters()))


def assert_exports(encoding: situs.Encoding, *others: nn.Module) -> None:
    """An exported layer takes any length, as ranges and with explicit ids."""
    layer = stirred(Layer(encoding, *others))
    length = torch.export.Dim("length", min=2, max=64)
    contents, more = torch.randn(3, 1, 2, 10, HEAD_DIM), torch.randn(3, 1, 2, 30, HEAD_DIM)
    places: list[tuple[Any, ...]] = [(), (torch.randperm(10)[None], torch.randperm(30)[None])]
    for ids in places:
        dynamic = ({2: length}, {2: length}, {2: length}, {1: length})[: 3 + len(ids[:1])]
        program = torch.export.export(layer, (*contents, *ids[:1]), dynamic_shapes=dynamic, strict=False)
        torch.testing.assert_close(program.module()(*more, *ids[1:]), layer(*more, *ids[1:]), atol=2e-5, rtol=1e-4)
