"""``situs check``, ``show`` and ``plot`` with a class of one's own that is wrong: one sentence, with its line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import situs
from situs.checks import TAGS
from situs.cli import main
from situs.cli.check import SIZES, load
from situs.registry.own import FILLED_IN
from tests.raising import raises_exactly

pytestmark = pytest.mark.once

BIAS = """import sys
import time
import situs

class Own(situs.OffsetBias):
    def __init__(self, *, num_heads):
        super().__init__()
        self.num_heads = num_heads

    def rule(self, device, dtype):
        return lambda offset, head: -offset.abs().to(dtype) / (head + 1)
"""
RULE = "        return lambda offset, head: -offset.abs().to(dtype) / (head + 1)"
FIRST = "        super().__init__()"
IMPORTS = "{file} must be a module that can be imported, since an encoding is read from it; got"
SIZES_SAID = "Sizes are filled in where they are called dim, head_dim, num_heads, max_length or size."


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", ["check", "show", "plot"])
@pytest.mark.parametrize(
    ("code", "said"),
    [
        (BIAS.replace("OffsetBias):", "OffsetBias)"), f"{IMPORTS} SyntaxError at {{file}}:5: expected ':'."),
        ("\nimport notthere\n", f"{IMPORTS} ModuleNotFoundError at {{file}}:2: No module named 'notthere'."),
        ("1 / 0\n", f"{IMPORTS} ZeroDivisionError at {{file}}:1: division by zero."),
        ("import sys\nsys.exit('bye')\n", f"{IMPORTS} SystemExit at {{file}}:2: bye."),
        ("import sys\nsys.exit()\n", f"{IMPORTS} SystemExit at {{file}}:2."),
        (
            BIAS.replace(FIRST, "        pass"),
            "AttributeError at {file}:8, `self.num_heads = num_heads`: Own must call super().__init__() before it "
            "assigns to self, since torch.nn.Module is set up there; got self.num_heads = ... first. Make "
            "super().__init__() the first line of __init__.",
        ),
        (BIAS.replace(FIRST, "        sys.exit(3)"), "SystemExit at {file}:7, `sys.exit(3)`: 3."),
        (
            BIAS.replace("def rule", "def rules"),
            "Own must define rule(self, device, dtype), since OffsetBias leaves it to its subclasses; got a class "
            "without it at {file}:5.",
        ),
        (
            BIAS.replace("num_heads):", "n_heads):").replace("= num_heads", "= n_heads"),
            f"n_heads must be given, since Own at {{file}}:5 has no default for it; got none. {SIZES_SAID} Did you "
            "mean 'num_heads'? Other options are written after the name: situs check {file} n_heads=..., or "
            "{file}(n_heads=...).",
        ),
        (
            BIAS.replace("num_heads):", "num_heads, cfg):"),
            f"cfg must be given, since Own at {{file}}:5 has no default for it; got none. {SIZES_SAID} Other options "
            "are written after the name: situs check {file} cfg=..., or {file}(cfg=...).",
        ),
    ],
    ids=["syntax", "missing", "raises", "exits", "silent", "unprepared", "exits_made", "abstract", "heads", "option"],
)
def test_a_class_that_cannot_be_made_is_one_sentence(
    command: str, code: str, said: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "own.py").write_text(code)
    assert main([command, "own.py"]) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", f"situs {command}: {said.format(file='own.py')}\n")


def test_a_module_that_cannot_be_imported_is_named_with_its_class(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "divides.py").write_text("1 / 0\n")
    for name in ("divides:Own", "divides.py:Own"):
        assert main(["show", name]) == 2
        assert capsys.readouterr().err == (
            f"situs show: {name.partition(':')[0]} must be a module that can be imported, since Own is defined there; "
            f"got ZeroDivisionError at divides.py:1: division by zero.\n"
        )


def test_the_sizes_that_are_named_are_those_that_are_filled_in() -> None:
    assert set(FILLED_IN) == set(SIZES)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("        sys.exit(3)", "SystemExit at own.py:11, `sys.exit(3)`: 3."),
        (
            "        assert dtype is None, 'too wide'",
            "AssertionError at own.py:11, `assert dtype is None, 'too wide'`: too wide.",
        ),
        (
            "        return lambda offset, head: (offset.to(dtype) + head + 0.5).sqrt()",
            "own.py cannot be drawn: its bias is nan at offset -1, head 0. Take no root or logarithm of a negative "
            "number, and divide by nothing that can be 0: offset is negative for keys before the query, and 0 at the "
            "query itself.",
        ),
        (
            "        a = sys.modules['torch'].ones(8)\n        return lambda offset, head: a * offset",
            "RuntimeError at own.py:12, `return lambda offset, head: a * offset`: The size of tensor a (8) must match "
            "the size of tensor b (11) at non-singleton dimension 1. Index what each head has with head: a[head].",
        ),
        (
            "        pass",
            "own.py cannot be drawn: rule(self, device, dtype) must return a function of (offset, head); got None at "
            "own.py:10. Is a return missing?",
        ),
    ],
    ids=["exits", "asserts", "nan", "heads", "none"],
)
def test_a_figure_of_what_cannot_be_drawn_says_why(
    rule: str, said: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "own.py").write_text(BIAS.replace(RULE, rule))
    assert main(["plot", "own.py"]) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", f"situs plot: {said}\n")


def test_an_exit_in_a_check_is_a_failure(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "own.py").write_text(BIAS.replace(RULE, "        sys.exit(3)"))
    assert main(["check", "own.py"]) == 1
    assert capsys.readouterr().out == (
        "Own cannot be checked before this is mended (class at own.py:5):\n  is_well_formed: It keeps its options, has "
        "its sizes, takes what attention hands over, and runs. But it raised SystemExit at own.py:11, `sys.exit(3)`: "
        "3\n"
    )


@pytest.mark.parametrize("command", ["check", "show", "plot"])
def test_json_is_json_whatever_a_module_prints(command: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = BIAS.replace(RULE, "        print('asked')\n        sys.exit(3)").replace(FIRST, f"{FIRST}; print('made')")
    (here / "own.py").write_text("print('imported')\n" + code)
    main([command, "own.py", "--json", *(["--list"] if command == "plot" else [])])
    shown = capsys.readouterr()
    assert json.loads(shown.out)
    printed = ["imported", "made", "asked"] if command == "check" else ["imported", "made"]
    assert list(dict.fromkeys(shown.err.split())) == printed


@pytest.mark.parametrize(
    ("tags", "said"),
    [
        (
            '"relative"',
            'tags must be a set of names, since each names a check that Own must pass; got the string "relative". '
            'Write frozenset({"relative"}).',
        ),
        ("3", "tags must be a set of names, since each names a check that Own must pass; got 3."),
        (
            'frozenset({"far", "relativ"})',
            f"tags must be among {', '.join(sorted(TAGS))}, since each names a check that Own must pass; got relativ. "
            "Did you mean 'relative'?",
        ),
    ],
)
def test_wrong_tags_are_told_with_what_to_write(
    tags: str, said: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "own.py").write_text(BIAS.replace("OffsetBias):", f"OffsetBias):\n    tags = {tags}\n"))
    assert main(["check", "own.py"]) == 2
    assert capsys.readouterr().err == f"situs check: {said}\n"


def test_options_may_stand_in_brackets(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = BIAS.replace("num_heads):", "num_heads, p=0.5):").replace(FIRST, f"{FIRST}; self.p = p")
    (here / "own.py").write_text(code)
    assert load("own.py(p=0.3)", {}).config == {"num_heads": 2, "p": 0.3}
    assert load("own.py:Own(p=0.3)", {"num_heads": 4}).config == {"num_heads": 4, "p": 0.3}
    scaled = load("RoPE+llama3(factor=8.0, original_length=32)", {})
    assert isinstance(scaled, situs.Rotary)
    assert scaled.scaling == situs.Llama3Scaling(factor=8.0, original_length=32)
    assert main(["show", "own.py(p=0.3)"]) == 0
    assert capsys.readouterr().out.startswith("own.py(p=0.3) is own.py\n\nclass    Own in ")
    assert main(["show", "rotary+llama3(factor=8,original_length=64)", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "rotary+llama3"
    with raises_exactly(TypeError, "own.py takes num_heads, p; got 'q'."):
        load("own.py(q=0.3)", {})
    with raises_exactly(
        ValueError, "name must be that of one encoding, since it is looked at alone; got 'rotary&shaw(values=False)'."
    ):
        load("rotary&shaw(values=False)", {})


def test_show_takes_no_option_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "alibi(slope=3)"]) == 2
    takes = ", ".join(situs.entry("alibi").options)
    assert capsys.readouterr().err.startswith(f"situs show: alibi takes {takes}; got 'slope'.")


def test_a_file_that_lacks_its_ending_is_suggested(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "root.py").write_text(BIAS)
    assert main(["check", "root"]) == 2
    assert capsys.readouterr().err == (
        f"situs check: name must be one of {', '.join(situs.names())}; got 'root'. Did you mean 'root.py'?\n"
    )


def test_a_class_without_a_docstring_is_not_described_by_its_base(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "own.py").write_text(BIAS)
    assert main(["show", "own.py"]) == 0
    assert capsys.readouterr().out.startswith("own.py\n\nclass    Own in ")


def test_yarn_has_one_year(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("yarn", "ntk_by_parts"):
        assert main(["show", name]) == 0
        shown = capsys.readouterr().out
        assert (shown.count("Peng et al. 2024"), shown.count("Peng et al. 2023")) == (2, 0)


@pytest.mark.compiled
def test_torch_prints_no_graph_where_tracing_fails(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    branches = """        def bias(offset, head):
            if offset.abs().max() > 10**9:
                raise ValueError("too far")
            return -offset.abs().to(dtype) / (head + 1)
        return bias"""
    (here / "own.py").write_text(BIAS.replace(RULE, branches))
    assert main(["check", "own.py"]) == 1
    shown = capfd.readouterr()
    assert shown.err == ""
    failed = [line.split(":")[0].strip() for line in shown.out.splitlines()[1:]]
    assert failed == ["forms_agree", "compiled_equals_plain", "exported_equals_plain"]


@pytest.mark.once
@pytest.mark.parametrize(
    ("code", "said"),
    [
        (
            BIAS.replace(RULE, "        open('begun', 'w').close()\n        time.sleep(100)"),
            "situs check: stopped in is_well_formed at own.py:12, `time.sleep(100)`.\n",
        ),
        (
            "import time\nopen('begun', 'w').close()\ntime.sleep(100)\n",
            "situs check: stopped at own.py:3, `time.sleep(100)`.\n",
        ),
    ],
    ids=["check", "import"],
)
def test_ctrl_c_says_where_it_stopped(code: str, said: str, here: Path) -> None:
    (here / "own.py").write_text(code)
    # a shell starts what it puts into the background with Ctrl-C ignored, and so these tests perhaps
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    run = heard + "import sys; from situs.cli import main; sys.exit(main(['check', 'own.py']))"
    with subprocess.Popen([sys.executable, "-c", run], stderr=subprocess.PIPE, text=True) as running:
        for _ in range(600):
            if (here / "begun").exists() or running.poll() is not None:
                break
            time.sleep(0.1)
        time.sleep(0.2)
        os.kill(running.pid, signal.SIGINT)
        assert running.communicate(timeout=60)[1] == said
    assert running.returncode == 130
