"""GGUF files: bytes and tensors are read within bounds, and what cannot be is refused in a sentence."""

from __future__ import annotations

import builtins
import struct
import time
from pathlib import Path
from typing import Any

import gguf
import numpy
import pytest

from situs.models import ConfigError, read
from situs.models.readers.llama_cpp.scaling import llama3
from situs.models.readers.llama_cpp.settings import read_gguf
from situs.models.sources.gguf import decimal
from tests.models.gguf_files import SIZES, keys, refused, written


def header(version: int = 3, tensors: int = 0, settings: int = 0) -> bytes:
    """The beginning of a file."""
    return b"GGUF" + struct.pack("<IQQ", version, tensors, settings)


def text(words: bytes) -> bytes:
    """A string with its length before it."""
    return struct.pack("<Q", len(words)) + words


def test_a_file_says_what_each_layer_does(tmp_path: Path) -> None:
    path = written(tmp_path / "model.gguf", "qwen3", {**SIZES, "rope.freq_base": 1e6})
    model = read(path)
    assert repr(model) == "qwen3\n  layers 0-3: Rotary(head_dim=16, base=1000000.0)"
    assert (model.lengths.declared, model.lengths.served) == (32768, 32768)
    assert model.config["qwen3.block_count"] == 4
    assert not any(key.startswith("tokenizer.") for key in model.config)


def test_pairs_are_those_of_the_file_and_not_of_the_checkpoint() -> None:
    pairings = {name: read_gguf(keys(name), {}).layer(0).calls[0].option("pairing") for name in ("llama", "qwen2")}
    assert pairings == {"llama": "interleaved", "qwen2": None}


def test_every_source_of_a_file_gives_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "model-00001-of-00002.gguf", "qwen3", SIZES)
    (tmp_path / "model-00002-of-00002.gguf").write_bytes(b"")
    expected = read(path)
    assert read(str(path)) == read(path.read_bytes()) == read(tmp_path) == expected
    path.rename(tmp_path / "without a suffix")
    assert read(tmp_path / "without a suffix") == expected
    with (tmp_path / "without a suffix").open("rb") as file:
        monkeypatch.setattr("sys.stdin", type("Standard", (), {"buffer": file}))
        assert read("-") == expected


def test_files_of_the_other_byte_order_are_read(tmp_path: Path) -> None:
    tensors = {"rope_freqs.weight": llama3(8.0, 5e5, 8)}
    paths = [
        written(tmp_path / f"{order.name}.gguf", "llama", {**SIZES, "rope.freq_base": 5e5}, tensors, order=order)
        for order in gguf.GGUFEndian
    ]
    assert read(paths[0]) == read(paths[1])


def test_a_folder_has_one_file_or_none_is_read(tmp_path: Path) -> None:
    assert refused(tmp_path) == (
        f"a folder must hold config.json, params.json or one GGUF file; got '{tmp_path}' with none of them."
    )
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"")
    assert refused(tmp_path) == (
        f"a folder must hold config.json, params.json or one GGUF file; got '{tmp_path}' with 2 GGUF files."
    )


def test_numbers_of_float32_are_those_that_were_written() -> None:
    for number in (0.1, 1.0, 1e4, 0.015625, 0.0707, 1.1902380714238083, 3.4e38, 0.0):
        stored = struct.unpack("<f", struct.pack("<f", number))[0]
        assert decimal(stored) == pytest.approx(number, rel=1e-7)
    assert decimal(struct.unpack("<f", struct.pack("<f", 0.1))[0]) == 0.1
    assert decimal(float("inf")) == float("inf")
    assert decimal(3.4028234663852886e38) == pytest.approx(3.4028234663852886e38)


@pytest.mark.parametrize(
    ("file", "said"),
    [
        (b"GGUF", "config must hold all settings that it announces; got 4 bytes, after which it ends. The file seems "
                  "to be cut off."),
        (header(version=1), "config must be of GGUF version 2 or 3, since llama.cpp reads no other; got version 1."),
        (header(version=9), "config must be of GGUF version 2 or 3, since llama.cpp reads no other; got version 9."),
        (header(settings=2**60), "config must have at most 4,096 settings, since it is a model; got "
                                 "1,152,921,504,606,846,976."),
        (header(tensors=10**6), "config must have at most 32,768 tensors, since it is a model; got 1,000,000."),
        (header(settings=1) + struct.pack("<Q", 2**40), "config must have names of at most 255 bytes, since llama.cpp "
                                                        "has no longer ones; got 1,099,511,627,776 for the name of a "
                                                        "setting."),
        (header(settings=1) + text(b"key") + struct.pack("<I", 99), "key must have a type that config can have, since "
                                                                    "its bytes are read by it; got type 99."),
        (header(settings=1) + text(b"key") + struct.pack("<IIQ", 9, 9, 1),
         "key must have a type that config can have, since its bytes are read by it; got type 9."),
        (header(settings=1) + text(b"key") + struct.pack("<IIQ", 9, 4, 2**50),
         "config must hold all settings that it announces; got 51 bytes, after which it ends. The file seems to be cut "
         "off."),
        (header(settings=1) + text(b"key") + struct.pack("<IIQ", 9, 8, 2**50),
         "config must have at most 1,500,000 strings in lists, since no vocabulary has more; got "
         "1,125,899,906,842,624."),
        (header(settings=1) + text(b"key") + struct.pack("<IIQQ", 9, 8, 2, 2**63),
         "config must hold all settings that it announces; got 59 bytes, after which it ends. The file seems to be cut "
         "off."),
        (header(settings=1) + text(b"key") + struct.pack("<IQ", 8, 2**63),
         "config must hold all settings that it announces; got 47 bytes, after which it ends. The file seems to be cut "
         "off."),
        (header(settings=2) + 2 * (text(b"key") + struct.pack("<II", 4, 1)),
         "config must have every setting once, since readers differ in which they take; got 'key' twice."),
        (header(settings=1) + text(b"general.alignment") + struct.pack("<II", 4, 3),
         "general.alignment must be a power of two up to 2^20, since tensors begin at its multiples; got 3."),
        (header(tensors=1) + text(b"name") + struct.pack("<I", 5),
         "name must have at most 4 axes, since tensors of GGUF have; got 5."),
        (header(), "general.architecture must name an architecture, since settings mean different things by it; got "
                   "null."),
    ],
)  # fmt: skip
def test_bytes_that_are_no_file_are_refused(file: bytes, said: str) -> None:
    assert refused(file) == said


