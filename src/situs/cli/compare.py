"""``situs compare``: train short, test long, and show which encoding carries farthest and what it costs."""

from __future__ import annotations

import argparse
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from situs.lab.comparing.engines import Engine
    from situs.lab.comparing.plan import Plan
    from situs.lab.comparing.records import Comparison
    from situs.lab.comparing.store import Store

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

OUT = "situs-compare"
NEEDED = (
    "situs compare needs rich and matplotlib, since it draws tables and figures. Install them: pip install 'situs[lab]'"
)


def add_commands(commands: Commands) -> None:
    """Add the command to the parser."""
    compare = commands.add_parser(
        "compare",
        help="train with several encodings at a short length, test them at longer ones, and report",
        description="Train a small decoder with each encoding at a short length, test it at longer ones, measure what "
        "the encoding costs, and write a table, figures and a report. The same command continues where it was stopped.",
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
    add("--address", metavar="HOST:PORT", help="address of the Ray cluster; a new one on this machine if left out")
    add("--gpus-per-trial", type=float, default=0.0, metavar="N", help="GPUs, or a share of one, for each trial on Ray")
    add("--device", default="cpu", help="cpu, cuda, cuda:1, mps (default cpu)")
    add("--out", type=Path, default=Path(OUT), metavar="DIR", help=f"where everything is written (default {OUT})")
    add("--fresh", action="store_true", help="run every trial again, also those whose results are in the folder")
    add("--json", action="store_true", help="print the rows as JSON, for programs")
    add("--report", type=Path, metavar="DIR", help="only write table, figures and report again from DIR/records.json")
    compare.set_defaults(run=run)


def whole_numbers(text: str) -> tuple[int, ...]:
    """Read ``1,2,4`` as numbers."""
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError as problem:
        raise argparse.ArgumentTypeError(
            f"must be whole numbers separated by commas, such as 1,2,4; got {text!r}"
        ) from problem


def run(options: argparse.Namespace) -> int:
    """Compare, or only report; returns 0 if every trial came to a result, else 1."""
    try:
        from situs.cli.compare_display import show, watch
        from situs.cli.compare_files import write
    except ModuleNotFoundError as problem:
        if (problem.name or "").partition(".")[0] not in ("rich", "matplotlib", "numpy"):
            raise
        raise ValueError(NEEDED) from problem
    from situs.lab.comparing.store import Store
    from situs.lab.plain import to_json
    from situs.plots.comparison.view import View

    if options.report is not None:
        store, records = _written(options.report)
    else:
        plan = _plan(options)  # a wrong option leaves no folder behind
        store = Store(options.out)
        records = _compare(options, plan, store, watch(quiet=options.json))
    view = View.of(records)  # summed up once, for all that is written and shown
    write(view, store)
    if options.json:
        print(to_json(view.rows, indent=2))
    else:
        show(view, store.folder)
    return 0 if all(record.status != "failed" for record in records.trials) else 1


def _written(folder: str) -> tuple[Store, Comparison]:
    """Open the folder of a comparison that was made before, and read its records."""
    from situs.lab.comparing.records import Comparison
    from situs.lab.comparing.store import Store

    if (Path(folder) / "records.json").is_file():  # a store would make a folder that is not there
        store = Store(folder)
        records = store.read(Comparison, "records.json")
        if records is not None:
            return store, records
    raise ValueError(f"--report must name a folder that situs compare wrote, with its records.json; got {folder}.")


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


def _compare(options: argparse.Namespace, plan: Plan, store: Store, watcher: Any) -> Comparison:
    from situs.lab.comparing.compare import compare

    with watcher:
        for method in plan.methods:
            if method.description:
                watcher.remark(method.description)
        return compare(
            plan,
            store,
            _engine(options),
            watcher,
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
    if options.engine != "ray" and (options.address is not None or options.gpus_per_trial):
        given = "address" if options.address is not None else "gpus-per-trial"
        raise ValueError(f"--{given} must go with --engine ray, since processes here have none; got --engine local.")
    if options.gpus_per_trial < 0:
        raise ValueError(f"gpus-per-trial must not be negative; got {options.gpus_per_trial}.")


def _engine(options: argparse.Namespace) -> Engine:
    if options.engine == "local":
        from situs.lab.comparing.engines import local

        return partial(local.run, workers=options.workers)
    from situs.lab.comparing.engines import ray

    return partial(ray.run, address=options.address, gpus_per_trial=options.gpus_per_trial)
