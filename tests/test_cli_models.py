"""``situs inspect``, ``situs diff`` and ``situs extend`` as a person runs them."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import gguf
import pytest

from situs.cli import main
from situs.cli import models as cli_models
from situs.models import engines, fingerprint, read
from situs.models.extendable import METHODS

QWEN: dict[str, Any] = {
    "model_type": "qwen2", "hidden_size": 3584, "num_attention_heads": 28, "num_key_value_heads": 4,
    "num_hidden_layers": 28, "max_position_embeddings": 32768, "rope_theta": 1000000.0,
}  # fmt: skip
GEMMA: dict[str, Any] = {
    "model_type": "gemma3_text", "hidden_size": 1152, "num_attention_heads": 4, "num_key_value_heads": 1,
    "head_dim": 256, "num_hidden_layers": 26, "sliding_window": 512, "max_position_embeddings": 32768,
    "rope_theta": 1e6, "rope_local_base_freq": 1e4,
}  # fmt: skip


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, and a terminal of 80 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def saved(config: dict[str, Any], name: str = "config.json") -> str:
    Path(name).write_text(json.dumps(config))
    return name


def test_inspect_tells_on_one_screen_what_breaks_and_what_to_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", saved(QWEN), "--target", "131072"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("qwen2 at 131,072 tokens, as transformers reads it\n")
    assert "40-63  35,333 to 5.06 million  0.927 to 0.00647  never seen from 32,768 on" in out
    assert "Set yarn with factor 4 for 131,072 tokens." in out
    assert "--rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 32768" in out
    assert "cache of keys and values, one text, 16 bits: 7 GiB" in out
    assert "\033[" not in out
    pasted = ("{", "}", '"', "--")  # which may be as long as it has to
    assert all(len(line) <= 80 or line.strip().startswith(pasted) for line in out.splitlines())


def test_inspect_says_why_a_scaling_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    main(["inspect", saved({"model_type": "cohere2", **_small(), "sliding_window": 4096}), "--target", "1,000,000"])
    out = " ".join(capsys.readouterr().out.split())
    assert "a scaling changes nothing here, because no key is farther away than 4,095 tokens at any length" in out
    assert "a scaling of rotary changes nothing here, because these layers do not rotate" in out
    assert "No scaling of rotary is needed or would help: the layers that rotate see a window or a chunk alone" in out


def _small() -> dict[str, Any]:
    return {"hidden_size": 512, "num_attention_heads": 4, "num_hidden_layers": 4, "max_position_embeddings": 8192}


def test_inspect_lists_every_pair_where_asked(capsys: pytest.CaptureFixture[str]) -> None:
    main(["inspect", saved(QWEN), "--target", "131072", "--pairs"])
    rows = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("    ")]
    assert [row for row in rows if row.isdecimal()] == [str(index) for index in range(64)]


def test_inspect_without_a_target_takes_the_declared_length(capsys: pytest.CaptureFixture[str]) -> None:
    main(["inspect", saved(QWEN)])
    out = capsys.readouterr().out
    assert "qwen2 at 32,768 tokens" in out
    assert "Nothing has to be set: the model is made for 32,768 tokens." in out


def test_inspect_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    main(["inspect", saved(QWEN), "--target", "131072", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["advice"]["method"] == "yarn"
    assert found["parts"][0]["cache_bytes"] == 28 * 131072 * 4 * 256 * 2
    assert len(found["parts"][0]["groups"][0]["pairs"]) == 64
    assert found["parts"][0]["groups"][0]["angle_errors"]["float16"] is None
    assert set(found["engines"]) == {"transformers", "vllm", "llama.cpp"}


def test_inspect_reads_standard_input(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    given = io.TextIOWrapper(io.BytesIO(json.dumps(QWEN).encode()))
    monkeypatch.setattr(sys, "stdin", given)
    assert main(["inspect", "-", "--target", "65536"]) == 0
    assert "Set yarn with factor 2" in capsys.readouterr().out


@pytest.mark.once
def test_inspect_draws_the_spectrum(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", saved(GEMMA), "--target", "131072", "--plot", "spectrum.png"]) == 0
    assert (here / "spectrum.png").read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().err == "spectrum.png\n"


@pytest.mark.parametrize(("arguments", "said"), [
    (["inspect", "nowhere.json"], "situs inspect: source must be a file or a folder that can be read; got "
     "'nowhere.json': No such file or directory.\n"),
    (["inspect", "config.json", "--plot", "a.gif"], "situs inspect: --plot must end in .png, .svg, .pdf, since that "
     "tells the format; got 'a.gif'.\n"),
    (["diff", "-", "vllm"], "situs diff: A must be a file where B is an engine, since both read it; got standard "
     "input.\n"),
    (["extend", "config.json"], "situs extend: target or factor must be given, since one of them says how long texts "
     "become; got neither.\n"),
    (["extend", "config.json", "--target", "65536", "--out", "config.json"], "situs extend: --out must be a new file, "
     "since 'config.json' would be lost. Give --force to replace it.\n"),
])  # fmt: skip
def test_what_cannot_be_done_is_told_and_nothing_is_written(
    arguments: list[str], said: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(QWEN)
    assert main(arguments) == 2
    assert capsys.readouterr().err == said
    assert [path.name for path in here.iterdir()] == ["config.json"]
    assert json.loads((here / "config.json").read_text()) == QWEN


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_weights_in_place_of_a_configuration_are_named(
    name: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "model").mkdir()
    (here / "model" / name).write_bytes(b"\x08\0\0\0\0\0\0\0\xa1")
    assert main(["inspect", f"model/{name}"]) == 2
    assert capsys.readouterr().err == (
        f"situs inspect: source must be a configuration; got 'model/{name}', which holds weights. Give the config.json "
        f"beside it, or its folder: 'model'.\n"
    )


@pytest.mark.parametrize("target", ["0", "-4", "many", "4.5"])
def test_targets_that_count_no_tokens_are_refused(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["inspect", saved(QWEN), f"--target={target}"])
    assert stop.value.code == 2
    assert f"must be a number of tokens, such as 131072; got '{target}'." in capsys.readouterr().err


def test_diff_has_the_exit_status_of_diff(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = saved(QWEN), saved({**QWEN, "rope_theta": 10000.0}, "other.json")
    assert main(["diff", first, first]) == 0
    assert capsys.readouterr().out == "No difference: both do the same with positions.\n"
    assert main(["diff", first, second]) == 1
    assert "base: 1000000.0 and 10000.0" in capsys.readouterr().out
    assert main(["diff", first, second, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["differences"][0]["layers"] == "0-27"
    assert main(["diff", first, "nowhere.json"]) == 2


def test_diff_compares_with_an_engines_reading(capsys: pytest.CaptureFixture[str]) -> None:
    config = saved({**QWEN, "rope_scaling": {"type": "dynamic", "factor": 4.0}})
    assert main(["diff", config, "llama.cpp"]) == 1
    assert "scaling: DynamicNTKScaling" in capsys.readouterr().out


def test_extend_writes_a_new_file_and_leaves_the_old(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = saved(QWEN)
    assert main(["extend", config, "--target", "131072", "--out", "longer.json"]) == 0
    assert json.loads((here / config).read_text()) == QWEN
    longer = json.loads((here / "longer.json").read_text())
    assert longer["rope_parameters"] == {
        "rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 32768,
    }  # fmt: skip
    assert read(longer).lengths.original == 32768
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("yarn with factor 4: from 32,768 to 131,072 tokens.\nBelow 32,768 tokens, frequencies")


def test_extend_prints_json_where_no_file_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["extend", saved(QWEN), "--factor", "2", "--method", "linear"]) == 0
    assert json.loads(capsys.readouterr().out)["rope_parameters"]["factor"] == 2.0


def test_extend_replaces_a_file_where_told(here: Path) -> None:
    config = saved(QWEN)
    assert main(["extend", config, "--target", "65536", "--out", config, "--force"]) == 0
    assert json.loads((here / config).read_text())["max_position_embeddings"] == 65536


def test_what_a_model_with_parts_is_to_be_given_can_be_pasted(capsys: pytest.CaptureFixture[str]) -> None:
    gemma = {"model_type": "gemma3", "text_config": GEMMA}
    main(["inspect", saved(gemma), "--target", "131072", "--json"])
    found = json.loads(capsys.readouterr().out)
    pasted = json.loads(found["advice"]["settings"]["transformers, in config.json"])
    assert list(pasted) == ["text_config"]
    assert read({**gemma, "text_config": {**GEMMA, **pasted["text_config"], "rope_theta": None,
                                          "rope_local_base_freq": None}}).main.lengths.declared == 131072  # fmt: skip


def test_a_misspelt_engine_is_corrected(capsys: pytest.CaptureFixture[str]) -> None:
    for command, names in (("diff", ("A", "B")), ("fingerprint", ("SOURCE", "OTHER"))):
        assert main([command, saved(QWEN), "llamacpp"]) == 2
        assert capsys.readouterr().err == (
            f"situs {command}: {names[1]} must be a file, a folder or one of transformers, vllm, llama.cpp, since "
            f"{names[0]} is compared with it; got 'llamacpp'. Did you mean 'llama.cpp'?\n"
        )
    assert main(["diff", saved(QWEN), "nowhere.json"]) == 2
    assert "source must be a file or a folder that can be read; got 'nowhere.json'" in capsys.readouterr().err


def test_a_model_without_a_length_that_no_scaling_extends_is_told_why(capsys: pytest.CaptureFixture[str]) -> None:
    main(["inspect", saved({"model_type": "bloom", "hidden_size": 64, "n_head": 4, "n_layer": 2}), "--target", "4096"])
    assert (
        "No scaling of rotary is needed or would help: its scores go by ALiBi, which is defined for every distance. "
        "There is nothing to set."
    ) in " ".join(capsys.readouterr().out.split())


def test_settings_that_must_go_for_those_to_be_pasted_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    llama = saved({**QWEN, "rope_scaling": {"rope_type": "linear", "factor": 2.0}})
    main(["inspect", llama, "--target", "131072"])
    assert (
        "\n  transformers, in config.json, in place of rope_theta and rope_scaling\n    {\n" in capsys.readouterr().out
    )
    main(["inspect", llama, "--target", "131072", "--json"])
    assert json.loads(capsys.readouterr().out)["advice"]["replaces"] == ["rope_theta", "rope_scaling"]


def test_diff_with_an_engine_that_does_the_same_says_what_it_serves(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", saved(QWEN), "vllm"]) == 0
    assert capsys.readouterr().out == (
        "No difference: both do the same with positions.\nvllm serves 32,768 tokens by default.\n"
    )


@pytest.mark.parametrize(("config", "headline"), [
    ({"model_type": "mpt"}, "8,192 tokens cannot be read as it is: transformers makes a bias for 2,048 keys."),
    ({"model_type": "gptj"}, "8,192 tokens cannot be read as it is: its table of sines and cosines is made for 2,048 "
     "tokens."),
    ({"model_type": "phi3", **{key: QWEN[key] for key in ("hidden_size", "num_attention_heads")},
      "num_hidden_layers": 2, "max_position_embeddings": 2048, "num_key_value_heads": 28},
     "No method that phi3 reads carries it to 8,192 tokens."),
])  # fmt: skip
def test_advice_is_what_can_be_done(config: dict[str, Any], headline: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["inspect", saved(config), "--target", "8192", "--json"])
    advice = json.loads(capsys.readouterr().out)["advice"]
    assert advice["headline"] == headline
    if config["model_type"] != "phi3":
        assert advice["reasons"][0] in ('Set "max_seq_len": 8192.', 'Set "n_positions": 8192.')


def test_the_command_line_names_what_there_is() -> None:
    """It lists engines and methods by itself, so that help needs nothing else."""
    assert cli_models.ENGINES == engines.ENGINES
    assert cli_models.METHODS == METHODS


def test_a_gguf_file_is_inspected_as_llama_cpp_runs_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = gguf.GGUFWriter("model.gguf", "qwen3")
    writer.add_block_count(4)
    writer.add_context_length(40960)
    writer.add_embedding_length(512)
    writer.add_head_count(4)
    writer.add_key_length(128)
    writer.add_rope_freq_base(1e6)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert main(["inspect", "model.gguf", "--target", "163840"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert out.startswith("qwen3 at 163,840 tokens, as llama.cpp reads it")
    assert "Nothing can be recommended: it is a GGUF file, which holds no configuration." in out
    assert main(["extend", "model.gguf", "--target", "163840"]) == 2
    assert capsys.readouterr().err == (
        "situs extend: source must have layers of full attention that rotate by rope parameters; got qwen3: it is a "
        "GGUF file, which holds no configuration. Extend the config.json that it was converted from.\n"
    )


def test_fingerprint_prints_the_hash_that_inspect_shows(capsys: pytest.CaptureFixture[str]) -> None:
    config = saved(QWEN)
    assert main(["fingerprint", config]) == 0
    found = capsys.readouterr().out
    assert found == f"{fingerprint(QWEN)}\n"
    main(["inspect", config])
    assert f"fingerprint {found}" in capsys.readouterr().out
    assert main(["fingerprint", config, "--json"]) == 0
    rows = [{"source": config, "fingerprint": found.strip()}]
    assert json.loads(capsys.readouterr().out) == {"fingerprints": rows, "same": True}


def test_fingerprint_compares_two_sources_and_exits_as_diff_does(capsys: pytest.CaptureFixture[str]) -> None:
    first, same = saved(QWEN), saved({**QWEN, "rope_theta": None, "rope_parameters": {
        "rope_type": "default", "rope_theta": 1e6}}, "same.json")  # fmt: skip
    other = saved({**QWEN, "rope_theta": 10000.0}, "other.json")
    assert main(["fingerprint", first, same]) == 0
    told = fingerprint(QWEN)
    assert capsys.readouterr().out == f"{told}  {first}\n{told}  {same}\n"
    assert main(["fingerprint", first, other]) == 1
    assert capsys.readouterr().out == f"{told}  {first}\n{fingerprint(read(other))}  {other}\n"
    assert main(["fingerprint", first, other, "--json"]) == 1
    assert not json.loads(capsys.readouterr().out)["same"]
    assert main(["fingerprint", first, "vllm"]) == 0
    scaled = saved({**QWEN, "rope_scaling": {"type": "dynamic", "factor": 4.0}}, "scaled.json")
    assert main(["fingerprint", scaled, "vllm"]) == 1


@pytest.mark.parametrize(("arguments", "said"), [
    (["fingerprint", "nowhere.json"], "situs fingerprint: source must be a file or a folder that can be read; got "
     "'nowhere.json': No such file or directory.\n"),
    (["fingerprint", "-", "vllm"], "situs fingerprint: SOURCE must be a file where OTHER is an engine, since both read "
     "it; got standard input.\n"),
])  # fmt: skip
def test_fingerprint_refuses_in_sentences(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("columns", [60, 80, 100])
def test_lines_are_no_longer_than_the_terminal(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lists = {"short_factor": [1.0] * 64, "long_factor": [2.0] * 64}
    first = saved({**QWEN, "rope_scaling": {"type": "longrope", "original_max_position_embeddings": 8192, **lists}})
    second = saved({**QWEN, "rope_theta": 10000.0}, "other.json")
    main(["diff", first, second])
    main(["diff", saved(GEMMA, "gemma.json"), "llama.cpp"])
    main(["extend", second, "--target", "131072", "--out", "longer.json"])
    main(["golden", second, "--out", "golden.json"])
    main(["verify", second, "golden.json"])
    Path("port.py").write_text("def port(group):\n    return {'cos': group['positions'][:, None].expand(-1, 64) / 7}\n")
    assert main(["verify", second, "port.py:port"]) == 1
    said = capsys.readouterr()
    lines = [*said.out.splitlines(), *said.err.splitlines()]
    assert len(lines) > 12
    assert max(map(len, lines)) <= columns


@pytest.mark.parametrize("columns", [60, 66, 80])
def test_a_report_breaks_lines_between_words_alone(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pasted = ("{", "}", '"', "--")  # which may be as long as it has to
    for config in (QWEN, GEMMA, {**QWEN, "model_type": "qwen3_vl_moe_text", "head_dim": 128}):
        words = []
        for width in (columns, 100):
            monkeypatch.setenv("COLUMNS", str(width))
            assert main(["inspect", saved(config), "--target", "131072"]) == 0
            out = capsys.readouterr().out
            words.append(sorted(out.split()))
            assert all(len(line) <= width or line.strip().startswith(pasted) for line in out.splitlines())
        assert words[0] == words[1]


@pytest.mark.parametrize("columns", [60, 80])
def test_a_port_that_agrees_is_told_within_the_terminal(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    config = saved({**QWEN, "model_type": "qwen3_vl_moe_text", "head_dim": 128})
    main(["golden", config, "--out", "golden.json"])
    assert main(["verify", config, "golden.json"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= columns
