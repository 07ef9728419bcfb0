"""Records become JSON and come back as they were, those of before as well, and anything else is refused in words."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from situs.lab.comparing.records import Comparison, Measured, Results, TrialRecord
from situs.lab.naming import parse
from situs.lab.plain import UnreadableError, from_json, from_plain, to_json, to_plain
from situs.lab.probing.findings import Cost, Finding
from situs.lab.records import Outcome
from tests.plots.comparison.sample import make_records
from tests.raising import raises_exactly

# Written by a version whose records were plain dicts.
SETTINGS = """{"train_length": 12, "multiples": [1, 2], "batch": 4, "learning_rate": 0.006, "warm_up": 40,
"windows": 64, "size": {"dim": 16, "layers": 1, "heads": 2}, "device": "cpu"}"""
RECORD = f"""{{"format": 2, "key": "9f0a", "trial": {{"method": "rotary", "tested": ["rotary", "rotary+yarn"],
"task": "passkey", "seed": 0, "steps": 6, "settings": {SETTINGS}, "corpus": "", "source": ""}}, "status": "done",
"measure": "accuracy", "curve": [[0, 2.5], [5, "NaN"]], "methods": {{
"rotary": {{"lengths": {{"12": {{"scores": [1.0, 0.0], "depths": [0.0, 1.0]}}, "24": {{"ends": 12}}}}, "ramp": null}},
"rotary+yarn": {{"lengths": {{"12": {{"scores": [1.0, 0.0], "depths": [0.0, 1.0]}}}}, "ramp": [2.0, 0.25]}}}},
"parameters": {{"model": 100, "encodings": 0}}, "seconds": {{"training": 0.25, "testing": 0.5}}}}"""
MEASURED = f"""{{"format": 2, "method": "alibi", "settings": {SETTINGS}, "where": {{"python": "3.11.2",
"torch": "2.13.0", "situs": "0.1.0", "platform": "Linux", "processor": "x86_64", "cores": 2, "device": "cpu"}},
"costs": {{"parameters": 0, "lengths": {{"12": {{"time": 1.5, "memory": 1.0, "plain_milliseconds": 1.0,
"milliseconds": 1.5, "plain_mib": 0.5, "mib": 0.5}}, "4096": {{"ends": 12}}}},
"decode": {{"time": 1.25, "plain_microseconds": 40.0, "microseconds": 50.0}}}},
"properties": {{"unique": {{"holds": true, "number": 0.5, "unit": "of the scores' spread", "said": "Yes."}},
"decaying": {{"holds": null, "number": null, "unit": "", "said": "No."}}}}}}"""


def test_a_trial_of_before_is_read() -> None:
    record = from_json(TrialRecord, RECORD)
    assert record.trial.tested == (parse("rotary"), parse("rotary+yarn"))
    assert record.trial.settings.lengths == [12, 24]
    assert record.methods["rotary"].lengths[24] == Outcome(ends=12)
    assert record.methods["rotary+yarn"] == Results({12: Outcome(scores=[1.0, 0.0], depths=[0.0, 1.0])}, (2.0, 0.25))
    assert math.isnan(record.curve[-1][1])


def test_measurements_of_before_are_read() -> None:
    measured = from_json(Measured, MEASURED)
    assert measured.costs.lengths[4096] == Cost(ends=12)
    assert measured.costs.decode.microseconds == 50
    assert measured.properties["decaying"] == Finding(None, None, "", "No.")
    assert measured.source is None


@pytest.mark.parametrize(("kind", "text"), [(TrialRecord, RECORD), (Measured, MEASURED)])
def test_what_is_written_is_what_was_written_before(kind: Any, text: str) -> None:
    assert json.loads(to_json(from_json(kind, text))) == json.loads(text)


def test_a_whole_comparison_comes_back() -> None:
    comparison = from_plain(Comparison, make_records(windows=2))
    again = from_json(Comparison, to_json(comparison))
    assert to_json(again) == to_json(comparison)
    assert [method.name for method in again.methods] == make_records()["methods"]
    without_nan = replace(comparison, trials=[record for record in comparison.trials if record.status == "done"])
    assert from_json(Comparison, to_json(without_nan)) == without_nan


def test_fields_that_a_record_does_not_know_are_passed_over() -> None:
    data = {**json.loads(RECORD), "mood": "good"}
    assert to_json(from_plain(TrialRecord, data)) == to_json(from_json(TrialRecord, RECORD))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"status": "dreaming"}, "status must be one of done, diverged, failed; got 'dreaming'"),
        ({"curve": [[0, "high"]]}, "curve must be float; got 'high'"),
        ({"curve": [[0]]}, "curve must be tuple; got [0]"),
        ({"methods": []}, "methods must be dict; got []"),
        ({"trial": None}, "trial must be Trial; got None"),
        ({"parameters": {"model": 1}}, "Parameters must have encodings; got model"),
        ({"parameters": {"model": 1.5, "encodings": 0}}, "model must be int; got 1.5"),
        ({"seconds": {}}, "Seconds must have training; got nothing"),
    ],
)
def test_what_is_no_record_is_said(change: dict[str, Any], message: str) -> None:
    with raises_exactly(UnreadableError, message):
        from_plain(TrialRecord, {**json.loads(RECORD), **change})


def test_what_is_no_json_is_said() -> None:
    with raises_exactly(UnreadableError, 'a record must be JSON; got \'{"format": 2, "key":\''):
        from_json(TrialRecord, RECORD[:-3])
    with raises_exactly(UnreadableError, "a record must be TrialRecord; got [1]"):
        from_json(TrialRecord, "[1]")


def test_only_what_can_be_absent_is_left_out() -> None:
    assert to_plain(Outcome(scores=[1.0])) == {"scores": [1.0]}
    assert to_plain(Results({64: Outcome(ends=8)}, None)) == {"lengths": {"64": {"ends": 8}}, "ramp": None}
    assert to_plain(Finding(None, None, "", "x")) == {"holds": None, "number": None, "unit": "", "said": "x"}
