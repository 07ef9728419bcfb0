"""What was asked is checked before anything is measured, each mistake in one sentence; what is chosen is told."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import situs.huggingface
from situs.cli import main
from situs.lab.evaluating import plan as planning
from situs.lab.evaluating.budget import Speed
from situs.lab.evaluating.plan import in_tokens, make_plan
from situs.lab.evaluating.scalings import NAMES, named, names_in
from tests.lab.evaluating.small_models import TRAINED, hf, llama, saved, with_tokenizer
from tests.raising import raises_exactly

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    ("given", "trained", "expected"),
    [
        ((1, 2, 4), 64, [64, 128, 256]),
        ((4, 2), 4096, [4096, 8192, 16384]),
        ((4096, 8192), 4096, [4096, 8192]),
        ((8192,), 4096, [4096, 8192]),
        ((1024, 2048), 131072, [1024, 2048]),
        ((63,), 2, [2, 126]),
        ((64,), 2, [2, 64]),
    ],
)
def test_numbers_below_64_are_multiples_and_others_tokens(given: Any, trained: int, expected: list[int]) -> None:
    assert in_tokens(given, trained) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((1, 2, 8192), "lengths must all be multiples of the trained length, below 64, or all tokens, 64 or more, "
         "since both at once are ambiguous; got 1,2,8192."),
        ((0, 2), "lengths must be whole numbers, 1 or more, such as 1,2,4 or 4096,8192; got 0,2."),
        ((), "lengths must be whole numbers, 1 or more, such as 1,2,4 or 4096,8192; got none."),
    ],
)  # fmt: skip
def test_lengths_that_are_ambiguous_are_refused(given: Any, message: str) -> None:
    with raises_exactly(ValueError, message):
        in_tokens(given, 4096)


@pytest.mark.parametrize(
    ("written", "text", "name"),
    [
        ("yarn", "yarn", "yarn"), ("YaRN", "yarn", "yarn"), ("SelfExtend", "self-extend", "self-extend"),
        ("self_extend(window=8, group=2)", "self-extend(window=8, group=2)", "self-extend"),
        ("dynamic_ntk", "dynamic", "dynamic"), ("dualchunk", "dual-chunk", "dual-chunk"),
        ("yarn( factor = 2 )", "yarn(factor=2)", "yarn"),
    ],
)  # fmt: skip
def test_scalings_are_known_by_any_spelling(written: str, text: str, name: str) -> None:
    found = named(written)
    assert (found.text, found.name) == (text, name)


def test_none_comes_first_and_each_scaling_once() -> None:
    assert [each.text for each in names_in("yarn,ntk,YaRN,yarn(factor=2)")] == ["none", "yarn", "ntk", "yarn(factor=2)"]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("yarm", f"scalings must be among {', '.join(NAMES)}; got 'yarm'. Did you mean 'yarn'?"),
        (
            "yarn(beta_fast=2)",
            "yarn must be written with factor, since the rest follows from the model; got 'beta_fast'.",
        ),
        (
            "none(factor=2)",
            "none must be written with no options, since the rest follows from the model; got 'factor'.",
        ),
        (",", "scalings must be names separated by commas, such as none,linear,yarn; got ','."),
        (
            "self-extend(groups=2)",
            "self-extend must be written with window and group, since the rest follows from the model; got 'groups'.",
        ),
        (
            "yarn(factor=2, factor=3)",
            "options must be given once each, since only one can hold; got 'yarn(factor=2, factor=3)'.",
        ),
    ],
)
def test_a_wrong_scaling_gets_a_sentence(written: str, message: str) -> None:
    with raises_exactly(ValueError, message):
        names_in(written)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tasks", "copy"], "tasks must be among text, passkey; got 'copy'."),
        (["--tasks", ","], "tasks must be names separated by commas, such as text,passkey; got ','."),
        (["--windows", "1"], "--windows must be 2 or more, since intervals tell how texts differ; got 1."),
        (["--original", "1"], "--original must be 2 or more, since it counts the tokens of a text; got 1."),
        (["--dtype", "int8"], "--dtype must be one of auto, float32, bfloat16, float16; got 'int8'."),
        (["--device", "meta"],
         "device must hold numbers, since models are trained on it; got 'meta'. Use cpu, cuda or mps."),
        (["--lengths", "1"], "lengths must go beyond 64, the tokens that the model was trained on, since scalings are "
         "for longer texts; got 64 at most. Give longer ones, --original, or --scalings none."),
        (["--lengths", "1,4096"], "lengths must all be multiples of the trained length, below 64, or all tokens, 64 or "
         "more, since both at once are ambiguous; got 1,4096."),
        (["--text", "no/such/file"], "--text must exist, since text is read from it; got 'no/such/file'."),
        (["--text", ""], "--text must exist, since text is read from it; got ''."),
        (["--tasks", "passkey", "--text", "x.txt"], "--text must go with the task text, since no other reads it; got "
         "--tasks passkey."),
        (["--address", "x:1"], "--address must go with --engine ray, since processes here have none; got --engine "
         "local."),
        (["--gpus-per-trial", "-1", "--engine", "ray"], "gpus-per-trial must not be negative; got -1.0."),
        (["--trial-timeout", "0"],
         "trial-timeout must be positive, since a trial takes some time; got 0. Use inf for no limit."),
        (["--tasks", "passkey", "--original", "32", "--lengths", "1,4"], "length must be 63 or more for passkey, since "
         "a text holds a needle of 28, a question of 21, an answer of 6 and 8 tokens of filler; got 32. Test longer "
         "texts, or leave passkey out with --tasks text."),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("in_this_process")
def test_a_wrong_wish_is_one_sentence_and_leaves_no_folder(
    arguments: list[str], message: str, random_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["evaluate", str(random_model), "--out", str(out), *arguments]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"situs evaluate: {message}"
    assert not out.exists()


def test_a_text_that_is_too_short_is_refused(random_model: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("a line of a text that is short\n" * 8)
    with raises_exactly(
        ValueError,
        "lengths must be at most 248, since a text lies in one file and the longest of text.txt has as many bytes; got "
        "256. Test shorter lengths, or give longer files with --text.",
    ):
        make_plan(random_model, text=str(text), lengths=(1, 4))
    with raises_exactly(
        ValueError,
        "--windows must be at most 121, as many texts of 128 bytes as text.txt has; got 122. Use fewer, or give more "
        "text with --text.",
    ):
        make_plan(random_model, text=str(text), lengths=(1, 2), windows=122)
    plan = make_plan(random_model, text=str(text), windows=4)
    assert plan.lengths == [64, 128]
    assert (
        "Lengths end at 128, since the longest file of text.txt has 248 bytes. Give longer files with --text."
        in plan.remarks
    )
    assert [remark for remark in plan.remarks if remark.startswith("Texts overlap")] == [
        "Texts overlap: 4 of 128 bytes are taken from 248, so that intervals are narrower than they should be. Give "
        "more text with --text."
    ]


def test_passkey_alone_needs_no_text_and_is_found_again_with_another(random_model: Path, tmp_path: Path) -> None:
    alone = make_plan(random_model, tasks="passkey", windows=2, lengths=(1, 60), scalings="yarn")
    assert alone.bench.tokens.documents == []
    text = tmp_path / "text.txt"
    text.write_text("".join(f"line {number} of a text\n" for number in range(400)))
    beside = make_plan(random_model, text=str(text), windows=2, lengths=(1, 60), scalings="yarn")
    keys = [{trial.key for trial in plan.trials if trial.task == "passkey"} for plan in (alone, beside)]
    assert len(keys[0] & keys[1]) == 4


def test_passkey_is_left_out_with_a_word_where_it_was_not_asked_for(random_model: Path) -> None:
    plan = make_plan(random_model, original=32, windows=2)
    assert plan.tasks == ["text"]
    said = "Passkey is left out: length must be 63 or more for passkey, since"
    assert any(remark.startswith(said) for remark in plan.remarks)


def test_an_evaluation_that_would_take_too_long_is_made_smaller_or_refused(
    random_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_: object) -> Speed:
        return Speed(seconds=0.02, quadratic=0.0)

    monkeypatch.setattr(planning, "speed_of", slow)
    plan = make_plan(random_model)
    assert (plan.lengths, plan.setup.windows) == ([64, 128, 256], 8)
    assert any(
        remark == "8 texts of up to 256 tokens are read, since 16 of up to 256 would take about 33 min. Give --lengths "
        "and --windows for more." for remark in plan.remarks
    )  # fmt: skip
    monkeypatch.setattr(planning, "speed_of", lambda *_: Speed(seconds=1.0, quadratic=0.0))
    with raises_exactly(
        ValueError,
        "the evaluation must take at most 30 min by the estimate, since neither lengths nor windows were given; got "
        "3.0 h for 4 texts of up to 128 tokens. Give --lengths or --windows to run it as long as it takes, or fewer "
        "--scalings.",
    ):
        make_plan(random_model)
    assert make_plan(random_model, lengths=(1, 4)).lengths == [64, 256]  # what was asked for stays


def test_folders_that_hold_no_model_are_refused(random_model: Path, tmp_path: Path) -> None:
    with raises_exactly(ValueError, "MODEL_DIR must be a folder with a checkpoint; got 'nowhere', which is none."):
        make_plan(Path("nowhere"))
    pickled = tmp_path / "pickled"
    shutil.copytree(random_model, pickled)
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    with raises_exactly(
        ValueError,
        "MODEL_DIR must have safetensors, since a pickle runs whatever code is in it when it is read; got "
        "pytorch_model.bin. Load the model where you trust it, and save it with save_pretrained.",
    ):
        make_plan(pickled)
    bare = tmp_path / "bare"
    shutil.copytree(random_model, bare)
    (bare / "config.json").unlink()
    with raises_exactly(
        ValueError, f"MODEL_DIR must have a config.json, since it says what the model is; got {str(bare)!r}."
    ):
        make_plan(bare)


def changed(source: Path, target: Path, **settings: Any) -> Path:
    """A copy of a model with other settings."""
    shutil.copytree(source, target)
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, **settings}))
    return target


def test_weights_that_are_missing_or_do_not_fit_are_refused(random_model: Path, tmp_path: Path) -> None:
    deeper = changed(random_model, tmp_path / "deeper", num_hidden_layers=3)
    with pytest.raises(
        ValueError,
        match=r"^MODEL_DIR must have all weights, since missing ones would be random numbers; got '.*' without "
        r"model\.layers\.2\.input_layernorm\.weight, .* and 6 more\.$",
    ):
        make_plan(deeper)
    wider = changed(random_model, tmp_path / "wider", intermediate_size=96)
    with raises_exactly(
        ValueError,
        f"MODEL_DIR must hold weights that fit its configuration; got {str(wider)!r}: "
        f"model.layers.0.mlp.down_proj.weight is (64, 128) there, and (64, 96) by the configuration.",
    ):
        make_plan(wider)


def test_weights_that_the_model_has_no_place_for_are_told(random_model: Path, tmp_path: Path) -> None:
    shallow = changed(random_model, tmp_path / "shallow", num_hidden_layers=1)
    assert (
        "Weights that the model has no place for are left out: model.layers.1.input_layernorm.weight, "
        "model.layers.1.mlp.down_proj.weight, model.layers.1.mlp.gate_proj.weight and 6 more. If it should have one, "
        "its configuration is of another model."
    ) in make_plan(shallow, windows=2, lengths=(1, 2)).remarks
    assert not any("no place" in said for said in make_plan(random_model, windows=2, lengths=(1, 2)).remarks)


def test_a_configuration_that_transformers_refuses_is_one_sentence(random_model: Path, tmp_path: Path) -> None:
    folder = changed(random_model, tmp_path / "heads", num_attention_heads=3)
    with raises_exactly(
        ValueError,
        f"MODEL_DIR must have a config.json that transformers can read; got {str(folder)!r}: Class validation error "
        f"for validator 'validate_architecture': ValueError: The hidden size (64) is not a multiple of the number of "
        f"attention heads (3).",
    ):
        make_plan(folder)
    other = changed(random_model, tmp_path / "attention", attn_implementation="fast")
    with pytest.raises(ValueError, match=r"^MODEL_DIR must load in transformers; got '.*attention': .*fast"):
        make_plan(other)


def test_text_that_is_not_utf_8_is_refused(random_model: Path, tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes("é".encode("latin-1") * 5000)
    with raises_exactly(
        ValueError,
        f"--text must be UTF-8, since it is read as such; got {str(tmp_path / 'latin.txt')!r}, which is not. Save it "
        f"as UTF-8, or give another.",
    ):
        make_plan(random_model, text=str(tmp_path / "latin.txt"))


def test_weights_that_do_not_fit_in_memory_are_refused(random_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("situs.lab.evaluating.loading.memory", lambda: 100_000)
    with raises_exactly(
        ValueError,
        f"MODEL_DIR must fit in memory; got {str(random_model)!r} with 1 MiB of weights, of 1 MiB. Use a machine with "
        "more, or another --device.",
    ):
        make_plan(random_model)
    monkeypatch.undo()
    monkeypatch.setattr("situs.lab.evaluating.budget.memory", lambda: 1_000_000)
    with pytest.raises(
        ValueError,
        match=r"^the longest text must fit in memory beside the weights; got 256 tokens, which take about \d MiB of 1 "
        r"MiB\. Test shorter lengths, or use --dtype bfloat16\.$",
    ):
        make_plan(random_model)


def test_code_in_the_folder_is_not_run(random_model: Path, tmp_path: Path) -> None:
    own = changed(
        random_model, tmp_path / "own", model_type="my_llama", auto_map={"AutoModelForCausalLM": "modeling.Mine"}
    )
    (own / "modeling.py").write_text("raise SystemExit('run')")
    with pytest.raises(
        ValueError,
        match=r"^model_type must be one that transformers [\d.]+ has, since code that a folder brings along is not "
        r"run; got 'my_llama'\.$",
    ):
        make_plan(own, original=64)


def test_a_model_without_a_next_token_is_refused(tmp_path: Path) -> None:
    sizes = {"vocab_size": 256, "d_model": 16, "d_kv": 8, "num_heads": 2, "d_ff": 16, "num_layers": 1}
    folder = saved(hf.T5ForConditionalGeneration(hf.T5Config(**sizes)), tmp_path / "t5")
    with raises_exactly(
        ValueError,
        "MODEL_DIR must hold a model that predicts the next token, since its loss is measured; got t5, for which "
        "transformers has no such class.",
    ):
        make_plan(folder, original=64)


def test_a_model_that_reads_by_an_encoder_is_refused(tmp_path: Path) -> None:
    sizes = {"vocab_size": 256, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "decoder_ffn_dim": 16}
    config = hf.BartConfig(**sizes, **heads, max_position_embeddings=64)
    with raises_exactly(
        ValueError,
        "MODEL_DIR must hold a model that predicts the next token from those before it alone, since its loss is "
        "measured so; got bart with an encoder.",
    ):
        make_plan(saved(hf.BartForConditionalGeneration(config), tmp_path / "bart"), original=64)


def test_a_model_whose_tokens_see_later_ones_is_refused(tmp_path: Path) -> None:
    sizes = {"vocab_size": 256, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = hf.BertConfig(**sizes, intermediate_size=16, max_position_embeddings=64)
    folder = saved(hf.BertForMaskedLM(config), tmp_path / "bert")
    with raises_exactly(
        ValueError,
        "MODEL_DIR must hold a model that predicts the next token from those before it alone, since its loss is "
        "measured so; got bert, whose tokens see those after them.",
    ):
        make_plan(folder, original=32)
    decoder = changed(folder, tmp_path / "decoder", is_decoder=True)
    assert make_plan(decoder, original=32, lengths=(1, 2), windows=2, tasks="text", scalings="none").trials


def test_a_checkpoint_whose_pairing_transformers_does_not_run_is_refused(random_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "converted"
    situs.huggingface.convert(random_model, folder, pairing="interleaved")
    with raises_exactly(
        ValueError,
        f"MODEL_DIR must have the pairing that transformers rotates by, since the model runs there; got "
        f"{str(folder)!r}, which was converted to 'interleaved'. Evaluate the checkpoint that it was made from, whose "
        f"positions are the same, or convert it back with situs convert.",
    ):
        make_plan(folder)


def test_inspect_says_that_only_situs_reads_the_pairing_of_a_converted_checkpoint(
    random_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    situs.huggingface.convert(random_model, tmp_path / "converted", pairing="interleaved")
    assert main(["inspect", str(tmp_path / "converted")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    note = (
        "note: situs_pairing: only Situs reads it; transformers, vLLM and llama.cpp pair channels otherwise in this "
        "model type, and run these weights wrong"
    )
    assert note in said


def test_bytes_need_256_ids(tmp_path: Path) -> None:
    folder = saved(llama(vocab_size=200), tmp_path / "few")
    with raises_exactly(
        ValueError,
        f"MODEL_DIR must have a tokenizer, since the model has 200 ids and bytes need 256; got {str(folder)!r} without "
        f"one. Put tokenizer.json there.",
    ):
        make_plan(folder)


def test_a_tokenizer_of_another_model_is_refused(random_model: Path, tmp_path: Path) -> None:
    folder = with_tokenizer(shutil.copytree(random_model, tmp_path / "other"), words=300)
    match = r"^tokenizer must have ids below 256, as many as the model has rows for; got \d+\."
    with pytest.raises(ValueError, match=match):
        make_plan(folder)


def test_a_tokenizer_begins_every_text_and_all_lengths_end_at_the_same_tokens(tmp_path: Path) -> None:
    folder = with_tokenizer(saved(llama(vocab_size=400), tmp_path / "tokenised"))
    plan = make_plan(folder, windows=4, lengths=(1, 2))
    assert plan.bench.reader.prefix == (0,)
    assert plan.bench.tokens.facts.unit == "token"
    assert plan.remarks[0] == f"Texts are tokenised by {plan.bench.reader.name}, with 1 token before every text."
    near, far = (plan.bench.tokens.windows(length, target=128, count=4) for length in (64, 128))
    assert near.shape == (4, 64)
    assert far.shape == (4, 128)
    assert (near[:, 0] == 0).all()
    assert (far[:, 0] == 0).all()
    assert torch.equal(near[:, 1:], far[:, -63:])
    needle = plan.needles[0]
    assert needle.parts["beginning"] == 1
    assert needle.length == 64


def test_a_model_that_does_not_rotate_is_measured_as_it_is(tmp_path: Path) -> None:
    config = hf.BloomConfig(vocab_size=256, hidden_size=32, n_head=4, n_layer=1)
    folder = saved(hf.BloomForCausalLM(config).eval(), tmp_path / "bloom")
    plan = make_plan(folder, original=64, lengths=(1, 2), windows=2, scalings="yarn,self-extend")
    assert plan.refused.keys() == {"yarn", "self-extend"}
    assert "ALiBi, which is defined for every distance. There is nothing to set." in plan.refused["yarn"]
    assert plan.refused["self-extend"].startswith(
        "model must have layers of full attention that rotate, since bands change the distances that they rotate by; "
        "got bloom: its scores go by ALiBi"
    )
    assert {trial.scaling for trial in plan.trials} == {"none"}


def test_a_model_whose_configuration_names_no_length_needs_one(tmp_path: Path) -> None:
    config = hf.BloomConfig(vocab_size=256, hidden_size=32, n_head=4, n_layer=1)
    folder = saved(hf.BloomForCausalLM(config).eval(), tmp_path / "bloom")
    with raises_exactly(
        ValueError,
        "--original must be given for bloom, since its configuration names no length that it was trained on; got none.",
    ):
        make_plan(folder)


def test_the_trained_length_is_what_the_configuration_says(random_model: Path) -> None:
    assert make_plan(random_model, windows=2, tasks="text").setup.trained == TRAINED
