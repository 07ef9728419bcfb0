"""Golden files: JSON, npz and safetensors, written byte for byte alike on every run, and read without other packages.

    .json          {"schema": ..., "version": ..., ..., "arrays": {name: {"shape": [...], "data": [...]}}}
    .npz           an .npy for each array, and golden.npy: the rest of the JSON, as bytes
    .safetensors   the arrays, and the rest of the JSON under __metadata__.golden

All three hold the same. What a port writes may leave out everything but arrays; in JSON, these may be nested lists.
"""

from __future__ import annotations

import ast
import io
import json
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from situs.arguments import told
from situs.models.sources.strict import BYTES, ConfigError, parse

SUFFIXES = (".json", ".npz", ".safetensors")
META = "golden"
LONGEST = 160
"""Characters of a path that an error shows."""

DAMAGES = (
    ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, OSError, RuntimeError, SyntaxError, TypeError,
    ValueError, struct.error, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What bytes that are no whole file make its readers raise."""

_SAFE = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
_NPY = {
    "<f8": torch.float64, "<f4": torch.float32, "<f2": torch.float16, "<i8": torch.int64, "<i4": torch.int32,
    "<i2": torch.int16, "|i1": torch.int8, "|u1": torch.uint8, "|b1": torch.bool,
}  # fmt: skip


class Held(NamedTuple):
    """What a file holds: arrays by name, tensors or nested lists; and the rest of its JSON."""

    arrays: dict[str, Any]
    meta: dict[str, Any] | None


def suffix_of(path: Path, name: str) -> str:
    """Raise unless a file's name tells one of the formats."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ConfigError(
            f"{name} must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}, since that tells the format; got "
            f"{shown(Path(path.name))}."
        )
    return suffix


def as_path(given: object, name: str) -> Path:
    """Raise unless this is a path."""
    if not isinstance(given, (str, os.PathLike)) or isinstance(os.fspath(given), bytes):
        raise TypeError(f"{name} must be text or a path, since it names a file; got {told(given)}.")
    return Path(given)


def shown(path: Path) -> str:
    """A path as an error shows it, cut where it is too long to read."""
    text = repr(str(path))
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}...'"


def as_bytes(suffix: str, meta: Mapping[str, Any], arrays: Mapping[str, Tensor]) -> bytes:
    """Write arrays and the rest in a format."""
    writers: dict[str, Callable[..., bytes]] = {".json": _json, ".npz": _npz, ".safetensors": _safetensors}
    return writers[suffix](meta, dict(sorted(arrays.items())))


def read_file(path: Path, name: str = "port") -> Held:
    """Read a golden file, or what a port made of one; ``name`` is what errors call the path."""
    suffix = suffix_of(path, name)
    try:
        size = path.stat().st_size
        held = path.read_bytes() if size <= BYTES else b""
    except (OSError, ValueError) as problem:  # the latter for a NUL in its name
        reason = getattr(problem, "strerror", None) or str(problem)
        raise ConfigError(f"{name} must be a file that can be read; got {shown(path)}: {reason}.") from None
    if size > BYTES:
        raise ConfigError(
            f"{path.name} must have at most 64 MiB, since it is a golden file; got {size / 2**20:,.0f} MiB."
        )
    if suffix == ".json":
        return _of_json(parse(held, path.name), path.name)
    try:
        arrays, text = _of_npz(held) if suffix == ".npz" else _of_safetensors(held)
    except DAMAGES as problem:
        raise ConfigError(
            f"{path.name} must be a whole {suffix} file of numbers, since its arrays are compared; got one that cannot "
            f"be read: {str(problem) or type(problem).__name__}."
        ) from None
    return Held(arrays, None if text is None else parse(text, path.name))


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _json(meta: Mapping[str, Any], arrays: Mapping[str, Tensor]) -> bytes:
    """One line for each array, and one for each of the rest."""
    listed = [
        f"{json.dumps(name)}: " + _text({"shape": list(each.shape), "data": each.flatten().tolist()})
        for name, each in arrays.items()
    ]
    rest = [f"{json.dumps(key)}: {_text(value)}" for key, value in sorted(meta.items())]
    body = ",\n".join([*rest, '"arrays": {\n' + ",\n".join(listed) + "\n}"])
    return f"{{\n{body}\n}}\n".encode()


def _of_json(found: dict[str, Any], name: str) -> Held:
    arrays = found.pop("arrays", None)
    if arrays is None and "schema" not in found:
        found, arrays = {}, found
    if not isinstance(arrays, dict):
        raise ConfigError(f"{name} must have an object of arrays, by name, under 'arrays'; got none.")
    return Held({key: _unfolded(each, key) for key, each in arrays.items()}, found or None)


