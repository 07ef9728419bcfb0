"""The loop over tiles: attention with a term that is formed for one tile at a time.

A term is what encodings add to the scaled scores. It is handed to the kernel as its mask; nothing of the size of all
scores exists. A tile is some queries of some heads, small enough to stay in the cache between the product that forms
the term and the kernel that reads it. Backward, each tile's scores are formed again. Memory is O(length x tile).
Keys that are far from a tile's queries may be tails, for which no term is formed.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from situs.attention.kernels.cutting import Sweeps, cut
from situs.attention.kernels.softmax import Scratch, cap_, finite, merge_, partial, softmax
from situs.attention.kernels.tails import Tail, Tails, attend_tail, differences, tail_backward
from situs.attention.kernels.tiling import Inputs, Tile
from situs.compiled import attending
from situs.encodings.base import computing_dtype

QUERIES = 256  # of a tile

Vjp = Callable[[Tensor, Tensor, Tensor], None]
"""Takes the gradient of a term; adds to those of the tile's queries and keys, and of what the term is made from."""


class Term(ABC):
    """What is added to the scaled scores of a tile."""

    heads_apart: bool = True
    """Whether heads can be worked on one after another."""
    queries: int = QUERIES
    """Queries of a tile."""
    gathers: bool = False
    """Whether it adds to the output too."""

    @property
    def tails(self) -> Tails | None:
        """Which far keys need no term, where some do not. Asked for, since a term that held itself would keep a call's
        tensors until garbage is collected."""
        return None

    @property
    def sweeps(self) -> Sweeps | None:
        """What tiles of several blocks share of their keys, where they do."""
        return None

    def is_causal_square(self, tile: Tile) -> bool:
        """Whether a kernel's causal flag hides what is hidden by rule in this tile."""
        return False

    @abstractmethod
    def form(self, tile: Tile, q: Tensor, k: Tensor, scratch: Scratch) -> Tensor | None:
        """Form the term, -inf where a query may not see a key. It may lie in ``scratch``."""

    def form_behind_flag(self, tile: Tile, q: Tensor, k: Tensor, scratch: Scratch) -> Tensor | None:
        """Form the term for a kernel whose causal flag hides all that is hidden in this tile; None where nothing is
        left."""
        return self.form(tile, q, k, scratch)

    @abstractmethod
    def form_with_vjp(self, tile: Tile, q: Tensor, k: Tensor, scratch: Scratch) -> tuple[Tensor | None, Vjp]:
        """Form the term for a backward pass."""

    @abstractmethod
    def sees(self, tile: Tile, term: Tensor | None) -> Bool[Tensor, "#batch #heads query"] | None:
        """Whether each query sees any key of the tile; None where all do."""

    @abstractmethod
    def gathered(self, tile: Tile, weights: Tensor) -> Tensor:
        """What weights gather besides values, where ``gathers``."""

    @abstractmethod
    def gathered_vjp(self, tile: Tile, weights: Tensor, gradient: Tensor) -> Tensor:
        """Take the gradient of what is gathered; give that of the weights."""


class Attended(NamedTuple):
    """What a forward pass leaves for the backward pass."""

    out: Float[Tensor, "batch heads query value_dim"]
    logsumexp: Float[Tensor, "batch heads query"]
    tiles: list[Tile]
    formed: dict[int, tuple[Tensor | None, Vjp]]
    """Terms that were formed with their vjp already, by the number of their tile."""


def tiles_of_term(term: Term, blocks: Sequence[Tile], inputs: Inputs) -> list[Tile]:
    """Cut blocks of queries into the tiles that a term is formed for."""
    split = None if term.tails is None else term.tails.split
    return cut(blocks, inputs, split=split, heads_apart=term.heads_apart, sweeps=term.sweeps is not None)


