"""What a port is: a golden file that it filled, a mapping of arrays, or a function; checked, with the dtypes it used.

port.json, port.npz, port.safetensors     any of a golden file's arrays, in any of its formats
{"layer0.cos": ..., ...}                  tensors, arrays of NumPy, JAX or MLX, lists
my_port.py:function                       called with the inputs of each group, returns arrays by name
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from situs.arguments import told
from situs.models.oracle import files
from situs.models.oracle.arrays import Computed
from situs.models.oracle.parts import Part
from situs.models.oracle.record import Golden, require_schema
from situs.models.sources.strict import ConfigError
from situs.models.verifying.comparing import UNITS, Given, described
from situs.registry.own import is_own, load_function
from situs.registry.spelling import did_you_mean

Function = Callable[[dict[str, Any]], Mapping[str, Any] | None]


@dataclass(frozen=True)
class Port:
    """Hold what a port gives: arrays, or a function that makes them; and what its file says."""

    arrays: Mapping[str, Any] | None
    function: Function | None = None
    meta: Mapping[str, Any] | None = None


def port_of(given: object) -> Port:
    """Take whatever a port is given as."""
    if isinstance(given, Port):
        return given
    if isinstance(given, Golden):
        return Port(given.arrays, meta=given.meta)
    if isinstance(given, Mapping):
        return Port(given)
    if isinstance(given, (str, os.PathLike)):
        if isinstance(given, str) and is_own(given) and not Path(given).is_file():
            return Port(None, load_function(given))
        held = files.read_file(Path(given))
        if held.meta is not None:
            require_schema(held.meta, Path(given).name)
        return Port(held.arrays, meta=held.meta)
    if callable(given):
        return Port(None, given)
    raise TypeError(
        f"port must be a golden file, a mapping of arrays or a function, since its numbers are compared; got "
        f"{told(given)}."
    )


def asked_of(port: Port, fingerprint: str, model_type: str) -> dict[str, Any]:
    """The positions, layers and length that a file was made for; raises for a file of another model."""
    meta = port.meta or {}
    if meta and meta.get("fingerprint") != fingerprint:
        raise ConfigError(
            f"port must be filled for this model, {model_type} with fingerprint {fingerprint}, since others have other "
            f"numbers; got a file of {meta.get('model_type')} with {meta.get('fingerprint')}."
        )
    return {key: meta[key] for key in ("positions", "layers", "length") if meta.get(key) is not None}


def arrays_of(port: Port, parts: tuple[Part, ...], golden: Golden, dtype: str | None) -> dict[str, Given]:
    """The outputs of a port, checked: names, shapes and numbers; inputs must be as they were."""
    found = dict(port.arrays) if port.arrays is not None else _called(port, golden)
    outputs = golden.outputs
    unknown = [name for name in found if name not in golden.arrays]
    if unknown:
        raise ConfigError(
            f"arrays must have the names of the golden file, since each is compared with its own; got "
            f"{unknown[0]!r}.{did_you_mean(str(unknown[0]), outputs)}"
        )
    if not set(found) & set(outputs):
        raise ConfigError(
            f"port must have one of the model's arrays at least, such as {next(iter(outputs))}, since they are "
            f"compared; got {'inputs alone' if found else 'none'}."
        )
    where = {name: part for part in parts for name in Computed(part).names}
    checked: dict[str, Given] = {}
    for name, each in found.items():
        value, own = as_numbers(name, each, golden)
        if name not in outputs:
            _require_input(name, value, golden[name])
            continue
        _require_finite(name, value, where[name])
        checked[name] = Given(value, dtype or _dtype(value, own))
    return checked


def _called(port: Port, golden: Golden) -> dict[str, Any]:
    """Call a function for every group of layers and every table of the input."""
    assert port.function is not None
    found: dict[str, Any] = {}
    inputs, outputs = golden.inputs, golden.outputs
    for name, said in {**golden.meta["groups"], **golden.meta["tables"]}.items():
        given = {key.removeprefix(f"{name}."): each for key, each in inputs.items() if key.startswith(f"{name}.")}
        part = f"{said['part']}." if said["part"] else ""
        batch = {f"batch_{key}": inputs.get(f"{part}batch.{key}") for key in ("index", "valid", "start")}
        made = port.function({"name": name, "said": said, **given, **batch})
        if made is None:
            continue
        if not isinstance(made, Mapping):
            raise TypeError(f"port must return arrays by name, since they are compared; got {told(made)} for {name}.")
        for key, each in made.items():
            found[f"{name}.{key}" if f"{name}.{key}" in outputs else key] = each
    return found


def as_numbers(name: str, given: Any, golden: Golden) -> tuple[Tensor, str | None]:
    """An array as a tensor of float64 in the shape that it should have, and the dtype that it came in."""
    right = golden[name]
    own = str(getattr(given, "dtype", "")).rpartition(".")[2] or None
    try:
        listed = given.detach().cpu() if isinstance(given, Tensor) else given
        listed = listed if isinstance(listed, Tensor) or not hasattr(listed, "tolist") else listed.tolist()
        value = listed.double() if isinstance(listed, Tensor) else torch.tensor(listed, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(
            f"{name} must be numbers in shape {tuple(right.shape)}, since each is compared; got {told(given)}."
        ) from None
    shape = tuple(size for size in right.shape if size != 1)
    if tuple(size for size in value.shape if size != 1) != shape:
        cure = _about_width(name, value, golden)
        raise ConfigError(
            f"{name} must have shape {tuple(right.shape)}, as in the golden file; got {tuple(value.shape)}.{cure}"
        )
    return value.reshape(right.shape), own


def _about_width(name: str, value: Tensor, golden: Golden) -> str:
    """What to say of a table that has too many pairs, or each of them twice."""
    group, _, key = name.rpartition(".")
    rotation = golden.meta["groups"].get(group, {}).get("rotation")
    if rotation is None or key not in ("cos", "sin", "frequencies") or not value.ndim:
        return ""
    width, whole = rotation["rotary_dim"], rotation["head_dim"]
    if value.shape[-1] == width:
        return " Give one number for each pair: many tables hold each twice."
    if value.shape[-1] == whole // 2 and width < whole:
        return f" That is as many pairs as a whole head has, but {width} of its {whole} channels are rotated."
    return ""


def _require_input(name: str, value: Tensor, right: Tensor) -> None:
    """Raise if a port was fed something else."""
    off = (value != right).nonzero()
    if len(off):
        index = tuple(int(each) for each in off[0])
        raise ConfigError(
            f"{name} must be as the golden file has it, since it is an input that outputs are computed from; got "
            f"{float(value[index]):.9g} for {float(right[index]):.9g} at {list(index)}."
        )


def _require_finite(name: str, value: Tensor, part: Part) -> None:
    off = (~value.isfinite()).nonzero()
    if len(off):
        index = tuple(int(each) for each in off[0])
        raise ConfigError(
            f"{name} must be finite, since it is compared; got {float(value[index])} at "
            f"{described(part, name, index)}. float16 holds nothing beyond 65,504, positions neither."
        )


def _dtype(value: Tensor, own: str | None) -> str:
    """The dtype that numbers were computed in: the narrowest that holds them all, but no finer than float32. Programs
    that return float64 often have tables of float32, and decimals of JSON are not quite the numbers they stand for."""
    if own in ("bfloat16", "float16"):
        return own
    for name in ("bfloat16", "float16"):
        if torch.equal(value.to(getattr(torch, name)).double(), value):
            return name
    return "float32"


def require_stated(dtype: object) -> str | None:
    """Raise unless this names a dtype that ports compute in."""
    name = str(dtype).removeprefix("torch.")
    if dtype is None:
        return None
    if not isinstance(dtype, (str, torch.dtype)) or name not in UNITS:
        raise ValueError(
            f"dtype must be one of {', '.join(UNITS)}, since it tells how far rounding takes numbers; got {dtype!r}."
            f"{did_you_mean(name, UNITS)}"
        )
    return name
