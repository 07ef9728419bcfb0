"""The attention layer: projections, any encoding, and a cache.

layer = situs.Attention(dim=512, num_heads=8, encoding=situs.Rotary(head_dim=64))
out = layer(x)                                            training
cache = layer.make_cache(batch=1, max_length=4096)
out = layer(prompt, cache=cache)                          prefill, at once or in chunks
out = layer(token, cache=cache)                           decoding
"""

from __future__ import annotations

from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from situs.arguments import (
    refuse,
    require_count,
    require_counts,
    require_dropout,
    require_flag,
    require_floating,
    require_same_device,
    told,
)
from situs.attention.attend import Impl, attend_request, require_impl
from situs.attention.cache import KVCache
from situs.attention.fitting import require_mask, require_numbers, require_window
from situs.attention.request import make_request, resolve, softmax_scale, warn_of_scale
from situs.attention.slots import is_ahead_of_tokens
from situs.encodings.base import Encoding, Encodings, as_encodings, is_autocast
from situs.positions import Positions, PositionsLike, is_deferred
from situs.positions.require import like as require_like


@final
class Attention(nn.Module):
    """Multi-head attention with any encodings."""

    def __init__(
        self,
        *,
        dim: int,
        num_heads: int,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        encoding: Encodings = None,
        causal: bool = True,
        window: int | None = None,
        qk_norm: bool = False,
        bias: bool = False,
        dropout: float = 0.0,
    ) -> None:
        """
        dim: channels of a token.
        num_heads: query heads.
        num_kv_heads: key heads, each shared by as many query heads; num_heads if left out.
        head_dim: channels of a head; dim / num_heads if left out.
        encoding: an encoding, a list of them, or none.
        causal: hide keys that come later.
        window: how many keys a query sees, itself included; all if left out.
        qk_norm: normalise queries and keys by their root mean square first, as many recent models do.
        bias: have biases in the projections.
        dropout: probability of dropping a weight, in training.
        """
        super().__init__()
        dim, num_heads = require_counts("it sizes the projections", dim=dim, num_heads=num_heads)
        if num_kv_heads is not None:
            num_kv_heads = require_count("num_kv_heads", num_kv_heads, "it sizes the projections", least=1)
        if head_dim is not None:
            head_dim = require_count("head_dim", head_dim, "it sizes the projections", least=1)
        require_flag("causal", causal, "later keys are hidden or not")
        if window is not None:
            require_window(window)
        require_flag("qk_norm", qk_norm, "queries and keys are normalised or not")
        require_flag("bias", bias, "projections have biases or not")
        dropout = require_dropout(dropout)
        self.dim = dim
        self.num_heads = num_heads
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if head_dim is None and dim % num_heads:
            raise ValueError(
                f"dim must be a multiple of num_heads where head_dim is left out, since heads share the channels; got "
                f"{dim} and {num_heads}."
            )
        self.head_dim = dim // num_heads if head_dim is None else head_dim
        if num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_heads must be a multiple of num_kv_heads, since each key head serves as many; got {num_heads} "
                f"and {self.num_kv_heads}."
            )
        acting = as_encodings(encoding)
        self.encodings = nn.ModuleList(_fitting(each, self) for each in acting)
        if len(acting) > 1:
            warn_of_scale(acting, self.head_dim, stacklevel=3)
        self.causal = causal
        self.window = window
        self.dropout = dropout
        width, kv_width = num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        self.query = nn.Linear(dim, width, bias=bias)
        self.key = nn.Linear(dim, kv_width, bias=bias)
        self.value = nn.Linear(dim, kv_width, bias=bias)
        self.out = nn.Linear(width, dim, bias=bias)
        self.query_norm = nn.RMSNorm(self.head_dim) if qk_norm else None
        self.key_norm = nn.RMSNorm(self.head_dim) if qk_norm else None

    def make_cache(self, *, batch: int, max_length: int) -> KVCache:
        """An empty cache of this layer's sizes, dtype and device."""
        floats = (each for part in (self.key, self) for each in part.parameters() if each.is_floating_point())
        like = next(floats, torch.empty(0))  # a projection that was replaced may have no weight
        return KVCache(
            batch=batch,
            num_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            max_length=max_length,
            dtype=like.dtype,
            device=like.device,
        )

    def forward(
        self,
        x: Float[Tensor, "batch sequence dim"],
        positions: PositionsLike = None,
        *,
        cache: KVCache | None = None,
        context: Float[Tensor, "batch key dim"] | None = None,
        context_positions: PositionsLike = None,
        mask: Tensor | None = None,
        impl: Impl = "auto",
    ) -> Float[Tensor, "batch sequence dim"]:
        """Attend to the tokens themselves, and to those in ``cache``, which they join; or to those of ``context``.

        With a context, ``causal`` plays no part, and positions of both count from 0 unless told: a decoder that goes
        step by step tells where its tokens stand. A window holds there too.

        With a cache, positions follow those in it unless told otherwise; of padded rows, on whichever side, only real
        tokens stay, and attention is computed in the cache's dtype.
        """
        self._require_call(x, positions, cache, context, context_positions, mask)
        require_impl(impl)
        if context is not None:
            positions = 0 if positions is None else positions
            context_positions = 0 if context_positions is None else context_positions
        source, of_keys = (x, positions) if context is None else (context, context_positions)
        x, source = _real_tokens(x, positions), _real_tokens(source, of_keys)
        query = self._heads(self.query(x), self.num_heads, self.query_norm)
        key = self._heads(self.key(source), self.num_kv_heads, self.key_norm)
        value = self._heads(self.value(source), self.num_kv_heads, None)
        if not query.dtype == key.dtype == value.dtype:  # norms may be wider under autocast
            query, key = query.to(value.dtype), key.to(value.dtype)
        own = as_encodings(self.encodings, "encodings")
        features = _features(own, x, source)
        causal = self.causal and context is None
        dropout = self.dropout if self.training else 0.0
        if cache is None:
            request = make_request(
                query, key, value, encoding=own, causal=causal, positions=positions, key_positions=of_keys, mask=mask,
                window=self.window, scale=softmax_scale(own, self.head_dim), dropout=dropout, features=features,
            )  # fmt: skip
            return self._project(attend_request(request, impl), value.dtype)
        step = cache.extend(query, key, value, positions, own, features)
        try:
            request = resolve(
                *step[:6], causal, self.window, mask, step.scale, dropout, cache.offsets, features=step.features
            )  # fmt: skip
            return self._project(attend_request(request, impl), value.dtype)
        except BaseException:  # Ctrl-C too
            cache.withdraw(step)
            raise

    def _project(self, out: Tensor, dtype: torch.dtype) -> Tensor:
        out = out if out.dtype == dtype else out.to(dtype)
        return self.out(out.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def _require_call(
        self,
        x: Tensor,
        positions: PositionsLike,
        cache: Any,
        context: Tensor | None,
        context_positions: PositionsLike,
        mask: Tensor | None,
    ) -> None:
        """Raise unless what a call was given belongs together."""
        _require_tokens("x", x, self)
        require_numbers(self.causal, self.window, None, self.dropout)
        if positions is not None:
            require_like("positions", positions, x.shape[1], Positions)
        keys = x.shape[1]
        if cache is not None:
            if not isinstance(cache, KVCache):
                refuse(TypeError, "cache", "be a situs.KVCache", "it holds the keys so far", told(cache))
            keys += cache.longest
        if context is not None:
            _require_tokens("context", context, self)
            if context.shape[0] != x.shape[0]:
                raise ValueError(
                    f"context must have a row for each of x, since tokens attend to those of their own row; got shape "
                    f"{tuple(context.shape)} for x of shape {tuple(x.shape)}."
                )
            if cache is not None:
                raise ValueError(
                    "cache and context must not both be given, since keys come from one of them; got both."
                )
            keys = context.shape[1]
            require_like("context_positions", context_positions, keys, Positions)
        elif context_positions is not None:
            raise ValueError(
                f"context_positions must be left out without context, since they are those of its tokens; got "
                f"{told(context_positions)}."
            )
        if mask is not None:
            require_mask(mask, (x.shape[0], self.num_heads, x.shape[1], keys), x.device)
            if cache is not None and isinstance(positions, Positions):
                _require_columns(mask, positions)

    def _heads(self, x: Tensor, heads: int, norm: nn.Module | None) -> Tensor:
        split: Any = x.view(*x.shape[:2], heads, self.head_dim)
        split = split if norm is None else norm(split)
        moved: Tensor = split.transpose(1, 2)
        return moved


def _require_tokens(name: str, given: Any, layer: Attention) -> None:
    """Raise unless these are tokens of the layer's width, device and dtype; autocast takes others of the last."""
    if not isinstance(given, Tensor):
        require_floating(name, given, "its tokens are projected")
    if not given.is_floating_point():
        refuse(
            TypeError, name, "hold embeddings in a floating-point dtype", "its tokens are projected",
            f"dtype {given.dtype}", "Embed token ids first.",
        )  # fmt: skip
    if given.ndim != 3 or given.shape[2] != layer.dim:
        raise ValueError(
            f"{name} must have shape (batch, sequence, {layer.dim}), since the layer was made with dim={layer.dim}; "
            f"got shape {tuple(given.shape)}."
        )
    if type(layer.key) is not nn.Linear:  # a projection of one's own has its own rules
        return
    weight = layer.key.weight
    if given.device != weight.device:
        require_same_device(name, given, "the layer", weight)
    double = torch.float64 in (given.dtype, weight.dtype)  # which autocast leaves alone
    if given.dtype != weight.dtype and (double or not is_autocast(given.device.type)):
        raise TypeError(
            f"{name} must have the dtype of the layer's weights, {weight.dtype}, since it meets them; got "
            f"{given.dtype}. Use {name}.to({weight.dtype}), or torch.autocast."
        )


def _require_columns(mask: Tensor, positions: Positions) -> None:
    """Raise unless the columns of a mask are those of the keys in a cache, where padding takes no slot."""
    valid = positions.valid
    if valid is None or mask.ndim == 0 or mask.shape[-1] == 1:
        return
    if is_ahead_of_tokens(valid) and not (positions.side == "right" and is_deferred(valid)):
        raise ValueError(
            f"mask must have one column for all keys where a cache is given and padding stands on the left, since "
            f"padding takes no slot in the cache; got shape {tuple(mask.shape)} and {positions!r}. Pad on the right."
        )


def _real_tokens(x: Tensor, positions: PositionsLike) -> Tensor:
    """Put zeros for padding, which may hold anything, before the projections: they learn from every token."""
    valid = positions.valid if isinstance(positions, Positions) else None
    return x if valid is None else x.masked_fill(~valid.to(x.device).unsqueeze(-1), 0)


def _features(encodings: list[Encoding], x: Tensor, source: Tensor) -> dict[str, Tensor]:
    """Compute the features of queries from ``x``, and those of keys from what they are made of."""
    features: dict[str, Tensor] = {}
    for each in encodings:
        roles = {feature.role for feature in each.features.values()}
        made = {role: each.project(x if role == "query" else source) for role in roles}
        features |= {name: made[feature.role][name] for name, feature in each.features.items()}
    return features


def _fitting(encoding: Encoding, layer: Attention) -> Encoding:
    """Raise unless an encoding has the layer's sizes, and acts in attention."""
    if encoding.place == "input":
        raise ValueError(
            f"encoding must act in attention, since those of the input act once, before the first layer; got "
            f"{type(encoding).__name__}."
        )
    sizes = [(name, getattr(encoding, name)) for name in ("head_dim", "num_heads")]
    if encoding.features and getattr(encoding, "dim", layer.dim) is None:
        raise ValueError(
            f"encoding must have dim={layer.dim}, as the layer has, since its features are projected from tokens; got "
            f"{type(encoding).__name__} without dim."
        )
    for name, size in [*sizes, ("dim", getattr(encoding, "dim", None))] if encoding.features else sizes:
        if size is not None and size != getattr(layer, name):
            raise ValueError(
                f"encoding must have {name}={getattr(layer, name)}, as the layer has; got {size} in "
                f"{type(encoding).__name__}."
            )
    return encoding
