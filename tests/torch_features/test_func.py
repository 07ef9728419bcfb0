"""torch.func: transforms of modules give what plain autograd gives."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, jacrev, jvp, stack_module_state, vjp, vmap
from torch.nn.functional import scaled_dot_product_attention

from tests.torch_features.comparing import assert_same, by_name, run, weighed
from tests.torch_features.forms import Form
from tests.torch_features.table import Cell, covers

pytestmark = [
    pytest.mark.once,
    # Said by torch of its own operations for plain attention too; of an operation of ours it would be an error.
    pytest.mark.filterwarnings("ignore:There is a performance drop because .* batching rule for aten:UserWarning"),
]

LENGTH = 40


def detached(module: Form, length: int = LENGTH, **options: int) -> tuple[Tensor, ...]:
    """Inputs as transforms take them."""
    return tuple(each.detach() for each in module.inputs(length, **options))


@covers("torch.func", "grad")
def test_grad_gives_the_gradients_of_inputs(cell: Cell) -> None:
    module = cell.build()
    inputs = detached(module)
    found = grad(lambda *inputs: weighed(module(*inputs)), argnums=tuple(range(len(inputs))))(*inputs)
    assert_same(found, run(module, module.inputs(LENGTH))[1 : 1 + len(inputs)])


@covers("torch.func", "functional_call")
def test_functional_call_gives_the_gradients_of_parameters_that_are_handed_over(cell: Cell) -> None:
    module, other = cell.build(), cell.build(seed=5)
    inputs, handed = detached(module), {name: each.detach() for name, each in other.named_parameters()}
    found = grad(lambda handed: weighed(functional_call(module, handed, inputs)))(handed)
    assert_same(by_name(found), run(other, inputs)[1:])
    assert all(isinstance(each, torch.nn.Parameter) for each in module.parameters())


@covers("torch.func", "vjp")
def test_vjp_gives_the_output_and_the_gradients_of_inputs(cell: Cell) -> None:
    module = cell.build()
    inputs = detached(module)
    out, back = vjp(module, *inputs)[:2]
    weights = grad(weighed)(out)
    assert_same([out, *back(weights)], run(module, module.inputs(LENGTH))[: 1 + len(inputs)])


@covers("torch.func", "vmap")
def test_vmap_gives_what_a_loop_over_the_inputs_gives(cell: Cell) -> None:
    module = cell.build()
    several = [detached(module, seed=seed) for seed in (2, 3, 4)]
    stacked = tuple(torch.stack(each) for each in zip(*several, strict=True))
    assert_same([vmap(module)(*stacked)], [torch.stack([module(*inputs) for inputs in several])])
    handed = {name: each.detach() for name, each in module.named_parameters()}

    def loss(handed: dict[str, Tensor], *inputs: Tensor) -> Tensor:
        return weighed(functional_call(module, handed, inputs))

    by_sample = vmap(grad(loss), in_dims=(None, *(0 for _ in stacked)))(handed, *stacked)
    expected = [run(module, inputs)[1:] for inputs in several]
    assert_same(by_name(by_sample), [torch.stack(each) for each in zip(*expected, strict=True)])


@covers("torch.func", "ensemble")
def test_vmap_over_parameters_gives_what_each_module_gives(cell: Cell) -> None:
    modules: list[torch.nn.Module] = [cell.build(seed=seed) for seed in (1, 5, 6)]
    handed, buffers = stack_module_state(modules)
    module = cell.build()
    inputs = detached(module)

    def loss(handed: dict[str, Tensor], buffers: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        out = functional_call(module, (handed, buffers), inputs)
        return weighed(out), out

    gradients, out = vmap(grad(loss, has_aux=True))(handed, buffers)
    expected = [run(each, inputs) for each in modules]
    assert_same([out, *by_name(gradients)], [torch.stack(each) for each in zip(*expected, strict=True)])


@covers("torch.func", "jacrev")
def test_jacrev_gives_a_gradient_for_every_output(cell: Cell) -> None:
    module = cell.build()
    x, *others = detached(module, 5, batch=1)
    found = jacrev(lambda x: module(x, *others))(x)
    leaf = x.clone().requires_grad_()
    outputs = module(leaf, *others).flatten()[::7]
    expected = [torch.autograd.grad(each, leaf, retain_graph=True)[0] for each in outputs]
    assert_same([found.flatten(0, -1 - x.ndim)[::7]], [torch.stack(expected)])


def assert_right_or_refused(
    ours: Callable[[], Tensor],
    expected: Callable[[], Tensor],
    plain: Callable[[], object],
    *,
    said: str,
    alike: str,
    record_property: Callable[[str, str], None],
) -> None:
    """Torch refuses plain attention with what it ``said``; ours is right, or refused with words ``alike``."""
    with pytest.raises(RuntimeError, match=said):
        plain()
    try:
        found = ours()
    except RuntimeError as error:
        if not re.search(alike, str(error)):
            raise
        record_property("reason", f"torch refuses plain `scaled_dot_product_attention`: {said}")
        return
    torch.testing.assert_close(found, expected(), atol=1e-5, rtol=1e-5)


def doubled(module: Form) -> tuple[Tensor, ...]:
    """Inputs in float64, for differences."""
    module.double()
    return tuple(each.double() for each in detached(module, 9))


@covers("torch.func", "jvp")
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_forward_mode_is_right_or_refused_as_for_plain_attention(cell: Cell, record_property: Any) -> None:
    module = cell.build()
    x, *others = doubled(module)
    along, step = x.cos(), 1e-6
    heads = torch.randn(1, 2, 9, 8)
    assert_right_or_refused(
        lambda: jvp(lambda x: module(x, *others), (x,), (along,))[1],
        lambda: (module(x + step * along, *others) - module(x - step * along, *others)) / (2 * step),
        lambda: jvp(lambda x: scaled_dot_product_attention(x, heads, heads), (heads,), (heads,)),
        said="Trying to use forward AD with _scaled_dot_product_flash_attention_for_cpu that does not support it",
        alike="forward AD|forward mode AD",
        record_property=record_property,
    )


@covers("torch.func", "second order")
def test_second_derivatives_are_right_or_refused_as_for_plain_attention(cell: Cell, record_property: Any) -> None:
    module = cell.build()
    x, *others = doubled(module)
    along, step = x.cos(), 1e-6
    heads = torch.randn(1, 2, 9, 8)
    once = grad(lambda x: weighed(module(x, *others)))
    plain = grad(lambda x: weighed(scaled_dot_product_attention(x, heads, heads)))
    assert_right_or_refused(
        lambda: grad(lambda x: (once(x) * along).sum())(x),
        lambda: (once(x + step * along) - once(x - step * along)) / (2 * step),
        lambda: grad(lambda x: plain(x).square().sum())(heads),
        said="derivative for aten::_scaled_dot_product_flash_attention_for_cpu_backward is not implemented",
        alike="derivative for .* is not implemented|once_differentiable|double backward",
        record_property=record_property,
    )
