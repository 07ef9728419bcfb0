"""Encodings with the field's classic mistakes, one each, to prove that the contract can fail."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from situs import InputEncoding, Positions, QueryKeyEncoding

HEAD_DIM = 16


def rotate(x: Tensor, angles: Tensor, factor: Tensor | float = 1.0) -> Tensor:
    """Rotate the two halves of channels by angles, which are rounded to the tokens' dtype as cosines and sines."""
    return rotate_by(x, (angles.cos() * factor).to(x.dtype), (angles.sin() * factor).to(x.dtype))


def rotate_by(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), -1).to(x.dtype)


def checked(x: Tensor, positions: Any) -> Positions:
    return Positions.of(positions, x.shape[-2], batch=x.shape[0], device=x.device)


class Broken(QueryKeyEncoding):
    """A plain rotary, right in itself; subclasses break one thing."""

    def __init__(self, *, base: float = 10000.0) -> None:
        super().__init__()
        self.head_dim = HEAD_DIM
        self.base = base

    def ids(self, x: Tensor, positions: Any) -> Tensor:
        """Positions as (batch, 1, sequence, 1), to be multiplied by a ladder."""
        return checked(x, positions).ids[:, None, :, None]

    def ladder(self) -> Tensor:
        return self.base ** -(torch.arange(0, HEAD_DIM, 2, dtype=torch.float64) / HEAD_DIM)

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        return rotate(x, self.ids(x, positions).double() * self.ladder())


class Sound(Broken):
    """Nothing is wrong with it."""


class HalfPositions(Broken):
    """Positions in the tokens' dtype: from 257 on, neighbours collide in bfloat16."""

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        angles = self.ids(x, positions).to(x.dtype).double() * self.ladder()
        return rotate(x, angles)


class CastFrequencies(Broken):
    """Frequencies in a buffer, which .half() rounds for ever."""

    ladder_buffer: Tensor

    def __init__(self, *, base: float = 10000.0) -> None:
        super().__init__(base=base)
        self.register_buffer("ladder_buffer", super().ladder().float(), persistent=False)

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        angles = self.ids(x, positions) * self.ladder_buffer.double()
        return rotate(x, angles)


class SavedFrequencies(CastFrequencies):
    """The same buffer, saved in every checkpoint."""

    def __init__(self, *, base: float = 10000.0) -> None:
        super().__init__(base=base)
        self.register_buffer("ladder_buffer", Broken.ladder(self).float(), persistent=True)


class Float32Angles(Broken):
    """Angles as float32 products: wrong far out."""

    tags = frozenset({"relative", "far"})

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        angles = self.ids(x, positions).float() * self.ladder().float()
        return rotate(x, angles)


class IgnoresPositions(Broken):
    """Counts from 0 in every call."""

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        angles = torch.arange(x.shape[-2])[None, None, :, None].double() * self.ladder()
        return rotate(x, angles)


class IgnoresDocuments(Broken):
    """Uses indices in memory for positions: right until rows are packed."""

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        given = checked(x, positions)
        ids = given.ids if given.documents is None else torch.arange(x.shape[-2])[None]
        angles = (ids + (ids > 6) * 3)[:, None, :, None].double() * self.ladder()
        return rotate(x, angles)


