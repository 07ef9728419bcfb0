"""The table of kernels: one kernel, one file."""

from __future__ import annotations

from typing import get_args

import pytest
import torch

from situs import attend
from situs.attention import reference
from situs.attention.dispatch import PREFERENCES, Impl
from situs.attention.kernels import KERNELS
from tests.attention.attention_cases import build, tensors


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_is_a_file_of_its_own(name: str) -> None:
    kernel = KERNELS[name]
    assert kernel.cannot.__module__ == kernel.run.__module__ == f"situs.attention.{name}"


def test_every_name_of_a_kernel_is_one_of_the_table() -> None:
    assert set(get_args(Impl)) == {"auto", *KERNELS}
    assert all(set(preferred) <= set(KERNELS) for preferred in PREFERENCES.values())


@pytest.mark.parametrize(
    ("impl", "name"),
    [
        ("flash", "rotary"),
        ("flash", "tupe"),
        ("toeplitz", "t5"),
        ("blockwise", "deberta, tied"),
        ("blockwise", "fire"),
        ("reference", "shaw"),
    ],
)
@pytest.mark.parametrize(("queries", "kv_heads"), [(7, 4), (7, 2), (1, 2)])
def test_each_serves_what_it_is_for(impl: Impl, name: str, queries: int, kv_heads: int) -> None:
    encoding, qkv = build(name), tensors(queries, 7, kv_heads=kv_heads)
    out = attend(*qkv, encoding=encoding, causal=True, impl=impl)
    torch.testing.assert_close(out, reference(*qkv, encoding=encoding, causal=True), atol=1e-10, rtol=1e-10)
