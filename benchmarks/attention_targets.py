"""Targets of attention: times over plain attention and over the forms usual elsewhere, memory, growth, decoding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks import attention, attention_decode, attention_long, attention_peers
from benchmarks.attention import ATTEND, PLAIN, TORCH_ONLY
from benchmarks.attention_cases import BACKWARD, BANDED, CONTENT, FORWARD, FREE, KEYS_BY_OFFSET
from benchmarks.judgement import Bound, Target

BIASES = ("t5", "alibi")
WITHOUT_CONTENT = ("rotary", "t5", "alibi", "kerple")
FULL_BIAS, CAUSAL_BIAS = Bound(1.15, aim=1.05), Bound(1.20, aim=1.10)
LEARNED_BIAS = Bound(2.0, aim=1.5)
KEYS, OVER_GATHER = Bound(2.8, aim=2.0), Bound(3.0, at_most=False)
DEBERTA, OVER_DEBERTA = Bound(4.5, aim=3.0), Bound(2.5, at_most=False)
BANDS = Bound(2.2, aim=1.5)
FREE_OF_COST = Bound(1.05)
PROJECTED, FORGETTING = Bound(2.0, aim=1.6), Bound(1.15)
OVER_MATERIALISED = Bound(2.0, aim=3.0, at_most=False)
DOUBLING = Bound(2.5)  # 2 is linear, 4 is quadratic
LONG = Bound(4.0, aim=1.0, unit=" GB")
EXPONENT = Bound(0.05, unit="", digits=3)
DECODING = Bound(1.05)

TIMES_PLAIN = {ATTEND: "time of plain", TORCH_ONLY: "time of plain, torch only"}


def judge(
    rows: Sequence[attention.Row],
    steps: Sequence[attention_decode.Row],
    long: Sequence[attention_long.Long],
    growth: Sequence[attention_long.Growth],
) -> Iterator[Target]:
    """Every target of attention."""
    for name in TIMES_PLAIN:
        yield from _over_plain(rows, name)
    yield from _over_rivals(rows)
    backward = [row for row in rows if row.encoding in CONTENT and row.work == BACKWARD and row.halved_mib]
    doubled = {row.case: row.extra_mib[ATTEND] / row.halved_mib[ATTEND] for row in backward}
    yield DOUBLING.judge("content-based, forward and backward", "extra memory as the length doubles", doubled)
    gigabytes = {each.case: each.extra_mib * 2**20 / 1e9 for each in long if each.encoding != PLAIN}
    yield LONG.judge("T5 and ALiBi, 131,072 tokens, one head", "extra memory", gigabytes)
    differences = {each.case: each.difference for each in growth}
    yield EXPONENT.judge("growth from 4k to 32k", "exponent above plain's", differences)
    for words, among in (("rotary and biases", WITHOUT_CONTENT), ("content-based", None)):
        ratios = {
            f"{name} {row.case}": row.over_plain(name)
            for row in steps
            if row.form == "layer"
            for name in row.microseconds
            if name != PLAIN and (name in WITHOUT_CONTENT) == (among is not None)
        }
        yield DECODING.judge(f"decoding with Attention and KVCache, {words}", "time without encoding", ratios)


def _over_plain(rows: Sequence[attention.Row], name: str) -> Iterator[Target]:
    variant = TIMES_PLAIN[name]

    def ratios(work: str, encodings: Sequence[str], causal: bool | None = None) -> dict[str, float]:
        return {
            row.case: row.over_plain(name)
            for row in rows
            if row.work == work and row.encoding in encodings and causal in (None, row.causal)
        }

    yield FULL_BIAS.judge("content-free bias, full", variant, ratios(FORWARD, BIASES, causal=False))
    yield CAUSAL_BIAS.judge("content-free bias, causal", variant, ratios(FORWARD, BIASES, causal=True))
    yield LEARNED_BIAS.judge("learned bias, forward and backward", variant, ratios(BACKWARD, ("t5",)))
    keys = (*KEYS_BY_OFFSET, "tupe")
    yield KEYS.judge("Shaw keys, Transformer-XL, TUPE, forward", variant, ratios(FORWARD, keys))
    yield FREE_OF_COST.judge("sinks, temperature, trailing and value rotary, forward", variant, ratios(FORWARD, FREE))
    yield PROJECTED.judge("Inkling's projected bias, forward", variant, ratios(FORWARD, ("projected",)))
    yield FORGETTING.judge("forgetting, forward", variant, ratios(FORWARD, ("forgetting",)))
    yield BANDS.judge("Self-Extend, ReRoPE, dual chunks, forward", variant, ratios(FORWARD, BANDED))
    yield DEBERTA.judge("DeBERTa, forward", variant, ratios(FORWARD, ("deberta",)))


def _over_rivals(rows: Sequence[attention.Row]) -> Iterator[Target]:
    asked = (
        ("Shaw keys, Transformer-XL, forward", FORWARD, KEYS_BY_OFFSET, attention_peers.GATHER, OVER_GATHER),
        ("DeBERTa, forward", FORWARD, ("deberta",), attention_peers.DEBERTA, OVER_DEBERTA),
        ("content-based, forward and backward", BACKWARD, CONTENT, attention_peers.MATERIALISED, OVER_MATERIALISED),
    )
    for figure, work, encodings, rival, bound in asked:
        speeds = {
            row.case: row.faster_than(rival)
            for row in rows
            if row.work == work and row.encoding in encodings and rival in row.milliseconds
        }
        yield bound.judge(figure, f"faster than {rival}", speeds)
