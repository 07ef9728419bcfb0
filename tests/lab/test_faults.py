"""Encodings of one's own that raise, exit, crash, hang or print, in real worker processes: each is told, and alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from situs.lab.comparing.jobs import Answer, CompareWork, Found, Job, Measurement, Tried, TryOut
from situs.lab.comparing.records import Trial, TrialRecord
from situs.lab.naming import parse
from situs.lab.problems import problem_of
from situs.lab.running.team import Team
from situs.lab.settings import Settings, Size

pytestmark = [pytest.mark.once, pytest.mark.skipif(sys.platform != "linux", reason="sends signals")]

SETTINGS = Settings(
    train_length=12, multiples=(1, 2, 3), batch=4, warm_up=2, windows=4, size=Size(dim=16, layers=1, heads=2)
)
FAULTS = """
import ctypes, os, sys, time
import situs, torch

class Builds(situs.Sinusoidal):
    def __init__(self, *, dim, fault="none"):
        super().__init__(dim=dim)
        if fault == "exit": sys.exit("enough")  # built exit
        if fault == "leave": os._exit(0)
        if fault == "crash": ctypes.string_at(0)  # built crash
        while fault == "hang": time.sleep(0.01)  # built hang

class Late(situs.Sinusoidal):
    def __init__(self, *, dim, fault, least=13, most=100):
        super().__init__(dim=dim)
        self.fault, self.least, self.most = fault, least, most
    def forward(self, x, positions):
        if self.least <= x.shape[1] <= self.most:
            if self.fault == "raise": raise RuntimeError("no such luck")  # raise
            if self.fault == "exit": sys.exit(3)  # exit
            if self.fault == "leave": os._exit(3)
            if self.fault == "interrupt": raise KeyboardInterrupt  # interrupt
            while self.fault == "hang": time.sleep(0.01)  # hang
        return super().forward(x, positions)

class Odd(situs.Sinusoidal):
    usable_length = "many"

class Meddles(situs.Sinusoidal):
    def __init__(self, *, dim):
        print("as loud as can be", flush=True)
        torch.nn.functional.gelu = torch.relu
        super().__init__(dim=dim)
"""
LINES = {line.partition("  # ")[2]: number for number, line in enumerate(FAULTS.splitlines(), start=1)}
MODULES = {
    "misspelt": "import situs\n\nclass Own(situs.NoPE)\n    pass\n",
    "raising": "import situs\nraise KeyError('colour')\n",
    "exiting": "import sys\nsys.exit()\n",
    "leaving": "import os\nos._exit(0)\n",
    "importing": "import no_such_module\n",
}


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    """Two workers for all of these tests, in a folder with modules of one's own."""
    folder = tmp_path_factory.mktemp("faults")
    for name, content in {"faults": FAULTS, **MODULES}.items():
        (folder / f"{name}.py").write_text(content)
    with pytest.MonkeyPatch.context() as patch, Team(2) as workers:
        patch.chdir(folder)
        yield workers


def at(line: str) -> str:
    return f"faults.py:{LINES[line]}"


def answers(team: Team, jobs: list[Job], timeout: float = 300.0) -> list[Answer]:
    """The answers, in the order of the jobs."""
    found: dict[Job, Answer] = {}
    team.run(jobs, CompareWork(), done=lambda job, answer: found.update({job: answer}), timeout=timeout)
    return [found[job] for job in jobs]


def trial(name: str, seed: int = 0) -> Trial:
    return Trial(parse(name), (parse(name),), "copy", seed, 3, SETTINGS)


def records(team: Team, names: list[str], timeout: float = 300.0) -> list[TrialRecord]:
    found = answers(team, [trial(name) for name in names], timeout)
    assert all(isinstance(each, TrialRecord) for each in found)
    return [each for each in found if isinstance(each, TrialRecord)]


def try_outs(names: list[str]) -> list[Job]:
    return [TryOut(parse(name), SETTINGS) for name in names]


def problems(found: list[Answer]) -> list[str]:
    return [each.problem.said for each in found if isinstance(each, Tried | Found) and each.problem is not None]


def died(status: str, cure: str, place: str = "") -> str:
    return (
        f"ChildProcessError: the worker must live to the end of its job; got {status} in the middle of it, 2 times"
        f"{place}. {cure}"
    )


LEFT = "An encoding must not end its process; let it raise an error."
KILLED = "If memory ran out, use fewer workers or a smaller model."


def test_an_encoding_that_ends_its_process_when_it_is_built_is_told_and_the_rest_goes_on(team: Team) -> None:
    names = [f'faults:Builds(fault="{fault}")' for fault in ("exit", "leave", "crash")]
    found = answers(team, try_outs([*names, "alibi"]))
    assert problems(found) == [
        f"SystemExit: enough ({at('built exit')})",
        died("exit status 0", LEFT),
        died("SIGSEGV", KILLED, f", at {at('built crash')}"),
    ]
    assert found[-1] == Tried()


