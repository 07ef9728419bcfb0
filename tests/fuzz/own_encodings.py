"""Encodings such as a user writes, one for each place where one may act, all with something to learn."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn

import situs


class Blocked(situs.OffsetBias):
    """Hide some offsets by -inf, and lower the others: -s_h |o| / 50.

    band     all farther than ``reach``
    ahead    all keys ahead, and those farther than ``reach``
    stride   all but every ``reach``-th
    near     all nearer than ``reach``, its own among them
    """

    whole = True

    def __init__(self, *, num_heads: int, reach: int, kind: Literal["band", "ahead", "stride", "near"]) -> None:
        super().__init__()
        self.num_heads, self.reach, self.kind = num_heads, reach, kind
        self.slope = nn.Parameter(torch.ones(num_heads))

    def rule(self, device: torch.device, dtype: torch.dtype) -> Any:
        slope, reach, kind = self.slope.to(dtype), self.reach, self.kind

        def lower(offset: Tensor, head: Tensor) -> Tensor:
            distance = offset.abs()
            hidden = distance > reach
            if kind == "ahead":
                hidden = hidden | (offset > 0)
            elif kind == "stride":
                hidden = offset % reach != 0
            elif kind == "near":
                hidden = distance < reach
            return torch.where(hidden, -math.inf, -slope[head] * distance / 50)

        return lower


class Ripple(situs.PairBias):
    """Add a_h cos(0.3 i + 0.7 j), which depends on both positions."""

    def __init__(self, *, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.amplitude = nn.Parameter(torch.ones(num_heads))

    def rule(self, device: torch.device, dtype: torch.dtype) -> Any:
        amplitude = self.amplitude.to(dtype)
        return lambda query, key, head: amplitude[head] * torch.cos(0.3 * query.double() + 0.7 * key.double()).to(dtype)


class Fading(situs.ScoreEncoding):
    """Add scale tanh(q_i . a_h) (k_j . b_h) / (1 + |i - j|)."""

    def __init__(self, *, num_heads: int, head_dim: int) -> None:
        super().__init__()
        self.num_heads, self.head_dim = num_heads, head_dim
        self.of_query = nn.Parameter(torch.ones(num_heads, head_dim))
        self.of_key = nn.Parameter(torch.ones(num_heads, head_dim))

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        query_positions: Any = None,
        key_positions: Any = None,
        *,
        scale: float | None = None,
        visible: Tensor | None = None,
    ) -> Tensor:
        dtype = torch.promote_types(query.dtype, torch.float32)
        q, k = query.to(dtype), key.to(dtype).repeat_interleave(query.shape[1] // key.shape[1], 1)
        distance = (key_positions.ids[:, None, None, :] - query_positions.ids[:, None, :, None]).abs().to(dtype)
        asked = torch.tanh(q @ self.of_query.to(dtype).unsqueeze(-1))
        found = (k @ self.of_key.to(dtype).unsqueeze(-1)).transpose(-2, -1)
        term: Tensor = (self.scale_for(q.shape[-1]) if scale is None else scale) * asked * found / (1 + distance)
        return term


class Gain(situs.QueryKeyEncoding):
    """Multiply every channel by 1 + g_c cos(p), for queries and keys."""

    def __init__(self, *, head_dim: int) -> None:
        super().__init__()
        self.head_dim = head_dim
        self.gain = nn.Parameter(torch.ones(head_dim))

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        places = situs.Positions.of(positions, x.shape[-2], batch=x.shape[0], device=x.device)
        wave = places.ids.double().cos()[:, None, :, None]
        return (x * (1 + self.gain * wave)).to(x.dtype)


class Swell(situs.OffsetScore):
    """Add scale (q . A[o] + k . B[o] + c[o] + u . k), with A = a cos(o / 10), B = b sin(o / 10), c = t |o| / (1 + |o|),
    and o the offset, held within ``span`` where there is one."""

    def __init__(self, *, num_heads: int, head_dim: int, span: int | None = None) -> None:
        super().__init__()
        self.num_heads, self.head_dim, self.span = num_heads, head_dim, span
        self.of_query = nn.Parameter(torch.ones(num_heads, head_dim))
        self.of_key = nn.Parameter(torch.ones(num_heads, head_dim))
        self.tilt = nn.Parameter(torch.ones(num_heads))
        self.every = nn.Parameter(torch.ones(num_heads, head_dim))

    def vectors(self, offsets: Tensor, dtype: torch.dtype) -> situs.OffsetVectors:
        near = offsets if self.span is None else offsets.clamp(-self.span, self.span)
        wave = (near.double() / 10)[None, :, None]
        distance = near.abs().to(dtype)
        return situs.OffsetVectors(
            for_query=self.of_query.to(dtype)[:, None] * wave.cos().to(dtype),
            for_key=self.of_key.to(dtype)[:, None] * wave.sin().to(dtype),
            alone=self.tilt.to(dtype)[:, None] * distance / (1 + distance),
            for_every_key=self.every.to(dtype),
        )
