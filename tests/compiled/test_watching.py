"""Who watches operations and tensors, and a torch that no longer tells."""

import ast
import pathlib
import subprocess
import sys

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

import situs
from situs.compiled.watching import (
    count_of_modes,
    has_derivative,
    is_batched,
    is_differentiated,
    is_traced,
    is_transformed,
)

PACKAGE = pathlib.Path(situs.__file__).parent


def test_nobody_watches_plain_tensors() -> None:
    x = torch.randn(3)
    assert not is_differentiated(x.requires_grad)
    assert not has_derivative(x)
    assert not is_traced()
    assert not is_batched(x)
    assert not is_transformed(x)
    assert count_of_modes() == 0


def test_reverse_mode_watches_what_requires_gradients_while_they_are_wanted() -> None:
    x = torch.randn(3, requires_grad=True)
    assert is_differentiated(x.requires_grad)
    assert has_derivative(x)
    with torch.no_grad():
        assert not is_differentiated(x.requires_grad)
        assert has_derivative(x)


def test_forward_mode_watches_all_operations_and_the_tensors_that_have_tangents() -> None:
    x = torch.randn(3)
    with forward_ad.dual_level():
        assert is_differentiated(requires_grad=False)
        assert not has_derivative(x)
        assert has_derivative(forward_ad.make_dual(x, x))
    assert not is_differentiated(requires_grad=False)


@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.vmap], ids=["grad", "vmap"])
def test_torch_func_watches_all_operations_and_the_tensors_it_was_handed(transform: type) -> None:
    other, seen = torch.randn(()), []

    def watched(x: Tensor) -> Tensor:
        seen.append(
            (is_differentiated(requires_grad=False), has_derivative(x), is_transformed(x), is_transformed(other))
        )
        return x.sum()

    transform(watched)(torch.randn(3))
    assert seen == [(True, True, True, False)]


def test_gradients_that_autograd_takes_at_once_are_told_apart() -> None:
    seen: list[bool] = []
    x = torch.randn(3, requires_grad=True)
    y = 2 * x
    y.register_hook(lambda gradient: seen.append(is_batched(gradient)))
    torch.autograd.grad(y, x, torch.ones(4, 3), is_grads_batched=True, retain_graph=True)
    torch.autograd.grad(y, x, torch.ones(3))
    assert seen == [True, False]


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_whoever_records_operations_is_known() -> None:
    modes, traces = [], []

    def recorded(x: Tensor) -> Tensor:
        modes.append(count_of_modes() > 0)
        traces.append(is_traced())
        return 2 * x

    make_fx(recorded)(torch.randn(3))
    torch.jit.trace(recorded, torch.randn(3), check_trace=False)
    assert modes == [True, False]
    assert traces == [False, True]


def private_names(path: pathlib.Path) -> set[str]:
    """What a file takes from ``torch._C`` by name."""
    return {
        alias.name
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch._C")
        for alias in node.names
    }


def test_private_names_of_torch_are_asked_for_in_one_file() -> None:
    asking = [path.name for path in PACKAGE.rglob("*.py") if private_names(path)]
    assert asking == ["watching.py"]


CHECK = """
import torch
from torch.autograd import forward_ad
{removal}
import situs
from situs.functional import rotate_real
from situs.encodings import hinges
from situs.functional.kernels import sum_of_hinges
rotary = situs.Rotary(head_dim=8)
x = torch.randn(1, 2, 5, 8, requires_grad=True)
table = rotary.table(situs.Positions.range(5, start=70_000))
expected = rotate_real(x, table.cos, table.sin, "halves")
assert torch.equal(rotary(x, 70_000), expected)
assert torch.equal(rotary.both(x.detach(), x.detach(), 70_000)[1], expected)
turned, wanted = (torch.autograd.grad(each.square().sum(), x)[0] for each in (rotary(x, 70_000), expected))
assert torch.equal(turned, wanted)
network = torch.rand(2, 5000), *torch.randn(2, 64), torch.randn(3, 64)
assert torch.equal(hinges.sum_of_hinges(*network), sum_of_hinges(*network))
"""


@pytest.mark.thin(3)
@pytest.mark.once
@pytest.mark.parametrize(
    "name", ["torch._C._dispatch_keys", "torch._C._functorch.is_legacy_batchedtensor", "forward_ad._current_level"]
)
def test_a_torch_that_renamed_a_private_name_is_served_by_plain_operations(name: str) -> None:
    renamed = f"{name}_2 = {name}; del {name}"
    run = subprocess.run([sys.executable, "-c", CHECK.format(removal=renamed)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
