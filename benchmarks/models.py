"""``python -m benchmarks.models``: whole models of transformers, accelerated and not, beside a Llama of their size.

Two layers, width 512, 8 heads, random weights. Every family stands beside itself unmodified and beside transformers'
Llama, in one process and in turns. Before it is timed, an accelerated model must give what the unmodified one gives.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from time import perf_counter
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from benchmarks import machine, models_report, options
from benchmarks.models_cases import (
    ACCELERATED,
    BACKWARD,
    DECODE,
    FAMILIES,
    FORWARD,
    FULL_LLAMA,
    LLAMA,
    SEE_ALL,
    STEPS,
    TORCH_ONLY,
    UNMODIFIED,
    WITHOUT,
    Row,
    cases,
    full_llama,
)  # fmt: skip
from benchmarks.sittings import Sittings
from benchmarks.timing import Contender, Effort, race
from situs import huggingface
from situs.huggingface import interface
from situs.lab.probing.memory import observe

LONG = 2048  # tokens, from which on it is measured what compiled loops do
SLOW_SECONDS, AGREEMENT = 1.0, {"float32": 1e-3, "bfloat16": 1e-1}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def measure(mode: str, sittings: Sittings) -> Iterator[Row]:
    """Every case of a mode."""
    quick = mode == "quick"
    effort = Effort(0.05, 2, brief=1) if quick else Effort(1.0, 5, 40, brief=3)
    for case in cases(mode):
        for family in case.families:
            for dtype in case.dtypes:
                for length in case.lengths:
                    measured = partial(_measured, family, case.work, length, dtype, effort, (1,) if quick else (1, 2))
                    yield from sittings.rows(f"models: {family} {case.work} {length} {dtype}", Row, measured)


def _measured(family: str, work: str, length: int, dtype: str, effort: Effort, threads: Sequence[int]) -> list[Row]:
    torch.manual_seed(0)
    rows = []
    own = FAMILIES[family]().to(DTYPES[dtype]).eval()
    faster = copy.deepcopy(own)
    began = perf_counter()
    huggingface.accelerate(faster, check=False)
    accelerate_ms = 1e3 * (perf_counter() - began)
    models = {ACCELERATED: faster, UNMODIFIED: own}
    if family != LLAMA and work != DECODE:
        models[LLAMA] = FAMILIES[LLAMA]().to(DTYPES[dtype]).eval()
        if family in SEE_ALL:
            models[FULL_LLAMA] = full_llama().to(DTYPES[dtype]).eval()
    with torch.set_grad_enabled(work == BACKWARD):
        runs = {name: _run(model, work, length) for name, model in models.items()}
        if length >= LONG and work != DECODE:
            runs[TORCH_ONLY] = runs[ACCELERATED]
        if work == BACKWARD:
            runs[WITHOUT] = _without_attention(runs[ACCELERATED])
        torch.set_num_threads(1)
        extra, earlier, results = {}, {}, {}
        for name, run in runs.items():
            with Contender(name, run, fused=name != TORCH_ONLY).in_force():
                seen = observe(run)
            extra[name], results[name] = seen.extra_bytes / 2**20, seen.result
            if name == UNMODIFIED and seen.seconds > SLOW_SECONDS:
                earlier[name] = [seen.seconds]
        _require_agreement(f"{family} {work} {length} {dtype}", results, AGREEMENT[dtype])
        results.clear()
        for count in threads:
            torch.set_num_threads(count)
            contenders = [
                Contender(name, run, fused=name != TORCH_ONLY, brief=name == UNMODIFIED) for name, run in runs.items()
            ]
            raced = race(contenders, effort, earlier=earlier if count == 1 else {})
            medians = {name: 1e3 * each for name, each in raced.medians.items()}
            quartiles = {name: (1e3 * low, 1e3 * high) for name, (low, high) in raced.quartiles.items()}
            rows.append(Row(family, work, length, dtype, count, medians, quartiles, extra, accelerate_ms))
    return rows


def _run(model: Any, work: str, length: int) -> Callable[[], Tensor]:
    """What is timed: a forward pass, one with gradients of all weights, or tokens one by one behind a text."""
    fixed = torch.Generator().manual_seed(0)
    if model.main_input_name == "input_features":
        frames = torch.randn(1, length, model.config.feature_projection_input_dim, generator=fixed).to(model.dtype)
        return lambda: model(frames)[0]
    ids = torch.randint(4, 1000, (1, length), generator=fixed)
    if work == FORWARD:
        return lambda: model(ids)[0]
    if work == BACKWARD:
        return lambda: _gradient(model, ids)
    cache = model(ids, use_cache=True).past_key_values
    step = torch.full((1, 1), 7)

    def decode() -> Tensor:
        own = copy.deepcopy(cache)  # some caches cannot be cropped
        for _ in range(STEPS):
            out: Tensor = model(step, past_key_values=own, use_cache=True)[0]
        return out

    return decode


def _without_attention(run: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """The same with a sum of queries, keys and values instead of attention: what layers take for all else, which no
    attention can be faster than."""

    def run_without() -> Tensor:
        with patch.object(interface, "attend", lambda query, key, value, **options: query + key + value):
            return run()

    return run_without


def _gradient(model: Any, ids: Tensor) -> Tensor:
    """The gradient of the embedding, to which all others lead; the loss is no norm, since most models end in one."""
    model.zero_grad(set_to_none=True)
    out = model(ids)[0]
    out.backward(torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out.dtype))
    found: Tensor = model.get_input_embeddings().weight.grad
    return found


def _require_agreement(words: str, results: dict[str, Any], tolerance: float) -> None:
    found, wanted = (results[name].float() for name in (ACCELERATED, UNMODIFIED))
    apart = float((found - wanted).abs().max() / wanted.abs().max())
    if not apart <= tolerance:
        raise RuntimeError(f"{words}: accelerated and unmodified differ by {apart:.3g}, more than {tolerance}.")


def main() -> None:
    """Measure, print, write."""
    mode, out = options.parse("benchmarks.models", "Measure whole models of transformers, accelerated and not.")
    description, others, sittings = machine.description(), machine.Bystanders(), Sittings(out, mode)
    rows = list(measure(mode, sittings))
    description |= {"share_of_others": others.share(), "seconds": sittings.seconds, "mode": mode}
    description["sittings"] = sittings.count
    words = models_report.markdown(description, rows)
    print(words)
    (out / "models.json").write_text(
        json.dumps({"machine": description, "rows": [asdict(row) for row in rows]}, indent=1, ensure_ascii=False) + "\n"
    )
    (out / "MODELS.md").write_text(words)
    sittings.finish()
    print(f"Wrote {out / 'models.json'} and {out / 'MODELS.md'}.")


if __name__ == "__main__":
    main()
