"""Terms of encodings that know positions by the offset alone.

    term[i, j] = n[o] + scale (q_i . A[o] + k_j . B[o]) + mask[i, j],    o = position of key j - position of query i

Vectors of all offsets are made once. Where positions are neighbours (``SkewedTerm``) a tile reads its window of them,
and a product of its queries with that window becomes the term by being read along a slant; the bias n, which holds
-inf where a query may not see a key, is what the product begins from, and so costs nothing. For other positions
(``LookedUpTerm``) each pair looks its offset up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from situs.attention.kernels.cutting import Sweeps
from situs.attention.kernels.loop import Term, Vjp
from situs.attention.kernels.softmax import Scratch, sees_any
from situs.attention.kernels.tails import Tail, Tails, split_tails
from situs.attention.kernels.tiling import Inputs, Tile, Tiling, offsets_of
from situs.attention.kernels.toeplitz.of_keys import ProductsOfKeys, nearest
from situs.attention.kernels.toeplitz.products import (
    add_products,
    add_rows,
    add_to,
    multiply,
    multiply_and_add,
    times,
    together_,
)
from situs.encodings.base import computing_dtype
from situs.functional.offsets import skew, sum_by_row, toeplitz, unskew

TAIL = 64  # keys at least, below which a kernel call of their own costs more than forming their terms
PAIRS = 1 << 20  # numbers that are looked up at once


class ByOffset(NamedTuple):
    """What encodings add for each offset, from ``lowest`` on; and a mask of the caller's own."""

    bias: Float[Tensor, "heads_or_1 offsets"]
    for_query: Float[Tensor, "heads_or_1 offsets plain_dim"] | None = None
    for_key: Float[Tensor, "heads_or_1 offsets plain_dim"] | None = None
    for_value: Float[Tensor, "heads_or_1 offsets value_dim"] | None = None
    mask: Shaped[Tensor, "#batch #heads #query #key"] | None = None


class Gradients(NamedTuple):
    """Sums of the gradients of all that is added, as far as they are wanted."""

    bias: Tensor | None
    for_query: Tensor | None
    for_key: Tensor | None
    for_value: Tensor | None
    mask: Tensor | None


class OffsetTerm(Term):
    """What both terms share: the tensors, their gradients, and the mask."""

    def __init__(self, added: ByOffset, lowest: int, scale: float) -> None:
        self.added, self.lowest, self.scale = added, lowest, scale
        self.gathers = added.for_value is not None
        self.gradients = Gradients(None, None, None, None, None)

    def want(self, wanted: Sequence[bool]) -> None:
        """Begin to sum up the gradients of those of the five tensors that they are wanted of."""
        self.gradients = Gradients(
            *(
                torch.zeros_like(each, dtype=computing_dtype(each.dtype), memory_format=torch.contiguous_format)
                if want and each is not None
                else None
                for each, want in zip(self.added, wanted, strict=True)
            )
        )

    def _with_mask(self, tile: Tile, term: Tensor) -> Tensor:
        mask = _of_tile(self.added.mask, tile)
        if mask is None:
            return term
        return torch.where(mask, term, -math.inf) if mask.dtype == torch.bool else term + mask.to(term.dtype)

    def _mask_vjp(self, tile: Tile, change: Tensor) -> None:
        total = _of_tile(self.gradients.mask, tile)
        if total is not None:
            total += change.sum_to_size(total.shape)


