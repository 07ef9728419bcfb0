"""Portraits: what an encoding does, as numbers that a person can look at.

Every number comes out of the encoding's own ``forward``, called as attention calls it. Where content is needed, it is
that of a trained layer reading a text, if such queries and keys are stored with the encoding; else tokens and
projections are random, and so large that scores without positions have a variance of 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from situs.attention.reference import scores_of
from situs.attention.request import softmax_scale
from situs.checks.bench import Bench, behind, normal
from situs.checks.measures import ROLES, scores_by_distance
from situs.encodings.base import Encoding, InputEncoding
from situs.encodings.bias import BiasEncoding, PositionProduct
from situs.encodings.rope_mixed import RoPEMixed
from situs.encodings.rotary_value import RotaryValue
from situs.encodings.rotation import RotationEncoding
from situs.encodings.score import OffsetScore, ScoreEncoding
from situs.encodings.sinusoidal import Sinusoidal
from situs.encodings.temperature import Temperature
from situs.functional.pairing import pairing_permutation
from situs.lab.probing.sitters import HEAD_DIM, Sitter, patches_of, still
from situs.positions import Positions

CONTENTS = 48  # random contents that a mean is taken of
BY_POSITION, COUNTED = (OffsetScore, PositionProduct), 4096  # others may count keys, of which so many are looked at


@dataclass(frozen=True)
class Curves:
    """Hold scores by distance: their mean over contents, and where nine of ten contents lie."""

    mean: Float[Tensor, "heads distances"]
    low: Float[Tensor, "heads distances"]
    high: Float[Tensor, "heads distances"]


def table(encoding: InputEncoding, positions: Positions) -> Float[Tensor, "positions dim"]:
    """Give what is added to the tokens at each position."""
    dim = int(getattr(encoding, "dim", HEAD_DIM))
    with still([encoding]):
        added: Tensor = encoding(torch.zeros(1, positions.length, dim), positions)[0]
    return added


def similarity(sitter: Sitter, positions: Positions) -> Float[Tensor, "positions positions"]:
    """Measure cosines between what is added to the input at any two positions; for encodings of queries and keys, mean
    scores of one content of length 1."""
    inputs = sitter.of_kind(InputEncoding)
    if inputs:
        rows = sum((table(each, positions) for each in inputs if isinstance(each, InputEncoding)), torch.zeros(()))
        rows = torch.nn.functional.normalize(rows, dim=-1)
        return rows @ rows.T
    contents = normal(CONTENTS, sitter.heads, 1, sitter.head_dim, seed=2).expand(-1, -1, positions.length, -1)
    unit = torch.nn.functional.normalize(contents, dim=-1)  # before it is rotated, since xPos changes lengths
    with sitter.bench() as bench:
        query, key = (bench.rotate(unit, positions, role) for role in ROLES.values())
    return torch.einsum("chid,chjd->ij", query, key) / (CONTENTS * sitter.heads)


def factors(encoding: Temperature, ids: Int64[Tensor, "positions"]) -> Float64[Tensor, "heads positions"]:
    """Give what queries are multiplied by at each position; one row where heads are alike."""
    positions = Positions.explicit(ids, sequence_length=int(ids.max()) + 1)
    with still([encoding]):
        return encoding.factors(positions, dtype=torch.float64)[0, :, :, 0]


def rotated_pair(
    encoding: RotationEncoding | RotaryValue, pair: int, ids: Float[Tensor, "positions"] | Int64[Tensor, "positions"]
) -> Float[Tensor, "positions 2"]:
    """Rotate the unit vector (1, 0) of a pair to each position."""
    if isinstance(encoding, RotaryValue):
        return rotated_pair(encoding.rotary, pair, ids)
    order = pairing_permutation(
        encoding.head_dim,
        source=encoding.pairing,
        target="interleaved",
        rotary_dim=encoding.rotary_dim,
        channels=encoding.channels,
    )
    first = encoding.head_dim - encoding.rotary_dim if encoding.channels == "trailing" else 0
    channels = order[first + 2 * pair : first + 2 * pair + 2]
    vector = torch.zeros(1, encoding.num_heads or 1, len(ids), encoding.head_dim, dtype=torch.float64)
    vector[..., channels[0]] = 1
    positions = Positions.explicit(ids, sequence_length=int(ids.max()) + 1)
    with still([encoding]):
        rotated: Tensor = encoding(vector, positions)[0, 0][:, channels]
    return rotated


def wavelengths(encoding: Encoding, length: int) -> Float64[Tensor, "pairs"]:
    """Tell how many positions each pair takes for a full rotation; infinite where it is not rotated.

    length: of the text, for scalings that choose by it.
    """
    if isinstance(encoding, Sinusoidal):
        return math.tau / encoding.frequencies(0)
    if isinstance(encoding, RotaryValue):
        return wavelengths(encoding.rotary, length)
    assert isinstance(encoding, RotationEncoding)
    if isinstance(encoding, RoPEMixed):  # along the direction that a pair looks in
        return math.tau / torch.hypot(*encoding.frequencies.detach().double()[:, 0])
    positions = Positions.range(length)
    if encoding.axes > 1:
        positions = Positions.explicit(torch.zeros(1, 1, encoding.axes, dtype=torch.int64), sequence_length=length)
    return math.tau / encoding.frequencies_at(positions).detach()[0, 0, 0].abs()  # of any direction


def decay(sitter: Sitter, distances: Int64[Tensor, "distances"], *, contents: int = CONTENTS) -> Curves:
    """Score a query and a key of the same token, by how far the key lies behind."""
    farthest = int(distances.max())
    counts = any(isinstance(each, ScoreEncoding) and not isinstance(each, BY_POSITION) for each in sitter.encodings)
    if counts and farthest >= COUNTED:
        raise ValueError(
            f"length must be {COUNTED:,} or less for {sitter.name}, since it looks at every key between; got "
            f"{farthest + 1:,}."
        )
    chosen = torch.arange(farthest + 1) if counts else farthest - distances.flip(0)
    text = Positions.range(farthest + 1)
    positions = text if len(chosen) == text.length else Positions.explicit(chosen, sequence_length=text.length)
    with sitter.bench() as bench:
        if sitter.sample is None:
            tokens = normal(contents, 1, bench.dim, seed=3)
            # a few at a time, so that memory stays small
            parts = [scores_by_distance(bench, some, some, text[-1:], positions) for some in torch.split(tokens, 4)]
            scores = torch.cat(parts)
        else:
            scores = _sampled_scores(sitter, contents, text[-1:], positions)[:, :, 0].flip(-1)
    scores = scores[..., distances] if counts else scores
    low, high = torch.quantile(scores, torch.tensor([0.05, 0.95]), dim=0)
    return Curves(scores.mean(0), low, high)


def likeness(sitter: Sitter, length: int) -> Float[Tensor, "query key"]:
    """Score one token with itself at any two positions, the mean over tokens and heads; keys ahead of the query are
    nan."""
    positions = Positions.range(length)
    with sitter.bench() as bench:
        if sitter.sample is not None:
            scores = _sampled_scores(sitter, CONTENTS // 3, positions, positions).mean((0, 1))
            return scores.masked_fill(~behind(length, length), math.nan)
        tokens = normal(CONTENTS // 3, 1, bench.dim, seed=3).expand(-1, length, -1)
        scores = bench.scores(tokens, tokens, positions, positions, keys_like=0).mean((0, 1))
    return scores.masked_fill(~behind(length, length), math.nan)


def _sampled_scores(
    sitter: Sitter, tokens: int, query_positions: Positions, key_positions: Positions
) -> Float[Tensor, "tokens heads query key"]:
    """Score stored queries with the keys of the same tokens, each put at all positions in turn."""
    assert sitter.sample is not None
    chosen = torch.linspace(0, sitter.sample[0].shape[1] - 1, tokens).round().long()
    query, key = (each[:, chosen].transpose(0, 1)[:, :, None] for each in sitter.sample)  # (tokens, heads, 1, head_dim)
    queries, keys = query_positions.length, key_positions.length
    return scores_of(
        query.expand(-1, -1, queries, -1), key.expand(-1, -1, keys, -1), sitter.encodings, query_positions,
        key_positions, scale=softmax_scale(sitter.encodings, query.shape[-1]),
        visible=behind(queries, keys)[None, None],
    )  # fmt: skip


def bias(encoding: BiasEncoding, length: int) -> Float[Tensor, "heads query key"]:
    """Give the whole matrix that is added to the scores."""
    positions = Positions.range(length)
    with still([encoding]):
        added: Tensor = encoding(positions, positions)[0]
    return added


def bias_behind(encoding: BiasEncoding, length: int) -> Float[Tensor, "heads distances"]:
    """Give what the last of so many tokens adds to the scores of those behind it, by distance from 0 on."""
    positions = Positions.range(length)
    with still([encoding]):
        added: Tensor = encoding(positions[-1:], positions)[0, :, 0].flip(-1)
    return added


def bias_around(encoding: BiasEncoding, size: tuple[int, int]) -> Float[Tensor, "heads height width"]:
    """Give what the patch in the middle of a window adds to the scores of all others."""
    positions, middle = patches_of([encoding], size), size[0] // 2 * size[1] + size[1] // 2
    with still([encoding]):
        added: Tensor = encoding(positions[middle : middle + 1], positions)[0, :, 0]
    return added.view(-1, *size)


def term_around(sitter: Sitter, size: tuple[int, int]) -> Float[Tensor, "heads height width"]:
    """Give what the query of the patch in the middle of a window adds to the scores of all others: that of an image
    where the sitter has one, else a random one."""
    (encoding,), positions = sitter.encodings, Positions.grid(*size)
    middle = size[0] // 2 * size[1] + size[1] // 2
    if sitter.sample is None:
        generator = torch.Generator().manual_seed(0)
        query = torch.randn(sitter.heads, 1, sitter.head_dim, generator=generator)
    else:
        shown = sitter.sample[0]
        query = shown[:, shown.shape[1] // 2 : shown.shape[1] // 2 + 1]
    keys = torch.zeros(1, sitter.heads, positions.length, sitter.head_dim)
    with still([encoding]):
        added: Tensor = encoding(query[None], keys, positions[middle : middle + 1], positions)[0, :, 0]
    return added.view(-1, *size)


def content_scores(
    encoding: ScoreEncoding, query: Float[Tensor, "heads length head_dim"], key: Float[Tensor, "heads length head_dim"]
) -> tuple[Float[Tensor, "heads length length"], Float[Tensor, "heads length length"]]:
    """Give scores by content alone, and what the encoding adds for these queries and keys."""
    positions = Positions.range(query.shape[-2])
    scale = encoding.scale_for(query.shape[-1])
    visible = behind(positions.length, positions.length)[None, None]
    with still([encoding]):
        own = {"features": _random_features(encoding, query)} if encoding.features else {}
        term = encoding(query[None], key[None], positions, positions, scale=scale, visible=visible, **own)[0]
        return scale * query @ key.transpose(-2, -1), term


def _random_features(encoding: ScoreEncoding, query: Float[Tensor, "heads length head_dim"]) -> dict[str, Tensor]:
    """Draw features such as the encoding takes, of as many tokens as there are queries."""
    heads, length, width = query.shape
    bench = Bench([encoding], dim=heads * width, heads=heads)
    return {name: each.to(query.dtype) for name, each in bench.features(bench.tokens(length, seed=8)).items()}


def attention(
    sitter: Sitter, length: int, *, causal: bool, positions: bool = True, sample: bool = False
) -> Float[Tensor, "heads query key"]:
    """Give the attention weights of a random text; without ``positions``, those by content alone.

    sample: of the text whose queries and keys are stored with the encoding.
    """
    text = Positions.range(length)
    with sitter.bench() as bench:
        encodings = sitter.encodings if positions else ()
        if sample and sitter.sample is not None:
            query, key = (each[None, :, :length] for each in sitter.sample)
            scale = softmax_scale(sitter.encodings, query.shape[-1])
            visible = behind(length, length)[None, None] | (not causal)
            scores = scores_of(query, key, encodings, text, text, scale=scale, visible=visible)[0]
        else:
            layer = bench if positions else Bench((), dim=bench.dim, heads=bench.heads)
            tokens = normal(1, length, layer.dim, seed=5)
            scores = layer.scores(tokens, tokens, text, text, causal=causal)[0]
    if causal:
        scores = scores.masked_fill(~behind(length, length), -math.inf)
    return scores.softmax(-1)


@dataclass(frozen=True)
class Shuffled:
    """Hold attention weights of a text in its order and shuffled, means of heads.

    plain, mixed: of all tokens, in order and shuffled.
    back: those of the shuffled tokens, rows and columns put back in order.
    causal: under a causal mask, shuffled and put back.
    order: which token stands at each position of the shuffled text.
    first: the weight of the first token under a causal mask, by the query's position, mean over texts.
    """

    plain: Float[Tensor, "query key"]
    mixed: Float[Tensor, "query key"]
    back: Float[Tensor, "query key"]
    causal: Float[Tensor, "query key"]
    order: Int64[Tensor, "query"]
    first: Float[Tensor, "query"]

    @property
    def maps(self) -> tuple[Tensor, ...]:
        """The four maps, in this order."""
        return self.plain, self.mixed, self.back, self.causal


def shuffled(sitter: Sitter, length: int) -> Shuffled:
    """Give the attention weights of random tokens in order and shuffled, while positions stay in order."""
    text, order = Positions.range(length), torch.randperm(length, generator=torch.Generator().manual_seed(9))
    back = order.argsort()
    seen = behind(length, length)
    with sitter.bench() as bench:
        tokens = normal(CONTENTS, length, bench.dim, seed=5)
        one, mixed_tokens = tokens[:1], tokens[:1, order]
        plain, mixed = (
            bench.scores(each, each, text, text, causal=False).softmax(-1).mean(1)[0] for each in (one, mixed_tokens)
        )
        hidden, many = (
            bench.scores(each, each, text, text).masked_fill(~seen, -math.inf).softmax(-1).mean(1)
            for each in (mixed_tokens, tokens)
        )
    return Shuffled(plain, mixed, mixed[back][:, back], hidden[0][back][:, back], order, many.mean(0)[:, 0])
