"""The attention layer: projections, any encoding, and a cache.

layer = situs.Attention(dim=512, num_heads=8, encoding=situs.Rotary(head_dim=64))
out = layer(x)                                            training
cache = layer.make_cache(batch=1, max_length=4096)
out = layer(prompt, cache=cache)                          prefill, at once or in chunks
out = layer(token, cache=cache)                           decoding
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, final

from jaxtyping import Float
from torch import Tensor, nn

from situs.attention.cache import KVCache
from situs.attention.dispatch import Impl, attend_request
from situs.attention.reference import softmax_scale
from situs.attention.request import make_request
from situs.encodings.base import Encoding, Encodings, QueryKeyEncoding, as_encodings, computing_dtype, require_dropout
from situs.encodings.rotation import RotationEncoding
from situs.encodings.score import ScoreEncoding
from situs.positions import Positions, PositionsLike, is_deferred


@final
class Attention(nn.Module):
    """Multi-head attention with any encodings."""

    def __init__(
        self,
        *,
        dim: int,
        num_heads: int,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        encoding: Encodings = None,
        causal: bool = True,
        window: int | None = None,
        qk_norm: bool = False,
        bias: bool = False,
        dropout: float = 0.0,
    ) -> None:
        """
        dim: channels of a token.
        num_heads: query heads.
        num_kv_heads: key heads, each shared by as many query heads; num_heads if left out.
        head_dim: channels of a head; dim / num_heads if left out.
        encoding: an encoding, a list of them, or none.
        causal: hide keys that come later.
        window: how many places a query sees, its own included; all if left out.
        qk_norm: normalise queries and keys by their root mean square first, as many recent models do.
        bias: have biases in the projections.
        dropout: probability of dropping a weight, in training.
        """
        super().__init__()
        self.dim = dim
        self.num_heads = num_heads
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if head_dim is None and dim % num_heads:
            raise ValueError(
                f"dim must be a multiple of num_heads where head_dim is left out, since heads share the channels; got "
                f"{dim} and {num_heads}."
            )
        self.head_dim = dim // num_heads if head_dim is None else head_dim
        if num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_heads must be a multiple of num_kv_heads, since each key head serves as many; got {num_heads} "
                f"and {self.num_kv_heads}."
            )
        require_dropout(dropout)
        self.encodings = nn.ModuleList(_fitting(each, self) for each in as_encodings(encoding))
        self.causal = causal
        self.window = window
        self.dropout = dropout
        width, kv_width = num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        self.query = nn.Linear(dim, width, bias=bias)
        self.key = nn.Linear(dim, kv_width, bias=bias)
        self.value = nn.Linear(dim, kv_width, bias=bias)
        self.out = nn.Linear(width, dim, bias=bias)
        self.query_norm = nn.RMSNorm(self.head_dim) if qk_norm else None
        self.key_norm = nn.RMSNorm(self.head_dim) if qk_norm else None

    def make_cache(self, *, batch: int, max_length: int) -> KVCache:
        """An empty cache of this layer's sizes, dtype and device."""
        like = self.key.weight
        return KVCache(
            batch=batch,
            num_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            max_length=max_length,
            dtype=like.dtype,
            device=like.device,
        )

    def forward(
        self,
        x: Float[Tensor, "batch sequence dim"],
        positions: PositionsLike = None,
        *,
        cache: KVCache | None = None,
        context: Float[Tensor, "batch key dim"] | None = None,
        context_positions: PositionsLike = None,
        mask: Tensor | None = None,
        impl: Impl = "auto",
    ) -> Float[Tensor, "batch sequence dim"]:
        """Attention of the tokens among each other, and to those in ``cache``, which they join; or to ``context``.

        With a cache, positions follow those in it unless told otherwise; of right-padded rows, only real tokens stay.
        """
        if cache is not None and context is not None:
            raise ValueError("cache and context must not both be given, since keys come from one of them; got both.")
        source = x if context is None else context
        query = self._heads(self.query(x), self.num_heads, self.query_norm)
        key = self._heads(self.key(source), self.num_kv_heads, self.key_norm)
        value = self._heads(self.value(source), self.num_kv_heads, None)
        dropout = self.dropout if self.training else 0.0
        own: list[Encoding] = [each for each in self.encodings if isinstance(each, Encoding)]
        if cache is None:
            if context is not None and context_positions is None:
                context_positions = Positions.range(context.shape[1], device=x.device)
            if context is not None and positions is None:
                positions = Positions.range(x.shape[1], device=x.device)
            of_keys = positions if context is None else context_positions
            request = make_request(
                query,
                key,
                value,
                encoding=own,
                causal=self.causal and context is None,
                positions=positions,
                key_positions=of_keys,
                mask=mask,
                window=self.window,
                scale=None,
                dropout=dropout,
            )
        else:
            given = cache.positions_of_next(x.shape[1]) if positions is None else positions
            places = Positions.of(given, x.shape[1], batch=x.shape[0], device=x.device)
            places = _following(places, cache)
            query, key, left, scale = _turned_once(own, query, key, places, cache)
            _require_places(places, left)
            keys, values = cache.append(key, value, places.valid)
            of_keys = cache.positions()
            if any(isinstance(each, RotationEncoding) for each in left):  # keys are turned now, for this length
                of_keys = replace(of_keys, sequence_length=places.sequence_length)
            request = make_request(
                query,
                keys,
                values,
                encoding=left,
                causal=self.causal,
                positions=places,
                key_positions=of_keys,
                mask=mask,
                window=self.window,
                scale=scale,
                dropout=dropout,
                kept=cache.vectors,
            )
        out = attend_request(request, impl)
        return self.out(out.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def _heads(self, x: Tensor, heads: int, norm: nn.Module | None) -> Tensor:
        split: Any = x.view(*x.shape[:2], heads, self.head_dim)
        split = split if norm is None else norm(split)
        moved: Tensor = split.transpose(1, 2)
        return moved


def _turned_once(
    encodings: list[Encoding], query: Tensor, key: Tensor, places: Positions, cache: KVCache
) -> tuple[Tensor, Tensor, list[Encoding], float]:
    """Queries and keys turned before they are cached, the encodings that are left to act, and the scale that makes up
    for those that have acted. Terms by content need keys that are not turned: then nothing is done yet."""
    scale = softmax_scale(encodings, query.shape[-1], None)
    left = encodings
    if not any(isinstance(each, ScoreEncoding) for each in encodings):
        for each in encodings:
            if isinstance(each, RotationEncoding):
                if cache.length and each.by_length:
                    each.require_agreement(places, replace(cache.positions(), sequence_length=cache.sequence_length))
                table = cache.table_of(each, places, computing_dtype(query.dtype))
                query, key = each.both(query, key, places if table is None else table)
            elif isinstance(each, QueryKeyEncoding):
                query, key = each(query, places), each(key, places, role="key")
        left = [each for each in encodings if not isinstance(each, QueryKeyEncoding)]
        if not cache.length:
            cache.turned_by = [each for each in encodings if isinstance(each, QueryKeyEncoding)]
            cache.sequence_length = places.sequence_length
    return query, key, left, scale / math.prod([each.softmax_factor for each in left])


def _following(places: Positions, cache: KVCache) -> Positions:
    """Positions with the slots behind those in the cache; raise where they tell others, or have padding elsewhere than
    on the right."""
    if places.start is not None and cache.lengths is None and places.start == cache.length:
        return places
    valid = places.valid
    if valid is not None and not is_deferred(valid) and bool((valid[:, 1:] & ~valid[:, :-1]).any()):
        raise ValueError(
            f"padding must stand on the right with a cache, since the next token of a row goes where its padding was; "
            f"got {places!r}."
        )
    told, slots = places.slots, cache.slots_of_next(places.length)
    if told is not None and not _agree(told, slots, valid):
        raise ValueError(
            f"positions must follow those in the cache, {cache.length} so far, since a token sees what stands before "
            f"it; got {places!r}. Leave them out, or slice those of the whole sequence: positions[first:last]."
        )
    return replace(places, given_slots=slots, tables={})


def _require_places(places: Positions, left: list[Encoding]) -> None:
    """Raise unless new tokens have the positions that encodings of the scores read off a key's place in the cache."""
    if not left or places.start is not None:
        return
    assert places.given_slots is not None
    if places.axes > 1 or not _agree(places.ids, places.given_slots, places.valid):
        raise ValueError(
            f"positions must count the tokens in the cache, since {type(left[0]).__name__} reads a key's position off "
            f"its place; got {places!r}."
        )


def _agree(given: Tensor, slots: Tensor, valid: Tensor | None) -> bool:
    """Whether real tokens have these slots, as far as can be told without a wait."""
    if is_deferred(given) or is_deferred(slots):
        return True
    same = given == slots
    return bool((same if valid is None else same | ~valid).all())


def _fitting(encoding: Encoding, layer: Attention) -> Encoding:
    """Raise unless an encoding has the layer's sizes, and acts in attention."""
    if encoding.place == "input":
        raise ValueError(
            f"encoding must act in attention, since those of the input act once, before the first layer; got "
            f"{type(encoding).__name__}."
        )
    for name in ("head_dim", "num_heads"):
        size = getattr(encoding, name, None)
        if size is not None and size != getattr(layer, name):
            raise ValueError(
                f"encoding must have {name}={getattr(layer, name)}, as the layer has; got {size} in "
                f"{type(encoding).__name__}."
            )
    return encoding
