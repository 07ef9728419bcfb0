"""A comparison whose processes are killed at random moments, again and again, ends with the undisturbed numbers."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from situs.lab.comparing.records import Comparison, Seconds, TrialRecord
from situs.lab.plain import to_json
from situs.lab.running.store import read_record

pytestmark = [pytest.mark.once, pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")]

KILLS = 50 if os.environ.get("SITUS_SLOW") == "1" else 0
ARGUMENTS = [
    "compare", "--encodings", "alibi,rotary,rotary+ntk,own_kills:Own", "--tasks=passkey,copy", "--train-length=12",
    "--lengths=1,2", "--steps=40", "--dim=16", "--layers=1", "--heads=2", "--batch=4", "--seeds=4",
]  # fmt: skip


def started(folder: Path, out: str) -> subprocess.Popen[str]:
    situs = str(Path(sys.executable).with_name("situs"))
    return subprocess.Popen(
        [situs, *ARGUMENTS, "--out", out], cwd=folder, text=True, start_new_session=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def numbers(record: TrialRecord) -> str:
    """All but the time it took."""
    return to_json(replace(record, seconds=Seconds(0.0, 0.0)))


def processes(session: int) -> list[int]:
    """The living processes of a session."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            status = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(status[3]) == session and status[0] not in "ZX":
            found.append(int(path.parent.name))
    return found


@pytest.mark.skipif(not KILLS, reason="takes long: SITUS_SLOW=1 runs it")
def test_any_process_may_be_killed_at_any_moment(tmp_path: Path) -> None:
    (tmp_path / "own_kills.py").write_text("import situs\n\nclass Own(situs.Sinusoidal):\n    pass\n")
    began = time.monotonic()
    undisturbed = started(tmp_path, "whole")
    _, said = undisturbed.communicate(timeout=1800)
    took = time.monotonic() - began
    assert undisturbed.returncode == 0, said
    chance = random.Random(0)
    kept: set[str] = set()
    for _ in range(KILLS):
        process = started(tmp_path, "killed")
        time.sleep(chance.uniform(0.1, 0.5 * took))
        victims = processes(process.pid) if chance.random() < 0.5 else [process.pid]  # a worker, or the whole
        victim = chance.choice(victims or [process.pid])
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, chance.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT]))
        if victim != process.pid:
            time.sleep(chance.uniform(0.0, 1.0))
            process.kill()
        process.communicate(timeout=600)
        deadline = time.monotonic() + 10
        while processes(process.pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert processes(process.pid) == []  # nobody is left behind
        now = {path.name for path in (tmp_path / "killed" / "trials").glob("*.json")}
        assert kept <= now  # nothing is lost
        kept = now
    last = started(tmp_path, "killed")
    _, said = last.communicate(timeout=1800)
    assert last.returncode == 0, said
    found, expected = (read_record(Comparison, tmp_path / out / "records.json") for out in ("killed", "whole"))
    assert list(map(numbers, found.trials)) == list(map(numbers, expected.trials))
    assert {path.suffix for path in (tmp_path / "killed" / "trials").iterdir() if path.suffix != ".part"} == {".json"}
