"""``situs evaluate``: measure which scaling carries a released model to longer texts."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from situs.cli.compare import cure, whole_numbers
from situs.cli.interrupting import TerminatedError, leaving_at_ctrl_c, stop_printing

if TYPE_CHECKING:
    from situs.lab.evaluating.plan import Plan
    from situs.lab.evaluating.records import Evaluation

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

OUT = "situs-evaluate"
NEEDED = (
    "situs evaluate needs transformers, rich and matplotlib, since it loads models and draws tables and figures. "
    "Install them: pip install 'situs[huggingface,lab]', or '.[huggingface,lab]' in the repository."
)


def add_commands(commands: Commands) -> None:
    """Add the command to the parser."""
    evaluate = commands.add_parser(
        "evaluate",
        allow_abbrev=False,
        help="measure which scaling carries a released model to longer texts",
        description="Measure without training which scaling carries a released model to longer texts: the loss on the "
        "same tokens at every length, the loss along the text, a number to be found at every depth, time and memory. "
        "Writes a table, figures, records and a report, and says what to set. The same command continues where it was "
        "stopped. Exit status: 0 if every trial came to a result, 1 if one failed, 2 if nothing could be run.",
    )
    add = evaluate.add_argument
    add("model", type=Path, metavar="MODEL_DIR", help="a folder with config.json and safetensors; no code in it is run")
    add("--text", metavar="PATH", help="a text file, or a folder of them; some of Python's own sources if left out")
    add(
        "--lengths",
        type=whole_numbers,
        metavar="1,2,... or 4096,...",
        help="lengths to measure at: numbers below 64 are multiples of the trained length, others are tokens, and both "
        "at once are refused (default 1,2,4, or fewer if that would take more than half an hour)",
    )
    add(
        "--scalings",
        metavar="A,B,...",
        help="none, linear, ntk, dynamic, yarn, llama3, longrope, self-extend, rerope, dual-chunk; with a factor, such "
        "as yarn(factor=2), used as written, else set for the longest length (default "
        "none,linear,ntk,dynamic,yarn,llama3,self-extend)",
    )
    add("--tasks", metavar="A,B", help="text, passkey (default both)")
    add("--windows", type=int, metavar="N", help="texts at each length (default 16, or fewer if it would take long)")
    add("--original", type=int, metavar="N", help="tokens that the model was trained on, if config.json is wrong")
    add("--dtype", default="auto", help="auto, float32, bfloat16, float16 (default auto: as the weights are stored)")
    add("--device", default="cpu", help="cpu, cuda, cuda:1, mps (default cpu)")
    add("--engine", choices=("local", "ray"), default="local", help="this process, or a Ray cluster")
    add("--address", metavar="HOST:PORT", help="address of the Ray cluster; a new one on this machine if left out")
    add("--gpus-per-trial", type=float, default=0.0, metavar="N", help="GPUs, or a share of one, for each trial on Ray")
    add("--out", type=Path, default=Path(OUT), metavar="DIR", help=f"where everything is written (default {OUT})")
    add("--fresh", action="store_true", help="run every trial again, also those whose results are in the folder")
    add("--json", action="store_true", help="print the rows as JSON, for programs")
    evaluate.set_defaults(run=run, cure=partial(cure, evaluate))


def run(options: argparse.Namespace) -> int:
    """Evaluate; returns 0 if every trial came to a result, else 1."""
    _require_engine(options)
    try:
        with leaving_at_ctrl_c():
            from situs.cli.evaluate_display import show, watch
            from situs.cli.evaluate_files import write
            from situs.lab.comparing.store import Store
            from situs.lab.evaluating.summary import summarise
            from situs.lab.plain import to_json
    except ImportError as problem:
        needed = ("transformers", "safetensors", "rich", "matplotlib", "numpy")
        if (problem.name or needed[0]).partition(".")[0] not in needed:
            raise
        raise ValueError(NEEDED) from problem

    store, records = _evaluate(options, watch(quiet=options.json))
    summary = summarise(records)
    assert isinstance(store, Store)
    write(summary, store, options.model)
    try:
        if options.json:
            print(to_json(summary.rows, indent=2))
        else:
            show(summary, options.out)
        sys.stdout.flush()
    except BrokenPipeError:
        return stop_printing()
    return 0 if all(record.status == "done" for record in records.trials) else 1


def _require_engine(options: argparse.Namespace) -> None:
    if options.engine != "ray" and (options.address is not None or options.gpus_per_trial):
        given = "address" if options.address is not None else "gpus-per-trial"
        raise ValueError(f"--{given} must go with --engine ray, since this process has none; got --engine local.")
    if options.gpus_per_trial < 0:
        raise ValueError(f"--gpus-per-trial must not be negative; got {options.gpus_per_trial}.")


def _plan(options: argparse.Namespace) -> Plan:
    from situs.lab.evaluating.plan import make_plan

    return make_plan(
        options.model,
        text=options.text,
        lengths=options.lengths,
        scalings=options.scalings,
        tasks=options.tasks,
        windows=options.windows,
        original=options.original,
        dtype=options.dtype,
        device=options.device,
    )


def _evaluate(options: argparse.Namespace, watcher: Any) -> tuple[object, Evaluation]:
    from situs.lab.comparing.engines.processes import stopping_at_sigterm
    from situs.lab.comparing.store import Store
    from situs.lab.evaluating.evaluate import evaluate

    with stopping_at_sigterm(lambda _: TerminatedError()), watcher:
        plan = _plan(options)
        for remark in plan.remarks:
            watcher.remark(remark)
        for name, reason in plan.refused.items():
            watcher.remark(f"{name} cannot be measured: {reason}")
        store = Store(options.out)  # not before all of that, so that a wrong option leaves no folder behind
        records = evaluate(
            plan, store, watcher, engine=_engine(options), fresh=options.fresh,
            command=shlex.join(["situs", *sys.argv[1:]]),
        )  # fmt: skip
    return store, records


def _engine(options: argparse.Namespace) -> Any:
    from situs.lab.evaluating.evaluate import run_here

    if options.engine == "local":
        return run_here
    from situs.lab.evaluating.clusters import run_on_ray

    return partial(run_on_ray, address=options.address, gpus_per_trial=options.gpus_per_trial)


def pasted(settings: str) -> str:
    """Write settings as they are pasted into a configuration."""
    return json.dumps(json.loads(settings), indent=2)
