"""Encodings with the field's classic mistakes, one each, to prove that the contract can fail."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from situs import BiasEncoding, InputEncoding, OffsetBias, PairBias, Positions, QueryKeyEncoding
from situs.encodings.bias import Rule, ScoreMod

HEAD_DIM = 16


def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), -1).to(x.dtype)


class Broken(QueryKeyEncoding):
    """A plain rotary, right in itself; subclasses break one thing."""

    def __init__(self, *, base: float = 10000.0) -> None:
        super().__init__()
        self.head_dim = HEAD_DIM
        self.base = base

    def places(self, x: Tensor, positions: Any) -> Positions:
        return Positions.of(positions, x.shape[-2], batch=x.shape[0], device=x.device)

    def ladder(self) -> Tensor:
        return self.base ** -(torch.arange(0, HEAD_DIM, 2, dtype=torch.float64) / HEAD_DIM)

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        angles = self.places(x, positions).ids[:, None, :, None].double() * self.ladder()
        return turn(x, angles.cos().to(x.dtype), angles.sin().to(x.dtype))


class Sound(Broken):
    """Nothing is wrong with it."""


class HalfPositions(Broken):
    """Positions in the tokens' dtype: from 257 on, neighbours collide in bfloat16."""

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        angles = self.places(x, positions).ids[:, None, :, None].to(x.dtype).double() * self.ladder()
        return turn(x, angles.cos().to(x.dtype), angles.sin().to(x.dtype))


class CastFrequencies(Broken):
    """Frequencies in a buffer, which .half() rounds for ever."""

    ladder_buffer: Tensor

    def __init__(self, *, base: float = 10000.0) -> None:
        super().__init__(base=base)
        self.register_buffer("ladder_buffer", super().ladder().float(), persistent=False)

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        angles = self.places(x, positions).ids[:, None, :, None] * self.ladder_buffer.double()
        return turn(x, angles.cos().to(x.dtype), angles.sin().to(x.dtype))


class SavedFrequencies(CastFrequencies):
    """The same buffer, saved in every checkpoint."""

    def __init__(self, *, base: float = 10000.0) -> None:
        super().__init__(base=base)
        self.register_buffer("ladder_buffer", Broken.ladder(self).float(), persistent=True)


class Float32Angles(Broken):
    """Angles as float32 products: wrong far out."""

    tags = frozenset({"relative", "far"})

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        angles = self.places(x, positions).ids[:, None, :, None].float() * self.ladder().float()
        return turn(x, angles.cos().to(x.dtype), angles.sin().to(x.dtype))


TABLES: dict[int, Tensor] = {}


class CacheWithoutBase(Broken):
    """A table shared by all of one length, whatever their base."""

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        angles = TABLES.setdefault(
            x.shape[-2], self.places(x, positions).ids[:, None, :, None].double() * self.ladder()
        )
        return turn(x, angles.cos().to(x.dtype), angles.sin().to(x.dtype))


class IgnoresPositions(Broken):
    """Counts from 0 in every call."""

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        angles = torch.arange(x.shape[-2])[None, None, :, None].double() * self.ladder()
        return turn(x, angles.cos().to(x.dtype), angles.sin().to(x.dtype))


class IgnoresDocuments(Broken):
    """Uses slots for positions: right until rows are packed."""

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        places = self.places(x, positions)
        ids = places.ids if places.documents is None else places.slots
        assert ids is not None
        angles = (ids + (ids > 6) * 3)[:, None, :, None].double() * self.ladder()
        return turn(x, angles.cos().to(x.dtype), angles.sin().to(x.dtype))


class KeepsLongest(Broken):
    """Remembers the longest sequence it saw, and scales by it."""

    def __init__(self, *, base: float = 10000.0) -> None:
        super().__init__(base=base)
        self.longest = 0

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        self.longest = max(self.longest, x.shape[-2])
        angles = self.places(x, positions).ids[:, None, :, None].double() * self.ladder() / self.longest
        return turn(x, angles.cos().to(x.dtype), angles.sin().to(x.dtype))


