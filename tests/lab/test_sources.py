"""The hash of one's own code: it changes with every file that a class is made from, and with no other."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from situs.cli import main
from situs.lab.naming import parse
from situs.lab.naming.sources import sources

pytestmark = pytest.mark.once

USES = """
import situs
from sources_helper import P
class Uses(situs.NoPE):
    power = P
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory for modules of one's own, which are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def test_encodings_of_ours_have_none() -> None:
    assert sources(parse("rotary&alibi/none+yarn")) == ""


@pytest.mark.parametrize("name", ["uses.py", "uses.py:Uses", "uses:Uses"])
def test_a_module_beside_the_class_counts_even_if_only_a_constant_comes_from_it(folder: Path, name: str) -> None:
    (folder / "uses.py").write_text(USES)
    (folder / "sources_helper.py").write_text("P = 1.5\n")
    (folder / "not_imported.py").write_text("P = 1.5\n")
    first = sources(parse(name))
    (folder / "not_imported.py").write_text("P = 2.5\n")
    assert sources(parse(name)) == first
    (folder / "sources_helper.py").write_text("P = 2.5\n")
    assert sources(parse(name)) != first
    assert len(first) == 16


def test_a_package_counts_as_a_whole(folder: Path) -> None:
    for name in ("sources_package/__init__.py", "sources_package/inner/__init__.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("")
    (folder / "sources_package/constants.py").write_text("P = 1.5\n")
    (folder / "sources_package/inner/uses.py").write_text(USES.replace("sources_helper", "sources_package.constants"))
    method = parse("sources_package.inner.uses:Uses")
    first = sources(method)
    (folder / "sources_package/constants.py").write_text("P = 2.5\n")
    assert sources(method) != first


def test_a_base_class_and_a_function_count_wherever_they_lie(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = folder / "elsewhere"
    (folder / "here").mkdir()
    elsewhere.mkdir()
    monkeypatch.syspath_prepend(str(elsewhere))
    (elsewhere / "sources_base.py").write_text("import situs\nclass Base(situs.NoPE):\n    pass\n")
    (elsewhere / "sources_rule.py").write_text("def rule():\n    return 1\n")
    (folder / "here/uses.py").write_text(
        "from sources_base import Base\nfrom sources_rule import rule\nclass Uses(Base):\n    pass\n"
    )
    found = [sources(parse("here/uses.py"))]
    for name in ("sources_base.py", "sources_rule.py"):
        (elsewhere / name).write_text((elsewhere / name).read_text() + "# edited\n")
        found.append(sources(parse("here/uses.py")))
    assert len(set(found)) == 3


LAZY = """
import situs
class Uses(situs.NoPE):
    def power(self):
        {}
"""


@pytest.mark.parametrize(
    "statement", ["import lazy_a.lazy_b", "from lazy_a.lazy_b import P", "from lazy_a import lazy_b"]
)
def test_a_module_that_is_imported_within_a_method_counts_and_is_not_run(folder: Path, statement: str) -> None:
    (folder / "uses.py").write_text(LAZY.format(statement))
    (folder / "lazy_a").mkdir()
    (folder / "lazy_a/__init__.py").write_text("raise SystemExit('run')\n")
    (folder / "lazy_a/lazy_b.py").write_text("def rule():\n    from .lazy_c import P\n    from ..... import beyond\n")
    (folder / "lazy_a/lazy_c.py").write_text("P = 1 +  # no Python\n")
    (folder / "lazy_c.py").write_text("P = 1\n")
    found = [sources(parse("uses.py"))]
    for name in ("lazy_a/__init__.py", "lazy_a/lazy_b.py", "lazy_a/lazy_c.py"):
        (folder / name).write_text((folder / name).read_text() + "# edited\n")
        found.append(sources(parse("uses.py")))
    assert len(set(found)) == 4
    (folder / "lazy_c.py").write_text("P = 2\n")  # not the one beside lazy_b
    assert sources(parse("uses.py")) == found[-1]
    assert not any(name.startswith("lazy_") for name in sys.modules)


def test_relative_imports_within_a_method_count(folder: Path) -> None:
    (folder / "lazy_package").mkdir()
    (folder / "lazy_package/__init__.py").write_text("")
    (folder / "lazy_package/uses.py").write_text(LAZY.format("from . import late; from .later import P"))
    (folder / "lazy_package/late.py").write_text("P = 1\n")
    (folder / "lazy_package/later.py").write_text("P = 1\n")
    found = [sources(parse("lazy_package.uses:Uses"))]
    for name in ("late", "later"):
        (folder / f"lazy_package/{name}.py").write_text("P = 2\n")
        found.append(sources(parse("lazy_package.uses:Uses")))
    assert len(set(found)) == 3


@pytest.mark.once
@pytest.mark.heavy
def test_a_comparison_trains_again_after_a_module_beside_the_class_was_edited(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "uses.py").write_text(USES)
    (folder / "sources_helper.py").write_text("P = 1.5\n")
    command = [
        "compare", "--encodings=uses.py,uses.py:Uses,alibi", "--tasks=copy", "--train-length=12", "--lengths=1",
        "--steps=2", "--dim=16", "--layers=1", "--heads=2", "--batch=4", "--seeds=1", "--workers=1", "--out=out",
    ]  # fmt: skip
    said = []
    for constant in ("1.5", "2.5"):
        (folder / "sources_helper.py").write_text(f"P = {constant}\n")
        assert main(command) == 0
        err = capsys.readouterr().err.splitlines()
        assert "uses.py:Uses is uses.py, since both name one class; it is shown under that name." in err
        said.append(next(line for line in err if line.startswith("2 trials")))
    assert said == ["2 trials.", "2 trials, 1 of them finished before."]
    page = (folder / "out/report.html").read_text(encoding="utf-8")
    assert "<dt>Own code</dt><dd>uses.py, hash " in page
