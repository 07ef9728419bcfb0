"""A trial is run by one process at a time, and never left to one that is gone."""

import errno
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest

from situs.lab.running import claims
from situs.lab.running.claims import Claims
from situs.lab.running.store import StoreError


def write_claim(folder: pathlib.Path, **owner: Any) -> None:
    (folder / "a.claim").write_text(json.dumps(owner))


def test_a_claim_is_one_processs_until_it_is_released(tmp_path: pathlib.Path) -> None:
    with Claims(tmp_path) as mine:
        assert mine.take("a")
        assert mine.take("a")
        assert not mine.held("a")
        others = Claims(tmp_path)
        assert others.held("a")
        assert not others.take("a")
        assert others.take("b")
    assert others.take("a")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.claim", "b.claim"]


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_a_claim_is_taken_over_once_its_process_is_gone(tmp_path: pathlib.Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        write_claim(tmp_path, host=claims._host(), pid=process.pid, started=claims._started(process.pid))
        assert Claims(tmp_path).held("a")
        assert not Claims(tmp_path).take("a")
        process.kill()
        process.wait()
    assert not Claims(tmp_path).held("a")
    assert Claims(tmp_path).take("a")


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_a_process_that_only_has_the_same_number_does_not_keep_a_claim(tmp_path: pathlib.Path) -> None:
    write_claim(tmp_path, host=claims._host(), pid=os.getpid(), started="another boot 1")
    assert Claims(tmp_path).take("a")


@pytest.mark.parametrize("content", ['{"host": "elsewhere", "pid": 1, "started": "x"}', "", "[]"])
def test_a_claim_of_who_cannot_be_asked_counts_while_it_is_renewed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    now = 1000.0
    monkeypatch.setattr(claims, "monotonic", lambda: now)
    path = tmp_path / "a.claim"
    path.write_text(content)
    mine = Claims(tmp_path)
    assert mine.held("a")
    now += claims.FORSAKEN - 1
    assert mine.held("a")
    os.utime(path, (1, 1))  # whatever its clock says
    assert mine.held("a")
    now += claims.FORSAKEN - 1
    assert not mine.take("a")
    now += 2
    assert mine.take("a")


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_only_claims_of_processes_that_are_gone_are_tidied_away(tmp_path: pathlib.Path) -> None:
    write_claim(tmp_path, host=claims._host(), pid=os.getpid(), started="another boot 1")
    (tmp_path / "b.claim").write_text('{"host": "elsewhere", "pid": 1, "started": "x"}')
    (tmp_path / "c.json").write_text("{}")
    with Claims(tmp_path) as owner:
        owner.take("d")
        Claims(tmp_path).tidy()
        assert sorted(path.name for path in tmp_path.iterdir()) == ["b.claim", "c.json", "d.claim"]


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_who_is_waited_for_is_said_and_how_long_if_nobody_can_be_asked(tmp_path: pathlib.Path) -> None:
    with Claims(tmp_path) as owner:
        owner.take("b")
        assert Claims(tmp_path).awaited(["b"]) == "another process; waiting for it"
        write_claim(tmp_path, host="elsewhere pid:[1]", pid=1, started="x")
        assert Claims(tmp_path).awaited(["a", "b", "released by now"]) == (
            f"another process, on elsewhere; waiting for it. If it gives no sign of life for {claims.FORSAKEN:.0f} s, "
            "they are run here"
        )
        (tmp_path / "a.claim").write_text("")
        assert "on an unknown host" in Claims(tmp_path).awaited(["a"])


def test_claims_are_renewed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "RENEWED", 0.01)
    with Claims(tmp_path) as mine:
        mine.take("a")
        os.utime(tmp_path / "a.claim", (1, 1))
        for _ in range(500):
            if (tmp_path / "a.claim").stat().st_mtime > 1:
                return
            mine._closed.wait(0.01)
    pytest.fail("the claim was not touched")


def test_a_claim_that_finds_no_room_is_one_sentence(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(json, "dump", no_space)
    mine = Claims(tmp_path)
    with pytest.raises(StoreError, match=r"^folder must have room, since"):
        mine.take("a")
    assert list(tmp_path.iterdir()) == []
