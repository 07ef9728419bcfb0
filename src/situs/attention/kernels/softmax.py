"""Attention of some queries over some keys, and the log-sum-exp by which such parts are merged.

Two parts over different keys make the whole: their outputs are weighted by the sums that each was divided by. On the
CPU a part is a compiled loop or torch's flash kernel, which add a mask of any strides and so read a bias out of a view;
elsewhere it is written out.

A query that sees no key of a part has the log-sum-exp -inf there, and so no weight when parts are merged. In the end
such a query's output is 0, and its log-sum-exp 0 too, lest backward passes subtract infinities.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from situs.compiled import attending
from situs.encodings.base import computing_dtype

TWICE = (
    "attend() must be differentiated once with this kernel, since its gradients come from a kernel of their own; got a "
    'double backward pass. Use impl="reference".'
)

_FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_FLASH_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


def partial(
    query: Float[Tensor, "batch heads query head_dim"],
    key: Float[Tensor, "batch heads key head_dim"],
    value: Float[Tensor, "batch heads key value_dim"],
    mask: Float[Tensor, "#batch #heads #query key"] | None,
    scale: float,
    *,
    causal: bool = False,
) -> tuple[Float[Tensor, "batch heads query value_dim"], Float[Tensor, "batch heads query"]]:
    """Attend to some keys; give output and log-sum-exp, both 0 for a query that sees none of them. ``causal`` hides the
    keys behind the query's own, counted from the first."""
    if attending.serves(query, key, value):
        added, band = None if mask is None else attending.Added(mask), _band(causal=causal)
        found = attending.attend(query, key, value, scale, added, band)
        if found is not None:
            return found[0], finite(found[1])
    if serves_flash(query, key, value):
        mask = None if mask is None else _for_flash(mask, query, key)
        out, logsumexp = _FLASH(query, key, value, 0.0, causal, attn_mask=mask, scale=scale)
        return out, logsumexp
    if causal:
        later = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device).triu_(1)
        hidden = torch.zeros((), dtype=computing_dtype(query.dtype), device=query.device).where(~later, -math.inf)
        mask = hidden if mask is None else mask + hidden
    weights, logsumexp = softmax(query, key, mask, scale)
    return (weights @ value.to(weights.dtype)).to(value.dtype), finite(logsumexp)


def softmax(
    query: Float[Tensor, "batch heads query head_dim"],
    key: Float[Tensor, "batch heads key head_dim"],
    mask: Float[Tensor, "#batch #heads #query key"] | None,
    scale: float,
    softcap: float | None = None,
) -> tuple[Float[Tensor, "batch heads query key"], Float[Tensor, "batch heads query"]]:
    """Form the weights themselves, and the log-sum-exp; 0 and -inf for a query that sees no key."""
    wide = computing_dtype(query.dtype)
    scores = (query.to(wide) @ key.to(wide).transpose(-2, -1)).mul_(scale)
    if mask is not None:
        scores.add_(mask)
    if softcap is not None:
        cap_(scores, softcap)
    # divided by their sum, since a mask as low as the dtype goes leaves a log-sum-exp no room for the number of keys
    highest = scores.amax(-1, keepdim=True).clamp_(min=torch.finfo(wide).min)
    total = scores.sub_(highest).exp_().sum(-1, keepdim=True)
    logsumexp = (total.log() + highest).squeeze(-1)
    return scores.div_(total.clamp_(min=1)), logsumexp  # 1 or more, or 0 where no key is seen


def cap_(scores: Float[Tensor, "batch heads query key"], softcap: float) -> None:
    """Bound scores in place, ``softcap tanh(score / softcap)``; those of hidden keys stay -inf."""
    hidden = scores == -math.inf
    scores.div_(softcap).tanh_().mul_(softcap).masked_fill_(hidden, -math.inf)


def with_sinks(
    out: Float[Tensor, "batch heads query value_dim"],
    logsumexp: Float[Tensor, "batch heads query"],
    sinks: Float[Tensor, "heads"] | None,
) -> tuple[Float[Tensor, "batch heads query value_dim"], Float[Tensor, "batch heads query"]]:
    """Let each head's sink take part in the softmax, as a key whose value is 0 would: it makes the sum larger that
    weights are divided by, and nothing else."""
    if sinks is None:
        return out, logsumexp
    total = torch.logaddexp(logsumexp, sinks[:, None].to(logsumexp.dtype))
    return (out * (logsumexp - total).exp_().unsqueeze(-1)).to(out.dtype), total


def sinks_vjp(
    gradient: Float[Tensor, "batch heads query value_dim"],
    out: Float[Tensor, "batch heads query value_dim"],
    logsumexp: Float[Tensor, "batch heads query"],
    sinks: Float[Tensor, "heads"],
) -> Float[Tensor, "heads"]:
    """Gradient of the sinks, whose weight meets a value of 0; ``out`` and ``logsumexp`` are those with sinks."""
    wide = logsumexp.dtype
    weights = (sinks[:, None].to(wide) - logsumexp).exp_()
    delta = (gradient.to(wide) * out.to(wide)).sum(-1)
    return weights.mul_(delta).sum((0, 2)).neg_().to(sinks.dtype)


