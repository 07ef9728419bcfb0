"""Encodings, positions and calls that every kernel must serve alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import situs
from situs import Encoding, Positions
from situs.attention import attend, reference
from situs.positions import PositionsLike

HEADS, WIDTH, BATCH = 4, 8, 2
KERNELS = ("auto", "toeplitz", "blockwise", "dense", "flash")
ALWAYS = ("auto", "blockwise")  # serve every call

shaw: dict[str, Any] = {"num_heads": HEADS, "head_dim": WIDTH, "max_distance": 3}
sized: dict[str, Any] = {"dim": 8, "num_heads": HEADS, "head_dim": WIDTH, "init_std": 0.5}


def tied_deberta(**options: Any) -> situs.Deberta:
    """With the projections of an attention, the same in every call, since no checkpoint of the encoding holds them."""
    generator = torch.Generator().manual_seed(7)
    query, key = (nn.Linear(sized["dim"], HEADS * WIDTH) for _ in range(2))
    for parameter in (*query.parameters(), *key.parameters()):
        nn.init.normal_(parameter, std=0.5, generator=generator)
    return situs.Deberta(**sized, max_distance=10, share_att_key=True, **options).tie(query=query, key=key)


ENCODINGS: dict[str, Callable[[], list[Encoding]]] = {
    "nothing": lambda: [],
    "none": lambda: [situs.NoPE()],
    "rotary": lambda: [situs.Rotary(head_dim=WIDTH)],
    "partly rotary": lambda: [situs.Rotary(head_dim=WIDTH, rotary_dim=4, pairing="interleaved")],
    "rotary with values and temperature": lambda: [
        situs.Rotary(head_dim=WIDTH, rotary_dim=4, channels="trailing"),
        situs.RotaryValue(head_dim=WIDTH, rotary_dim=4, channels="trailing"),
        situs.Temperature(dialect="inkling", original_length=3),
    ],
    "pope": lambda: [situs.PoPE(head_dim=WIDTH, num_heads=HEADS)],
    "xpos": lambda: [situs.XPos(head_dim=WIDTH)],
    "lerope": lambda: [situs.LeRoPE(head_dim=WIDTH)],
    "alibi": lambda: [situs.ALiBi(num_heads=HEADS)],
    "learned alibi": lambda: [situs.ALiBi(num_heads=HEADS, learned=True, asymmetric=True)],
    "t5": lambda: [situs.T5Bias(num_heads=HEADS, init_std=1.0)],
    "kerple": lambda: [situs.Kerple(num_heads=HEADS)],
    "sandwich": lambda: [situs.Sandwich(num_heads=HEADS)],
    "fire": lambda: [situs.Fire(num_heads=HEADS, threshold=4.0)],
    "mlp": lambda: [situs.MLPBias(num_heads=HEADS, width=6, log_distance=True)],
    "shaw": lambda: [situs.Shaw(**shaw)],
    "shaw of keys": lambda: [situs.Shaw(**shaw, values=False, per_head=True)],
    "shaw of values": lambda: [situs.Shaw(**shaw, keys=False)],
    "transformer xl": lambda: [situs.TransformerXL(**sized)],
    "tupe": lambda: [situs.Tupe(**sized)],
    "tupe, relative": lambda: [situs.Tupe(**sized, relative_buckets=32)],
    "tupe, tied": lambda: [situs.Tupe(**sized, untie_cls=False, relative_buckets=32)],
    "deberta": lambda: [situs.Deberta(**sized, max_distance=10)],
    "deberta, all terms": lambda: [situs.Deberta(**sized, max_distance=10, terms=("c2p", "p2c", "p2p"))],
    "deberta, tied": lambda: [tied_deberta(layer_norm=True)],
    "cope": lambda: [situs.CoPE(num_heads=HEADS, head_dim=WIDTH, max_position=5, init_std=1.0)],
    "rotary, shaw and t5": lambda: [
        situs.Rotary(head_dim=WIDTH),
        situs.Shaw(**shaw),
        situs.T5Bias(num_heads=HEADS, init_std=1.0, softmax_scale=None),
    ],
    "rotary and transformer xl": lambda: [situs.Rotary(head_dim=WIDTH), situs.TransformerXL(**sized)],
    "tupe and alibi": lambda: [situs.Tupe(**sized, relative_buckets=32), situs.ALiBi(num_heads=HEADS)],
    "fire and shaw of keys": lambda: [
        situs.Fire(num_heads=HEADS, threshold=4.0),
        situs.Shaw(**shaw, values=False),
    ],
}
one_of_each_kind = pytest.mark.parametrize(
    "name", ["nothing", "rotary", "t5", "fire", "shaw", "tupe, relative", "cope"]
)

LEFT = torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1, 1, 1]])
RIGHT = torch.tensor([[1, 1, 1, 1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 1, 1, 1, 0]])
HOLES = torch.tensor([[0, 1, 1, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 1, 1, 0, 1]])


def _alone(places: Positions) -> tuple[Positions, Positions]:
    return places, places


def _rows_of_documents() -> Positions:
    return Positions.batch([Positions.packed([4, 5]), Positions.packed([2, 3, 3])])


PLACES: dict[str, Callable[[], tuple[Positions, Positions]]] = {
    "a range": lambda: _alone(Positions.range(9)),
    "a chunk after a cache": lambda: (Positions.range(5, start=4), Positions.range(9)),
    "a far start": lambda: _alone(Positions.range(9, start=400)),
    "packed": lambda: _alone(Positions.packed([4, 3, 2])),
    "part of a packed row": lambda: (Positions.packed([4, 3, 2])[3:8], Positions.packed([4, 3, 2])),
    "rows of documents": lambda: _alone(_rows_of_documents()),
    "padded left": lambda: _alone(Positions.from_mask(LEFT, side="left")),
    "padded right": lambda: _alone(Positions.from_mask(RIGHT)),
    "padded in holes": lambda: _alone(Positions.from_mask(HOLES)),
    "a contiguous shard": lambda: (Positions.range(8).shard(1, 2), Positions.range(8)),
    "a zigzag shard": lambda: (Positions.range(8).shard(0, 2, layout="zigzag"), Positions.range(8)),
    "keys of another zigzag shard": lambda: (
        Positions.range(16).shard(0, 2, layout="zigzag"),
        Positions.range(16).shard(1, 2, layout="zigzag"),
    ),
    "keys of its own zigzag shard": lambda: _alone(Positions.range(16).shard(1, 2, layout="zigzag")),
    "keys of a later shard": lambda: (Positions.range(8).shard(0, 2), Positions.range(8).shard(1, 2)),
    "one decoded token": lambda: (Positions.range(1, start=6), Positions.range(7)),
    "decoding by row": lambda: (Positions.range(1, start=torch.tensor([3, 6])), Positions.range(7)),
    "a few tokens by row": lambda: (Positions.range(3, start=torch.tensor([2, 4])), Positions.range(7)),
    "across": lambda: (Positions.range(3), Positions.range(6)),
    "more queries than keys": lambda: (Positions.range(6), Positions.range(3)),
    "randomised": lambda: _alone(Positions.range(9).randomised(30, seed=1)),
    "skipped": lambda: _alone(Positions.range(9).skipped(30, seed=1, chunks=3)),
    "bare ids": lambda: _alone(Positions.explicit(torch.tensor([3, 1, 4, 1, 5, 9]))),
    "bare ids by row": lambda: _alone(Positions.explicit(torch.tensor([[3, 4, 5, 9, 2], [1, 2, 2, 4, 5]]))),
}

# causal, window, key heads
RULES = [(False, None, 4), (True, None, 2), (True, 3, 1), (False, 3, 4)]


def build(name: str, dtype: torch.dtype = torch.float64) -> list[Encoding]:
    """The encodings of that name."""
    encodings = ENCODINGS[name]()
    learning(encodings).to(dtype)
    return encodings


def parameters_of(encodings: Sequence[Encoding]) -> list[Tensor]:
    """All that is learned, each once."""
    return list(learning(encodings).parameters())


def learning(encodings: Sequence[Encoding]) -> nn.ModuleList:
    """Encodings, and the modules that they borrow."""
    borrowing = [each for each in encodings if isinstance(each, situs.ScoreEncoding)]
    return nn.ModuleList([*encodings, *(module for each in borrowing for module in each.borrowed)])


def tensors(
    queries: int,
    keys: int,
    *,
    heads: int = HEADS,
    kv_heads: int = HEADS,
    width: int = WIDTH,
    value_dim: int | None = None,
    batch: int = BATCH,
    dtype: torch.dtype = torch.float64,
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values that gradients are wanted of."""
    shapes = (
        (batch, heads, queries, width),
        (batch, kv_heads, keys, width),
        (batch, kv_heads, keys, width if value_dim is None else value_dim),
    )
    q, k, v = (torch.randn(shape, dtype=torch.float64).to(dtype).requires_grad_() for shape in shapes)
    return q, k, v


