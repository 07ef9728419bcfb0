"""The modes of torch that checks run in: the usual ones whatever the caller's are, and float64 throughout, which shows
what float32 lost."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from situs.checks.bench import Bench
from situs.encodings.base import Encoding

WIDER = dict.fromkeys((torch.float16, torch.bfloat16, torch.float32), torch.float64)
WIDER |= dict.fromkeys((torch.complex32, torch.complex64), torch.complex128)


@contextmanager
def usual_modes() -> Iterator[None]:
    """Record gradients, and create and compute in float32 on the CPU, whatever mode of torch the caller is in."""
    # a default device is a mode that sees every operation, and takes torch.compile seconds to see through
    device = nullcontext() if torch.get_default_device().type == "cpu" else torch.device("cpu")
    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        device,
        torch.autocast("cpu", enabled=False),
        default_dtype(torch.float32),
    ):
        yield


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Create tensors in ``dtype`` where none is given."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class _Widening(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Make every operation take and give float64, whatever dtype it was written with."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*tree_map(_wide, args), **tree_map(_wide, kwargs or {}))


def widened(bench: Bench, run: Callable[[Bench], Tensor]) -> Tensor:
    """Return what ``run`` gives for the same encoding with every operation in float64; where one of its own operations
    has no float64, what it gives for an encoding cast to it."""
    try:
        return _made_again(bench, run)
    except Exception:  # a user's kernel may raise anything
        return run(bench.with_encoding(copy.deepcopy(bench.encoding).double()))


def _made_again(bench: Bench, run: Callable[[Bench], Tensor]) -> Tensor:
    """Run in float64 with an encoding that is made anew, so that its tables are float64 too."""
    encoding = bench.encoding
    with default_dtype(torch.float64), torch.random.fork_rng(devices=[]), _Widening():  # type: ignore[no-untyped-call]
        twin = type(encoding)(**encoding.config).double()
        share_parameters(twin, encoding)
        return run(bench.with_encoding(twin.train(encoding.training)))


def share_parameters(taker: Encoding, giver: Encoding) -> None:
    """Load the giver's parameters, but no table that it saves."""
    taker.load_state_dict({name: parameter.detach() for name, parameter in giver.named_parameters()}, strict=False)


def _wide(value: Any) -> Any:
    if isinstance(value, Tensor) and value.dtype in WIDER:
        return value.to(WIDER[value.dtype])
    return WIDER.get(value, value) if isinstance(value, torch.dtype) else value
