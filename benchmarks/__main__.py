"""``python -m benchmarks``: measure everything in one process, print it, and write it down."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter
from typing import TypeVar

import torch

from benchmarks import (
    accuracy,
    apply,
    attention,
    attention_decode,
    attention_long,
    compiled,
    decode,
    machine,
    options,
    report,
    startup,
    tables,
    targets,
)
from benchmarks.results import Results
from benchmarks.sittings import Sittings
from benchmarks.timing import Effort
from situs.functional.rotation import PAIRINGS
from situs.rotation import fused

Result = TypeVar("Result")


def main() -> None:
    """Parse, measure, print, write."""
    mode, out = options.parse("benchmarks", "Measure Situs against its peers.")
    if not fused.available():
        sys.exit("llvmlite is needed to measure the fused loop: pip install 'situs[bench]', and unset SITUS_FUSED.")

    sittings = Sittings(out, mode)
    results = measure(mode, sittings)
    words = report.markdown(results)
    print(words)
    results.write(out / "results.json")
    (out / "RESULTS.md").write_text(words)
    sittings.finish()
    print(f"Wrote {out / 'results.json'} and {out / 'RESULTS.md'}.")


def measure(mode: str, sittings: Sittings) -> Results:
    """Every question, in this process; "quick" leaves out cases and the second thread, "full" leaves out nothing."""
    quick = mode == "quick"
    effort = Effort(0.1, 3) if quick else Effort(0.4, 3)
    close = Effort(0.1, 3) if quick else Effort(0.4, 11, 200)
    calm = Effort(0.05, 3) if quick else Effort(0.6, 5, 15)
    steady = Effort(0.05, 3) if quick else Effort(0.6, 9, 40)
    lengths = (512,) if quick else apply.LENGTHS
    dtypes = ("float32", "bfloat16") if quick else tuple(apply.DTYPES)
    threads = (1,) if quick else (1, 2)
    seconds: dict[str, float] = {}

    def timed(name: str, work: Callable[[], Result]) -> Result:
        print(name, file=sys.stderr, flush=True)
        began = perf_counter()
        torch.set_num_threads(1 if quick else os.cpu_count() or 1)
        result = work()
        seconds[name] = perf_counter() - began
        return result

    description, others = machine.description(), machine.Bystanders()
    rows = timed("apply", lambda: list(apply.measure(close, lengths, dtypes, threads)))
    made = timed("tables", lambda: list(tables.measure(effort.scaled(0.5), lengths, threads)))
    steps = timed("decode", lambda: list(decode.measure(effort.scaled(1.5), threads)))
    errors = timed("accuracy", lambda: list(accuracy.measure()))
    angles = timed("angles", accuracy.angle_errors)
    compiled_dtypes = ("float32", "bfloat16") if mode == "full" else ("float32",)
    pairings = PAIRINGS[-1:] if quick else PAIRINGS
    counts = timed("compilations", lambda: list(compiled.count(pairings)))
    programs = timed("compiled", lambda: list(compiled.measure(effort, compiled_dtypes, pairings)))
    imports = timed("imports", lambda: startup.imports(1 if quick else 5))
    first = timed("first call", lambda: startup.first_fused_call(1 if quick else 3))
    contracts = timed("contract", lambda: list(startup.contracts(pairings)))
    attended = timed("attention", lambda: list(attention.measure(calm, mode, sittings)))
    cached = (256,) if quick else attention_decode.LENGTHS
    decoded = timed("attention decode", lambda: list(attention_decode.measure(steady, cached, threads)))
    long: list[attention_long.Long] = []
    growth: list[attention_long.Growth] = []
    if mode != "default":
        length = attention_long.SHORT_LENGTH if quick else attention_long.LENGTH
        growing = attention_long.SHORT_LENGTHS if quick else attention_long.LENGTHS
        long = timed("attention long", lambda: attention_long.measure_long(length))
        growth = timed("attention growth", lambda: list(attention_long.measure_growth(calm, growing)))
    description["load_after"] = os.getloadavg()[0]
    description["share_of_others"] = others.share()
    description["sittings"] = sittings.count
    results = Results(
        description,
        mode,
        seconds,
        rows,
        made,
        steps,
        errors,
        angles,
        counts,
        programs,
        imports,
        first,
        contracts,
        attended,
        decoded,
        growth,
        long,
    )
    return replace(results, targets=targets.judge(results))


if __name__ == "__main__":
    main()