class LengthCentred(Broken):
    """xPos with its centre in the middle of the call: keys cached from a shorter call no longer fit."""

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        ids = self.places(x, positions).ids[:, None, :, None].double()
        sign = 1 if role == "query" else -1
        decay = 0.9 ** (sign * (ids - x.shape[-2] // 2) / 8)
        angles = ids * self.ladder()
        return turn(x, (angles.cos() * decay).to(x.dtype), (angles.sin() * decay).to(x.dtype))


class CutsGradients(Broken):
    """Turns a detached copy."""

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        return super().forward(x.detach(), positions, role=role)


class WidensResult(Broken):
    """Returns float32 whatever it was given."""

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        return super().forward(x, positions, role=role).float() + 0 * x.double()


class ReadsValues(Broken):
    """Branches on a tensor's value, which breaks graphs."""

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        places = self.places(x, positions)
        if int(places.ids.max()) > 10**9:
            return x
        return super().forward(x, places, role=role)


class LosesNorm(Broken):
    """A cosine with the wrong sine: vectors change their length."""

    tags = frozenset({"norm"})

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        angles = self.places(x, positions).ids[:, None, :, None].double() * self.ladder()
        return turn(x, angles.cos().to(x.dtype), (angles * 1.01).sin().to(x.dtype))


class NotRelative(Broken):
    """Keys turned faster than queries."""

    tags = frozenset({"relative"})

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        speed = 1.0 if role == "query" else 1.5
        angles = self.places(x, positions).ids[:, None, :, None].double() * self.ladder() * speed
        return turn(x, angles.cos().to(x.dtype), angles.sin().to(x.dtype))


class Table(InputEncoding):
    """A small learned table; subclasses break one thing."""

    def __init__(self) -> None:
        super().__init__()
        self.dim = HEAD_DIM
        self.usable_length = 320
        self.rows = nn.Parameter(torch.randn(320, HEAD_DIM))

    def places(self, x: Tensor, positions: Any) -> Positions:
        return Positions.of(positions, x.shape[-2], batch=x.shape[0], device=x.device)


class PaddingMinusOne(Table):
    """Padded places get -1, which is no row."""

    def forward(self, x: Tensor, positions: Any = None) -> Tensor:
        places = self.places(x, positions)
        ids = places.ids if places.valid is None else torch.where(places.valid, places.ids, -1)
        return x + nn.functional.embedding(ids, self.rows).to(x.dtype)


class Grows(Table):
    """Adds the position itself, which has no bound."""

    tags = frozenset({"bounded"})

    def forward(self, x: Tensor, positions: Any = None) -> Tensor:
        return x + self.places(x, positions).ids.unsqueeze(-1).to(x.dtype) / 10 + 0 * self.rows[0].to(x.dtype)


class Repeats(Table):
    """Every fourth position is the same."""

    tags = frozenset({"unique"})

    def forward(self, x: Tensor, positions: Any = None) -> Tensor:
        return x + nn.functional.embedding(self.places(x, positions).ids % 4, self.rows).to(x.dtype)


class NeverLearns(Table):
    """A table that no gradient reaches."""

    tags = frozenset({"learned"})

    def forward(self, x: Tensor, positions: Any = None) -> Tensor:
        return x + nn.functional.embedding(self.places(x, positions).ids, self.rows.detach()).to(x.dtype)


class NotStationary(Table):
    """Claims that products depend on distance alone, as if any table did."""

    tags = frozenset({"stationary"})

    def __init__(self) -> None:
        super().__init__()
        self.usable_length = 4000
        self.rows = nn.Parameter(torch.randn(4000, HEAD_DIM))

    def forward(self, x: Tensor, positions: Any = None) -> Tensor:
        return x + nn.functional.embedding(self.places(x, positions).ids, self.rows).to(x.dtype)


class WholePositionsOnly(Table):
    """Claims real positions and rounds them."""

    tags = frozenset({"real"})

    def forward(self, x: Tensor, positions: Any = None) -> Tensor:
        rows = self.places(x, positions).ids.clamp(min=0).ceil().long()
        return x + nn.functional.embedding(rows * 0, self.rows).to(x.dtype)


class NeverDecays(Broken):
    """Claims a decay that plain rotary does not have."""

    tags = frozenset({"decaying"})


class NeedsAnArgument(Broken):
    """Cannot be made again from what it keeps."""

    def __init__(self, *, base: float = 10000.0, factor: float = 2.0) -> None:
        super().__init__(base=base)
        self.factor = 1.0
        self.speed = factor

    def ladder(self) -> Tensor:
        return super().ladder() * self.speed


class LinearBias(OffsetBias):
    """A plain linear bias, right in itself; subclasses break one thing."""

    def __init__(self, *, num_heads: int = 2) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.slopes = nn.Parameter(1 / torch.arange(3.0, 3.0 + num_heads))

    def rule(self, device: torch.device, dtype: torch.dtype) -> Rule:
        slopes = self.slopes.to(dtype)
        return lambda offset, head: -slopes[head] * offset.abs()


class HalfSlopes(LinearBias):
    """The slope of a cast module times the distance, both in half precision."""

    def rule(self, device: torch.device, dtype: torch.dtype) -> Rule:
        slopes = self.slopes
        return lambda offset, head: (-slopes[head] * offset.abs().to(slopes.dtype)).to(dtype)


class NetworkUnderAutocast(BiasEncoding):
    """A matrix product inside, which autocast rounds."""

    num_heads = 2

    def forward(self, query_positions: Any, key_positions: Any = None, *, dtype: torch.dtype | None = None) -> Tensor:
        key_positions = query_positions if key_positions is None else key_positions
        apart = (query_positions.ids[:, :, None] - key_positions.ids[:, None]).abs().float()
        bias: Tensor = (apart.unsqueeze(-1) @ torch.tensor([[-0.3, -0.1]])).movedim(-1, 1)
        return bias

    def score_mod(self, query_positions: Any, key_positions: Any = None) -> ScoreMod:
        bias = self(query_positions, key_positions)[0]
        return lambda score, batch, head, query, key: score + bias[head, query, key]


class BoundlessBias(LinearBias):
    """Claims to be bounded, and falls for ever."""

    tags = frozenset({"bounded"})


class RisingBias(LinearBias):
    """Claims to decay, and rises."""

    tags = frozenset({"decaying"})

    def rule(self, device: torch.device, dtype: torch.dtype) -> Rule:
        fall = super().rule(device, dtype)
        return lambda offset, head: -fall(offset, head)


class WrongScoreMod(PairBias):
    """A matrix that minds who is ahead, and a score_mod that does not."""

    num_heads = 2

    def rule(self, device: torch.device, dtype: torch.dtype) -> Rule:
        def apart(query: Tensor, key: Tensor, head: Tensor) -> Tensor:
            distance = (query - key).abs() if head.ndim == 0 else query - key
            return (distance / (head + 1)).to(dtype)

        return apart


# each is caught by the check named for its mistake
CAUGHT_BY: dict[type, str] = {
    HalfPositions: "half_equals_plain",
    CastFrequencies: "cast_equals_plain",
    SavedFrequencies: "loads_strictly",
    Float32Angles: "reaches_far",
    CacheWithoutBase: "configurations_apart",
    IgnoresPositions: "cached_equals_full",
    IgnoresDocuments: "packed_equals_separate",
    KeepsLongest: "remembers_nothing",
    LengthCentred: "cached_equals_full",
    CutsGradients: "differentiates",
    WidensResult: "keeps_shape_and_dtype",
    ReadsValues: "compiled_equals_plain",
    LosesNorm: "keeps_norm",
    NotRelative: "is_relative",
    PaddingMinusOne: "padded_equals_alone",
    Grows: "is_bounded",
    Repeats: "is_unique",
    NeverLearns: "learns",
    NotStationary: "is_stationary",
    WholePositionsOnly: "takes_real_positions",
    NeverDecays: "decays",
    NeedsAnArgument: "meta_equals_plain",
    HalfSlopes: "half_equals_plain",
    NetworkUnderAutocast: "autocast_equals_plain",
    BoundlessBias: "is_bounded",
    RisingBias: "decays",
    WrongScoreMod: "forms_agree",
}
