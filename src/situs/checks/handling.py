"""What is done to modules in practice must not change what they compute: casting, meta devices, copying,
compiling, exporting, saving and loading."""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import pickle
import warnings
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from situs.checks.bench import Bench
from situs.checks.require import require_close, require_equal
from situs.encodings.base import LEGACY_KEYS, Encoding
from situs.positions import Positions

BEYOND_HALF = 70_000  # float16 ends at 65,504
IN_FLOAT32 = (
    "Compute with positions in float32 or wider, positions.ids.double(), also exp, sin and cos, and cast the result "
    "last: .to(x.dtype)"
)
NO_PRODUCTS = "Write products of positions and frequencies with * instead of @ or einsum, which autocast rounds"
NO_BUFFERS = (
    "Hold frequencies and tables as plain float64 tensors or make them in forward: what is a buffer is rounded for good"
)

IN_PARAMETERS = "Hold all that is drawn at random or learned as parameters, and let the rest follow from the options"


@contextlib.contextmanager
def _silent_torch() -> Iterator[None]:
    """Silence what torch logs while it traces: graphs and warnings, whose cause the check says in one sentence."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        unread = io.StringIO()  # some graphs are printed, not logged
        with warnings.catch_warnings(), contextlib.redirect_stdout(unread), contextlib.redirect_stderr(unread):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def cast_equals_plain(bench: Bench) -> None:
    """After ``.half()`` or ``.bfloat16()`` and back, only parameters are rounded: positions and angles are not."""
    count, start = _somewhere_far(bench)
    x, positions = bench.tokens(count), bench.positions(count, start)
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        cast = copy.deepcopy(bench.encoding).to(dtype).to(torch.float32)
        plain = copy.deepcopy(bench.encoding)
        for parameter in plain.parameters():
            parameter.data = parameter.data.to(dtype).to(torch.float32)
        expected = bench.with_encoding(plain).encode(x, positions)
        actual = bench.with_encoding(cast).encode(x, positions)
        require_equal(actual, expected, f"cast to {dtype} and back", cure=NO_BUFFERS)


def half_equals_plain(bench: Bench) -> None:
    """Half-precision tokens are encoded as exactly as their own rounding allows, far from position 0 too."""
    if bench.encoding.place == "nowhere":
        return
    for dtype in (torch.bfloat16, torch.float16):
        cast = bench.with_encoding(copy.deepcopy(bench.encoding).to(dtype))
        plain = bench.with_encoding(copy.deepcopy(cast.encoding).to(torch.float32))
        count = bench.length(16, dtype)
        given = bench.given(bench.tokens(count, dtype=dtype))  # projections round too; only the encoding is asked
        widened = tuple(each.float() for each in given)
        handed = widened if bench.acts_on_scores else given  # scores are float32 whatever the parameters are
        tolerance = 1e-6 if bench.acts_on_scores else 2 * torch.finfo(dtype).eps
        for start in bench.starts(count, 1000, BEYOND_HALF, dtype=dtype):
            for first_key in (start, 0) if bench.acts_on_scores and bench.extent is None else (start,):
                actual, expected = (
                    each.apply(vectors, bench.positions(count, start), bench.positions(count, first_key))
                    for each, vectors in ((cast, handed), (plain, widened))
                )
                situation = f"{dtype} tokens from position {start:,} on"
                require_close(actual, expected, situation, tolerance, cure=IN_FLOAT32)


def autocast_equals_plain(bench: Bench) -> None:
    """Under autocast the encoding of float32 tokens, and what is added to scores, is what it is without."""
    if bench.encoding.place == "nowhere":
        return
    count, start = _somewhere_far(bench)
    given = bench.given(bench.tokens(count))
    copies = tuple(each.clone() for each in given)  # for one that changes what it is given
    expected = bench.apply(given, bench.positions(count, start))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = bench.apply(copies, bench.positions(count, start))
    require_equal(actual, expected, "under bfloat16 autocast", cure=NO_PRODUCTS)


def meta_equals_plain(bench: Bench) -> None:
    """Made on the meta device, emptied onto a real one and loaded, it is the encoding made there at once."""
    with torch.device("meta"):
        shell = type(bench.encoding)(**bench.encoding.config)
    shell = shell.to_empty(device="cpu")
    shell.load_state_dict(bench.encoding.state_dict())
    _require_same(bench, shell.train(bench.encoding.training), "made on the meta device")


def copied_equals_plain(bench: Bench) -> None:
    """A deep copy, and one that was pickled, compute the same."""
    _require_same(bench, copy.deepcopy(bench.encoding), "after deepcopy")
    _require_same(bench, pickle.loads(pickle.dumps(bench.encoding)), "after pickling")


def loads_strictly(bench: Bench) -> None:
    """A checkpoint holds parameters alone, and loads strictly, also with tables that others used to store."""
    state = bench.encoding.state_dict()
    extra = sorted(set(state) - {name for name, _ in bench.encoding.named_parameters()})
    if extra:
        raise AssertionError(
            f"state_dict holds {', '.join(extra)}, which follow from the options. Register them with persistent=False"
        )
    buffer = io.BytesIO()
    torch.save({**state, **{key: torch.zeros(3) for key in sorted(LEGACY_KEYS - state.keys())[:3]}}, buffer)
    fresh = type(bench.encoding)(**bench.encoding.config)
    fresh.load_state_dict(torch.load(io.BytesIO(buffer.getvalue()), weights_only=True), strict=True)
    _require_same(
        bench, fresh.train(bench.encoding.training), "loaded from a checkpoint with legacy keys", cure=IN_PARAMETERS
    )


def compiled_equals_plain(bench: Bench) -> None:
    """``torch.compile(fullgraph=True)`` neither breaks nor changes it, for ranges and for explicit positions."""
    count = bench.length(12)
    x, positions = bench.tokens(count), bench.positions(count)
    ids = positions.ids
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda x, ids: bench.encode(x, Positions.explicit(ids, sequence_length=count)),
        fullgraph=True,
        backend="aot_eager",
    )
    with _silent_torch():
        result = compiled(x, ids)
    require_close(result, bench.encode(x, positions), "compiled with explicit positions", 1e-6)
    if bench.encoding.axes == 1:
        whole = torch.compile(lambda x: bench.attend(x), fullgraph=True, backend="aot_eager")
        with _silent_torch():
            result = whole(x)
        require_close(result, bench.attend(x), "a compiled layer", 1e-5)
    torch._dynamo.reset()


def exported_equals_plain(bench: Bench) -> None:
    """``torch.export`` gives a graph that computes the same."""

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoding = bench.encoding

        def forward(self, x: Tensor, ids: Tensor) -> Tensor:
            return bench.encode(x, Positions.explicit(ids, sequence_length=count))

    count = bench.length(12)
    x, positions = bench.tokens(count), bench.positions(count)
    with _silent_torch():
        program = torch.export.export(Layer(), (x, positions.ids), strict=False)
    require_close(program.module()(x, positions.ids), bench.encode(x, positions), "exported", 1e-6)


def _somewhere_far(bench: Bench) -> tuple[int, int]:
    """Choose a few positions past 257, where bfloat16 would merge neighbours, if the encoding reaches so far."""
    count = bench.length(16)
    return count, bench.starts(count, 1000)[0]


def _require_same(bench: Bench, other: Encoding, situation: str, *, cure: str = "") -> None:
    count, start = _somewhere_far(bench)
    x = bench.tokens(count)
    expected = bench.encode(x, bench.positions(count, start))
    require_equal(bench.with_encoding(other).encode(x, bench.positions(count, start)), expected, situation, cure=cure)
