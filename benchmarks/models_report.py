"""The report on whole models: targets, and a table for each kind of work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from benchmarks.judgement import Bound, Target
from benchmarks.markdown import number, table
from benchmarks.models_cases import (
    ACCELERATED,
    BACKWARD,
    DECODE,
    FORWARD,
    FULL_LLAMA,
    LLAMA,
    SEE_ALL,
    STEPS,
    TORCH_ONLY,
    UNMODIFIED,
    WITHOUT,
    Row,
)

LIGHT = ("t5", "mt5", "bloom", "mpt", "falcon", "mpnet")
QUIET = 0.03
NOTES = """\
Times in ms, medians of rounds in turns; memory in MiB is what torch's allocator held at worst beyond the result, with \
one thread. **unmodified** is the model as transformers has it, **accelerated** after `situs.huggingface.accelerate`, \
**torch only** the same without compiled loops (the extra `fast`), \
**llama** transformers' Llama with as many layers, heads, channels and weights, **full llama** the same without its \
causal rule, for families that see all tokens, which is twice the attention. **at most** is how many times faster than \
unmodified the accelerated model would be if its attention took no time: a sum of queries, keys and values in its place.
"""


def markdown(machine: Mapping[str, object], rows: Sequence[Row]) -> str:
    """The whole report."""
    return "\n".join(_lines(machine, rows)) + "\n"


def targets(rows: Sequence[Row]) -> list[Target]:
    """What was required of whole models, and what was measured."""
    forward = [row for row in rows if row.work == FORWARD]
    long = [row for row in forward if row.length >= 2048]

    def times(which: Sequence[Row], over: str) -> dict[str, float]:
        return {row.case: row.milliseconds[ACCELERATED] / row.milliseconds[over] for row in which}

    def of_its_kind(which: Sequence[Row]) -> dict[str, float]:
        """Beside the Llama that sees as many tokens."""
        causal, full = ([row for row in which if (row.family in SEE_ALL) == sees] for sees in (False, True))
        return {**times(causal, LLAMA), **times(full, FULL_LLAMA)}

    light = [row for row in long if row.family in LIGHT]
    heavy = [row for row in long if row.family not in LIGHT]
    memory = {row.case: row.extra_mib[ACCELERATED] / row.extra_mib[LLAMA] for row in light if row.threads == 1}
    backward = [row for row in rows if row.work == BACKWARD]
    gained = {case: 1 / ratio for case, ratio in times(backward, UNMODIFIED).items()}
    short = times([row for row in forward if row.length < 2048], UNMODIFIED)
    steps = {case: 1 / ratio for case, ratio in times([row for row in rows if row.work == DECODE], UNMODIFIED).items()}
    made = {row.case: row.accelerate_ms / 1e3 for row in rows}
    return [
        Bound(1.2, aim=1.05).judge("T5, mT5, BLOOM, MPT, Falcon, MPNet, forward", "time of Llama", times(light, LLAMA)),
        Bound(1.2, aim=1.05).judge("the same", "time of the Llama that sees as many tokens", of_its_kind(light)),
        Bound(1.5).judge("the same", "memory of Llama", memory),
        Bound(2.5, aim=2.0).judge("DeBERTa, XLNet, Inkling, conformers, forward", "time of Llama", times(heavy, LLAMA)),
        Bound(2.5, aim=2.0).judge("the same", "time of the Llama that sees as many tokens", of_its_kind(heavy)),
        Bound(2.0, aim=3.0, at_most=False).judge("T5, BLOOM, DeBERTa, backward too", "faster than unmodified", gained),
        Bound(1.0, aim=1.5, at_most=False).judge(f"{STEPS} tokens one by one", "faster than unmodified", steps),
        Bound(1.0).judge("forward at 128 and 512", "time of unmodified", short),
        Bound(0.2, unit=" s", digits=3).judge("accelerate() without its self-test", "seconds", made),
    ]


def _lines(machine: Mapping[str, object], rows: Sequence[Row]) -> Iterator[str]:
    yield "# Whole models\n"
    yield "Written by `make bench`; everything, with quartiles, is in `models.json`.\n"
    yield f"{machine['cpu']}, {machine['cores_allowed']} cores, {machine['vector_instructions']}; "
    versions = machine["versions"]
    assert isinstance(versions, dict)
    yield f"Python {machine['python']}; {', '.join(f'{name} {each}' for name, each in versions.items())}; "
    yield f"commit {machine['commit']} with {machine['uncommitted_files']} changed files in src; "
    yield f"mode {machine['mode']}, "
    share = float(str(machine["share_of_others"]))
    sittings = ", during which" if machine["sittings"] == 1 else f" in {machine['sittings']} sittings; in the last"
    yield f"{float(str(machine['seconds'])):.0f} s{sittings} other processes took {share:.1%} of the cores.\n"
    if machine["mode"] == "quick":
        yield "**A smoke test: no figure here is a result.**\n"
    if share > QUIET:
        yield "**The machine was not quiet: figures of 2 threads above all are doubtful, whichever way they point.**\n"
    yield "## Targets\n"
    shown = [
        [each.figure, each.variant, each.required, each.aim, each.worst, each.median, each.verdict, each.passed,
         each.where]
        for each in targets(rows)
    ]  # fmt: skip
    yield from table("figure; variant; required; aim; worst; median; verdict; cases met; worst case", shown, ";")
    yield NOTES
    for work in dict.fromkeys(row.work for row in rows):
        yield f"## {work}\n"
        yield from _table([row for row in rows if row.work == work])


def _table(rows: Sequence[Row]) -> Iterator[str]:
    names = (UNMODIFIED, ACCELERATED, TORCH_ONLY, LLAMA, FULL_LLAMA)
    header = "family; tokens; dtype; threads; unmodified; accelerated; torch only; llama; full llama; times faster; of "
    header += "llama; "
    header += "of full llama; MiB unmodified; accelerated; torch only; llama"
    bounded = any(WITHOUT in row.milliseconds for row in rows)
    header = header.replace("times faster;", "times faster; at most;") if bounded else header
    lines = []
    for row in rows:
        own = row.milliseconds[ACCELERATED]
        line: list[object] = [row.family, row.length, row.dtype, row.threads]
        line += [number(row.milliseconds[name]) if name in row.milliseconds else "–" for name in names]
        line.append(f"{row.milliseconds[UNMODIFIED] / own:.2f}×")
        if bounded:
            line.append(f"{row.milliseconds[UNMODIFIED] / row.milliseconds[WITHOUT]:.2f}×")
        for name in (LLAMA, FULL_LLAMA):
            line.append(f"{own / row.milliseconds[name]:.2f}×" if name in row.milliseconds else "–")
        line += [number(row.extra_mib[name]) if name in row.extra_mib else "–" for name in names[:4]]
        lines.append(line)
    yield from table(header, lines, ";")
