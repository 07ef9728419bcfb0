"""Records with anything in them are read or named with a reason, and what is read can be summed up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from situs.lab.comparing.records import Comparison, Measured, TrialRecord
from situs.lab.comparing.summary import summarise
from situs.lab.running.store import Store, read_record
from situs.plots.comparison.table_csv import table_csv
from tests.lab.test_plain import MEASURED
from tests.plots.comparison.sample import make_records

pytestmark = pytest.mark.once

COMPARISON = make_records(
    methods=("alibi", "learned", "rotary", "rotary+yarn", "cope", "xpos"), windows=2, multiples=(1, 2)
)
TRIAL = next(each for each in COMPARISON["trials"] if each["status"] == "done")
WHOLE: dict[type[Any], Any] = {Comparison: COMPARISON, TrialRecord: TRIAL, Measured: json.loads(MEASURED)}

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 70) | st.floats() | st.sampled_from(["", "NaN", "rotary", "a+b+c"])
    | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["64", "x", "scores", "ends"]), inner),
    max_leaves=4,
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of everything in plain data; of long lists, of the first two items."""
    inner: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value[:2]))
    return [path, *(each for name, item in inner for each in places(item, (*path, name)))]


def changed(value: Any, path: tuple[Any, ...], how: str, new: Any) -> Any:
    """A copy in which the item at a path is another, or gone."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    if len(path) == 1 and how == "drop":
        del copy[path[0]]
    else:
        copy[path[0]] = changed(value[path[0]], path[1:], how, new)
    return copy


@pytest.mark.parametrize("kind", list(WHOLE), ids=lambda kind: kind.__name__)
def test_a_whole_record_is_sound(kind: type[Any], tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text(json.dumps(WHOLE[kind]))
    assert isinstance(read_record(kind, path), kind)


@pytest.mark.parametrize("kind", list(WHOLE), ids=lambda kind: kind.__name__)
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_a_record_with_anything_in_it_is_read_or_named_with_a_reason(
    kind: type[Any], tmp_path: Path, data: st.DataObject
) -> None:
    spot = data.draw(st.sampled_from(places(WHOLE[kind])))
    content = changed(WHOLE[kind], spot, data.draw(st.sampled_from(["drop", "change"])), data.draw(ANYTHING))
    path = tmp_path / "record.json"
    path.write_text(json.dumps(content))
    store = Store(tmp_path, TrialRecord)
    record = store.read(kind, "record.json")
    if record is None:
        assert list(store.damaged) == ["record.json"]
        assert store.damaged["record.json"].strip()
        assert (tmp_path / "record.json.damaged").read_text() == json.dumps(content)
        assert not path.exists()
    elif isinstance(record, Comparison):
        assert [row.method for row in summarise(record)] == record.methods
        assert len(table_csv(record).splitlines()) > len(record.methods)