def test_a_module_that_cannot_be_imported_is_one_sentence_with_its_line(team: Team) -> None:
    found = answers(team, try_outs([f"{name}:Own" for name in MODULES]))
    said = [each.refused for each in found if isinstance(each, Tried)]
    must = "must be a module that can be imported, since Own is defined there; got"
    assert said == [
        f"misspelt {must} SyntaxError at misspelt.py:3: expected ':'.",
        f"raising {must} KeyError at raising.py:2: 'colour'.",
        f"exiting {must} SystemExit at exiting.py:2.",
        None,
        f"importing {must} ModuleNotFoundError at importing.py:1: No module named 'no_such_module'.",
    ]
    assert problems(found) == [died("exit status 0", LEFT)]


def test_an_error_that_no_line_of_ones_own_raised_names_the_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.py").write_text("import situs\n\n\nclass Own(situs.NoPE):\n    pass\n")
    monkeypatch.chdir(tmp_path)
    for name in ("own.py", f"{tmp_path}/own.py:Own"):
        assert (
            problem_of(RuntimeError("sizes differ"), parse(name)).said
            == "RuntimeError: sizes differ (class at own.py:4)"
        )
    assert problem_of(RuntimeError("sizes differ"), parse("alibi")).said == "RuntimeError: sizes differ"


def test_a_hang_is_ended_at_the_time_limit_with_the_line_where_it_hung(team: Team) -> None:
    jobs = try_outs(['faults:Builds(fault="hang")', 'faults:Late(fault="hang", least=1)'])
    assert problems(answers(team, jobs, timeout=3.0)) == [
        f"TimeoutError: timed out after 3 s, at {at(line)}. Allow more with --trial-timeout."
        for line in ("built hang", "hang")
    ]


@pytest.mark.heavy
def test_results_of_before_a_failure_are_kept(team: Team) -> None:
    names = [f'faults:Late(fault="{fault}")' for fault in ("raise", "exit", "leave", "interrupt")]
    names += ['faults:Late(fault="hang", least=25)', 'faults:Late(fault="none")']
    broken = records(team, names[:-2], timeout=300.0)
    hung, sound = records(team, names[-2:], timeout=15.0)  # by workers that have loaded everything
    broken.append(hung)
    assert sound.status == "done"
    assert {each.status for each in broken} == {"failed"}
    base = sound.methods[names[-1]].lengths
    for name, each in zip(names, broken, strict=False):
        lengths = each.methods[name].lengths
        assert lengths[12] == base[12]  # the same numbers as without the fault
        assert lengths.get(36) in (None, lengths.get(24)) or lengths[24] == base[24]
        assert (each.measure, each.curve, each.parameters) == (sound.measure, sound.curve, sound.parameters)
    late = at("raise")
    assert [each.error for each in broken] == [
        f"{names[0]} at length 24: RuntimeError: no such luck ({late})",
        f"{names[1]} at length 24: SystemExit: 3 ({at('exit')})",
        died("exit status 3", LEFT),
        f"KeyboardInterrupt:  ({at('interrupt')})",
        f"TimeoutError: timed out after 15 s, at {at('hang')}. Allow more with --trial-timeout.",
    ]
    assert broken[0].methods[names[0]].lengths[24].error == f"RuntimeError: no such luck ({late})"
    assert broken[-1].methods[names[-2]].lengths.keys() == {12, 24}


@pytest.mark.heavy
def test_a_fault_in_costs_alone_leaves_the_properties(team: Team) -> None:
    name = 'faults:Late(fault="hang", least=4096, most=4096)'
    costs, properties = answers(
        team, [Measurement(parse(name), SETTINGS, "costs"), Measurement(parse(name), SETTINGS, "properties")], 15.0
    )
    line = at("hang")
    assert problems([costs]) == [f"TimeoutError: timed out after 15 s, at {line}. Allow more with --trial-timeout."]
    assert isinstance(properties, Found)
    assert properties.properties is not None
    assert properties.properties["unique"].holds is True


def test_what_is_no_number_does_not_reach_the_records(team: Team) -> None:
    (odd,) = records(team, ["faults:Odd"])
    assert odd.status == "failed"
    assert "TypeError" in str(odd.error)


def test_what_an_encoding_does_to_torch_or_prints_reaches_nobody_else(
    team: Team, capfd: pytest.CaptureFixture[str]
) -> None:
    with Team(1) as one:
        (before,) = records(one, ["alibi"])
        meddled, after = records(one, ["faults:Meddles", "alibi"])
    assert meddled.status == "done"
    assert (after.curve, after.methods) == (before.curve, before.methods)
    assert "as loud as can be" not in capfd.readouterr().out


def test_modules_of_ones_own_are_not_imported_here(team: Team) -> None:
    assert not {"faults", *MODULES} & sys.modules.keys()
    assert not list(Path.cwd().glob("core*"))
