"""Write the lists of public names into src/situs, from the files in encodings/ and the table in situs/__init__.py.

python docs/names.py            write them
python docs/names.py --check    only say whether they are as they should be

An encoding is named where it is registered, in its own file, and nowhere else by hand. The registry must know its name
before that file is loaded, and a static type checker, which runs nothing, must read its class in situs/__init__.py.
Files are read, not imported, so that this works however wrong the lists are.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "src" / "situs"
BEGIN, END = "# names: begin", "# names: end"


def registered() -> dict[str, tuple[str, str]]:
    """Find name, module and class of every encoding that a file in encodings/ registers."""
    found = {}
    for path in sorted((PACKAGE / "encodings").glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            name = _name_of(node) if isinstance(node, ast.ClassDef) else None
            if isinstance(node, ast.ClassDef) and name is not None:
                found[name] = (f"situs.encodings.{path.stem}", node.name)
    return dict(sorted(found.items()))


def _name_of(node: ast.ClassDef) -> str | None:
    """Read ``name`` out of ``@register(name=...)``."""
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "register":
            return str({each.arg: ast.literal_eval(each.value) for each in decorator.keywords}["name"])
    return None


def on_demand() -> dict[str, tuple[str, ...]]:
    """Read the table of all other public names."""
    for node in ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_ON_DEMAND":
            table: dict[str, tuple[str, ...]] = ast.literal_eval(node.value)
            return table
    raise ValueError("situs/__init__.py must assign _ON_DEMAND, since public names are listed there; got none.")


def lists() -> dict[str, list[str]]:
    """Make the lines that belong between the marks of each file."""
    encodings = registered()
    table = ["ENCODINGS: dict[str, tuple[str, str]] = {"]
    table += [f'    "{name}": ("{module}", "{cls}"),' for name, (module, cls) in encodings.items()] + ["}"]
    pairs = [(module, name) for module, several in on_demand().items() for name in several]
    pairs += [*encodings.values(), ("situs", "plots")]  # public too, but not in __all__, since it needs matplotlib
    # constants, classes, then functions, as ruff sorts them
    pairs.sort(key=lambda pair: (pair[0], not pair[1].isupper(), pair[1][0].islower(), pair[1]))
    imports = [f"    from {module} import {name} as {name}" for module, name in pairs]
    return {"registry.py": table, "__init__.py": ["if TYPE_CHECKING:", *imports]}


def rewritten(text: str, lines: list[str]) -> str:
    """Put lines between the marks of a file."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return "\n".join([head + BEGIN, *lines, END]) + tail


def main() -> int:
    """Write the lists, or say which are not as they should be."""
    check, wrong = sys.argv[1:] == ["--check"], 0
    for name, lines in lists().items():
        path = PACKAGE / name
        before = path.read_text(encoding="utf-8")
        after = rewritten(before, lines)
        if before == after:
            continue
        wrong += 1
        if check:
            print(f"src/situs/{name} must list every public name, since they are loaded on demand. Run make names.")
        else:
            path.write_text(after, encoding="utf-8")
    return int(check and wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
