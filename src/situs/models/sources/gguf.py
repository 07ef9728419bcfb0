"""GGUF files, llama.cpp's own: the settings before the weights, read within bounds, and the few tensors that hold
frequencies.

    "GGUF"  version  tensors  settings  {name, type, value} ...  {name, shape, type, place} ...  padding  data

Whatever bytes a file has, reading it ends soon and takes little memory: long texts and lists of tokens are passed over,
every count is compared with what is left of the file, and nothing is read that is not asked for. The package ``gguf``
maps a file and makes objects of all its tokens, which takes seconds and trusts every count; it serves here to read
frequencies that are stored in another type than float32.
"""

from __future__ import annotations

import io
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from situs.models.sources.strict import ConfigError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
SETTINGS, TENSORS, STRINGS = 4_096, 32_768, 1_500_000
NAME, TEXT, LIST = 255, 4_096, 1_024  # bytes of a name and of a text that is kept, numbers of a list that is kept

STRING, ARRAY, FLOAT = 8, 9, 6
FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""The types of values, as `struct` writes them."""
BLOCK = 2**20  # bytes that are read at once

FACTORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
"""Tensors that divide frequencies, whose numbers are read."""
FLOAT32 = 0  # of tensors


@dataclass(frozen=True)
class Long:
    """Stand for a text or a list that is too long to be a setting of positions."""

    what: str
    count: int

    def __repr__(self) -> str:
        return f"a {self.what} of {self.count:,}"


@dataclass(frozen=True)
class _Stored:
    """Hold where a tensor lies."""

    shape: tuple[int, ...]
    type: int
    place: int


class _Bytes:
    """Read a file from its beginning; what it does not have is said in a sentence."""

    def __init__(self, file: io.BufferedIOBase, name: str) -> None:
        self.file, self.name = file, name
        self.size = file.seek(0, io.SEEK_END)
        self.order = "<"
        self.strings = 0
        file.seek(0)

    def take(self, count: int) -> bytes:
        """So many bytes."""
        found = self.file.read(count) if count <= self.size else b""
        if len(found) < count:
            self.refuse_end()
        return found

    def skip(self, count: int) -> None:
        """Pass over so many bytes."""
        if self.file.tell() + count > self.size:
            self.refuse_end()
        self.file.seek(count, io.SEEK_CUR)

    def skip_strings(self, count: int) -> None:
        """Pass over so many strings, each with its length before it."""
        length, block, at = struct.Struct(f"{self.order}Q"), b"", 0
        for _ in range(count):
            if at + 8 > len(block):
                self.file.seek(at - len(block), io.SEEK_CUR)
                block, at = self.file.read(BLOCK), 0
                if len(block) < 8:
                    self.refuse_end()
            at += 8 + length.unpack_from(block, at)[0]
            if at > self.size:
                self.refuse_end()
        self.skip(at - len(block))

    def numbers(self, format: str, count: int = 1) -> tuple[Any, ...]:
        """So many numbers of a format of `struct`."""
        return struct.unpack(f"{self.order}{count}{format}", self.take(count * struct.calcsize(f"={format}")))

    def number(self, format: str) -> Any:
        """One number of a format of `struct`."""
        return self.numbers(format)[0]

    def text(self, most: int) -> str | Long:
        """A text, with its length before it."""
        length = self.number("Q")
        if length > most:
            self.skip(length)
            return Long("string", length)
        return self.take(length).decode("utf-8", errors="replace")

    def name_of(self, what: str) -> str:
        """The name of a setting or tensor."""
        length = self.number("Q")
        if length > NAME:
            raise ConfigError(
                f"{self.name} must have names of at most {NAME} bytes, since llama.cpp has no longer ones; got "
                f"{length:,} for the name of a {what}."
            )
        return self.take(length).decode("utf-8", errors="replace")

    def few(self, what: str, most: int) -> int:
        """A count that is small enough to be meant."""
        count: int = self.number("Q")
        if count > most:
            raise ConfigError(f"{self.name} must have at most {most:,} {what}, since it is a model; got {count:,}.")
        return count

    def refuse_end(self) -> None:
        """Raise since the file ends."""
        raise ConfigError(
            f"{self.name} must hold all settings that it announces; got {self.size:,} bytes, after which it ends. The "
            f"file seems to be cut off."
        )


def read_gguf_file(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read the settings of a file, and its tensors as `read_gguf_bytes` does."""
    with path.open("rb") as file:
        return _read(_Bytes(file, path.name))


