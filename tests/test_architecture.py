"""The package keeps its shape: imports point one way, import stays light, public names have one address."""

import ast
import json
import pathlib
import subprocess
import sys
from graphlib import TopologicalSorter
from types import ModuleType

import pytest

import situs
import situs.attention
from situs import registry
from situs.cli.check import SIZES
from situs.encodings import bands, scaling

pytestmark = pytest.mark.once

PACKAGE = pathlib.Path(situs.__file__).parent
ROOT = pathlib.Path(__file__).parent.parent

# Each layer may import those before it, and itself.
LAYERS = [
    "arguments",
    "functional",
    "compiled",
    "rotation",
    "positions",
    "registry",
    "encodings",
    "attention",
    "checks",
    "models",
    "huggingface",
    "lab",
    "plots",
    "cli",
    "__main__",
]


# What may be named from a later layer as a type, within ``if TYPE_CHECKING``.
TYPES = {"registry/__init__.py": {"encodings"}, "registry/own.py": {"encodings"}}


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


def modules_named(path: pathlib.Path, modules: set[str]) -> set[str]:
    """Which of some modules a file imports, for types too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inner & modules or {node.module} & modules
    return found


def test_attention_can_be_read_from_bottom_to_top_in_eight_steps() -> None:
    """A file stands one level above the highest that it imports, and the highest at 7."""
    files = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
        for path in (PACKAGE / "attention").rglob("*.py")
    }
    below = {name: modules_named(path, set(files)) - {name} for name, path in files.items()}
    levels = dict.fromkeys(TopologicalSorter(below).static_order(), 0)  # which refuses cycles
    for name in levels:
        levels[name] = max((levels[each] + 1 for each in below[name]), default=0)
    assert levels["situs.attention.layer"] == max(levels.values()) == 7


def test_a_type_is_told_from_an_import_that_runs() -> None:
    code = (
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from situs.lab.comparing.trial import Trial\n"
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


def test_lists_of_names_are_what_the_files_of_encodings_say() -> None:
    """Whoever adds an encoding edits none of them: ``make names`` does."""
    ran = subprocess.run([sys.executable, ROOT / "docs" / "names.py", "--check"], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout + ran.stderr) == (0, "")
    for name, listed in registry.ENCODINGS.items():
        entry = situs.entry(name)
        learned = any(True for _ in entry.build(**SIZES).parameters())
        made = (entry.cls.__module__, entry.cls.__name__, entry.place, learned, entry.paper, entry.formula)
        assert (entry.name, made) == (name, listed)
        assert getattr(situs, listed.cls) is entry.cls


def test_every_scaling_is_listed_with_what_its_class_says() -> None:
    defined = [*vars(scaling).values(), *vars(bands).values()]
    classes = {each.__name__: each for each in defined if isinstance(each, type)}
    public = {name for name, each in classes.items() if issubclass(each, situs.Scaling) and each is not situs.Scaling}
    listed = {each.cls for each in registry.SCALINGS.values()}
    assert listed == {name for name in public if not name.startswith("_") and name not in ("Bands", "Stretch")}
    for name, each in registry.SCALINGS.items():
        cls = getattr(situs, each.cls)
        assert (cls.scaling_name, cls.paper, cls.formula) == (name, each.paper, each.formula)
        assert each.paper
        assert each.formula


def test_a_list_that_lacks_a_name_is_told_and_mended(tmp_path: pathlib.Path) -> None:
    files = ("__init__.py", "registry/listed.py", *(f"encodings/{name}.py" for name in ("alibi", "base", "bias")))
    for path in ("docs/names.py", *(f"src/situs/{file}" for file in files)):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text((ROOT / path).read_text(encoding="utf-8"), encoding="utf-8")
    command = [sys.executable, str(tmp_path / "docs" / "names.py")]
    found = subprocess.run([*command, "--check"], capture_output=True, text=True)
    assert found.returncode == 1
    assert found.stdout.splitlines() == [
        f"src/situs/{name} must list every public name, since they are loaded on demand. Run make names."
        for name in ("registry/listed.py", "__init__.py")
    ]
    assert [subprocess.run([*command, *more]).returncode for more in ([], ["--check"])] == [0, 0]
    listed = (tmp_path / "src" / "situs" / "registry" / "listed.py").read_text(encoding="utf-8")
    assert 'ENCODINGS: dict[str, Listed] = {\n    "alibi": Listed(\n' in listed
    assert '"situs.encodings.alibi", "ALiBi", "score", False,\n' in listed
    assert listed.count(": Listed(") == 1


def test_what_is_loaded_on_demand_is_not_loaded_before() -> None:
    code = "import sys, situs; print(*sorted(name for name in sys.modules if name.startswith('situs')))"
    parts = ("listed", "origins", "own", "spelling")
    assert run(code) == f"situs situs.registry {' '.join(f'situs.registry.{part}' for part in parts)}\n"
    code = "import situs; print(situs.attention.attend is situs.attend, situs.rotation.rotate.__name__)"
    assert run(code) == "True rotate\n"


def test_what_the_documents_name_can_be_reached() -> None:
    assert issubclass(situs.Tupe, situs.PositionProduct)
    code = "import sys, situs; a = 'situs.attention.parallel' in sys.modules; situs.attention.attend_sharded; print(a)"
    assert run(code) == "False\n"


def test_files_are_short() -> None:
    long = {path.name: len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py")}
    assert {name: lines for name, lines in long.items() if lines > 400} == {}


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_no_public_name_loads_anything_heavier_than_torch() -> None:
    code = (
        "import sys, json, torch; a = list(sys.modules); from situs import *; print(json.dumps([a, list(sys.modules)]))"
    )
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
