"""Convert checkpoints between the pairings of rotary: neighbouring channels, or halves of a head.

A conversion only reorders rows, so every file keeps its size, header and metadata: it is copied, and the rows of
queries and keys are written over in the copy, a weight at a time. Going there and back gives the same bytes.

Which rows those are is decided from the headers of all files, before anything is written: a norm may lie in another
shard than its projection.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open

from situs.arguments import refuse, told
from situs.functional.rotation import Pairing
from situs.huggingface.checkpoint_files import ADAPTER, Checkpoint, Header, read_checkpoint
from situs.huggingface.pairing_settings import PAIRING_KEY, read_model, require_pairing
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
from situs.huggingface.target_folder import made, require_new, require_room, telling_failures
from situs.models.positions import ModelPositions, spans

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
    """Files and folders of the source that did not go along, since they may hold weights in the old pairing."""
    own_pairing: bool
    """Whether transformers reads the new pairing from the configuration, or its model type has it."""
    marked: str | None = None
    """The file that says the new pairing to Situs, where nothing else in the target says it."""

    def __str__(self) -> str:
        weights = f"{self.reordered} weight{'s' * (self.reordered > 1)}"
        lines = [f"{self.target}: {self.pairing}, {weights} of {_named(self.layers)} reordered."]
        said = []
        if not self.own_pairing:
            said.append(
                f"transformers has no {self.pairing} pairing for this model type, and would run these weights wrong: "
                f"they are for programs that pair so."
            )
        if self.marked == ADAPTER:
            said.append("The adapter needs a base model of the same pairing.")
        if self.marked is not None:
            said.append(f"{PAIRING_KEY} in {self.marked} says it to Situs.")
        if said:
            lines.append(" ".join(said))
        if self.left_out:
            names = ", ".join(self.left_out)
            lines.append(f"Left out, since they may hold or list weights of the old pairing: {names}.")
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

    Weights of queries and keys are reordered, with biases, norms and adapters. Files and folders without weights go
    along; weights that are not of this checkpoint are left out.
    """
    require_pairing("pairing", pairing)
    if source_pairing is not None:
        require_pairing("source_pairing", source_pairing)
    old, new = _as_folder("source", source), _as_folder("target", target)
    checkpoint = read_checkpoint(old)
    require_new(new)
    model = read_model(checkpoint, config)
    layers = _require_rotated(model.positions, source_pairing or model.marked, pairing)
    reordered = reorderings(checkpoint.shapes, model.positions, layers, pairing)
    if not checkpoint.adapter:
        _require_whole(reordered, layers)
    elif not reordered:
        raise ValueError(f"source must adapt queries or keys, since nothing else is reordered; got {str(old)!r}.")
    require_room(new, [*checkpoint.headers, *checkpoint.others])
    converted = model.converted(pairing)
    with made(new) as folder:
        for number, (file, header) in enumerate(checkpoint.headers.items()):
            if progress is not None:
                progress(file.name, number, len(checkpoint.headers))
            with telling_failures():
                _write_reordered(file, folder / file.name, header, reordered)
        with telling_failures():
            _copy_others(checkpoint, folder)
            (folder / checkpoint.config).write_text(json.dumps(converted.settings, indent=2) + "\n")
    marked = checkpoint.config if converted.marked else None
    return Conversion(new, pairing, tuple(layers), len(reordered), checkpoint.left_out, converted.own, marked)


def _as_folder(name: str, given: object) -> Path:
    if not isinstance(given, (str, os.PathLike)) or isinstance(os.fspath(given), bytes):
        refuse(TypeError, name, "be text or a path", "it names a folder", told(given))
    text = os.fspath(given)
    if not text or "\0" in text:
        refuse(ValueError, name, "be a name that a folder can have", "files are looked up by it", told(text))
    return Path(text)


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


def _require_whole(names: Iterable[str], layers: Mapping[int, Rotated]) -> None:
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


def _write_reordered(source: Path, copy: Path, header: Header, reordered: Mapping[str, Reordering]) -> None:
    """Copy a file of weights, and write the rows of queries and keys over those of the copy."""
    shutil.copyfile(source, copy)
    with safe_open(source, framework="pt") as weights, copy.open("r+b") as opened:
        for name in header.weights:
            each = reordered.get(name)
            if each is None:
                continue
            rows = weights.get_tensor(name).index_select(each.axis, each.order).contiguous()
            opened.seek(header.start + header.weights[name]["data_offsets"][0])
            opened.write(rows.view(torch.uint8).numpy().data)


def _copy_others(checkpoint: Checkpoint, folder: Path) -> None:
    """Copy the files without weights, within their folders."""
    for file in checkpoint.others:
        copy = folder / file.relative_to(checkpoint.folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
