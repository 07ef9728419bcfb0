"""The cases of attention that are measured, and against whom."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from benchmarks import attention_peers as peers

Names = tuple[str, ...]

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
FORWARD, BACKWARD = "forward", "forward and backward"
KEYS_BY_OFFSET = ("shaw keys", "transformer_xl")
CONTENT = (*KEYS_BY_OFFSET, "tupe", "deberta")
FREE = ("sinks", "temperature", "trailing rotary", "value rotary")
BY_FEATURES = ("projected", "forgetting")
BANDED = ("selfextend", "rerope", "dualchunk")
UNTARGETED = ("cope", "fire", "shaw", "sandwich", "kerple")
MATERIALISED: Names = (peers.MATERIALISED,)
T5_RIVALS: Names = (peers.MATERIALISED, peers.T5, peers.T5_LATER, peers.X_TRANSFORMERS, peers.FLEX)
ALIBI_RIVALS: Names = (peers.MATERIALISED, peers.BLOOM, peers.MPT, peers.X_TRANSFORMERS, peers.FLEX)


@dataclass(frozen=True)
class Case:
    """What is to be measured."""

    encoding: str
    work: str
    length: int
    causal: bool = False
    dtype: str = "float32"
    threads: tuple[int, ...] = (1, 2)
    rivals: Names = ()
    rival_threads: tuple[int, ...] = (1,)
    halve: bool = False
    """Whether memory is measured at half the length too."""


def cases(mode: str) -> Iterator[Case]:
    """What a mode measures: "default" every required figure in minutes, "full" every length, dtype and thread count."""
    if mode == "quick":
        yield from _quick()
        return
    full = mode == "full"
    both = (1, 2)
    everyone = both if full else (1,)
    shown: Names
    for dtype in DTYPES:
        narrow = dtype != "float32"
        for length in (1024, 2048, 4096, 8192):
            threads = both if full or length < (4096 if narrow else 8192) else (2,)
            for causal in (True,) if length == 1024 else (False, True):
                compared = not narrow and (length == 2048 or (full and length == 4096))
                shown = T5_RIVALS if compared and (full or not causal) else ()
                yield Case("t5", FORWARD, length, causal, dtype, threads, shown, everyone)
                # ALiBi shares T5's kernel, so the default leaves some of its lengths out
                if full or length <= 2048 or (length == 8192 and causal and not narrow):
                    shown = ALIBI_RIVALS if compared and causal else ()
                    yield Case("alibi", FORWARD, length, causal, dtype, threads, shown, everyone)
        for length in (2048, 4096):
            for causal in (False, True):
                if full or length == 2048 or not narrow:
                    shown = MATERIALISED if not (narrow or causal) and length == 2048 else ()
                    threads = both if full or length == 2048 else (2,)
                    yield Case("t5", BACKWARD, length, causal, dtype, threads, shown, everyone)
        if full or not narrow:
            yield from _content(full, dtype)
    for name in (*FREE, *BY_FEATURES, *BANDED):
        for length in (2048, 4096):
            yield Case(name, FORWARD, length, True, threads=both)
    for name in UNTARGETED:
        shown = MATERIALISED if full else ()
        yield Case(name, FORWARD, 2048, name != "shaw", "float32", everyone, shown)


def _content(full: bool, dtype: str) -> Iterator[Case]:
    """Encodings that depend on the content: without rivals in bfloat16, which only "full" measures."""
    both, one = (1, 2), (1,)
    shown: Names
    for name in CONTENT:
        for length in (2048, 4096):
            shown = (peers.DEBERTA,) if name == "deberta" else (peers.GATHER,)
            if full or name == "tupe":
                shown = (*MATERIALISED, *shown)
            if dtype != "float32" or (length > 2048 and not full):
                shown = ()
            threads = both if full or length == 2048 else (2,)
            yield Case(name, FORWARD, length, False, dtype, threads, shown, both if full else one)
    for name in CONTENT:
        shown = MATERIALISED if dtype == "float32" else ()
        threads = both if full else one
        yield Case(name, BACKWARD, 2048, False, dtype, threads, shown, threads, halve=True)


def _quick() -> Iterator[Case]:
    """One short case of every kind; FlexAttention is left out, since it compiles for longer than all else takes."""
    one = (1,)
    rivals = (*T5_RIVALS[:-1], peers.BLOOM, peers.MPT, peers.GATHER, peers.DEBERTA)
    for dtype in DTYPES:
        yield Case("t5", FORWARD, 512, False, dtype, one, rivals if dtype == "float32" else ())
        yield Case("t5", BACKWARD, 512, True, dtype, one)
    yield Case("alibi", FORWARD, 512, True, "float32", one, rivals)
    for name in (*CONTENT, *UNTARGETED):
        yield Case(name, FORWARD, 512, name in UNTARGETED and name != "shaw", "float32", one, rivals)
    for name in CONTENT:
        yield Case(name, BACKWARD, 512, False, "float32", one, rivals[:1], halve=True)
