"""An evaluation as its records hold it, without a model: levels that are known, a failure, and a refusal."""

from __future__ import annotations

import json
from dataclasses import replace

import torch

from situs.lab.evaluating.records import (
    Chosen,
    Evaluation,
    ModelFacts,
    Needle,
    Setup,
    Task,
    TokenFacts,
    Trial,
    TrialRecord,
)
from situs.lab.evaluating.summary import Summary, summarise
from situs.lab.records import Machine, Outcome

LENGTHS = [128, 256, 512]
SETUP = Setup(trained=128, target=512, windows=8, tail=32)
LOSSES = {
    "none": (2.0, 2.6, 3.4), "linear": (2.3, 2.32, 2.35), "ntk": (2.05, 2.1, 2.5), "yarn": (2.03, 2.02, 2.04),
    "self-extend": (2.01, 2.0, 2.0),
}  # fmt: skip
SHARES = {"none": 0.2, "linear": 0.6, "ntk": 0.7, "yarn": 1.0, "self-extend": 1.0}
CONFIG = {
    "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 256,
    "max_position_embeddings": 128,
}  # fmt: skip
ROPE = {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}, "max_position_embeddings": 512}
CODE = "situs.Rotary(..., scaling=situs.SelfExtend(window=32, group=5))"
ODD = "a <b>reason</b> & more"


def make_records(*, tasks: tuple[Task, ...] = ("text", "passkey"), failing: bool = True) -> Evaluation:
    """Losses around known levels, the same noise for all scalings; ``linear`` fails at the longest length."""
    noise = torch.randn(8, generator=torch.Generator().manual_seed(0)).double() * 0.3
    noise -= noise.mean()
    small = torch.randn(5, 3, 8, generator=torch.Generator().manual_seed(1)).double() * 0.01
    trials = []
    for number, (scaling, levels) in enumerate(LOSSES.items()):
        for index, length in enumerate(LENGTHS):
            for task in tasks:
                trial = Trial("model", scaling, task, length, SETUP, "tokens")
                scores = (levels[index] + noise + small[number, index] - small[number, index].mean()).tolist()
                outcome = Outcome(
                    scores=scores, along=[levels[0] + part / 40 for part in range(32)] if length == 512 else None
                )
                nats = None
                if task == "passkey":
                    right = [float(each / 8 < SHARES[scaling]) for each in range(8)]
                    outcome = Outcome(scores=right, depths=[round(each / 7, 6) for each in range(8)])
                    nats = [1.5] * 8
                if failing and scaling == "linear" and length == 512:
                    outcome, nats = Outcome(error=f"RuntimeError: {ODD}\nand a second line"), None
                trials.append(
                    TrialRecord(
                        key=trial.key, trial=trial, status="done" if outcome.error is None else "failed",
                        outcome=outcome, nats=nats, seconds=[] if outcome.error else [0.01 * length / 128] * 7,
                        bytes=None if outcome.error else length * 4096,
                    )
                )  # fmt: skip
    chosen = {name: Chosen(settings=json.dumps(ROPE)) for name in ("linear", "ntk", "yarn")}
    chosen |= {"none": Chosen(), "self-extend": Chosen(code=CODE)}
    return Evaluation(
        made="2026-01-02T03:04:05+00:00",
        command="situs evaluate model",
        where=Machine("3.12", "2.9", "0.1", "Linux", "x86", 2, "cpu"),
        transformers="5.22.0",
        model=ModelFacts("my-model", "0" * 32, "llama", 123_456),
        config=json.dumps(CONFIG),
        setup=SETUP,
        lengths=LENGTHS,
        tasks=list(tasks),
        scalings=[*LOSSES, "longrope"],
        refused={"longrope": f"factors must be given; got {ODD}."},
        chosen=chosen,
        text=TokenFacts("text.txt", "1" * 32, "token", "LlamaTokenizer", 1, 3, 9000),
        needles=[Needle(512, {"beginning": 1, "needle": 9, "question": 6, "answer": 3}, 6, 490, 6)],
        remarks=["A remark."],
        trials=trials,
        seconds=71.0,
    )


def summary_of(records: Evaluation) -> Summary:
    records.require_sound()
    return summarise(records)


def stopped(records: Evaluation, finished: int) -> Evaluation:
    """The same records as if the evaluation had been stopped after so many trials."""
    planned = {record.key: record.trial for record in records.trials}
    return replace(records, trials=records.trials[:finished], planned=planned)


def without(records: Evaluation, *names: str) -> Evaluation:
    """The same records with fewer scalings."""
    return replace(
        records,
        scalings=[name for name in records.scalings if name not in names],
        trials=[record for record in records.trials if record.trial.scaling not in names],
    )
