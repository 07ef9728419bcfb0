"""``situs compare``: train short, test long, and show which encodings still work and what they cost."""

from __future__ import annotations

import argparse
import difflib
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from situs.cli.interrupting import TerminatedError, leaving_at_ctrl_c
from situs.cli.reporting import Reported, deliver

if TYPE_CHECKING:
    from situs.lab.comparing.plan import Plan
    from situs.lab.comparing.records import Comparison
    from situs.lab.running.completion import Engine
    from situs.lab.running.team import Team

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

OUT = "situs-compare"
NEEDED = (
    "situs compare needs rich and matplotlib, since it draws tables and figures. Install them: pip install "
    "'situs[lab]', or '.[lab]' in the repository."
)


def add_commands(commands: Commands) -> None:
    """Add the command to the parser."""
    compare = commands.add_parser(
        "compare",
        allow_abbrev=False,  # or --seed 3 would be --seeds 3: three seeds, not the third
        help="train with several encodings at a short length, test them at longer ones, and report",
        description="Train a small decoder with each encoding at a short length, test it at longer ones, measure what "
        "the encoding costs, and write a table, figures and a report. The same command continues where it was stopped. "
        "An encoding of your own runs in other processes: one that raises, exits, crashes or hangs is reported with "
        "its file and line, keeps the results it has, and leaves the others alone. Exit status: 0 if every trial and "
        "measurement came to a result, 1 if one failed or diverged, 2 if nothing could be run.",
    )
    add = compare.add_argument
    add(
        "--preset",
        choices=("quick", "full"),
        default="quick",
        help="quick takes some minutes on two cores, full about an hour",
    )
    add(
        "--encodings",
        metavar="A,B,...",
        help="names that situs list shows, rotary+llama3(factor=8), rotary/none, rotary&alibi, MODULE:CLASS, FILE.py",
    )
    add("--tasks", metavar="A,B,...", help="text, passkey, copy, reverse, recall; addition, at --train-length 12")
    add("--text", metavar="PATH", help="a text file, or a folder of them; Python's own sources if left out")
    add("--train-length", type=int, default=64, metavar="N", help="tokens of a training text (default 64)")
    add(
        "--lengths",
        type=whole_numbers,
        default=(1, 2, 4, 8, 16),
        metavar="1,2,...",
        help="lengths to test at, as multiples of the training length",
    )
    add("--steps", type=int, metavar="N", help="training steps; by default as many as the task needs")
    add("--dim", type=int, default=64, help="width of the model (default 64)")
    add("--layers", type=int, default=2, help="layers (default 2)")
    add("--heads", type=int, default=4, help="heads (default 4)")
    add("--lr", type=float, metavar="X", help="learning rate; by default what suits the task, 0.006 or 0.003")
    add("--batch", type=int, metavar="N", help="texts per step; by default what suits the task, 24 to 64")
    add("--seeds", type=int, metavar="N", help="repetitions, each with other random weights and batches")
    add("--workers", type=int, metavar="N", help="trials at the same time; one per core if left out")
    add("--engine", choices=("local", "ray"), default="local", help="processes here, or a Ray cluster")
    add_cluster(compare)
    add("--device", default="cpu", help="cpu, cuda, cuda:1, mps (default cpu)")
    add(
        "--trial-timeout",
        type=float,
        metavar="SECONDS",
        help="how long a trial or a measurement may take (default "
        "3600; inf for any time); it is then stopped and reported as failed. Trying an encoding out may take 300",
    )
    add_outcome(compare, OUT)
    add(
        "--report",
        type=Path,
        metavar="DIR",
        help="only write table, figures and report again, there or to --out, from DIR/records.json, or from the trials "
        "that are finished if the comparison was stopped; goes with --json, and with no other option",
    )
    compare.set_defaults(run=run, changed=partial(changed, compare))


def cure(parser: argparse.ArgumentParser, unknown: Sequence[str], options: argparse.Namespace) -> str:
    """Say what may have been meant by arguments that the command does not know; ``options`` are those it does."""
    word = unknown[0].partition("=")[0]
    known = [option for action in parser._actions for option in action.option_strings if option.startswith("--")]
    if not word.startswith("-") and any(getattr(options, name, None) is not None for name in ("encodings", "tasks")):
        return ". Names are separated by commas, without spaces"
    if not word.startswith("-"):
        return f". Encodings are given with --encodings {word}" if "--encodings" in known else ""
    begins = word if word.startswith("--") else f"-{word}"
    near = [option for option in known if option.startswith(begins)] or difflib.get_close_matches(word, known, n=1)
    return f". Did you mean {' or '.join(near)}?" if near else ""


def changed(parser: argparse.ArgumentParser, options: argparse.Namespace) -> list[str]:
    """List the options that have another value than by default."""
    return [
        action.option_strings[-1] if action.option_strings else str(action.metavar)
        for action in parser._actions
        if action.dest != "help" and getattr(options, action.dest, action.default) != action.default
    ]


def whole_numbers(text: str) -> tuple[int, ...]:
    """Read ``1,2,4`` as numbers."""
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError as problem:
        raise argparse.ArgumentTypeError(
            f"must be whole numbers separated by commas, such as 1,2,4; got {text!r}"
        ) from problem


