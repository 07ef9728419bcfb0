"""Biases as score_mods of FlexAttention, with a block mask: the kernel for CUDA, tested by its CPU compilation."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from situs.attention.kernels.inputs import real_tokens, rotated
from situs.attention.request import Request
from situs.positions import own_slots, query_slots

BLOCK = 128


def cannot(request: Request) -> str | None:
    """Why FlexAttention does not serve; None if it does."""
    if request.is_empty:
        return "there are no queries, no keys or no channels"
    if request.contents or request.values:
        return f"{type((*request.contents, *request.values)[0]).__name__} depends on the content"
    if request.cumulated:
        return f"{type(request.cumulated[0]).__name__} sums up over tokens, which was not tested"
    if request.sinks is not None:
        return "its log-sum-exp, which sinks need, has no gradient that was tested"
    if request.mask is not None or request.dropout:
        return "it takes neither a mask of the caller's own nor dropout"
    return _cpu_cannot(request) if request.query.device.type == "cpu" else None


def _cpu_cannot(request: Request) -> str | None:
    """Why torch's CPU compilation does not serve; None if it does."""
    tensors = [request.query, request.key, request.value]
    learned = [parameter for bias in request.biases for parameter in bias.parameters()]
    if torch.is_grad_enabled() and any(each.requires_grad for each in tensors + learned):
        return "its CPU compilation has no backward"
    if request.query.dtype == torch.float64:
        return "its CPU compilation has no float64"
    if request.query.shape[2] % BLOCK or request.key.shape[2] % BLOCK:  # seen at 40 and 72 tokens with torch 2.13
        return f"its CPU compilation gives wrong numbers at some lengths that are no multiple of {BLOCK}"
    return None


def run(request: Request) -> Tensor:
    """Compiled FlexAttention with every bias's score_mod and a mask of who sees whom."""
    query, key = rotated(request)
    query = real_tokens(query, request.query_positions)
    key, value = (real_tokens(each, request.key_positions) for each in (key, request.value))
    if not torch.is_grad_enabled():
        query, key, value = query.detach(), key.detach(), value.detach()
    softcap = request.softcap
    mods = [bias.score_mod(request.query_positions, request.key_positions) for bias in request.biases]

    def score_mod(score: Tensor, batch: Tensor, head: Tensor, query_index: Tensor, key_index: Tensor) -> Tensor:
        for mod in mods:
            score = mod(score, batch, head, query_index, key_index)
        if softcap is None:
            return score
        return torch.where(score == -torch.inf, score, softcap * torch.tanh(score / softcap))

    out: Tensor = _compiled()(
        query,
        key,
        value,
        score_mod=score_mod if mods or softcap is not None else None,
        block_mask=_block_mask(request),
        scale=request.scale,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return real_tokens(out, request.query_positions)


@cache
def _compiled() -> Callable[..., Any]:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=False)


def _block_mask(request: Request) -> Any:
    from torch.nn.attention.flex_attention import create_block_mask

    query, key = request.query_positions, request.key_positions
    q_slots, k_slots = query_slots(query, key), own_slots(key)
    rules: list[Callable[[Tensor, Tensor, Tensor], Tensor]] = []
    if request.causal:
        rules.append(lambda b, q, k: _at(k_slots, b, k) <= _at(q_slots, b, q))
    if request.window is not None:
        window = request.window
        rules.append(lambda b, q, k: (_at(k_slots, b, k) - _at(q_slots, b, q)).abs() < window)
    if key.valid is not None:
        valid = key.valid
        rules.append(lambda b, q, k: _at(valid, b, k))
    if query.valid is not None:
        real = query.valid
        rules.append(lambda b, q, k: _at(real, b, q))
    if query.documents is not None and key.documents is not None:
        q_documents, k_documents = query.documents, key.documents
        rules.append(lambda b, q, k: _at(q_documents, b, q) == _at(k_documents, b, k))
    if not rules:
        return None

    def mask_mod(batch: Tensor, head: Tensor, query_index: Tensor, key_index: Tensor) -> Tensor:
        seen = rules[0](batch, query_index, key_index)
        for rule in rules[1:]:
            seen = seen & rule(batch, query_index, key_index)
        return seen

    rows = max(query.rows, key.rows)
    device = request.query.device
    return create_block_mask(mask_mod, rows if rows > 1 else None, None, query.length, key.length, device=device)


def _at(tensor: Tensor, batch: Tensor, index: Tensor) -> Tensor:
    return tensor[0, index] if tensor.shape[0] == 1 else tensor[batch, index]
