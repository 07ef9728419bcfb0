"""GGUF files as llama.cpp's converter writes them, made by llama.cpp's own package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy
import pytest

from situs.models import ConfigError, read
from situs.models.readers.llama_cpp.settings import read_gguf

SIZES: dict[str, Any] = {"embedding_length": 64, "attention.head_count": 4, "attention.head_count_kv": 2,
                         "block_count": 4, "context_length": 32768}  # fmt: skip


def keys(name: str, **settings: Any) -> dict[str, Any]:
    """The settings of a small model, some of them changed; __ for a point."""
    changed = {key.replace("__", "."): value for key, value in settings.items()}
    return {"general.architecture": name, **{f"{name}.{key}": each for key, each in {**SIZES, **changed}.items()}}


def refused(source: Any, tensors: Any = None) -> str:
    """What is said of a file that cannot be read."""
    with pytest.raises(ConfigError) as problem:
        read_gguf(source, tensors or {}) if isinstance(source, dict) else read(source)
    return str(problem.value)


def written(
    path: Path,
    architecture: str,
    settings: Mapping[str, Any],
    tensors: Mapping[str, Sequence[float]] | None = None,
    *,
    order: gguf.GGUFEndian = gguf.GGUFEndian.LITTLE,
) -> Path:
    """A file with settings of an architecture, some of a tokenizer, and tensors."""
    writer = gguf.GGUFWriter(path, architecture, endianess=order)
    for key, value in settings.items():
        _add(
            writer, key if "." in key and key.split(".")[0] in ("general", "split") else f"{architecture}.{key}", value
        )
    writer.add_token_list([f"token {index}" for index in range(100)])
    writer.add_token_scores([0.5] * 100)
    writer.add_chat_template("x" * 10_000)
    for name, numbers in (tensors or {}).items():
        writer.add_tensor(name, numpy.array(numbers, dtype=numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)
