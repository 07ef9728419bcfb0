"""Who watches: whether operations and tensors are followed by more than plain reverse mode.

Fast paths look at numbers or work on memory itself, which is hidden from whoever records operations, and from most of
what carries derivatives along. Torch tells of them under private names, which are asked for here and nowhere else. If
a version of torch has renamed one, everything counts as watched, and plain operations serve.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

__all__ = [
    "count_of_modes",
    "dispatch_keys",
    "has_derivative",
    "is_batched",
    "is_differentiated",
    "is_in_memory",
    "is_plain",
    "is_traced",
    "is_transformed",
]

try:  # torch's functions as they are, since a call around each would be felt in a step of decoding
    from torch._C import _are_functorch_transforms_active as transforms_are_active
    from torch._C import _dispatch_keys as dispatch_keys
    from torch._C import _is_tracing as is_traced
    from torch._C import _len_torch_dispatch_stack as count_of_modes
    from torch._C._functorch import is_functorch_wrapped_tensor as is_transformed
    from torch._C._functorch import is_legacy_batchedtensor as is_batched

    forward_ad._current_level  # noqa: B018 (asked for, to know that it is there)
except (ImportError, AttributeError):

    def transforms_are_active() -> bool:
        """Whether a transform of ``torch.func`` is at work."""
        return True

    def is_traced() -> bool:
        """Whether ``torch.jit.trace`` records what is done."""
        return True

    def count_of_modes() -> int:
        """How many modes follow every operation, as those of fake tensors and of ``make_fx`` do."""
        return 1

    def is_transformed(tensor: Tensor) -> bool:
        """Whether a tensor stands for others, inside a transform of ``torch.func``."""
        return True

    def is_batched(tensor: Tensor) -> bool:
        """Whether a tensor stands for many gradients that autograd takes at once."""
        return True

    dispatch_keys = None  # type: ignore[assignment]  # nobody asks while modes follow every operation


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor holds numbers that may be read, and no graph records what is done with it."""
    ordinary = type(tensor) in (Tensor, Parameter) and tensor.device.type != "meta"
    return ordinary and not (torch.compiler.is_compiling() or is_traced() or is_transformed(tensor))


def is_in_memory(tensor: Tensor) -> bool:
    """Whether a tensor's numbers are what lies in its memory, which is the processor's."""
    return (
        type(tensor) in (Tensor, Parameter)
        and tensor.is_cpu
        and tensor.layout == torch.strided
        and not (is_transformed(tensor) or is_batched(tensor) or tensor.is_neg() or tensor._is_zerotensor())
    )


def is_differentiated(requires_grad: bool) -> bool:
    """Whether something differentiates operations on tensors that do, or do not, require gradients: reverse mode,
    ``torch.func`` or forward mode."""
    reverse = requires_grad and torch.is_grad_enabled()
    return reverse or transforms_are_active() or forward_ad._current_level >= 0


def has_derivative(tensor: Tensor) -> bool:
    """Whether a tensor itself is what something differentiates by, in whichever mode."""
    return tensor.requires_grad or is_transformed(tensor) or _has_tangent(tensor)


def _has_tangent(tensor: Tensor) -> bool:
    """Whether forward mode carries a derivative with it."""
    if forward_ad._current_level < 0:
        return False
    return forward_ad.unpack_dual(tensor).tangent is not None  # type: ignore[no-untyped-call]
