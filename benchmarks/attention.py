"""Attention with an encoding beside attention without: time and extra memory, forward, and forward with backward.

plain             scaled_dot_product_attention, no positions
situs             situs.attend
situs torch only  the same without compiled loops, as without the extra "fast"
others            see attention_peers

Each case runs once under the memory profiler, where all but plain must give the same results, and is then timed.
Rivals take the fewest rounds only; what takes one of them over a second under the profiler counts as a round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

import situs
from benchmarks import attention_peers as peers
from benchmarks.attention_cases import BACKWARD, DTYPES, FORWARD, Case, cases
from benchmarks.attention_peers import HEAD_DIM, HEADS, SDPA, Run, Vectors
from benchmarks.sittings import Sittings
from benchmarks.timing import Contender, Effort, race
from situs.lab.probing.memory import observe

PLAIN, ATTEND, TORCH_ONLY = "plain", "situs", "situs torch only"
OURS = (PLAIN, ATTEND, TORCH_ONLY)
SLOW_SECONDS = 1.0
AGREEMENT = {"float32": 2e-3, "bfloat16": 2e-2}


@dataclass(frozen=True)
class Row:
    """One case, what everyone took for it, and what they held beyond their results."""

    encoding: str
    work: str
    length: int
    causal: bool
    dtype: str
    threads: int
    rounds: int
    milliseconds: dict[str, float]
    quartiles: dict[str, tuple[float, float]]
    extra_mib: dict[str, float] = field(default_factory=dict)
    """With one thread."""
    halved_mib: dict[str, float] = field(default_factory=dict)
    """The same at half the length, where its growth is asked for."""

    @property
    def case(self) -> str:
        """The case in words."""
        seen = "causal" if self.causal else "full"
        return f"{self.encoding} {self.length}, {seen}, {self.dtype}, {self.threads} thread{'s' * (self.threads > 1)}"

    def over_plain(self, name: str = ATTEND) -> float:
        """Times the time of plain attention."""
        return self.milliseconds[name] / self.milliseconds[PLAIN]

    def faster_than(self, rival: str) -> float:
        """How many times faster Situs is than a rival."""
        return self.milliseconds[rival] / self.milliseconds[ATTEND]


def encodings(heads: int = HEADS) -> dict[str, situs.Encoding]:
    """The encodings that are measured, at the usual sizes; weights are large enough to tell right from wrong."""
    sizes: dict[str, Any] = {"num_heads": heads, "head_dim": HEAD_DIM}
    dim = heads * HEAD_DIM
    torch.manual_seed(0)
    return {
        "rotary": situs.Rotary(head_dim=HEAD_DIM),
        "sinks": situs.NoPE(),
        "temperature": situs.Temperature(),
        "trailing rotary": situs.Rotary(head_dim=HEAD_DIM, rotary_dim=HEAD_DIM // 2, channels="trailing"),
        "value rotary": situs.RotaryValue(head_dim=HEAD_DIM),
        "projected": situs.ProjectedBias(num_heads=heads, rank=16, distances=1024),
        "forgetting": situs.Forgetting(num_heads=heads),
        "selfextend": situs.Rotary(head_dim=HEAD_DIM, scaling=situs.SelfExtend(window=512, group=8)),
        "rerope": situs.Rotary(head_dim=HEAD_DIM, scaling=situs.ReRoPE(window=512)),
        "dualchunk": situs.Rotary(head_dim=HEAD_DIM, scaling=situs.DualChunk(chunk_size=768, local_size=64)),
        "t5": situs.T5Bias(num_heads=heads, init_std=1.0),
        "alibi": situs.ALiBi(num_heads=heads),
        "kerple": situs.Kerple(num_heads=heads),
        "sandwich": situs.Sandwich(num_heads=heads),
        "fire": situs.Fire(num_heads=heads),
        "shaw keys": situs.Shaw(**sizes, values=False),
        "shaw": situs.Shaw(**sizes),
        "transformer_xl": situs.TransformerXL(dim=dim, **sizes, init_std=0.1),
        "tupe": situs.Tupe(dim=dim, **sizes, max_length=4096, init_std=0.3),
        "deberta": situs.Deberta(dim=dim, **sizes, init_std=0.3),
        "cope": situs.CoPE(**sizes, init_std=0.3),
    }


def measure(effort: Effort, mode: str, sittings: Sittings) -> Iterator[Row]:
    """Every case of a mode."""
    made = encodings()
    for case in cases(mode):
        seen = "causal" if case.causal else "full"
        words = f"attention: {case.encoding} {case.work} {case.length} {seen} {case.dtype}"
        yield from sittings.rows(words, Row, partial(measure_case, case, made[case.encoding], effort))


def measure_case(case: Case, encoding: situs.Encoding, effort: Effort) -> list[Row]:
    """One case with each number of threads."""
    rows = []
    torch.set_num_threads(case.threads[0])
    with torch.set_grad_enabled(case.work == BACKWARD):
        runs = _runs(case, encoding, case.length, case.rivals)
        extra: dict[str, float] = {}
        halved: dict[str, float] = {}
        earlier: dict[str, list[float]] = {}
        if case.threads[0] == 1:
            extra, earlier = _observed(runs, case)
            if case.halve:
                halved, _ = _observed(_runs(case, encoding, case.length // 2, ()), case)
        for count in case.threads:
            torch.set_num_threads(count)
            shown = {name: run for name, run in runs.items() if name in OURS or count in case.rival_threads}
            if peers.FLEX in shown:
                shown[peers.FLEX]()  # compiled anew for another number of threads
            contenders = [
                Contender(name, run, fused=name != TORCH_ONLY, brief=name not in OURS) for name, run in shown.items()
            ]
            raced = race(contenders, effort, earlier=earlier if count == 1 else {})
            times = {name: 1e3 * seconds for name, seconds in raced.medians.items()}
            quartiles = {name: (1e3 * low, 1e3 * high) for name, (low, high) in raced.quartiles.items()}
            rows.append(
                Row(
                    case.encoding, case.work, case.length, case.causal, case.dtype, count, raced.rounds, times,
                    quartiles, extra, halved,
                )
            )  # fmt: skip
    return rows


def _runs(case: Case, encoding: situs.Encoding, length: int, rivals: tuple[str, ...]) -> dict[str, Run]:
    """What is called: plain attention, Situs, and those rivals that have this encoding."""
    vectors = make_vectors(length, DTYPES[case.dtype], HEADS)
    query, key, value = vectors
    given: dict[str, Any] = {"sinks": torch.zeros(HEADS)} if case.encoding == "sinks" else {}
    if encoding.features:
        shape = query.shape[:3]
        given["features"] = {
            name: torch.randn(*shape, each.width).to(query.dtype) for name, each in encoding.features.items()
        }
    forward: dict[str, Callable[[], Any]] = {
        PLAIN: lambda: SDPA(query, key, value, is_causal=case.causal),
        ATTEND: lambda: situs.attend(query, key, value, encoding=encoding, causal=case.causal, **given),
    }
    forward[TORCH_ONLY] = forward[ATTEND]
    prepared = peers.peers(vectors, encoding, case.causal)
    with torch.no_grad():
        forward |= {name: prepared[name]() for name in rivals if name in prepared}
    if case.work == FORWARD:
        return dict(forward)
    leaves = [*(each.requires_grad_() for each in vectors), *encoding.parameters()]
    gradient = torch.randn_like(query)
    return {name: _with_backward(run, leaves, gradient) for name, run in forward.items()}


def _with_backward(forward: Callable[[], Tensor], leaves: list[Tensor], gradient: Tensor) -> Run:
    return lambda: torch.autograd.grad(forward(), leaves, gradient, allow_unused=True)


def _observed(runs: dict[str, Run], case: Case) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Everyone's extra memory in MiB, and the seconds of rivals so slow that the profiler does not count; raise
    unless all that have positions agree: a race between different maps says nothing."""
    extra, earlier, expected = {}, {}, None
    for name, run in runs.items():
        with Contender(name, run, fused=name != TORCH_ONLY).in_force():
            seen = observe(run)
        extra[name] = seen.extra_bytes / 2**20
        if name not in OURS and seen.seconds > SLOW_SECONDS:
            earlier[name] = [seen.seconds]
        if name == ATTEND:
            expected = seen.result
        elif name != PLAIN:
            _require_agreement(name, case, seen.result, expected)
    return extra, earlier


def _require_agreement(name: str, case: Case, result: object, expected: object) -> None:
    first, second = (each if isinstance(each, tuple) else (each,) for each in (result, expected))
    # a gradient that softmax cancels is the rounding of what it is the sum of, so it is held against the others
    largest = max(float(each.abs().max()) for each in second if isinstance(each, Tensor))
    least = max(1.0, 0.01 * largest)
    for actual, wanted in zip(first, second, strict=True):
        if isinstance(actual, Tensor) and isinstance(wanted, Tensor):
            apart = float((actual.float() - wanted.float()).abs().max() / wanted.float().abs().max().clamp(min=least))
            if not apart <= AGREEMENT[case.dtype]:
                raise RuntimeError(
                    f"{name} and situs differ by {apart:.3g}, more than {AGREEMENT[case.dtype]}, in {case}."
                )


def make_vectors(length: int, dtype: torch.dtype, heads: int) -> Vectors:
    """Random queries, keys and values, (1, heads, length, head_dim)."""
    generator = torch.Generator().manual_seed(0)
    made = torch.randn(3, 1, heads, length, HEAD_DIM, generator=generator).to(dtype)
    return made[0].clone(), made[1].clone(), made[2].clone()
