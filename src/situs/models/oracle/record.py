"""What `golden` returns: arrays by name, inputs and outputs, and what they are."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from situs.arguments import told
from situs.models.oracle import files
from situs.models.sources.strict import ConfigError
from situs.registry.spelling import did_you_mean

SCHEMA, VERSION = "situs-golden", 1


@dataclass(frozen=True, eq=False, repr=False)
class Golden:
    """Hold exact numbers of a model's positions, as float64 and int64 tensors by name.

    meta: everything else that a golden file says: what the model is, its groups of layers, the roles of arrays.

    >>> from situs import models
    >>> sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2}
    >>> golden = models.golden({"model_type": "llama", **sizes}, positions=[0, 1, 1000])
    >>> golden["layer0.frequencies"].tolist()
    [1.0, 0.1, 0.01, 0.001]
    >>> golden
    Golden(llama: 1 group of layers, 7 inputs, 18 outputs)
    """

    meta: Mapping[str, Any]
    arrays: Mapping[str, Tensor]

    def __getitem__(self, name: str) -> Tensor:
        if not isinstance(name, str):
            raise TypeError(f"name must be text, since arrays have names such as 'layer0.cos'; got {told(name)}.")
        if name not in self.arrays:
            raise KeyError(f"name must be that of an array; got {name!r}.{did_you_mean(name, self.arrays)}")
        return self.arrays[name]

    @property
    def inputs(self) -> dict[str, Tensor]:
        """What a port is given: positions, probe vectors, parameters."""
        return {name: each for name, each in self.arrays.items() if self.meta["roles"][name] == "input"}

    @property
    def outputs(self) -> dict[str, Tensor]:
        """What a port computes."""
        return {name: each for name, each in self.arrays.items() if self.meta["roles"][name] == "output"}

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a .json, .npz or .safetensors file; the same bytes for the same model, whenever and wherever."""
        target = files.as_path(path, "path")
        held = self.to_bytes(files.suffix_of(target, "path"))
        try:
            target.write_bytes(held)
        except (OSError, ValueError) as problem:  # the latter for a NUL in its name
            reason = getattr(problem, "strerror", None) or str(problem)
            raise ValueError(
                f"path must be a file that can be written; got {files.shown(target)}: {reason}."
            ) from problem
        return target

    def to_bytes(self, suffix: str = ".json") -> bytes:
        """The bytes of a file in one of the formats."""
        return files.as_bytes(files.suffix_of(Path(f"golden{suffix}"), "suffix"), self.meta, self.arrays)

    def to_json(self) -> str:
        """The JSON form, as text."""
        return self.to_bytes(".json").decode()

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Golden:
        """Read a golden file back."""
        target = files.as_path(path, "path")
        held = files.read_file(target, "path")
        if held.meta is None:
            raise ConfigError(f"{target.name} must be a golden file, which says what model it is of; got arrays alone.")
        require_schema(held.meta, target.name)
        arrays = {name: _loaded(each, held.meta, name) for name, each in held.arrays.items()}
        return Golden(held.meta, arrays)

    def groups(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Groups of equal layers by name, with what is said of each."""
        yield from self.meta["groups"].items()

    def __repr__(self) -> str:
        groups = len(self.meta["groups"])
        kinds = f"{groups} group{'s' * (groups != 1)} of layers"
        return f"Golden({self.meta['model_type']}: {kinds}, {len(self.inputs)} inputs, {len(self.outputs)} outputs)"


def require_schema(meta: Mapping[str, Any], name: str) -> None:
    """Raise unless a file is a golden one of a version that is understood."""
    if meta.get("schema") != SCHEMA:
        raise ConfigError(
            f"schema must be {SCHEMA!r}, since other files have other arrays; got {json.dumps(meta.get('schema'))} in "
            f"{name}."
        )
    if type(meta.get("version")) is not int or meta["version"] != VERSION:
        raise ConfigError(
            f"version must be {VERSION}, since arrays mean other things in others; got "
            f"{json.dumps(meta.get('version'))} in {name}. Make it again with situs golden."
        )


def _loaded(given: Any, meta: Mapping[str, Any], name: str) -> Tensor:
    """An array of a file as a tensor of the dtype that the file says."""
    import torch

    if isinstance(given, Tensor):
        return given
    dtypes = meta.get("dtypes")
    whole = isinstance(dtypes, Mapping) and dtypes.get(name) == "int64"
    try:
        return torch.tensor(given, dtype=torch.int64 if whole else torch.float64)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        kind = "whole numbers of 64 bits" if whole else "numbers of float64"
        raise ConfigError(f"{name} must be {kind}, since the file is a golden one; got {told(given)}.") from None
