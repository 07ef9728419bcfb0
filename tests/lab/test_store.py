"""Records survive whatever happens to the process that writes them, and damaged ones are told from good ones."""

import errno
import json
import math
import os
import pathlib
import resource
from dataclasses import replace
from typing import Any

import pytest

from situs.lab.comparing.records import FORMAT, Measured, Parameters, Results, Seconds, Trial, TrialRecord
from situs.lab.naming import parse
from situs.lab.plain import from_json, to_json, to_plain
from situs.lab.records import Outcome
from situs.lab.running.store import Store, StoreError
from situs.lab.settings import Settings
from tests.lab.test_plain import MEASURED
from tests.raising import raises_exactly

NUMBERS = [0.1, 1 / 3, 5e-324, 1.7976931348623157e308, -0.0, math.nan, math.inf, -math.inf, 3.0]


TRIAL = Trial(parse("rotary"), (parse("rotary"),), "text", 0, 10, Settings(multiples=(1, 2), windows=1))


def record(key: str = "a", **changes: Any) -> TrialRecord:
    plain = TrialRecord(
        key=key,
        trial=TRIAL,
        status="done",
        measure="loss",
        curve=[(0, 5.5), (9, math.nan)],
        methods={"rotary": Results({64: Outcome(scores=[1.5]), 128: Outcome(ends=64)}, None)},
        parameters=Parameters(model=9, encodings=0),
        seconds=Seconds(training=1.5, testing=0.5),
    )
    return replace(plain, **changes)


def written(**changes: Any) -> bytes:
    """What a file has whose data is another than that of a record."""
    return json.dumps({**to_plain(record()), **changes}).encode()


def no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_numbers_come_back_bit_for_bit_and_the_text_is_strict_json() -> None:
    text = to_json({"numbers": NUMBERS, "nested": [math.nan]})
    read = from_json(dict[str, list[float]], text)
    assert list(map(repr, read["numbers"])) == list(map(repr, NUMBERS))
    assert repr(read["nested"]) == "[nan]"

    def refuse(word: str) -> None:
        raise AssertionError(word)

    assert json.loads(text, parse_constant=refuse)["numbers"][5:8] == ["NaN", "Infinity", "-Infinity"]


def test_records_come_back_by_their_keys(tmp_path: pathlib.Path) -> None:
    store = Store(tmp_path / "deep" / "folder", TrialRecord)
    assert store.load() == {}
    store.save(record("a"))
    store.save(record("b", status="diverged", methods={}))
    store.save(record("b", status="failed", methods={}, error="E: x"))  # the last one counts
    again = Store(tmp_path / "deep" / "folder", TrialRecord)
    assert {key: each.status for key, each in again.load().items()} == {"a": "done", "b": "failed"}
    assert again.damaged == {}
    assert to_json(again.find("a")) == to_json(record("a"))
    assert again.find("c") is None
    assert sorted(path.name for path in store.trials.iterdir()) == ["a.json", "b.json"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        to_json(record()).encode()[:-20],
        b"\xff\xfe" + to_json(record()).encode(),
        b"[" * 100_000,
        b"[1, 2]",
        written(key="other"),
        written(format=FORMAT + 1),
        written(status="dreaming"),
        written(methods=[]),
        written(methods={}),
        written(curve=[[0, "high"]]),
        written(methods={"rotary": {"lengths": {}, "ramp": None}}),
        written(methods={"rotary": {"lengths": {"64": {"scores": []}, "128": {"ends": 64}}, "ramp": None}}),
        written(methods={"rotary": {"lengths": {"64": {}, "128": {"ends": 64}}, "ramp": None}}),
        written(methods={"rotary": {"lengths": {"sixty": {"ends": 64}}, "ramp": None}}),
        written(trial={**to_plain(TRIAL), "settings": {**to_plain(TRIAL.settings), "multiples": []}}),
        written(seconds={"training": [], "testing": 10**400}),
        json.dumps({name: value for name, value in to_plain(record()).items() if name != "seconds"}).encode(),
    ],
    ids=[
        "empty",
        "cut",
        "not text",
        "deep",
        "list",
        "key",
        "format",
        "status",
        "kind",
        "untested",
        "number",
        "no lengths",
        "too few scores",
        "no outcome",
        "no length",
        "no multiples",
        "no number",
        "field",
    ],
)
def test_a_damaged_record_is_named_and_moved_aside_and_nothing_else_is_touched(
    tmp_path: pathlib.Path, content: bytes
) -> None:
    store = Store(tmp_path, TrialRecord)
    store.save(record("b"))
    (store.trials / "a.json").write_bytes(content)
    (store.trials / "notes.txt").write_text("mine")
    (store.trials / ".a.json.1234.part").write_bytes(b"half")
    assert list(store.load()) == ["b"]
    assert list(store.damaged) == ["trials/a.json"]
    assert (store.trials / "a.json.damaged").read_bytes() == content
    names = sorted(path.name for path in store.trials.iterdir())
    assert names == [".a.json.1234.part", "a.json.damaged", "b.json", "notes.txt"]
    store.save(record("a"))
    assert list(store.load()) == ["a", "b"]
    assert store.damaged == {}


