"""Find which files of a folder are its checkpoint, and read their headers.

    model.safetensors               a checkpoint in one file
    model.safetensors.index.json    lists the shards of one, and which weights are in each
    adapter_model.safetensors       a LoRA adapter, beside adapter_config.json; it may have an index as well

These are the files that transformers loads. Whatever else holds weights, such as consolidated.safetensors under Meta's
names or a pickle, is another checkpoint, and may pair channels in another way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from situs.arguments import told
from situs.models.sources.strict import parse

CONFIG, ADAPTER = "config.json", "adapter_config.json"
MODEL_WEIGHTS, ADAPTER_WEIGHTS = "model.safetensors", "adapter_model.safetensors"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
WEIGHTS = (*PICKLES, ".safetensors", ".gguf", ".onnx", ".h5", ".msgpack", ".npz")
INDEX = re.compile(r"\.(?:safetensors|bin|h5|msgpack)\.index(?:\.\w+)?\.json$")


@dataclass(frozen=True)
class Header:
    """Hold what a file of safetensors says of its weights, and where they begin."""

    weights: Mapping[str, Any]
    start: int


@dataclass(frozen=True)
class Checkpoint:
    """Hold the files of a checkpoint, with the headers of those that hold its weights."""

    folder: Path
    adapter: bool
    headers: Mapping[Path, Header]
    others: tuple[Path, ...]
    """Files without weights, other than the configuration."""
    left_out: tuple[str, ...]
    """Files and folders that may hold weights, or list them, and are not of the checkpoint."""

    @property
    def config(self) -> str:
        """The name of the file that describes the weights."""
        return ADAPTER if self.adapter else CONFIG

    @property
    def shapes(self) -> dict[str, Sequence[int]]:
        """The shape of every weight, whatever file it is in."""
        return {name: each["shape"] for header in self.headers.values() for name, each in header.weights.items()}


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read which files a checkpoint has, and their headers; raises where one of them, or a weight, is missing."""
    require_weights(folder)
    adapter = (folder / ADAPTER).is_file()
    whole = ADAPTER_WEIGHTS if adapter else MODEL_WEIGHTS
    index = folder / f"{whole}.index.json"
    listed = _listed(index) if index.is_file() else {}
    files = _require_files(folder, whole, listed)
    headers = {file: read_header(file) for file in files}
    for file, names in listed.items():
        missing = sorted(names - headers[folder / file].weights.keys())
        if missing:
            raise ValueError(
                f"{folder / file} must have {missing[0]}, since {index.name} says so; got a file without it. Download "
                f"both again."
            )
    _require_once(headers)
    described = {folder / (ADAPTER if adapter else CONFIG), *files}
    others, left_out = _beside((each for each in folder.iterdir() if each not in described), index)
    return Checkpoint(folder, adapter, headers, others, left_out)


def require_weights(folder: Path, source: str = "source") -> None:
    """Raise unless a folder has safetensors; ``source`` is what errors call it."""
    if folder.is_file():
        raise ValueError(
            f"{source} must be a folder with a checkpoint, since its configuration is needed too; got "
            f"{str(folder)!r}, which is a file. Give the folder that it is in: {str(folder.parent)!r}."
        )
    if not folder.is_dir():
        raise ValueError(f"{source} must be a folder with a checkpoint; got {str(folder)!r}, which is none.")
    if any(folder.glob("*.safetensors")):
        return
    pickles = sorted(each.name for each in folder.iterdir() if each.suffix in PICKLES)
    if pickles:
        raise ValueError(
            f"{source} must have safetensors, since a pickle runs whatever code is in it when it is read; got "
            f"{', '.join(pickles[:3])}. Load the model where you trust it, and save it with save_pretrained."
        )
    raise ValueError(f"{source} must have safetensors; got {str(folder)!r} without any.")


def _listed(index: Path) -> dict[str, set[str]]:
    """The weights that an index says are in each file."""
    weights = parse(index.read_bytes(), str(index)).get("weight_map")
    if not isinstance(weights, dict) or not weights:
        raise ValueError(f"{index} must have a weight_map, which says the file of each weight; got {told(weights)}.")
    files: dict[str, set[str]] = {}
    for name, file in weights.items():
        if not isinstance(file, str) or not file or Path(file).name != file:
            raise ValueError(
                f"weight_map of {index} must name a file in the same folder for {name}, since only those are "
                f"converted; got {told(file)}."
            )
        files.setdefault(file, set()).add(name)
    return files


def _require_files(folder: Path, whole: str, listed: Iterable[str]) -> list[Path]:
    """The files of weights: those that the index lists, or the one that needs none."""
    index = f"{whole}.index.json"
    there = sorted(each.name for each in folder.glob("*.safetensors") if each.is_file())
    names = sorted(listed)
    if not names:
        if whole not in there:
            raise ValueError(
                f"source must have {whole}, or {index} that lists its shards, since these say which files are the "
                f"checkpoint; got {', '.join(there[:3]) or 'links to nothing'}. Download the index, or give a single "
                f"file that name."
            )
        return [folder / whole]
    if whole in there and whole not in names:
        raise ValueError(
            f"source must have {whole} or the shards of {index}, since programs differ in which of them they read; got "
            f"both in {str(folder)!r}. Remove the older."
        )
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise ValueError(
            f"source must have every shard that {index} lists, since a checkpoint that is converted in part is lost; "
            f"got none of {', '.join(missing[:3])}{', ...' * (len(missing) > 3)}. Download what is missing."
        )
    return [folder / name for name in names]


def read_header(file: Path) -> Header:
    """Read the header of a file of safetensors; raises where its sizes are not those of the file."""
    try:
        with safe_open(file, framework="pt"), file.open("rb") as opened:  # which checks all sizes
            size = int.from_bytes(opened.read(8), "little")
            weights = json.loads(opened.read(size))
    except (SafetensorError, OSError) as problem:
        raise ValueError(
            f"{file} must be a whole file of safetensors; got one that cannot be read: {problem}."
        ) from None
    weights.pop("__metadata__", None)
    return Header(weights, 8 + size)


def _require_once(headers: Mapping[Path, Header]) -> None:
    first: dict[str, Path] = {}
    for file, header in headers.items():
        for name in header.weights:
            other = first.setdefault(name, file)
            if other != file:
                raise ValueError(
                    f"{name} must be in one file, since programs differ in which of two they read; got it in "
                    f"{other.name} and {file.name}. Save the model anew with save_pretrained."
                )


def _beside(entries: Iterable[Path], index: Path) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """The files that go along as they are, and the names of files and folders that do not.

    Hidden folders (.git, .cache) are records that other programs keep of the source, and are passed over.
    """
    others: list[Path] = []
    left: list[str] = []
    for each in sorted(entries):
        if not each.is_dir():
            files = [each]
        elif each.name.startswith("."):
            continue
        else:
            files = sorted(file for file in each.rglob("*") if not file.is_dir())
        if any(file != index and (file.suffix in WEIGHTS or INDEX.search(file.name)) for file in files):
            left.append(each.name + "/" * each.is_dir())
            continue
        for file in files:
            if not file.is_file():
                raise ValueError(
                    f"{file} must be a file, since all files of the source go along; got something else, or a link to "
                    f"nothing. Remove it."
                )
        others += files
    return tuple(others), tuple(left)
