"""The bench: one attention layer with fixed random projections, on which encodings are run and looked at.

    x --embed--> x + p --project--> q, k, v --rotate--> R q, R k --scores--> softmax --attend--> output

Contract checks, the lab's probes and its portraits all run encodings here, so that one measurement serves them all.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from situs.attention.features import features_of
from situs.attention.reference import reference, scores_of
from situs.attention.request import softmax_scale
from situs.encodings.base import Encoding, InputEncoding, QueryKeyEncoding, Role, autocast_off
from situs.encodings.bias import BiasEncoding
from situs.encodings.features import computed_features
from situs.encodings.rotary import Rotary
from situs.encodings.score import ScoreEncoding, ValueEncoding
from situs.encodings.value_map import ValueMap
from situs.positions import Positions, PositionsLike

FAR = 10_000_000


class Bench:
    """Run encodings in one attention layer with fixed random projections, so that every kind is asked the same.

    gain: multiplies the projections of queries and keys, for encodings that declare another softmax scale.
    """

    def __init__(self, encodings: Sequence[Encoding], *, dim: int, heads: int, gain: float = 1.0) -> None:
        self.encodings, self.dim, self.heads = list(encodings), dim, heads
        self.projections = normal(3, dim, dim, seed=1) / dim**0.5
        self.projections[:2] *= gain
        widths = {int(getattr(each, "dim", None) or 0) for each in self.encodings if each.features}
        widths |= {heads * feature.width for each in self.encodings for feature in each.features.values()}
        self.drawn = {width: normal(dim, width, seed=11) / dim**0.5 for width in widths}

    @classmethod
    def around(cls, encoding: Encoding) -> Bench:
        """Make a layer of the sizes that an encoding asks for, and of small ones where it asks for none."""
        if isinstance(encoding, InputEncoding):
            return cls([encoding], dim=int(getattr(encoding, "dim", 16)), heads=1)
        heads = encoding.num_heads or 2
        return cls([encoding], dim=heads * (encoding.head_dim or 16), heads=heads)

    def with_encoding(self, encoding: Encoding) -> Bench:
        """Put another encoding of the same sizes into this very layer."""
        other = copy.copy(self)
        other.encodings = [encoding]
        return other

    @property
    def encoding(self) -> Encoding:
        """The only encoding of the layer."""
        (encoding,) = self.encodings
        return encoding

    @property
    def acts_on_scores(self) -> bool:
        """Whether the only encoding adds to the scores, or is seen in them alone."""
        return isinstance(self.encoding, (BiasEncoding, ScoreEncoding)) or self.goes_by_pair

    @property
    def goes_by_pair(self) -> bool:
        """Whether the only encoding rotates queries and keys by the positions of both."""
        return isinstance(self.encoding, QueryKeyEncoding) and self.encoding.by_pair

    def of_kind(self, kind: type[Encoding]) -> list[Any]:
        """Select the encodings of one kind."""
        return [each for each in self.encodings if isinstance(each, kind)]

    # Positions that the encodings can take.

    def end(self, dtype: torch.dtype = torch.float32) -> float:
        """Tell where positions end: with the last row of a table, or halfway to the reach of a method whose factors
        grow, which is shorter the sooner the dtype's numbers end."""
        room = math.log(torch.finfo(dtype).max) / math.log(torch.finfo(torch.float32).max)
        rows = [each.usable_length for each in self.encodings]
        reaches = [each.reach * min(1.0, room) / 2 for each in self.encodings]
        return float(min((*(row for row in rows if row is not None), *reaches), default=math.inf))

    @property
    def extent(self) -> tuple[int, ...] | None:
        """The sides of the window that all positions must fit into, wherever it lies."""
        return self.encoding.extent

    def length(self, wanted: int, dtype: torch.dtype = torch.float32) -> int:
        """Cut a sequence length to what the encoding can take."""
        cells = math.inf if self.extent is None else self.extent[0] * math.prod(self._other_sides)
        return max(1, int(min(wanted, self.end(dtype), cells)))

    def starts(self, count: int, *wanted: int, dtype: torch.dtype = torch.float32) -> list[int]:
        """Cut first positions so that ``count`` positions from each lie before the end."""
        return sorted({max(0, int(min(start, self.end(dtype) - count))) for start in wanted})

    def positions(self, count: int, start: int = 0) -> Positions:
        """Make one row of positions such as the encoding takes: a range, or cells of a grid, moved by ``start``."""
        if self.encoding.axes == 1:
            return Positions.range(count, start=start, sequence_length=count)
        sides = self._other_sides
        cells = torch.unravel_index(torch.arange(count), (-(-count // math.prod(sides)), *sides))
        return Positions.explicit(torch.stack(cells, -1)[None] + start, sequence_length=count)

    @property
    def _other_sides(self) -> tuple[int, ...]:
        """The sides of the grid that positions fill, but for the first, which grows."""
        side = 4 if self.encoding.axes == 2 else 2
        window = (side,) * self.encoding.axes if self.extent is None else self.extent
        return tuple(min(side, size) for size in window[1:])

    # The layer, step by step.

    def tokens(
        self, count: int, *, rows: int = 1, seed: int = 0, dtype: torch.dtype = torch.float32
    ) -> Float[Tensor, "rows count dim"]:
        """Draw random token vectors."""
        return normal(rows, count, self.dim, seed=seed).to(dtype)

    def embed(self, x: Tensor, positions: PositionsLike) -> Float[Tensor, "rows count dim"]:
        """Add what encodings of the input add."""
        for each in self.of_kind(InputEncoding):
            x = each(x, positions)
        return x

    def project(self, x: Float[Tensor, "rows count dim"], which: int) -> Float[Tensor, "rows heads count head_dim"]:
        """Make queries (0), keys (1) or values (2) of token vectors."""
        return torch.matmul(x, self.projections[which].to(x.dtype)).view(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def features(self, x: Float[Tensor, "rows count dim"]) -> dict[str, Tensor]:
        """Make the features that encodings declare of token vectors: by the encoding's own projection, or by a random
        one where it has none."""
        found: dict[str, Tensor] = {}
        for each in self.encodings:
            own = getattr(each, "dim", None)
            if own is not None and each.features:
                hidden = x if own == self.dim else torch.matmul(x, self.drawn[own].to(x.dtype))
                made = computed_features(each, hidden.to(next(each.parameters(), x).dtype))
                found |= {name: feature.to(x.dtype) for name, feature in made.items()}
                continue
            for name, feature in each.features.items():
                drawn = torch.matmul(x, self.drawn[self.heads * feature.width].to(x.dtype))
                found[name] = drawn.view(*x.shape[:2], self.heads, -1).transpose(1, 2)
        return found

    def rotate(self, vectors: Tensor, positions: Positions, role: Role) -> Float[Tensor, "rows heads count head_dim"]:
        """Encode the positions of queries or keys; where these differ by band of distance, those of no band."""
        for each in self.of_kind(QueryKeyEncoding):
            alone = each.without_bands if isinstance(each, Rotary) else each
            vectors = alone(vectors, positions, role=role)
        return vectors

    def scores(
        self,
        query: Tensor,
        key: Tensor,
        query_positions: Positions,
        key_positions: Positions,
        *,
        keys_like: int = 1,
        causal: bool = True,
    ) -> Float[Tensor, "rows heads query key"]:
        """Score tokens as queries, which are the last of the keys, against tokens as keys.

        keys_like: 0 gives keys the projection of the queries.
        causal: scores of keys that a query may not see are given too, but terms that count keys do not count them.
        """
        query, key = self.embed(query, query_positions), self.embed(key, key_positions)
        q, k = self.project(query, 0), self.project(key, keys_like)
        of_keys = features_of(self.encodings, "key")
        features = self.features(query) | {name: self.features(key)[name] for name in of_keys}
        scale = softmax_scale(self.encodings, q.shape[-1])
        visible = behind(q.shape[-2], k.shape[-2])[None, None] | (not causal)
        return scores_of(
            q, k, self.encodings, query_positions, key_positions, scale=scale, visible=visible, features=features
        )

    def effects(
        self, query: Tensor, key: Tensor, query_positions: Positions, key_positions: Positions
    ) -> Float[Tensor, "rows heads_and_more query key"]:
        """Give all that attention can tell of positions: the scores of all heads, and after them what is added to
        values."""
        seen = self.scores(query, key, query_positions, key_positions)
        offsets = key_positions.ids[:, None, :] - query_positions.ids[:, :, None]
        for each in (each for each in self.of_kind(ValueEncoding) if each.acts_on_values):
            added = each.value_vectors(offsets.flatten(), seen.dtype).transpose(-2, -1)
            along = added.reshape(1, -1, *offsets.shape[1:]).expand(len(seen), -1, -1, -1)
            seen = torch.cat((seen, along), 1)
        for each in self.of_kind(ValueMap):
            seen = torch.cat((seen, self._mapped(each, key, query_positions, key_positions)), 1)
        return seen

    def _mapped(
        self, encoding: ValueMap, key: Tensor, query_positions: Positions, key_positions: Positions
    ) -> Float[Tensor, "rows channels query key"]:
        """Make of each key's value what each query gets of it."""
        value = self.project(self.embed(key, key_positions), 2)
        value = encoding(value, key_positions)
        length, rows = query_positions.sequence_length, []
        for ids in query_positions.ids.unbind(1):  # the same query for every key
            here = ids[:, None].expand(-1, value.shape[2], *ids.shape[1:])
            at = Positions.explicit(here, sequence_length=length)
            rows.append(encoding(value, at, role="output").transpose(-2, -1).flatten(1, 2))
        return torch.stack(rows, 2)

    def attend(
        self, x: Tensor, positions: PositionsLike = None, *, causal: bool = True
    ) -> Float[Tensor, "rows heads count head_dim"]:
        """Run the layer over whole sequences; causally, where encodings are defined for that alone."""
        x = self.embed(x, positions)
        query, key, value = (self.project(x, which) for which in range(3))
        causal = causal or any(each.causal_only for each in self.encodings)
        return self.attend_heads(query, key, value, positions, causal=causal, features=self.features(x))

    def attend_heads(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        positions: PositionsLike,
        *,
        causal: bool,
        features: Mapping[str, Tensor] | None = None,
    ) -> Float[Tensor, "rows heads count head_dim"]:
        """Run attention over given queries, keys and values, which may have any number of heads."""
        return reference(
            query,
            key,
            value,
            encoding=self.encodings,
            causal=causal,
            positions=positions,
            key_positions=positions,
            features=features,
        )

    def attend_cached(self, x: Tensor, positions: Positions, chunks: Sequence[int]) -> Tensor:
        """Run the layer chunk by chunk, with keys that are encoded when they arrive and then cached."""
        outputs, keys, values, first = [], [], [], 0
        cached: dict[str, Tensor] = {}
        rotates, left = isinstance(self.encoding, QueryKeyEncoding) and not self.goes_by_pair, self.encoding
        if isinstance(left, ValueMap):  # values are cached as it has changed them
            left = left.output_alone
        for size in chunks:
            here = positions[first : first + size]
            part = self.embed(x[:, first : first + size], here)
            query, key, value = (self.project(part, which) for which in range(3))
            first += size
            features = self.features(part)
            for name in features_of(self.encodings, "key"):
                features[name] = torch.cat((cached[name], features[name]), 2) if name in cached else features[name]
            cached = features
            keys.append(self.rotate(key, here, "key") if rotates else key)
            values.append(self.encoding(value, here) if isinstance(self.encoding, ValueMap) else value)
            outputs.append(
                reference(
                    self.rotate(query, here, "query") if rotates else query,
                    torch.cat(keys, 2),
                    torch.cat(values, 2),
                    encoding=None if rotates else left,
                    causal=True,
                    positions=here,
                    key_positions=positions[:first],
                    scale=softmax_scale(self.encodings, query.shape[-1]) if rotates else None,
                    features=features,
                )
            )
        return torch.cat(outputs, 2)

    # The only encoding by itself.

    def encode(self, x: Tensor, positions: Positions) -> Tensor:
        """Give what the encoding itself makes of tokens, wherever it acts; for scores, the bias or term."""
        return self.attend(x, positions) if self.encoding.place == "nowhere" else self.apply(self.given(x), positions)

    def given(self, x: Tensor) -> tuple[Tensor, ...]:
        """Make what the encoding is handed: token vectors; queries, keys and features made of them; or nothing but
        positions."""
        if isinstance(self.encoding, InputEncoding):
            return (x,)
        if isinstance(self.encoding, ValueMap):
            return (self.project(x, 2),)
        if isinstance(self.encoding, BiasEncoding):
            return ()
        return self.project(x, 0), self.project(x, 1), *self.features(x).values()

    def apply(self, given: tuple[Tensor, ...], positions: Positions, key_positions: Positions | None = None) -> Tensor:
        """Call the encoding: it gives vectors, queries and keys one after the other, or what is added to the scores;
        the scores themselves, where it goes by both positions of a pair."""
        applied: Tensor
        if self.goes_by_pair:
            query, key = given
            other = positions if key_positions is None else key_positions
            scale = softmax_scale(self.encodings, query.shape[-1])
            with autocast_off(query.device.type):  # as attention does
                applied = scores_of(query, key, self.encodings, positions, other, scale=scale, visible=None)
        elif isinstance(self.encoding, QueryKeyEncoding):
            query, key = given
            applied = torch.stack((self.rotate(query, positions, "query"), self.rotate(key, positions, "key")))
        elif isinstance(self.encoding, ValueMap):
            applied = torch.stack([self.encoding(*given, positions, role=role) for role in ("value", "output")])
        elif isinstance(self.encoding, InputEncoding):
            applied = self.encoding(*given, positions)
        else:
            both = positions, positions if key_positions is None else key_positions
            names = list(self.encoding.features)
            features = dict(zip(names, given[len(given) - len(names) :], strict=True))
            own = {"features": features} if names else {}
            applied = self.encoding(*given[: len(given) - len(names)], *both, **own)
        return applied


def normal(*shape: int, seed: int) -> Float[Tensor, "..."]:
    """Draw normal numbers from a generator of their own, the same in every mode of torch."""
    generator = torch.Generator("cpu").manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float32, device="cpu")


def behind(queries: int, keys: int) -> Bool[Tensor, "queries keys"]:
    """Tell which keys are not later than a query, where queries are the last of the keys."""
    return torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
