"""The user's own code: which files it is in, and a hash of them, by which results of before are found again.

A class of one's own may use other modules of its author's, such as constants in a file beside it. Results belong to all
of that code, so that the hash changes when any of it does. What is loaded tells which modules these are, and so do the
import statements in their source, within functions too, which are read and not run. A module that is loaded by a call,
such as importlib.import_module, counts only if it is loaded when the hash is made.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

from situs.encodings.base import Encoding
from situs.lab.naming.grammar import Method
from situs.registry import entry
from situs.registry.origins import is_own_file


def sources(method: Method) -> str:
    """Hash the user's modules that a method's classes need; nothing where it has no class of one's own."""
    own = sorted({part.name for part in method.parts if part.of_ones_own})
    if not own:
        return ""
    digest = hashlib.sha256()
    for name in own:
        for called, content in _contents(entry(name).cls):
            digest.update(b"%d %d %b" % (len(called), len(content), called) + content)
    return digest.hexdigest()[:16]


def addresses(method: Method) -> dict[str, str]:
    """Tell where the classes of one's own that a method names are defined, so that two names for one are known."""
    return {part.name: _address(entry(part.name).cls) for part in method.parts if part.of_ones_own}


def _address(cls: type[Encoding]) -> str:
    """Name the file and the class; the module where there is no file."""
    try:
        file = inspect.getsourcefile(cls)
    except TypeError:
        file = None
    return f"{os.path.realpath(file) if file else cls.__module__}:{cls.__qualname__}"


def _contents(cls: type[Encoding]) -> list[tuple[bytes, bytes]]:
    """Give the names, as seen from the class's folder, and the contents of all files that it needs."""
    defined = os.path.realpath(inspect.getsourcefile(cls) or "")
    files = _with_imports({defined, *(_file(module) for module in _reached(cls))}, _folder(cls))
    named = {os.path.relpath(file, os.path.dirname(defined)): file for file in files if os.path.isfile(file)}
    return [(os.fsencode(name), Path(file).read_bytes()) for name, file in sorted(named.items())]


def _reached(cls: type[Encoding]) -> list[ModuleType]:
    """List the user's loaded modules that a class is made from: those of its bases and of what they import, and all in
    the folder of the class and below, since a constant does not tell where it was imported from."""
    loaded: dict[str, object] = dict(sys.modules)  # some of which are no modules, such as typing.io
    users = {
        name: module
        for name, module in loaded.items()
        if isinstance(module, ModuleType) and not name.startswith("__") and is_own_file(_file(module))
    }
    folder = _folder(cls)
    waiting = [each.__module__ for each in cls.__mro__]
    waiting += [name for name, module in users.items() if _file(module).startswith(folder)]
    reached: dict[str, ModuleType] = {}
    while waiting:
        name = waiting.pop()
        if name not in reached and name in users:
            reached[name] = users[name]
            for value in list(vars(users[name]).values()):
                found = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
                waiting += [found] if isinstance(found, str) else []
    return list(reached.values())


def _with_imports(files: set[str], folder: str) -> set[str]:
    """Add the user's files that are imported anywhere in these; ``folder`` is searched beside sys.path."""
    found, waiting = set(files), list(files)
    while waiting:
        for file in _imported(waiting.pop(), [*sys.path, folder, ""]):
            if file not in found and is_own_file(file):
                found.add(file)
                waiting.append(file)
    return found


def _imported(file: str, folders: Sequence[str]) -> Iterator[str]:
    """Find the files that the import statements of a file lead to."""
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):  # not loaded yet, and broken: it counts, and leads nowhere
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _along(alias.name, folders)
        elif isinstance(node, ast.ImportFrom):
            beside = [str(each) for each in Path(file).parents[node.level - 1 : node.level]] if node.level else None
            for alias in node.names:
                name = f"{node.module}.{alias.name}" if node.module else alias.name
                yield from _along(name, folders if beside is None else beside, relative=beside is not None)


def _along(name: str, folders: Sequence[str], *, relative: bool = False) -> Iterator[str]:
    """Find the files of a dotted name, those of its packages first, without running any of them."""
    parts = name.split(".")
    for number, part in enumerate(parts, 1):
        module = None if relative else sys.modules.get(".".join(parts[:number]))
        if isinstance(module, ModuleType):
            yield _file(module)
            folders = list(getattr(module, "__path__", ()))
        elif spec := PathFinder.find_spec(part, folders):
            yield os.path.realpath(spec.origin or "")
            folders = list(spec.submodule_search_locations or ())
        else:
            return


def _folder(cls: type[Encoding]) -> str:
    """Name the folder of a class's file; of one in a package, that of the whole package."""
    package = sys.modules.get(cls.__module__.partition(".")[0])
    inside = "." in cls.__module__ and package is not None and _file(package) != ""
    file = _file(package) if inside and package is not None else inspect.getsourcefile(cls) or ""
    return os.path.dirname(os.path.realpath(file)) + os.sep


def _file(module: ModuleType) -> str:
    """Name the file of a module; empty where it has none."""
    file = getattr(module, "__file__", None)
    return os.path.realpath(file) if isinstance(file, str) else ""
