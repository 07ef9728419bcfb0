"""Caches of generated texts that grow in place.

transformers' dynamic cache joins all keys and values with the new ones in every step, which reads and writes the whole
cache twice where attention reads it once. Here a layer has room for more, and a step writes its own keys alone:

    room    k0 k1 k2 ... kn  .  .  .  .
    keys    ---------------             a view of what is filled

A layer gets a room once it finds the keys that it gave in the step before, and gives it up when others are set: where
beams are reordered or tokens cropped in every step, room would be memory for nothing. What was given away is never
written again: of layers that share a room, the first that goes on does so in it.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Shaped
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicLayer

LEAST, SHARE = 16, 4
"""Tokens that a room has beyond those that it was made for: at least so many, or one for so many."""

States = Shaped[Tensor, "batch kv_heads tokens head_dim"]


class Room:
    """Hold keys and values in memory for more of them."""

    def __init__(self, keys: States, values: States, more: int) -> None:
        """
        more: how many will follow at once.
        """
        self.filled = keys.shape[2]
        size = self.filled + more + max(LEAST, self.filled // SHARE)
        self.keys, self.values = (each.new_empty(*each.shape[:2], size, each.shape[3]) for each in (keys, values))
        self._write(0, keys, values)

    def ends_with(self, keys: States, more: int) -> bool:
        """Whether these keys, which lie in the room, are all that does, and as many more find room and may be
        written."""
        writable = torch.is_inference_mode_enabled() or not self.keys.is_inference()
        return keys.shape[2] == self.filled and writable and self.filled + more <= self.keys.shape[2]

    def append(self, keys: States, values: States) -> tuple[States, States]:
        """Write behind what is filled; give all of it."""
        first, self.filled = self.filled, self.filled + keys.shape[2]
        self._write(first, keys, values)
        return self.keys[:, :, : self.filled], self.values[:, :, : self.filled]

    def _write(self, first: int, keys: States, values: States) -> None:
        past = first + keys.shape[2]
        self.keys[:, :, first:past] = keys
        self.values[:, :, first:past] = values


class GrowingLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """A layer of a dynamic cache with room for what comes."""

    room: Room | None = None
    """Where its keys and values lie."""
    stayed: bool = False
    """Whether its keys and values are those that it gave."""

    def __setattr__(self, name: str, value: object) -> None:
        """Set an attribute; keys and values that others set lie in no room."""
        if name in ("keys", "values"):
            super().__setattr__("room", None)
            super().__setattr__("stayed", False)
        super().__setattr__(name, value)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Make copies and pickles without room, and of transformers' class, which loads where there is no Situs."""
        held = {name: each for name, each in vars(self).items() if name not in ("room", "stayed")}
        if self.room is not None:
            held |= {name: held[name].clone() for name in ("keys", "values")}
        return DynamicLayer, (), held

    def update(self, key_states: States, value_states: States, *args: Any, **kwargs: Any) -> tuple[States, States]:
        """Cache keys and values; give all that are."""
        keys: Any = self.keys
        values: Any = self.values
        more, room = key_states.shape[2], self.room
        plain = torch.is_grad_enabled() or torch.compiler.is_compiling() or not self.stayed
        if plain or not _can_follow(keys, values, key_states, value_states):
            found: tuple[Tensor, Tensor] = super().update(key_states, value_states, *args, **kwargs)
            self.stayed = True
            return found
        if room is None or not room.ends_with(keys, more):
            room = Room(keys, values, more)
        self.keys, self.values = found = room.append(key_states, value_states)
        self.room, self.stayed = room, True
        return found


def _can_follow(keys: Tensor | None, values: Tensor | None, more_keys: States, more_values: States) -> bool:
    """Whether some can be written behind others; the first, behind none, may be all that there will ever be."""
    if keys is None or values is None or not keys.numel() or more_keys.shape[2] != more_values.shape[2]:
        return False
    return _kind(keys) == _kind(more_keys) and _kind(values) == _kind(more_values)


def _kind(states: States) -> tuple[object, ...]:
    return *states.shape[:2], states.shape[3], states.dtype, states.device


def grow(module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Let the cache grow in place that a model is called with: a hook, which copies and pickles of the model keep."""
    cache = named.get("past_key_values")
    if cache is None or torch.compiler.is_compiling() or torch.is_grad_enabled():
        return
    cache = getattr(cache, "self_attention_cache", cache)  # that of an encoder's keys is filled once
    if getattr(cache, "offloading", False):
        return
    for layer in getattr(cache, "layers", ()):
        if type(layer) is DynamicLayer:
            layer.__class__ = GrowingLayer


def let_grow(model: nn.Module) -> None:
    """Let caches grow in place that a model, or one within it, is called with."""
    for module in model.modules():
        if isinstance(module, PreTrainedModel):
            module.register_forward_pre_hook(grow, with_kwargs=True)


def let_be(module: nn.Module) -> None:
    """Leave the caches alone again that a module is called with."""
    for number, hook in list(module._forward_pre_hooks.items()):
        if hook is grow:
            del module._forward_pre_hooks[number]
            module._forward_pre_hooks_with_kwargs.pop(number, None)
