"""Encodings by the names that people write, their own among them."""

import sys
from pathlib import Path

import pytest

import situs
from situs.encodings.schedule import find_entry
from tests.raising import raises_exactly

OWN = """
import situs

class Plain(situs.NoPE):
    def __init__(self, *, num_heads: int = 2) -> None:
        super().__init__()
        self.num_heads = num_heads
"""


def test_registered_ones_have_their_entry() -> None:
    assert find_entry("rotary") is situs.entry("rotary")
    assert find_entry("nope") is situs.entry("none")


def test_a_class_of_ones_own_is_found_where_one_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "found_of_ones_own.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    found = find_entry("found_of_ones_own:Plain")
    assert sys.path == before
    assert (found.name, found.place, found.paper, found.formula) == ("found_of_ones_own:Plain", "nowhere", "", "")
    assert list(found.options) == ["num_heads"]
    assert found.build(num_heads=3, dim=8).config == {"num_heads": 3}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rotery", f"name must be one of {', '.join(situs.names())}; got 'rotery'. Did you mean 'rotary'?"),
        ("no_such_module:Thing", "name must be MODULE:CLASS with a module that can be imported; got "
         "'no_such_module:Thing': No module named 'no_such_module'."),
        ("json:JSONDecoder", "JSONDecoder must be a situs.Encoding in module json; got "
         "<class 'json.decoder.JSONDecoder'>."),
    ],
)  # fmt: skip
def test_what_is_no_encoding_is_refused(name: str, message: str) -> None:
    with raises_exactly(ValueError, message):
        find_entry(name)
