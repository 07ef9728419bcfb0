"""The attention layer: projections, any encoding, and a cache.

layer = situs.Attention(dim=512, num_heads=8, encoding=situs.Rotary(head_dim=64))
out = layer(x)                                            training
cache = layer.make_cache(batch=1, max_length=4096)
out = layer(prompt, cache=cache)                          prefill, at once or in chunks
out = layer(token, cache=cache)                           decoding
"""

from __future__ import annotations

from typing import Any, Literal, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from situs.arguments import (
    is_word,
    refuse,
    require_count,
    require_counts,
    require_dropout,
    require_flag,
    require_floating,
    require_same_device,
    told,
)
from situs.attention.admission import is_ahead_of_tokens
from situs.attention.attend import Impl, attend_request, require_impl
from situs.attention.cache import KVCache
from situs.attention.fitting import (
    require_cap,
    require_chunk,
    require_mask,
    require_scale,
    require_softmax,
    require_window,
)
from situs.attention.normed import QueryKeyNorm, require_one_width, with_norm_after
from situs.attention.request import make_request, resolve, softmax_scale, warn_of_scale
from situs.encodings.base import Encoding, Encodings, as_encodings, is_autocast
from situs.encodings.features import computed_features
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
        chunk: int | None = None,
        scale: float | None = None,
        softcap: float | None = None,
        sinks: bool = False,
        qk_norm: bool | Literal["after"] = False,
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
        chunk: positions of a chunk, whose tokens see only each other (Llama 4); none if left out.
        scale: factor of q . k; the encodings' own, or 1 / sqrt(head_dim), if left out.
        softcap: bounds scores by ``softcap tanh(score / softcap)`` (Gemma 2).
        sinks: learn a logit per head that takes part in the softmax (GPT-OSS).
        qk_norm: normalise queries and keys by their root mean square first, as many recent models do; "after" does it
            behind the rotation instead, as Hunyuan does.
        bias: have biases in the projections.
        dropout: probability of dropping a weight, in training.
        """
        super().__init__()
        dim, num_heads = require_counts("it sizes the projections", dim=dim, num_heads=num_heads)
        if num_kv_heads is not None:
            num_kv_heads = require_count("num_kv_heads", num_kv_heads, "it sizes the projections", least=1)
        if head_dim is not None:
            head_dim = require_count("head_dim", head_dim, "it sizes the projections", least=1)
        if not is_word(qk_norm, ("after",)) and not isinstance(qk_norm, bool):
            refuse(
                TypeError, "qk_norm", 'be True, False or "after"',
                "queries and keys are normalised before they are rotated, not at all, or after", told(qk_norm),
            )  # fmt: skip
        require_flag("bias", bias, "projections have biases or not")
        require_flag("sinks", sinks, "heads learn one each or not")
        self.causal = causal
        self.window = window
        self.chunk = chunk
        self.scale = scale
        self.softcap = softcap
        self.dropout = dropout
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
        if len(acting) > 1 and scale is None:
            warn_of_scale(acting, self.head_dim, stacklevel=3)
        width, kv_width = num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        self.query = nn.Linear(dim, width, bias=bias)
        self.key = nn.Linear(dim, kv_width, bias=bias)
        self.value = nn.Linear(dim, kv_width, bias=bias)
        self.out = nn.Linear(width, dim, bias=bias)
        self.sinks = nn.Parameter(torch.zeros(num_heads)) if sinks else None
        self.query_norm = nn.RMSNorm(self.head_dim) if qk_norm else None
        self.key_norm = nn.RMSNorm(self.head_dim) if qk_norm else None
        self._norm_after: tuple[QueryKeyNorm, ...] = ()  # a tuple, since the norms are this layer's
        if isinstance(qk_norm, str):
            require_one_width(acting)
            self._norm_after = (QueryKeyNorm(self.query_norm, self.key_norm),)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "causal":
            require_flag(name, value, "later keys are hidden or not")
        elif name == "window" and value is not None:
            require_window(value)
        elif name == "dropout":
            value = require_dropout(value)
        elif name == "chunk" and value is not None:
            require_chunk(value)
        elif name == "scale" and value is not None:
            value = require_scale(value)
        elif name == "softcap" and value is not None:
            value = require_cap(value)
        super().__setattr__(name, value)

    def make_cache(self, *, batch: int, max_length: int | None = None) -> KVCache:
        """An empty cache of this layer's sizes, dtype and device. Where the layer has a window, only that is held, and
        ``max_length`` may be left out.

        >>> import torch, situs
        >>> layer = situs.Attention(dim=32, num_heads=4, encoding=situs.Rotary(head_dim=8), window=128).eval()
        >>> cache = layer.make_cache(batch=1)
        >>> with torch.no_grad():
        ...     _ = [layer(torch.randn(1, 500, 32), cache=cache) for _ in range(4)]
        >>> cache.length, cache.keys.shape[2]  # tokens so far, and those that memory has room for
        (2000, 191)
        """
        floats = (each for part in (self.key, self) for each in part.parameters() if each.is_floating_point())
        like = next(floats, torch.empty(0))  # a projection that was replaced may have no weight
        return KVCache(
            batch=batch,
            num_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            max_length=max_length,
            window=self.window,
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
        self._require_call(x, positions, cache, context, context_positions, mask, impl)
        if context is not None:
            positions = 0 if positions is None else positions
            context_positions = 0 if context_positions is None else context_positions
        source, of_keys = (x, positions) if context is None else (context, context_positions)
        if isinstance(positions, Positions) or isinstance(of_keys, Positions):
            x, source = _real_tokens(x, positions), _real_tokens(source, of_keys)
        norms = (None, None) if self._norm_after else (self.query_norm, self.key_norm)
        query = self._heads(self.query(x), self.num_heads, norms[0])
        key = self._heads(self.key(source), self.num_kv_heads, norms[1])
        value = self._heads(self.value(source), self.num_kv_heads, None)
        if not query.dtype == key.dtype == value.dtype:  # norms may be wider under autocast
            query, key = query.to(value.dtype), key.to(value.dtype)
        own = as_encodings(self.encodings, "encodings")
        features = _features(own, x, source) if any(each.features for each in own) else None
        if self._norm_after:
            own = with_norm_after(own, self._current_norm_after())
        causal = self.causal and context is None
        dropout = self.dropout if self.training else 0.0
        if cache is None:
            request = make_request(
                query, key, value, encoding=own, causal=causal, positions=positions, key_positions=of_keys, mask=mask,
                window=self.window, scale=self._scale(own), dropout=dropout, chunk=self.chunk, softcap=self.softcap,
                sinks=self.sinks, features=features,
            )  # fmt: skip
            return self._project(attend_request(request, impl), value.dtype)
        if self.sinks is not None:  # which may have been replaced
            require_softmax(query, None, None, self.sinks)
        step = cache.extend(query, key, value, positions, own, features)
        try:
            mask = mask if mask is None else _of_held_keys(mask, step.key_positions)
            if self.chunk is not None and not cache.is_counted:
                raise ValueError(
                    f"positions must count the tokens in the cache of a layer with chunk={self.chunk}, since a key's "
                    f"chunk is read off its slot; got {step.query_positions!r}."
                )
            scale = step.scale if self.scale is None else self.scale
            request = resolve(
                *step[:6], causal, self.window, mask, scale, dropout, cache.offsets,
                chunk=self.chunk, softcap=self.softcap, sinks=self.sinks, features=step.features,
            )  # fmt: skip
            return self._project(attend_request(request, impl), value.dtype)
        except BaseException:  # Ctrl-C too
            cache.withdraw(step)
            raise

    def _scale(self, encodings: list[Encoding]) -> float:
        """Give the factor of q . k: one's own, or that of the encodings, which warned when the layer was made."""
        return softmax_scale(encodings, self.head_dim) if self.scale is None else self.scale

    def _current_norm_after(self) -> QueryKeyNorm:
        """Give the norms behind the rotation, which may have been replaced like any other part of the layer."""
        if self._norm_after[0].query_norm is not self.query_norm or self._norm_after[0].key_norm is not self.key_norm:
            self._norm_after = (QueryKeyNorm(self.query_norm, self.key_norm),)
        return self._norm_after[0]

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
        impl: Any,
    ) -> None:
        """Raise unless what a call was given belongs together."""
        _require_tokens("x", x, self)
        if not (isinstance(impl, str) and impl == "auto"):
            require_impl(impl)
        if positions is not None:
            require_like("positions", positions, x.shape[1], Positions)
        if cache is not None:
            if not isinstance(cache, KVCache):
                refuse(TypeError, "cache", "be a situs.KVCache", "it holds the keys so far", told(cache))
            held = cache.memory.window
            if held is not None and (self.window is None or self.window > held):
                raise ValueError(
                    f"cache must hold the {'keys' if self.window is None else self.window} that a query of this layer "
                    f"sees, since earlier ones are forgotten; got a cache with window={held}. Use layer.make_cache()."
                )
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
            require_like("context_positions", context_positions, context.shape[1], Positions)
        elif context_positions is not None:
            raise ValueError(
                f"context_positions must be left out without context, since they are those of its tokens; got "
                f"{told(context_positions)}."
            )
        if mask is not None:
            keys = x.shape[1] if context is None else context.shape[1]
            keys += 0 if cache is None else cache.memory.longest()
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


