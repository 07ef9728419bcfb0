"""What a trial measures is what a plain loop over the model would."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from situs.lab.evaluating import trial as trials
from situs.lab.evaluating.passkey import ask
from situs.lab.evaluating.plan import Plan, make_plan
from situs.lab.evaluating.records import Trial, TrialRecord
from situs.lab.plain import from_json, to_json
from situs.lab.records import UnsoundError
from tests.lab.evaluating.small_models import hf, llama, saved
from tests.raising import raises_exactly

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def plan(random_model: Path) -> Plan:
    return make_plan(random_model, windows=3, lengths=(1, 4))


def chosen(plan: Plan, **wanted: Any) -> Trial:
    found = [trial for trial in plan.trials if all(getattr(trial, name) == value for name, value in wanted.items())]
    assert len(found) == 1
    return found[0]


def test_the_loss_is_that_of_the_last_tokens_and_along_the_text(plan: Plan) -> None:
    record = trials.run(chosen(plan, scaling="none", task="text", length=256), plan.bench)
    windows = plan.bench.tokens.windows(256, target=256, count=3)
    with torch.no_grad():
        logits = plan.bench.loaded.model(windows).logits
    nats = cross_entropy(logits[:, :-1].transpose(1, 2), windows[:, 1:], reduction="none")
    assert plan.setup.tail == 32
    assert record.outcome.scores == pytest.approx(nats[:, -32:].mean(1).tolist(), rel=1e-5)
    stretches = nats.mean(0).tensor_split(32)  # of 255 tokens, at most 16 of each are taken: all
    assert record.outcome.along == pytest.approx([float(each.mean()) for each in stretches], rel=1e-5)
    assert len(record.seconds) == 1  # of three: the first makes what stays, the second is watched for its memory
    assert record.bytes is not None
    assert record.bytes > 256 * 64 * 4
    short = trials.run(chosen(plan, scaling="none", task="text", length=64), plan.bench)
    assert short.outcome.along is None


def test_answers_are_right_where_each_token_is_the_likeliest(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = chosen(plan, scaling="none", task="passkey", length=256)
    questions = ask(plan.bench.reader, 256, 3)
    assert questions.answers == [6, 6, 6]
    text = bytes(questions.tokens[1].tolist()).decode()
    number = text[-5:]
    assert text.endswith(f"\nThe secret number is {number}")
    assert text.count(f"The secret number is {number}") == 2
    assert questions.depth.tolist() == [0.0, 0.5, 1.0]
    model = plan.bench.loaded.model
    with torch.no_grad():
        logits = model(questions.tokens).logits[:, -7:-1]
    nats = cross_entropy(logits.transpose(1, 2), questions.tokens[:, -6:], reduction="none").mean(1)
    record = trials.run(trial, plan.bench)
    assert record.outcome.scores == [0.0, 0.0, 0.0]
    assert record.nats == pytest.approx(nats.tolist(), rel=1e-5)

    def knows(tokens: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        right = torch.nn.functional.one_hot(tokens[at + 1], 256).float()
        return right if int(tokens[-1]) == int(questions.tokens[1, -1]) else -right

    monkeypatch.setattr(type(plan.bench.loaded), "logits", lambda self, tokens, at: knows(tokens, at))
    again = trials.run(trial, plan.bench)
    last = questions.tokens[:, -1]
    assert again.outcome.scores == (last == last[1]).float().tolist()


def test_the_same_numbers_lie_at_the_same_depths_at_every_length(plan: Plan) -> None:
    near, far = (ask(plan.bench.reader, length, 16) for length in (64, 256))
    assert torch.equal(near.tokens[:, -6:], far.tokens[:, -6:])
    assert torch.equal(near.depth, far.depth)


def test_a_table_of_positions_ends(tmp_path: Path) -> None:
    config = hf.GPT2Config(vocab_size=256, n_embd=32, n_head=2, n_layer=1, n_positions=64)
    folder = saved(hf.GPT2LMHeadModel(config).eval(), tmp_path / "gpt2")
    plan = make_plan(folder, windows=2, lengths=(1, 2), scalings="none,yarn", tasks="text")
    records = [trials.run(trial, plan.bench) for trial in plan.trials]
    assert [(record.trial.length, record.outcome.ends) for record in records] == [(64, None), (128, 64)]
    assert "learned table of 64 rows" in plan.refused["yarn"]


def test_what_the_model_raises_is_the_error_of_its_trial(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(self: object, tokens: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no room")

    monkeypatch.setattr(type(plan.bench.loaded), "logits", breaks)
    record = trials.run(chosen(plan, scaling="yarn", task="text", length=64), plan.bench)
    assert (record.status, record.outcome.error) == ("failed", "RuntimeError: no room")
    assert "in breaks" in (record.traceback or "")
    record.require_sound()


@pytest.mark.parametrize("task", ["text", "passkey"])
def test_a_loss_that_is_no_number_fails_with_the_reason(plan: Plan, task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        type(plan.bench.loaded), "logits", lambda self, tokens, at: torch.full((len(at), 256), torch.nan)
    )
    trial = chosen(plan, scaling="none", task=task, length=256)
    said = (
        "FloatingPointError: the loss must be a number, since scalings are compared by it; got nan from the model in "
    )
    record = trials.run(trial, plan.bench)
    assert (record.status, record.outcome.error) == ("failed", f"{said}float32.")
    half = replace(trial, setup=replace(trial.setup, dtype="float16"))
    assert trials.run(half, plan.bench).outcome.error == f"{said}float16. Use --dtype float32."


def test_a_record_comes_back_as_it_was_and_is_checked(plan: Plan) -> None:
    record = trials.run(chosen(plan, scaling="yarn", task="passkey", length=64), plan.bench)
    assert from_json(TrialRecord, to_json(record)) == record
    record.require_sound()
    for wrong, message in (
        (replace(record, format=0), "format must be 1, since this version of situs writes and reads it; got 0"),
        (replace(record, status="failed"), "status must be failed where there is an error, and only there; got failed"),
        (replace(record, nats=[1.0]), "nats must be 3, one for each window; got 1"),
        (replace(record, seconds=[0.0]), "seconds must be finite and more than 0; got 0"),
        (replace(record, bytes=-1), "bytes must be 0 or more; got -1"),
    ):
        with raises_exactly(UnsoundError, message):
            wrong.require_sound()


def test_scalings_are_taken_off_after_each_trial(plan: Plan) -> None:
    model = plan.bench.loaded.model
    before = json.dumps(model.config.to_dict(), sort_keys=True, default=str)
    ids = plan.bench.tokens.windows(64, target=256, count=2)
    with torch.no_grad():
        logits = model(ids).logits
    for trial in plan.trials:
        if trial.task == "text":
            trials.run(trial, plan.bench)
            with torch.no_grad():
                assert torch.equal(model(ids).logits, logits), trial.label
    assert json.dumps(model.config.to_dict(), sort_keys=True, default=str) == before


def test_a_model_released_with_dynamic_ntk_scores_the_same_after_a_longer_text(tmp_path: Path) -> None:
    """Trials come in any order where a cluster runs them."""
    rope = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    model = llama(rope_parameters=rope, initializer_range=0.3)
    plan = make_plan(saved(model, tmp_path / "dynamic"), windows=2, lengths=(1, 2, 4), scalings="none", tasks="text")
    short, long = (chosen(plan, length=length) for length in (128, 256))
    first = trials.run(short, plan.bench).outcome
    trials.run(long, plan.bench)
    assert trials.run(short, plan.bench).outcome == first