def attend_tiles(
    inputs: Inputs,
    blocks: Sequence[Tile],
    term: Term,
    scale: float,
    softcap: float | None = None,
    *,
    keep: Callable[[int], bool] | None = None,
) -> Attended:
    """Attend tile by tile. ``softcap`` bounds all scores, and takes no tails. ``keep`` tells, from the number of all
    scores, whether terms are formed with their vjp."""
    query, value = inputs.query, inputs.value
    wide = computing_dtype(query.dtype)
    out = query.new_zeros(*query.shape[:3], value.shape[-1])
    logsumexp = torch.full(query.shape[:3], -math.inf, dtype=wide, device=query.device)
    scratch, tiles = Scratch(wide, query.device), tiles_of_term(term, blocks, inputs)
    tails = _tails_of(term, tiles)
    once = not any(tile.later for tile in tiles)
    formed: dict[int, tuple[Tensor | None, Vjp]] = {}
    scores = sum(tile.of_queries(logsumexp).numel() * tile.keys for tile in tiles)
    keeps = keep is not None and keep(scores)
    for number, tile in _in_turn(term, tiles, inputs, scratch):
        own = inputs.of(tile)
        if tile.tail:
            found = attend_tail(own, tails[tile.tail], scale, wide)
        else:
            asked = tile, own.plain_query, own.plain_key, scratch
            if keeps:
                formed[number] = term.form_with_vjp(*asked)
            flagged = scale > 0 and softcap is None and not (keeps or term.gathers) and term.is_causal_square(tile)
            form = term.form_behind_flag if flagged else term.form
            added = formed[number][0] if keeps else form(*asked)
            weighs = term.gathers or softcap is not None  # weights of one's own tell who sees nothing
            seen = None if once or weighs else term.sees(tile, added)
            added = _with_sums(own, added, scratch)
            if weighs:
                found = _with_weights(term, tile, own, added, scale, softcap)
            else:
                found = partial(*own[:3], added, scale, causal=flagged)
            if seen is not None:
                found = found[0], found[1].masked_fill(~seen, -math.inf)
        if tile.later:
            merge_(tile.of_queries(out), tile.of_queries(logsumexp), *found)
        else:
            tile.of_queries(out).copy_(found[0])
            tile.of_queries(logsumexp).copy_(found[1])
    return Attended(out, finite(logsumexp), tiles, formed)


def attend_tiles_backward(
    gradient: Float[Tensor, "batch heads query value_dim"],
    inputs: Inputs,
    attended: Attended,
    term: Term,
    scale: float,
    softcap: float | None = None,
) -> Inputs:
    """Give the gradients of queries, keys and values; those of what the term is made from go to the term."""
    out, logsumexp, tiles, formed = attended
    wide = logsumexp.dtype
    gradient = gradient.to(wide)
    delta = (gradient * out.to(wide)).sum(-1, keepdim=True)
    totals = Inputs(*(None if source is None else torch.zeros_like(source, dtype=wide) for source in inputs))  # type: ignore[arg-type]
    scratch = Scratch(wide, out.device)
    tails = _tails_of(term, tiles)
    found = {side: [None if each is None else torch.zeros_like(each) for each in tail] for side, tail in tails.items()}
    for number, tile in _in_turn(term, tiles, inputs, scratch, totals):
        own, total, g = inputs.of(tile), totals.of(tile), tile.of_queries(gradient)
        if tile.tail:
            of_out, of_sum = tile.of_queries(out), tile.of_queries(logsumexp)
            of_inputs, of_tail = tail_backward(g, own, tails[tile.tail], of_out, of_sum, scale)
            accumulate(total, of_inputs)
            accumulate(found[tile.tail], of_tail)
            continue
        asked = tile, own.plain_query, own.plain_key, scratch
        added, vjp = formed.pop(number) if number in formed else term.form_with_vjp(*asked)
        added = _with_sums(own, added, scratch)
        work = _Work(tile, own, total, g, tile.of_queries(logsumexp), tile.of_queries(delta), added)
        change = _by_loop(work, scale, scratch) if softcap is None and not term.gathers else None
        if change is None:
            change = _by_products(work, term, scale, softcap, scratch)
        vjp(change, total.plain_query, total.plain_key)
        if total.query_sums is not None and total.key_sums is not None:
            total.query_sums.add_(change.sum(-1))
            total.key_sums.sub_(change.sum(-2))
    if term.tails is not None:
        for side, gradients in found.items():
            term.tails.tail_vjp(side, Tail(*gradients))
    return totals


class _Work(NamedTuple):
    """A tile of a backward pass."""

    tile: Tile
    own: Inputs
    total: Inputs
    """Where its gradients are added."""

    gradient: Float[Tensor, "batch heads query value_dim"]
    logsumexp: Float[Tensor, "batch heads query"]
    delta: Float[Tensor, "batch heads query 1"]
    added: Float[Tensor, "#batch #heads query key"] | None


