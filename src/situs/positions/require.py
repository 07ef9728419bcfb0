"""What positions are made from: the rules that its tensors must keep together, and the words when they do not."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, SupportsIndex

import torch
from torch import Tensor

from situs.arguments import is_deferred, require_count, require_everywhere, require_tensor, require_whole_numbers

if TYPE_CHECKING:
    from situs.positions.positions import Positions

SHAPES = "(sequence,), (batch, sequence) or (batch, sequence, axes)"


def documents(given: Tensor | None) -> None:
    """Documents are numbered."""
    if given is not None:
        require_whole_numbers("documents", given, "they number the document of each token")


def valid(given: Tensor | None) -> None:
    """Real tokens are marked by true."""
    if given is not None:
        require_tensor("valid", given, "it marks real tokens")
        if given.dtype != torch.bool:
            raise TypeError(
                f"valid must be bool, true at real tokens, since others are padding; got dtype {given.dtype}. Use "
                f"valid.bool()."
            )


def sequence_length(given: int | Tensor | None) -> None:
    """The length of the whole is one number, or tells rows or positions apart."""
    if given is None:
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
    if given not in ("left", "right"):
        raise ValueError(f'side must be "left" or "right", since padding stands at an end of each row; got {given!r}.')


def mask(given: Tensor, side: str | None) -> None:
    """A mask marks the tokens of each row; a declared side is where its padding stands."""
    require_tensor("mask", given, "it marks the tokens of each row")
    if given.ndim != 2:
        raise ValueError(
            f"mask must have shape (batch, sequence), since it marks the tokens of each row; got shape "
            f"{tuple(given.shape)}. A (batch, heads, query, key) mask belongs to attention."
        )
    if given.is_floating_point():
        raise TypeError(
            f"mask must be bool or int with true at real tokens, since an additive mask has 0 there; "
            f"got dtype {given.dtype}. Pass mask == 0 if yours is additive."
        )
    if side not in (None, "left", "right"):
        raise ValueError(
            f'side must be "left", "right" or None, since padding stands at an end or anywhere; got {side!r}.'
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


def ids(given: Tensor) -> None:
    """Positions are numbers wide enough to tell neighbours apart."""
    if not isinstance(given, Tensor):
        raise TypeError(
            f"ids must be a tensor of positions; got {type(given).__name__}. "
            f"Use torch.as_tensor(...) on lists and arrays."
        )
    if given.dtype in (torch.float16, torch.bfloat16):
        raise TypeError(
            f"ids must be integers, float32 or float64, since in half precision neighbouring positions collide "
            f"(bfloat16 from 257 on, float16 from 2049 on); got dtype {given.dtype}."
        )
    if given.dtype == torch.bool or given.is_complex():
        raise TypeError(
            f"ids must be numbers, since they are positions; got dtype {given.dtype}. A mask goes to "
            f"Positions.from_mask."
        )
    if not 1 <= given.ndim <= 3:
        raise ValueError(f"ids must have shape {SHAPES}; got shape {tuple(given.shape)}.")


def fitting_rows(given: Tensor, ids: Tensor) -> bool:
    """Whether two fields have as many rows, or one that all share."""
    return given.shape[0] == ids.shape[0] or 1 in (given.shape[0], ids.shape[0])


def one_a_token(name: str, given: Tensor | None, ids: Tensor) -> None:
    """Documents and padding are told token by token."""
    if given is not None and (given.shape[-1] != ids.shape[1] or not fitting_rows(given, ids)):
        raise ValueError(
            f"{name} must have one value for each token, since each has a position; "
            f"got shape {tuple(given.shape)} for ids of shape {tuple(ids.shape)}."
        )


def single_rows(rows: Sequence[Positions], name: str, kind: type[Positions]) -> None:
    """Rows to be joined are one sequence each, of as many axes."""
    if not all(isinstance(row, kind) for row in rows):
        raise TypeError(
            f"{name} joins Positions; got {', '.join(type(row).__name__ for row in rows)}. Use Positions.explicit(...) "
            f"on tensors."
        )
    if not rows or any(row.rows != 1 for row in rows):
        raise ValueError(f"{name} joins one or more single rows; got {[row.rows for row in rows]} rows.")
    if len({row.axes for row in rows}) > 1:
        raise ValueError(f"{name} joins rows of as many axes each; got {[row.axes for row in rows]} axes.")


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
            "packed needs either lengths or cu_seqlens, since one follows from the other; got both or none."
        )
    if lengths is not None:
        known = [require_count("lengths", each, "they count tokens") for each in lengths]
    else:
        require_whole_numbers("cu_seqlens", cu_seqlens, "they tell where documents end")
        assert cu_seqlens is not None
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
        known = [end - begin for begin, end in itertools.pairwise(bounds)]
    if any(each < 0 for each in known):
        raise ValueError(f"lengths must be 0 or more, since they count tokens; got {known}.")
    if length is not None and sum(known) != length:
        raise ValueError(
            f"lengths must add up to length, since documents fill the row; got {known}, which makes {sum(known)}, and "
            f"length={length}. Give the padding a document of its own."
        )
    return known
