"""Where a configuration comes from: a file, a folder, a dict, text, standard input or a config object.

    config.json          of transformers, of any generation
    params.json          of Meta's and Mistral's own releases
    *.gguf               of llama.cpp: the settings before the weights

Nothing is downloaded, and no code that a configuration names is run.
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from situs.models.sources.gguf import MAGIC, read_gguf_bytes, read_gguf_file
from situs.models.sources.strict import BYTES, ConfigError, parse, require_depth

Form = Literal["config", "params", "gguf"]

FILES = ("config.json", "params.json")
"""What a folder is searched for, in this order."""
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth")
"""How files of weights end, which say nothing about positions."""


@dataclass(frozen=True)
class Source:
    """Hold a configuration as plain data of its own, and what errors call it.

    tensors: of a GGUF file, by name: the numbers of those that divide frequencies, the shapes of others.
    folder: where it lies, if it is a file.
    """

    config: dict[str, Any]
    name: str
    form: Form
    tensors: Mapping[str, Any] = field(default_factory=dict)
    folder: Path | None = None


def load(given: object) -> Source:
    """Read a configuration from whatever names or holds it."""
    if isinstance(given, Source):
        return given
    if isinstance(given, Mapping):
        return _of_mapping(given, "config")
    if isinstance(given, (bytes, bytearray)):
        return _of_text(bytes(given), "config")
    if isinstance(given, str) and given.lstrip().startswith("{"):
        return _of_text(given, "config")
    if given == "-":
        return _of_text(sys.stdin.buffer.read(BYTES + 1), "standard input")
    if isinstance(given, (str, os.PathLike)):
        return _of_path(_path(given))
    to_dict = getattr(given, "to_dict", None)
    if callable(to_dict) and not isinstance(given, type):
        return _of_mapping(to_dict(), type(given).__name__)
    raise TypeError(
        f"source must be a config.json, a folder with one, a dict, JSON text, '-' for standard input, a config of "
        f"transformers, or a GGUF file; got {given!r:.80}."
    )


def _of_text(text: bytes | str, name: str, folder: Path | None = None) -> Source:
    if isinstance(text, bytes) and text.startswith(MAGIC):
        keys, tensors = read_gguf_bytes(text, name)
        return Source(keys, name, "gguf", tensors)
    config = parse(text, name)
    _require_config(config, name)
    return Source(config, name, _form(config), folder=folder)


def _of_mapping(given: Any, name: str) -> Source:
    if not isinstance(given, Mapping):
        raise TypeError(f"{name} must give its settings as a dict; got {given!r:.80}.")
    require_depth(given, name)
    config = _plain(given, name)
    _require_config(config, name)
    return Source(config, name, _form(config))


def _plain(given: Any, name: str) -> Any:
    """Copy what JSON could hold; lists for tuples, as it would."""
    if isinstance(given, Mapping):
        wrong = [key for key in given if not isinstance(key, (str, int))]
        if wrong:
            raise ConfigError(f"{name} must have strings for keys, since it stands for JSON; got {wrong[0]!r:.80}.")
        return {str(key): _plain(each, name) for key, each in given.items()}
    if isinstance(given, (list, tuple)):
        return [_plain(each, name) for each in given]
    return copy.copy(given)


def _path(given: str | os.PathLike[str]) -> Path:
    """A path that a system can look up."""
    try:
        if str(given) and os.fsencode(given).count(b"\0") == 0:
            return Path(given)
    except ValueError:  # letters that no file name has
        pass
    raise ConfigError(f"source must name a file or a folder; got {str(given)!r:.80}.")


def _of_path(path: Path) -> Source:
    try:
        if path.is_dir():
            path = _within(path)
        with path.open("rb") as file:
            if path.suffix in WEIGHTS:
                raise ConfigError(
                    f"source must be a configuration; got '{path}', which holds weights. Give the config.json beside "
                    f"it, or its folder: '{path.parent}'."
                )
            start = file.read(len(MAGIC))
            if start != MAGIC and path.suffix != ".gguf":
                return _of_text(start + file.read(BYTES + 1 - len(start)), path.name, path.parent)
        keys, tensors = read_gguf_file(path)
        return Source(keys, path.name, "gguf", tensors, path.parent)
    except OSError as problem:
        raise ConfigError(
            f"source must be a file or a folder that can be read; got '{path}': {problem.strerror or problem}."
        ) from None


def _within(folder: Path) -> Path:
    for name in FILES:
        if (folder / name).is_file():
            return folder / name
    files = sorted(each for each in folder.glob("*.gguf") if "-of-" not in each.stem or "-00001-of-" in each.stem)
    if len(files) == 1:
        return files[0]
    raise ConfigError(
        f"a folder must hold {', '.join(FILES)} or one GGUF file; got '{folder}' with "
        f"{f'{len(files)} GGUF files' if files else 'none of them'}."
    )


def _require_config(config: dict[str, Any], name: str) -> None:
    """Raise for a file of golden numbers, which names a model type too."""
    if config.get("schema") == "situs-golden":
        raise ConfigError(
            f"source must be a configuration; got {name}, which holds golden numbers. Give the config.json that they "
            f"were made from."
        )


def _form(config: dict[str, Any]) -> Form:
    """Whether settings are Meta's own: they name no model type, and have sizes under other names."""
    return "params" if "model_type" not in config and {"dim", "n_layers", "n_heads"} <= config.keys() else "config"
