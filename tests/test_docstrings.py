"""Every example in a docstring runs and gives what it says."""

import doctest
import importlib
import pathlib

import pytest

import situs

SOURCE = pathlib.Path(situs.__file__).parent
MODULES = [
    ".".join(["situs", *path.relative_to(SOURCE).with_suffix("").parts]).removesuffix(".__init__")
    for path in sorted(SOURCE.rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]

pytestmark = pytest.mark.once


@pytest.mark.parametrize("name", MODULES)
def test_examples_give_what_they_say(name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    found = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    assert found.attempted, f"no example of {name} was found"
    assert not found.failed
