"""What is no port of a model is refused in a sentence, on the command line too."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest
import torch

from situs.cli import main
from situs.models import ConfigError, Golden, golden, verify
from situs.registry.origins import short
from tests.models.golden_configs import CONFIGS
from tests.raising import raises_exactly

TINY = {"model_type": "llama", "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2}
COS = torch.ones(5, 4)
NAN = torch.ones(5, 4)
NAN[2, 3] = float("nan")


@pytest.mark.parametrize(
    ("port", "error", "message"),
    [
        (3, TypeError,
         "port must be a golden file, a mapping of arrays or a function, since its numbers are compared; got 3."),
        ({}, ConfigError,
         "port must have one of the model's arrays at least, such as layer0.cos, since they are compared; got none."),
        ({"layer0.k": golden(TINY)["layer0.k"]}, ConfigError,
         "port must have one of the model's arrays at least, such as layer0.cos, since they are compared; got inputs "
         "alone."),
        ({"layer0.coss": COS}, ConfigError,
         "arrays must have the names of the golden file, since each is compared with its own; got 'layer0.coss'. Did "
         "you mean 'layer0.cos'?"),
        ({"layer0.freqs": torch.ones(4)}, ConfigError,
         "arrays must have the names of the golden file, since each is compared with its own; got 'layer0.freqs'. Did "
         "you mean 'layer0.frequencies'?"),
        ({"layer0.cos": COS.to(torch.complex64)}, TypeError,
         "layer0.cos must be numbers in shape (5, 4), since each is compared; got a tensor of shape (5, 4) and dtype "
         "torch.complex64. Of a table of complex numbers, the real part is cos, the imaginary part sin."),
        ({"layer0.cos": COS.to_sparse()}, TypeError,
         "layer0.cos must be numbers in shape (5, 4), since each is compared; got a tensor of shape (5, 4) and dtype "
         "torch.float32, sparse. Make it dense with to_dense()."),
        ({"layer0.cos": COS.bool()}, TypeError,
         "layer0.cos must be numbers in shape (5, 4), since each is compared; got a tensor of shape (5, 4) and dtype "
         "torch.bool."),
        ({"layer0.frequencies": [True] * 4}, TypeError,
         "layer0.frequencies must be numbers in shape (4,), since each is compared; got True among them."),
        ({"layer0.frequencies": [b"x"] * 4}, TypeError,
         "layer0.frequencies must be numbers in shape (4,), since each is compared; got b'x' among them."),
        ({"layer0.frequencies": [1.0, 1j, 0.0, 0.0]}, TypeError,
         "layer0.frequencies must be numbers in shape (4,), since each is compared; got 1j among them."),
        ({"layer0.frequencies": [10**400] * 4}, TypeError,
         "layer0.frequencies must be numbers in shape (4,), since each is compared; got a whole number that float64 "
         "cannot hold among them."),
        ({"layer0.frequencies": [10**5000] * 4}, TypeError,
         "layer0.frequencies must be numbers in shape (4,), since each is compared; got a whole number that float64 "
         "cannot hold among them."),
        ({"layer0.cos": COS[:3]}, ConfigError,
         "layer0.cos must have shape (5, 4), as in the golden file; got (3, 4)."),
        ({"layer0.cos": torch.ones(5, 8)}, ConfigError,
         "layer0.cos must have shape (5, 4), as in the golden file; got (5, 8). Give one number for each pair: many "
         "tables hold each twice."),
        ({"layer0.sin": torch.ones(5, 6)}, ConfigError,
         "layer0.sin must have shape (5, 4), as in the golden file; got (5, 6)."),
        ({"layer0.cos": "ones"}, TypeError,
         "layer0.cos must be numbers in shape (5, 4), since each is compared; got 'ones'."),
        ({"layer0.cos": [[1.0], [1.0, 2.0]]}, TypeError,
         "layer0.cos must be numbers in shape (5, 4), since each is compared; got [[1.0], [1.0, 2.0]]."),
        ({"layer0.cos": NAN}, ConfigError,
         "layer0.cos must be finite, since it is compared; got nan at position 4,095, pair 3. float16 holds nothing "
         "beyond 65,504, positions neither."),
        ({"layer0.cos": COS, "layer0.q": torch.zeros(5, 8)}, ConfigError,
         "layer0.q must be as the golden file has it, since it is an input that outputs are computed from; got 0 for "
         "-0.5 at [0, 0]."),
        (lambda group: [1.0], TypeError,
         "port must return arrays by name, since they are compared; got [1.0] for layer0."),
        ("nowhere.json", ConfigError,
         "port must be a file that can be read; got 'nowhere.json': No such file or directory."),
        ("port.txt", ConfigError,
         "port must end in .json, .npz or .safetensors, since that tells the format; got 'port.txt'."),
    ],
)  # fmt: skip
def test_what_is_no_port_is_refused(port: object, error: type[Exception], message: str) -> None:
    with raises_exactly(error, message):
        verify(TINY, port)


def test_tables_of_a_whole_head_are_told_apart() -> None:
    with raises_exactly(
        ConfigError,
        "layer0.frequencies must have shape (12,), as in the golden file; got (48,). That is as many pairs as a whole "
        "head has, but 24 of its 96 channels are rotated.",
    ):
        verify(CONFIGS["gpt-neox"], {"layer0.frequencies": torch.ones(48)})


def test_dtypes_are_known_by_name() -> None:
    with raises_exactly(
        ValueError,
        "dtype must be one of bfloat16, float16, float32, float64, since it tells how far rounding takes numbers; got "
        "'float23'. Did you mean 'float32'?",
    ):
        verify(TINY, {"layer0.cos": COS}, dtype="float23")


def rewritten(path: pathlib.Path, change: dict[str, Any]) -> pathlib.Path:
    found = json.loads(golden(TINY).to_json())
    path.write_text(json.dumps({**found, **change}))
    return path


def test_files_of_another_model_or_version_are_refused(tmp_path: pathlib.Path) -> None:
    own = golden(TINY).meta["fingerprint"]
    other = golden(CONFIGS["cohere2"]).save(tmp_path / "other.npz")
    with raises_exactly(
        ConfigError,
        f"port must be filled for this model, llama with fingerprint {own}, since others have other numbers; got a "
        f"file of cohere2 with {golden(CONFIGS['cohere2']).meta['fingerprint']}.",
    ):
        verify(TINY, other)
    with raises_exactly(
        ConfigError,
        "version must be 1, since arrays mean other things in others; got 2 in new.json. Make it again with situs "
        "golden.",
    ):
        verify(TINY, rewritten(tmp_path / "new.json", {"version": 2}))
    with raises_exactly(
        ConfigError,
        "version must be 1, since arrays mean other things in others; got true in flag.json. Make it again with situs "
        "golden.",
    ):
        verify(TINY, rewritten(tmp_path / "flag.json", {"version": True}))
    with raises_exactly(
        ConfigError,
        "schema must be 'situs-golden', since other files have other arrays; got \"other\" in kind.json.",
    ):
        verify(TINY, rewritten(tmp_path / "kind.json", {"schema": "other"}))
    with raises_exactly(ConfigError, "layer0.cos must have as many numbers as its shape says, 20; got 1."):
        verify(TINY, rewritten(tmp_path / "few.json", {"arrays": {"layer0.cos": {"shape": [5, 4], "data": [1.0]}}}))
    with raises_exactly(ConfigError, "none.json must have an object of arrays, by name, under 'arrays'; got none."):
        verify(TINY, rewritten(tmp_path / "none.json", {"arrays": [1]}))


def test_what_a_file_was_made_for_must_be_lists_and_a_length(tmp_path: pathlib.Path) -> None:
    with raises_exactly(
        TypeError, "positions must be a list of whole numbers, since numbers are computed at each; got 5."
    ):
        verify(TINY, rewritten(tmp_path / "port.json", {"positions": 5}))
    with raises_exactly(
        TypeError, "layers must be a list of whole numbers, since the groups of these are computed; got 0."
    ):
        verify(TINY, rewritten(tmp_path / "port.json", {"layers": 0}))
    with raises_exactly(
        ValueError,
        "length must lie in 1 .. 9007199254740992, since it counts the tokens of a sequence; got one of about 400 "
        "digits.",
    ):
        verify(TINY, rewritten(tmp_path / "port.json", {"length": 10**400}))


def test_numbers_of_a_file_that_float64_cannot_hold_are_refused(tmp_path: pathlib.Path) -> None:
    arrays = {"layer0.frequencies": {"shape": [4], "data": [10**400, 1, 1, 1]}}
    path = rewritten(tmp_path / "port.json", {"arrays": arrays})
    with raises_exactly(
        TypeError,
        "layer0.frequencies must be numbers in shape (4,), since each is compared; got a whole number that float64 "
        "cannot hold among them.",
    ):
        verify(TINY, path)
    with raises_exactly(
        ConfigError, "layer0.frequencies must be numbers of float64, since the file is a golden one; got a list."
    ):
        Golden.load(path)


def test_a_port_that_raises_is_told_for_which_group() -> None:
    def port(group: dict[str, Any]) -> Any:
        return group["nothing"]

    place = f"{short(__file__)}:{port.__code__.co_firstlineno + 1}"
    with raises_exactly(
        ValueError,
        "port must return arrays by name for layer0, since they are compared; got KeyError at "
        f"{place}, `return group[\"nothing\"]`: 'nothing'.",
    ) as caught:
        verify(TINY, port)
    assert isinstance(caught.value.__cause__, KeyError)


def test_numbers_at_padding_may_be_none_at_all() -> None:
    found = golden(TINY)
    port = {name: found[name].double() for name in ("batch.ids", "layer0.batch_rotated_q")}
    for dtype in (torch.float32, torch.bfloat16):
        given = {name: each.clone().to(dtype) for name, each in port.items()}
        for each in given.values():
            each[found["batch.valid"] == 0] = float("nan")
        assert str(verify(TINY, given)).startswith("agrees: 2 of 2 arrays of llama within rounding, as ")
    port["layer0.batch_rotated_q"][2, 1, 3] = float("nan")
    with raises_exactly(
        ConfigError,
        "layer0.batch_rotated_q must be finite, since it is compared; got nan at the row packed, token 1, channel 3. "
        "float16 holds nothing beyond 65,504, positions neither.",
    ):
        verify(TINY, port)


def test_flags_may_be_true_and_false() -> None:
    assert verify(TINY, {"schedule.causal": [True, True], "schedule.sinks": torch.tensor([False, False])}).agrees


@pytest.fixture
def config(tmp_path: pathlib.Path) -> str:
    (tmp_path / "config.json").write_text(json.dumps({**TINY, "rope_theta": 20000.0}))
    return str(tmp_path / "config.json")


def test_golden_writes_a_file_and_says_what_is_in_it(
    config: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "golden.json")
    assert main(["golden", config, "--positions", "0,1,5-7", "--layers", "0-1", "--out", out]) == 0
    said = capsys.readouterr().out
    assert " ".join(said.split()).startswith(f"{out}: 7 inputs and 18 outputs of llama, ")
    assert said.splitlines()[-1] == "  layer0.*  layers 0-1: Rotary(head_dim=8, base=20000.0)"
    assert json.loads(pathlib.Path(out).read_text())["positions"] == [0, 1, 5, 6, 7]
    assert main(["golden", config, "--out", out]) == 2
    assert capsys.readouterr().err == (
        f"situs golden: --out must be a new file, since '{out}' would be lost. Give --force to replace it.\n"
    )
    assert main(["golden", config, "--positions", "3", "--out", out, "--force"]) == 0
    assert json.loads(pathlib.Path(out).read_text())["positions"] == [3]


def test_verify_answers_by_its_exit_status(
    config: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "golden.safetensors")
    assert main(["golden", config, "--out", out]) == 0
    capsys.readouterr()
    assert main(["verify", config, out]) == 0
    assert capsys.readouterr().out == (
        "agrees: 18 of 18 arrays of llama within rounding, as float32\n"
        "every array is bit for bit the golden file's own: was the file filled? Write\n"
        "  what the port computes over its arrays.\n"
    )
    (tmp_path / "my_port.py").write_text(
        "def port(group):\n"
        "    print('working')\n"
        "    return {'frequencies': [10000.0 ** (-i / 4) for i in range(4)]}\n"
        "def broken(group):\n"
        "    return group['nothing']\n"
    )
    own = f"{tmp_path / 'my_port.py'}:port"
    assert main(["verify", config, own, "--dtype", "float32"]) == 1
    assert capsys.readouterr().out == (
        "working\n"
        "disagrees: 1 of 1 array of llama differ by more than rounding of float32\n\n"
        "layers 0-1:\n"
        "  base left at 10,000\n"
        "    matters from position 1 on, in float32\n"
        "    correct: w_i = 20000^(-2i/8); rope_theta: 20000.0\n\n"
        "first differences:\n"
        "  layer0.frequencies, pair 1: 0.1 in the port, 0.0840896415 is right\n"
    )
    assert main(["verify", config, own, "--json"]) == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["mistakes"] == ["base left at 10,000"]
    assert said.err == "working\n"
    assert main(["verify", config, f"{tmp_path / 'my_port.py'}:broken"]) == 2
    assert capsys.readouterr().err == (
        "situs verify: port must return arrays by name for layer0, since they are compared; got KeyError at "
        f"{tmp_path / 'my_port.py'}:5, `return group['nothing']`: 'nothing'.\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["golden", "{config}", "--out", "x.txt"],
         "situs golden: --out must end in .json, .npz or .safetensors, since that tells the format; got 'x.txt'.\n"),
        (["golden", "{config}", "--out", "/nonexist/x.json"],
         "situs golden: --out must be in a folder that exists; got '/nonexist/x.json'.\n"),
        (["golden", "{config}", "--out", "{config}"],
         "situs golden: --out must be a new file, since '{config}' would be lost. Give --force to replace it.\n"),
        (["golden", "{config}", "--out", "x.json", "--length", "5,9"],
         "situs golden: --length must be one whole number of at most 18 digits, since it counts the tokens of a "
         "sequence; got '5,9'.\n"),
        (["golden", "{config}", "--out", "x.json", "--length", "9-3"],
         "situs golden: --length must be one whole number of at most 18 digits, since it counts the tokens of a "
         "sequence; got '9-3'.\n"),
        (["golden", "{config}", "--out", "x.json", "--positions", "9-3"],
         "situs golden: --positions must have ranges that begin with the smaller number; got '9-3'.\n"),
        (["golden", "{config}", "--out", "x.json", "--positions", "0," + "7" * 5000],
         f"situs golden: --positions must be numbers of at most 18 digits; got '{'7' * 59}.\n"),
        (["golden", "{config}", "--out", "x.json", "--positions", "1" + "0" * 400],
         f"situs golden: --positions must be numbers of at most 18 digits; got '1{'0' * 58}.\n"),
        (["golden", "{config}", "--out", "x.json", "--positions", "0,a"],
         "situs golden: --positions must be whole numbers with commas between them, or ranges such as 0-4; got "
         "'0,a'.\n"),
        (["golden", "{config}", "--out", "x.json", "--layers", "7"],
         "situs golden: layers must lie in 0 .. 1, since llama has 2 layers; got 7.\n"),
        (["verify", "{config}", "nowhere.npz"],
         "situs verify: port must be a file that can be read; got 'nowhere.npz': No such file or directory.\n"),
        (["verify", "nowhere.json", "port.npz"],
         "situs verify: source must be a file or a folder that can be read; got 'nowhere.json': No such file or "
         "directory.\n"),
        (["verify", "{config}", "{folder}/port.py:prot"],
         "situs verify: 'prot' must be a function in {folder}/port.py, since it is called; got None. Did you mean "
         "'port'?\n"),
    ],
)  # fmt: skip
def test_bad_input_has_exit_status_two(
    arguments: list[str], message: str, config: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "port.py").write_text("def port(group):\n    return {}\n")
    words = {"config": config, "folder": str(tmp_path)}
    assert main([each.format(**words) for each in arguments]) == 2
    assert capsys.readouterr().err == message.format(**words)
