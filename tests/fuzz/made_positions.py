"""What the drawn Python of positions names: masks of padding, ids and cells, the same for the same seed."""

from __future__ import annotations

from random import Random
from typing import Any

import torch
from torch import Tensor

import situs
from situs import Positions


def padding(rows: int, length: int, side: str, *, seed: int) -> Tensor:
    """True at real tokens: some rows short, now and then one that is all padding."""
    rng = Random(seed)
    mask = torch.zeros(rows, length, dtype=torch.bool)
    for row in mask:
        count = rng.choice((length, length, rng.randint(1, length), rng.randint(1, length), 0))
        if side == "holes":
            row[:] = torch.tensor([rng.random() < 0.6 for _ in range(length)])
        elif side == "left":
            row[length - count :] = True
        else:
            row[:count] = True
    return mask


def ids(rows: int, length: int, kind: str, *, seed: int) -> Tensor:
    """Bare positions."""
    generator = torch.Generator().manual_seed(seed)
    found = torch.arange(length).repeat(rows, 1)
    if kind == "shuffled":
        return torch.stack([row[torch.randperm(length, generator=generator)] for row in found])
    if kind == "repeated":
        return torch.randint(0, length // 2 + 1, (rows, length), generator=generator).sort(-1).values
    if kind == "negative":
        return found - length // 2 - 1
    if kind == "gaps":
        return torch.randint(1, 30, (rows, length), generator=generator).cumsum(-1)
    if kind == "far gap":
        return found + 5000 * (found >= length // 2)
    if kind == "runs":
        return found + 7 * (found // 10) - 20 * (found // 40)
    return torch.randint(-400, 4 * length, (rows, length), generator=generator).sort(-1).values / 4  # quarters


def cells(rows: int, length: int, size: tuple[int, ...], *, seed: int) -> Tensor:
    """Any cells of a grid, in any order."""
    generator = torch.Generator().manual_seed(seed)
    return torch.stack([torch.randint(0, side, (rows, length), generator=generator) for side in size], -1)


def make(expression: str | None) -> Any:
    """The positions that an expression writes."""
    if expression is None:
        return None
    names = {"Positions": Positions, "situs": situs, "torch": torch, "padding": padding, "ids": ids, "cells": cells}
    return eval(expression, names)
