"""The package keeps its shape: imports point one way, import stays light, public names have one address."""

import ast
import json
import pathlib
import subprocess
import sys
from types import ModuleType

import pytest

import situs
import situs.attention

PACKAGE = pathlib.Path(situs.__file__).parent

# Each layer may import those before it, and itself.
LAYERS = ["functional", "positions", "registry", "encodings", "attention", "checks", "lab", "plots", "cli"]


# What may be named from a later layer as a type, within ``if TYPE_CHECKING``.
TYPES = {"registry.py": {"encodings"}}


def imported_layers(tree: ast.AST, *, types: bool) -> set[str]:
    """The layers that are imported for types alone, or else those that are imported when the code runs."""
    guarded = [
        node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    of_types = {inner for node in guarded for statement in node.body for inner in ast.walk(statement)}
    found: set[str] = set()
    for node in ast.walk(tree):
        if (node in of_types) != types:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "situs":
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("situs.")}
    return found


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_left_only(path: pathlib.Path) -> None:
    layer = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if layer == "__init__":
        return
    assert layer in LAYERS, f"{layer} is a new layer: say in LAYERS where it stands"
    allowed = set(LAYERS[: LAYERS.index(layer) + 1])
    tree = ast.parse(path.read_text(encoding="utf-8"))
    named = TYPES.get(str(path.relative_to(PACKAGE)), set())
    later = (imported_layers(tree, types=False) | imported_layers(tree, types=True) - named) - allowed
    assert not later, f"{path.name} imports {sorted(later)}"


def test_a_type_is_told_from_an_import_that_runs() -> None:
    code = (
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from situs.lab.trial import Trial\n"
        "else:\n    import situs.attention\n"
        "def later():\n    from situs.encodings.base import Encoding\n"
    )
    tree = ast.parse(code)
    assert imported_layers(tree, types=True) == {"lab"}
    assert imported_layers(tree, types=False) == {"attention", "encodings"}


def test_all_is_sorted_and_true() -> None:
    assert set(situs.__all__) == {name for name in situs.__all__ if hasattr(situs, name)}
    assert situs.__all__ == sorted(situs.__all__, key=lambda name: (not name.isupper(), name[0].islower(), name))
    assert len(set(situs.__all__)) == len(situs.__all__)


@pytest.mark.parametrize("module", [situs, situs.attention], ids=lambda module: module.__name__)
def test_names_that_are_loaded_on_demand_are_listed_before(module: ModuleType) -> None:
    code = f"import {module.__name__} as module; print(*dir(module))"
    listed = run(code).split()
    assert set(module.__all__) <= set(listed)
    assert "__name__" in listed
    assert listed == sorted(set(listed))
    assert "plots" not in listed  # whoever asks for all that is listed would need matplotlib


def test_what_the_documents_name_can_be_reached() -> None:
    assert issubclass(situs.Tupe, situs.PlaceScore)
    code = "import sys, situs; a = 'situs.attention.parallel' in sys.modules; situs.attention.attend_sharded; print(a)"
    assert run(code) == "False\n"


def test_files_are_short() -> None:
    long = {path.name: len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py")}
    assert {name: lines for name, lines in long.items() if lines > 400} == {}


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_import_loads_nothing_heavier_than_torch() -> None:
    code = "import sys, json, torch; a = list(sys.modules); import situs; print(json.dumps([a, list(sys.modules)]))"
    before, after = ({name.split(".")[0] for name in names} for names in json.loads(run(code)))
    assert after - before - set(sys.stdlib_module_names) == {"situs", "jaxtyping"}


def test_plots_are_there_after_import_and_matplotlib_comes_with_them() -> None:
    code = (
        "import sys, situs; a = 'matplotlib' in sys.modules; situs.plots.decay; "
        "print(a, 'matplotlib' in sys.modules, 'matplotlib.pyplot' in sys.modules, 'plots' in situs.__all__)"
    )
    assert run(code) == "False True False False\n"


def test_import_costs_at_most_five_percent_over_torch() -> None:
    code = (
        "import time; a = time.perf_counter(); import torch; b = time.perf_counter(); import situs; "
        "print((time.perf_counter() - b) / (b - a))"
    )
    assert min(float(run(code)) for _ in range(5)) <= 0.05
