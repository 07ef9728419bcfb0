"""A request for attention: everything that was asked, checked and resolved once, for kernels to judge and to serve."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from situs.attention.features import features_of, of_real_tokens, require_features, tempered
from situs.attention.fitting import (
    require_causal,
    require_chunks,
    require_divisor,
    require_fit,
    require_mask,
    require_numbers,
    require_positions,
    require_softmax,
    require_tensors,
)
from situs.attention.offsets import OffsetCache
from situs.attention.visibility import in_chunks, keys_of_chunk, visibility
from situs.compiled.watching import is_plain
from situs.encodings.base import Encoding, Encodings, InputEncoding, QueryKeyEncoding, as_encodings, computing_dtype
from situs.encodings.bias import BiasEncoding, OffsetBias, PositionProduct
from situs.encodings.cumulated import CumulatedScore
from situs.encodings.fitting import require_axes
from situs.encodings.rotary import Rotary
from situs.encodings.score import OffsetScore, ScoreEncoding, ValueEncoding
from situs.encodings.value_map import ValueMap
from situs.positions import Positions, PositionsLike, align, is_deferred

LOW = -1e3  # of a mask, below which float32 rounds off what scores tell
ACTING = ("query", "query and key", "score", "score and value", "value")  # places in attention
OFFSETS_PER_TOKEN = 4  # of which a number each is made at most, so that memory follows the tokens and not their span


@dataclass(frozen=True, eq=False)
class Request:
    """Queries, keys and values; encodings by the place where they act; positions; and which keys a query sees."""

    query: Tensor
    key: Tensor
    value: Tensor
    encodings: tuple[Encoding, ...]
    """All that act in attention; those of the input have acted before."""
    rotations: tuple[QueryKeyEncoding, ...]
    """Encodings that change queries and keys."""
    biases: tuple[BiasEncoding, ...]
    """Encodings that add to the scores whatever the content is."""
    products: tuple[PositionProduct, ...]
    """Biases that are products of a vector of the query's position and one of the key's."""
    contents: tuple[ScoreEncoding, ...]
    """Encodings that add to the scores by content; one that has nothing to add is left out, and so are cumulated."""
    cumulated: tuple[CumulatedScore, ...]
    """Encodings that add to a score what tokens between the key and the query add up to."""
    values: tuple[ValueEncoding, ...]
    """Encodings that add to the values that attention gathers."""
    query_positions: Positions
    key_positions: Positions
    causal: bool
    window: int | None
    mask: Tensor | None
    """Of four axes."""
    scale: float
    dropout: float
    offset_bounds: tuple[int, int] | None
    """The lowest and the highest offset, key minus query, that there can be; None where nothing tells or asks, where
    positions are no whole numbers, or where so many numbers would be too many for so few tokens."""
    span: int | None
    """The distance from which on all content terms and values stay as they are; None where they never do."""
    adds_by_offset: bool
    """Whether any encoding adds to scores or values by the positions of a pair, or by more than them."""
    acts_on_scores: bool
    """Whether any encoding adds to scores or values; rotated queries and keys, and more channels, have positions in
    them."""
    offsets: OffsetCache | None = None
    """Where biases and vectors over offsets are cached, if they are."""
    softcap: float | None = None
    sinks: Tensor | None = None
    """Of one axis, in float32 or wider."""
    value_maps: tuple[ValueMap, ...] = ()
    """Encodings that change values before a kernel and its output after."""
    features: Mapping[str, Tensor] = field(default_factory=dict)
    """Side inputs of queries or keys, (batch, heads, sequence, width) by name, 0 for padding."""
    are_ranges: bool = False
    """Whether queries and keys are one range each."""
    is_decode_step: bool = False
    """Whether one query meets a range of keys, and every bias is known by offset, so that one row tells all."""
    is_empty: bool = False
    """Whether there are no queries, no keys or no channels."""
    adds_mask_to_capped: bool = False
    """Whether a float mask is added to scores that were capped before."""
    banded: Rotary | None = None
    """The rotary whose rotations differ by band of distance, if there is one."""


def _offset_bounds(query: Positions, key: Positions, span: int | None) -> tuple[int, int] | None:
    """The lowest and the highest offset; beyond the ``span``, where there is one, all are alike and may be left out."""
    if query.start is not None and key.start is not None:
        return key.start - (query.start + query.length - 1), key.start + key.length - 1 - query.start
    whole = query.axes == key.axes == 1 and not (query.ids.is_floating_point() or key.ids.is_floating_point())
    if not whole:
        return None
    ends = _ends(query), _ends(key)
    if ends[0] is not None and ends[1] is not None:
        lowest, highest = ends[1][0] - ends[0][1], ends[1][1] - ends[0][0]
        if highest - lowest < OFFSETS_PER_TOKEN * (query.length + key.length) + 1024:
            return lowest, highest
    return None if span is None else (-span, span)


def _ends(positions: Positions) -> tuple[int, int] | None:
    """The lowest and the highest position, or bounds of them; None where only a device knows them."""
    ids, valid = positions.ids, positions.valid
    if positions.start is not None:
        return positions.start, positions.start + positions.length - 1
    if is_deferred(ids) or not is_plain(ids):
        return None if positions.below is None else (0, positions.below - 1)
    if valid is not None:
        rows = max(len(ids), len(valid))
        ids = ids.expand(rows, -1)[valid.expand(rows, -1)]
    return (int(ids.min()), int(ids.max())) if ids.numel() else (0, 0)


def make_request(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    encoding: Encodings,
    causal: bool,
    positions: PositionsLike,
    key_positions: PositionsLike,
    mask: Tensor | None,
    window: int | None,
    scale: float | None,
    dropout: float,
    chunk: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    features: Mapping[str, Tensor] | None = None,
    offsets: OffsetCache | None = None,
) -> Request:
    """Check and resolve what a caller asked for."""
    query, key, value = require_tensors(query, key, value)
    scale = require_numbers(causal, window, scale, dropout)
    if chunk is not None or softcap is not None or sinks is not None:
        softcap = require_softmax(query, chunk, softcap, sinks)
    of_queries, of_keys = align(positions, key_positions, query.shape[2], key.shape[2], query.device)
    if positions is not None or key_positions is not None:
        require_positions(of_queries, of_keys, query.shape[0])
    if mask is not None:
        require_mask(mask, (*query.shape[:3], key.shape[2]), query.device)
    acting = as_encodings(encoding)
    given: Mapping[str, Tensor] = {}
    if features is not None or any(each.features for each in acting):
        given = require_features(acting, features, query, key.shape[2])
    request = resolve(
        query, key, value, acting, of_queries, of_keys, causal, window, mask, scale, dropout, offsets,
        chunk=chunk, softcap=softcap, sinks=sinks, features=given,
    )  # fmt: skip
    if len(acting) > 1 and scale is None:
        warn_of_scale(acting, query.shape[-1], stacklevel=4, or_else=", or choose with scale=")
    return request


def resolve(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    acting: Sequence[Encoding],
    of_queries: Positions,
    of_keys: Positions,
    causal: bool,
    window: int | None,
    mask: Tensor | None,
    scale: float | None,
    dropout: float,
    offsets: OffsetCache | None,
    *,
    chunk: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    features: Mapping[str, Tensor] | None = None,
) -> Request:
    """Resolve what is known to belong together; only encodings are checked, against queries, keys and values."""
    if mask is not None:
        mask = mask[(None,) * (4 - mask.ndim)]
    given = dict(features or {})
    if chunk is not None:
        require_chunks(of_queries, of_keys)
        seen = keys_of_chunk(of_queries, of_keys, chunk)
        if seen is None:
            of_queries, of_keys = in_chunks(of_queries, of_keys, chunk)
        else:
            key, value, of_keys = key[:, :, seen], value[:, :, seen], of_keys[seen]
            mask = mask[..., seen] if mask is not None and mask.shape[-1] > 1 else mask
            given |= {name: given[name][:, :, seen] for name in features_of(acting, "key")}
    if mask is not None and sinks is None:  # beside a sink, how low a row is tells
        mask = _raised(mask, of_queries, of_keys, causal, window)
    encodings: list[Encoding] = []
    rotations: list[QueryKeyEncoding] = []
    biases: list[BiasEncoding] = []
    products: list[PositionProduct] = []
    contents: list[ScoreEncoding] = []
    cumulated: list[CumulatedScore] = []
    values: list[ValueEncoding] = []
    value_maps: list[ValueMap] = []
    adds, by_offset = False, True
    banded: Rotary | None = None
    spans: list[float] = []
    for each in acting:
        if isinstance(each, InputEncoding):
            continue
        require_fit(each, query, key, value, (of_queries, of_keys))
        if each.causal_only and not causal:
            require_causal(each)
        encodings.append(each)
        if isinstance(each, QueryKeyEncoding):
            if each.by_pair and any(other.by_pair for other in rotations):
                raise ValueError(
                    "encoding must have bands of distance once at most, since each pair is rotated by those of its "
                    "band; got two with bands. Leave one of them out."
                )
            if each.by_pair:
                for positions in (of_queries, of_keys):
                    require_axes(each, positions)
                banded = each if isinstance(each, Rotary) else banded
            rotations.append(each)
        if isinstance(each, BiasEncoding):
            biases.append(each)
            if isinstance(each, PositionProduct):
                products.append(each)
            adds = adds or not isinstance(each, PositionProduct) or each.adds_by_offset
            by_offset = by_offset and isinstance(each, (OffsetBias, PositionProduct)) and each.axes == 1
        if isinstance(each, CumulatedScore):
            cumulated.append(each)
            spans.append(1)  # all keys before a query are alike but for their sums
        elif isinstance(each, ScoreEncoding) and each.acts_on_scores:
            contents.append(each)
            spans.append(math.inf if not isinstance(each, OffsetScore) or each.span is None else each.span)
        if isinstance(each, ValueEncoding) and each.acts_on_values:
            values.append(each)
            spans.append(math.inf if each.span is None else each.span)
        if isinstance(each, ValueMap):
            value_maps.append(each)
    farthest = max(spans, default=math.inf)
    span = None if farthest == math.inf else int(farthest)
    if given:
        given = tempered(of_real_tokens(given, encodings, of_queries, of_keys), encodings, of_queries, query.dtype)
    adds = adds or bool(contents or values)
    ranges = of_queries.start is not None and of_keys.start is not None
    return Request(
        query,
        key,
        value,
        tuple(encodings),
        tuple(rotations),
        tuple(biases),
        tuple(products),
        tuple(contents),
        tuple(cumulated),
        tuple(values),
        of_queries,
        of_keys,
        causal,
        window,
        mask,
        softmax_scale(encodings, query.shape[-1]) if scale is None else scale,
        dropout,
        _offset_bounds(of_queries, of_keys, None if biases else span) if adds else None,
        span,
        adds,
        adds or bool(cumulated),
        offsets,
        softcap,
        None if sinks is None else sinks.to(computing_dtype(query.dtype)),
        tuple(value_maps),
        given,
        ranges,
        ranges and by_offset and query.shape[2] == 1 and mask is None,
        not query.numel() or not value.numel(),
        softcap is not None and mask is not None and mask.dtype != torch.bool,
        banded,
    )


def _raised(mask: Tensor, of_queries: Positions, of_keys: Positions, causal: bool, window: int | None) -> Tensor:
    """Raise rows of a float mask that are low at every key, so that the highest is 0: softmax does not see it, and a
    log-sum-exp near -1e9 would have no room for the number of keys. So do rows that are low at every key that is seen,
    as far as the host knows them."""
    if mask.dtype == torch.bool or not mask.shape[-1]:
        return mask
    highest = mask.detach().amax(-1, keepdim=True)
    mask = mask - torch.where(_is_low(highest), highest, 0)
    if is_deferred(mask) or not is_plain(mask) or not bool(_is_low(mask.detach()).any()):
        return mask
    allowed = visibility(of_queries, of_keys, causal=causal, window=window)
    if allowed is None:
        return mask
    seen = allowed[:, None]
    highest = mask.detach().masked_fill(~seen, -math.inf).amax(-1, keepdim=True)
    low = _is_low(highest)
    return torch.where(low & seen, mask - highest, mask) if bool(low.any()) else mask


def _is_low(mask: Tensor) -> Tensor:
    return (mask < LOW) & mask.isfinite()


def warn_of_scale(encodings: Sequence[Encoding], head_dim: int, *, stacklevel: int, or_else: str = "") -> None:
    """Warn where the softmax scale that one encoding declares makes scores larger than another was made for.

    T5 is the case: it multiplies q . k by 1, and rotary beside it was made for 1 / sqrt(head_dim). Scales below that,
    such as DeBERTa's, make room for the terms that come with them.

    stacklevel: counted from here; the warning is shown at that line.
    or_else: what the caller could do beside making the encoding anew.
    """
    usual = 1 / math.sqrt(head_dim)
    larger = [each for each in encodings if each.softmax_scale is not None and each.softmax_scale > usual * (1 + 1e-6)]
    others = [each for each in encodings if each.softmax_scale is None and each.place in ACTING]
    if not larger or not others or torch.compiler.is_compiling():
        return
    one, other = type(larger[0]).__name__, type(others[0]).__name__
    declared = larger[0].softmax_scale
    assert declared is not None
    warnings.warn(
        f"{one} sets the softmax scale to {declared:g}, and {other} is made for 1 / sqrt(head_dim) = {usual:.4g}: with "
        f"both, q . k is {declared / usual:.3g} times as large as {other} expects. Use {one}(softmax_scale=None) for "
        f"1 / sqrt(head_dim){or_else}.",
        UserWarning,
        stacklevel=stacklevel,
    )


def softmax_scale(encodings: Sequence[Encoding], head_dim: int) -> float:
    """The factor of q . k that encodings ask for: their own, or ``1 / sqrt(head_dim)``, times their factors."""
    declared: list[float] = []
    factor = 1.0
    for each in encodings:
        factor *= each.softmax_factor
        if each.softmax_scale is not None:
            declared.append(each.softmax_scale)
    if len(set(declared)) > 1:
        raise ValueError(f"scale must be given, since these encodings declare different ones; got {declared}.")
    return require_divisor("softmax_scale", factor * (declared[0] if declared else 1 / math.sqrt(head_dim)))
