"""Rounding: how far off a sound kernel may be, found by what rounding does to the exact answer.

Every number that a kernel may hold in the tensors' dtype is disturbed by a random part of one unit in its last place,
and the oracle's answer moves by as much as a kernel may be off. Biases, terms by content and sums over channels are
disturbed by units of float32, since they are never held in less.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

ROUNDINGS = 8
"""How many times as far off as one rounding of everything makes it, a sound kernel may be in float32."""


class Rounding:
    """Random relative errors of up to a unit in the last place of a dtype."""

    def __init__(self, dtype: torch.dtype, seed: int, upstream: Tensor) -> None:
        self.unit = torch.finfo(dtype).eps / 2
        self.wide_unit = torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).eps / 2
        self.generator = torch.Generator().manual_seed(seed)
        self.upstream, self.pull = upstream, _norms(upstream)
        self.change = torch.zeros((), dtype=torch.float64)
        """How much each score pulls, once backward has come to it."""

    def of(self, x: Tensor) -> Tensor:
        """``x`` with every number off by a random part of its unit."""
        return x * (1 + self.unit * self._draw(x))

    def of_wide(self, x: Tensor) -> Tensor:
        """Numbers that are held in float32 at least."""
        return x * (1 + self.wide_unit * self._draw(x))

    def of_sum(self, total: Tensor, size: Tensor) -> Tensor:
        """A sum that was rounded at every step; ``size`` is that of its parts without their signs."""
        return total + self.wide_unit * size.detach() * self._draw(total)

    def of_equals(self, total: Tensor, weights: Tensor, vectors: Tensor, count: int) -> Tensor:
        """A sum in which equal parts are added to each other ``count`` times: every step may be rounded the same way,
        so that it is off by as many units, and not by their chance sum. ROUNDINGS multiplies them already."""
        return self.of_sum(total, count / ROUNDINGS * weights.detach() @ _norms(vectors))

    def of_term(self, term: Tensor) -> Tensor:
        """What encodings add to the scores; backward, sums over all queries and keys, rounded at every step."""
        if term.requires_grad and term.ndim == 4:
            common = self.wide_unit * self._draw(term[..., :1, :1])
            term.register_hook(lambda gradient: gradient + common * gradient.abs())
        return self.of_wide(term)

    def of_tanh(self, x: Tensor) -> Tensor:
        """``tanh x``; backward, 1 minus the square of what was held, of which little is left where it is near 1."""
        held = self.of_wide(torch.tanh(x.detach()))
        return held + (1 - held.square()) * (x - x.detach())

    def in_float64(self, x: Tensor) -> Tensor:
        """Numbers that are held in float64, whatever the tensors' dtype is."""
        return x * (1 + torch.finfo(torch.float64).eps / 2 * self._draw(x))

    def of_products(self, q: Tensor, k: Tensor, scale: float, inside: Tensor) -> Tensor:
        """``scale q . k``, a sum over channels; backward, sums over keys and over queries, of the pairs ``inside``."""
        q, k = self.of(q), self.of(k)
        long_q, long_k = _norms(q), _norms(k)
        products = self.of_sum(scale * (q @ k.transpose(-2, -1)), abs(scale) * long_q * long_k.transpose(-2, -1))
        if q.requires_grad and k.requires_grad:
            unit = self.wide_unit * abs(scale)
            of_q, of_k = unit * self._draw(q), unit * self._draw(k)
            q.register_hook(lambda gradient: gradient + of_q * ((self.change * inside) @ long_k))
            k.register_hook(lambda gradient: gradient + of_k * ((self.change * inside).transpose(-2, -1) @ long_q))
        return products

    def of_norm(self, x: Tensor, root: Tensor) -> Tensor:
        """``x / root``, the root mean square; backward, a difference of two parts, which cancel in a head of one
        channel."""
        normed = x / root
        if normed.requires_grad:
            pulls, errors = [], self.wide_unit * self._draw(x)
            normed.register_hook(lambda gradient: pulls.append(_norms(gradient) / root.detach()))
            x.register_hook(lambda gradient: gradient + errors * pulls[-1])
        return normed

    def of_gathered(self, scores: Tensor, weights: Tensor, value: Tensor, gather: Callable[..., Tensor]) -> Tensor:
        """``gather(weights, value)``, a sum over keys; backward, one over queries.

        There, weights are ``exp(score - logsumexp)`` anew, off by the digits that both lose where they are large. The
        gradient of a score is ``w_ij (g_i . v_j - g_i . out_i)``, a difference of two sums over channels, the second of
        them alike for all keys of a query and of an output that was rounded.
        """
        value = self.of(value)
        forward = self.of(gather(self.of(weights), value))
        forward = self.of_sum(forward, weights @ _norms(value))
        size = torch.where(weights.detach() > 0, scores.detach().abs(), 0.0)
        largest = size.amax(-1, keepdim=True) if size.shape[-1] else 0.0
        anew = self.wide_unit * (size * self._draw(size) + largest * self._draw(self.pull))
        weights = self.of(weights) * (1 + anew)
        longest = _norms(value).amax(-2, keepdim=True) if value.shape[2] else 0.0
        of_sums = self.wide_unit * self.pull * longest * (self._draw(weights) + self._draw(self.pull))
        of_out = self.unit * _norms(self.upstream * forward) * self._draw(self.pull)
        error, parts = weights.detach() * (of_sums + of_out), self.unit * self._draw(weights) + anew

        def disturb(gradient: Tensor) -> Tensor:
            gradient = gradient * (1 + parts) + error
            self.change = gradient.abs()
            return gradient

        if scores.requires_grad:
            scores.register_hook(disturb)
        if value.requires_grad:
            summed = self.wide_unit * (weights.detach().transpose(-2, -1) @ self.pull) * self._draw(value)
            value.register_hook(lambda gradient: gradient + summed)
        backward = gather(weights, value)
        return backward + (forward - backward).detach()

    def of_vectors(self, vectors: Tensor, weights: Tensor) -> Tensor:
        """Vectors that weights gather; backward, sums over all queries, rounded at every step.

        Shapes: vectors (h or 1, rows, d), weights (b, h, n, rows).
        """
        if not vectors.requires_grad:
            return vectors
        size = (weights.detach().transpose(-2, -1) @ self.pull).sum(0).sum_to_size(*vectors.shape[:2], 1)
        summed, vectors = self.wide_unit * size * self._draw(vectors), vectors.clone()
        vectors.register_hook(lambda gradient: gradient + summed)
        return vectors

    def _draw(self, x: Tensor) -> Tensor:
        return 2 * torch.rand(x.shape, generator=self.generator, dtype=torch.float64) - 1