class LengthCentred(Broken):
    """xPos with its centre in the middle of the call: keys cached from a shorter call no longer fit."""

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        ids = self.ids(x, positions).double()
        sign = 1 if role == "query" else -1
        decay = 0.9 ** (sign * (ids - x.shape[-2] // 2) / 8)
        return rotate(x, ids * self.ladder(), decay)


class FirstRowForAll(Broken):
    """Reads the positions of the first row, and rotates every row by them."""

    row = 0

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        angles = checked(x, positions).ids[self.row, None, None, :, None].double() * self.ladder()
        return rotate(x, angles)


class LastRowForAll(FirstRowForAll):
    """The same with the last row, of which distances tell less."""

    row = -1


class TwoHeadsOnly(Broken):
    """Its angles are laid out for two heads, which it does not say."""

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        angles = self.ids(x, positions).double() * self.ladder().expand(2, 1, -1)
        return rotate(x, angles)


class MindsHeads(Broken):
    """Rotates heads after the second the other way, so that keys shared by heads no longer fit them."""

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        way = 1 - 2 * (torch.arange(x.shape[1])[:, None, None] > 1)
        angles = self.ids(x, positions).double() * self.ladder() * way
        return rotate(x, angles)


class OverflowsInHalf(Broken):
    """Positions of float16 tokens in float16, which ends at 65,504; others as they should be."""

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        ids = self.ids(x, positions)
        angles = (ids.half() if x.dtype == torch.float16 else ids).double() * self.ladder()
        return rotate(x, angles)


class CutsGradients(Broken):
    """Rotates a detached copy."""

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        return super().forward(x.detach(), positions, role=role)


class WidensResult(Broken):
    """Returns float32 whatever it was given."""

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        return super().forward(x, positions, role=role).float() + 0 * x.double()


class ChangesItsInput(Broken):
    """Scales the tensor that it is given in place."""

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        x *= self.ids(x, positions).double().cos().to(x.dtype)
        return x


class ReadsValues(Broken):
    """Branches on a tensor's value, which breaks graphs."""

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        given = checked(x, positions)
        if int(given.ids.max()) > 10**9:
            return x
        return super().forward(x, given, role=role)


class LosesNorm(Broken):
    """A cosine with the wrong sine: vectors change their length."""

    tags = frozenset({"norm"})

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        angles = self.ids(x, positions).double() * self.ladder()
        return rotate_by(x, angles.cos().to(x.dtype), (angles * 1.01).sin().to(x.dtype))


class DoublesKeys(Broken):
    """Rotates queries and keys, and doubles the keys."""

    tags = frozenset({"norm"})

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        return super().forward(x, positions, role=role) * (2 if role == "key" else 1)


class NotRelative(Broken):
    """Keys rotated faster than queries."""

    tags = frozenset({"relative"})

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        speed = 1.0 if role == "query" else 1.5
        angles = self.ids(x, positions).double() * self.ladder() * speed
        return rotate(x, angles)


class Added(InputEncoding):
    """Adds something; subclasses say what."""

    def __init__(self) -> None:
        super().__init__()
        self.dim = HEAD_DIM


class Table(Added):
    """A small learned table; subclasses break one thing."""

    usable_length = 320

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.randn(self.usable_length, HEAD_DIM))


class PaddingMinusOne(Table):
    """Padded tokens get position -1, which is no row."""

    def forward(self, x: Tensor, positions: Any = None) -> Tensor:
        given = checked(x, positions)
        ids = given.ids if given.valid is None else torch.where(given.valid, given.ids, -1)
        return x + nn.functional.embedding(ids, self.rows).to(x.dtype)


class Grows(Table):
    """Adds the position itself, which has no bound."""

    tags = frozenset({"bounded"})

    def forward(self, x: Tensor, positions: Any = None) -> Tensor:
        return x + checked(x, positions).ids.unsqueeze(-1).to(x.dtype) / 10 + 0 * self.rows[0].to(x.dtype)


class Repeats(Table):
    """Every fourth position is the same."""

    tags = frozenset({"unique"})

    def forward(self, x: Tensor, positions: Any = None) -> Tensor:
        return x + nn.functional.embedding(checked(x, positions).ids % 4, self.rows).to(x.dtype)


class Float32Sines(Added):
    """Claims to be exact far out, with products in float32 whatever the tokens are."""

    tags = frozenset({"far", "unique", "bounded"})

    def forward(self, x: Tensor, positions: Any = None) -> Tensor:
        ladder = 10000.0 ** -(torch.arange(0, HEAD_DIM, 2, dtype=torch.float64) / HEAD_DIM)
        angles = checked(x, positions).ids.unsqueeze(-1).float() * ladder.float()
        return x + torch.cat((angles.sin(), angles.cos()), -1).to(x.dtype)


class Float32Ladder(Added):
    """The same with exact products of frequencies that were rounded when it was made."""

    tags = frozenset({"far"})

    def __init__(self) -> None:
        super().__init__()
        self.ladder = 10000.0 ** -(torch.arange(0.0, HEAD_DIM, 2, device="cpu") / HEAD_DIM)

    def forward(self, x: Tensor, positions: Any = None) -> Tensor:
        angles = checked(x, positions).ids.unsqueeze(-1).double() * self.ladder.double()
        return x + torch.cat((angles.sin(), angles.cos()), -1).to(x.dtype)


class NeverLearns(Table):
    """A table that no gradient reaches."""

    tags = frozenset({"learned"})
    usable_length = 24

    def forward(self, x: Tensor, positions: Any = None) -> Tensor:
        return x + nn.functional.embedding(checked(x, positions).ids, self.rows.detach()).to(x.dtype)


class NotStationary(Table):
    """Claims that products depend on distance alone, as if any table did."""

    tags = frozenset({"stationary"})
    usable_length = 4000

    def forward(self, x: Tensor, positions: Any = None) -> Tensor:
        return x + nn.functional.embedding(checked(x, positions).ids, self.rows).to(x.dtype)


class WholePositionsOnly(Table):
    """Claims real positions and rounds them."""

    tags = frozenset({"real"})

    def forward(self, x: Tensor, positions: Any = None) -> Tensor:
        rows = checked(x, positions).ids.clamp(min=0).ceil().long()
        return x + nn.functional.embedding(rows * 0, self.rows).to(x.dtype)


class NeverDecays(Broken):
    """Claims a decay that plain rotary does not have."""

    tags = frozenset({"fading"})


class NeedsAnArgument(Broken):
    """Cannot be made again from what it holds."""

    def __init__(self, *, base: float = 10000.0, factor: float = 2.0) -> None:
        super().__init__(base=base)
        self.factor = 1.0
        self.speed = factor

    def ladder(self) -> Tensor:
        return super().ladder() * self.speed


# each is caught by the check named for its mistake
CAUGHT_BY: dict[type, str] = {
    HalfPositions: "half_equals_plain",
    CastFrequencies: "cast_equals_plain",
    SavedFrequencies: "loads_strictly",
    Float32Angles: "reaches_far",
    IgnoresPositions: "cached_equals_full",
    IgnoresDocuments: "packed_equals_separate",
    LengthCentred: "cached_equals_full",
    FirstRowForAll: "padded_equals_alone",
    LastRowForAll: "padded_equals_alone",
    TwoHeadsOnly: "serves_any_heads",
    MindsHeads: "serves_any_heads",
    OverflowsInHalf: "half_equals_plain",
    DoublesKeys: "keeps_norm",
    Float32Sines: "reaches_far",
    Float32Ladder: "reaches_far",
    CutsGradients: "differentiates",
    WidensResult: "keeps_shape_and_dtype",
    ChangesItsInput: "leaves_input_alone",
    ReadsValues: "compiled_equals_plain",
    LosesNorm: "keeps_norm",
    NotRelative: "is_relative",
    PaddingMinusOne: "padded_equals_alone",
    Grows: "is_bounded",
    Repeats: "is_unique",
    NeverLearns: "learns",
    NotStationary: "is_stationary",
    WholePositionsOnly: "takes_real_positions",
    NeverDecays: "fades",
    NeedsAnArgument: "meta_equals_plain",
}