def read_gguf_bytes(given: bytes, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read settings by name, and tensors by name: numbers of those that divide frequencies, shapes of the others."""
    return _read(_Bytes(io.BytesIO(given), name))


def _read(file: _Bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    if file.file.read(4) != MAGIC:
        raise ConfigError(f"{file.name} must begin with GGUF, since GGUF files do; got another file.")
    version = file.number("I")
    if version & 0xFFFF == 0 and version:  # which is how a machine of the other byte order wrote it
        file.order = ">"
        version = int.from_bytes(version.to_bytes(4, "little"), "big")
    if version not in VERSIONS:
        raise ConfigError(
            f"{file.name} must be of GGUF version 2 or 3, since llama.cpp reads no other; got version {version}."
        )
    tensors, settings = file.few("tensors", TENSORS), file.few("settings", SETTINGS)
    keys: dict[str, Any] = {}
    for _ in range(settings):
        key = file.name_of("setting")
        if key in keys:
            raise ConfigError(
                f"{file.name} must have every setting once, since readers differ in which they take; got {key!r:.80} "
                f"twice."
            )
        keys[key] = _value(file, key)
    stored = dict(_tensor(file) for _ in range(tensors))
    start = _aligned(file, keys)
    return keys, {
        name: _factors(file, name, each, start) if name in FACTORS else list(each.shape)
        for name, each in stored.items()
    }


def _value(file: _Bytes, key: str) -> Any:
    kind = file.number("I")
    if kind == STRING:
        return file.text(TEXT)
    if kind == ARRAY:
        return _list(file, key)
    if kind not in FORMATS:
        _refuse_type(file, key, kind)
    value = file.number(FORMATS[kind])
    return decimal(value) if kind == FLOAT else value


def _list(file: _Bytes, key: str) -> Any:
    kind, count = file.number("I"), file.number("Q")
    if kind == STRING:
        file.strings += count
        if file.strings > STRINGS:
            raise ConfigError(
                f"{file.name} must have at most {STRINGS:,} strings in lists, since no vocabulary has more; got "
                f"{file.strings:,}."
            )
        file.skip_strings(count)
        return Long("list", count)
    if kind not in FORMATS:
        _refuse_type(file, key, kind)
    if count > LIST:
        file.skip(count * struct.calcsize(f"={FORMATS[kind]}"))
        return Long("list", count)
    found = file.numbers(FORMATS[kind], count)
    return [decimal(each) for each in found] if kind == FLOAT else list(found)


def _refuse_type(file: _Bytes, key: str, kind: int) -> None:
    raise ConfigError(
        f"{key:.80} must have a type that {file.name} can have, since its bytes are read by it; got type {kind}."
    )


def decimal(value: float) -> float:
    """The shortest number that float32 rounds to this one: 0.1, where it holds 0.10000000149."""
    if not math.isfinite(value):
        return value
    packed = struct.pack("<f", value)
    return next(
        (each for each in (float(f"{value:.{digits}g}") for digits in range(6, 9)) if _packs(each, packed)), value
    )


def _packs(value: float, packed: bytes) -> bool:
    try:
        return struct.pack("<f", value) == packed
    except OverflowError:  # rounded beyond the largest float32
        return False


def _tensor(file: _Bytes) -> tuple[str, _Stored]:
    name, axes = file.name_of("tensor"), file.number("I")
    if axes > 4:
        raise ConfigError(f"{name:.80} must have at most 4 axes, since tensors of GGUF have; got {axes}.")
    return name, _Stored(tuple(file.numbers("Q", axes)), file.number("I"), file.number("Q"))


def _aligned(file: _Bytes, keys: dict[str, Any]) -> int:
    """Where the data of tensors begins."""
    step = keys.get("general.alignment", 32)
    if type(step) is not int or not 0 < step <= 2**20 or step & (step - 1):
        raise ConfigError(
            f"general.alignment must be a power of two up to 2^20, since tensors begin at its multiples; got {step!r}."
        )
    return -(-file.file.tell() // step) * step


def _factors(file: _Bytes, name: str, stored: _Stored, start: int) -> list[float]:
    """The numbers of a small tensor."""
    count = math.prod(stored.shape)
    if len(stored.shape) != 1 or not 0 < count <= LIST:
        shape = "x".join(map(str, stored.shape)) or "none"
        raise ConfigError(f"{name} must be a list of numbers, one for each pair of channels; got a shape of {shape}.")
    if start + stored.place >= file.size:
        file.refuse_end()
    file.file.seek(start + stored.place)
    if stored.type == FLOAT32:
        return [decimal(each) for each in file.numbers("f", count)]
    return _dequantized(file, name, stored)


def _dequantized(file: _Bytes, name: str, stored: _Stored) -> list[float]:
    """The numbers of a tensor of another type than float32, by llama.cpp's own package."""
    try:
        import gguf
        import numpy
    except ImportError:
        raise ConfigError(
            f"{name} must be float32 to be read without the package gguf; got type {stored.type}. Install it with "
            f"pip install 'situs[gguf]'."
        ) from None
    try:
        kind = gguf.GGMLQuantizationType(stored.type)
        each, size = gguf.GGML_QUANT_SIZES[kind]
        raw = file.take(-(-stored.shape[0] // each) * size)
        found = gguf.quants.dequantize(numpy.frombuffer(raw, dtype=numpy.uint8), kind)
    except (KeyError, ValueError, NotImplementedError):
        raise ConfigError(
            f"{name} must have a type that the package gguf reads, since its numbers divide frequencies; got type "
            f"{stored.type}."
        ) from None
    return [float(each) for each in found.flatten()[: stored.shape[0]]]
