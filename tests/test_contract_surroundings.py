"""The contract gives one verdict, whatever mode of torch its caller is in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import pytest
import torch

import situs
from situs import check_encoding
from situs.cli.check import SIZES
from tests import broken_encodings

pytestmark = pytest.mark.compiled


@contextmanager
def wide_default_dtype() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


MODES: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "default dtype": wide_default_dtype,
    "default device": lambda: torch.device("meta"),
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
}


@contextmanager
def all_modes() -> Iterator[None]:
    with ExitStack() as stack:
        for mode in MODES.values():
            stack.enter_context(mode())
        yield


@pytest.mark.thin(40)
@pytest.mark.parametrize("name", situs.names())
def test_every_registered_encoding_keeps_the_contract_in_all_modes_at_once(name: str) -> None:
    encoding = situs.entry(name).build(**SIZES)
    with all_modes():
        report = check_encoding(encoding, raise_on_failure=False)
    assert report.failures == {}


@pytest.mark.thin(32)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["fire", "learned", "rotary", "shaw"])
def test_a_sound_encoding_is_accused_in_no_mode(name: str, mode: str) -> None:
    encoding = situs.entry(name).build(**SIZES)
    with MODES[mode]():
        report = check_encoding(encoding, raise_on_failure=False)
    assert report.failures == {}


@pytest.mark.thin(2)
@pytest.mark.parametrize("mode", ["no_grad", "inference_mode", "default dtype", "autocast"])
def test_an_encoding_that_was_made_in_a_mode_is_checked_outside_of_it(mode: str) -> None:
    with MODES[mode]():
        encoding = situs.entry("shaw").build(**SIZES)
        report = check_encoding(encoding, raise_on_failure=False)
    assert report.failures == {}


@pytest.mark.parametrize("broken", [broken_encodings.CutsGradients, broken_encodings.NeverLearns])
def test_a_broken_gradient_is_caught_without_grad_mode_too(broken: type[situs.Encoding]) -> None:
    encoding = broken()
    with torch.no_grad():
        report = check_encoding(encoding, raise_on_failure=False)
    assert broken_encodings.CAUGHT_BY[broken] in report.failures


def test_the_modes_of_the_caller_are_as_they_were() -> None:
    with all_modes():
        check_encoding(broken_encodings.Sound(), raise_on_failure=False)
        assert torch.is_inference_mode_enabled()
        assert not torch.is_grad_enabled()
        assert torch.get_default_dtype() == torch.float64
        assert torch.get_default_device().type == "meta"
        assert torch.is_autocast_enabled("cpu")
