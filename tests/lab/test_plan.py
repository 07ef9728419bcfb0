"""Plans: what a comparison takes, each task taught as it needs, and what a person asks for above that."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from situs.lab.comparing.plan import SCHOOLING, Schooling, make_plan, presets
from situs.lab.comparing.records import Taught
from situs.lab.comparing.tasks import TASKS
from situs.lab.naming import parse
from situs.lab.naming.methods import suiting_text
from situs.lab.settings import Settings
from tests.raising import raises_exactly

ASKED: dict[str, Any] = {"encodings": "alibi,rotary,rotary+ntk", "multiples": (1, 2), "seeds": 2}


def test_every_task_has_its_schooling() -> None:
    assert list(SCHOOLING) == list(TASKS)


def test_trials_are_taught_as_their_task_needs() -> None:
    plan = make_plan(tasks="passkey,recall", **ASKED)
    assert len(plan.trials) == 2 * 2 * 2
    for trial in plan.trials:
        taught = SCHOOLING[trial.task]
        assert trial.steps == taught.steps
        expected = replace(plan.settings, batch=taught.batch, learning_rate=taught.learning_rate)
        assert trial.settings == expected
    assert len({trial.key for trial in plan.trials}) == 8


@pytest.mark.parametrize("name", ["text", "passkey"])
def test_text_and_passkey_are_taught_by_the_settings_of_all(name: str) -> None:
    assert SCHOOLING[name] == Schooling({"text": 300, "passkey": 150}[name], 24, 6e-3)
    assert (Settings().batch, Settings().learning_rate, Settings().warm_up) == (24, 6e-3, 40)


def test_what_is_asked_for_holds_for_all_tasks() -> None:
    plan = make_plan(tasks="passkey,recall", steps=7, batch=5, learning_rate=1e-3, **ASKED)
    assert plan.tasks == dict.fromkeys(("passkey", "recall"), Schooling(7, 5, 1e-3))
    assert {(trial.steps, trial.settings) for trial in plan.trials} == {(7, plan.settings)}
    assert (plan.settings.batch, plan.settings.learning_rate) == (5, 1e-3)
    some = make_plan(tasks="copy,recall", steps=7, **ASKED)
    assert some.tasks == {name: replace(SCHOOLING[name], steps=7) for name in ("copy", "recall")}


def test_a_comparison_says_what_was_asked_and_how_each_task_was_taught() -> None:
    plan = make_plan(tasks="copy,recall", **ASKED)
    found = plan.comparison([], preset="quick")
    for name in ("copy", "recall"):
        schooling = SCHOOLING[name]
        assert found.tasks[name] == Taught(
            steps=schooling.steps, batch=schooling.batch, learning_rate=schooling.learning_rate, measure="accuracy"
        )
    assert (found.settings.batch, found.seeds, found.methods) == (24, [0, 1], plan.methods)
    assert (found.preset, found.trials, found.corpus) == ("quick", [], None)


def test_the_full_preset_has_every_encoding_of_text_and_what_stands_beside_rotary() -> None:
    listed = presets()["full"].encodings
    assert {
        "pope",
        "lerope",
        "projected",
        "forgetting",
        "gated",
        "mlp",
        "rotary&temperature",
        "rotary&rotary_value",
    } <= set(listed)
    assert {part.name for name in listed for part in parse(name).parts} == set(suiting_text())
    assert len(make_plan(preset="full", tasks="copy").methods) == len(listed)


def test_addition_is_in_no_preset_and_can_be_asked_for() -> None:
    assert presets()["full"].tasks == ("text", "passkey", "copy", "reverse", "recall")
    assert list(make_plan(preset="full", tasks="addition", encodings="alibi").tasks) == ["addition"]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"batch": 0}, "batch must be 1 or more; got 0."),
        ({"steps": -1}, "steps must be 1 or more; got -1."),
        ({"learning_rate": 0.0}, "lr must be positive and finite, since it scales every update of the weights; got "
         "0.0."),
        ({"learning_rate": float("inf")}, "lr must be positive and finite, since it scales every update of the weights"
         "; got inf."),
        ({"learning_rate": float("nan")}, "lr must be positive and finite, since it scales every update of the weights"
         "; got nan."),
        ({"train_length": 1}, "train-length must be 2 or more, since a token is predicted from those before it; "
         "got 1."),
        ({"device": "meta"}, "device must hold numbers, since models are trained on it; got 'meta'. Use cpu, cuda "
         "or mps."),
        ({"tasks": "text,recal"}, "task must be one of text, passkey, copy, reverse, addition, recall; got 'recal'. "
         "Did you mean 'recall'?"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_told(asked: dict[str, Any], message: str) -> None:
    with raises_exactly(ValueError, message):
        make_plan(**asked)


def test_a_budget_counts_every_token_and_is_told() -> None:
    settings = replace(Settings(), multiples=(1, 4), windows=10)
    plan = replace(make_plan(encodings="alibi", tasks="text", seeds=2), settings=settings)
    assert (plan.budget.tested, plan.budget.longest) == (10 * (64 + 256), 256)
    trained = SCHOOLING["text"].steps * 24 * 64
    assert str(plan.budget).startswith(
        f"2 trainings of {trained:,} tokens at most, each tested on 3,200 tokens; a window of 256 tokens takes about "
    )


def test_a_window_that_does_not_fit_is_refused_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("situs.lab.comparing.budget.memory", lambda: 3 << 30)
    make_plan(encodings="alibi", tasks="passkey", multiples=(1, 100))
    with pytest.raises(ValueError, match=r"^the longest window must fit in memory; got 6,400,000 tokens, "):
        make_plan(encodings="alibi", tasks="passkey", multiples=(1, 100_000))
