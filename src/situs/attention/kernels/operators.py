"""Torch operators of attention: how each is registered, differentiated, mapped and traced."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Generic, TypeVar, get_type_hints

import torch
from torch import Tensor

from situs.attention.kernels.softmax import TWICE, sinks_vjp, with_sinks
from situs.compiled.watching import is_differentiated, is_plain
from situs.encodings.base import computing_dtype, without_autocast

G = TypeVar("G", bound=tuple[Any, ...])
S = TypeVar("S", bound=tuple[Any, ...])

TOKENS = 2  # tensors of whole numbers, which have no gradients and stand last
SINKS = -3  # where they stand among the tensors
SCHEMA = {
    Tensor: "Tensor",
    Tensor | None: "Tensor?",
    int: "SymInt",
    int | None: "SymInt?",
    float: "float",
    float | None: "float?",
    bool: "bool",
    list[int]: "int[]",
}

library: Any = torch.library.Library("situs", "FRAGMENT")  # type: ignore[no-untyped-call]


class Operator(Generic[G, S]):
    """Attention as an operator ``situs::name``, with one more for its gradients.

    It is run at once where nothing but the output is wanted, and as an autograd function where torch differentiates or
    maps it; a graph has it as one node.
    """

    def __init__(
        self,
        name: str,
        given: Callable[..., G],
        settings: Callable[..., S],
        forward: Callable[[G, S], tuple[Tensor, Tensor]],
        backward: Callable[[Tensor, Tensor, Tensor, G, S, Collection[str]], Mapping[str, Tensor | None]],
    ) -> None:
        """Register the operator.

        given: a NamedTuple of tensors: queries, keys and values first; sinks, query_tokens and key_tokens last.
        settings: a NamedTuple of plain numbers.
        forward: computes output and log-sum-exp without sinks.
        backward: computes gradients by name, from the output's gradient, output, log-sum-exp, ``given``, ``settings``
            and the names of the tensors whose gradients are wanted. Sinks, which the output has in it, are none of its.
        """
        self.given, self.settings, self.forward, self.backward = given, settings, forward, backward
        tensors, numbers = get_type_hints(given), get_type_hints(settings)
        self.tensors, self.numbers = len(tensors), len(numbers)
        self.differentiable = list(tensors)[:-TOKENS]
        takes = ", ".join(f"{SCHEMA[kind]} {field}" for field, kind in (tensors | numbers).items())
        gives = ", ".join(["Tensor"] * len(self.differentiable))
        library.define(f"{name}({takes}) -> (Tensor, Tensor)")
        library.define(
            f"{name}_backward(Tensor gradient, Tensor out, Tensor logsumexp, {takes}, bool[] wanted) -> ({gives})"
        )
        library.impl(name, _contiguous(self.attend), "CompositeExplicitAutograd")
        library.impl(f"{name}_backward", _contiguous(self.differentiate), "CompositeExplicitAutograd")
        torch.library.register_fake(f"situs::{name}", _fake_attention, lib=library)
        torch.library.register_fake(f"situs::{name}_backward", _fake_gradients, lib=library)
        torch.library.register_autograd(
            f"situs::{name}", self._graph_backward, setup_context=self.setup_context, lib=library
        )
        self.node = getattr(torch.ops.situs, name).default
        self.backward_node = getattr(torch.ops.situs, f"{name}_backward").default

    def __call__(self, given: G, settings: S) -> Tensor:
        """Attend, in whichever surroundings."""
        out: Tensor
        if torch.compiler.is_compiling():
            out, _ = self.node(*given, *settings)
            return out
        wants = torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in given)
        if not is_differentiated(requires_grad=wants) and is_plain(given[0]):
            out, _ = self.attend(*given, *settings)
        else:
            out, _ = _Attend.apply(self, *given, *settings)  # type: ignore[no-untyped-call]
        return out

    def attend(self, *args: Any) -> tuple[Tensor, Tensor]:
        """Compute output and log-sum-exp."""
        given, settings = self.given(*args[: self.tensors]), self.settings(*args[self.tensors :])
        return with_sinks(*self.forward(given, settings), given[SINKS])

    @without_autocast
    def differentiate(self, gradient: Tensor, out: Tensor, logsumexp: Tensor, *args: Any) -> tuple[Tensor, ...]:
        """Compute the gradients of all tensors but the tokens; those that are not wanted are empty, and tensors of
        their own, since an operator may not return one twice."""
        given, settings = self.given(*args[: self.tensors]), self.settings(*args[self.tensors : -1])
        wanted = [name for name, want in zip(self.differentiable, args[-1], strict=True) if want]
        found = dict(self.backward(gradient, out, logsumexp, given, settings, wanted))
        if "sinks" in wanted:
            found["sinks"] = sinks_vjp(gradient, out, logsumexp, given[SINKS])
        gradients = [found.get(name) if name in wanted else None for name in self.differentiable]
        return tuple(out.new_empty(0) if each is None else each for each in gradients)

    def setup_context(self, ctx: Any, inputs: Sequence[Any], output: tuple[Tensor, Tensor]) -> None:
        """Save what the gradients are computed from."""
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*output, *inputs[: self.tensors])
        ctx.settings = inputs[self.tensors :]

    def gradients(
        self, ctx: Any, gradient: Tensor, needed: Sequence[bool], differentiate: Callable[..., tuple[Tensor, ...]]
    ) -> tuple[Tensor | None, ...]:
        """Give a gradient, or None, for each argument, of those that ``differentiate`` computes."""
        wanted = list(needed[: len(self.differentiable)])
        found = differentiate(gradient, *ctx.saved_tensors, *ctx.settings, wanted)
        others = [None] * (TOKENS + self.numbers)
        return (*(each if want else None for each, want in zip(found, wanted, strict=True)), *others)

    def _graph_backward(self, ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        """The derivative inside a graph, which is differentiated once."""
        return self.gradients(ctx, gradient, ctx.needs_input_grad, self.backward_node)


class _Attend(torch.autograd.Function):
    """An operator, which is the first argument, with its derivative."""

    @staticmethod
    def forward(operator: Operator[Any, Any], *args: Any) -> tuple[Tensor, Tensor]:
        out, logsumexp = operator.attend(*args) if is_plain(args[0]) else operator.node(*args)
        return out, logsumexp

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.operator = inputs[0]
        ctx.operator.setup_context(ctx, inputs[1:], output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        def differentiate(*args: Any) -> tuple[Tensor, ...]:
            found: tuple[Tensor, ...] = _AttendBackward.apply(ctx.operator, *args)  # type: ignore[no-untyped-call]
            return found

        return (None, *ctx.operator.gradients(ctx, gradient, ctx.needs_input_grad[1:], differentiate))

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        return _for_each(_Attend, info.batch_size, in_dims, args)


class _AttendBackward(torch.autograd.Function):
    """The gradients, which cannot be differentiated again."""

    @staticmethod
    def forward(operator: Operator[Any, Any], *args: Any) -> tuple[Tensor, ...]:
        found: tuple[Tensor, ...] = (
            operator.differentiate(*args) if is_plain(args[0]) else operator.backward_node(*args)
        )
        return found

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Save nothing."""

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        raise RuntimeError(TWICE)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        return _for_each(_AttendBackward, info.batch_size, in_dims, args)