def _by_loop(work: _Work, scale: float, scratch: Scratch) -> Float[Tensor, "batch heads query key"] | None:
    """Add a tile's gradients by a compiled loop; give that of its term, or None where no loop serves."""
    (query, key, value), total = work.own[:3], work.total
    if not attending.serves(query, key, value):
        return None
    change = scratch.take("change", (*query.shape[:3], key.shape[2])).zero_()
    into = attending.Gradients(total.query, total.key, total.value, attending.Added(change))
    asked = work.gradient, query, key, value, work.logsumexp, work.delta.squeeze(-1), scale, into
    added = None if work.added is None else attending.Added(work.added)
    return change if attending.attend_backward(*asked, added) else None


def _by_products(
    work: _Work, term: Term, scale: float, softcap: float | None, scratch: Scratch
) -> Float[Tensor, "batch heads query key"]:
    """Add a tile's gradients by products of matrices; give that of its term."""
    tile, own, total, gradient, logsumexp, delta, added = work
    q, k, v = (tensor.to(logsumexp.dtype) for tensor in own[:3])
    shape = (*q.shape[:3], k.shape[2])
    weights = torch.matmul(q, k.transpose(-2, -1), out=scratch.take("weights", shape)).mul_(scale)
    if added is not None:
        weights.add_(added)
    slope = None if softcap is None else _capped(weights, softcap, scratch)
    weights.sub_(logsumexp.unsqueeze(-1)).exp_()
    change = torch.matmul(gradient, v.transpose(-2, -1), out=scratch.take("change", shape))
    total.value.add_(weights.transpose(-2, -1) @ gradient)
    if term.gathers:
        change.add_(term.gathered_vjp(tile, weights, gradient))
    change.sub_(delta).mul_(weights)
    if slope is not None:
        change.mul_(slope)
    total.query.add_(change @ k, alpha=scale)
    total.key.add_(change.transpose(-2, -1) @ q, alpha=scale)
    return change


def _in_turn(
    term: Term, tiles: Sequence[Tile], inputs: Inputs, scratch: Scratch, totals: Inputs | None = None
) -> Iterator[tuple[int, Tile]]:
    """Number the tiles, and begin and end their sweeps; backward there are totals."""
    sweeps = term.sweeps
    for of_sweep, group in itertools.groupby(enumerate(tiles), key=lambda each: each[1].sweep):
        own = list(group)
        if sweeps is not None and of_sweep:
            sweeps.begin([tile for _, tile in own], inputs, scratch)
        yield from own
        if sweeps is not None and of_sweep:
            sweeps.end(totals)


def _with_sums(inputs: Inputs, added: Tensor | None, scratch: Scratch) -> Tensor | None:
    """A tile's term with the differences of cumulated numbers."""
    if inputs.query_sums is None:
        return added
    apart = differences(inputs, scratch)
    return apart if added is None else apart.add_(added)


def _tails_of(term: Term, tiles: Sequence[Tile]) -> dict[int, Tail]:
    """The tails of both sides, as far as there are tiles of them."""
    tails = term.tails
    return {} if tails is None else {side: tails.tail(side) for side in {tile.tail for tile in tiles} - {0}}


def _with_weights(
    term: Term, tile: Tile, inputs: Inputs, added: Tensor | None, scale: float, softcap: float | None
) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp where the weights themselves are needed; -inf for a query that sees no key."""
    weights, logsumexp = softmax(inputs.query, inputs.key, added, scale, softcap)
    out = weights @ inputs.value.to(weights.dtype)
    if term.gathers:
        out += term.gathered(tile, weights)
    return out.to(inputs.value.dtype), logsumexp


def _capped(scores: Tensor, softcap: float, scratch: Scratch) -> Tensor:
    """Bound scores in place; give the slope of the bound at each, 1 - tanh^2."""
    slope = torch.div(scores, softcap, out=scratch.take("slope", tuple(scores.shape))).tanh_().square_().neg_().add_(1)
    cap_(scores, softcap)
    return slope


def accumulate(totals: Sequence[Tensor | None], found: Sequence[Tensor | None]) -> None:
    """Add to each total what was found for it."""
    for total, each in zip(totals, found, strict=True):
        if total is not None and each is not None:
            total += each
