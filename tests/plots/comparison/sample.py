"""Made-up records of a comparison, as they are stored, with everything that can be missing or odd in real ones."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from situs.lab.comparing.records import FORMAT, Comparison, Parameters, Results, Seconds, Taught, Trial, TrialRecord
from situs.lab.naming import parse
from situs.lab.plain import from_plain
from situs.lab.records import Outcome
from situs.lab.settings import Settings
from situs.plots.comparison.view import View

ODD = 'my<b>module:"Quoted"&Co\'s$x$'
METHODS = (
    "none", "learned", "sinusoidal", "rotary", "rotary+linear", "rotary+ntk", "rotary+yarn", "xpos",
    "alibi", "kerple", "sandwich", "fire", "t5", "shaw(max_distance=16)", "cope", ODD,
)  # fmt: skip
# the loss at 1x, and its change at 16x; what grows grows with the logarithm of the length
LOSSES = {
    "none": (2.27, 0.20), "learned": (2.22, None), "sinusoidal": (2.16, 0.62), "rotary": (1.90, 1.25),
    "rotary+linear": (1.90, 0.98), "rotary+ntk": (1.90, 1.15), "rotary+yarn": (1.90, 0.67), "xpos": (1.93, 1.02),
    "alibi": (2.00, 0.005), "kerple": (1.91, 0.007), "sandwich": (2.03, 0.09), "fire": (1.90, 0.25),
    "t5": (2.13, 0.37), "shaw(max_distance=16)": (1.92, 0.12), "cope": (2.01, 0.31), ODD: (2.05, 0.04),
    "rotary+random": (2.01, 0.59), "alibi(slopes=1)": (2.02, 0.01), "alibi(slopes=1e+0)": (2.02, 0.01),
    "rotary(base=1e+5)": (1.91, 1.10), "rotary(base=1e+5)+yarn": (1.91, 0.31), "rotary+yarn(factor=4.0)": (1.90, 0.7),
    "transformer_xl": (1.91, 0.02), "rotary+ntk_by_parts": (1.90, 0.63),
    "own_modules/ofmine.py:EncodingOfMyOwn": (2.0, 0.3),
}  # fmt: skip
FOUND = {"rotary": 0.45, "alibi": 0.71, "sinusoidal": 0.93, "xpos": 0.55, "sandwich": 0.8, "cope": 0.35}
TIMES = {
    "none": 1.0, "learned": 1.0, "sinusoidal": 1.0, "rotary": 1.03, "xpos": 1.08, "alibi": 1.02, "kerple": 1.05,
    "sandwich": 1.06, "fire": 1.12, "t5": 1.04, "shaw(max_distance=16)": 2.2, "cope": 4.9,
}  # fmt: skip
PROPERTIES = ("unique", "relative", "bounded", "norm_preserving", "decaying", "equivariant")


def make_records(
    *,
    methods: Sequence[str] = METHODS,
    tasks: Sequence[str] = ("text", "passkey"),
    seeds: int = 2,
    windows: int = 24,
    multiples: Sequence[int] = (1, 2, 4, 8, 16),
    failures: bool = True,
    costs: bool = True,
) -> dict[str, Any]:
    """Records of a comparison. With failures, cope diverged with its last seed and xpos failed on the last task."""
    settings = {
        "train_length": 64, "multiples": list(multiples), "batch": 32, "learning_rate": 0.006, "warm_up": 40,
        "windows": windows, "size": {"dim": 64, "layers": 2, "heads": 4}, "device": "cpu",
    }  # fmt: skip
    facts = {task: {"steps": 300, "measure": "loss" if task == "text" else "accuracy"} for task in tasks}
    trained: dict[str, list[str]] = {}
    for method in methods:
        trained.setdefault(_trained_as(method), []).append(method)
    trials = []
    for seed in range(seeds):
        for task in tasks:
            for name, tested in trained.items():
                status = "done"
                if failures and name == "cope" and seed == seeds - 1:
                    status = "diverged"
                if failures and name == "xpos" and task == tasks[-1]:
                    status = "failed"
                trials.append(_trial(name, tested, task, seed, facts[task], settings, status))
    return {
        "format": FORMAT,
        "made": "2026-11-16T07:00:00+00:00",
        "command": "situs compare --preset quick",
        "preset": "quick",
        "where": {
            "python": "3.11.2", "torch": "2.13.0", "situs": "0.1.0", "platform": "Linux-6.1-x86_64-with-glibc2.36",
            "processor": "x86_64", "cores": 2, "device": "cpu",
        },
        "corpus": {
            "name": "Python 3.11.2 standard library", "hash": "ab12cd34ef56" * 5 + "7890",
            "files": {"train": 500, "tune": 60, "test": 60},
            "bytes": {"train": 9000000, "tune": 900000, "test": 950000},
        } if "text" in tasks else None,
        "settings": settings,
        "seeds": list(range(seeds)),
        "tasks": facts,
        "methods": list(methods),
        "trials": trials,
        "costs": {method: _costs(method) for method in methods if method != "sandwich"} if costs else {},
        "properties": {method: _properties(method) for method in methods if method != "sandwich"} if costs else {},
        "seconds": 183.0,
    }  # fmt: skip


def view_of(records: dict[str, Any]) -> View:
    """Sum up records as they are stored."""
    return View.of(from_plain(Comparison, records))


Losses = Mapping[str, Mapping[int, Sequence[Sequence[float]]]]
"""For each method and length the losses of every seed and window."""


def view_of_losses(losses: Losses, **more: Any) -> View:
    """Sum up a comparison on text of which only the losses are given."""
    lengths = sorted({length for each in losses.values() for length in each})
    settings = Settings(train_length=lengths[0], multiples=tuple(length // lengths[0] for length in lengths))
    seeds = range(max(len(each) for every in losses.values() for each in every.values()))
    trials = []
    for name, every in losses.items():
        for seed in seeds:
            trial = Trial(parse(name), (parse(name),), "text", seed, 1, settings)
            found = {length: Outcome(scores=list(each[seed])) for length, each in every.items() if seed < len(each)}
            trials.append(
                TrialRecord(
                    key=f"{name} {seed}",
                    trial=trial,
                    status="done",
                    measure="loss",
                    curve=[],
                    methods={name: Results(found, None)},
                    parameters=Parameters(0, 0),
                    seconds=Seconds(1.0, 1.0),
                )
            )
    records = Comparison(
        settings=settings,
        seeds=list(seeds),
        tasks={"text": Taught(steps=1, measure="loss")},
        methods=[parse(name) for name in losses],
        corpus=None,
        trials=trials,
        **more,
    )
    return View.of(records)


def _trained_as(method: str) -> str:
    base, _, added = method.rpartition("+")
    return base if added in ("linear", "ntk", "yarn") else method


def _noise(*what: object) -> random.Random:
    return random.Random(hashlib.sha256(repr(what).encode()).digest())


def _trial(
    name: str,
    tested: Sequence[str],
    task: str,
    seed: int,
    facts: dict[str, Any],
    settings: dict[str, Any],
    status: str,
) -> dict[str, Any]:
    trial = {
        "method": name, "tested": list(tested), "task": task, "seed": seed, "steps": facts["steps"],
        "settings": settings, "corpus": "ab12cd34ef56" if task == "text" else "",
    }  # fmt: skip
    key = hashlib.sha256(repr((name, task, seed)).encode()).hexdigest()[:16]
    record: dict[str, Any] = {"format": FORMAT, "key": key, "trial": trial, "status": status}
    if status == "failed":
        return {
            **record, "error": "RuntimeError: not enough <memory>: you tried to allocate 3 GB & more", "measure": None,
            "curve": [], "methods": {}, "parameters": {"model": None, "encodings": None},
            "seconds": {"training": 0.0, "testing": 0.0},
        }  # fmt: skip
    return {
        **record,
        "measure": facts["measure"],
        "curve": [[0, 5.5], [299, 2.0]] if status == "done" else [[0, 5.5], [6, "NaN"]],
        "methods": {method: _tested(method, task, seed, settings) for method in tested} if status == "done" else {},
        "parameters": {"model": 131072, "encodings": {"learned": 4096, "kerple": 16, "t5": 256}.get(name, 0)},
        "seconds": {"training": 8.0 + seed, "testing": 2.0},
    }


def _tested(method: str, task: str, seed: int, settings: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"lengths": {}, "ramp": [2.0, 0.25] if method.endswith("+yarn") else None}
    longest = settings["train_length"] * settings["multiples"][-1]
    for multiple in settings["multiples"]:
        length = multiple * settings["train_length"]
        if LOSSES[method][1] is None and multiple > 1:
            found["lengths"][str(length)] = {"ends": settings["train_length"]}
        elif task == "text":
            found["lengths"][str(length)] = _read(method, multiple, length == longest, seed, settings)
        else:
            found["lengths"][str(length)] = _answered(method, task, multiple, seed, settings["windows"])
    return found


def _read(method: str, multiple: int, last: bool, seed: int, settings: dict[str, Any]) -> dict[str, Any]:
    start, far = LOSSES[method]
    windows = [_noise("window", window).gauss(0, 0.5) for window in range(settings["windows"])]
    each = _noise(_trained_as(method) if multiple == 1 else method, multiple, seed)
    level = start + _change(far, multiple) * (1 + 0.2 * (seed - 0.5)) + 0.03 * (seed - 0.5)
    found: dict[str, Any] = {"scores": [level + window + each.gauss(0, 0.01) for window in windows]}
    if last:
        place = [(stretch + 0.5) * multiple / 32 for stretch in range(32)]
        found["along"] = [level - _change(far, multiple) + _change(far, max(at, 1)) + 0.05 / at for at in place]
    return found


def _change(far: float | None, multiple: float) -> float:
    return (far or 0.0) * (math.log2(multiple) / 4) ** 0.6 if multiple > 1 else 0.0


def _answered(method: str, task: str, multiple: int, seed: int, windows: int) -> dict[str, Any]:
    far = FOUND.get(method, 1.0) if task == "passkey" else max(0.0, FOUND.get(method, 0.8) - 0.3)
    each = _noise(method, task, multiple, seed)
    depths = [window % 8 / 7 for window in range(windows)]
    chance = 1 - (1 - far) * math.log2(multiple) / 4
    scores = [float(each.random() < chance ** (2.0 * (1 - depth))) for depth in depths]
    return {"scores": scores, **({"depths": depths} if task in ("passkey", "recall") else {})}


def _costs(method: str) -> dict[str, Any]:
    time = TIMES.get(method, 1.04)
    measured = {"time": time, "time_low": 0.98 * time, "time_high": 1.03 * time, "rounds": 9}
    far: dict[str, Any] = {**measured, "memory": 1.1, "plain_mib": 40.0, "mib": 44.0}
    return {
        "parameters": 0,
        "lengths": {
            "64": {"time": 1 + (time - 1) / 2, "memory": 1.0, "plain_mib": 1.0, "mib": 1.0},
            "4096": {"ends": 64} if method == "learned" else far,
        },
        "decode": {"time": 1.01},
    }


def _properties(method: str) -> dict[str, Any]:
    holds = {"relative": method not in ("learned", "sinusoidal"), "decaying": method in ("alibi", "kerple")}
    said = {name: f"{name} of <{method}>: measured" for name in PROPERTIES}
    return {name: {"holds": holds.get(name, True), "number": 0.1, "unit": "", "said": said[name]} for name in said}
