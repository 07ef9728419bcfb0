"""LoRA adapters are converted as their models, and say how they are paired."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from situs.cli import main
from situs.functional.rotation import Pairing
from situs.huggingface import convert
from tests.huggingface.small_checkpoints import LLAMA, NAME, checkpoint, refused, weights_of

LOW = "base_model.model." + NAME
DEEPSEEK = {
    **LLAMA, "model_type": "deepseek_v3", "q_lora_rank": 6, "kv_lora_rank": 4, "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 4, "v_head_dim": 4, "num_key_value_heads": 2,
}  # fmt: skip


def adapter(folder: Path, base: object, projections: tuple[str, ...] = ("q_proj", "k_proj", "v_proj")) -> Path:
    """An adapter of rank 3."""
    folder.mkdir()
    torch.manual_seed(1)
    weights = {
        f"{LOW}{part}.lora_{side}.weight": torch.randn(shape)
        for part in projections
        for side, shape in (("A", (3, 8)), ("B", (16 if part == "q_b_proj" else 8, 3)))
    }
    save_file(weights, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({"r": 3, "base_model_name_or_path": str(base)}))
    return folder


def settings(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "adapter_config.json").read_text())
    return found


def test_an_adapter_is_converted_as_its_model(tmp_path: Path) -> None:
    base = checkpoint(tmp_path / "a")
    source = adapter(tmp_path / "lora", base)
    made = convert(source, tmp_path / "other", pairing="interleaved")
    assert made.reordered == 2
    low, moved, plain = weights_of(source), weights_of(made.target), weights_of(base)
    joined = {
        f"{NAME}{part}_proj.weight": plain[f"{NAME}{part}_proj.weight"]
        + low[f"{LOW}{part}_proj.lora_B.weight"] @ low[f"{LOW}{part}_proj.lora_A.weight"]
        for part in "qkv"
    }
    convert(base, tmp_path / "b", pairing="interleaved")
    save_file({**plain, **joined}, base / "model.safetensors")
    convert(base, tmp_path / "joined", pairing="interleaved")
    base_moved, expected = weights_of(tmp_path / "b"), weights_of(tmp_path / "joined")
    for part in "qkv":
        change = moved[f"{LOW}{part}_proj.lora_B.weight"] @ moved[f"{LOW}{part}_proj.lora_A.weight"]
        key = f"{NAME}{part}_proj.weight"
        torch.testing.assert_close(base_moved[key] + change, expected[key])


def test_a_converted_adapter_is_not_converted_twice(tmp_path: Path) -> None:
    base = checkpoint(tmp_path / "a")
    source = adapter(tmp_path / "lora", base)
    made = convert(source, tmp_path / "there", pairing="interleaved")
    assert settings(made.target) == {**settings(source), "situs_pairing": "interleaved"}
    refused(
        made.target, "pairing must be another one than the checkpoint has; got 'interleaved', which it has already."
    )
    back = convert(made.target, tmp_path / "back", pairing="halves")
    name = "adapter_model.safetensors"
    assert (back.target / name).read_bytes() == (source / name).read_bytes() != (made.target / name).read_bytes()
    assert settings(back.target) == settings(source)
    assert back.own_pairing
    assert back.marked is None


def test_the_mark_is_true_whichever_base_model_is_given(tmp_path: Path) -> None:
    base = checkpoint(tmp_path / "a")
    other = convert(base, tmp_path / "b", pairing="interleaved").target
    source = adapter(tmp_path / "lora", base)
    pairings: list[tuple[Pairing, Path]] = [("interleaved", other), ("halves", other), ("interleaved", base)]
    told: Pairing | None = "halves"  # which the settings do not say, and the second base model has not
    for number, (pairing, given) in enumerate(pairings):
        made = convert(source, tmp_path / f"lora-{number}", pairing=pairing, source_pairing=told, config=given)
        source, told = made.target, None
        assert settings(source)["situs_pairing"] == pairing


def test_a_base_model_with_a_setting_for_the_pairing_does_not_say_the_adapters(tmp_path: Path) -> None:
    source = adapter(tmp_path / "lora", "some/model", ("q_b_proj",))
    made = convert(source, tmp_path / "there", pairing="halves", config=DEEPSEEK)
    assert settings(made.target)["situs_pairing"] == "halves"
    assert str(made) == (
        f"{made.target}: halves, 1 weight of layer 0 reordered.\n"
        "The adapter needs a base model of the same pairing. situs_pairing in adapter_config.json says it to Situs."
    )
    back = convert(made.target, tmp_path / "back", pairing="interleaved", config=DEEPSEEK)
    assert settings(back.target) == settings(source)


def test_a_mark_that_is_no_pairing_is_refused(tmp_path: Path) -> None:
    source = adapter(tmp_path / "lora", checkpoint(tmp_path / "a"))
    (source / "adapter_config.json").write_text(json.dumps({**settings(source), "situs_pairing": "half"}))
    told = (
        "situs_pairing of adapter_config.json must be 'interleaved' or 'halves', since channels are paired one way or "
        "the other; got 'half'. Did you mean 'halves'?"
    )
    refused(source, told)


def test_the_command_says_where_the_mark_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = adapter(tmp_path / "lora", checkpoint(tmp_path / "a")), tmp_path / "b"
    assert main(["convert", str(source), str(target), "--pairing", "interleaved"]) == 0
    assert capsys.readouterr().out == (
        f"{target}: interleaved, 2 weights of layer 0 reordered.\n"
        "transformers has no interleaved pairing for this model type, and would run these weights wrong: they are for "
        "programs that pair so. The adapter needs a base model of the same pairing. situs_pairing in "
        "adapter_config.json says it to Situs.\n"
    )
    assert {each.name for each in target.iterdir()} == {"adapter_config.json", "adapter_model.safetensors"}


def test_an_adapter_needs_the_configuration_of_its_model(tmp_path: Path) -> None:
    told = (
        "config must be given for an adapter, since its heads stand in the base model's configuration; got none, and "
        "'some/model' is no folder here."
    )
    refused(adapter(tmp_path / "lora", "some/model"), told)


def test_an_adapter_of_values_alone_has_nothing_to_reorder(tmp_path: Path) -> None:
    source = adapter(tmp_path / "lora", checkpoint(tmp_path / "a"), ("v_proj",))
    refused(source, f"source must adapt queries or keys, since nothing else is reordered; got {str(source)!r}.")


def test_a_whole_model_beside_an_adapter_is_left_out(tmp_path: Path) -> None:
    base = checkpoint(tmp_path / "a")
    source = adapter(tmp_path / "lora", base)
    save_file(weights_of(base), source / "model.safetensors")
    assert convert(source, tmp_path / "b", pairing="interleaved").left_out == ("model.safetensors",)


def test_an_adapter_whose_rows_are_columns_is_refused(tmp_path: Path) -> None:
    source = adapter(tmp_path / "lora", checkpoint(tmp_path / "a"))
    file = source / "adapter_config.json"
    file.write_text(json.dumps({**settings(source), "fan_in_fan_out": True}))
    refused(source, f"fan_in_fan_out of {file} must be false, since rows are reordered; got true.")