def _for_each(function: Any, count: int, in_dims: Sequence[Any], args: Sequence[Any]) -> tuple[Any, Any]:
    """Call a function for each of a batch that ``torch.func.vmap`` maps over, one after another."""
    found = [
        function.apply(
            *(arg.select(dim, number) if isinstance(dim, int) else arg for arg, dim in zip(args, in_dims, strict=True))
        )
        for number in range(count)
    ]
    stacked = tuple(torch.stack(parts) for parts in zip(*found, strict=True))
    return stacked, (0,) * len(stacked)


def _contiguous(function: Callable[..., tuple[Tensor, ...]]) -> Callable[..., tuple[Tensor, ...]]:
    """In graphs strides are known ahead: results lie as the fake ones do. Torch's kernel has its own order."""

    def laid_out(*args: Any) -> tuple[Tensor, ...]:
        return tuple(each.contiguous() for each in function(*args))

    return laid_out


def _fake_attention(query: Tensor, key: Tensor, value: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    """What attention gives, for a graph to know; queries may have more axes before (batch, heads, query, head_dim)."""
    shape = query.shape[-4:-1]
    return query.new_empty(*shape, value.shape[-1]), query.new_empty(shape, dtype=computing_dtype(query.dtype))


def _fake_gradients(gradient: Tensor, out: Tensor, logsumexp: Tensor, *args: Any) -> tuple[Tensor, ...]:
    """What a backward pass gives, for a graph to know: a tensor like each whose gradient is wanted, which stand first,
    and an empty one for the others. Which are wanted stands last."""
    wanted: Sequence[bool] = args[-1]
    return tuple(
        torch.empty_like(each, memory_format=torch.contiguous_format)
        if want and each is not None
        else gradient.new_empty(0)
        for each, want in zip(args, wanted, strict=False)
    )


def of_key_heads(gradient: Tensor, source: Tensor) -> Tensor:
    """Sum up over the query heads that a key head serves."""
    group = gradient.shape[1] // source.shape[1]
    heads = source.shape[1], group
    return gradient if group == 1 else gradient.view(len(gradient), *heads, *gradient.shape[2:]).sum(2)


def without_padding(tensor: Any, tokens: Tensor | None) -> Any:
    """Put zeros for padding, which tokens tell."""
    return None if tensor is None else tensor.masked_fill(tokens[:, None, 3, :, None] == 0, 0)  # type: ignore[index]
