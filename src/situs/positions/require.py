"""What positions are made from: the rules that its tensors must keep together, and the words when they do not."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, SupportsIndex

import torch
from torch import Tensor

from situs.arguments import (
    is_deferred,
    is_word,
    refuse,
    require_count,
    require_device,
    require_everywhere,
    require_tensor,
    require_whole_numbers,
    told,
)

if TYPE_CHECKING:
    from situs.positions.positions import Positions

CPU = torch.device("cpu")
SHAPES = "(sequence,), (batch, sequence) or (batch, sequence, axes)"


def device(given: object, otherwise: torch.device = CPU) -> torch.device:
    """Where positions live."""
    if given is None:
        return otherwise
    return given if isinstance(given, torch.device) else require_device(given)


def like(name: str, given: object, length: int, kind: type[Positions]) -> None:
    """Positions may be told as such, as a tensor, as the first of a range, or not at all; one for each token."""
    if given is None or type(given) is int:
        return
    if isinstance(given, kind):
        if given.length == length:
            return
        found = given.length
    elif isinstance(given, Tensor):
        ids(given, name)
        found = given.shape[0] if given.ndim == 1 else given.shape[1]
    elif isinstance(given, torch.SymInt):
        return
    else:
        require_first(name, given)
        return
    if found != length:  # told only now, since a graph would be bound to what is shown
        shown = f"shape {tuple(given.shape)}" if isinstance(given, Tensor) else repr(given)
        raise ValueError(
            f"{name} must have one for each of the {length} tokens, since each token stands somewhere; "
            f"got {shown}. Slice them with {name}[first:last], or pass those of this call only."
        )


def require_first(name: str, given: object) -> int:
    """The first position of a range, where a number stands for positions."""
    axes: int = getattr(given, "ndim", 0)
    if isinstance(given, bool) or not hasattr(given, "__index__") or axes:
        refuse(
            TypeError,
            name,
            "be a situs.Positions, a tensor, the first position as an int, or None",
            "each token stands somewhere",
            told(given),
            "Use torch.as_tensor(...) on lists and arrays.",
        )
    return require_count(name, given, "it is the first position")


def documents(given: Tensor | None) -> None:
    """Documents are numbered."""
    if given is not None:
        require_whole_numbers("documents", given, "they number the document of each token")


def valid(given: Tensor | None, name: str = "valid") -> None:
    """Real tokens, or those that have a position (``placed``), are marked by true."""
    if given is None:
        return
    real = name == "valid"
    require_tensor(name, given, "it marks real tokens" if real else "it marks tokens that have a position")
    if given.dtype != torch.bool:
        rule = "true at real tokens, since others are padding" if real else "true at tokens that have a position"
        raise TypeError(f"{name} must be bool, {rule}; got dtype {given.dtype}. Use {name}.bool().")


def slice_of_tokens(given: object) -> None:
    """Positions are sliced along the sequence."""
    by_one = isinstance(given, slice) and (given.step is None or given.step == 1)
    if not by_one or not (_is_bound(given.start) and _is_bound(given.stop)):  # type: ignore[attr-defined]
        raise TypeError(
            f"positions must be sliced along the sequence, as positions[first:last], since rows go together; got "
            f"{told(given)}."
        )


def _is_bound(given: object) -> bool:
    """Whether a slice may begin or end there."""
    if isinstance(given, (int, torch.SymInt)):
        return not isinstance(given, bool)
    return given is None or hasattr(given, "__index__")


def sequence_length(given: int | Tensor | None, *, needed: bool = False) -> None:
    """The length of the whole is one number, or tells rows or positions apart."""
    if type(given) is int and given >= 0:
        return
    if given is None and not needed:
        return
    if not isinstance(given, Tensor):
        require_count("sequence_length", given, "it counts tokens", least=0)
        return
    require_whole_numbers("sequence_length", given, "it counts tokens")
    if given.ndim != 2:
        raise ValueError(
            f"sequence_length must be a number, or a tensor of shape (batch, 1) or (batch, sequence), since rows or "
            f"positions may differ; got shape {tuple(given.shape)}. Use lengths[:, None] for one a row."
        )


def side(given: str | None) -> None:
    """Padding stands at an end, if a side of it is told."""
    if not is_word(given, ("left", "right")):
        raise ValueError(
            f'side must be "left" or "right", since padding stands at an end of each row; got {told(given)}.'
        )


def mask(given: Tensor, side: str | None) -> None:
    """A mask marks the tokens of each row; a declared side is where its padding stands."""
    require_tensor("mask", given, "it marks the tokens of each row")
    if given.ndim != 2:
        raise ValueError(
            f"mask must have shape (batch, sequence), since it marks the tokens of each row; got shape "
            f"{tuple(given.shape)}. A (batch, heads, query, key) mask belongs to attention."
        )
    if given.is_floating_point() or given.is_complex():
        raise TypeError(
            f"mask must be bool or int with true at real tokens, since an additive mask has 0 there; "
            f"got dtype {given.dtype}. Pass mask == 0 if yours is additive."
        )
    if side is not None and not is_word(side, ("left", "right")):
        raise ValueError(
            f'side must be "left", "right" or None, since padding stands at an end or anywhere; got {told(side)}.'
        )
    if given.dtype != torch.bool:
        require_everywhere(
            (given == 0) | (given == 1),
            "mask must hold 0 and 1, since it marks real tokens",
            lambda: int(given[(given != 0) & (given != 1)][0]),
            "Documents that share a row go to Positions.packed(), or explicit(documents=...).",
        )
    if side is None or is_deferred(given):
        return
    valid = given.bool()
    ahead, behind = (valid[:, :-1], valid[:, 1:]) if side == "left" else (valid[:, 1:], valid[:, :-1])
    if bool((ahead & ~behind).any()):
        raise ValueError(
            f'side must be where the padding stands; got "{side}", but a real token stands on that side of padding. '
            f"Leave side out for padding anywhere."
        )


def ids(given: Tensor, name: str = "ids") -> None:
    """Positions are finite numbers, wide enough to tell neighbours apart."""
    require_tensor(name, given, "it has a position for each token")
    if given.is_floating_point() and given.dtype.itemsize < 4:
        raise TypeError(
            f"{name} must be integers, float32 or float64, since in half precision neighbouring positions collide "
            f"(bfloat16 from 257 on, float16 from 2049 on); got dtype {given.dtype}."
        )
    if given.dtype == torch.bool or given.is_complex():
        raise TypeError(
            f"{name} must be numbers, since they are positions; got dtype {given.dtype}. A mask goes to "
            f"Positions.from_mask."
        )
    if not 1 <= given.ndim <= 3:
        raise ValueError(
            f"{name} must have shape {SHAPES}, since each token has a position; got shape {tuple(given.shape)}."
        )
    if given.is_floating_point():
        require_everywhere(
            given.isfinite(),
            f"{name} must be finite, since encodings compute with them",
            lambda: float(given[~given.isfinite()][0]),
            "Mark padding by valid, and let it have position 0.",
        )


def fitting_rows(given: Tensor, ids: Tensor) -> bool:
    """Whether two fields have as many rows, or one that all share."""
    return given.shape[0] == ids.shape[0] or 1 in (given.shape[0], ids.shape[0])


def one_a_token(name: str, given: Tensor | None, ids: Tensor) -> None:
    """Documents and padding are told token by token."""
    if given is None:
        return
    if given.ndim != 2 or given.shape[-1] != ids.shape[1] or not fitting_rows(given, ids):
        raise ValueError(
            f"{name} must have one value for each token, since each has a position; "
            f"got shape {tuple(given.shape)} for ids of shape {tuple(ids.shape)}."
        )
    if given.device != ids.device:
        raise ValueError(
            f"{name} must be on the device of ids, {ids.device}, since they belong together; got {given.device}. Move "
            f"it with {name}.to(ids.device)."
        )


def single_rows(rows: Sequence[Positions], name: str, kind: type[Positions]) -> None:
    """Rows to be joined are one sequence each, of as many axes."""
    given: object = rows
    if not isinstance(given, Sequence) or isinstance(given, (str, bytes, kind)):
        refuse(TypeError, "rows", "be a list of Positions", f"{name} joins them", told(rows))
    if not all(isinstance(row, kind) for row in rows):
        got = ", ".join(type(row).__name__ for row in rows)
        cure = "Use Positions.explicit(...) on tensors."
        refuse(TypeError, "rows", "be a list of Positions", f"{name} joins them", got, cure)
    if not rows or any(row.rows != 1 for row in rows):
        counts = f"{[row.rows for row in rows]} rows" if rows else "none"
        refuse(ValueError, "rows", "be one or more Positions of a single row each", f"{name} joins them", counts)
    if len({row.axes for row in rows}) > 1:
        axes = f"{[row.axes for row in rows]} axes"
        refuse(ValueError, "rows", "have as many axes each", f"{name} joins their coordinates", axes)


def within(ids: Tensor, limit: int) -> None:
    """Ids can be looked up in a sample of ``limit`` positions."""
    if not is_deferred(ids) and ids.numel():
        low, high = int(ids.min()), int(ids.max())
        if low < 0 or high >= limit:
            raise ValueError(f"ids must lie in 0 .. {limit - 1}, since count is {limit}; got {low} .. {high}.")


def document_lengths(
    lengths: Iterable[SupportsIndex] | None, cu_seqlens: Tensor | None, length: int | None
) -> list[int] | None:
    """Document lengths as far as the host knows them; None where only a device does."""
    if (lengths is None) == (cu_seqlens is None):
        raise ValueError(
            f"lengths or cu_seqlens must be given, and not both, since one follows from the other; got "
            f"lengths={told(lengths)} and cu_seqlens={told(cu_seqlens)}."
        )
    if length is not None:
        require_count("length", length, "it counts tokens", least=0)
    if lengths is not None:
        if isinstance(lengths, (str, bytes, dict)) or not isinstance(lengths, Iterable):
            refuse(TypeError, "lengths", "be a sequence of whole numbers", "they count tokens", told(lengths))
        if getattr(lengths, "ndim", 1) != 1:
            refuse(TypeError, "lengths", "have one axis", "they count the tokens of each document", told(lengths))
        known = [require_count("lengths", each, "they count tokens") for each in lengths]
    else:
        require_whole_numbers("cu_seqlens", cu_seqlens, "they tell where documents end")
        assert cu_seqlens is not None
        if cu_seqlens.ndim != 1:
            shape = f"shape {tuple(cu_seqlens.shape)}"
            refuse(ValueError, "cu_seqlens", "have one axis", "they tell where each document ends", shape)
        if is_deferred(cu_seqlens):
            if length is None:
                raise ValueError(
                    f"length must be given with cu_seqlens on {cu_seqlens.device}, "
                    f"since reading it would make the host wait."
                )
            return None
        bounds = cu_seqlens.tolist()
        if not bounds or bounds[0] != 0:
            raise ValueError(f"cu_seqlens must begin with 0, where the first document does; got {bounds}.")
        if bounds != sorted(bounds):
            refuse(ValueError, "cu_seqlens", "never fall", "documents follow one another", str(bounds))
        known = [end - begin for begin, end in itertools.pairwise(bounds)]
    if any(each < 0 for each in known):
        raise ValueError(f"lengths must be 0 or more, since they count tokens; got {known}.")
    if length is not None and sum(known) != length:
        raise ValueError(
            f"lengths must add up to length, since documents fill the row; got {known}, which makes {sum(known)}, and "
            f"length={length}. Give the padding a document of its own."
        )
    return known


def starts(start: Tensor) -> None:
    """Raise unless rows have a whole number each to begin with."""
    require_whole_numbers("start", start, "they are positions")
    if start.ndim != 1:
        raise ValueError(
            f"start must be an int, or a tensor with one for each row, since rows may differ; got shape "
            f"{tuple(start.shape)}. Use int(start) for a single one."
        )


def facts(
    ids: Tensor, documents_of: Tensor | None, valid_ones: Tensor | None, placed: Tensor | None
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Give what is told of tokens beside their ids two axes; raise unless each has an entry for every token."""
    documents(documents_of)
    valid(valid_ones)
    valid(placed, "placed")
    told_of = {"documents": documents_of, "valid": valid_ones, "placed": placed}
    rows = {name: each.unsqueeze(0) if each is not None and each.ndim == 1 else each for name, each in told_of.items()}
    for name, each in rows.items():
        one_a_token(name, each, ids)
    return rows["documents"], rows["valid"], rows["placed"]
