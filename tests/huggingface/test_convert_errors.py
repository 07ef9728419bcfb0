"""What cannot be converted is refused in a sentence, before anything is written."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from situs.cli import main
from situs.huggingface import convert
from tests.raising import raises_exactly

LLAMA = {"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "head_dim": 4}
NAME = "model.layers.0.self_attn."


def checkpoint(
    folder: Path, config: dict[str, Any] | None = None, weights: Mapping[str, torch.Tensor | None] | None = None
) -> Path:
    """A checkpoint of one layer; weights may be added, or left out where they are None."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA if config is None else config))
    all_weights = {f"{part}_proj.weight": torch.randn(8, 8) for part in "qkvo"} | dict(weights or {})
    there = {NAME + name: each for name, each in all_weights.items() if each is not None}
    save_file(there, folder / "model.safetensors")
    return folder


def refused(source: Path, message: str, **options: Any) -> None:
    with raises_exactly(ValueError, message):
        convert(source, source.parent / "new", **{"pairing": "interleaved", **options})
    assert not (source.parent / "new").exists()
    assert not list(source.parent.glob(".*"))


def test_pairings_have_two_names(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "a")
    rule = "must be 'interleaved' or 'halves', since channels are paired one way or the other; got 'half'."
    refused(source, f"pairing {rule} Did you mean 'halves'?", pairing="half")
    refused(source, f"source_pairing {rule} Did you mean 'halves'?", source_pairing="half")


def test_the_pairing_that_a_checkpoint_has_is_refused(tmp_path: Path) -> None:
    told = "pairing must be another one than the checkpoint has; got 'halves', which it has already."
    refused(checkpoint(tmp_path / "a"), told, pairing="halves")


def test_pickles_are_refused_with_the_reason(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "a")
    (source / "model.safetensors").rename(source / "pytorch_model.bin")
    told = (
        "source must have safetensors, since a pickle runs whatever code is in it when it is read; got "
        "pytorch_model.bin. Load the model where you trust it, and save it with save_pretrained."
    )
    refused(source, told)
    (source / "pytorch_model.bin").unlink()
    refused(source, f"source must have safetensors; got {str(source)!r} without any.")
    gone = tmp_path / "gone"
    refused(gone, f"source must be a folder with a checkpoint; got {str(gone)!r}, which is none.")


def test_a_folder_that_is_there_is_never_written_over(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "a")
    told = f"target must be a new folder, since {str(source)!r} would be lost. Choose another name."
    with pytest.raises(ValueError, match=f"^{re.escape(told)}$"):
        convert(source, source, pairing="interleaved")
    far = tmp_path / "no" / "folder"
    told = f"target must be in a folder that exists and can be written to; got {str(far)!r}."
    with pytest.raises(ValueError, match=f"^{re.escape(told)}$"):
        convert(source, far, pairing="interleaved")


def test_models_that_do_not_rotate_are_refused(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "a", {"model_type": "bloom", "hidden_size": 8, "n_head": 2, "n_layer": 1})
    refused(source, "source must rotate queries and keys, since only rotary pairs channels; got bloom, which does not.")


@pytest.mark.parametrize("name", ["q_proj.qweight", "k_proj.weight_scale_inv", "indexer.wq_b.weight"])
def test_weights_beside_queries_that_nobody_knows_are_refused(name: str, tmp_path: Path) -> None:
    told = (
        f"{NAME}{name} must be a weight that is known, since it stands beside queries and keys and might have to be "
        "reordered with them; it is none of the projections, norms and adapters that Situs converts. Convert "
        "checkpoints before they are quantised."
    )
    refused(checkpoint(tmp_path / "a", weights={name: torch.zeros(8, 8)}), told)


def test_a_missing_shard_is_noticed(tmp_path: Path) -> None:
    told = (
        "source must have weights of keys in layer 0, under names that are known, since a checkpoint that is converted "
        "in part is lost; got none of them. Is a shard missing?"
    )
    refused(checkpoint(tmp_path / "a", weights={"k_proj.weight": None}), told)


def test_weights_of_another_configuration_are_refused(tmp_path: Path) -> None:
    told = (
        f"{NAME}k_proj.weight must have 8 rows, since the configuration gives its heads that many channels; got shape "
        "(4, 8). Is this its configuration?"
    )
    refused(checkpoint(tmp_path / "a", weights={"k_proj.weight": torch.zeros(4, 8)}), told)


def test_a_file_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "a")
    file = source / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(
        ValueError, match=r"model\.safetensors must be a whole file of safetensors; got one that cannot"
    ):
        convert(source, tmp_path / "new", pairing="interleaved")
    assert not (tmp_path / "new").exists()


def test_an_adapter_needs_the_configuration_of_its_model(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "a")
    (source / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "some/model"}))
    told = (
        "config must be given for an adapter, since its heads stand in the base model's configuration; got none, and "
        "'some/model' is no folder here."
    )
    refused(source, told)


def test_the_command_tells_what_it_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = checkpoint(tmp_path / "a"), tmp_path / "b"
    assert main(["convert", str(source), str(target), "--pairing", "interleaved"]) == 0
    out, err = capsys.readouterr()
    assert err == "1 of 1: model.safetensors\n"
    assert out == (
        f"{target}: interleaved, 2 weights of layer 0 reordered.\n"
        "transformers has no interleaved for this model type, and would run these weights wrong: they are for programs "
        "that pair so. situs_pairing in config.json says it to Situs.\n"
    )
    assert main(["convert", str(source), str(target), "--pairing", "interleaved"]) == 2
    assert capsys.readouterr().err == (
        f"situs convert: target must be a new folder, since {str(target)!r} would be lost. Choose another name.\n"
    )