def _unfolded(given: Any, name: str) -> Any:
    """Numbers in their shape; nested lists as they are."""
    if not isinstance(given, dict):
        return given
    if not {"shape", "data"} <= given.keys():
        raise ConfigError(f"{name} must have a shape and data, or be a list of numbers; got {', '.join(given)}.")
    shape, data = given["shape"], given["data"]
    sizes = isinstance(shape, list) and all(type(each) is int and each >= 0 for each in shape)
    if not sizes or not isinstance(data, list):
        raise ConfigError(f"{name} must have lists for shape and data; got others.")
    if math.prod(shape) != len(data):
        raise ConfigError(
            f"{name} must have as many numbers as its shape says, {math.prod(shape):,}; got {len(data):,}."
        )
    for size in reversed(shape[1:]):
        data = [data[start : start + size] for start in range(0, len(data), max(size, 1))]
    return data if shape else data[0]


def _npz(meta: Mapping[str, Any], arrays: Mapping[str, Tensor]) -> bytes:
    held = io.BytesIO()
    text = torch.tensor(list(_text(meta).encode()), dtype=torch.uint8)
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, each in {META: text, **arrays}.items():
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type, entry.external_attr, entry.create_system = zipfile.ZIP_DEFLATED, 0o644 << 16, 3
            archive.writestr(entry, _npy(each))
    return held.getvalue()


def _npy(array: Tensor) -> bytes:
    descr = next(code for code, dtype in _NPY.items() if dtype == array.dtype)
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {tuple(array.shape)}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"  # so that numbers begin at a multiple of 64
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + _raw(array)


def _of_npz(held: bytes) -> tuple[dict[str, Any], bytes | None]:
    found: dict[str, Any] = {}
    with zipfile.ZipFile(io.BytesIO(held)) as archive:
        if sum(each.file_size for each in archive.infolist()) > 4 * BYTES:
            raise ValueError("its arrays have more than 256 MiB")
        for entry in archive.namelist():
            found[entry.removesuffix(".npy")] = _of_npy(archive.read(entry))
    text = found.pop(META, None)
    return found, None if text is None else bytes(text.tolist())


def _of_npy(held: bytes) -> Tensor:
    if held[:6] != b"\x93NUMPY":
        raise ValueError("an entry is no .npy")
    form, start = ("<H", 10) if held[6] == 1 else ("<I", 12)
    size = struct.unpack(form, held[8:start])[0]
    header = ast.literal_eval(held[start : start + size].decode("latin-1"))
    dtype = _NPY.get(header["descr"])
    if dtype is None:
        raise ValueError(f"dtype {header['descr']!r} is none of {', '.join(_NPY)}; save it as float32")
    shape = tuple(header["shape"])
    if header["fortran_order"]:
        return _tensor(held[start + size :], dtype, shape[::-1]).permute(*reversed(range(len(shape))))
    return _tensor(held[start + size :], dtype, shape)


def _safetensors(meta: Mapping[str, Any], arrays: Mapping[str, Tensor]) -> bytes:
    header: dict[str, Any] = {"__metadata__": {META: _text(meta)}}
    raw: list[bytes] = []
    end = 0
    for name, each in arrays.items():
        raw.append(_raw(each))
        start, end = end, end + len(raw[-1])
        code = next(code for code, dtype in _SAFE.items() if dtype == each.dtype)
        header[name] = {"dtype": code, "shape": list(each.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(raw)


def _of_safetensors(held: bytes) -> tuple[dict[str, Any], bytes | None]:
    size = struct.unpack("<Q", held[:8])[0]
    if size > len(held) - 8:
        raise ValueError("it is cut off")
    header = parse(held[8 : 8 + size], "its header")
    text = header.pop("__metadata__", {}).get(META)
    found = {}
    for name, each in header.items():
        start, end = each["data_offsets"]
        if each["dtype"] not in _SAFE:
            raise ValueError(f"dtype {each['dtype']!r} is none of {', '.join(_SAFE)}")
        found[name] = _tensor(held[8 + size + start : 8 + size + end], _SAFE[each["dtype"]], tuple(each["shape"]))
    return found, None if text is None else text.encode()


def _raw(array: Tensor) -> bytes:
    """The bytes of an array, little-endian as all machines that torch runs on."""
    flat = array.contiguous().flatten()
    return bytes(flat.view(torch.uint8).tolist()) if flat.numel() else b""


def _tensor(raw: bytes, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    count = math.prod(shape)
    if not count:
        return torch.zeros(shape, dtype=dtype)
    return torch.frombuffer(bytearray(raw), dtype=dtype, count=count).reshape(shape)
