"""Gated bias: each token multiplies the bias of its own query by a gate, head by head.

Paper    Chen et al., WavLM, arXiv:2110.13900, section III-A, where the bias is T5's; first in Chi et al., XLM-E,
         arXiv:2106.16138.
Acts on  scores.    Learned: yes, those of the bias, and a gate from hidden states.    Relative: yes.

    score[h, i, j] = q_i . k_j / sqrt(d) + g_h,i b_h(j - i)
    g_h,i = 2 - a + a b c_h,    a, b = sigmoid(W x_h,i + w),    x_h,i: the head's channels of the hidden state

All heads share W and w; c_h starts at 1. So a gate lies between 1 and 2, or 1 + c_h where c_h is above 1.

Departures: W has two rows. Released code has eight, and adds them up by fours before the sigmoid: its weights are
loaded as ``weight.view(2, 4, -1).sum(1)``, its biases as ``bias.view(2, 4).sum(1)``. The paper writes 1 - a for a, and
computes gates from queries; released code computes them from hidden states. Any bias that goes by one offset may be
gated.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NoReturn, final

import torch
from jaxtyping import Float, Num
from torch import Tensor, nn

from situs.arguments import refuse, require_count, require_text, told
from situs.encodings.base import Feature
from situs.encodings.bias import OffsetBias
from situs.encodings.features import refuse_projection, require_hidden_states
from situs.encodings.score import OffsetScore, OffsetVectors
from situs.registry import canonical, entry, is_own, register

WAVLM = MappingProxyType({"num_buckets": 320, "max_distance": 800, "softmax_scale": None})
"""Options of T5's bias that WavLM has; others are T5's."""


@final
@register(
    name="gated",
    paper="Chen et al. 2022, WavLM: Large-Scale Self-Supervised Pre-Training for Full Stack Speech Processing, "
    "arXiv:2110.13900",
    formula="q_i . k_j / sqrt(d) + g_h,i table[bucket(j - i), h], g_h,i = 2 - a + a b c_h, a, b = sigmoid(W x_h,i + w)",
    dialects={
        "WavLM": "dim=hidden_size; layers share the first one's bias: encoding.bias_by_offset = first.bias_by_offset",
    },
)
class GatedBias(OffsetScore):
    """Multiply a bias of the offset by a gate of the query's token.

    >>> import situs, torch
    >>> wavlm = situs.GatedBias(num_heads=4, dim=32)
    >>> layer = situs.Attention(dim=32, num_heads=4, encoding=wavlm, causal=False)
    >>> layer(torch.randn(1, 6, 32)).shape
    torch.Size([1, 6, 32])
    >>> q = k = v = torch.randn(1, 4, 6, 8)
    >>> gate = torch.rand(1, 4, 6, 1)  # computed by a model of your own
    >>> encoding = situs.GatedBias(num_heads=4, bias="alibi")
    >>> situs.attend(q, k, v, encoding=encoding, causal=True, features={"bias_gate": gate}).shape
    torch.Size([1, 4, 6, 8])
    """

    tags = frozenset({"relative", "bounded", "far", "learned"})  # of T5's bias; another has its own
    meets = "bias_gate"
    by_features_alone = True
    features = MappingProxyType({"bias_gate": Feature(width=1, role="query")})

    def __init__(
        self, *, num_heads: int, bias: str = "t5", options: Mapping[str, Any] | None = None, dim: int | None = None
    ) -> None:
        """
        num_heads: heads of the queries, each with its own gates.
        bias: name of the bias that is gated, of those that go by one offset: "t5", "alibi", "kerple", "mlp", ...
        options: options of that bias beside num_heads; what is left out has its default, for "t5" that of WavLM.
        dim: channels of the hidden states that gates are computed from; None where features are given.
        """
        super().__init__()
        self.num_heads = require_count("num_heads", num_heads, "each head has its own gates", least=1)
        self.bias = require_text("bias", bias, "biases are known by their names")
        self.options = None if options is None else _as_options(options)
        self.dim = None if dim is None else require_count("dim", dim, "it sizes the projection", least=1)
        if dim is not None and dim % num_heads:
            raise ValueError(
                f"dim must be a multiple of num_heads={num_heads}, since a head's gates are computed from its share of "
                f"the channels; got {dim}."
            )
        self.bias_by_offset = _make(bias, num_heads, self.options or {})
        made = self.bias_by_offset
        self.whole, self.span, self.softmax_scale = made.whole, made.span, made.softmax_scale
        self.usable_length, self.reach = made.usable_length, made.reach
        self.projection = None if self.dim is None else nn.Linear(self.dim // self.num_heads, 2)
        self.strength = None if self.dim is None else nn.Parameter(torch.ones(self.num_heads))
        # a gate of the caller's own may be negative, so that nothing falls with distance
        self.tags = made.tags - {"fading"} | (set() if self.dim is None else {"learned"})

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the gates' projection anew, and the bias' own parameters."""
        reset = getattr(self.bias_by_offset, "reset_parameters", None)
        if reset is not None:
            reset()
        if self.projection is not None and self.strength is not None:
            self.projection.reset_parameters()
            self.strength.fill_(1.0)

    def project(self, x: Float[Tensor, "batch sequence dim"]) -> dict[str, Tensor]:
        """Compute the gates of tokens."""
        if self.projection is None or self.strength is None or self.dim is None:
            refuse_projection(self)
        require_hidden_states(self, x, self.dim, self.projection.weight)
        by_head = x.view(*x.shape[:2], self.num_heads, -1).transpose(1, 2)  # (batch, heads, sequence, head_dim)
        update, reset = torch.sigmoid(self.projection(by_head)).chunk(2, -1)
        return {"bias_gate": update * (reset * self.strength.view(-1, 1, 1) - 1) + 2}

    def vectors(self, offsets: Num[Tensor, "offsets"], dtype: torch.dtype) -> OffsetVectors:
        """Take the bias of each offset for a vector of one channel, which meets the gate."""
        return OffsetVectors(for_query=self.bias_by_offset.by_offset(offsets, dtype=dtype).unsqueeze(-1))


def _as_options(given: Any) -> dict[str, Any]:
    """Raise unless these are options of a bias, by name."""
    if not isinstance(given, Mapping):
        refuse(TypeError, "options", "be a mapping of names to values", "the bias is made with them", told(given))
    if "num_heads" in given:
        refuse(ValueError, "options", "leave out num_heads", "the bias has as many heads as gates", told(given))
    return dict(given)


def _make(bias: str, num_heads: int, options: Mapping[str, Any]) -> OffsetBias:
    """Make the bias that is gated; raise unless it goes by one offset."""
    if not is_own(bias) and canonical(bias) is None:
        _refuse(bias)
    found = entry(bias)
    if not issubclass(found.cls, OffsetBias):
        _refuse(bias)
    defaults = WAVLM if found.name == "t5" else {}
    made = found.make(num_heads=num_heads, **{**defaults, **options})
    if not isinstance(made, OffsetBias) or made.axes != 1:
        _refuse(bias)
    return made


def _refuse(bias: str) -> NoReturn:
    raise ValueError(
        f"bias must name a bias that goes by one offset, such as 't5', 'alibi', 'kerple' or 'mlp', since a gate "
        f"multiplies what each offset gets; got {bias!r}."
    )
