"""Context parallel: each rank holds a shard of the sequence, and every encoding gives what one process gives.

Keys and values are gathered from all ranks, and lie one rank's after another's; their positions are told in that order
(``Positions.gathered``), and since positions are data, nothing else has to know. Zigzag shards balance causal work:
each rank has an early and a late piece.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from situs.arguments import require_choice, require_instance
from situs.attention.attend import attend
from situs.attention.features import features_of, require_features
from situs.attention.fitting import require_numbers, require_softmax, require_tensors
from situs.encodings.base import Encodings, as_encodings
from situs.encodings.fitting import require_positions
from situs.positions import Positions
from situs.positions.positions import Layout


def attend_sharded(
    query: Float[Tensor, "batch heads shard head_dim"],
    key: Float[Tensor, "batch kv_heads shard head_dim"],
    value: Float[Tensor, "batch kv_heads shard value_dim"],
    *,
    positions: Positions | None = None,
    layout: Layout = "contiguous",
    group: dist.ProcessGroup | None = None,
    encoding: Encodings = None,
    causal: bool = False,
    window: int | None = None,
    chunk: int | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Float[Tensor, "heads"] | None = None,
    features: Mapping[str, Float[Tensor, "batch heads shard width"]] | None = None,
) -> Float[Tensor, "batch heads shard value_dim"]:
    """This rank's rows of attention over the whole sequence, of which it was handed its shard.

    ``positions`` are those of the whole sequence, a range from 0 if left out, the same on every rank; ``features``
    those of this rank's tokens. Gradients flow to keys, values and features of all ranks. Parameters of the encoding
    get the gradient of this rank's rows: add them up over ranks, as for any parameter.
    """
    query, key, value = require_tensors(query, key, value)
    scale = require_numbers(causal, window, scale, 0.0)
    require_softmax(query, chunk, softcap, sinks)
    require_choice("layout", layout, ("contiguous", "zigzag"), "ranks hold one piece each or two")
    if positions is not None:
        require_positions(positions, "it tells where the tokens of the whole sequence stand")
    if group is not None:
        require_instance("group", group, dist.ProcessGroup, "its ranks hold the shards", "a process group")
    acting = as_encodings(encoding)
    given = require_features(acting, features, query, key.shape[2])
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    if positions is None:
        positions = Positions.range(query.shape[2] * world_size, device=query.device)
    if positions.length != key.shape[2] * world_size:
        raise ValueError(
            f"positions must be those of the whole sequence of {key.shape[2] * world_size}, since {world_size} ranks "
            f"hold {key.shape[2]} each; got {positions!r}."
        )
    keys, values = (_gathered(tensor, group) for tensor in (key, value))
    given |= {name: _gathered(given[name], group) for name in features_of(acting, "key")}
    return attend(
        query,
        keys,
        values,
        encoding=encoding,
        causal=causal,
        positions=positions.shard(rank, world_size, layout=layout),
        key_positions=positions.gathered(world_size, layout=layout),
        window=window,
        chunk=chunk,
        scale=scale,
        softcap=softcap,
        sinks=sinks,
        features=given,
    )


def _gathered(tensor: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    gathered: Tensor = _Gather.apply(tensor, group)  # type: ignore[no-untyped-call]
    return gathered


class _Gather(torch.autograd.Function):
    """All ranks' sequences, one after another; backward, the sum of what all ranks made of one's own."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: dist.ProcessGroup | None) -> Tensor:
        ctx.group, ctx.length = group, tensor.shape[2]
        parts = [
            torch.empty_like(tensor, memory_format=torch.contiguous_format) for _ in range(dist.get_world_size(group))
        ]
        dist.all_gather(parts, tensor.contiguous(), group=group)
        return torch.cat(parts, 2)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        total = gradient.contiguous()
        dist.all_reduce(total, group=ctx.group)  # every backend has it
        first = dist.get_rank(ctx.group) * ctx.length
        return total[:, :, first : first + ctx.length].contiguous(), None
