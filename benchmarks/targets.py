"""Targets: what was required and what was measured, computed from the records and from nothing else.

A speed is judged by its worst case over all sizes, lengths, layouts and thread counts measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks import attention_targets, decode
from benchmarks.apply import Row
from benchmarks.judgement import Bound, Target
from benchmarks.peers import NAMES
from benchmarks.results import Results
from benchmarks.timing import LLAMA4, ROTARY_EMBEDDING_TORCH, SITUS, TORCH_ONLY, TRANSFORMERS

VARIANTS = {SITUS: "fused", TORCH_ONLY: "torch only"}
OVER_TRANSFORMERS = Bound(2.0, aim=4.0, at_most=False)
HALF_PRECISION = Bound(1.0, aim=2.0, at_most=False)
OVER_COMPLEX_PRODUCT = Bound(1.0, at_most=False)
OVER_ROTARY_EMBEDDING_TORCH = Bound(4.0, at_most=False)
OF_CLONE = Bound(1.4)
DECODING = Bound(1.0)
COMPILATIONS = Bound(2, unit="", digits=0)
ULPS = Bound(1.0, unit=" ulp", digits=4)
IMPORT_SHARE = Bound(5, unit="%", digits=1)


@dataclass(frozen=True)
class _Speed:
    """A speed that is asked for in some cases, over one rival."""

    figure: str
    rival: str
    bound: Bound
    among: Callable[[Row], bool]


def judge(results: Results) -> list[Target]:
    """Every target: met, missed or not measured."""
    return [
        *(target for speed in _speeds() for target in _judge_speed(results.apply, speed)),
        *_of_clone(results.apply),
        *_decoding(results.decode),
        *_others(results),
        *attention_targets.judge(
            results.attention, results.attention_decode, results.attention_long, results.attention_growth
        ),
    ]


def _speeds() -> Iterator[_Speed]:
    for pairing, model in NAMES.items():
        rivals = {TRANSFORMERS: f"transformers ({model})"} | (
            {LLAMA4: "transformers (Llama 4)"} if model != "Llama" else {}
        )
        for rival, words in rivals.items():
            for dtype in ("float32", "bfloat16", "float16"):
                # Llama 4's is one complex product in float32, which takes hardly longer than clone()
                wide = OVER_TRANSFORMERS if rival == TRANSFORMERS else OVER_COMPLEX_PRODUCT
                yield _Speed(
                    f"{pairing} {dtype} over {words}",
                    rival,
                    wide if dtype == "float32" else HALF_PRECISION,
                    lambda row, p=pairing, d=dtype: (row.pairing, row.dtype) == (p, d),  # type: ignore[misc]
                )
    for dtype in ("float32", "bfloat16"):
        yield _Speed(
            f"interleaved {dtype} over rotary-embedding-torch",
            ROTARY_EMBEDDING_TORCH,
            OVER_ROTARY_EMBEDDING_TORCH,
            lambda row, d=dtype: (row.pairing, row.dtype) == ("interleaved", d),  # type: ignore[misc]
        )


def _judge_speed(rows: list[Row], speed: _Speed) -> Iterator[Target]:
    rows = [row for row in rows if speed.among(row)]
    if not rows:
        return
    for name, variant in VARIANTS.items():
        speeds = {row.case: row.speed_up(name, speed.rival) for row in rows}
        yield speed.bound.judge(speed.figure, variant, speeds)


def _of_clone(rows: list[Row]) -> Iterator[Target]:
    rows = [row for row in rows if (row.pairing, row.dtype) == ("interleaved", "float32")]
    for name, variant in VARIANTS.items():
        ratios = {row.case: row.to_clone(name) for row in rows}
        yield OF_CLONE.judge("interleaved float32, time of clone()", variant, ratios)


def _decoding(rows: list[decode.Row]) -> Iterator[Target]:
    for step in dict.fromkeys(row.step for row in rows):
        for name, variant in VARIANTS.items():
            ratios = {
                row.case: row.microseconds[name] / row.microseconds[TRANSFORMERS] for row in rows if row.step == step
            }
            yield DECODING.judge(f"decode step, {step}, time of transformers", variant, ratios)


def _others(results: Results) -> Iterator[Target]:
    counts = {
        f"growing {each.growing}, {each.pairing}, dynamic={each.dynamic}": float(each.compilations)
        for each in results.compilations
    }
    yield COMPILATIONS.judge("compilations over growing lengths", "both", counts)
    for name, variant in VARIANTS.items():
        errors = {f"position {row.start}, {row.pairing}": row.ulps[name] for row in results.accuracy}
        yield ULPS.judge("bfloat16 error", variant, errors)
    imports = results.imports
    where = f"{1e3 * imports.more_seconds:.0f} ms on {1e3 * imports.torch_seconds:.0f} ms"
    yield IMPORT_SHARE.judge("import, added to torch's", "both", {where: 100 * imports.share})