def run(options: argparse.Namespace) -> int:
    """Compare, or only report; returns 0 if every trial and measurement came to a result, else 1."""
    try:
        with leaving_at_ctrl_c():
            from situs.cli.compare_display import show, watch
            from situs.cli.compare_files import write
            from situs.lab.comparing.records import Comparison, TrialRecord
            from situs.lab.running.store import Store
            from situs.plots.comparison.view import View
    except ModuleNotFoundError as problem:
        if (problem.name or "").partition(".")[0] not in ("rich", "matplotlib", "numpy"):
            raise
        raise ValueError(NEEDED) from problem

    if options.report is not None:
        reported = Reported("compare", "comparison", "trains", Comparison, TrialRecord)
        reported.require_alone(options)
        records, source = reported.read(options.report)
        folder = options.out or source
    else:
        folder = options.out or Path(OUT)
        records = _compare(options, folder, watch(quiet=options.json))
    view = View.of(records)  # summed up once, for all that is written and shown
    came = all(record.status == "done" for record in records.trials) and not (records.problems or records.planned)
    return deliver(
        options,
        folder=folder,
        write=lambda: write(view, Store(folder, TrialRecord, for_trials=options.report is None)),
        rows=view.rows,
        show=lambda where: show(view, where),
        complete=came,
    )


def _plan(options: argparse.Namespace) -> Plan:
    from situs.lab.comparing.plan import make_plan
    from situs.lab.settings import Size

    _require_engine(options)
    return make_plan(
        preset=options.preset,
        encodings=options.encodings,
        tasks=options.tasks,
        text=options.text,
        train_length=options.train_length,
        multiples=options.lengths,
        steps=options.steps,
        size=Size(options.dim, options.layers, options.heads),
        learning_rate=options.lr,
        batch=options.batch,
        seeds=options.seeds,
        device=options.device,
    )


def _compare(options: argparse.Namespace, folder: Path, watcher: Any) -> Comparison:
    with leaving_at_ctrl_c():
        from situs.lab.comparing.compare import compare, try_out
        from situs.lab.comparing.records import TrialRecord
        from situs.lab.problems import first_line
        from situs.lab.running.processes import stopping_at_sigterm
        from situs.lab.running.store import Store
        from situs.lab.running.team import TIMEOUT, Team

    plan = _plan(options)
    timeout = TIMEOUT if options.trial_timeout is None else options.trial_timeout
    with stopping_at_sigterm(lambda _: TerminatedError()), Team(options.workers) as team, watcher:
        plan = try_out(plan, team, timeout=timeout)
        for written, name in plan.renamed.items():
            watcher.remark(f"{written} is {name}, since both name one class; it is shown under that name.")
        watcher.remark(str(plan.budget))
        for method in plan.methods:
            if method.description:
                watcher.remark(method.description)
        if plan.corpus is not None and plan.corpus.left_out:
            watcher.remark(
                f"Of {options.text}, {plan.corpus.read:,} bytes are read, the most that a comparison takes; "
                f"{plan.corpus.left_out:,} are left out."
            )
        for name, problem in plan.problems.items():
            watcher.remark(f"{name} cannot be built at this size, so that its trials fail: {first_line(problem.said)}")
        return compare(
            plan,
            Store(folder, TrialRecord),  # not before all of that, so that a wrong option leaves no folder behind
            _engine(options, team, timeout),
            watcher,
            team=team,
            timeout=timeout,
            text=options.text,
            fresh=options.fresh,
            command=shlex.join(["situs", *sys.argv[1:]]),
            preset=options.preset,
        )


def _require_engine(options: argparse.Namespace) -> None:
    if options.workers is not None and options.workers < 1:
        raise ValueError(f"workers must be 1 or more, since they do the work; got {options.workers}.")
    if options.engine == "ray" and options.workers is not None:
        raise ValueError("--workers must go with --engine local, since Ray runs as many as its cluster has room for.")
    require_cluster(options)


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Add the options of a Ray cluster, which ``require_cluster`` judges."""
    parser.add_argument(
        "--address", metavar="HOST:PORT", help="address of the Ray cluster; a new one on this machine if left out"
    )
    parser.add_argument(
        "--gpus-per-trial", type=float, default=0.0, metavar="N", help="GPUs, or a share of one, for each trial on Ray"
    )


def add_outcome(parser: argparse.ArgumentParser, folder: str) -> None:
    """Add what becomes of results: the folder they go to unless told, whether old ones count, and how they are told."""
    parser.add_argument("--out", type=Path, metavar="DIR", help=f"where everything is written (default {folder})")
    parser.add_argument(
        "--fresh", action="store_true", help="run every trial again, also those whose results are in the folder"
    )
    parser.add_argument("--json", action="store_true", help="print the rows as JSON, for programs")


def require_cluster(options: argparse.Namespace) -> None:
    """Raise for options of a cluster or a time limit that cannot be."""
    if options.engine != "ray" and (options.address is not None or options.gpus_per_trial):
        given = "address" if options.address is not None else "gpus-per-trial"
        raise ValueError(f"--{given} must go with --engine ray, since processes here have none; got --engine local.")
    if options.trial_timeout is not None and not options.trial_timeout > 0:
        raise ValueError(
            f"trial-timeout must be positive, since a trial takes some time; got {options.trial_timeout:g}. Use inf "
            "for no limit."
        )
    if options.gpus_per_trial < 0:
        raise ValueError(f"gpus-per-trial must not be negative; got {options.gpus_per_trial}.")


def _engine(options: argparse.Namespace, team: Team, timeout: float) -> Engine:
    if options.engine == "local":
        from situs.lab.comparing.engines import local

        return partial(local.run, team=team, timeout=timeout)
    from situs.lab.comparing.engines import ray

    return partial(ray.run, address=options.address, gpus_per_trial=options.gpus_per_trial, timeout=timeout)
