"""A conversion takes the files that are the checkpoint, all of them together, and no others."""

from __future__ import annotations

import json
import re
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from situs.huggingface import convert, converting
from tests.huggingface.small_checkpoints import INDEX, LLAMA, NAME, checkpoint, in_shards, refused, weights_of

QWEN = {**LLAMA, "model_type": "qwen3", "num_key_value_heads": 2}
NORMS = {f"{part}_norm.weight": torch.tensor([1.0, 2.0, 3.0, 4.0]) * scale for part, scale in (("q", 1), ("k", 2))}


@pytest.mark.parametrize(
    "first", [["q_norm.weight", "k_norm.weight"], ["q_proj.weight"], ["k_proj.weight", "q_norm.weight"]]
)
def test_it_does_not_matter_which_shard_a_weight_is_in(first: list[str], tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "a", QWEN, NORMS)
    expected = convert(source, tmp_path / "whole", pairing="interleaved")
    made = convert(in_shards(source, first), tmp_path / "shards", pairing="interleaved")
    assert made.reordered == expected.reordered == 4
    found, whole = weights_of(tmp_path / "shards"), weights_of(tmp_path / "whole")
    assert found.keys() == whole.keys()
    assert all(torch.equal(found[name], whole[name]) for name in whole)
    assert found[NAME + "q_norm.weight"].tolist() == [1.0, 3.0, 2.0, 4.0]
    assert found[NAME + "k_norm.weight"].tolist() == [2.0, 6.0, 4.0, 8.0]


def test_weights_are_read_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, read = checkpoint(tmp_path / "a", QWEN, NORMS), []
    alive: list[int] = []

    class Watched:
        def __init__(self, *given: Any, **options: Any) -> None:
            self.file = safe_open(*given, **options)

        def __enter__(self) -> Watched:
            self.file.__enter__()
            return self

        def __exit__(self, *raised: object) -> None:
            self.file.__exit__(*raised)

        def get_tensor(self, name: str) -> torch.Tensor:
            found: torch.Tensor = self.file.get_tensor(name)
            read.append(weakref.ref(found))
            alive.append(sum(each() is not None for each in read))
            return found

    monkeypatch.setattr(converting, "safe_open", Watched)
    convert(source, tmp_path / "b", pairing="interleaved")
    assert alive == [1, 1, 1, 1]


def test_weights_that_nobody_knows_are_refused_in_another_shard_too(tmp_path: Path) -> None:
    told = (
        f"{NAME}q_scale must be a weight that is known, since it stands beside queries and keys and might have to be "
        "reordered with them; it is none of the projections, norms and adapters that Situs converts. Convert "
        "checkpoints before they are quantised."
    )
    refused(in_shards(checkpoint(tmp_path / "a", weights={"q_scale": torch.ones(8)}), ["q_scale"]), told)


@pytest.mark.parametrize("shards", [False, True])
def test_other_checkpoints_in_the_folder_are_left_out(shards: bool, tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "a")
    if shards:
        in_shards(source, ["q_proj.weight"])
    meta = {f"layers.0.attention.w{part}.weight": torch.randn(8, 8) for part in "qkvo"}
    save_file(meta, source / "consolidated.safetensors")
    (source / "consolidated.safetensors.index.json").write_text("{}")
    made = convert(source, tmp_path / "b", pairing="interleaved")
    assert made.left_out == ("consolidated.safetensors", "consolidated.safetensors.index.json")
    assert str(made).splitlines()[-1] == (
        "Left out, since they may hold or list weights of the old pairing: consolidated.safetensors, "
        "consolidated.safetensors.index.json."
    )
    assert {each.name for each in source.iterdir()} - {each.name for each in made.target.iterdir()} == set(
        made.left_out
    )
    assert (made.target / INDEX).exists() == shards


def test_an_index_goes_only_with_the_files_that_it_lists(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "a")
    names = (
        "pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5.index.json", "model.fp16.safetensors",
        "model.safetensors.index.fp16.json", "generation_config.json",
    )  # fmt: skip
    for name in names:
        (source / name).write_text("{}")
    made = convert(source, tmp_path / "b", pairing="interleaved")
    there = {each.name for each in made.target.iterdir()}
    assert there == {"config.json", "generation_config.json", "model.safetensors"}


