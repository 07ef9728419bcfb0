"""Encodings of one's own, by module and by file."""

import pickle
import sys
from pathlib import Path

import pytest

import situs
from tests.raising import raises_exactly

OWN = """
import situs

class Plain(situs.NoPE):
    def __init__(self, *, num_heads: int = 2) -> None:
        super().__init__()
        self.num_heads = num_heads
"""
SECOND = """
class Second(Plain):
    pass
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_class_of_ones_own_is_found_where_one_works(here: Path) -> None:
    (here / "found_of_ones_own.py").write_text(OWN)
    before = list(sys.path)
    found = situs.entry("found_of_ones_own:Plain")
    assert sys.path == before
    assert (found.name, found.place, found.paper, found.formula) == ("found_of_ones_own:Plain", "nowhere", "", "")
    assert list(found.options) == ["num_heads"]
    assert found.build(num_heads=3, dim=8).config == {"num_heads": 3}


@pytest.mark.parametrize("written", ["deep/folder/own.py", "./deep/folder/own.py:Plain", "{here}/deep/folder/own.py"])
def test_a_class_is_found_by_its_file(written: str, here: Path) -> None:
    (here / "deep" / "folder").mkdir(parents=True)
    (here / "deep" / "folder" / "own.py").write_text("from beside import WHO\n" + OWN)
    (here / "deep" / "folder" / "beside.py").write_text("WHO = 'a module in the same folder'\n")
    before = list(sys.path)
    name = written.format(here=here)
    made = situs.create(name, num_heads=5)
    assert sys.path == before
    assert made.config == {"num_heads": 5}
    assert type(made) is situs.entry(name).cls is situs.entry("deep/folder/own.py:Plain").cls
    assert pickle.loads(pickle.dumps(made)).config == made.config


def test_files_of_one_name_stay_apart(here: Path) -> None:
    for folder, default in (("one", 2), ("two", 7)):
        (here / folder).mkdir()
        (here / folder / "own.py").write_text(OWN.replace("= 2", f"= {default}"))
    assert [situs.create(f"{folder}/own.py").config["num_heads"] for folder in ("one", "two")] == [2, 7]


def test_a_file_that_fails_leaves_no_module(here: Path) -> None:
    (here / "failing.py").write_text("raise RuntimeError('on purpose')")
    before = set(sys.modules)
    with pytest.raises(RuntimeError, match=r"^on purpose$"):
        situs.entry("failing.py")
    assert {name for name in set(sys.modules) - before if "failing" in name} == set()


def test_a_module_that_lacks_another_is_not_called_missing(here: Path) -> None:
    (here / "needs_another.py").write_text("import surely_not_installed")
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'surely_not_installed'$"):
        situs.entry("needs_another:Plain")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:Thing", "name must be MODULE:CLASS with a module that can be imported, or FILE.py:CLASS; got "
         "'no_such_module:Thing': No module named 'no_such_module'. Call it from the folder of no_such_module.py, or "
         "write the path to that file."),
        ("json:JSONDecoder", "JSONDecoder must be a situs.Encoding in json; got <class 'json.decoder.JSONDecoder'>."),
        ("both.py:Plane", "Plane must be a situs.Encoding in both.py; got None. Did you mean 'Plain'?"),
        ("both.py", "both.py must define one encoding where no class is named, since one is made from it; got Plain, "
         "Second. Write both.py:CLASS."),
        ("empty.py", "empty.py must define one encoding where no class is named, since one is made from it; got none. "
         "Write empty.py:CLASS."),
        ("not/there.py:Own", "name must lead to a file, since a class is read from it; got 'not/there.py:Own', and "
         "{here}/not/there.py is no file."),
    ],
)  # fmt: skip
def test_what_is_no_encoding_is_refused(name: str, message: str, here: Path) -> None:
    (here / "both.py").write_text(OWN + SECOND)
    (here / "empty.py").write_text("import situs\nfrom situs import NoPE\n")
    with raises_exactly(ValueError, message.format(here=here.resolve())):
        situs.entry(name)