def _of_held_keys(mask: Tensor, positions: Positions) -> Tensor:
    """Take the columns of a mask that belong to keys which a cache still holds: a window leaves the first ones out."""
    columns = 1 if mask.ndim == 0 else mask.shape[-1]
    if columns == 1:
        return mask
    if positions.start is not None:
        return mask[..., positions.start :]
    if positions.given_slots is None:
        return mask
    slots = positions.given_slots.clamp(max=columns - 1)[:, None, None]
    mask = mask[(None,) * (4 - mask.ndim)]
    return mask.expand(len(slots), -1, -1, -1).gather(-1, slots.expand(-1, *mask.shape[1:3], -1))


def _real_tokens(x: Tensor, positions: PositionsLike) -> Tensor:
    """Put zeros for padding, which may hold anything, before the projections: they learn from every token."""
    valid = positions.valid if isinstance(positions, Positions) else None
    return x if valid is None else x.masked_fill(~valid.to(x.device).unsqueeze(-1), 0)


def _features(encodings: list[Encoding], x: Tensor, source: Tensor) -> dict[str, Tensor]:
    """Compute the features of queries from ``x``, and those of keys from what they are made of."""
    features: dict[str, Tensor] = {}
    for each in encodings:
        roles = {feature.role for feature in each.features.values()}
        made = {role: computed_features(each, x if role == "query" else source) for role in roles}
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