@pytest.mark.once
def test_the_longest_files_are_read_soon() -> None:
    strings = header(settings=1) + text(b"tokens") + struct.pack("<IIQ", 9, 8, 1_500_000) + bytes(12_000_000)
    tensors = b"".join(text(b"%0255d" % index) + struct.pack("<IQIQ", 1, 1, 0, 0) for index in range(32_768))
    for file in (strings, header(tensors=32_768) + tensors):
        begun = time.perf_counter()
        assert refused(file).startswith("general.architecture must name an architecture")
        assert time.perf_counter() - begun < 2


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGML and more")
    assert refused(tmp_path / "model.gguf") == "model.gguf must begin with GGUF, since GGUF files do; got another file."


def test_tensors_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    whole = written(tmp_path / "model.gguf", "llama", SIZES, {"rope_freqs.weight": [1.0] * 8}).read_bytes()
    assert refused(whole[:-40]) == (
        f"config must hold all settings that it announces; got {len(whole) - 40:,} bytes, after which it ends. The "
        f"file seems to be cut off."
    )
    wrong = header(tensors=1) + text(b"rope_freqs.weight") + struct.pack("<IQQIQ", 2, 2, 2, 0, 0)
    assert refused(wrong + bytes(64)) == (
        "rope_freqs.weight must be a list of numbers, one for each pair of channels; got a shape of 2x2."
    )


def test_frequencies_of_another_type_are_read_by_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(kind: int) -> bytes:
        raw = numpy.array([1, 1, 2, 2, 4, 4, 8, 8], dtype=numpy.float16).tobytes()
        whole = header(tensors=1, settings=len(SIZES) + 1) + text(b"general.architecture") + struct.pack("<I", 8)
        whole += text(b"llama")
        for key, value in SIZES.items():
            whole += text(f"llama.{key}".encode()) + struct.pack("<II", 4, value)
        whole += text(b"rope_freqs.weight") + struct.pack("<IQIQ", 1, 8, kind, 0)
        return whole + bytes(-len(whole) % 32) + raw

    scaling = read(half(gguf.GGMLQuantizationType.F16)).layer(0).calls[0].option("scaling")
    assert scaling.option("short_factors") == (1.0, 1.0, 2.0, 2.0, 4.0, 4.0, 8.0, 8.0)
    assert refused(half(77)) == (
        "rope_freqs.weight must have a type that the package gguf reads, since its numbers divide frequencies; got "
        "type 77."
    )
    own = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "gguf":
            raise ImportError(name)
        return own(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    assert refused(half(gguf.GGMLQuantizationType.F16)) == (
        "rope_freqs.weight must be float32 to be read without the package gguf; got type 1. Install it with pip "
        "install 'situs[gguf]'."
    )


def test_a_later_part_of_a_file_says_which_to_read() -> None:
    part = {"split.no": 1, "split.count": 3, "split.tensors.count": 9}
    assert refused(part) == (
        "general.architecture must name an architecture, since settings mean different things by it; got null. This is "
        "file 2 of 3: read the first."
    )
    assert refused({**part, "general.architecture": "llama"}) == (
        "llama.block_count must be given, since it counts layers; got none. This is file 2 of 3: read the first."
    )


def test_a_gguf_file_is_llama_cpps_alone(tmp_path: Path) -> None:
    path = written(tmp_path / "model.gguf", "qwen3", SIZES)
    assert read(path, engine="llama.cpp") == read(path)
    with pytest.raises(ConfigError) as problem:
        read(path, engine="vllm")
    assert str(problem.value) == (
        "source must be a configuration of transformers for engine vllm, since GGUF files are llama.cpp's own; got "
        "model.gguf. Give the config.json that it was converted from."
    )
