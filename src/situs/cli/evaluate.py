"""``situs evaluate``: measure which scaling carries a released model to longer texts."""

from __future__ import annotations

import argparse
import importlib.util
import json
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from situs.cli.compare import add_cluster, add_outcome, changed, require_cluster, whole_numbers
from situs.cli.interrupting import TerminatedError, leaving_at_ctrl_c
from situs.cli.reporting import Reported, deliver

if TYPE_CHECKING:
    from situs.lab.evaluating.records import Evaluation
    from situs.lab.running.completion import Engine
    from situs.lab.running.team import Team

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

OUT = "situs-evaluate"
LAB = ("rich", "matplotlib", "numpy")
MODELS = ("transformers", "safetensors")
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
        "stopped; each model needs a folder of its own (--out). The model runs in another process: "
        "a trial that runs out of memory, crashes or hangs is reported "
        "with the reason, and the others go on. Exit status: 0 if every trial came to a result, 1 if one failed, 2 if "
        "nothing could be run.",
    )
    add = evaluate.add_argument
    add(
        "model",
        type=Path,
        nargs="?",
        metavar="MODEL_DIR",
        help="a folder with config.json and safetensors; no code in it is run",
    )
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
    add("--engine", choices=("local", "ray"), default="local", help="a process here, or a Ray cluster")
    add_cluster(evaluate)
    add(
        "--trial-timeout",
        type=float,
        metavar="SECONDS",
        help="how long a trial, a scaling at a length on a task, may take (default 14400, four hours; inf for any "
        "time); it is then stopped and reported as failed. Loading the model does not count",
    )
    add_outcome(evaluate, OUT)
    add(
        "--report",
        type=Path,
        metavar="DIR",
        help="only write table, figures and report again, there or to --out, from DIR/records.json, or from the trials "
        "that are finished if the evaluation was stopped; needs no model, and goes with --json and no other option",
    )
    evaluate.set_defaults(run=run, changed=partial(changed, evaluate))


def run(options: argparse.Namespace) -> int:
    """Evaluate, or only report; returns 0 if every trial came to a result, else 1."""
    try:
        with leaving_at_ctrl_c():
            from situs.cli.evaluate_display import show, watch
            from situs.cli.evaluate_files import write
            from situs.lab.evaluating.records import Evaluation, TrialRecord
            from situs.lab.evaluating.summary import summarise
            from situs.lab.running.store import Store
    except ImportError as problem:
        if (problem.name or "").partition(".")[0] not in LAB:
            raise
        raise ValueError(NEEDED) from problem

    if options.report is not None:
        reported = Reported("evaluate", "evaluation", "measures", Evaluation, TrialRecord)
        reported.require_alone(options)
        records, source = reported.read(options.report)
        folder = _without_model(options.out or source)
        _require_own(folder, records)
    else:
        _require_options(options)
        folder = _without_model(options.out or Path(OUT))
        records = _evaluate(options, folder, watch(quiet=options.json))
    summary = summarise(records)
    return deliver(
        options,
        folder=folder,
        write=lambda: write(summary, Store(folder, TrialRecord, for_trials=options.report is None)),
        rows=summary.rows,
        show=lambda where: show(summary, where),
        complete=all(record.status == "done" for record in records.trials) and not records.planned,
    )


def _require_options(options: argparse.Namespace) -> None:
    if options.model is None:
        raise ValueError(
            "MODEL_DIR must be given, since its model is measured; got none. Give a folder with config.json and "
            "safetensors, or --report with the folder of an evaluation."
        )
    if not all(importlib.util.find_spec(name) for name in MODELS):  # the worker imports them
        raise ValueError(NEEDED)
    require_cluster(options)


def _without_model(folder: Path) -> Path:
    """Raise where the configuration to use would replace that of a model."""
    from situs.lab.running.store import speaking_of

    with speaking_of(folder):
        has_model = any(folder.glob("*.safetensors"))
    if has_model:
        raise ValueError(
            f"--out must be another folder than that of a model, since a config.json is written there; got "
            f"{str(folder)!r}."
        )
    return folder


def _require_own(folder: Path, records: Evaluation) -> None:
    """Raise where a folder has the evaluation of another model, whose report would be replaced."""
    from situs.lab.running.store import PLAN, RECORDS, DamagedError, read_record

    for name in (RECORDS, PLAN):
        try:
            there = read_record(type(records), folder / name).model
        except (OSError, DamagedError):  # a folder that cannot be used is told of where it is
            continue
        if there.hash != records.model.hash:
            other = "another one" if there.name == records.model.name else "one"
            raise ValueError(
                f"--out must be a folder without the evaluation of another model, since its report would be replaced; "
                f"got {str(folder)!r}, which has that of {other} called {there.name}. Give --out a folder of its own."
            )


def _evaluate(options: argparse.Namespace, folder: Path, watcher: Any) -> Evaluation:
    with leaving_at_ctrl_c():
        from situs.lab.evaluating.engines import TIMEOUT
        from situs.lab.evaluating.evaluate import evaluate, plan
        from situs.lab.evaluating.jobs import Planning
        from situs.lab.evaluating.records import TrialRecord
        from situs.lab.evaluating.source import Source
        from situs.lab.running.processes import stopping_at_sigterm
        from situs.lab.running.store import Store
        from situs.lab.running.team import Team

    source = Source(str(options.model), options.text)
    planning = Planning(
        lengths=options.lengths,
        scalings=options.scalings,
        tasks=options.tasks,
        windows=options.windows,
        original=options.original,
        dtype=options.dtype,
        device=options.device,
    )
    timeout = TIMEOUT if options.trial_timeout is None else options.trial_timeout
    with stopping_at_sigterm(lambda _: TerminatedError()), Team(1, threads=None) as team, watcher:
        asked = plan(planning, source, team, timeout=timeout)
        for remark in asked.remarks:
            watcher.remark(remark)
        for names, reason in asked.refusals.items():
            watcher.remark(f"{names} cannot be measured: {reason}")
        _require_own(folder, asked)
        return evaluate(
            asked,
            source,
            Store(folder, TrialRecord),  # not before all of that, so that a wrong option leaves no folder behind
            _engine(options, team, timeout),
            watcher,
            fresh=options.fresh,
            command=shlex.join(["situs", *sys.argv[1:]]),
        )


def _engine(options: argparse.Namespace, team: Team, timeout: float) -> Engine:
    from situs.lab.evaluating.engines import run_here, run_on_ray

    if options.engine == "local":
        return partial(run_here, team=team, timeout=timeout)
    team.stop()  # or the model would be held here, too
    return partial(run_on_ray, address=options.address, gpus_per_trial=options.gpus_per_trial, timeout=timeout)


def pasted(settings: str) -> str:
    """Write settings as they are pasted into a configuration."""
    return json.dumps(json.loads(settings), indent=2)
