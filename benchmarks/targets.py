"""Targets: what was required and what was measured, computed from the records and from nothing else.

A speed is judged by its worst case over all sizes, lengths, layouts and thread counts measured.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks import attention, decode
from benchmarks.apply import Row
from benchmarks.peers import NAMES
from benchmarks.results import Results, Target
from benchmarks.timing import LLAMA4, ROTARY_EMBEDDING_TORCH, SITUS, TORCH_ONLY, TRANSFORMERS

VARIANTS = {SITUS: "fused", TORCH_ONLY: "torch only"}
OVER_TRANSFORMERS, AIM_OVER_TRANSFORMERS = 2.0, 4.0
HALF_PRECISION, AIM_HALF_PRECISION = 1.0, 2.0
OVER_ROTARY_EMBEDDING_TORCH = 4.0
OF_CLONE = 1.4
COMPILATIONS = 2
ULPS = 1.0
IMPORT_SHARE = 0.05


@dataclass(frozen=True)
class _Speed:
    """A speed that is asked for in some cases, over one rival."""

    figure: str
    rival: str
    required: float
    aim: float | None
    among: Callable[[Row], bool]


def judge(results: Results) -> list[Target]:
    """Every target, met or missed."""
    return [
        *(target for speed in _speeds() for target in _judge_speed(results.apply, speed)),
        *_of_clone(results.apply),
        *_decoding(results.decode),
        *_others(results),
        *_attention(results.attention),
    ]


def _attention(rows: list[attention.Row]) -> Iterator[Target]:
    """Times over plain attention, and over the forms that are usual elsewhere."""
    forward = [row for row in rows if row.work == "forward"]
    content = ("shaw keys", "transformer_xl", "tupe")
    asked: list[tuple[str, list[attention.Row], float]] = [
        ("bias over offsets, full", [r for r in forward if r.encoding in ("t5", "alibi") and not r.causal], 1.15),
        ("bias over offsets, causal", [r for r in forward if r.encoding in ("t5", "alibi") and r.causal], 1.20),
        ("learned bias, forward and backward", [r for r in rows if r.encoding == "t5" and r not in forward], 2.0),
        ("Shaw keys, Transformer-XL, TUPE, forward", [r for r in forward if r.encoding in content], 2.8),
        ("DeBERTa, forward", [r for r in forward if r.encoding == "deberta"], 4.5),
    ]
    for figure, among, most in asked:
        yield _worst(figure, "times plain", among, lambda row: row.over_plain(), most, at_most=True)
    learnt = [row for row in rows if row.encoding in (*content, "deberta") and row not in forward]
    faster: list[tuple[str, str, list[attention.Row], float]] = [
        ("Shaw keys, Transformer-XL, forward", attention.GATHER, [r for r in forward if r.encoding in content], 3.0),
        ("DeBERTa, forward", attention.TRANSFORMERS, [r for r in forward if r.encoding == "deberta"], 2.5),
        ("content-based, forward and backward", attention.MATERIALISED, learnt, 2.0),
    ]
    for figure, rival, among, least in faster:
        timed = [row for row in among if rival in row.milliseconds]
        ratio = lambda row, rival=rival: row.milliseconds[rival] / row.milliseconds[attention.ATTEND]  # noqa: E731
        yield _worst(figure, f"faster than {rival}", timed, ratio, least, at_most=False)


def _worst(
    figure: str,
    what: str,
    rows: list[attention.Row],
    ratio: Callable[[attention.Row], float],
    bound: float,
    *,
    at_most: bool,
) -> Target:
    """A ratio judged by its worst case."""
    ratios = {f"{row.encoding} {row.case}": ratio(row) for row in rows}
    if not ratios:
        return Target(figure, what, f"{bound:g}x", "not measured", met=False)
    where = (max if at_most else min)(ratios, key=lambda case: ratios[case])
    worst, median = ratios[where], statistics.median(ratios.values())
    met = worst <= bound if at_most else worst >= bound
    required = f"{'at most' if at_most else 'at least'} {bound:g}x"
    return Target(figure, what, required, f"{worst:.2f}x (median {median:.2f}x)", met, f"worst: {where}")


def _speeds() -> Iterator[_Speed]:
    for pairing, model in NAMES.items():
        rivals = {TRANSFORMERS: f"transformers ({model})"} | (
            {LLAMA4: "transformers (Llama 4)"} if model != "Llama" else {}
        )
        for rival, words in rivals.items():
            for dtype in ("float32", "bfloat16", "float16"):
                required, aim = (
                    (OVER_TRANSFORMERS, AIM_OVER_TRANSFORMERS)
                    if dtype == "float32"
                    else (HALF_PRECISION, AIM_HALF_PRECISION)
                )
                yield _Speed(
                    f"{pairing} {dtype} over {words}", rival, required, aim,
                    lambda row, p=pairing, d=dtype: (row.pairing, row.dtype) == (p, d),  # type: ignore[misc]
                )  # fmt: skip
    for dtype in ("float32", "bfloat16"):
        yield _Speed(
            f"interleaved {dtype} over rotary-embedding-torch",
            ROTARY_EMBEDDING_TORCH,
            OVER_ROTARY_EMBEDDING_TORCH,
            None,
            lambda row, d=dtype: (row.pairing, row.dtype) == ("interleaved", d),  # type: ignore[misc]
        )


def _judge_speed(rows: list[Row], speed: _Speed) -> Iterator[Target]:
    rows = [row for row in rows if speed.among(row)]
    if not rows:
        return
    for name, variant in VARIANTS.items():
        speeds = {row.case: row.speed_up(name, speed.rival) for row in rows}
        slowest = min(speeds, key=speeds.__getitem__)
        passed = sum(value >= speed.required for value in speeds.values())
        remark = f"{passed} of {len(speeds)} cases; worst at {slowest}"
        if speed.aim is not None:
            remark += f"; aim {speed.aim:g}× in {sum(value >= speed.aim for value in speeds.values())}"
        yield Target(
            speed.figure, variant, f"≥ {speed.required:g}×",
            f"{speeds[slowest]:.2f}× (median {statistics.median(speeds.values()):.1f}×)",
            speeds[slowest] >= speed.required, remark,
        )  # fmt: skip


def _of_clone(rows: list[Row]) -> Iterator[Target]:
    rows = [row for row in rows if (row.pairing, row.dtype) == ("interleaved", "float32")]
    for name, variant in VARIANTS.items():
        ratios = {row.case: row.to_clone(name) for row in rows}
        worst = max(ratios, key=ratios.__getitem__)
        passed = sum(value <= OF_CLONE for value in ratios.values())
        yield Target(
            "interleaved float32, time of clone()", variant, f"≤ {OF_CLONE}×",
            f"{ratios[worst]:.2f}× (median {statistics.median(ratios.values()):.2f}×)",
            ratios[worst] <= OF_CLONE, f"{passed} of {len(ratios)} cases; worst at {worst}",
        )  # fmt: skip


def _decoding(rows: list[decode.Row]) -> Iterator[Target]:
    for step in dict.fromkeys(row.step for row in rows):
        for name, variant in VARIANTS.items():
            ratios = {
                row.case: row.microseconds[name] / row.microseconds[TRANSFORMERS] for row in rows if row.step == step
            }
            worst = max(ratios, key=ratios.__getitem__)
            passed = sum(value <= 1 for value in ratios.values())
            yield Target(
                f"decode step, {step}, time of transformers", variant, "≤ 1×",
                f"{ratios[worst]:.2f}× (median {statistics.median(ratios.values()):.2f}×)",
                ratios[worst] <= 1, f"{passed} of {len(ratios)} cases; worst at {worst}",
            )  # fmt: skip


def _others(results: Results) -> Iterator[Target]:
    most = max(results.compilations, key=lambda count: count.compilations)
    yield Target(
        "compilations over growing lengths", "both", f"≤ {COMPILATIONS}", str(most.compilations),
        most.compilations <= COMPILATIONS, f"most for growing {most.growing}, {most.pairing}, dynamic={most.dynamic}",
    )  # fmt: skip
    for name, variant in VARIANTS.items():
        far = max(results.accuracy, key=lambda row: row.ulps[name])
        yield Target(
            "bfloat16 error", variant, f"≤ {ULPS:g} ulp", f"{far.ulps[name]:.4f} ulp", far.ulps[name] <= ULPS,
            f"worst at position {far.start}, {far.pairing}",
        )  # fmt: skip
    imports = results.imports
    yield Target(
        "import, added to torch's", "both", f"≤ {IMPORT_SHARE:.0%}", f"{imports.share:.1%}",
        imports.share <= IMPORT_SHARE, f"{1e3 * imports.more_seconds:.0f} ms on {1e3 * imports.torch_seconds:.0f} ms",
    )  # fmt: skip
