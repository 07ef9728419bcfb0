"""The released functions that Situs is measured against, with their own tables, as their models call them.

halves        transformers, models.llama.modeling_llama: LlamaRotaryEmbedding and apply_rotary_pos_emb
interleaved   transformers, models.gptj.modeling_gptj.apply_rotary_pos_emb: the oldest, and of those that multiply
              by cosine and sine none was quicker (Cohere, GLM and Ernie 4.5 were tried)
interleaved   transformers, models.llama4.modeling_llama4.apply_rotary_emb: one complex multiplication in float32
interleaved   rotary-embedding-torch, RotaryEmbedding.rotate_queries_or_keys: keeps angles, not cosines, from
              call to call
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from rotary_embedding_torch import RotaryEmbedding
from torch import Tensor
from transformers.models.gptj import modeling_gptj
from transformers.models.llama import modeling_llama
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llama4 import modeling_llama4

from benchmarks.timing import CLONE, LLAMA4, ROTARY_EMBEDDING_TORCH, SITUS, TORCH_ONLY, TRANSFORMERS, Contender
from situs import Positions, Rotary
from situs.functional.rotation import Pairing

BASE = 10000.0
NAMES = {"halves": "Llama", "interleaved": "GPT-J"}

Both = tuple[Tensor, Tensor]
Turn = Callable[[Tensor, Tensor], Both]

llama_apply: Callable[..., Both] = modeling_llama.apply_rotary_pos_emb


def llama_embedding(head_dim: int) -> Any:
    """The module that makes Llama's tables."""
    rope: Any = {"rope_type": "default", "rope_theta": BASE}
    config = LlamaConfig(hidden_size=head_dim, num_attention_heads=1, head_dim=head_dim, rope_parameters=rope)
    return modeling_llama.LlamaRotaryEmbedding(config)


def gptj_table(ids: Tensor, head_dim: int, dtype: torch.dtype) -> Both:
    """The rows of GPT-J's ``create_sinusoidal_positions`` at these ids, (batch, sequence, pairs): sines, cosines.

    Made for these ids alone, since the function would make all rows up to them; cast as GPT-J's attention does.
    """
    angles = ids[..., None].float() * (1.0 / (BASE ** (torch.arange(0, head_dim, 2) / head_dim)))
    return angles.sin().to(dtype), angles.cos().to(dtype)


def gptj_apply(query: Tensor, key: Tensor, sin: Tensor, cos: Tensor) -> Both:
    """GPT-J turns (batch, sequence, heads, dim); the transpositions are views."""
    turn = modeling_gptj.apply_rotary_pos_emb
    return (
        turn(query.transpose(1, 2), sin, cos).transpose(1, 2),
        turn(key.transpose(1, 2), sin, cos).transpose(1, 2),
    )


def llama4_apply(query: Tensor, key: Tensor, polar: Tensor) -> Both:
    """Llama 4 turns (batch, sequence, heads, dim) too."""
    turned = modeling_llama4.apply_rotary_emb(query.transpose(1, 2), key.transpose(1, 2), polar)
    return turned[0].transpose(1, 2), turned[1].transpose(1, 2)


def llama4_table(ids: Tensor, head_dim: int) -> Tensor:
    """``cos + i sin`` in complex64, (batch, sequence, pairs), by Llama 4's own formula."""
    angles = ids[..., None].float() * llama_embedding(head_dim).inv_freq
    return torch.polar(torch.ones_like(angles), angles)


def rotary_embedding_torch_apply(module: Any, query: Tensor, key: Tensor, offset: int = 0) -> Both:
    """The module's own method, once for queries and once for keys."""
    return module.rotate_queries_or_keys(query, offset=offset), module.rotate_queries_or_keys(key, offset=offset)


def appliers(query: Tensor, key: Tensor, pairing: Pairing, start: int = 0) -> list[Contender]:
    """Everyone who turns these queries and keys, with tables made and loops compiled beforehand."""
    turns = _turns(query.shape[-2], query.shape[-1], query.dtype, pairing, start)
    contenders = []
    for name, turn in turns.items():
        contender = Contender(name, partial(turn, query, key), fused=name != TORCH_ONLY)
        with contender.in_force():
            turn(query[:, :1], key[:, :1])  # one head is enough to fill what is made on first use
        contenders.append(contender)
    return contenders


def _turns(length: int, head_dim: int, dtype: torch.dtype, pairing: Pairing, start: int) -> dict[str, Turn]:
    ids = torch.arange(start, start + length).unsqueeze(0)
    rotary = Rotary(head_dim=head_dim, base=BASE, pairing=pairing)
    table = rotary.table(Positions.range(length, start=start))

    def situs(query: Tensor, key: Tensor) -> Both:
        return rotary.both(query, key, table)

    turns: dict[str, Turn] = {CLONE: lambda query, key: (query.clone(), key.clone()), SITUS: situs, TORCH_ONLY: situs}
    if pairing == "halves":
        llama = llama_embedding(head_dim)(torch.empty(0, dtype=dtype), ids)
        turns[TRANSFORMERS] = lambda query, key: llama_apply(query, key, *llama)
        return turns
    gptj, polar = gptj_table(ids, head_dim, dtype), llama4_table(ids, head_dim)
    turns[TRANSFORMERS] = lambda query, key: gptj_apply(query, key, *gptj)
    turns[LLAMA4] = lambda query, key: llama4_apply(query, key, polar)
    if dtype != torch.float16:
        module = RotaryEmbedding(head_dim, theta=BASE)
        turns[ROTARY_EMBEDDING_TORCH] = lambda query, key: rotary_embedding_torch_apply(module, query, key, start)
    return turns
