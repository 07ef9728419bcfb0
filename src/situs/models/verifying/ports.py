"""What a port is: a golden file that it filled, a mapping of arrays, or a function; checked, with the dtypes it used.

port.json, port.npz, port.safetensors     any of a golden file's arrays, in any of its formats
{"layer0.cos": ..., ...}                  tensors, arrays of NumPy, JAX or MLX, lists
my_port.py:function                       called with the inputs of each group, returns arrays by name
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from situs.arguments import told
from situs.models.oracle import files
from situs.models.oracle.arrays import IGNORED_IN_PADDING, Computed
from situs.models.oracle.parts import Part
from situs.models.oracle.record import Golden, require_schema
from situs.models.sources.strict import ConfigError
from situs.models.verifying.comparing import UNITS, Given, described
from situs.registry.origins import place_of, sentence_of
from situs.registry.own import is_own, load_function
from situs.registry.spelling import did_you_mean

Function = Callable[[dict[str, Any]], Mapping[str, Any] | None]

FLAGS = ("causal", "rotates", "tempered", "sinks", "valid")
"""Arrays of ones and zeros, which a port may give as True and False."""

CALLED = {
    **dict.fromkeys(("freq", "freqs", "inv_freq", "inv_freqs", "thetas", "frequency"), "frequencies"),
    **dict.fromkeys(("cosine", "cosines", "cos_table", "cos_cached"), "cos"),
    **dict.fromkeys(("sine", "sines", "sin_table", "sin_cached"), "sin"),
    **dict.fromkeys(("q_rotated", "q_rot", "q_embed", "rotated_query", "rotated_queries"), "rotated_q"),
    **dict.fromkeys(("k_rotated", "k_rot", "k_embed", "rotated_key", "rotated_keys"), "rotated_k"),
    **dict.fromkeys(("logits", "score", "attention_scores"), "scores"),
    **dict.fromkeys(("attention_factor", "attention_scaling", "mscale"), "factor"),
}
"""What other programs call the arrays of a group."""


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
            f"{unknown[0]!r:.160}.{_nearest(str(unknown[0]), outputs)}"
        )
    if not set(found) & set(outputs):
        example = next((name for name in outputs if name.endswith(".cos")), next(iter(outputs)))
        raise ConfigError(
            f"port must have one of the model's arrays at least, such as {example}, since they are "
            f"compared; got {'inputs alone' if found else 'none'}."
        )
    where = {name: part for part in parts for name in Computed(part).names}
    checked: dict[str, Given] = {}
    for name, each in found.items():
        value, own = as_numbers(name, each, golden)
        if name not in outputs:
            _require_input(name, value, golden[name])
            continue
        value = _without_padding(name, value, where[name])
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
        try:
            made = port.function({"name": name, "said": said, **given, **batch})
        except Exception as problem:
            raise ValueError(
                f"port must return arrays by name for {name}, since they are compared; got "
                f"{sentence_of(problem, place_of(problem, with_code=True))}."
            ) from problem
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
    value, wrong = right, ""
    try:
        listed = given.detach().cpu() if isinstance(given, Tensor) else given
        listed = listed if isinstance(listed, Tensor) or not hasattr(listed, "tolist") else listed.tolist()
        wrong = _unreal(given, listed, flags=name.rpartition(".")[2] in FLAGS)
        if not wrong:
            value = listed.double() if isinstance(listed, Tensor) else torch.tensor(listed, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError, RecursionError):
        wrong = f"{told(given)}."
    if wrong:
        raise TypeError(f"{name} must be numbers in shape {tuple(right.shape)}, since each is compared; got {wrong}")
    shape = tuple(size for size in right.shape if size != 1)
    if tuple(size for size in value.shape if size != 1) != shape:
        cure = _about_width(name, value, golden)
        raise ConfigError(
            f"{name} must have shape {tuple(right.shape)}, as in the golden file; got {tuple(value.shape)}.{cure}"
        )
    return value.reshape(right.shape), own


def _unreal(given: object, listed: object, *, flags: bool) -> str:
    """Say what in a tensor or in nested lists is no real number of float64; torch takes letters and flags for some."""
    if isinstance(listed, (list, tuple)):
        return next((said for each in listed if (said := _unreal(given, each, flags=flags))), "")
    among = "" if listed is given else " among them"
    if isinstance(listed, Tensor):
        among = among if not listed.ndim else ""
        if listed.layout != torch.strided:
            return f"{told(listed)}, sparse. Make it dense with to_dense()."
        if listed.is_complex():
            return (
                f"{told(listed)}{among}. Of a table of complex numbers, the real part is cos, the imaginary part sin."
            )
        return f"{told(listed)}{among}." if listed.dtype == torch.bool and not flags else ""
    if isinstance(listed, (bytes, bytearray, complex)) or (isinstance(listed, bool) and not flags):
        return f"{told(listed)}{among}."
    if isinstance(listed, int) and abs(listed) > sys.float_info.max:
        return f"a whole number that float64 cannot hold{among}."
    return ""


def _without_padding(name: str, value: Tensor, part: Part) -> Tensor:
    """Numbers that are not finite at padding, as 0: attention never sees them, so they are not compared."""
    if part.batch is None or name.rpartition(".")[2] not in IGNORED_IN_PADDING:
        return value
    valid = torch.tensor(part.batch.valid)
    padding = ~valid.reshape(*valid.shape, *[1] * (value.ndim - valid.ndim))
    return torch.where(padding & ~value.isfinite(), 0.0, value)


def _nearest(name: str, outputs: Iterable[str]) -> str:
    """End an error message about an unknown array with the one that may be meant: by what others call it, or by
    spelling."""
    group, _, key = name.rpartition(".")
    meant = f"{group}.{CALLED.get(key.casefold())}"
    return f" Did you mean {meant!r}?" if meant in outputs else did_you_mean(name, outputs)


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
