"""Write the lists of public names into src/situs, from the files in encodings/ and the table in situs/__init__.py.

python docs/names.py            write them
python docs/names.py --check    only say whether they are as they should be

An encoding is named where it is registered, in its own file, and a scaling where it is defined; nowhere else by hand.
The registry must know names, places, papers and formulas before those files are loaded, and a static type checker,
which runs nothing, must read the classes in situs/__init__.py. Files are read, not imported, so that this works however
wrong the lists are.
"""

from __future__ import annotations

import ast
import json
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple, TypeAlias

PACKAGE = Path(__file__).parent.parent / "src" / "situs"
BEGIN, END = "# names: begin", "# names: end"

Facts: TypeAlias = "tuple[str, str, str, bool, str, str]"
"""Module, class, place, whether it learns, paper and formula."""


class Defined(NamedTuple):
    """Hold a class of encodings/ as its file has it."""

    module: str
    node: ast.ClassDef


def defined() -> dict[str, Defined]:
    """Find every class of the files in encodings/."""
    return {
        node.name: Defined(f"situs.encodings.{path.stem}", node)
        for path in sorted((PACKAGE / "encodings").glob("*.py"))
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    }


def registered(classes: dict[str, Defined]) -> dict[str, Facts]:
    """Find every encoding that is registered, by the arguments of ``@register`` and by its class."""
    found = {}
    for cls, (module, node) in classes.items():
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "register":
                said = {each.arg: ast.literal_eval(each.value) for each in decorator.keywords}
                place, learned = str(_attribute("place", cls, classes)), _is_learned(node)
                found[said["name"]] = (module, cls, place, learned, said["paper"], said["formula"])
    return dict(sorted(found.items()))


def scalings(classes: dict[str, Defined]) -> dict[str, Facts]:
    """Find every scaling of rotary, by the name, paper and formula that its class has; bands of distance last."""
    found = {}
    for cls, (module, _) in sorted(classes.items(), key=lambda each: each[1].module.endswith(".bands")):
        name = _attribute("scaling_name", cls, classes)
        if name:
            paper, formula = (str(_attribute(each, cls, classes)) for each in ("paper", "formula"))
            found[str(name)] = (module, cls, "query and key", False, paper, formula)
    return found


def _attribute(name: str, cls: str, classes: dict[str, Defined]) -> object:
    """Read an attribute of a class, its own or the first that a class before it has."""
    if cls not in classes:
        return ""
    for statement in classes[cls].node.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        targets = [statement.target] if isinstance(statement, ast.AnnAssign) and statement.value else targets
        if isinstance(statement, (ast.Assign, ast.AnnAssign)) and [ast.unparse(each) for each in targets] == [name]:
            return ast.literal_eval(statement.value or ast.Constant(""))
    inherited = (_attribute(name, ast.unparse(base), classes) for base in classes[cls].node.bases)
    return next((value for value in inherited if value), "")


def _is_learned(node: ast.ClassDef) -> bool:
    """Whether a class has the tag "learned" whatever its options are."""
    for statement in ast.walk(node):
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) in ("tags", "self.tags"):
            by_option = {
                inner for each in ast.walk(statement) if isinstance(each, ast.IfExp) for inner in ast.walk(each)
            }
            constants = [each for each in ast.walk(statement) if isinstance(each, ast.Constant)]
            return any(each.value == "learned" and each not in by_option for each in constants)
    return False


def on_demand() -> dict[str, tuple[str, ...]]:
    """Read the table of all other public names."""
    for node in ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_ON_DEMAND":
            table: dict[str, tuple[str, ...]] = ast.literal_eval(node.value)
            return table
    raise ValueError("situs/__init__.py must assign _ON_DEMAND, since public names are listed there; got none.")


def lists() -> dict[str, list[str]]:
    """Make the lines that belong between the marks of each file."""
    classes = defined()
    encodings = registered(classes)
    tables = [*_table("ENCODINGS", encodings), "", *_table("SCALINGS", scalings(classes))]
    pairs = [(module, name) for module, several in on_demand().items() for name in several]
    pairs += [(module, cls) for module, cls, *_ in encodings.values()]
    pairs += [("situs", "plots")]  # public too, but not in __all__, since it needs matplotlib
    # constants, classes, then functions, as ruff sorts them
    pairs.sort(key=lambda pair: (pair[0], not pair[1].isupper(), pair[1][0].islower(), pair[1]))
    imports = [f"    from {module} import {name} as {name}" for module, name in pairs]
    return {
        "registry/listed.py": ["# fmt: off", *tables, "# fmt: on"],
        "__init__.py": ["if TYPE_CHECKING:", *imports],
    }


def _table(name: str, rows: dict[str, Facts]) -> list[str]:
    """Write a dict of rows, with long texts in pieces."""
    lines = [f"{name}: dict[str, Listed] = {{"]
    for key, (module, cls, place, learned, paper, formula) in rows.items():
        lines += [f"    {json.dumps(key)}: Listed(", f'        "{module}", "{cls}", "{place}", {learned},']
        for text in (paper, formula):
            pieces = textwrap.wrap(text, 100, drop_whitespace=False) or [""]
            lines += [f"        {json.dumps(piece, ensure_ascii=False)}" for piece in pieces[:-1]]
            lines.append(f"        {json.dumps(pieces[-1], ensure_ascii=False)},")
        lines.append("    ),")
    return [*lines, "}"]


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
