"""Pairing: carrying weights between the two ways of pairing a head's channels.

A checkpoint whose heads pair neighbours (GPT-J, original Llama) computes the same attention in the form that
pairs halves, if the rows of its query and key projections are permuted alike. Values, outputs and channels that
are not rotated stay where they are. It is a permutation, so going there and back is bit-exact.
"""

from __future__ import annotations

import torch
from jaxtyping import Int64, Shaped
from torch import Tensor

from situs.arguments import refuse, require_choice, require_count, require_tensor
from situs.functional.rotation import PAIRINGS, Channels, Pairing, require_channels


def pairing_permutation(
    head_dim: int, *, source: Pairing, target: Pairing, rotary_dim: int | None = None, channels: Channels = "leading"
) -> Int64[Tensor, "head_dim"]:
    """Find, for each channel of the target order, the source channel that goes there."""
    head_dim = _require_head(head_dim)
    for name, value in (("source", source), ("target", target)):
        require_choice(name, value, PAIRINGS, "channels are paired one way or the other")
    width = head_dim if rotary_dim is None else require_count("rotary_dim", rotary_dim, "it counts channels")
    if width % 2 or not 0 <= width <= head_dim:
        raise ValueError(
            f"rotary_dim must be even and at most head_dim={head_dim}, since channels are rotated in pairs; got "
            f"{width}."
        )
    require_channels(channels)
    order = torch.arange(head_dim, device="cpu")
    if source != target:
        pairs = (-1, 2) if source == "interleaved" else (2, -1)
        rotated = order[head_dim - width :] if channels == "trailing" else order[:width]
        rotated.copy_(rotated.view(pairs).T.reshape(-1))
    return order


def _require_head(head_dim: int) -> int:
    return require_count("head_dim", head_dim, "it counts the channels of a head", least=1)


def convert_pairing(
    weight: Shaped[Tensor, "..."],
    *,
    head_dim: int,
    source: Pairing,
    target: Pairing,
    rotary_dim: int | None = None,
    channels: Channels = "leading",
    dim: int = 0,
) -> Shaped[Tensor, "..."]:
    """Reorder the channels of ``weight`` along ``dim`` from one pairing to the other.

    Use it on everything that ends in queries or keys: projection weights (out, in) and biases (out,) of any
    number of heads, so grouped-query keys too; LoRA's B (out, rank), while its A stays as it is; and weights of a
    norm on queries and keys (head_dim,). Other tensors are not to be touched. ``channels`` tells where the rotated
    ones stand among those of a head; projections of MLA's shared key alone have ``head_dim=rotary_dim``.
    """
    require_tensor("weight", weight, "its channels are reordered")
    head_dim = _require_head(head_dim)
    dim = require_count("dim", dim, "it is an axis of weight")
    if not -weight.ndim <= dim < weight.ndim:
        axes = f"{dim} for shape {tuple(weight.shape)}"
        refuse(ValueError, "dim", f"lie in {-weight.ndim} .. {weight.ndim - 1}", "it is an axis of weight", axes)
    size = weight.shape[dim]
    if size % head_dim:
        raise ValueError(
            f"weight must have a multiple of head_dim={head_dim} channels along dim {dim}, since heads lie there "
            f"one after "
            f"another; got shape {tuple(weight.shape)}."
        )
    order = pairing_permutation(head_dim, source=source, target=target, rotary_dim=rotary_dim, channels=channels)
    heads = torch.arange(0, size, head_dim, device="cpu").unsqueeze(-1)
    return weight.index_select(dim, (heads + order).flatten().to(weight.device))
