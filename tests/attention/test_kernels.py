"""The table of kernels: one kernel a file or folder, and none that knows another."""

from __future__ import annotations

import ast
import pathlib
from typing import get_args

import pytest
import torch

import situs.attention.kernels
from situs import attend
from situs.attention import reference
from situs.attention.attend import KERNELS, Impl
from tests.attention.attention_cases import build, tensors

ROOM = pathlib.Path(situs.attention.kernels.__file__).parent


@pytest.mark.parametrize("name", sorted(set(KERNELS) - {"reference"}))
def test_every_kernel_is_a_file_or_folder_of_its_own(name: str) -> None:
    kernel = KERNELS[name]
    assert kernel.cannot.__module__ == kernel.run.__module__ == f"situs.attention.kernels.{name}"


def imported(path: pathlib.Path) -> set[str]:
    """The modules of the room that a file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("situs.attention.kernels"):
            rest = node.module.removeprefix("situs.attention.kernels").removeprefix(".").split(".")
            found |= {rest[0]} if rest[0] else {alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("path", sorted(ROOM.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOM)))
def test_no_kernel_imports_another(path: pathlib.Path) -> None:
    owner = path.relative_to(ROOM).parts[0].removesuffix(".py")
    assert not (imported(path) & set(KERNELS)) - {owner}


def test_every_name_of_a_kernel_is_one_of_the_table() -> None:
    assert set(get_args(Impl)) == {"auto", *KERNELS}


@pytest.mark.parametrize(
    ("impl", "name"),
    [
        ("flash", "rotary"),
        ("flash", "tupe"),
        ("toeplitz", "t5"),
        ("toeplitz", "deberta, tied"),
        ("blockwise", "fire"),
        ("blockwise", "deberta, tied"),
        ("dense", "fire"),
        ("reference", "shaw"),
    ],
)
@pytest.mark.parametrize(("queries", "kv_heads"), [(7, 4), (7, 2), (1, 2)])
def test_each_serves_what_it_is_for(impl: Impl, name: str, queries: int, kv_heads: int) -> None:
    encoding, qkv = build(name), tensors(queries, 7, kv_heads=kv_heads)
    out = attend(*qkv, encoding=encoding, causal=True, impl=impl)
    torch.testing.assert_close(out, reference(*qkv, encoding=encoding, causal=True), atol=1e-10, rtol=1e-10)
