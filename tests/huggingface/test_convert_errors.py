"""What cannot be converted is refused in a sentence, before anything is written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from situs.cli import main
from situs.huggingface import convert
from tests.huggingface.small_checkpoints import NAME, checkpoint, refused
from tests.raising import raises_exactly


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


def test_a_source_that_is_no_folder_with_a_configuration_is_told_what_to_give(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "a")
    file = source / "model.safetensors"
    told = (
        "source must be a folder with a checkpoint, since its configuration is needed too; got "
        f"{str(file)!r}, which is a file. Give the folder that it is in: {str(source)!r}."
    )
    refused(file, told)
    config = (source / "config.json").rename(tmp_path / "config.json")
    told = (
        f"source must have config.json, since it says the number and width of heads; got {str(source)!r} without it. "
        "Give the file as config (--config) where it is elsewhere."
    )
    refused(source, told)
    convert(source, tmp_path / "b", pairing="interleaved", config=config)
    assert (tmp_path / "b" / "config.json").is_file()


@pytest.mark.parametrize("name", ["source", "target"])
def test_folders_are_given_as_text_or_paths(name: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {"source": checkpoint(tmp_path / "a"), "target": tmp_path / "b", "pairing": "interleaved"}
    for wrong in (None, 3, b"folder"):
        with raises_exactly(TypeError, f"{name} must be text or a path, since it names a folder; got {wrong!r}."):
            convert(**{**given, name: wrong})
    for unnamed in ("", "a\0b"):
        told = f"{name} must be a name that a folder can have, since files are looked up by it; got {unnamed!r}."
        with raises_exactly(ValueError, told):
            convert(**{**given, name: unnamed})


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


def test_the_command_tells_what_it_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = checkpoint(tmp_path / "a"), tmp_path / "b"
    assert main(["convert", str(source), str(target), "--pairing", "interleaved"]) == 0
    out, err = capsys.readouterr()
    assert err == "1 of 1: model.safetensors\n"
    assert out == (
        f"{target}: interleaved, 2 weights of layer 0 reordered.\n"
        "transformers has no interleaved pairing for this model type, and would run these weights wrong: they are for "
        "programs that pair so. situs_pairing in config.json says it to Situs.\n"
    )
    assert main(["convert", str(source), str(target), "--pairing", "interleaved"]) == 2
    assert capsys.readouterr().err == (
        f"situs convert: target must be a new folder, since {str(target)!r} would be lost. Choose another name.\n"
    )
