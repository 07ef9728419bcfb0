"""Admission to a cache: new keys that fit it, and positions that follow those in it.

Real tokens of a row take slots one after another; padding takes none, whichever side it stands on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from situs.arguments import (
    refuse,
    require_bool,
    require_count,
    require_everywhere,
    require_floating,
    require_same_device,
    require_several,
    require_whole_numbers,
)
from situs.encodings.base import Encoding
from situs.positions import Positions, PositionsLike, is_deferred


def require_new_keys(keys: Any, values: Any, held_keys: Tensor, held_values: Tensor, names: tuple[str, ...]) -> None:
    """Raise unless new keys and values are such as a cache holds."""
    for name, given, held in ((names[0], keys, held_keys), (names[1], values, held_values)):
        if not (isinstance(given, Tensor) and given.is_floating_point()):
            require_floating(name, given, "the cache holds fractions")
        if given.ndim != 4 or (given.shape[:2], given.shape[-1]) != (held.shape[:2], held.shape[-1]):
            batch, heads, _, width = held.shape
            raise ValueError(
                f"{name} must have shape ({batch}, {heads}, new, {width}), since the cache was made for {batch} "
                f"rows of {heads} heads of {width}; got shape {tuple(given.shape)}."
            )
        if given.device != held.device:
            raise ValueError(
                f"{name} must be on the cache's device, {held.device}, since they are stored there; got {given.device}."
            )
    if keys.shape[2] != values.shape[2]:
        raise ValueError(
            f"{names[0]} and {names[1]} must be as many, since each key has a value; got {keys.shape[2]} and "
            f"{values.shape[2]}."
        )


def require_queries(query: Any, keys: Tensor, count: int) -> None:
    """Raise unless there is a query for each of the new keys, such as the cached ones are."""
    if not (isinstance(query, Tensor) and query.is_floating_point()):
        require_floating("query", query, "it meets the keys")
    (batch, heads, _, width), shape = keys.shape, query.shape
    if query.ndim != 4 or shape[0] != batch or shape[1] % heads or shape[2] != count or shape[3] != width:
        raise ValueError(
            f"query must have shape ({batch}, heads, {count}, {width}) with a multiple of {heads} heads, since it "
            f"meets the keys of the cache; got shape {tuple(shape)}."
        )
    if query.device != keys.device:
        require_same_device("query", query, "the cache", keys)


def require_valid(valid: Tensor, keys: Tensor, count: int) -> None:
    """Raise unless each new token of a cache is told to be real or padding."""
    require_bool("valid", valid, "it is true at real tokens")
    if valid.ndim != 2 or valid.shape[0] not in (1, keys.shape[0]) or valid.shape[1] != count:
        raise ValueError(
            f"valid must have shape ({keys.shape[0]}, {count}), since it marks the real ones of the new tokens; got "
            f"shape {tuple(valid.shape)}."
        )
    require_same_device("valid", valid, "the cache", keys)


def require_row_numbers(
    name: str, given: Any, reason: str, keys: Tensor, *, count: int | None = None, most: int | None = None
) -> Int[Tensor, "rows"]:
    """Whole numbers for rows, from 0 to ``most``, out of a list or a tensor; of a device's own only the shape is
    checked."""
    if isinstance(given, Tensor):
        require_whole_numbers(name, given, reason)
    if isinstance(given, Tensor) and given.ndim == 1 and is_deferred(given):
        require_same_device(name, given, "the cache", keys)
        found = given.long()
    else:
        listed = [
            require_count(name, each, reason, least=0, most=most) for each in require_several(name, given, reason)
        ]
        found = torch.tensor(listed, dtype=torch.int64, device=keys.device)
    if not len(found) or count not in (None, len(found)):
        rule = "have a number at least" if count is None else f"have a number for each of the {count} rows"
        refuse(ValueError, name, rule, reason, f"{len(found)} of them" if len(found) else "none")
    return found


def require_lengths(given: int | Tensor, own: int | Tensor, left: int | Tensor, least: int | Tensor) -> None:
    """Raise unless rows have so many tokens and, with ``left`` of them, hold what the next token sees."""
    for numbers, bound, rule, reason in (
        (own, given, "at most", "so many tokens are cached"),
        (left, least, "at least", "the next token sees back so far, and earlier ones are no longer held"),
    ):
        enough = torch.as_tensor(numbers) >= torch.as_tensor(bound)
        if is_deferred(enough):
            require_everywhere(enough, f"length must be {rule} what rows hold, since {reason}", str, "")
        elif not bool(enough.all()):
            limit = own if rule == "at most" else least
            shown = [each.tolist() if isinstance(each, Tensor) else each for each in (limit, given)]
            raise ValueError(f"length must be {rule} {shown[0]}, since {reason}; got {shown[1]}.")


def following(admitted: Positions, next_slots: Tensor, length: int) -> Positions:
    """Give positions the slots behind those in a cache, of which padding takes none; raise where they tell others."""
    if admitted.documents is not None:
        raise ValueError(
            f"positions must be of one document per row with a cache, since a row goes on where it ended; got "
            f"{admitted!r}. Give each document a row: Positions.batch([...])."
        )
    valid, told, slots = admitted.valid, admitted.slots, next_slots
    if valid is not None and slots.shape[1]:
        slots = slots[:, :1] + (valid.cumsum(-1) - 1).clamp(min=0)
        if told is not None and admitted.given_slots is None:
            told = _without_padding(told, valid, slots if length else None)
    if told is not None and not _agree(told, slots, valid):
        raise ValueError(
            f"positions must follow those in the cache, {length} so far, since a token sees what stands before it; got "
            f"{admitted!r}. Leave them out, or slice those of the whole sequence: positions[first:last]."
        )
    return replace(admitted, given_slots=slots, tables={})


def _agree(given: Tensor, slots: Tensor, valid: Tensor | None) -> bool:
    """Whether real tokens have these slots, as far as can be told without a wait."""
    if is_deferred(given) or is_deferred(slots):
        return True
    same = given == slots
    return bool((same if valid is None else same | ~valid).all())


def counts_tokens(given: PositionsLike, admitted: Positions) -> bool:
    """Whether positions are the slots that they were admitted to. Of ids that only a device knows it is taken for
    granted where they were given with slots or as padded rows."""
    if admitted.start is not None:
        return True
    ids, slots, valid = admitted.ids, admitted.given_slots, admitted.valid
    assert slots is not None
    if is_deferred(ids):
        return isinstance(given, Positions) and (given.structure == "padded" or given.given_slots is not None)
    if admitted.axes > 1:
        slots, valid = slots.unsqueeze(-1), None if valid is None else valid.unsqueeze(-1)
    return _agree(ids, slots, valid)


def require_counted(positions: Positions, encodings: Sequence[Encoding]) -> None:
    """Raise unless new tokens have the positions that encodings of the scores read off a key's slot in the cache."""
    if not encodings or positions.start is not None:
        return
    assert positions.given_slots is not None
    if (
        positions.axes > 1
        or positions.placed is not None
        or not _agree(positions.ids, positions.given_slots, positions.valid)
    ):
        raise ValueError(
            f"positions must count the tokens in the cache, since {type(encodings[0]).__name__} reads a key's position "
            f"off its slot; got {positions!r}."
        )


def is_ahead_of_tokens(valid: Tensor) -> bool:
    """Whether padding stands before real tokens, or may where only a device knows."""
    return is_deferred(valid) or bool((valid[:, 1:] & ~valid[:, :-1]).any())


def _without_padding(slots: Tensor, valid: Tensor, next_slots: Tensor | None) -> Tensor:
    """Slots as a cache gives them, where padding takes none. ``next_slots`` are those behind tokens that came before:
    how much padding stood among these is told by nobody, so that rows may lie farther along by it."""
    counted = slots - (~valid).cumsum(-1)
    if next_slots is None:
        return counted
    ahead = (counted - next_slots).masked_fill(~valid, torch.iinfo(torch.int64).max).amin(-1, keepdim=True)
    return counted - ahead.clamp(min=0)


def require_room(max_length: int | None, length: int, count: int) -> None:
    """Raise unless a cache that holds ``length`` tokens can hold ``count`` more."""
    if max_length is not None and length + count > max_length:
        raise ValueError(
            f"max_length must be at least {length + count} for {count} more tokens, since the cache holds {length}; "
            f"got max_length={max_length}. Make a larger cache{', or evict()' if length else ''}."
        )