def real(query: Positions) -> Tensor:
    """1 where queries are real tokens; what padding gives is nobody's business."""
    if query.valid is None:
        return torch.ones((), dtype=torch.float64)
    return query.valid[:, None, :, None].double()


def attend_or_none(*qkv: Tensor, impl: Any, **call: Any) -> Tensor | None:
    """What a kernel gives; None where it says that it cannot serve."""
    try:
        return attend(*qkv, impl=impl, **call)
    except ValueError as error:
        if str(error).startswith(f'impl="{impl}" cannot serve this call, since '):
            return None
        raise


def assert_kernels_give(expected: Tensor, *qkv: Tensor, positions: PositionsLike = None, **call: Any) -> None:
    """Every kernel that can serve gives what is expected of real queries, in float64; two of them always can."""
    shown = real(positions) if isinstance(positions, Positions) else 1.0
    for impl in KERNELS:
        out = attend_or_none(*qkv, impl=impl, positions=positions, **call)
        assert out is not None or impl not in ALWAYS
        if out is not None:
            torch.testing.assert_close(out * shown, expected * shown, atol=1e-10, rtol=1e-10)


def gradients(out: Tensor, weights: Tensor, sources: Sequence[Tensor]) -> list[Tensor]:
    """Of a weighted sum of the output; zeros where nothing depends on a source."""
    if not out.requires_grad:
        return [torch.zeros_like(source) for source in sources]
    found: Sequence[Tensor | None] = torch.autograd.grad(
        (out * weights.to(out.dtype)).sum(), list(sources), allow_unused=True
    )
    return [torch.zeros_like(source) if each is None else each for each, source in zip(found, sources, strict=True)]


