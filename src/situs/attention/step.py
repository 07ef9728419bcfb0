"""A step of decoding: one query, and a range of keys. All that positions add is one row, handed over as a mask."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from situs.attention.request import Request


def is_step(request: Request) -> bool:
    """Whether a single query meets a range of keys, as in decoding."""
    if request.query.shape[2] != 1 or request.mask is not None or request.dropout:
        return False
    return request.query_positions.start is not None and request.key_positions.start is not None


def run_step(request: Request) -> Tensor:
    """The query's row of biases over offsets and of products of places, in its own order."""
    task = request.task
    query, key = request.turned()
    row = task.masked(request.numbers(task.lowest, task.highest))(task.segments[0])[None, :, None]
    for each in request.products:
        own = each.of_query(request.query_positions, request.scale, row.dtype)
        row = row + request.scale * (own @ request.of_key_places(each).transpose(-2, -1))
    mask = row.to(query.dtype).expand(len(query), query.shape[1], -1, -1)
    key, value = request.shared(key), request.shared(request.value)
    return scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=request.scale)
