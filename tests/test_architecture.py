"""The package keeps its shape: imports point one way, import stays light, public names have one address."""

import ast
import json
import pathlib
import subprocess
import sys

import pytest

import situs

PACKAGE = pathlib.Path(situs.__file__).parent

# Each layer may import those before it, and itself.
LAYERS = ["functional", "positions", "registry", "encodings", "attention", "checks", "lab", "plots", "cli"]


def imported_layers(path: pathlib.Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
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
    # types alone may be named from a later layer, and never at run time
    later = imported_layers(path) - allowed
    typing_only = {"registry.py": {"encodings"}}.get(path.name, set())
    assert later <= typing_only, f"{path.name} imports {sorted(later - typing_only)}"


def test_all_is_sorted_and_true() -> None:
    assert set(situs.__all__) == {name for name in situs.__all__ if hasattr(situs, name)}
    assert situs.__all__ == sorted(situs.__all__, key=lambda name: (not name.isupper(), name[0].islower(), name))
    assert len(set(situs.__all__)) == len(situs.__all__)


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
