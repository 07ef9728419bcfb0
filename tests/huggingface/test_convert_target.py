"""A target is made whole or not at all, and nothing of others is written over."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from situs.huggingface import convert
from tests.huggingface.small_checkpoints import checkpoint
from tests.raising import raises_exactly


@pytest.mark.parametrize("kind", ["an empty folder", "a full folder", "a file", "a link"])
def test_what_others_put_in_its_place_meanwhile_stays(kind: str, tmp_path: Path) -> None:
    source, target = checkpoint(tmp_path / "a"), tmp_path / "b"

    def interfere(*_: object) -> None:
        if kind == "a link":
            target.symlink_to(tmp_path / "gone")
        elif kind == "a file":
            target.write_text("mine")
        else:
            target.mkdir()
            if kind == "a full folder":
                (target / "mine").touch()

    told = (
        f"target must be a new folder, since nothing is written over; got {str(target)!r}, which somebody else made "
        "during the conversion. Choose another name."
    )
    with raises_exactly(ValueError, told):
        convert(source, target, pairing="interleaved", progress=interfere)
    assert {each.name for each in tmp_path.iterdir()} == {"a", "b"}
    assert target.is_symlink() == (kind == "a link")
    if target.is_dir():
        assert [each.name for each in target.iterdir()] == ["mine"] * (kind == "a full folder")


def failing(number: int, *names: str) -> Callable[[Path, Path], None]:
    """A copy that ends midway with an error of the system."""

    def copy(source: Path, target: Path) -> None:
        target.write_bytes(source.read_bytes()[:10])
        raise OSError(number, os.strerror(number), *names)

    return copy


def test_a_disk_that_is_full_midway_is_told_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = checkpoint(tmp_path / "a")
    told = (
        "target must be written whole, since a part of a checkpoint is of no use; got 'No space left on device', and "
        "removed what was written. Make room, or choose a target on another disk."
    )
    monkeypatch.setattr(shutil, "copyfile", failing(errno.ENOSPC, "model.safetensors"))
    with raises_exactly(ValueError, told):
        convert(source, tmp_path / "b", pairing="interleaved")
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def test_a_file_that_cannot_be_copied_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = checkpoint(tmp_path / "a")
    told = (
        "target must be written whole, since a part of a checkpoint is of no use; got 'Input/output error' for "
        "'model.safetensors', and removed what was written."
    )
    monkeypatch.setattr(shutil, "copyfile", failing(errno.EIO, "model.safetensors"))
    with raises_exactly(ValueError, told):
        convert(source, tmp_path / "b", pairing="interleaved")
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def test_a_target_that_is_a_link_to_nothing_is_refused(tmp_path: Path) -> None:
    source, target = checkpoint(tmp_path / "a"), tmp_path / "b"
    target.symlink_to(tmp_path / "gone")
    told = (
        f"target must be a new folder, since nothing is written through links; got {str(target)!r}, which is a link to "
        "nothing. Remove it, or choose another name."
    )
    with raises_exactly(ValueError, told):
        convert(source, target, pairing="interleaved")
    assert not (tmp_path / "gone").exists()


def test_a_disk_that_is_too_small_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = checkpoint(tmp_path / "a")
    size = (source / "model.safetensors").stat().st_size
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10))
    told = f"target must lie on a disk with {size:,} bytes free, since the checkpoint has as many; got 10."
    with raises_exactly(ValueError, told):
        convert(source, tmp_path / "b", pairing="interleaved")
    assert [each.name for each in tmp_path.iterdir()] == ["a"]
