"""Maps of values, which act outside of the kernels: on values before, on what was gathered of them after."""

from __future__ import annotations

from dataclasses import replace

from jaxtyping import Float
from torch import Tensor

from situs.attention.request import Request


def with_mapped_values(request: Request) -> Request:
    """Change values by the positions of their keys."""
    if not request.value_maps:
        return request
    value, of_keys = request.value, request.key_positions
    for each in request.value_maps:
        each.require_agreement(request.query_positions, of_keys)
        if of_keys.valid is not None and next(each.parameters(), None) is not None:
            value = value.masked_fill(~of_keys.valid[:, None, :, None], 0)  # what learns must not learn from padding
        value = each(value, of_keys)
    return replace(request, value=value)


def mapped_output(
    request: Request, out: Float[Tensor, "batch heads query value_dim"]
) -> Float[Tensor, "batch heads query value_dim"]:
    """Change what was gathered by the positions of the queries; of several maps the last is undone first."""
    for each in reversed(request.value_maps):
        if each.maps_output:
            out = each(out, request.query_positions, role="output")
    return out