def test_folders_go_along_unless_they_hold_weights(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "a")
    for name in ("1_Pooling/config.json", "original/params.json", "original/deep/consolidated.00.pth", ".git/HEAD"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("{}")
    made = convert(source, tmp_path / "b", pairing="interleaved")
    assert made.left_out == ("original/",)
    assert {str(each.relative_to(made.target)) for each in made.target.rglob("*")} == {
        "1_Pooling", "1_Pooling/config.json", "config.json", "model.safetensors",
    }  # fmt: skip


def test_a_shard_that_is_listed_must_be_there_whatever_it_holds(tmp_path: Path) -> None:
    source = in_shards(checkpoint(tmp_path / "a"), ["v_proj.weight"])
    (source / "model-1.safetensors").unlink()
    told = (
        f"source must have every shard that {INDEX} lists, since a checkpoint that is converted in part is lost; got "
        "none of model-1.safetensors. Download what is missing."
    )
    refused(source, told)
    (source / "model-1.safetensors").symlink_to(tmp_path / "gone")
    refused(source, told)


def test_a_weight_that_is_listed_must_be_in_its_shard(tmp_path: Path) -> None:
    source = in_shards(checkpoint(tmp_path / "a"), ["v_proj.weight", "o_proj.weight"])
    file = source / "model-1.safetensors"
    save_file({NAME + "o_proj.weight": torch.zeros(8, 8)}, file)
    told = f"{file} must have {NAME}v_proj.weight, since {INDEX} says so; got a file without it. Download both again."
    refused(source, told)


def test_a_weight_that_is_in_two_shards_is_refused(tmp_path: Path) -> None:
    source = in_shards(checkpoint(tmp_path / "a"), ["v_proj.weight"])
    save_file(weights_of(source), source / "model-1.safetensors")
    with pytest.raises(
        ValueError,
        match=rf"^{re.escape(NAME)}\w_proj\.weight must be in one file, since programs differ in which of two they "
        r"read; got it in model-1\.safetensors and model-2\.safetensors\. Save the model anew with save_pretrained\.$",
    ):  # which of its weights comes first is the library's choice
        convert(source, tmp_path / "new", pairing="interleaved")


def test_shards_beside_a_whole_file_are_refused(tmp_path: Path) -> None:
    source = in_shards(checkpoint(tmp_path / "a"), ["v_proj.weight"])
    save_file(weights_of(source), source / "model.safetensors")
    told = (
        f"source must have model.safetensors or the shards of {INDEX}, since programs differ in which of them they "
        f"read; got both in {str(source)!r}. Remove the older."
    )
    refused(source, told)
    (source / INDEX).write_text(json.dumps({"weight_map": {NAME + "v_proj.weight": "model.safetensors"}}))
    assert convert(source, tmp_path / "new", pairing="interleaved").left_out == (
        "model-1.safetensors", "model-2.safetensors",
    )  # fmt: skip


def test_files_that_nothing_names_are_refused(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "a")
    (source / "model.safetensors").rename(source / "model.fp16.safetensors")
    told = (
        f"source must have model.safetensors, or {INDEX} that lists its shards, since these say which files are the "
        "checkpoint; got model.fp16.safetensors. Download the index, or give a single file that name."
    )
    refused(source, told)


def test_an_index_that_says_no_files_is_refused(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "a")
    (source / INDEX).write_text(json.dumps({"weight_map": []}))
    refused(source, f"{source / INDEX} must have a weight_map, which says the file of each weight; got [].")
    for wrong in ("../b/model.safetensors", "", 3):
        (source / INDEX).write_text(json.dumps({"weight_map": {"some.weight": wrong}}))
        told = (
            f"weight_map of {source / INDEX} must name a file in the same folder for some.weight, since only those are "
            f"converted; got {wrong!r}."
        )
        refused(source, told)


def test_a_link_to_nothing_in_the_source_is_refused(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "a")
    (source / "tokenizer.json").symlink_to(tmp_path / "gone")
    told = (
        f"{source / 'tokenizer.json'} must be a file, since all files of the source go along; got something else, or a "
        "link to nothing. Remove it."
    )
    refused(source, told)