def test_what_is_no_record_is_not_stored(tmp_path: pathlib.Path) -> None:
    message = "methods must be all that were tested; got no rotary"
    with raises_exactly(ValueError, message):
        Store(tmp_path, TrialRecord).save(record(methods={}))


def test_other_outputs_are_written_whole_and_read_back(tmp_path: pathlib.Path) -> None:
    store = Store(tmp_path, TrialRecord)
    assert store.write("report.html", "<p>é</p>").read_bytes() == "<p>é</p>".encode()
    assert store.write("plots/a.png", b"\x89PNG").read_bytes() == b"\x89PNG"
    assert store.read(Measured, "measured/a.json") is None
    assert store.damaged == {}
    store.write("measured/a.json", MEASURED)
    assert to_json(store.read(Measured, "measured/a.json")) == to_json(from_json(Measured, MEASURED))
    for content, reason in (
        ("{}", "Measured must have method; got nothing"),
        (MEASURED.replace('"format": 2', '"format": 1'), "format must be 2, since this version of situs writes and "
         "reads it; got 1"),
    ):  # fmt: skip
        store.write("measured/a.json", content)
        assert store.read(Measured, "measured/a.json") is None
        assert store.damaged == {"measured/a.json": reason}
        assert (tmp_path / "measured/a.json.damaged").read_text() == content


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_file_where_the_folder_should_be_is_refused(tmp_path: pathlib.Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    message = (
        f"folder must be a folder, since each trial is stored there as a file; got {tmp_path / place}, where a file "
        "stands. Choose another."
    )
    with raises_exactly(StoreError, message):
        Store(tmp_path / place, TrialRecord)


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_run(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: pathlib.Path, **options: Any) -> None:  # root may write anywhere, so permissions would not do
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(pathlib.Path, "touch", refuse)
    message = (
        f"folder must be readable and writable, since each trial is stored there as a file; got {tmp_path}: Permission "
        "denied. Choose another."
    )
    with raises_exactly(StoreError, message):
        Store(tmp_path, TrialRecord)


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("output", ["record", "report"])
def test_a_full_disk_is_one_sentence_and_leaves_what_was_there(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, call: str, output: str
) -> None:
    store = Store(tmp_path, TrialRecord)
    store.save(record("a"))
    store.write("report.html", "old")

    message = (
        f"folder must have room, since each trial is stored there as a file; got {tmp_path}: No space left on device. "
        "Make room and run again: what is finished is kept."
    )
    with monkeypatch.context() as patch, raises_exactly(StoreError, message):
        patch.setattr(os, call, no_space)
        if output == "record":
            store.save(record("a", status="diverged"))
        else:
            store.write("report.html", "new")
    assert store.load()["a"].status == "done"
    assert (tmp_path / "report.html").read_text() == "old"
    assert [path.name for path in tmp_path.rglob("*") if path.name.endswith(".part")] == []


def test_a_write_that_the_system_cuts_short_leaves_what_was_there(tmp_path: pathlib.Path) -> None:
    store = Store(tmp_path, TrialRecord)
    store.write("report.html", "old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))  # Python ignores SIGXFSZ, so that writing raises
    try:
        with pytest.raises(StoreError, match="File too large"):
            store.write("report.html", b"x" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["report.html"]
    assert (tmp_path / "report.html").read_text() == "old"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"methods": {"rotary": {"lengths": {"64": {"scores": [-5.0]}, "128": {"ends": 64}}, "ramp": None}}},
         "losses must be 0 or more, as those of probabilities are; got -5"),
        ({"measure": "accuracy"}, "shares of right answers must be 0 .. 1; got 1.5"),
        ({"seconds": {"training": "Infinity", "testing": 0.5}}, "seconds must be finite and 0 or more; got inf"),
        ({"seconds": {"training": 1.0, "testing": -1.0}}, "seconds must be finite and 0 or more; got -1"),
    ],
)  # fmt: skip
def test_results_that_cannot_be_are_set_aside(tmp_path: pathlib.Path, changes: dict[str, Any], reason: str) -> None:
    store = Store(tmp_path, TrialRecord)
    store.write("trials/a.json", written(**changes))
    assert store.load() == {}
    assert store.damaged == {"trials/a.json": reason}
    assert (tmp_path / "trials/a.json.damaged").exists()


@pytest.mark.parametrize(
    ("where", "name", "value", "said"),
    [
        ("decode", "time", "Infinity", "inf"),
        ("decode", "microseconds", -1.0, "-1"),
        ("lengths", "milliseconds", 0.0, "0"),
        ("lengths", "mib", -4.0, "-4"),
    ],
)
def test_costs_that_cannot_be_are_set_aside(
    tmp_path: pathlib.Path, where: str, name: str, value: object, said: str
) -> None:
    store = Store(tmp_path, TrialRecord)
    content = json.loads(MEASURED)
    costs = content["costs"][where]
    (costs if where == "decode" else next(iter(costs.values())))[name] = value
    store.write("measured/a.json", json.dumps(content))
    assert store.read(Measured, "measured/a.json") is None
    assert store.damaged == {
        "measured/a.json": f"{name} must be finite and more than 0, as all times and sizes are; got {said}"
    }
