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
    def limit(self) -> int | None:
        """Positions the encoding has, where it ends."""
        extent = getattr(self.encoding, "extent", None)
        if extent is not None:
            return int(extent[0] * min(4, extent[1]))
        end: int | None = getattr(self.encoding, "usable_length", None)
        return end

    @property
    def acts_on_scores(self) -> bool:
        """Whether the encoding adds to the scores."""
        return isinstance(self.encoding, (BiasEncoding, ScoreEncoding))

    def with_encoding(self, encoding: Encoding) -> Subject:
        """The same layer around another encoding."""
        return Subject(encoding)

    def length(self, wanted: int) -> int:
        """A sequence length, cut to what the encoding can take."""
        return wanted if self.limit is None else min(wanted, self.limit)

    def places(self, count: int, start: int = 0) -> Positions:
        """One row of positions such as the encoding takes: a range, or cells of a grid moved by ``start``."""
        axes = self.encoding.axes
        if axes == 1:
            return Positions.range(count, start=start, sequence_length=count)
        extent = getattr(self.encoding, "extent", None) or (None, 4)
        others = (min(4, extent[1]),) if axes == 2 else (2, 2)
        grid = Positions.grid(-(-count // math.prod(others)), *others)[:count]
        return Positions.explicit(grid.ids + start, sequence_length=count)[:count]

    def tokens(self, count: int, *, rows: int = 1, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
        """Random token vectors, (rows, count, dim)."""
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(rows, count, self.dim, generator=generator, dtype=torch.float64).to(dtype)

    def heads_of(self, x: Float[Tensor, "rows count dim"], which: int) -> Float[Tensor, "rows heads count head_dim"]:
        """Queries (0), keys (1) or values (2) of token vectors."""
        projected: Tensor = x @ self._projections[which].to(x.dtype)
        return projected.view(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def direct(self, x: Tensor) -> Tensor:
        """What the encoding itself is handed: token vectors, or queries made of them."""
        return x if isinstance(self.encoding, InputEncoding) else self.heads_of(x, 0)

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
        if isinstance(self.encoding, InputEncoding):
            return self.embed(x, positions)
        if self.encoding.place == "nowhere":
            return self.attend(x, positions)
        if isinstance(self.encoding, QueryKeyEncoding):
            encoded: Tensor = self.encoding(self.heads_of(x, 0), positions)
            return encoded
        return self.scores(x, positions, positions)

    def scores(self, x: Tensor, query_positions: Positions, key_positions: Positions) -> Tensor:
        """What an encoding of the scores adds to them."""
        if isinstance(self.encoding, BiasEncoding):
            added: Tensor = self.encoding(query_positions, key_positions)
        else:
            added = self.encoding(self.heads_of(x, 0), self.heads_of(x, 1), query_positions, key_positions)
        return added


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