class SkewedTerm(OffsetTerm, Tails, Sweeps):
    """A term between neighbouring positions."""

    def __init__(
        self,
        added: ByOffset,
        lowest: int,
        scale: float,
        tiling: Tiling,
        span: int | None,
        *,
        tailed: bool,
        unbiased: bool = False,
    ) -> None:
        """
        span: the distance from which on all vectors are alike; None where they never are.
        tailed: whether keys beyond the span are tails.
        unbiased: the bias is 0 everywhere, and only hides.
        """
        super().__init__(added, lowest, scale)
        self.tiling, self.span, self.tailed, self.unbiased = tiling, span, tailed, unbiased
        self._bias_of = tiling.masked(added.bias, lowest)
        self._sweep: tuple[Sequence[Tile], Inputs, Scratch] | None = None
        self._of_sweep: ProductsOfKeys | None = None

    @property
    def tails(self) -> Tails | None:
        return self if self.tailed and self.span is not None else None

    @property
    def sweeps(self) -> Sweeps | None:
        return None if self.added.for_key is None else self

    @cached_property
    def _descending(self) -> Tensor:
        assert self.added.for_key is not None
        return self.added.for_key.flip(1)

    def begin(self, sweep: Sequence[Tile], inputs: Inputs, scratch: Scratch) -> None:
        self._sweep = sweep, inputs, scratch

    def end(self, totals: Inputs | None) -> None:
        if totals is not None and self._of_sweep is not None:
            self._of_sweep.end(totals.plain_key, self.gradients.for_key, self.scale)
        self._sweep = self._of_sweep = None

    @property
    def _of_keys(self) -> ProductsOfKeys:
        """The products of the sweep's keys, begun where they are wanted first: a step of decoding does without."""
        if self._of_sweep is None:
            assert self._sweep is not None
            highest = self.lowest + self._descending.shape[1] - 1
            self._of_sweep = ProductsOfKeys(self._descending, highest, self.span, *self._sweep)
        return self._of_sweep

    def is_causal_square(self, tile: Tile) -> bool:
        return self.tiling.is_causal_square(tile)

    def split(self, tile: Tile, inputs: Inputs) -> list[Tile]:
        """Keys before and behind the span are tails, where all queries of the tile see them."""
        assert self.span is not None
        before = 1 - self.span - tile.offset
        behind = self.span - tile.offset + tile.queries - 1
        return split_tails(tile, before, behind, causal=self.tiling.causal, least=TAIL)

    @property
    def _only_hides(self) -> bool:
        """Whether nothing is added but cumulated numbers."""
        _, of_queries, of_keys, of_values, mask = self.added
        return self.unbiased and of_queries is of_keys is of_values is mask is None

    def tail(self, side: int) -> Tail:
        """The vectors of the farthest offset on that side, which are those of all in the tail."""
        bias, of_queries, of_keys, of_values, _ = self.added
        end = self._end(side)
        return Tail(
            None if of_queries is None else of_queries[:, end],
            None if of_keys is None else of_keys[:, end],
            bias[:, end],
            None if of_values is None else of_values[:, end],
        )

    def tail_vjp(self, side: int, gradient: Tail) -> None:
        """Add to the gradients of the farthest offset."""
        end, (bias, of_queries, of_keys, of_values, _) = self._end(side), self.gradients
        for total, found in zip((of_queries, of_keys, bias, of_values), gradient, strict=True):
            if total is not None and found is not None:
                total[:, end] += found

    def _end(self, side: int) -> int:
        return 0 if side < 0 else self.added.bias.shape[-1] - 1

    def form(self, tile: Tile, q: Tensor, k: Tensor, scratch: Scratch) -> Tensor:
        shape, dtype = (*q.shape[:3], tile.keys), scratch.dtype
        bias = tile.of_heads(self._bias_of(tile))
        vectors, of_keys = (self._window(each, tile) for each in (self.added.for_query, self.added.for_key))
        if vectors is not None:
            products = scratch.take("products", (*q.shape[:3], bias.shape[-1]))
            near = self._near(tile)
            if self.unbiased and vectors.shape[0] == 1:
                multiply(q.to(dtype), vectors[0], self.scale, products, self.tiling.seen_offsets(tile), near)
            else:
                multiply_and_add(bias, q.to(dtype), vectors, self.scale, products, near)
            term = skew(products, tile.keys)
        else:
            term = toeplitz(bias, tile.keys).expand(shape)
            term = term if of_keys is None else term.clone()
        if of_keys is not None and tile.queries == 1:  # every key has one offset
            term.add_((k.to(dtype) * of_keys).sum(-1).unsqueeze(-2), alpha=self.scale)
        elif of_keys is not None:
            self._of_keys.add(tile, term, self.scale)
        return self._with_mask(tile, term)

    def form_behind_flag(self, tile: Tile, q: Tensor, k: Tensor, scratch: Scratch) -> Tensor | None:
        return None if self._only_hides else self.form(tile, q, k, scratch)

    def form_with_vjp(self, tile: Tile, q: Tensor, k: Tensor, scratch: Scratch) -> tuple[Tensor, Vjp]:
        window, gradients = offsets_of(tile, self.lowest), self.gradients

        def vjp(change: Tensor, dq: Tensor, dk: Tensor) -> None:
            self._mask_vjp(tile, change)
            by_offset = scratch.take("products", (*change.shape[:3], window.stop - window.start)).zero_()
            skew(by_offset, tile.keys).copy_(change)
            add_to(gradients.bias, tile, by_offset.sum(-2), window)
            if self.added.for_query is not None:
                near = self._near(tile)
                own = slice(window.start + near.start, window.start + near.stop)
                by_offset = together_(by_offset, near)
                dq.add_(times(by_offset, tile.of_heads(self.added.for_query)[:, own]), alpha=self.scale)
                add_products(gradients.for_query, tile, by_offset, q.to(scratch.dtype), self.scale, own)
            of_keys = self._window(self.added.for_key, tile)
            if of_keys is not None and tile.queries == 1:
                by_key = change.transpose(-2, -1) * self.scale
                dk.add_(by_key * of_keys)
                add_to(gradients.for_key, tile, by_key * k.to(scratch.dtype), window)
            elif of_keys is not None:
                self._of_keys.take(tile, change, dk, gradients.for_key, self.scale)

        return self.form(tile, q, k, scratch), vjp

    def sees(self, tile: Tile, term: Tensor | None) -> Bool[Tensor, "#batch #heads query"] | None:
        rules = self.tiling
        if self.unbiased and self.added.mask is None and rules.window is None and tile.slot_offset <= 0:
            return None  # the first query sees the first key, and later ones no fewer
        if self.added.mask is not None:
            assert term is not None
            return (term != -math.inf).any(-1)
        return sees_any(tile.of_heads(self._bias_of(tile)), tile.keys).unsqueeze(0)

    def gathered(self, tile: Tile, weights: Tensor) -> Tensor:
        vectors = self._window(self.added.for_value, tile)
        assert vectors is not None
        return times(unskew(weights), vectors)

    def gathered_vjp(self, tile: Tile, weights: Tensor, gradient: Tensor) -> Tensor:
        vectors = self._window(self.added.for_value, tile)
        assert vectors is not None
        window = offsets_of(tile, self.lowest)
        add_products(self.gradients.for_value, tile, unskew(weights), gradient, 1.0, window)
        return skew(times(gradient, vectors.transpose(-2, -1)), tile.keys)

    def _near(self, tile: Tile) -> slice:
        """Which of the tile's offsets, ascending, have vectors of their own, and stand for those before and behind."""
        first, last = tile.offset - (tile.queries - 1), tile.offset + tile.keys - 1
        low, high = nearest(first, last, self.span)
        return slice(low - first, high - first + 1)

    def _window(self, vectors: Tensor | None, tile: Tile) -> Tensor | None:
        return None if vectors is None else tile.of_heads(vectors)[:, offsets_of(tile, self.lowest)]