def partial_backward(
    gradient: Float[Tensor, "batch heads query value_dim"],
    query: Float[Tensor, "batch heads query head_dim"],
    key: Float[Tensor, "batch heads key head_dim"],
    value: Float[Tensor, "batch heads key value_dim"],
    mask: Float[Tensor, "#batch #heads #query key"] | None,
    out: Float[Tensor, "batch heads query value_dim"],
    logsumexp: Float[Tensor, "batch heads query"],
    scale: float,
    *,
    causal: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of queries, keys and values; ``out`` and ``logsumexp`` are those over all keys, and what is found is
    the share of these. ``causal`` is for the processor's kernels alone."""
    if attending.serves(query, key, value):
        wide, added = computing_dtype(query.dtype), None if mask is None else attending.Added(mask)
        delta = (gradient.to(wide) * out.to(wide)).sum(-1)
        dq, dk, dv = (torch.zeros_like(each, dtype=wide) for each in (query, key, value))
        asked = gradient, query, key, value, logsumexp, delta, scale
        if attending.attend_backward(*asked, attending.Gradients(dq, dk, dv), added, _band(causal=causal)):
            return dq.to(query.dtype), dk.to(key.dtype), dv.to(value.dtype)
    if serves_flash(query, key, value):
        mask = None if mask is None else _for_flash(mask, query, key)
        dq, dk, dv = _FLASH_BACKWARD(
            gradient, query, key, value, out, logsumexp, 0.0, causal, attn_mask=mask, scale=scale
        )  # fmt: skip
        return dq, dk, dv
    wide = logsumexp.dtype
    q, k, v, g = (each.to(wide) for each in (query, key, value, gradient))
    weights = (q @ k.transpose(-2, -1)).mul_(scale)
    weights = (weights if mask is None else weights.add_(mask)).sub_(logsumexp.unsqueeze(-1)).exp_()
    change = (g @ v.transpose(-2, -1)).sub_((g * out.to(wide)).sum(-1, keepdim=True)).mul_(weights)
    return (change @ k).mul_(scale), (change.transpose(-2, -1) @ q).mul_(scale), weights.transpose(-2, -1) @ g


def _band(*, causal: bool) -> attending.Band:
    return attending.CAUSAL if causal else attending.EVERYTHING


def _for_flash(mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """A mask as the kernel takes it: it reads other shapes and dtypes as they lie."""
    return mask.to(computing_dtype(query.dtype)).expand(*query.shape[:3], key.shape[2])


def serves_flash(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether torch's CPU kernel can take these."""
    return (
        query.device.type == "cpu"
        and query.shape[-1] == value.shape[-1]
        and query.dtype == key.dtype == value.dtype
        and query.stride(-1) == key.stride(-1) == value.stride(-1) == 1
    )


def merge_(
    out: Float[Tensor, "batch heads query value_dim"],
    logsumexp: Float[Tensor, "batch heads query"],
    new_out: Float[Tensor, "batch heads query value_dim"],
    new_logsumexp: Float[Tensor, "batch heads query"],
) -> None:
    """Join the attention over two parts' keys, in the place of the first; a query that saw none of a part has -inf
    there."""
    wide = logsumexp.dtype
    highest = torch.maximum(logsumexp, new_logsumexp).clamp_(min=torch.finfo(wide).min)  # finite in any row
    new_weight = (new_logsumexp - highest).exp_()
    total = (logsumexp - highest).exp_().add_(new_weight)  # 1 to 2, or 0 where neither part was seen
    share = new_weight.div_(total.clamp(min=1)).unsqueeze(-1)
    if out.dtype == new_out.dtype == wide:
        out.lerp_(new_out, share)
    else:
        out.copy_(torch.lerp(out.to(wide), new_out.to(wide), share))
    logsumexp.copy_(highest.add_(total.log_()))


def finite(logsumexp: Tensor) -> Tensor:
    """Put 0 for queries that see nothing."""
    return torch.nan_to_num(logsumexp, nan=math.nan, posinf=math.inf, neginf=0.0)


def sees_any(bias: Float[Tensor, "*rows offsets"], keys: int) -> Bool[Tensor, "*rows queries"]:
    """Whether each query of a tile sees one of its keys, from the tile's bias over offsets, ascending.

    Query i has the ``keys`` offsets that begin with number ``queries - 1 - i``. Counts of those that are not -inf, up
    to each offset, tell it without looking at pairs.
    """
    if bias.shape[-1] == keys:  # one query
        return (bias != -math.inf).any(-1, keepdim=True)
    counts = torch.nn.functional.pad((bias != -math.inf).cumsum(-1), (1, 0))
    return (counts[..., keys:] > counts[..., : counts.shape[-1] - keys]).flip(-1)


class Scratch:
    """Named pieces of memory for the scores of a tile, used again for the next: fresh pages cost more than sums."""

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self.dtype, self.device = dtype, device
        self.held: dict[str, Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Give a tensor of that shape, whatever is in it; what was taken under that name before is lost."""
        size = math.prod(shape)
        if name not in self.held or len(self.held[name]) < size:
            self.held[name] = torch.empty(size, dtype=self.dtype, device=self.device)
        return self.held[name][:size].view(shape)
