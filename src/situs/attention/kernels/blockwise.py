"""Encodings of any kind, asked tile by tile: rules for pairs of positions, terms that count keys, one's own.

Encodings are asked for their part of a tile's scores, and asked again backward, as functions of the tensors that were
handed over: a copy of the module that holds those instead of its own parameters (``with_parameters``). The module
itself is never written to, so that threads may share it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from situs.attention.features import features_of
from situs.attention.kernels.inputs import cumulated, real_tokens, rotated
from situs.attention.kernels.loop import Attended, Term, Vjp, accumulate, attend_tiles, attend_tiles_backward
from situs.attention.kernels.softmax import TWICE, Scratch, serves_flash, sinks_vjp, with_sinks
from situs.attention.kernels.tails import Tail, Tails, split_tails
from situs.attention.kernels.tiling import EVERY, Inputs, Tile, Tiling, tiles_between_ranges
from situs.attention.request import Request
from situs.attention.visibility import visibility, visible_with_mask
from situs.compiled.watching import is_differentiated, is_plain
from situs.encodings.base import Role, autocast_off, computing_dtype
from situs.encodings.score import ScoreEncoding
from situs.functional.heads import share_heads
from situs.positions import Positions, query_slots

FEW_QUERIES = 64  # of a tile, where a term by content passes through many tensors of its size on the way
MANY_QUERIES = 512  # of a tile of few heads, whose term is formed for these alone
KEPT = 1 << 18  # so few scores in all are not formed again
INPUTS = len(Inputs._fields)
LONG = 256  # keys, below which finding far ones costs more than it saves

M = TypeVar("M", bound=nn.Module)


def cannot(request: Request) -> str | None:
    """Why encodings cannot be asked tile by tile; None if they can."""
    if request.dropout:
        return "dropout needs every weight"
    if request.adds_mask_to_capped:
        return "a float mask is added behind the cap, and tiles add it before"
    if not is_plain(request.query):
        return "no graph can ask encodings tile by tile"
    if is_differentiated(requires_grad=False):
        return "torch.func follows every operation"
    for positions in (request.query_positions, request.key_positions):
        if positions.given_ids is not None and positions.given_ids.requires_grad:
            return "positions that require gradients are no part of a tile"
    return None


def run(request: Request) -> Tensor:
    """Every encoding of scores and values asked block by block."""
    of_queries, of_keys, heads = request.query_positions, request.key_positions, request.query.shape[1]

    def shared(tensor: Tensor) -> Tensor:
        return share_heads(real_tokens(tensor, of_keys), heads)

    rotated_query, rotated_key = rotated(request)
    query, key = real_tokens(rotated_query, of_queries), shared(rotated_key)
    plain_query = query if rotated_query is request.query else real_tokens(request.query, of_queries)
    plain_key = key if rotated_key is request.key else shared(request.key)
    met = with_features(request, plain_query, "query"), with_features(request, plain_key, "key")
    inputs = Inputs(query, key, shared(request.value), *met, *cumulated(request))
    asked = (*request.biases, *request.contents, *request.values)
    tensors = [each for encoding in asked for each in parameters_of(encoding)]
    if request.mask is not None and request.mask.is_floating_point():
        tensors.append(request.mask)
    learned = tensors if request.sinks is None else [*tensors, request.sinks]
    watched = torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in (*inputs, *learned))
    out: Tensor = _Blockwise.apply(request, watched, request.sinks, *inputs, *tensors)  # type: ignore[no-untyped-call]
    return real_tokens(out, of_queries)


def with_features(request: Request, tensor: Tensor, role: Role) -> Tensor:
    """Queries or keys, with the features of those encodings that are asked tile by tile as more channels."""
    names = features_of(request.contents, role)
    return torch.cat((tensor, *(request.features[name] for name in names)), -1) if names else tensor


def parameters_of(module: nn.Module) -> list[Tensor]:
    """Every parameter that a module tree holds or borrows, in the order of ``with_parameters``; one that is held twice
    is given twice."""
    own = [each for each in module._parameters.values() if each is not None]
    inside = [*(each for each in module._modules.values() if each is not None), *_borrowed(module)]
    return [*own, *(parameter for each in inside for parameter in parameters_of(each))]


def with_parameters(module: M, tensors: Iterator[Tensor]) -> M:
    """Copy a module tree so that it computes with other tensors than its own parameters."""
    copy = module.__new__(type(module))
    copy.__dict__ = dict(module.__dict__)
    copy._parameters = {
        name: None if each is None else next(tensors)  # type: ignore[misc]
        for name, each in module._parameters.items()
    }
    copy._modules = {
        name: None if each is None else with_parameters(each, tensors) for name, each in module._modules.items()
    }
    lent = {id(each): with_parameters(each, tensors) for each in _borrowed(module)}
    if lent:
        copy.__dict__ = {name: _exchanged(value, lent) for name, value in copy.__dict__.items()}
    return copy


def _exchanged(value: Any, lent: dict[int, nn.Module]) -> Any:
    """A module's attribute with borrowed modules exchanged for their copies, alone or in a list, tuple or dict."""
    if isinstance(value, nn.Module):
        return lent.get(id(value), value)
    if isinstance(value, dict):
        return {name: _exchanged(each, lent) for name, each in value.items()}
    return type(value)([_exchanged(each, lent) for each in value]) if type(value) in (list, tuple) else value


