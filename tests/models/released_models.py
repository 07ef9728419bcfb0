"""What released models do with positions, written by hand from their papers and model cards: no reader is asked.

A row is a group of layers. Scalings are those of tests/references/scaling.py, with the numbers of the release.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tests.references import scaling as reference

FOLDER = Path(__file__).parent / "released"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json") if path.stem != "index")


def config_of(name: str) -> dict[str, Any]:
    """The settings of a released model that speak of positions."""
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found


@dataclass(frozen=True)
class Rotates:
    """Hold how a group of layers rotates and attends.

    layers: their numbers.
    scaling: the name of a reference function, and what it takes beside channels and base.
    magnitude: what cosines and sines are multiplied by.
    """

    layers: tuple[int, ...]
    base: float
    head: int
    rotated: int
    pairing: Literal["halves", "interleaved"] = "halves"
    channels: Literal["leading", "trailing"] = "leading"
    scaling: tuple[Any, ...] = ()
    magnitude: float = 1.0
    kind: str = "full"
    window: int | None = None
    chunk: int | None = None
    scale: float | None = None
    softcap: float | None = None
    sinks: bool = False
    causal: bool = True
    temperature: tuple[str, int, float] | None = None
    keys: int | None = None

    def frequencies(self, length: int) -> NDArray[np.float64]:
        """Radians per position, by the published formulas, in a text of a length."""
        if not self.scaling:
            return reference.ladder(self.rotated, self.base)
        name, *numbers = self.scaling
        if name == "longrope":
            name, *numbers = (*self.scaling, length)
        found: NDArray[np.float64] = getattr(reference, name)(self.rotated, self.base, *numbers)[0]
        return found


def every(n: int, count: int, *, at: int = -1) -> tuple[int, ...]:
    """One layer of n."""
    return tuple(layer for layer in range(count) if layer % n == at % n)


def rest(n: int, count: int, *, at: int = -1) -> tuple[int, ...]:
    """The others."""
    return tuple(layer for layer in range(count) if layer % n != at % n)


def _all(count: int) -> tuple[int, ...]:
    return tuple(range(count))


def _lists(name: str) -> tuple[list[float], list[float]]:
    found = config_of(name)["rope_scaling"]
    return found["short_factor"], found["long_factor"]


def _yarn(factor: float) -> float:
    return 0.1 * math.log(factor) + 1


_LONGROPE = math.sqrt(1 + math.log(32) / math.log(4096))

ROTARY: dict[str, tuple[Rotates, ...]] = {
    "llama_2_7b": (Rotates(_all(32), 1e4, 128, 128, keys=32),),
    "llama_3_8b": (Rotates(_all(32), 5e5, 128, 128, keys=8),),
    "llama_3_1_8b": (Rotates(_all(32), 5e5, 128, 128, scaling=("llama3", 8.0, 1.0, 4.0, 8192), keys=8),),
    "llama_4_scout": (
        Rotates(
            rest(4, 48), 5e5, 128, 128, "interleaved", scaling=("llama3", 16.0, 1.0, 1.0, 8192), kind="chunked",
            chunk=8192, keys=8,
        ),
    ),
    "mistral_7b_v0_1": (Rotates(_all(32), 1e4, 128, 128, kind="sliding", window=4096, keys=8),),
    "ministral_3_3b": (
        Rotates(
            _all(26), 1e6, 128, 128, scaling=("yarn", 16.0, 16384), magnitude=1.0,
            temperature=("ministral3", 16384, 0.1), keys=8,
        ),
    ),
    "mixtral_8x7b": (Rotates(_all(32), 1e6, 128, 128, keys=8),),
    "qwen2_7b": (Rotates(_all(28), 1e6, 128, 128, keys=4),),
    "qwen2_5_7b_1m": (Rotates(_all(28), 1e7, 128, 128, keys=4),),
    "qwen3_8b": (Rotates(_all(36), 1e6, 128, 128, keys=8),),
    "qwen3_vl_30b": (Rotates(_all(48), 5e6, 128, 128, keys=4),),
    "deepseek_v2_lite": (
        Rotates(
            _all(27), 1e4, 192, 64, "interleaved", "trailing", ("yarn", 40.0, 4096),
            scale=192**-0.5 * (0.1 * 0.707 * math.log(40) + 1) ** 2, keys=16,
        ),
    ),
    "deepseek_v3": (
        Rotates(
            _all(61), 1e4, 192, 64, "interleaved", "trailing", ("yarn", 40.0, 4096),
            scale=192**-0.5 * (0.1 * math.log(40) + 1) ** 2, keys=128,
        ),
    ),
    "deepseek_v4_flash": (
        Rotates((0, 1), 1e4, 512, 64, "interleaved", "trailing", kind="sliding", window=128, sinks=True, keys=1),
        *(
            Rotates(
                tuple(range(first, 43, 2)), 16e4, 512, 64, "interleaved", "trailing", ("yarn", 16.0, 65536), sinks=True,
                keys=1,
            )
            for first in (2, 3)  # sparse and heavily compressed ones
        ),
    ),
    "phi_3_128k": (
        Rotates(
            _all(32), 1e4, 96, 96, scaling=("longrope", *_lists("phi_3_128k"), 4096, 131072), magnitude=_LONGROPE,
            kind="sliding", window=131072, keys=32,
        ),
    ),
    "phi_3_5_mini": (
        Rotates(
            _all(32), 1e4, 96, 96, scaling=("longrope", *_lists("phi_3_5_mini"), 4096, 131072), magnitude=_LONGROPE,
            kind="sliding", window=262144, keys=32,
        ),
    ),
    "phi_4": (Rotates(_all(40), 25e4, 128, 128, keys=10),),
    "phi_4_mini": (
        Rotates(
            _all(32), 1e4, 128, 96, scaling=("longrope", *_lists("phi_4_mini"), 4096, 131072), magnitude=_LONGROPE,
            kind="sliding", window=262144, keys=8,
        ),
    ),
    "gemma_2_9b": (
        Rotates(every(2, 42, at=0), 1e4, 256, 256, kind="sliding", window=4096, scale=1 / 16, softcap=50.0, keys=8),
        Rotates(every(2, 42, at=1), 1e4, 256, 256, scale=1 / 16, softcap=50.0, keys=8),
    ),
    "gemma_3_1b": (
        Rotates(rest(6, 26), 1e4, 256, 256, kind="sliding", window=512, keys=1),
        Rotates(every(6, 26), 1e6, 256, 256, keys=1),
    ),
    "gemma_3_4b": (
        Rotates(rest(6, 34), 1e4, 256, 256, kind="sliding", window=1024, keys=4),
        Rotates(every(6, 34), 1e6, 256, 256, scaling=("linear", 8.0), keys=4),
    ),
    "gemma_4_31b": (
        Rotates(rest(6, 60), 1e4, 256, 256, kind="sliding", window=1024, scale=1.0, keys=16),
        Rotates(every(6, 60), 1e6, 512, 512, scaling=("proportional", 0.25), scale=1.0, keys=4),
    ),
    "gpt_j_6b": (Rotates(_all(28), 1e4, 256, 64, "interleaved", keys=16),),
    "gpt_neox_20b": (Rotates(_all(44), 1e4, 96, 24, keys=64),),
    "falcon_7b": (Rotates(_all(32), 1e4, 64, 64, keys=1),),
    "modernbert_base": (
        Rotates(every(3, 22, at=0), 16e4, 64, 64, causal=False, keys=12),
        Rotates(rest(3, 22, at=0), 1e4, 64, 64, kind="sliding", window=65, causal=False, keys=12),  # 64 on each side
    ),
    "stablelm_3b": (Rotates(_all(32), 1e4, 80, 20, keys=32),),
    "command_r": (Rotates(_all(40), 8e6, 128, 128, "interleaved", keys=64),),
    "glm_4_9b": (Rotates(_all(40), 1e4, 128, 64, "interleaved", keys=2),),
    "olmo_2_7b": (Rotates(_all(32), 5e5, 128, 128, keys=32),),
    "olmo_3_7b": (
        Rotates(rest(4, 32), 5e5, 128, 128, kind="sliding", window=4096, keys=32),
        Rotates(every(4, 32), 5e5, 128, 128, scaling=("yarn", 8.0, 8192), magnitude=_yarn(8), keys=32),
    ),
    "smollm3_3b": (Rotates(rest(4, 36), 5e6, 128, 128, keys=4),),
    "yi_6b_200k": (Rotates(_all(32), 1e7, 128, 128, keys=4),),
    "code_llama_7b": (Rotates(_all(32), 1e6, 128, 128, keys=32),),
    "gpt_oss_20b": (
        Rotates(
            every(2, 24, at=0), 15e4, 64, 64, scaling=("yarn", 32.0, 4096, 32, 1, "hf", False), magnitude=_yarn(32),
            kind="sliding", window=128, sinks=True, keys=8,
        ),
        Rotates(
            every(2, 24, at=1), 15e4, 64, 64, scaling=("yarn", 32.0, 4096, 32, 1, "hf", False), magnitude=_yarn(32),
            sinks=True, keys=8,
        ),
    ),
}  # fmt: skip

UNROTATED: dict[str, tuple[int, ...]] = {"llama_4_scout": every(4, 48), "smollm3_3b": every(4, 36)}
"""Layers of rotary models that have no positions."""

DECLARED: dict[str, int] = {
    "llama_2_7b": 4096, "llama_3_8b": 8192, "llama_3_1_8b": 131072, "llama_4_scout": 10 * 2**20,
    "mistral_7b_v0_1": 32768, "ministral_3_3b": 262144, "mixtral_8x7b": 32768, "qwen2_7b": 32768,
    "qwen2_5_7b_1m": 1_010_000, "qwen3_8b": 40960, "qwen3_vl_30b": 262144, "deepseek_v2_lite": 163840,
    "deepseek_v3": 163840, "deepseek_v4_flash": 2**20, "phi_3_128k": 131072, "phi_3_5_mini": 131072, "phi_4": 16384,
    "phi_4_mini": 131072, "gemma_2_9b": 8192, "gemma_3_1b": 32768, "gemma_3_4b": 131072, "gemma_4_31b": 262144,
    "gpt_j_6b": 2048, "gpt_neox_20b": 2048, "falcon_7b": 2048, "mpt_7b": 2048, "bloom": 2048, "t5_base": 512,
    "deberta_v3_base": 512, "bert_base": 512, "gpt2": 1024, "modernbert_base": 8192, "stablelm_3b": 4096,
    "command_r": 131072, "glm_4_9b": 32768, "olmo_2_7b": 4096, "olmo_3_7b": 65536, "smollm3_3b": 65536,
    "yi_6b_200k": 200_000, "code_llama_7b": 16384, "gpt_oss_20b": 131072, "inkling": 2**20,
}  # fmt: skip

LIMITS = {"gpt_j_6b": 2048, "mpt_7b": 2048, "bert_base": 512, "gpt2": 1024}
"""Beyond which a model cannot run: its table ends."""

ORIGINAL = {
    "llama_3_1_8b": 8192, "llama_4_scout": 8192, "ministral_3_3b": 16384, "deepseek_v2_lite": 4096,
    "deepseek_v3": 4096, "deepseek_v4_flash": 65536, "phi_3_128k": 4096, "phi_3_5_mini": 4096, "phi_4_mini": 4096,
    "olmo_3_7b": 8192, "gpt_oss_20b": 4096, "qwen2_5_7b_1m": 262144,
}  # fmt: skip
"""What models were trained on before they were extended."""