def _norms(x: Tensor) -> Tensor:
    return x.detach().square().sum(-1, keepdim=True).sqrt()


class Reader:
    """What formulas compute with: parameters, as the float64 numbers that stand for them, and rounding if there is."""

    def __init__(self, find: Callable[[Tensor], Tensor], rounding: Rounding | None = None) -> None:
        self.find, self.rounding = find, rounding

    def __call__(self, parameter: Tensor) -> Tensor:
        return self.find(parameter)

    def gathered(self, vectors: Tensor, weights: Tensor) -> Tensor:
        """Vectors that are to be gathered by these weights."""
        return vectors if self.rounding is None else self.rounding.of_vectors(vectors, weights)

    def summed_of_equals(self, total: Tensor, weights: Tensor, vectors: Tensor, count: int) -> Tensor:
        """A sum of up to ``count`` weighted vectors, of which many are one and the same."""
        return total if self.rounding is None else self.rounding.of_equals(total, weights, vectors, count)

    def in_float64(self, x: Tensor) -> Tensor:
        """Numbers that are held in float64, whatever the tensors' dtype is."""
        return x if self.rounding is None else self.rounding.in_float64(x)

    def rounded(self, x: Tensor) -> Tensor:
        """A number on the way to a bias or term, where it is summed up or cancels."""
        return x if self.rounding is None else self.rounding.of_wide(x)
