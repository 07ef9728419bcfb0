"""The subject of a check: an encoding, and a small attention around it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from situs.attention.reference import reference, softmax_scale
from situs.encodings.base import Encoding, InputEncoding, QueryKeyEncoding
from situs.encodings.bias import BiasEncoding
from situs.encodings.score import ScoreEncoding
from situs.positions import Positions, PositionsLike

FAR = 10_000_000


class Subject:
    """One attention layer with fixed random projections, so that every kind of encoding is asked the same."""

    def __init__(self, encoding: Encoding) -> None:
        self.encoding = encoding
        own_heads, own_head_dim = (getattr(encoding, name, None) for name in ("num_heads", "head_dim"))
        if isinstance(encoding, InputEncoding):
            self.heads, self.dim = 1, int(getattr(encoding, "dim", 16))
        else:
            self.heads = own_heads or 2
            self.dim = self.heads * (own_head_dim or 16)
        generator = torch.Generator().manual_seed(100)
        shape = 3, self.dim, self.dim
        self._projections = torch.randn(shape, generator=generator, dtype=torch.float64) / self.dim**0.5

    @property
    def extent(self) -> tuple[int, ...] | None:
        """Sizes of the window that all places must fit into, wherever it lies."""
        window: tuple[int, ...] | None = getattr(self.encoding, "extent", None)
        return window

    def end(self, dtype: torch.dtype = torch.float32) -> float:
        """Where positions end: with a table's last row, or halfway to the reach, which is shorter the sooner the
        dtype's numbers end."""
        rows: int | None = getattr(self.encoding, "usable_length", None)
        room = math.log(torch.finfo(dtype).max) / math.log(torch.finfo(torch.float32).max)
        return min(math.inf if rows is None else rows, self.encoding.reach * min(1.0, room) / 2)

    @property
    def acts_on_scores(self) -> bool:
        """Whether the encoding adds to the scores."""
        return isinstance(self.encoding, (BiasEncoding, ScoreEncoding))

    def with_encoding(self, encoding: Encoding) -> Subject:
        """The same layer around another encoding."""
        return Subject(encoding)

    def length(self, wanted: int, dtype: torch.dtype = torch.float32) -> int:
        """A sequence length, cut to what the encoding can take."""
        cells = math.inf if self.extent is None else self.extent[0] * math.prod(self._other_sides)
        return max(1, int(min(wanted, self.end(dtype), cells)))

    def starts(self, count: int, *wanted: int, dtype: torch.dtype = torch.float32) -> list[int]:
        """The wanted first positions, or the last from which ``count`` places still lie before the end."""
        return sorted({max(0, int(min(start, self.end(dtype) - count))) for start in wanted})

    def places(self, count: int, start: int = 0) -> Positions:
        """One row of positions such as the encoding takes: a range, or cells of a grid moved by ``start``."""
        if self.encoding.axes == 1:
            return Positions.range(count, start=start, sequence_length=count)
        sides = self._other_sides
        cells = torch.unravel_index(torch.arange(count), (-(-count // math.prod(sides)), *sides))
        return Positions.explicit(torch.stack(cells, -1)[None] + start, sequence_length=count)

    @property
    def _other_sides(self) -> tuple[int, ...]:
        """Sides of the grid that its places fill, but for the first, which grows."""
        side = 4 if self.encoding.axes == 2 else 2
        window = (side,) * self.encoding.axes if self.extent is None else self.extent
        return tuple(min(side, size) for size in window[1:])

    def tokens(self, count: int, *, rows: int = 1, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
        """Random token vectors, (rows, count, dim)."""
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(rows, count, self.dim, generator=generator, dtype=torch.float64).to(dtype)

    def heads_of(self, x: Float[Tensor, "rows count dim"], which: int) -> Float[Tensor, "rows heads count head_dim"]:
        """Queries (0), keys (1) or values (2) of token vectors."""
        projected: Tensor = x @ self._projections[which].to(x.dtype)
        return projected.view(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def embed(self, x: Tensor, positions: PositionsLike) -> Tensor:
        """Token vectors as the first layer sees them."""
        if not isinstance(self.encoding, InputEncoding):
            return x
        embedded: Tensor = self.encoding(x, positions)
        return embedded

    def attend(
        self, x: Tensor, positions: PositionsLike = None, *, causal: bool = True
    ) -> Float[Tensor, "rows heads count head_dim"]:
        """The layer's output for whole sequences."""
        x = self.embed(x, positions)
        query, key, value = (self.heads_of(x, which) for which in range(3))
        return reference(
            query,
            key,
            value,
            encoding=self.encoding,
            causal=causal,
            positions=positions,
            key_positions=positions,
        )

    def attend_cached(self, x: Tensor, positions: Positions, chunks: Sequence[int]) -> Tensor:
        """The same output computed chunk by chunk, with keys encoded when they arrive and then kept."""
        outputs, keys, values, first = [], [], [], 0
        turns = isinstance(self.encoding, QueryKeyEncoding)
        for size in chunks:
            here = positions[first : first + size]
            part = self.embed(x[:, first : first + size], here)
            query, key, value = (self.heads_of(part, which) for which in range(3))
            first += size
            if turns:
                query, key = self.encoding(query, here), self.encoding(key, here, role="key")
            keys.append(key)
            values.append(value)
            outputs.append(
                reference(
                    query,
                    torch.cat(keys, 2),
                    torch.cat(values, 2),
                    encoding=None if turns else self.encoding,
                    causal=True,
                    positions=here,
                    key_positions=positions[:first],
                    scale=softmax_scale([self.encoding], query.shape[-1], None) if turns else None,
                )
            )
        return torch.cat(outputs, 2)

    def encode(self, x: Tensor, positions: Positions) -> Tensor:
        """What the encoding itself gives, whatever its place; for scores, the bias or term."""
        return self.attend(x, positions) if self.encoding.place == "nowhere" else self.apply(self.given(x), positions)

    def given(self, x: Tensor) -> tuple[Tensor, ...]:
        """What the encoding is handed: token vectors, queries and keys made of them, or nothing but positions."""
        if isinstance(self.encoding, InputEncoding):
            return (x,)
        return () if isinstance(self.encoding, BiasEncoding) else (self.heads_of(x, 0), self.heads_of(x, 1))

    def apply(self, given: tuple[Tensor, ...], positions: Positions, key_positions: Positions | None = None) -> Tensor:
        """What it makes of them: vectors, queries and keys one after the other, or what is added to the scores."""
        applied: Tensor
        if isinstance(self.encoding, QueryKeyEncoding):
            query, key = given
            applied = torch.stack((self.encoding(query, positions), self.encoding(key, positions, role="key")))
        elif isinstance(self.encoding, InputEncoding):
            applied = self.encoding(*given, positions)
        else:
            applied = self.encoding(*given, positions, positions if key_positions is None else key_positions)
        return applied


def share_parameters(taker: Encoding, giver: Encoding) -> None:
    """Load the giver's parameters, but no table that it saves."""
    taker.load_state_dict({name: parameter.detach() for name, parameter in giver.named_parameters()}, strict=False)


def require_close(actual: Tensor, expected: Tensor, situation: str, tolerance: float = 2e-5) -> None:
    """Raise with the size of the difference and where it is largest."""
    if actual.shape != expected.shape:
        raise AssertionError(f"{situation}: the shape is {tuple(actual.shape)} instead of {tuple(expected.shape)}")
    actual, expected = actual.detach(), expected.detach()
    difference = (actual.double() - expected.double()).abs()
    worst = float(difference.max()) if difference.numel() else 0.0
    if not worst <= tolerance * max(1.0, float(expected.abs().max()) if expected.numel() else 1.0):
        place = tuple(
            int(index) for index in torch.unravel_index(difference.nan_to_num(torch.inf).argmax(), difference.shape)
        )
        raise AssertionError(f"{situation}: outputs differ by {worst:.3g}, most at {place}")


def require_equal(actual: Tensor, expected: Tensor, situation: str) -> None:
    """Raise unless every bit is the same."""
    require_close(actual, expected, situation, tolerance=0.0)
