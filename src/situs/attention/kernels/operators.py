"""What torch operators of ours share: how gradients are shaped, and how they are mapped and traced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def nothing(like: Tensor) -> Tensor:
    """A tensor of its own for a gradient that is not wanted: an operator may not return one twice."""
    return like.new_empty(0)


def of_key_heads(gradient: Tensor, source: Tensor) -> Tensor:
    """Sum up over the query heads that a key head serves."""
    group = gradient.shape[1] // source.shape[1]
    heads = source.shape[1], group
    return gradient if group == 1 else gradient.view(len(gradient), *heads, *gradient.shape[2:]).sum(2)


def without_padding(tensor: Any, tokens: Tensor | None) -> Any:
    """Put zeros for padding, which tokens tell."""
    return None if tensor is None else tensor.masked_fill(tokens[:, None, 3, :, None] == 0, 0)  # type: ignore[index]


def contiguous(function: Callable[..., tuple[Tensor, ...]]) -> Callable[..., tuple[Tensor, ...]]:
    """In graphs strides are known ahead: results lie as the fake ones do. Torch's kernel has its own order."""

    def laid_out(*args: Any) -> tuple[Tensor, ...]:
        return tuple(each.contiguous() for each in function(*args))

    return laid_out


def for_each(function: Any, count: int, in_dims: Sequence[Any], args: Sequence[Any]) -> tuple[Any, Any]:
    """Call a function for each of a batch that ``torch.func.vmap`` maps over, one after another."""
    found = [
        function.apply(
            *(arg.select(dim, number) if isinstance(dim, int) else arg for arg, dim in zip(args, in_dims, strict=True))
        )
        for number in range(count)
    ]
    stacked = tuple(torch.stack(parts) for parts in zip(*found, strict=True))
    return stacked, (0,) * len(stacked)


def fake_gradients(gradient: Tensor, out: Tensor, logsumexp: Tensor, *args: Any) -> tuple[Tensor, ...]:
    """What a backward pass gives for a graph to know: a tensor like each that its gradient is wanted of, which stand
    first, and an empty one for the others. Which are wanted stands last."""
    wanted: Sequence[bool] = args[-1]
    return tuple(
        torch.empty_like(each, memory_format=torch.contiguous_format)
        if want and each is not None
        else gradient.new_empty(0)
        for each, want in zip(args, wanted, strict=False)
    )