def assert_same_as_reference(
    qkv: tuple[Tensor, Tensor, Tensor],
    impl: str,
    learned: Sequence[Tensor] = (),
    weight: Tensor | None = None,
    **call: Any,
) -> None:
    """Output and all gradients equal the reference's, in float64."""
    out, expected = attend(*qkv, impl=impl, **call), reference(*qkv, **call)  # type: ignore[arg-type]
    torch.testing.assert_close(out, expected, atol=1e-10, rtol=1e-10)
    weights = torch.randn_like(expected) if weight is None else weight
    sources = (*qkv, *learned)
    for actual, wanted in zip(gradients(out, weights, sources), gradients(expected, weights, sources), strict=True):
        torch.testing.assert_close(actual, wanted, atol=1e-10, rtol=1e-10)


def use_small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks so small that short sequences have several, that heads are worked on in groups, and nothing is kept."""
    for name, value in (
        ("toeplitz.strided.QUERIES", 4),
        ("toeplitz.strided.MANY_QUERIES", 5),
        ("toeplitz.strided.LONG", 8),
        ("toeplitz.strided.GRADIENT_QUERIES", 3),
        ("toeplitz.strided.GRADIENT_SCORES", 60),
        ("toeplitz.strided.BY_CHANNEL", 6),
        ("toeplitz.op.FEW_QUERIES", 2),
        ("toeplitz.terms.TAIL", 2),
        ("toeplitz.halving.SQUARE", 3),
        ("toeplitz.terms.PAIRS", 100),
        ("loop.Term.queries", 4),
        ("cutting.SCORES", 60),
        ("cutting.SWEEP", 100),
        ("toeplitz.of_keys.KEYS", 3),
        ("blockwise.FEW_QUERIES", 3),
        ("blockwise.KEPT", 0),
        ("blockwise.LONG", 2),
    ):
        monkeypatch.setattr(f"situs.attention.kernels.{name}", value)
    monkeypatch.setattr("situs.encodings.cope.CHUNK", 2)


class Largest(TorchDispatchMode):
    """Records the most bytes that any tensor made under it lies in."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for each in tree_leaves(out):
            if isinstance(each, Tensor):
                self.bytes = max(self.bytes, each.untyped_storage().nbytes())
        return out


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Some number of threads, for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
