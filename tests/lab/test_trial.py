"""Trials: what is trained and tested, the same for the same seed, and what is kept of it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from situs.lab.comparing import trial as module
from situs.lab.comparing.corpus import Corpus
from situs.lab.comparing.records import Seconds, Trial, TrialRecord
from situs.lab.comparing.tasks import loss_of, make_task
from situs.lab.comparing.trial import run
from situs.lab.model import Decoder
from situs.lab.naming import parse, parse_all
from situs.lab.naming.scalings import RAMPS
from situs.lab.plain import from_json, to_json
from situs.lab.records import STRETCHES, Outcome, Progress
from situs.lab.settings import Settings, Size

SMALL = Settings(train_length=16, multiples=(1, 2, 4), batch=4, windows=8, warm_up=4, size=Size(16, 1, 2))


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    words = [f"the {kind} {number} of line {number % 7}\n" for number in range(4000) for kind in ("word", "byte")]
    return Corpus(name="words", texts={f"{n}.txt": "".join(words[n::9]).encode() for n in range(9)})


def trial(names: str = "alibi", task: str = "passkey", **changes: Any) -> Trial:
    """A trial of the first method, with which all are tested."""
    methods = parse_all(names)
    return replace(Trial(methods[0], tuple(methods), task, 0, 12, SMALL), **changes)


def without_times(record: TrialRecord) -> str:
    return to_json(replace(record, seconds=Seconds(0.0, 0.0)))


def scores(record: TrialRecord, name: str, length: int) -> list[float]:
    found = record.methods[name].lengths[length].scores
    assert found is not None
    return found


def test_the_same_trial_gives_the_same_numbers_whatever_ran_before(corpus: Corpus) -> None:
    asked = trial("learned", "text", corpus=corpus.hash)
    first = run(asked, corpus)
    torch.rand(17)
    run(trial("rotary"), None)
    assert without_times(run(asked, corpus)) == without_times(first)
    assert without_times(run(replace(asked, seed=1), corpus)) != without_times(first)


def test_a_record_has_a_score_for_every_example_and_length(corpus: Corpus) -> None:
    record = run(trial("alibi", "text"), corpus)
    assert from_json(TrialRecord, to_json(record)) == record
    assert (record.key, record.status, record.measure) == (trial("alibi", "text").key, "done", "loss")
    lengths = record.methods["alibi"].lengths
    assert list(lengths) == [16, 32, 64]
    for length in lengths:
        assert len(scores(record, "alibi", length)) == 8
        assert all(map(math.isfinite, scores(record, "alibi", length)))
    assert len(lengths[64].along or ()) == STRETCHES
    assert lengths[16].along is None
    assert [step for step, _ in record.curve] == list(range(12))


def test_scores_are_those_of_the_task_with_the_trained_model(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Decoder] = []

    def made(*args: Any, **named: Any) -> Decoder:
        kept.append(Decoder(*args, **named))
        return kept[0]

    monkeypatch.setattr(module, "Decoder", made)
    record = run(trial("rotary", "passkey"), None)
    examples = make_task("passkey").test(32, 8, seed=0)
    with torch.no_grad():
        answers = kept[0](examples.tokens)[:, -2].argmax(-1)
    expected = (answers == examples.tokens[:, -1]).float().tolist()
    assert scores(record, "rotary", 32) == expected
    assert examples.depth is not None
    assert record.methods["rotary"].lengths[32].depths == pytest.approx(examples.depth.tolist())


def test_scalings_are_tested_with_the_same_weights_and_leave_no_trace(corpus: Corpus) -> None:
    record = run(trial("rotary,rotary+yarn,rotary+linear", "text"), corpus)
    alone = run(trial("rotary", "text"), corpus)
    assert record.methods["rotary"] == alone.methods["rotary"]
    at_home = [scores(record, name, 16) for name in record.methods]
    assert at_home[0] == at_home[1] == at_home[2]
    assert scores(record, "rotary", 64) != scores(record, "rotary+yarn", 64)
    assert record.methods["rotary+yarn"].ramp in RAMPS
    assert record.methods["rotary+linear"].ramp is None


def test_a_table_that_ends_says_where() -> None:
    lengths = run(trial("learned"), None).methods["learned"].lengths
    assert lengths[16].scores is not None
    assert lengths[32] == lengths[64] == Outcome(ends=16)


def test_a_loss_that_is_no_number_ends_the_trial_and_is_a_result() -> None:
    record = run(trial(steps=400, settings=replace(SMALL, learning_rate=1e18, warm_up=1)), None)
    assert record.status == "diverged"
    assert record.methods == {}
    assert not math.isfinite(record.curve[-1][1])


def test_progress_is_told() -> None:
    told: list[Progress] = []
    run(trial("rotary,rotary+ntk"), None, told.append)
    training = [each for each in told if each.phase == "training"]
    assert [each.done for each in training] == list(range(1, 13))
    assert all(each.total == 12 and each.loss is not None for each in training)
    assert [(each.done, each.total) for each in told if each.phase == "testing"] == [(0, 2), (1, 2)]


@pytest.mark.parametrize(
    "change",
    [{"seed": 1}, {"steps": 13}, {"task": "copy"}, {"method": parse("none")}, {"tested": (parse("x"),)},
     {"corpus": "other"}, {"source": "other"},
     {"settings": replace(SMALL, batch=5)}, {"settings": replace(SMALL, size=Size(16, 2, 2))}],
)  # fmt: skip
def test_whatever_could_change_the_result_changes_the_key(change: dict[str, Any]) -> None:
    assert trial(**change).key != trial().key
    assert trial().key == trial().key


def test_the_learning_rate_warms_up_and_falls_to_a_tenth() -> None:
    rates = [module._rate(step, 100, 10) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == rates[9] == pytest.approx(1.0)
    assert rates[-1] == pytest.approx(0.1, abs=0.01)
    assert rates[10:] == sorted(rates[10:], reverse=True)


def test_methods_of_one_seed_see_the_same_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, list[torch.Tensor]] = {}

    def watched(logits: torch.Tensor, examples: Any) -> torch.Tensor:
        seen.setdefault(name, []).append(examples.tokens)
        return loss_of(logits, examples)

    monkeypatch.setattr(module, "loss_of", watched)
    for name in ("alibi", "learned"):
        run(trial(name), None)
    assert all(torch.equal(*pair) for pair in zip(seen["alibi"][:12], seen["learned"][:12], strict=True))
