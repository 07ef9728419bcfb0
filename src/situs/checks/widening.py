"""The same computation in float64 throughout, as the measure of what float32 lost."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from situs.checks.subject import Subject, share_parameters

WIDER = dict.fromkeys((torch.float16, torch.bfloat16, torch.float32), torch.float64)
WIDER |= dict.fromkeys((torch.complex32, torch.complex64), torch.complex128)


class _Widening(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within, every operation takes and gives float64, whatever dtype it was written with."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*tree_map(_wide, args), **tree_map(_wide, kwargs or {}))


def widened(subject: Subject, run: Callable[[Subject], Tensor]) -> Tensor:
    """What ``run`` gives for the same encoding with every operation in float64; where one of its own operations has no
    float64, what it gives for an encoding cast to it."""
    try:
        return _made_again(subject, run)
    except Exception:  # a user's kernel may raise anything
        return run(subject.with_encoding(copy.deepcopy(subject.encoding).double()))


def _made_again(subject: Subject, run: Callable[[Subject], Tensor]) -> Tensor:
    """The same by an encoding whose tables, too, are made in float64."""
    encoding, usual = subject.encoding, torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.random.fork_rng(devices=[]), _Widening():  # type: ignore[no-untyped-call]
            twin = type(encoding)(**encoding.config).double()
            share_parameters(twin, encoding)
            return run(subject.with_encoding(twin.train(encoding.training)))
    finally:
        torch.set_default_dtype(usual)


def _wide(value: Any) -> Any:
    if isinstance(value, Tensor) and value.dtype in WIDER:
        return value.to(WIDER[value.dtype])
    return WIDER.get(value, value) if isinstance(value, torch.dtype) else value