class LookedUpTerm(OffsetTerm):
    """A term between whole positions of any kind: each pair looks its offset up."""

    def __init__(
        self,
        added: ByOffset,
        lowest: int,
        scale: float,
        tokens: tuple[Int[Tensor, "query_rows 4 query"], Int[Tensor, "key_rows 4 key"]],
        tiling: Tiling,
    ) -> None:
        super().__init__(added, lowest, scale)
        self.tokens, self.tiling = tokens, tiling

    def form(self, tile: Tile, q: Tensor, k: Tensor, scratch: Scratch) -> Tensor:
        bias, of_queries, of_keys, *_ = self.added
        rows, dtype = self._rows(tile), scratch.dtype
        looked_up = tile.of_heads(bias)[:, rows[:, 0]].transpose(0, 1)
        term = looked_up.expand(*q.shape[:3], tile.keys).to(dtype).clone()
        if of_queries is not None:
            products = times(q.to(dtype), tile.of_heads(of_queries).transpose(-2, -1))
            term.add_(products.gather(-1, rows.expand(*term.shape)), alpha=self.scale)
        if of_keys is not None:
            for keys, near in self._pairs(tile.of_heads(of_keys), rows, len(q)):
                products = torch.einsum(
                    "bhkd,hbqkd->bhqk", k[:, :, keys].to(dtype), near.expand(q.shape[1], *near.shape[1:])
                )
                term[..., keys].add_(products, alpha=self.scale)
        return self._with_mask(tile, term.masked_fill_(~self._visible(tile), -math.inf))

    def form_with_vjp(self, tile: Tile, q: Tensor, k: Tensor, scratch: Scratch) -> tuple[Tensor, Vjp]:
        rows = self._rows(tile)

        def vjp(change: Tensor, dq: Tensor, dk: Tensor) -> None:
            self._mask_vjp(tile, change)
            _, of_queries, of_keys, *_ = self.added
            add_rows(self.gradients.bias, tile, change, rows.expand(*change.shape))
            if of_queries is not None:
                vectors = tile.of_heads(of_queries)
                by_offset = sum_by_row(change, rows, vectors.shape[1])
                dq.add_(times(by_offset, vectors), alpha=self.scale)
                everything = slice(0, vectors.shape[1])
                add_products(self.gradients.for_query, tile, by_offset, q.to(scratch.dtype), self.scale, everything)
            if of_keys is not None:
                total = self.gradients.for_key
                for keys, near in self._pairs(tile.of_heads(of_keys), rows, len(q)):
                    part, own = change[..., keys], k[:, :, keys].to(scratch.dtype)
                    near = near.expand(q.shape[1], *near.shape[1:])
                    dk[:, :, keys].add_(torch.einsum("bhqk,hbqkd->bhkd", part, near), alpha=self.scale)
                    if total is not None:
                        # (heads, batch, query, key, dim), summed up by offset
                        found = torch.einsum("bhqk,bhkd->hbqkd", part, own).flatten(1, 3).mul_(self.scale)
                        into = tile.of_heads(total)
                        found = found.sum_to_size(into.shape[0], *found.shape[1:])
                        index = rows[..., keys].expand(len(q), -1, -1, -1).flatten()
                        into.index_add_(1, index, found)

        return self.form(tile, q, k, scratch), vjp

    def sees(self, tile: Tile, term: Tensor | None) -> Bool[Tensor, "#batch #heads query"]:
        assert term is not None
        return (term != -math.inf).any(-1)

    def gathered(self, tile: Tile, weights: Tensor) -> Tensor:
        vectors = self.added.for_value
        assert vectors is not None
        return times(self._by_offset(tile, weights), tile.of_heads(vectors))

    def gathered_vjp(self, tile: Tile, weights: Tensor, gradient: Tensor) -> Tensor:
        assert self.added.for_value is not None
        vectors = tile.of_heads(self.added.for_value)
        by_offset, everything = self._by_offset(tile, weights), slice(0, vectors.shape[1])
        add_products(self.gradients.for_value, tile, by_offset, gradient, 1.0, everything)
        products = times(gradient, vectors.transpose(-2, -1))
        return products.gather(-1, self._rows(tile).expand(*weights.shape))

    def _by_offset(self, tile: Tile, weights: Tensor) -> Tensor:
        assert self.added.for_value is not None
        return sum_by_row(weights, self._rows(tile), self.added.for_value.shape[1])

    def _of_tile(self, tile: Tile) -> tuple[Tensor, Tensor]:
        """What is known of a tile's queries, (rows, 4, query, 1), and of its keys, (rows, 4, 1, key)."""
        of_queries, of_keys = self.tokens
        queries = slice(tile.first_query, tile.first_query + tile.queries)
        keys = slice(tile.first_key, tile.first_key + tile.keys)
        return of_queries[:, :, queries, None], of_keys[:, :, None, keys]

    def _rows(self, tile: Tile) -> Int[Tensor, "rows 1 query key"]:
        """The row of each pair's offset among those of the vectors; padding, which nobody sees, may lie anywhere."""
        of_queries, of_keys = self._of_tile(tile)
        return (of_keys[:, :1] - of_queries[:, :1] - self.lowest).clamp(0, self.added.bias.shape[-1] - 1)

    def _visible(self, tile: Tile) -> Bool[Tensor, "rows 1 query key"]:
        of_queries, of_keys = self._of_tile(tile)
        (_, slot, document, valid), (_, key_slot, key_document, key_valid) = of_queries.unbind(1), of_keys.unbind(1)
        seen = (document == key_document) & (valid != 0) & (key_valid != 0)
        if self.tiling.causal:
            seen = seen & (key_slot <= slot)
        if self.tiling.window is not None:
            seen = seen & ((key_slot - slot).abs() < self.tiling.window)
        return seen.unsqueeze(1)

    def _pairs(self, vectors: Tensor, rows: Tensor, batch: int) -> list[tuple[slice, Tensor]]:
        """The vector of every pair, (heads_or_1, batch, query, key, dim), for some keys at a time."""
        rows = rows[:, 0].expand(batch, -1, -1)
        size = max(1, PAIRS // max(1, vectors.shape[0] * batch * rows.shape[1] * vectors.shape[-1]))
        parts = [slice(first, min(first + size, rows.shape[-1])) for first in range(0, rows.shape[-1], size)]
        return [(keys, vectors[:, rows[..., keys]]) for keys in parts]


def _of_tile(mask: Tensor | None, tile: Tile) -> Tensor | None:
    """A tile's part of a mask, whose axes may have size 1."""
    if mask is None:
        return None
    queries = slice(tile.first_query, tile.first_query + tile.queries)
    keys = slice(tile.first_key, tile.first_key + tile.keys)
    parts = (tile.rows, tile.heads, queries, keys)
    return mask[tuple(part if size > 1 else slice(None) for part, size in zip(parts, mask.shape, strict=True))]
