"""Temperature: queries multiplied by a number that grows with their position.

Papers   Nakanishi, Scalable-Softmax Is Superior for Attention, arXiv:2501.19399 (ssmax); Su 2021 (log_n, a post).
Acts on  queries.    Learned: ssmax.    Relative: no.

    q'_i = t(i) q_i,    k'_j = k_j

    llama4       t(i) = 1 + a log(1 + floor((i + 1) / L))      Llama 4, in its layers without rotary
    ministral3   t(i) = 1 + a log(1 + floor(i / L))            Ministral 3, Mistral 4
    inkling      t(i) = 1 + a log(max((i + 1) / L, 1))         Inkling
    log_n        t(i) = max(log(i + 1) / log(L), 1)            Su's scale for a model trained with L tokens, Qwen
    power        t(i) = (1 + (i + 1) / L)^a                    beam
    ssmax        t(i) = s_h log(i + 1) + b_h                   scalable softmax, learned for each head

A softmax over n keys flattens as n grows; a factor of about log n keeps its entropy. Position is the true one:
documents that are packed begin anew, and padding does not count.

Departures: terms by content (Shaw, Transformer-XL, DeBERTa) meet queries as they come, so they are not multiplied;
nor are biases. A method that wants it multiplies by ``factors(positions)``, as Inkling does with its projected bias.
Llama 4 and Inkling in transformers count tokens of the row instead of positions, which differs for padding on the left.
ssmax begins with s = 1 / log(L) and b = 0, so that queries at position L - 1 are as without.
"""

from __future__ import annotations

import math
from typing import Literal, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from situs.arguments import (
    require_axes_of,
    require_choice,
    require_count,
    require_dtype,
    require_floating,
    require_number,
)
from situs.encodings.base import QueryKeyEncoding, Role, computing_dtype, require_role
from situs.encodings.fitting import require_axes, require_positions
from situs.functional.angles import widest
from situs.functional.temperature import temperature, temperature_at
from situs.positions import Positions, PositionsLike
from situs.registry import register

Dialect = Literal["llama4", "ministral3", "inkling", "log_n", "power", "ssmax"]
DIALECTS: tuple[Dialect, ...] = ("llama4", "ministral3", "inkling", "log_n", "power", "ssmax")
WITHOUT_FACTOR = ("log_n", "ssmax")


