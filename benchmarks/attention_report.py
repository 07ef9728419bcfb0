"""The report's part on attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks import attention, attention_decode, attention_long
from benchmarks.attention import ATTEND, OURS, PLAIN, TORCH_ONLY
from benchmarks.attention_cases import BACKWARD, FORWARD
from benchmarks.attention_peers import HEAD_DIM, HEADS
from benchmarks.markdown import number, table
from benchmarks.results import Results

NOTES = """\
Times in ms. Extra memory is what torch's allocator held at worst beyond the results, in MiB, with one thread. A dash \
was not measured. Every rival has a call's results compared with Situs' first, gradients included; they run in float32 \
alone. They take three rounds, one of them under the memory profiler where a call is over a second.

- **plain** is `scaled_dot_product_attention` without positions; **situs** is `situs.attend`; **torch only** is the \
same without compiled loops, as it is without the extra `fast` and on processors that have none.
- **materialised** makes the encoding's term for every score, here by Situs' own module, and hands it to \
`scaled_dot_product_attention` as a mask; making it is part of the call.
- **gather** is how Shaw's and Transformer-XL's terms are often written: a vector for every pair of places, looked up, \
then multiplied with the query; one head after another where each has its own, since all at once would fill the \
memory. TUPE has no vectors over offsets, so it has no such form, and its rival is the materialised one.
- **FlexAttention** is torch's, compiled for the CPU with the bias as `score_mod` (`impl="flex"`); compiling is left \
out, making the block mask is part of the call. It has no backward on the CPU.
- **transformers T5** is `T5Attention` on `scaled_dot_product_attention`, as the first layer of a model, which makes \
the bias; **later layers** are handed the dense bias, so making it is left out.
- **transformers BLOOM, MPT** are `BloomAttention` and `MptAttention`; masks and biases are made before, as their \
models do once for all layers. Both are causal only.
- **transformers DeBERTa** is v2's `DisentangledSelfAttention` with c2p and p2c. The table of offsets is made before, \
as its model does; projecting the embeddings of positions is part of the call on both sides.
- **x-transformers** is its `RelativePositionBias` or `AlibiPositionalBias` with its `Attend(flash=True)`. It keeps \
ALiBi's dense bias from call to call, so neither the making nor the memory of that is counted.
- Projections of tokens to queries, keys and values, and of the output, are left out on both sides: released modules, \
built from a configuration and given Situs' weights, are handed the same queries, keys and values.
"""
DEFAULT = """\
This run leaves out, for time: 131,072 tokens and growth to 32k; 8192 tokens, and 4096 in bfloat16, with one thread; \
ALiBi at 4096; learned biases at 4096 with one thread or in bfloat16; content-based encodings in bfloat16, at 4096 \
with one thread or against rivals, and backward with two threads; materialised forms, forward, of all but T5, ALiBi \
and TUPE; rivals with two threads. `make bench FULL=1` has them.
"""


def lines(results: Results) -> Iterator[str]:
    """Attention, decoding with a cache, and long sequences."""
    yield f"## 8. Attention with an encoding, {HEADS} heads of {HEAD_DIM}, batch 1\n"
    yield NOTES
    if results.mode == "default":
        yield DEFAULT
    for work in (FORWARD, BACKWARD):
        yield f"### {work}\n"
        yield from _over_plain([row for row in results.attention if row.work == work])
    yield "### Rivals\n"
    yield from _rivals(results.attention)
    yield f"## 9. Decoding: one token against a cache, {HEADS} heads of {HEAD_DIM}\n"
    yield "Time over that of the same step without an encoding, whose µs are given. **layer** is `situs.Attention` with"
    yield "a `KVCache`; **attend** is `situs.attend` with all keys, which keeps nothing from step to step: it turns all"
    yield "keys for rotary, and makes the vectors of offsets anew.\n"
    yield from _decode(results.attention_decode)
    yield f"## 10. Long sequences, one head of {HEAD_DIM}, float32\n"
    yield from _long(results.attention_long, results.attention_growth)


def _over_plain(rows: Sequence[attention.Row]) -> Iterator[str]:
    cells = [
        [*_case(row), row.dtype, row.threads, row.rounds, number(row.milliseconds[PLAIN])]
        + [number(row.milliseconds[ATTEND]), f"{row.over_plain():.2f}×"]
        + [number(row.milliseconds[TORCH_ONLY]), f"{row.over_plain(TORCH_ONLY):.2f}×"]
        + [_mib(row.extra_mib, name) for name in OURS]
        + ([_mib(row.halved_mib, ATTEND)] if row.work == BACKWARD else [])
        for row in rows
    ]
    header = "encoding, tokens, seen, dtype, threads, rounds, plain ms, situs ms, of plain, torch only ms, "
    header += "of plain, plain MiB, situs MiB, torch only MiB"
    if any(row.work == BACKWARD for row in rows):
        header += ", at half the length MiB"
    yield from table(header, cells)


def _rivals(rows: Sequence[attention.Row]) -> Iterator[str]:
    cells = []
    for row in rows:
        for name in row.milliseconds:
            if name not in OURS:
                times = [
                    number(row.milliseconds[name]),
                    f"{row.over_plain(name):.2f}×",
                    f"{row.faster_than(name):.1f}×",
                ]
                held = [_mib(row.extra_mib, name), _mib(row.extra_mib, ATTEND)]
                cells.append([*_case(row), row.work, row.threads, name, *times, *held])
    header = "encoding; tokens; seen; work; threads; rival; ms; of plain; situs is faster; MiB; situs MiB"
    yield from table(header, cells, ";")


def _decode(rows: Sequence[attention_decode.Row]) -> Iterator[str]:
    names = attention_decode.NAMES
    cells = [
        [row.form, row.length, row.dtype, row.threads, number(row.microseconds[PLAIN])]
        + [f"{row.over_plain(name):.2f}×" for name in names]
        for row in rows
    ]
    yield from table(f"form, cached, dtype, threads, without µs, {', '.join(names)}", cells)


def _long(rows: Sequence[attention_long.Long], growth: Sequence[attention_long.Growth]) -> Iterator[str]:
    if not rows and not growth:
        yield "Measured with `FULL=1` only.\n"
        return
    yield "One causal forward pass, once, under the memory profiler:\n"
    cells = [[row.encoding, row.length, row.threads, number(row.seconds), number(row.extra_mib)] for row in rows]
    yield from table("encoding, tokens, threads, seconds, extra MiB", cells)
    yield "T5's bias at growing lengths, ms, and the slope of log time over log length:\n"
    grown = [
        ["causal" if each.causal else "full", str(each.threads), name]
        + [number(value) for value in each.milliseconds[name]]
        + [f"{each.exponent(name):.3f}"]
        for each in growth
        for name in (PLAIN, ATTEND)
    ]
    lengths = ", ".join(str(length) for each in growth[:1] for length in each.lengths)
    yield from table(f"seen, threads, attention, {lengths}, exponent", grown)


def _case(row: attention.Row) -> list[object]:
    return [row.encoding, row.length, "causal" if row.causal else "full"]


def _mib(held: dict[str, float], name: str) -> str:
    return f"{held[name]:.1f}" if name in held else "–"
