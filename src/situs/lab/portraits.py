"""Portraits: what an encoding does, as numbers that a person can look at.

Every number comes out of the encoding's own ``forward``, called as attention calls it. Where content is needed, tokens
and projections are random, and so large that scores without positions have a variance of 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeAlias, cast

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from situs.encodings.base import Encoding, Encodings, InputEncoding, as_encodings
from situs.encodings.bias import BiasEncoding
from situs.encodings.rotary import Rotary
from situs.encodings.rotation import RotationEncoding
from situs.encodings.score import OffsetScore, PlaceScore, ScoreEncoding
from situs.encodings.sinusoidal import Sinusoidal
from situs.functional.pairing import pairing_permutation
from situs.lab.acting import Acting, behind, normal
from situs.positions import Positions
from situs.registry import entry, names

HEADS, HEAD_DIM = 1, 64  # of encodings that do not say
CONTENTS = 48  # random contents that a mean is taken of
BY_PLACE, COUNTED = (OffsetScore, PlaceScore), 4096  # others may count keys, of which so many are looked at


@dataclass(frozen=True)
class Sitter:
    """Who sits for a portrait: an encoding, or several that act together, and what it is called."""

    name: str
    encodings: tuple[Encoding, ...]
    untrained: bool = False
    """Whether it has parameters that are as at the start, or drawn at random to be seen at all."""
    sizes: tuple[int, int] | None = None
    """Heads and their channels, where it is to be drawn beside others; those that its encodings say if left out."""

    @property
    def heads(self) -> int:
        """Those it was made for, or as many as its sizes make."""
        if self.sizes is not None:
            return self.sizes[0]
        dim, head_dim = self._said("dim", 0), self._said("head_dim", 0)
        return self._said("num_heads", max(1, dim // head_dim) if dim and head_dim else HEADS)

    @property
    def head_dim(self) -> int:
        """Channels of a head."""
        if self.sizes is not None:
            return self.sizes[1]
        return self._said("head_dim", max(1, self._said("dim", HEAD_DIM) // self.heads))

    def of_kind(self, kind: type[Encoding]) -> list[Encoding]:
        """Its encodings that act in one place."""
        return [each for each in self.encodings if isinstance(each, kind)]

    @contextmanager
    def acting(self) -> Iterator[Acting]:
        """At work in a layer, without dropout and gradients."""
        layer = Acting(self.encodings, dim=self.heads * self.head_dim, heads=self.heads)
        declared = next((each.softmax_scale for each in self.encodings if each.softmax_scale is not None), None)
        if declared is not None:  # T5 draws smaller weights instead of dividing by sqrt(d)
            layer.projections[:2] *= (self.head_dim**-0.5 / declared) ** 0.5
        with still(self.encodings):
            yield layer

    def _said(self, name: str, otherwise: int) -> int:
        found = (getattr(each, name, None) for each in self.encodings)
        return next((int(number) for number in found if number is not None), otherwise)


Drawn: TypeAlias = "Encodings | Mapping[str, Encodings] | Sequence[Sitter]"


@dataclass(frozen=True)
class Curves:
    """Scores by distance: their mean over contents, and where nine of ten contents lie."""

    mean: Float[Tensor, "heads distances"]
    low: Float[Tensor, "heads distances"]
    high: Float[Tensor, "heads distances"]


def sitters(given: Drawn) -> list[Sitter]:
    """One encoding, several in a list, or several by the names they shall have; a list under a name acts together."""
    found: list[Sitter]
    if isinstance(given, Sequence) and all(isinstance(each, Sitter) for each in given):
        found = [each for each in given if isinstance(each, Sitter)]
    elif isinstance(given, Mapping):
        found = [Sitter(name, tuple(as_encodings(each))) for name, each in given.items()]
    else:
        found = [Sitter(label(each), (each,)) for each in as_encodings(cast(Encodings, given))]
    if not found:
        raise ValueError("encodings must be one or more, since there is nothing to draw otherwise; got none.")
    taken: dict[str, int] = {}
    for number, sitter in enumerate(found):
        taken[sitter.name] = taken.get(sitter.name, 0) + 1
        if taken[sitter.name] > 1:
            found[number] = replace(sitter, name=f"{sitter.name} ({taken[sitter.name]})")
    return found


def alike(found: Sequence[Sitter]) -> list[Sitter]:
    """In layers of one size, so that they meet the same queries and keys."""
    together = Sitter("", tuple(each for sitter in found for each in sitter.encodings))
    sizes = together.heads, together.head_dim
    for sitter in found:
        for name, size in (("num_heads", sizes[0]), ("head_dim", sizes[1]), ("dim", sizes[0] * sizes[1])):
            whose = sitter.of_kind(InputEncoding) if name == "dim" else sitter.encodings
            for own in (getattr(each, name, None) for each in whose):
                if own not in (None, size):
                    raise ValueError(
                        f"encodings must be of one size to be drawn beside each other, since they meet the same "
                        f"queries and keys; got {name}={own} of {sitter.name} with {sizes[0]} heads of {sizes[1]}."
                    )
    return [replace(sitter, sizes=sizes) for sitter in found]


def label(encoding: Encoding) -> str:
    """An encoding's name in the registry, with its scaling; its class' where it has none."""
    known = {entry(name).cls: name for name in names()}
    name = known.get(type(encoding), type(encoding).__name__)
    scaling = encoding.scaling if isinstance(encoding, Rotary) else None
    return name if scaling is None else f"{name}+{type(scaling).__name__}"


@contextmanager
def still(encodings: Sequence[Encoding]) -> Iterator[None]:
    """Without dropout and gradients; as they were again afterwards."""
    training = [each.training for each in encodings]
    try:
        for each in encodings:
            each.eval()
        with torch.no_grad():
            yield
    finally:
        for each, was in zip(encodings, training, strict=True):
            each.train(was)


def table(encoding: InputEncoding, places: Positions) -> Float[Tensor, "places dim"]:
    """What is added to the tokens at each place."""
    dim = int(getattr(encoding, "dim", HEAD_DIM))
    with still([encoding]):
        added: Tensor = encoding(torch.zeros(1, places.length, dim), places)[0]
    return added


def similarity(sitter: Sitter, places: Positions) -> Float[Tensor, "places places"]:
    """Cosines between what places add to the input; or scores of one content of length 1 as query and as key, on
    average."""
    inputs = sitter.of_kind(InputEncoding)
    if inputs:
        rows = sum((table(each, places) for each in inputs if isinstance(each, InputEncoding)), torch.zeros(()))
        rows = torch.nn.functional.normalize(rows, dim=-1)
        return rows @ rows.T
    contents = normal(CONTENTS, sitter.heads, 1, sitter.head_dim, seed=2).expand(-1, -1, places.length, -1)
    unit = torch.nn.functional.normalize(contents, dim=-1)  # before it is turned, since xPos changes lengths
    with sitter.acting() as layer:
        query, key = (layer.turned(unit, places, role) for role in ("query", "key"))
    return torch.einsum("chid,chjd->ij", query, key) / (CONTENTS * sitter.heads)


def turns(
    encoding: RotationEncoding, pair: int, positions: Float[Tensor, "places"] | Int64[Tensor, "places"]
) -> Float[Tensor, "places 2"]:
    """The unit vector (1, 0) of a pair, as it stands at each place."""
    order = pairing_permutation(
        encoding.head_dim, source=encoding.pairing, target="interleaved", rotary_dim=encoding.rotary_dim
    )
    channels = order[2 * pair : 2 * pair + 2]
    vector = torch.zeros(1, encoding.num_heads or 1, len(positions), encoding.head_dim, dtype=torch.float64)
    vector[..., channels[0]] = 1
    places = Positions.explicit(positions, sequence_length=int(positions.max()) + 1)
    with still([encoding]):
        turned: Tensor = encoding(vector, places)[0, 0][:, channels]
    return turned


def wavelengths(encoding: Encoding, length: int) -> Float64[Tensor, "pairs"]:
    """Positions that each pair takes for a turn, in a text of that length; infinite for pairs that stand still."""
    if isinstance(encoding, Sinusoidal):
        return math.tau / encoding.frequencies(0)
    assert isinstance(encoding, RotationEncoding)
    places = Positions.range(length)
    if encoding.axes > 1:
        places = Positions.explicit(torch.zeros(1, 1, encoding.axes, dtype=torch.int64), sequence_length=length)
    return math.tau / encoding.frequencies_at(places)[0, 0, 0]


def decay(sitter: Sitter, distances: Int64[Tensor, "distances"], *, contents: int = CONTENTS) -> Curves:
    """Scores of a query and a key of the same content, by how far the key lies behind."""
    farthest = int(distances.max())
    counts = any(isinstance(each, ScoreEncoding) and not isinstance(each, BY_PLACE) for each in sitter.encodings)
    if counts and farthest >= COUNTED:
        raise ValueError(
            f"length must be {COUNTED:,} or less for {sitter.name}, since it looks at every key between; got "
            f"{farthest + 1:,}."
        )
    chosen = torch.arange(farthest + 1) if counts else farthest - distances.flip(0)
    with sitter.acting() as layer:
        text = Positions.range(farthest + 1)
        tokens, seen = normal(contents, 1, layer.dim, seed=3), []
        for some in torch.split(tokens, 4):  # what is held at a time stays small
            keys = some.expand(-1, len(chosen), -1)
            of_keys = text if len(chosen) == text.length else Positions.explicit(chosen, sequence_length=text.length)
            seen.append(layer.scores(some, keys, text[-1:], of_keys, keys_like=0)[:, :, 0].flip(-1))
    scores = torch.cat(seen)
    scores = scores[..., distances] if counts else scores
    low, high = torch.quantile(scores, torch.tensor([0.05, 0.95]), dim=0)
    return Curves(scores.mean(0), low, high)


def likeness(sitter: Sitter, length: int) -> Float[Tensor, "query key"]:
    """Scores of one content at two places, the mean over contents and heads; keys ahead of the query are nan."""
    with sitter.acting() as layer:
        places = Positions.range(length)
        tokens = normal(CONTENTS // 3, 1, layer.dim, seed=3).expand(-1, length, -1)
        scores = layer.scores(tokens, tokens, places, places, keys_like=0).mean((0, 1))
    return scores.masked_fill(~behind(length, length), math.nan)


def bias(encoding: BiasEncoding, length: int) -> Float[Tensor, "heads query key"]:
    """The whole matrix that is added to the scores."""
    places = Positions.range(length)
    with still([encoding]):
        added: Tensor = encoding(places, places)[0]
    return added


def bias_behind(encoding: BiasEncoding, length: int) -> Float[Tensor, "heads distances"]:
    """What the last of so many tokens adds to the scores of those behind it, by distance from 0 on."""
    places = Positions.range(length)
    with still([encoding]):
        added: Tensor = encoding(places[-1:], places)[0, :, 0].flip(-1)
    return added


def bias_around(encoding: BiasEncoding, size: tuple[int, int]) -> Float[Tensor, "heads height width"]:
    """What the patch in the middle of a window adds to the scores of all others."""
    places = Positions.grid(*size)
    middle = size[0] // 2 * size[1] + size[1] // 2
    with still([encoding]):
        added: Tensor = encoding(places[middle : middle + 1], places)[0, :, 0]
    return added.view(-1, *size)


def content_scores(
    encoding: ScoreEncoding, query: Float[Tensor, "heads length head_dim"], key: Float[Tensor, "heads length head_dim"]
) -> tuple[Float[Tensor, "heads length length"], Float[Tensor, "heads length length"]]:
    """Scores by content alone, and what the encoding adds for these queries and keys."""
    places = Positions.range(query.shape[-2])
    scale = encoding.scale_for(query.shape[-1])
    visible = behind(places.length, places.length)[None, None]
    with still([encoding]):
        term = encoding(query[None], key[None], places, places, scale=scale, visible=visible)[0]
        return scale * query @ key.transpose(-2, -1), term


def attention(sitter: Sitter, length: int, *, causal: bool, positions: bool = True) -> Float[Tensor, "heads query key"]:
    """The weights that tokens of a random text give to each other; without ``positions``, those by content alone."""
    with sitter.acting() as layer:
        if not positions:
            layer = Acting((), dim=layer.dim, heads=layer.heads)
        places = Positions.range(length)
        tokens = normal(1, length, layer.dim, seed=5)
        scores = layer.scores(tokens, tokens, places, places, causal=causal)[0]
    if causal:
        scores = scores.masked_fill(~behind(length, length), -math.inf)
    return scores.softmax(-1)
