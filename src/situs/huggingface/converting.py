"""Convert checkpoints between the pairings of rotary: neighbouring channels, or halves of a head.

A conversion only reorders rows, so every file keeps its size, header and metadata: it is copied, and the rows of
queries and keys are written over in the copy, a weight at a time. Going there and back gives the same bytes.

The new checkpoint is made in a folder beside the target, which gets its name when everything is written: whatever
happens before leaves no target at all.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from situs.functional.rotation import PAIRINGS, Pairing
from situs.huggingface.query_key_weights import (
    FUSED_NAMES,
    KEY,
    LATENT_KEY,
    LAYER,
    QUERY,
    Reordering,
    Rotated,
    reorderings,
    rotated_layers,
)
from situs.models.extending import main_settings
from situs.models.positions import ModelPositions, spans
from situs.models.readers.families import family_of
from situs.models.reading import read
from situs.models.sources.strict import parse
from situs.registry.spelling import did_you_mean

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
WEIGHTS = (*PICKLES, ".gguf", ".onnx", ".h5", ".msgpack", ".npz")
"""Files of weights that are not converted, and so do not go along."""
CONFIG, ADAPTER = "config.json", "adapter_config.json"
PAIRING_KEY = "situs_pairing"
"""The setting that says a pairing which the model type does not have; Situs reads it, other programs do not."""

Progress = Callable[[str, int, int], object]


@dataclass(frozen=True)
class Conversion:
    """Hold what a conversion did."""

    target: Path
    pairing: Pairing
    layers: tuple[int, ...]
    """Those whose weights were reordered."""
    reordered: int
    """How many weights were."""
    left_out: tuple[str, ...]
    """Files and folders of the source that did not go along, since they hold weights in the old pairing."""
    own_pairing: bool
    """Whether transformers reads the new pairing from the configuration, or its model type has it."""

    def __str__(self) -> str:
        lines = [f"{self.target}: {self.pairing}, {self.reordered} weights of {_named(self.layers)} reordered."]
        if not self.own_pairing:
            lines.append(
                f"transformers has no {self.pairing} for this model type, and would run these weights wrong: they are "
                f"for programs that pair so. {PAIRING_KEY} in {CONFIG} says it to Situs."
            )
        if self.left_out:
            lines.append(f"Left out, with weights of the old pairing: {', '.join(self.left_out)}.")
        return "\n".join(lines)


def _named(layers: tuple[int, ...]) -> str:
    return f"layer{'s' * (len(layers) > 1)} {spans(layers)}"


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    pairing: Pairing,
    source_pairing: Pairing | None = None,
    config: object = None,
    progress: Progress | None = None,
) -> Conversion:
    """Convert a checkpoint to another pairing of the channels that rotary rotates.

    source: a folder with a configuration and safetensors, in one file or in shards; or a LoRA adapter's.
    target: the folder to make; it must not be there yet.
    pairing: "interleaved" or "halves", that of the target.
    source_pairing: that of the source, where its weights are not paired as its configuration says.
    config: what ``situs.models.read`` takes, where it does not stand in the folder, as for an adapter.
    progress: is told file, number and count as files are begun.

    Weights of queries and keys are reordered, with biases, norms and adapters; all other files go along.
    """
    require_pairing("pairing", pairing)
    if source_pairing is not None:
        require_pairing("source_pairing", source_pairing)
    old, new = Path(source), Path(target)
    files = require_weights(old)
    _require_new(new)
    adapter = (old / ADAPTER).is_file()
    model = read(_base(old, config) if adapter else old / CONFIG if config is None else config)
    layers = _require_rotated(model, source_pairing, pairing)
    headers = {file: _header(file) for file in files}
    found = {
        file: reorderings({name: each["shape"] for name, each in header.weights.items()}, model, layers, pairing)
        for file, header in headers.items()
    }
    names = [name for each in found.values() for name in each]
    if not adapter:
        _require_whole(names, layers)
    elif not names:
        raise ValueError(f"source must adapt queries or keys, since nothing else is reordered; got {str(old)!r}.")
    others, left_out = _others(old, set(files))
    _require_room(new, [*files, *others])
    settings, own = _settings(model, pairing)
    with _made(new) as folder:
        for number, file in enumerate(files):
            if progress is not None:
                progress(file.name, number, len(files))
            shutil.copyfile(file, folder / file.name)
            _reorder(file, folder / file.name, headers[file], found[file])
        for file in others:
            shutil.copyfile(file, folder / file.name)
        if not adapter:
            (folder / CONFIG).write_text(json.dumps(settings, indent=2) + "\n")
        _settle(folder)
    return Conversion(new, pairing, tuple(layers), len(names), left_out, own)


def require_pairing(name: str, value: object) -> None:
    """Raise unless a value is a pairing."""
    if value not in PAIRINGS:
        raise ValueError(
            f"{name} must be {' or '.join(map(repr, PAIRINGS))}, since channels are paired one way or the other; got "
            f"{value!r}.{did_you_mean(str(value), PAIRINGS)}"
        )


def require_weights(folder: Path, source: str = "source") -> list[Path]:
    """The safetensors of a folder; ``source`` is what errors call it."""
    if not folder.is_dir():
        raise ValueError(f"{source} must be a folder with a checkpoint; got {str(folder)!r}, which is none.")
    files = sorted(folder.glob("*.safetensors"))
    if files:
        return files
    pickles = sorted(each.name for each in folder.iterdir() if each.suffix in PICKLES)
    if pickles:
        raise ValueError(
            f"{source} must have safetensors, since a pickle runs whatever code is in it when it is read; got "
            f"{', '.join(pickles[:3])}. Load the model where you trust it, and save it with save_pretrained."
        )
    raise ValueError(f"{source} must have safetensors; got {str(folder)!r} without any.")


def _require_new(folder: Path) -> None:
    if folder.exists() or folder.is_symlink():
        raise ValueError(f"target must be a new folder, since {str(folder)!r} would be lost. Choose another name.")
    if not folder.parent.is_dir() or not os.access(folder.parent, os.W_OK):
        raise ValueError(f"target must be in a folder that exists and can be written to; got {str(folder)!r}.")


def _base(folder: Path, config: object) -> object:
    """The configuration of the model that an adapter belongs to."""
    settings = parse((folder / ADAPTER).read_bytes(), str(folder / ADAPTER))
    if settings.get("fan_in_fan_out"):
        raise ValueError(f"fan_in_fan_out of {folder / ADAPTER} must be false, since rows are reordered; got true.")
    if config is not None:
        return config
    base = settings.get("base_model_name_or_path")
    if isinstance(base, str) and (Path(base) / CONFIG).is_file():
        return Path(base) / CONFIG
    raise ValueError(
        f"config must be given for an adapter, since its heads stand in the base model's configuration; got none, and "
        f"{base!r} is no folder here."
    )


def _require_rotated(model: ModelPositions, source: Pairing | None, target: Pairing) -> dict[int, Rotated]:
    """The layers whose weights are to be reordered."""
    rotated = rotated_layers(model, source=source)
    if not rotated:
        raise ValueError(
            f"source must rotate queries and keys, since only rotary pairs channels; got {model.main.model_type}, "
            f"which does not."
        )
    found = {number: each for number, each in rotated.items() if each.pairing != target}
    if not found:
        raise ValueError(f"pairing must be another one than the checkpoint has; got {target!r}, which it has already.")
    return found


@dataclass(frozen=True)
class _Header:
    """Hold what a file of safetensors says of its weights, and where they begin."""

    weights: Mapping[str, Any]
    start: int


def _header(file: Path) -> _Header:
    try:
        with safe_open(file, framework="pt"), file.open("rb") as opened:  # which checks all sizes
            size = int.from_bytes(opened.read(8), "little")
            weights = json.loads(opened.read(size))
    except (SafetensorError, OSError) as problem:
        raise ValueError(
            f"{file} must be a whole file of safetensors; got one that cannot be read: {problem}."
        ) from None
    weights.pop("__metadata__", None)
    return _Header(weights, 8 + size)


def _require_whole(names: list[str], layers: Mapping[int, Rotated]) -> None:
    """Raise unless queries and keys of every layer were found."""
    seen: dict[int, set[str]] = {number: set() for number in layers}
    for name in names:
        layer = LAYER.search(name)
        assert layer is not None
        words = set(name.split("."))
        of_query, of_key = words & (QUERY | FUSED_NAMES), words & (KEY | FUSED_NAMES | {LATENT_KEY})
        seen.setdefault(int(layer.group(1)), set()).update(["queries"] * bool(of_query) + ["keys"] * bool(of_key))
    for number, parts in seen.items():
        missing = [part for part in ("queries", "keys") if part not in parts]
        if missing:
            raise ValueError(
                f"source must have weights of {' and '.join(missing)} in layer {number}, under names that are known, "
                f"since a checkpoint that is converted in part is lost; got none of them. Is a shard missing?"
            )


def _others(folder: Path, weights: set[Path]) -> tuple[list[Path], tuple[str, ...]]:
    """The files that go along as they are, and the names of those that do not."""
    others, left = [], []
    for each in sorted(folder.iterdir()):
        if each.is_dir() or each.suffix in WEIGHTS:
            left.append(each.name + "/" * each.is_dir())
        elif each not in weights and each.name != CONFIG:
            others.append(each)
    return others, tuple(left)


def _require_room(folder: Path, files: list[Path]) -> None:
    needed, free = sum(each.stat().st_size for each in files), shutil.disk_usage(folder.parent).free
    if needed > free:
        raise ValueError(
            f"target must lie on a disk with {needed:,} bytes free, since the checkpoint has as many; got {free:,}."
        )


def _settings(model: ModelPositions, pairing: Pairing) -> tuple[dict[str, Any], bool]:
    """The configuration of the target, and whether transformers runs it with that pairing."""
    config: dict[str, Any] = json.loads(json.dumps(model.config, default=dict))
    part = main_settings(config, model)
    part.pop(PAIRING_KEY, None)
    flag = family_of(model.main.model_type).interleaved
    if isinstance(flag, str):
        part[flag] = pairing == "interleaved"
    own = {each.pairing for each in rotated_layers(read(config), source=None).values()}
    if own == {pairing}:
        return config, True
    part[PAIRING_KEY] = pairing
    return config, False


@contextmanager
def _made(target: Path) -> Iterator[Path]:
    """A folder that becomes the target at the end, and nothing where anything goes wrong."""
    for stale in target.parent.glob(f".{target.name}.partial-*"):
        if not _runs(stale.name.rpartition("-")[2]):
            shutil.rmtree(stale, ignore_errors=True)  # of a conversion that was killed
    folder = target.parent / f".{target.name}.partial-{os.getpid()}"
    folder.mkdir()
    try:
        yield folder
        folder.rename(target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _runs(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:
        return True
    return True


def _reorder(source: Path, copy: Path, header: _Header, reordered: Mapping[str, Reordering]) -> None:
    """Write the rows of queries and keys over those of a copy."""
    with safe_open(source, framework="pt") as weights, copy.open("r+b") as opened:
        for name, each in reordered.items():
            made = weights.get_tensor(name).index_select(each.axis, each.order).contiguous()
            opened.seek(header.start + header.weights[name]["data_offsets"][0])
            opened.write(made.view(torch.uint8).numpy().data)


def _settle(folder: Path) -> None:
    """Wait until files are on the disk, before the folder gets its name."""
    for file in folder.iterdir():
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
