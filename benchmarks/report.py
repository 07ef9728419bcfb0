"""The report: records as Markdown, for reading and for the screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks import attention_report
from benchmarks.apply import Row
from benchmarks.judgement import Target
from benchmarks.markdown import cells, number, table
from benchmarks.peers import NAMES
from benchmarks.results import Results
from benchmarks.timing import CLONE, LLAMA4, ROTARY_EMBEDDING_TORCH, SITUS, TORCH_ONLY, TRANSFORMERS
from situs.functional.rotation import PAIRINGS

QUIET = 0.03
NOTES = """\
- **Clock.** Contenders take turns within one process, in a new random order every round; figures are medians. When \
queries and keys are turned, those near one another (`clone()`, Situs, Llama 4's function) take at least eleven \
rounds, the others three. The time includes allocating results and temporaries, and freeing temporaries; results are \
freed after the clock stops.
- **Warm or cold.** Inputs are the same tensors every time, results are new every time, as in eager code. When queries \
and keys are turned, a call of less than 5 ms follows one that is not timed, for everyone alike: otherwise it would \
be a measure of what the rival before it left in the caches (at 512 × 16 × 64, up to 60 µs of a hundred). Nothing \
else is warmed. Up to a few MiB the inputs are still in the cache and malloc reuses its pages; from 32 MiB a tensor \
on, inputs come from memory and every result is mapped anew and pays for page faults (cold), `clone()` as well. That \
is why a ratio to `clone()` falls as tensors grow.
- **Tables** are made before the clock starts on every side, in the dtype each side uses: float32 for Situs and Llama \
4, the input's for Llama and GPT-J. rotary-embedding-torch runs as it is: it keeps angles and takes their cosines in \
every call. float16 was not asked of it.
- **Extra memory** is the most that torch's allocator held at once during the call, less the results: allocations and \
releases as the profiler records them, so exact and free of the system's noise. Tables are not counted, and the layout \
is transposed. tracemalloc does not see torch's memory, and resident memory would mix in what malloc keeps.
- **situs** is with `situs[fast]` (llvmlite); **torch only** is the same with the compiled loop refused: \
interleaved float32 is then the complex product that Llama 4 has, and the difference to it this machine's noise.
- **Agreement.** Before a case is timed, all contenders must give the same vectors.
- **transformers**: halves is Llama's `apply_rotary_pos_emb`, interleaved is GPT-J's, no slower than Cohere's, \
GLM's and Ernie's when tried (2048 × 16 × 64, one thread). Llama 4's `apply_rotary_emb`, one complex multiplication, \
has a column of its own.
"""


def markdown(results: Results) -> str:
    """The whole report."""
    return "\n".join(_lines(results)) + "\n"


def _lines(results: Results) -> Iterator[str]:
    machine = results.machine
    versions = machine["versions"]
    assert isinstance(versions, dict)
    yield "# Benchmarks\n"
    yield "Written by `make bench`; everything, with quartiles and both layouts, is in `results.json`.\n"
    yield f"{machine['cpu']}, {machine['cores_allowed']} cores, {machine['vector_instructions']}; {machine['system']}; "
    yield f"Python {machine['python']}; {', '.join(f'{name} {number}' for name, number in versions.items())}; "
    yield f"commit {machine['commit']} with {machine['uncommitted_files']} changed files in src; "
    sittings = "" if machine["sittings"] == 1 else f" in the last of {machine['sittings']} sittings"
    yield f"mode {results.mode}, {sum(results.seconds.values()):.0f} s{sittings}, during which other processes took "
    yield f"{machine['share_of_others']:.1%} of the cores; load {machine['load_before']:.2f} before.\n"
    if results.mode == "quick":
        yield "**A smoke test, with one thread and the shortest length: no figure here is a result.**\n"
    if float(str(machine["share_of_others"])) > QUIET:
        yield "**The machine was not quiet: figures of 2 threads above all are doubtful, whichever way they point.**\n"
    yield "## Targets\n"
    yield from _targets(results.targets)
    yield "\n## How it was measured\n"
    yield NOTES
    yield "## 1. Applying rotary to queries and keys\n"
    for pairing in PAIRINGS:
        yield f"### {pairing}; transformers' {NAMES[pairing]}; (batch, sequence, heads, dim) transposed\n"
        shown = [row for row in results.apply if row.pairing == pairing and row.layout == "transposed"]
        yield from _apply(shown)
    yield "### Extra memory beyond the results, MiB, beside the size of queries and keys themselves\n"
    yield from _memory(results.apply)
    yield "## 2. With tables and positions made anew (halves, transposed), ms\n"
    rows = [
        [_size(row.length, row.heads, row.head_dim), row.dtype, row.threads]
        + [number(row.milliseconds[name]) for name in (CLONE, SITUS, TORCH_ONLY, TRANSFORMERS)]
        + [f"{row.milliseconds[TRANSFORMERS] / row.milliseconds[name]:.1f}×" for name in (SITUS, TORCH_ONLY)]
        for row in results.tables
    ]
    yield from table(
        "tokens × heads × dim, dtype, threads, clone, situs, torch only, transformers, speed-up, torch only", rows
    )
    yield from _small(results)
    yield from attention_report.lines(results)


def _targets(targets: Sequence[Target]) -> Iterator[str]:
    measured = [target for target in targets if target.met is not None]
    yield f"{sum(bool(target.met) for target in targets)} of {len(measured)} met. A figure is judged by its worst case."
    if len(measured) < len(targets):
        yield f"{len(targets) - len(measured)} not measured in this mode, so neither met nor missed."
    yield ""
    rows = [
        [
            *(each.figure, each.variant, each.required, each.aim, each.worst, each.median),
            *(each.verdict, each.passed, each.reached, each.where),
        ]
        for each in targets
    ]
    yield from table(
        "figure; variant; required; aim; worst; median; verdict; cases met; cases at the aim; worst case", rows, ";"
    )


def _apply(rows: Sequence[Row]) -> Iterator[str]:
    rivals = [
        name for name in (TRANSFORMERS, LLAMA4, ROTARY_EMBEDDING_TORCH) if any(name in row.milliseconds for row in rows)
    ]
    header = "tokens × heads × dim, dtype, threads, clone ms, situs ms, of clone, torch only ms, of clone"
    for rival in rivals:
        header += f", {rival.replace(', ', ' ')} ms, situs is faster, torch only is faster"
    lines = []
    for row in rows:
        line: list[object] = [_size(row.length, row.heads, row.head_dim), row.dtype, row.threads]
        line.append(number(row.milliseconds[CLONE]))
        for name in (SITUS, TORCH_ONLY):
            line += [number(row.milliseconds[name]), f"{row.to_clone(name):.2f}×"]
        for rival in rivals:
            if rival in row.milliseconds:
                line.append(number(row.milliseconds[rival]))
                line += [f"{row.speed_up(name, rival):.1f}×" for name in (SITUS, TORCH_ONLY)]
            else:
                line += ["–"] * 3
        lines.append(line)
    yield from table(header, lines)


def _memory(rows: Sequence[Row]) -> Iterator[str]:
    names = (SITUS, TORCH_ONLY, TRANSFORMERS, LLAMA4, ROTARY_EMBEDDING_TORCH)
    longest = max(row.length for row in rows)
    lines = []
    for row in rows:
        if row.length == longest and row.layout == "transposed" and row.threads == 1:
            width = 4 if row.dtype == "float32" else 2
            held = 2 * row.length * row.heads * row.head_dim * width / 2**20
            extra = [f"{row.extra_mib[name]:.1f}" if name in row.extra_mib else "–" for name in names]
            lines.append([_size(row.length, row.heads, row.head_dim), row.dtype, row.pairing, f"{held:.0f}", *extra])
    columns = ", ".join(name.replace(", ", " ") for name in names)
    yield from table(f"tokens × heads × dim, dtype, pairing, q and k, {columns}", lines)


def _small(results: Results) -> Iterator[str]:
    yield "## 3. A decode step: one token at 4096, 32 heads and 8 key heads of 128, µs\n"
    names = (CLONE, SITUS, TORCH_ONLY, TRANSFORMERS, LLAMA4, ROTARY_EMBEDDING_TORCH)
    rows: list[list[object]] = [
        [each.step, each.pairing, each.dtype, each.threads, *cells(each.microseconds, names)] for each in results.decode
    ]
    columns = ", ".join(name.replace(", ", " ") for name in names)
    yield from table(f"step, pairing, dtype, threads, {columns}", rows)
    yield "## 4. Accuracy: largest error in bfloat16 ulps of a pair's norm, positions from `start` on\n"
    rows = [[each.start, each.pairing, *cells(each.ulps, names[1:])] for each in results.accuracy]
    yield from table(f"start, pairing, {columns.partition(', ')[2]}", rows)
    yield "Angle error of float32 tables at one million, radians:\n"
    yield from table("table, radians", [[name, f"{error:.2g}"] for name, error in results.angle_errors.items()])
    yield "## 5. `torch.compile(fullgraph=True)`: 2048 × 16 × 64, ms\n"
    forms = tuple(dict.fromkeys(name for each in results.compiled for name in each.milliseconds))
    rows = [[each.work, each.pairing, each.dtype, *cells(each.milliseconds, forms)] for each in results.compiled]
    yield from table("work, pairing, dtype, " + ", ".join(name.replace(", ", " ") for name in forms), rows)
    yield "Compilations over 32 values growing from 64 to 2048. Heads have 64 channels, and the compiler takes equal"
    yield "sizes for the same size, so the first length costs `dynamic=True` a graph that another would not.\n"
    rows = [[each.growing, each.pairing, each.dynamic, each.compilations] for each in results.compilations]
    yield from table("growing; pairing; dynamic=; compilations", rows, ";")
    yield from _start(results)


def _start(results: Results) -> Iterator[str]:
    imports, first = results.imports, results.first_fused_call
    yield "## 6. Start\n"
    yield f"- `import torch` {imports.torch_seconds:.2f} s; `import situs` alone {imports.situs_seconds:.2f} s;"
    yield f"  situs after torch {1e3 * imports.more_seconds:.0f} ms, {imports.share:.1%}; medians of {imports.repeats}."
    yield f"- Modules: {imports.modules_of_torch} with torch; situs adds {imports.modules_of_situs} of its own and"
    yield f"  {imports.other_modules} others; packages {', '.join(imports.packages)}."
    yield f"- First fused rotation in a new interpreter {first['first']:.0f} ms, third {first['third']:.1f} ms.\n"
    yield "## 7. The contract, seconds\n"
    rows = []
    for each in results.contracts:
        failed = ", ".join(each.failures) or "none"
        rows.append([each.pairing, number(each.first_seconds), number(each.again_seconds), each.passed, failed])
    yield from table("pairing, first time, again, passed, failed", rows)


def _size(length: int, heads: int, head_dim: int) -> str:
    return f"{length} × {heads} × {head_dim}"
