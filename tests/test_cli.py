"""The command line, as a user meets it."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

import situs
from situs.cli import main
from situs.cli.check import SIZES, load
from situs.cli.listing import summary
from situs.registry import SCALINGS
from tests.raising import raises_exactly

OWN = '''
import torch
import situs


class Halfway(situs.InputEncoding):
    """Adds the position, halved."""

    def __init__(self, *, dim: int = 8) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x, positions=None):
        places = situs.Positions.of(positions, x.shape[-2], batch=x.shape[0], device=x.device)
        return x + (places.ids.unsqueeze(-1).float() / 2).to(x.dtype)
'''


def test_list_prints_a_line_for_every_encoding(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    table, scalings = capsys.readouterr().out.split("\n\n")
    lines = table.splitlines()
    assert lines[0].split() == ["name", "acts", "on", "formula"]
    assert [line.split()[0] for line in lines[1:]] == situs.names()
    assert [line.split()[0] for line in scalings.splitlines()[1:]] == [f"rotary+{name}" for name in SCALINGS]
    assert "rotary          query and key             q'_m = R(m) q_m" in "\n".join(lines)
    assert "shaw            score and value  learned  q_i . (k_j + a[clip(j - i)])" in "\n".join(lines)


@pytest.mark.parametrize("width", [45, 60, 80, 120, 400])
@pytest.mark.parametrize("asked", [["list"], ["show", "rotary"], ["show", "shaw"]])
def test_lists_fit_the_terminal_and_break_between_words_alone(
    asked: list[str], width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(asked) == 0
    whole = capsys.readouterr().out  # which no terminal shows
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(asked) == 0
    fitted = capsys.readouterr().out
    assert all(len(line) <= width or len(line.split()) == 1 for line in fitted.splitlines())
    assert set(whole.split()) - {"name", "acts", "on", "formula"} <= set(fitted.split())
    assert (fitted == whole) == (max(map(len, whole.splitlines())) <= width)


def test_unknown_arguments_are_refused_with_the_usage_of_their_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["extend", "config.json", "--targett=512"])
    said = capsys.readouterr().err
    assert said.startswith("usage: situs extend ")
    assert said.endswith("situs extend: error: unrecognized arguments: --targett=512. Did you mean --target?\n")


@pytest.mark.parametrize("asked", ["list", "--version", "golden --help"])
def test_a_reader_may_stop_before_the_end(asked: str) -> None:
    """As ``situs list | head`` does."""
    command = [sys.executable, "-c", f"import sys; from situs.cli import main; sys.exit(main({asked.split()}))"]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=buffered) as listing:
        assert listing.stdout is not None
        assert listing.stderr is not None
        listing.stdout.close()
        assert listing.stderr.read() == ""
    assert listing.returncode == 141


def test_list_as_json_can_be_read_by_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == [*situs.names(), *(f"rotary+{name}" for name in SCALINGS)]
    for row in rows:
        facts = summary(situs.entry(row["name"]))
        assert row == {**{key: facts[key] for key in row}, "learned": bool(facts["learned"])}
    assert list(rows[0]) == ["name", "class", "place", "learned", "paper", "formula"]


@pytest.mark.parametrize("name", situs.names())
def test_show_explains_every_option(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", name, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["paper"]
    assert facts["formula"]
    encoding = situs.entry(name).build(**SIZES)
    assert facts["learned"] == {key: list(value.shape) for key, value in encoding.named_parameters()}
    assert facts["dialects"] == dict(situs.entry(name).dialects)
    assert [option["name"] for option in facts["options"]] == list(situs.entry(name).options)
    assert all(option["meaning"] for option in facts["options"]), facts["options"]


def test_show_names_place_paper_and_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "rotary"]) == 0
    text = capsys.readouterr().out
    assert "place    query and key" in text
    assert "arXiv:2104.09864" in text
    assert "pairing     default 'halves'" in text
    assert "learned  nothing" in text


def test_show_names_learned_parameters_and_dialects(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "t5"]) == 0
    text = capsys.readouterr().out
    assert "learned  table 32 x 2  (at dim=32, head_dim=16, num_heads=2" in text
    assert "dialects T5, mT5, UMT5, LongT5: softmax_scale=1.0" in text
    assert "         MPNet: softmax_scale=None" in text


def test_show_lists_the_models_that_have_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "alibi"]) == 0
    text = capsys.readouterr().out
    said = "models   BLOOM, MPT:\n           situs.ALiBi(num_heads=8)\n           attend(..., causal=True)\n"
    assert f"{said}         Falcon with ALiBi:\n" in text
    assert "           note: configurations with alibi true; factor is 1 / sqrt(head_dim)." in text


def test_a_misspelt_name_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "rotery"]) == 2
    expected = f"situs show: name must be one of {', '.join(situs.names())}; got 'rotery'. Did you mean 'rotary'?\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize(
    ("model", "cure"),
    [
        ("Llama 4", "'rotary' or 'temperature', which this model has"),
        ("gpt_oss", "'rotary+yarn', which this model has"),
        ("mla", "'rotary'"),
    ],
)
def test_the_name_of_a_model_gets_its_encodings(model: str, cure: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", model]) == 2
    expected = f"situs show: name must be one of {', '.join(situs.names())}; got {model!r}. Did you mean {cure}?\n"
    assert capsys.readouterr().err == expected


@pytest.mark.once
def test_the_package_runs_as_a_module() -> None:
    found = subprocess.run([sys.executable, "-m", "situs", "--version"], capture_output=True, text=True, check=True)
    assert found.stdout.startswith("situs ")


@pytest.mark.compiled
def test_check_passes_ours_and_names_the_failures_of_others(
    capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["check", "rotary", "head_dim=8", "pairing=interleaved"]) == 0
    assert "keeps the contract" in capsys.readouterr().out
    (tmp_path / "own_encoding.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    assert main(["check", "own_encoding:Halfway", "--json"]) == 0
    (report,) = json.loads(capsys.readouterr().out)
    assert report["failures"] == {}
    assert "cached_equals_full" in report["passed"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rotary", "head_dim=15"], "head_dim must be even, since rotary rotates pairs of channels; got 15."),
        (["rotary", "head_dim"], "options must be written NAME=VALUE, such as head_dim=64; got 'head_dim'."),
        (
            ["rotary", "headdim=16"],
            "rotary takes head_dim, base, rotary_dim, pairing, channels, reverse, scaling, split; got 'headdim'. Did "
            "you mean 'head_dim'?",
        ),
        (
            ["nowhere_to_be_found:Thing"],
            "name must be MODULE:CLASS with a module that can be imported, or FILE.py:CLASS; got "
            "'nowhere_to_be_found:Thing': No module named 'nowhere_to_be_found'. Call it from the folder of "
            "nowhere_to_be_found.py, or write the path to that file.",
        ),
        (["json:loads"], "loads must be a situs.Encoding in json; got "),
    ],
)
def test_bad_input_gets_a_clear_sentence(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", *arguments]) == 2
    assert capsys.readouterr().err.startswith(f"situs check: {message}")


@pytest.mark.parametrize(
    "written", ["ALiBi", "Transformer-XL", "transformer xl", "T5Bias", "NoPE", "yarn", "rope+YaRN"]
)
def test_show_takes_names_as_people_write_them(written: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", written, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["name"] == situs.entry(written).name
    assert facts["name"] in (*situs.names(), "rotary+yarn")


@pytest.mark.parametrize("name", SCALINGS)
def test_show_explains_every_option_of_a_scaling(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", name, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["name"], facts["paper"]) == (f"rotary+{name}", SCALINGS[name].paper)
    assert facts["class"] == f"situs.Rotary, with scaling=situs.{SCALINGS[name].cls}(...)"
    assert [option["name"] for option in facts["options"]] == list(situs.entry(name).options)
    assert all(option["meaning"] for option in facts["options"]), facts["options"]


def test_show_takes_a_file_of_ones_own(
    capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "own.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    assert main(["show", "deep/own.py"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("deep/own.py: Adds the position, halved.\n")
    assert f"class    Halfway in {tmp_path.resolve()}/deep/own.py\n" in shown
    assert "paper    not registered\n" in shown


def test_check_fills_in_sizes_that_a_class_must_have(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load("RoPE", {}).config["head_dim"] == SIZES["head_dim"]
    assert load("rotary", {"base": 50.0}).config == situs.Rotary(head_dim=16, base=50.0).config
    assert load("tupe", {}).config["max_length"] == 400
    assert load("tupe", {"untie_cls": False}).config["max_length"] == 512
    scaled = load("yarn", {"factor": 8.0})
    assert isinstance(scaled, situs.Rotary)
    assert scaled.scaling == situs.YaRN(factor=8.0, original_length=64)
    stretched = load("linear", {"target_length": 128})
    assert isinstance(stretched, situs.Rotary)
    assert stretched.scaling == situs.LinearScaling(original_length=64, target_length=128)
    assert isinstance(load("proportional", {}), situs.Rotary)
    with raises_exactly(
        ValueError,
        "short_factors and long_factors must have one number per pair each, since they divide the frequencies and were "
        "searched for one model; got 0 and 0. Take them from the rope_scaling of its config.json.",
    ):
        load("longrope", {})


TORCHLESS = """
import sys
from situs.cli import main
try:
    status = main({arguments!r})
except SystemExit as ended:
    status = ended.code
heavy = {{"torch", "numpy", "matplotlib", "rich", "transformers"}}
loaded = sorted({{name.partition(".")[0] for name in sys.modules}} & heavy)
print(status, loaded, file=sys.stderr)
"""


@pytest.mark.once
@pytest.mark.parametrize(
    "arguments",
    [
        ["--version"],
        ["--help"],
        ["list"],
        ["list", "--json"],
        *([name, "--help"] for name in ("list", "show", "plot", "check", "compare", "evaluate")),
    ],
    ids=" ".join,
)
def test_help_version_and_list_need_no_torch(arguments: list[str]) -> None:
    code = TORCHLESS.format(arguments=arguments)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stderr == "0 []\n"
    assert ran.stdout
    if arguments == ["--version"]:
        assert ran.stdout == f"situs {situs.__version__}\n"
