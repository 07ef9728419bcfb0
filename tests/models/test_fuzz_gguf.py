"""GGUF files of any bytes, and any settings in them: a result or a clear error, never another exception.

SITUS_SLOW=1 pytest tests/models/test_fuzz_gguf.py      more than 200,000 files
"""

from __future__ import annotations

import os
import random
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from situs.models import read
from situs.models.engines import ENGINES
from situs.models.readers.llama_cpp.architectures import ARCHITECTURES, LEFT_OUT
from situs.models.readers.llama_cpp.settings import KEYS, read_gguf
from situs.models.sources.gguf import Long
from tests.models.gguf_files import written
from tests.models.test_fuzz_read import TYPES, changed, outcome
from tests.models.test_gguf_parity import CASES
from tests.models.test_gguf_parity import KEYS as SIZES

SLOW = os.environ.get("SITUS_SLOW") == "1"
BYTES, EACH, CONFIGS = (100_000, 600, 60) if SLOW else (400, 3, 1)

VALUES: list[Any] = [
    0, 1, 2, 3, 4, 7, 8, 64, 512, 513, 2**32 - 1, 2**63, -1, 0.0, 0.5, 1.0, -1.0, 1e4, 1e30, float("nan"), float("inf"),
    True, False, "", "yarn", "linear", "none", "longrope", "x", [], [0], [1, 1, 1, 1], [True, False, True, False],
    [2, 0, 2, 0], [4, 4, 4, 4], [1.0, -1.0], [2, 3, 3, 0], [8, 0, 0, 0], Long("list", 20_000), Long("string", 70_000),
]  # fmt: skip
TENSORS: list[Any] = [[], [1.0] * 8, [1.0] * 64, [0.0] * 8, [-1.0] * 64, [float("inf")] * 64, [1e30] * 64, [2.0] * 64]
NAMES = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight", "blk.0.attn_sinks.weight")
MORE = ("nextn_predict_layers", "decoder_block_count", "attention.kv_lora_rank", "attention.key_length",
        "attention.key_length_mla", "attention.key_length_swa", "attention.value_length")  # fmt: skip


@pytest.mark.once
def test_any_bytes_give_a_result_or_a_clear_error(tmp_path: Path) -> None:
    chance = random.Random(0)
    whole = [
        written(tmp_path / "model.gguf", case.architecture, case.settings, case.tensors).read_bytes()
        for case in (CASES["llama with llama3"], CASES["phi3 with longrope"], CASES["gemma4"])
    ]
    for _ in range(BYTES):
        file = bytearray(chance.choice(whole))
        for _ in range(chance.randrange(1, 6)):
            at = chance.randrange(4, len(file))
            if chance.random() < 0.3:
                file[at : at + 8] = struct.pack("<Q", chance.choice((0, 1, 2**31, 2**63, 2**64 - 1)))
            else:
                file[at] = chance.randrange(256)
        cut = chance.randrange(4, len(file) + 1) if chance.random() < 0.3 else len(file)
        begun = time.process_time()
        said = outcome(lambda part=bytes(file[:cut]): read(part))
        assert said.endswith((".", "?")), said
        assert time.process_time() - begun < 2


@settings(max_examples=20_000 if SLOW else 200, deadline=2000)
@given(some.binary(max_size=200))
def test_any_bytes_behind_the_magic_give_a_clear_error(file: bytes) -> None:
    assert outcome(lambda: read(b"GGUF" + file)).endswith((".", "?"))


@pytest.mark.once
def test_any_settings_give_a_result_or_a_clear_error() -> None:
    for name in (*ARCHITECTURES, *LEFT_OUT):
        chance = random.Random(name)
        for _ in range(EACH):
            keys: dict[str, Any] = dict(SIZES)
            for _ in range(chance.choice((0, 1, 2, 4, 8))):
                keys[chance.choice((*sorted(KEYS), *SIZES, *MORE))] = chance.choice(VALUES)
            tensors = {chance.choice(NAMES): chance.choice(TENSORS) for _ in range(chance.choice((0, 0, 1, 2)))}
            prefixed = {"general.architecture": name, **{f"{name}.{key}": each for key, each in keys.items()}}
            said = outcome(lambda keys=prefixed, tensors=tensors: read_gguf(keys, tensors))
            assert said.endswith((".", "?")), f"{prefixed} {tensors} gave {said}"


@pytest.mark.once
def test_any_configuration_gives_a_result_or_a_clear_error_in_every_engine() -> None:
    for model_type in TYPES:
        chance = random.Random(model_type)
        for _ in range(CONFIGS):
            config = changed(model_type, chance)
            for engine in ENGINES:
                begun = time.process_time()
                said = outcome(lambda config=config, engine=engine: read(config, engine=engine))
                assert said.endswith((".", "?")), f"{config} gave {said} in {engine}"
                assert time.process_time() - begun < 2
