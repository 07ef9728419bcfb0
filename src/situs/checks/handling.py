"""What is done to modules in practice must not change what they compute: casting, meta devices, copying,
compiling, exporting, saving and loading."""

from __future__ import annotations

import copy
import io
import pickle
import warnings

import torch
from torch import Tensor, nn

from situs.checks.subject import Subject, require_close, require_equal
from situs.encodings.base import LEGACY_KEYS, Encoding
from situs.positions import Positions

BEYOND_HALF = 70_000  # float16 ends at 65,504


def cast_equals_plain(subject: Subject) -> None:
    """After ``.half()`` or ``.bfloat16()`` and back, only parameters are rounded: positions and angles are not."""
    count, start = _somewhere_far(subject)
    x, positions = subject.tokens(count), subject.places(count, start)
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        cast = copy.deepcopy(subject.encoding).to(dtype).to(torch.float32)
        plain = copy.deepcopy(subject.encoding)
        for parameter in plain.parameters():
            parameter.data = parameter.data.to(dtype).to(torch.float32)
        expected = subject.with_encoding(plain).encode(x, positions)
        require_equal(subject.with_encoding(cast).encode(x, positions), expected, f"cast to {dtype} and back")


def half_equals_plain(subject: Subject) -> None:
    """Half-precision tokens are encoded as exactly as their own rounding allows, far from position 0 too."""
    if subject.encoding.place == "nowhere":
        return
    for dtype in (torch.bfloat16, torch.float16):
        cast = subject.with_encoding(copy.deepcopy(subject.encoding).to(dtype))
        plain = subject.with_encoding(copy.deepcopy(cast.encoding).to(torch.float32))
        count = subject.length(16, dtype)
        given = subject.given(subject.tokens(count, dtype=dtype))  # projections round too; only the encoding is asked
        widened = tuple(each.float() for each in given)
        handed = widened if subject.acts_on_scores else given  # scores are float32 whatever the parameters are
        tolerance = 1e-6 if subject.acts_on_scores else 2 * torch.finfo(dtype).eps
        for start in subject.starts(count, 1000, BEYOND_HALF, dtype=dtype):
            for first_key in (start, 0) if subject.acts_on_scores and subject.extent is None else (start,):
                actual, expected = (
                    each.apply(vectors, subject.places(count, start), subject.places(count, first_key))
                    for each, vectors in ((cast, handed), (plain, widened))
                )
                require_close(actual, expected, f"{dtype} tokens from position {start:,} on", tolerance)


def autocast_equals_plain(subject: Subject) -> None:
    """Under autocast the encoding of float32 tokens, and what is added to scores, is what it is without."""
    if subject.encoding.place == "nowhere":
        return
    count, start = _somewhere_far(subject)
    given = subject.given(subject.tokens(count))
    expected = subject.apply(given, subject.places(count, start))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = subject.apply(given, subject.places(count, start))
    require_equal(actual, expected, "under bfloat16 autocast")


def meta_equals_plain(subject: Subject) -> None:
    """Made on the meta device, emptied onto a real one and loaded, it is the encoding made there at once."""
    with torch.device("meta"):
        shell = type(subject.encoding)(**subject.encoding.config)
    shell = shell.to_empty(device="cpu")
    shell.load_state_dict(subject.encoding.state_dict())
    _require_same(subject, shell.train(subject.encoding.training), "made on the meta device")


def copied_equals_plain(subject: Subject) -> None:
    """A deep copy, and one that was pickled, compute the same."""
    _require_same(subject, copy.deepcopy(subject.encoding), "after deepcopy")
    _require_same(subject, pickle.loads(pickle.dumps(subject.encoding)), "after pickling")


def loads_strictly(subject: Subject) -> None:
    """A checkpoint holds parameters alone, and loads strictly, also with tables that others used to store."""
    state = subject.encoding.state_dict()
    extra = sorted(set(state) - {name for name, _ in subject.encoding.named_parameters()})
    if extra:
        raise AssertionError(
            f"state_dict holds {', '.join(extra)}, which follow from the configuration; make them non-persistent"
        )
    buffer = io.BytesIO()
    torch.save({**state, **{key: torch.zeros(3) for key in sorted(LEGACY_KEYS - state.keys())[:3]}}, buffer)
    fresh = type(subject.encoding)(**subject.encoding.config)
    fresh.load_state_dict(torch.load(io.BytesIO(buffer.getvalue()), weights_only=True), strict=True)
    _require_same(subject, fresh.train(subject.encoding.training), "loaded from a checkpoint with legacy keys")


def compiled_equals_plain(subject: Subject) -> None:
    """``torch.compile(fullgraph=True)`` neither breaks nor changes it, for ranges and for explicit positions."""
    count = subject.length(12)
    x, positions = subject.tokens(count), subject.places(count)
    ids = positions.ids
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda x, ids: subject.encode(x, Positions.explicit(ids, sequence_length=count)),
        fullgraph=True,
        backend="aot_eager",
    )
    require_close(compiled(x, ids), subject.encode(x, positions), "compiled with explicit positions", 1e-6)
    if subject.encoding.axes == 1:
        whole = torch.compile(lambda x: subject.attend(x), fullgraph=True, backend="aot_eager")
        require_close(whole(x), subject.attend(x), "a compiled layer", 1e-5)
    torch._dynamo.reset()


def exported_equals_plain(subject: Subject) -> None:
    """``torch.export`` gives a graph that computes the same."""

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoding = subject.encoding

        def forward(self, x: Tensor, ids: Tensor) -> Tensor:
            return subject.encode(x, Positions.explicit(ids, sequence_length=count))

    count = subject.length(12)
    x, positions = subject.tokens(count), subject.places(count)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(Layer(), (x, positions.ids), strict=False)
    require_close(program.module()(x, positions.ids), subject.encode(x, positions), "exported", 1e-6)


def _somewhere_far(subject: Subject) -> tuple[int, int]:
    """A few places past 257, where bfloat16 would merge neighbours, if the encoding reaches so far."""
    count = subject.length(16)
    return count, subject.starts(count, 1000)[0]


def _require_same(subject: Subject, other: Encoding, situation: str) -> None:
    count, start = _somewhere_far(subject)
    x = subject.tokens(count)
    expected = subject.encode(x, subject.places(count, start))
    require_equal(subject.with_encoding(other).encode(x, subject.places(count, start)), expected, situation)
