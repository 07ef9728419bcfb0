"""What the operator ``situs::attend_by_offset`` takes, and gradients in the shapes of that."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from situs.attention.kernels.operators import of_key_heads


class Given(NamedTuple):
    """The tensors that the operator takes."""

    query: Tensor
    key: Tensor
    value: Tensor
    plain_query: Tensor | None
    """Queries before any rotation, which content terms meet; None where they are the same."""
    plain_key: Tensor | None
    bias: Tensor | None
    """None where nothing is added to the scores."""
    for_query: Tensor | None
    for_key: Tensor | None
    for_value: Tensor | None
    mask: Tensor | None
    query_sums: Tensor | None
    """What tokens add up to, (batch, heads, sequence) in float64: scores get the query's less the key's."""
    key_sums: Tensor | None
    sinks: Tensor | None
    """A logit per head that takes part in the softmax."""
    query_tokens: Tensor | None
    """(rows, 4, sequence); None where queries and keys are ranges."""
    key_tokens: Tensor | None


class Settings(NamedTuple):
    """The plain numbers that the operator takes."""

    query_start: int
    """The first position, where queries and keys are ranges."""
    key_start: int
    lowest: int
    """The offset that the first entry of ``bias`` and of all vectors belongs to."""
    span: int | None
    """The distance from which on all vectors are alike; None where they never are."""
    scale: float
    causal: bool
    window: int | None
    softcap: float | None


def over_offsets(given: Given) -> Tensor | None:
    """A tensor whose second axis are the offsets that all such tensors have; None where there is none."""
    tensors = given.bias, given.for_query, given.for_key, given.for_value
    return next((each for each in tensors if each is not None), None)


def as_given(gradient: Tensor, source: Tensor) -> Tensor:
    """A gradient with the shape and dtype of the tensor it belongs to."""
    if gradient.ndim == 4 and source.shape[1] > 1:
        gradient = of_key_heads(gradient, source)
    return gradient.sum_to_size(source.shape).to(source.dtype)