def _borrowed(module: nn.Module) -> tuple[nn.Module, ...]:
    return module.borrowed if isinstance(module, ScoreEncoding) else ()


@contextmanager
def _recording() -> Iterator[None]:
    """Record a graph of one's own: hooks on saved tensors, as checkpoints set them, are meant for the caller's."""
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(_as_it_is, _as_it_is):
        yield


def _as_it_is(tensor: Tensor) -> Tensor:
    return tensor


class AskedTerm(Term, Tails):
    """The sum of what encodings say of a tile, and of the caller's mask."""

    def __init__(self, request: Request, tensors: Sequence[Tensor]) -> None:
        self.request, self.tensors = request, tensors
        self.gathers = bool(request.values)
        self.heads_apart = _has_heads_apart(request)
        if request.contents:
            self.queries = MANY_QUERIES if self.heads_apart else FEW_QUERIES
        self.gradients: list[Tensor | None] = [None] * len(tensors)
        self.traced = False
        self.rules = Tiling((), request.causal, request.window)
        # bare ids of queries take the slots of the last keys, which no slice of them could know
        self.query_positions = request.query_positions
        if self.query_positions.slots is None:
            slots = query_slots(request.query_positions, request.key_positions)
            self.query_positions = replace(request.query_positions, given_slots=slots, tables={})

    @property
    def tails(self) -> Tails | None:
        return self if _has_tails(self.request) else None

    def _encodings(self, tensors: Sequence[Tensor]) -> Iterator[Any]:
        """The encodings, computing with these tensors."""
        held = iter(tensors)
        for each in (*self.request.biases, *self.request.contents, *self.request.values):
            yield with_parameters(each, held)

    def form(self, tile: Tile, q: Tensor, k: Tensor, scratch: Scratch) -> Tensor | None:
        return self._formed(tile, q, k, self.tensors)

    def _formed(self, tile: Tile, q: Tensor, k: Tensor, tensors: Sequence[Tensor]) -> Tensor | None:
        request, wide = self.request, computing_dtype(q.dtype)
        query, key = self._positions(tile)
        allowed = visibility(query, key, causal=request.causal, window=request.window)
        mask = self._mask(tile, tensors)
        visible = visible_with_mask(allowed, mask, key.length)
        term: Tensor | None = None if mask is None or mask.dtype == torch.bool else mask.to(wide)
        encodings = self._encodings(tensors)
        for _ in request.biases:
            term = _sum(term, next(encodings)(query, key, dtype=wide))
        q, k, features = self._features(q, k)
        for each in request.contents:
            own = {"features": features} if each.features else {}
            term = _sum(term, next(encodings)(q, k, query, key, scale=request.scale, visible=visible, **own))
        if visible is not None:
            term = torch.where(visible, q.new_zeros((), dtype=wide) if term is None else term, -math.inf)
        return term

    def _features(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Queries and keys of a tile, and the features that stand behind them."""
        features: dict[str, Tensor] = {}
        roles: tuple[tuple[Role, Tensor, Tensor], ...] = ("query", q, self.request.query), ("key", k, self.request.key)
        for role, tensor, plain in roles:
            first = plain.shape[-1]
            for name, feature in features_of(self.request.contents, role).items():
                features[name] = tensor[..., first : first + feature.width]
                first += feature.width
        return q[..., : self.request.query.shape[-1]], k[..., : self.request.key.shape[-1]], features

    def form_with_vjp(self, tile: Tile, q: Tensor, k: Tensor, scratch: Scratch) -> tuple[Tensor | None, Vjp]:
        leaves = [each.detach().requires_grad_(each.is_floating_point()) for each in (q, k, *self.tensors)]
        with _recording():
            term = self._formed(tile, leaves[0], leaves[1], leaves[2:])
        if term is not None and not self.traced:
            _require_handed_over(term, leaves, self.request)
            self.traced = True

        def vjp(change: Tensor, dq: Tensor, dk: Tensor) -> None:
            if term is not None and term.requires_grad:
                upstream = change.to(term.dtype).sum_to_size(term.shape)
                found = torch.autograd.grad(term, leaves, upstream, allow_unused=True)
                accumulate([dq, dk], found[:2])
                self._add(found[2:])

        return None if term is None else term.detach(), vjp

    def _add(self, found: Sequence[Tensor | None]) -> None:
        for number, each in enumerate(found):
            if each is not None:
                before, wide = self.gradients[number], each.to(computing_dtype(each.dtype))
                self.gradients[number] = wide if before is None else before + wide

    def sees(self, tile: Tile, term: Tensor | None) -> Bool[Tensor, "#batch #heads query"]:
        if term is None:
            return torch.ones((1, 1, tile.queries), dtype=torch.bool, device=self.request.query.device)
        return (term != -math.inf).any(-1)

    def gathered(self, tile: Tile, weights: Tensor) -> Tensor:
        return self._gathered(tile, weights, self.tensors)

    def _gathered(self, tile: Tile, weights: Tensor, tensors: Sequence[Tensor]) -> Tensor:
        encodings = list(self._encodings(tensors))[-len(self.request.values) :]
        parts = [each.gathered(weights, *self._positions(tile)) for each in encodings]
        total: Tensor = sum(parts[1:], parts[0])
        return total

    def gathered_vjp(self, tile: Tile, weights: Tensor, gradient: Tensor) -> Tensor:
        leaves = [each.detach().requires_grad_(each.is_floating_point()) for each in (weights, *self.tensors)]
        with _recording():
            gathered = self._gathered(tile, leaves[0], leaves[1:])
        change, *found = torch.autograd.grad(gathered, leaves, gradient, allow_unused=True)
        self._add(found)
        assert change is not None
        return change

    def split(self, tile: Tile, inputs: Inputs) -> list[Tile]:
        """The first keys, which all queries meet with one vector, are a tail."""
        own = inputs.of(tile)
        visible = None
        if self.rules.hides(tile):
            by_offset = self.rules.visible(tile, own.query.device)
            visible = by_offset.unfold(-1, tile.keys, 1).flip(-2)[None, None]
        (content,) = self.request.contents
        before = content.far_keys(own.plain_query, own.plain_key, scale=self.request.scale, visible=visible)
        return split_tails(tile, before, tile.keys, causal=self.request.causal)

    def tail(self, side: int) -> Tail:
        """The vector of far keys."""
        return self._tail(self.tensors)

    def _tail(self, tensors: Sequence[Tensor]) -> Tail:
        (content,) = self._encodings(tensors)
        dtype = computing_dtype(self.request.query.dtype)
        return Tail(for_query=content.far_vector(scale=self.request.scale, dtype=dtype))

    def tail_vjp(self, side: int, gradient: Tail) -> None:
        leaves = [each.detach().requires_grad_() for each in self.tensors]
        with _recording():
            vector = self._tail(leaves).for_query
        assert vector is not None
        if vector.requires_grad and gradient.for_query is not None:
            self._add(torch.autograd.grad(vector, leaves, gradient.for_query, allow_unused=True))

    def _positions(self, tile: Tile) -> tuple[Positions, Positions]:
        queries = slice(tile.first_query, tile.first_query + tile.queries)
        keys = slice(tile.first_key, tile.first_key + tile.keys)
        return self.query_positions[queries], self.request.key_positions[keys]

    def _mask(self, tile: Tile, tensors: Sequence[Tensor]) -> Tensor | None:
        mask = self.request.mask
        if mask is None:
            return None
        mask = tensors[-1] if mask.is_floating_point() else mask
        if mask.shape[-2] > 1:
            mask = mask[..., tile.first_query : tile.first_query + tile.queries, :]
        return mask[..., tile.first_key : tile.first_key + tile.keys] if mask.shape[-1] > 1 else mask


def _sum(term: Tensor | None, added: Tensor) -> Tensor:
    return added if term is None else term + added


def _has_heads_apart(request: Request) -> bool:
    """Whether terms alone that take some heads by themselves are added."""
    alone = not (request.biases or request.values or request.cumulated) and request.mask is None
    return alone and bool(request.contents) and all(each.heads_apart for each in request.contents)


def _has_tails(request: Request) -> bool:
    """Whether one term alone, between ranges, may have far keys, and these gain something."""
    if any(each.widens for each in request.rotations):
        return False
    if len(request.contents) != 1 or request.biases or request.values or request.mask is not None:
        return False
    if (
        request.window is not None
        or not request.are_ranges
        or request.key_positions.length <= LONG
        or not request.scale
        or request.softcap is not None
        or request.cumulated
        or request.contents[0].features
    ):
        return False
    vector = request.contents[0].far_vector(scale=request.scale, dtype=computing_dtype(request.query.dtype))
    return vector is not None and serves_flash(request.query, request.query, request.value)


def _blocks(request: Request, size: int) -> list[Tile]:
    """Blocks of queries with all keys, unless ranges tell which of them they see."""
    query, key = request.query_positions, request.key_positions
    if query.start is not None and key.start is not None:
        tiles = tiles_between_ranges(query.start, query.length, key.start, key.length)
        return Tiling(tiles, request.causal, request.window).cut(size)
    whole = Tile(EVERY, 0, query.length, 0, key.length, 0, 0)
    return Tiling([whole] if query.length and key.length else []).cut(size)


def _require_handed_over(term: Tensor, leaves: Sequence[Tensor], request: Request) -> None:
    """Raise if a term learns through something that is no parameter of its encodings: its gradient would be lost."""
    known, seen, left = {id(each) for each in leaves}, set(), [term.grad_fn]
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        reached = getattr(node, "variable", None)  # of a node that adds to a leaf's gradient
        if reached is not None and id(reached) not in known:
            names = " or ".join(type(each).__name__ for each in (*request.biases, *request.contents))
            raise ValueError(
                f"encoding must hold all that it learns as its own parameters and submodules, since {names} is asked "
                f"again backward, as a copy with the tensors that were handed over; got a tensor of shape "
                f"{tuple(reached.shape)} that it reaches otherwise. Call submodules as self.name(...), or use "
                f'impl="reference".'
            )
        left += [following for following, _ in node.next_functions]


class _Blockwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, request: Request, watched: bool, sinks: Tensor | None, *given: Any) -> Tensor:
        inputs, tensors = Inputs(*given[:INPUTS]), given[INPUTS:]
        term = AskedTerm(request, tensors)
        keep = (lambda scores: scores <= KEPT) if watched else None
        ctx.random = torch.get_rng_state() if watched else None  # encodings may draw, as dropout in one's own does
        out, logsumexp, tiles, formed = attend_tiles(
            inputs, _blocks(request, term.queries), term, request.scale, request.softcap, keep=keep
        )
        out, logsumexp = with_sinks(out, logsumexp, sinks)
        ctx.save_for_backward(sinks, *given, out, logsumexp)
        ctx.request, ctx.tiles, ctx.formed, ctx.term = request, tiles, formed, term if formed else None
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        found = _BlockwiseBackward.apply(ctx, gradient, *ctx.saved_tensors)  # type: ignore[no-untyped-call]
        return None, None, *found


class _BlockwiseBackward(torch.autograd.Function):
    """The gradients, which cannot be differentiated again."""

    @staticmethod
    def forward(
        ctx: Any, attended: Any, gradient: Tensor, sinks: Tensor | None, *saved: Any
    ) -> tuple[Tensor | None, ...]:
        *given, out, logsumexp = saved
        inputs, tensors = Inputs(*given[:INPUTS]), given[INPUTS:]
        term = AskedTerm(attended.request, tensors) if attended.term is None else attended.term
        term.gradients = [None] * len(tensors)
        before = Attended(out, logsumexp, attended.tiles, attended.formed)
        with autocast_off(gradient.device.type), torch.random.fork_rng(devices=[]):
            torch.set_rng_state(attended.random)
            request = attended.request
            found = attend_tiles_backward(gradient, inputs, before, term, request.scale, request.softcap)
        gradients = zip((*found, *term.gradients), given, strict=True)
        of_sinks = None if sinks is None else sinks_vjp(gradient, out, logsumexp, sinks)
        return of_sinks, *(None if each is None else each.to(source.dtype) for each, source in gradients)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        raise RuntimeError(TWICE)