@final
@register(
    name="temperature",
    paper="Nakanishi 2025, Scalable-Softmax Is Superior for Attention, arXiv:2501.19399; Llama 4 (released code)",
    formula="q'_i = t(i) q_i; t(i) = 1 + a log(1 + floor((i + 1) / L))",
    dialects={
        "Llama 4": 'dialect="llama4", original_length=8192, factor=0.1 (floor_scale, attn_scale); the formula above',
        "Ministral 3, Mistral 4": 'dialect="ministral3", original_length=16384 (original_max_position_embeddings), '
        "factor=0.1 (llama_4_scaling_beta); t(i) = 1 + a log(1 + floor(i / L))",
        "Inkling": 'dialect="inkling", original_length and factor of log_scaling_n_floor and log_scaling_alpha; '
        "t(i) = 1 + a log(max((i + 1) / L, 1))",
        "Qwen, Su's log-n": 'dialect="log_n", original_length of the training; t(i) = max(log(i + 1) / log(L), 1)',
        "beam": 'dialect="power", original_length=2048, factor=0.1; t(i) = (1 + (i + 1) / L)^a',
        "scalable softmax": 'dialect="ssmax", num_heads=...; t(i) = s_h log(i + 1) + b_h, both learned',
    },
)
class Temperature(QueryKeyEncoding):
    """Multiply queries by a number that grows with the logarithm of their position; keys stay as they are.

    >>> import torch, situs
    >>> rotary, temperature = situs.Rotary(head_dim=8), situs.Temperature(original_length=4)
    >>> q = k = v = torch.randn(1, 2, 6, 8)
    >>> situs.attend(q, k, v, encoding=[rotary, temperature], causal=True).shape
    torch.Size([1, 2, 6, 8])
    >>> temperature.factors(situs.Positions.range(6)).flatten().tolist()[2:4]
    [1.0, 1.06931471824646]
    """

    place = "query"
    changes_keys = False

    def __init__(
        self,
        *,
        dialect: Dialect = "llama4",
        original_length: int = 8192,
        factor: float | None = None,
        num_heads: int | None = None,
    ) -> None:
        """
        dialect: the formula, named after who uses it.
        original_length: L in the formulas; up to it most leave queries as they are.
        factor: a in the formulas, 0.1 if left out; log_n and ssmax have none.
        num_heads: heads of the queries; ssmax learns two numbers for each.
        """
        super().__init__()
        self.dialect = require_choice("dialect", dialect, DIALECTS, "each names a formula")
        least = 2 if dialect in WITHOUT_FACTOR else 1  # whose logarithm divides
        self.original_length = require_count("original_length", original_length, "it counts tokens", least=least)
        if dialect in WITHOUT_FACTOR and factor is not None:
            raise ValueError(
                f"factor must be left out with dialect={dialect!r}, since its formula has none; got {factor}."
            )
        if factor is not None:
            factor = require_number("factor", factor, "it weighs the logarithm of a position", above=0)
        self.factor = 0.1 if factor is None and dialect not in WITHOUT_FACTOR else factor
        if num_heads is not None:
            num_heads = require_count("num_heads", num_heads, "it counts heads of the queries", least=1)
        elif dialect == "ssmax":
            raise ValueError("num_heads must be given with dialect='ssmax', since each head learns numbers; got None.")
        self.num_heads = num_heads
        self.tags = frozenset({"learned"} if dialect == "ssmax" else {"far"})
        if dialect == "ssmax":
            assert num_heads is not None
            self.s = nn.Parameter(torch.empty(num_heads))
            self.b = nn.Parameter(torch.empty(num_heads))
            self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Begin with a factor of 1 at the last position of the original length; only ssmax has parameters."""
        if self.dialect == "ssmax":
            self.s.fill_(1 / math.log(self.original_length))
            self.b.zero_()

    def forward(
        self,
        x: Float[Tensor, "batch heads sequence width"],
        positions: PositionsLike = None,
        *,
        role: Role = "query",
    ) -> Float[Tensor, "batch heads sequence width"]:
        """Multiply queries; keys are returned as they are, and so are queries whose factors are known to be 1."""
        require_role(role)
        require_floating("x", x, "it is encoded")
        require_axes_of("x", x, ("batch", "heads", "sequence", "width"), "each head has a query a token")
        if role == "key":
            return x
        if self.num_heads is not None and x.shape[1] != self.num_heads:
            raise ValueError(
                f"x must have {self.num_heads} heads, since this Temperature was made for as many; got shape "
                f"{tuple(x.shape)}."
            )
        where = Positions.of(positions, x.shape[2], batch=x.shape[0], device=x.device)
        start, dialect = where.start, self.dialect
        if start is not None and where.length and dialect != "ssmax" and not torch.compiler.is_compiling():
            last = temperature_at(start + where.length - 1, dialect, self.original_length, self.factor or 0.0)
            if last == 1.0 or where.length == 1:  # it never falls, so that all are 1
                return x if last == 1.0 else x * last
        return (x * self.factors(where, dtype=computing_dtype(x.dtype))).to(x.dtype)

    def factors(
        self, positions: Positions, *, dtype: torch.dtype = torch.float32
    ) -> Float[Tensor, "#batch #heads sequence 1"]:
        """Compute what queries at these positions are multiplied by."""
        require_positions(positions, "factors follow from it")
        require_dtype(dtype, "factors are fractions")
        ids, slots = positions.ids, positions.slots
        if positions.axes > 1 and slots is not None:  # images: their tokens count by where they lie in the document
            ids = slots
        else:
            require_axes(self, positions)  # a token without a position has no factor
        ids = ids.to(widest(positions.device))[:, None, :, None]
        if self.dialect != "ssmax":
            return temperature(ids, self.dialect, self.original_length, self.factor or 0.0).to(dtype)
        logarithms = ids.clamp(min=0).log1p().to(dtype)
        return self.s.to(dtype)[:, None, None] * logarithms + self.b.to(dtype)[:, None, None]
