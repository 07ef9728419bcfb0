"""Golden files: what they hold, that they are the same on every run and in every format, and what is refused."""

from __future__ import annotations

import io
import json
import pathlib
import subprocess
import sys
import zipfile
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from situs import models
from situs.models import ConfigError, Golden, golden
from situs.models.oracle.probes import probe
from situs.models.readers.facts import model_types
from tests.models.golden_configs import ALL, CONFIGS
from tests.raising import raises_exactly

pytestmark = pytest.mark.once

TINY = {"model_type": "llama", "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2}


@pytest.mark.thin(4)
@pytest.mark.parametrize("name", ALL)
def test_every_kind_of_model_has_golden_numbers(name: str) -> None:
    found = golden(ALL[name])
    assert found.meta["schema"] == "situs-golden"
    assert found.meta["version"] == 1
    assert found.meta["fingerprint"] == models.fingerprint(ALL[name])
    assert set(found.meta["roles"]) == set(found.arrays) == set(found.meta["dtypes"])
    assert {str(each.dtype) for each in found.arrays.values()} <= {"torch.float64", "torch.int64"}
    assert all(bool(each.double().isfinite().all()) for each in found.arrays.values())
    layers = len(models.read(ALL[name]).main.layers)
    main = [each for array, each in found.outputs.items() if array.endswith("schedule.kind")]
    assert layers in [len(each) for each in main]
    for group, said in found.groups():
        assert found[f"{group}.scale"].shape == ()
        assert float(found[f"{group}.scale"]) == said["scale"]
        assert found[f"{group}.scores"].shape[-2:] == (len(found[f"{group}.positions"]),) * 2


def test_groups_are_those_of_the_model() -> None:
    found = golden(CONFIGS["gemma 3"])
    assert [name for name, _ in found.groups()] == ["layer0", "layer5"]
    assert found.meta["groups"]["layer5"]["layers"] == [5, 11, 17, 23]
    assert found.meta["groups"]["layer5"]["said"] == (
        "layers 5, 11, 17, 23: Rotary(head_dim=256, base=1000000.0, scaling=LinearScaling(factor=8.0)), scale 0.0771517"
    )
    assert found["schedule.window"][:7].tolist() == [512, 512, 512, 512, 512, 0, 512]
    parts = golden(CONFIGS["qwen3-vl"])
    assert [name for name, _ in parts.groups()] == ["vision.layer0", "text.layer0"]
    assert parts.meta["tables"]["vision.input0"]["usable_length"] == 2304


def test_layers_may_be_chosen() -> None:
    found = golden(CONFIGS["gemma 3"], layers=[11])
    assert [name for name, _ in found.groups()] == ["layer5"]
    assert found.meta["layers"] == [11]
    text = golden(CONFIGS["qwen3-vl"], layers=[3])
    assert [name for name, _ in text.groups()] == ["text.layer0"]


def test_models_that_go_by_length_have_a_short_and_a_long_sequence() -> None:
    found = golden(CONFIGS["phi 3.5"])
    assert {name: said["length"] for name, said in found.groups()} == {"layer0": 4096, "layer0.long": 1000001}
    assert found["layer0.positions"].tolist() == [0, 1, 4095]
    assert found["layer0.long.positions"].tolist() == [0, 1, 4095, 65536, 1000000]
    assert not torch.equal(found["layer0.frequencies"], found["layer0.long.frequencies"])
    one = golden(CONFIGS["phi 3.5"], positions=[7, 50000], length=100000)
    assert [name for name, _ in one.groups()] == ["layer0"]
    assert torch.equal(one["layer0.frequencies"], found["layer0.long.frequencies"])


def test_positions_end_where_a_model_ends() -> None:
    assert golden(CONFIGS["gpt2"])["input0.positions"].tolist() == [0, 1, 1023]
    assert golden(CONFIGS["roberta"])["input0.rows"].tolist() == [2, 3, 513]
    assert golden(CONFIGS["roberta"]).meta["tables"]["input0"] == {
        "part": "", "rows": 514, "first_row": 2, "padding_row": 1, "usable_length": 512,
        "encoding": {"class": "Learned", "dim": 768, "max_length": 514, "offset": 2, "padding_row": 1},
    }  # fmt: skip


def test_rows_of_a_batch_are_padded_and_packed() -> None:
    found = golden(CONFIGS["cohere2"])
    index, valid, ids = (found[f"batch.{key}"] for key in ("index", "valid", "ids"))
    mask = torch.zeros(3, 18, dtype=torch.int64)
    mask[0, 5:] = mask[1, :13] = mask[2] = 1
    assert torch.equal(mask.gather(1, index), valid)
    counted = mask.cumsum(1) - 1
    counted[2, 5:] -= 5
    assert torch.equal(counted.gather(1, index) * valid, ids)
    # BERT counts padding
    own = golden(CONFIGS["bert"])
    assert torch.equal(own["batch.ids"][0], own["batch.index"][0] * own["batch.valid"][0])
    assert own["batch.ids"][2].tolist() == [0, 1, 4, 0, 1, 5, 12]
    # temperatures begin late, and rows are as long as that
    far = golden(CONFIGS["llama 4"])
    assert int(far["batch.index"].max()) == 3 * 8192 + 2
    assert len(set(far["layer3.batch_temperature"].flatten().tolist())) > 2


def test_coordinates_on_several_axes_are_all_different() -> None:
    found = golden(CONFIGS["qwen2-vl"], positions=[0, 4095])
    assert found["layer0.positions"].tolist() == [[0, 0, 0], [4095, 4095, 4095], [0, 3, 7], [4095, 2050, 826]]
    assert found["layer0.axis_of_pair"].bincount().tolist() == [16, 24, 24]


def test_probe_numbers_are_those_of_the_recipe_and_exact_in_half_precision() -> None:
    state = 2166136261
    for byte in b"layer0.q":
        state = (state ^ byte) * 16777619 % 2**32
    numbers = []
    for _ in range(5000):
        state = (1664525 * state + 1013904223) % 2**32
        numbers.append((state // 2**25 - 64) / 64)
    made = probe("layer0.q", 50, 100)
    assert made.flatten().tolist() == numbers
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        assert torch.equal(made.to(dtype).double(), made)
    assert abs(float(made.mean())) < 0.03
    assert 0.55 < float(made.std()) < 0.6


@pytest.mark.parametrize("name", ["llama 3.1", "t5", "qwen3-vl", "m2m", "mamba"])
def test_formats_agree(name: str, tmp_path: pathlib.Path) -> None:
    made = golden(ALL[name], positions=[0, 1, 50])
    read = [Golden.load(made.save(tmp_path / f"golden{suffix}")) for suffix in (".json", ".npz", ".safetensors")]
    for each in read:
        assert each.meta == json.loads(json.dumps(made.meta))
        assert list(each.arrays) == list(made.arrays)
        assert all(torch.equal(each[key], made[key]) and each[key].dtype == made[key].dtype for key in made.arrays)
    with np.load(tmp_path / "golden.npz") as archive:  # as NumPy reads it
        assert set(archive.files) == {*made.arrays, "golden"}
        assert all(np.array_equal(archive[key], made[key].numpy()) for key in made.arrays)
        assert json.loads(bytes(archive["golden"])) == made.meta
    loaded = safetensors.torch.load_file(tmp_path / "golden.safetensors")
    assert loaded.keys() == made.arrays.keys()
    assert all(torch.equal(loaded[key], made[key]) for key in loaded)


@pytest.mark.parametrize("suffix", [".json", ".npz", ".safetensors"])
def test_bytes_are_the_same_on_every_run(suffix: str) -> None:
    made = golden(TINY, positions=[0, 3]).to_bytes(suffix)
    assert made == golden(json.dumps(TINY), positions=[3, 0, 3]).to_bytes(suffix)
    if suffix == ".npz":
        entries = zipfile.ZipFile(io.BytesIO(made)).infolist()
        assert {entry.date_time for entry in entries} == {(1980, 1, 1, 0, 0, 0)}


@pytest.mark.once
def test_bytes_are_the_same_in_another_process_whatever_its_defaults_are() -> None:
    code = (
        "import torch, sys, hashlib; torch.set_default_dtype(torch.bfloat16); torch.set_default_device('meta'); "
        "from situs import models; "
        f"sys.stdout.write(hashlib.sha256(models.golden({TINY!r}, positions=[0, 3]).to_bytes('.json')).hexdigest())"
    )
    import hashlib

    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == hashlib.sha256(golden(TINY, positions=[0, 3]).to_bytes(".json")).hexdigest()


def test_json_has_a_line_for_each_array() -> None:
    made = golden(TINY, positions=[0, 3])
    lines = made.to_json().splitlines()
    found = next(line for line in lines if line.startswith('"layer0.frequencies"'))
    assert found == '"layer0.frequencies": {"data":[1.0,0.1,0.01,0.001],"shape":[4]},'


def test_a_name_that_is_none_is_told_the_nearest() -> None:
    with raises_exactly(KeyError, "\"name must be that of an array; got 'layer0.coss'. Did you mean 'layer0.cos'?\""):
        golden(TINY)["layer0.coss"]


@pytest.mark.parametrize("name", [0, None, b"x"])
def test_a_name_that_is_no_text_is_refused(name: Any) -> None:
    with raises_exactly(TypeError, f"name must be text, since arrays have names such as 'layer0.cos'; got {name!r}."):
        golden(TINY)[name]


@pytest.mark.parametrize(
    ("path", "error", "message"),
    [
        (None, TypeError, "path must be text or a path, since it names a file; got None."),
        (b"x.json", TypeError, "path must be text or a path, since it names a file; got b'x.json'."),
        ("x\0.json", ValueError,
         "path must be a file that can be written; got 'x\\x00.json': embedded null byte."),
        ("/nonexist/x.json", ValueError,
         "path must be a file that can be written; got '/nonexist/x.json': No such file or directory."),
        ("/" + "x" * 300 + ".json", ValueError,
         f"path must be a file that can be written; got '/{'x' * 158}...': File name too long."),
    ],
)  # fmt: skip
def test_paths_that_cannot_be_written_are_refused(path: Any, error: type[Exception], message: str) -> None:
    with raises_exactly(error, message):
        golden(TINY, positions=[0]).save(path)


def test_paths_that_cannot_be_read_are_refused() -> None:
    with raises_exactly(TypeError, "path must be text or a path, since it names a file; got None."):
        Golden.load(None)  # type: ignore[arg-type]
    with raises_exactly(ConfigError, "path must be a file that can be read; got 'x\\x00.json': embedded null byte."):
        Golden.load("x\0.json")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"positions": []}, ValueError,
         "positions must be one or more, since numbers are computed at each; got none."),
        ({"positions": [-1]}, ValueError,
         "positions must lie in 0 .. 281474976710656, since tokens are counted from 0; got -1."),
        ({"positions": [1.5]}, TypeError,
         "positions must be a whole number, since tokens are counted from 0; got 1.5."),
        ({"positions": 0}, TypeError,
         "positions must be a list of whole numbers, since numbers are computed at each; got 0."),
        ({"positions": None}, TypeError,
         "positions must be a list of whole numbers, since numbers are computed at each; got None."),
        ({"positions": True}, TypeError,
         "positions must be a list of whole numbers, since numbers are computed at each; got True."),
        ({"positions": float("nan")}, TypeError,
         "positions must be a list of whole numbers, since numbers are computed at each; got nan."),
        ({"positions": b"x"}, TypeError,
         "positions must be a list of whole numbers, since numbers are computed at each; got b'x'."),
        ({"positions": [10**5000]}, ValueError,
         "positions must lie in 0 .. 281474976710656, since tokens are counted from 0; got one of about 5,000 "
         "digits."),
        ({"layers": 0}, TypeError,
         "layers must be a list of whole numbers, since the groups of these are computed; got 0."),
        ({"length": 10**400}, ValueError,
         "length must lie in 1 .. 9007199254740992, since it counts the tokens of a sequence; got one of about 400 "
         "digits."),
        ({"length": 2**53 + 1}, ValueError,
         "length must lie in 1 .. 9007199254740992, since it counts the tokens of a sequence; got 9007199254740993."),
        ({"layers": [2]}, ValueError, "layers must lie in 0 .. 1, since llama has 2 layers; got 2."),
        ({"layers": []}, ValueError, "layers must be one or more; got none. Leave it out for all of them."),
        ({"length": 0}, ValueError,
         "length must lie in 1 .. 9007199254740992, since it counts the tokens of a sequence; got 0."),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_for_is_refused(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with raises_exactly(error, message):
        golden(TINY, **options)


def test_files_of_other_kinds_are_refused(tmp_path: pathlib.Path) -> None:
    made = golden(TINY, positions=[0])
    with raises_exactly(
        ConfigError,
        "path must end in .json, .npz or .safetensors, since that tells the format; got 'golden.txt'.",
    ):
        made.save(tmp_path / "golden.txt")
    (tmp_path / "arrays.json").write_text('{"layer0.cos": [1.0]}')
    with raises_exactly(
        ConfigError, "arrays.json must be a golden file, which says what model it is of; got arrays alone."
    ):
        Golden.load(tmp_path / "arrays.json")
    held = made.to_bytes(".safetensors")
    for suffix, cut in ((".safetensors", held[: len(held) // 2]), (".npz", made.to_bytes(".npz")[:-40])):
        (tmp_path / f"cut{suffix}").write_bytes(cut)
        with pytest.raises(ConfigError, match=rf"^cut{suffix} must be a whole {suffix} file of numbers, since its "):
            Golden.load(tmp_path / f"cut{suffix}")
    damaged = bytearray(made.to_bytes(".npz"))
    damaged[100:140] = b"\xff" * 40
    (tmp_path / "damaged.npz").write_bytes(damaged)
    with raises_exactly(
        ConfigError,
        "damaged.npz must be a whole .npz file of numbers, since its arrays are compared; got one that cannot be read: "
        "Error -3 while decompressing data: invalid bit length repeat.",
    ):
        Golden.load(tmp_path / "damaged.npz")


@pytest.mark.once
def test_reading_loads_no_torch_until_numbers_are_asked_for() -> None:
    code = (
        "import sys; from situs import models; models.read({'model_type': 'llama'}); a = 'torch' in sys.modules; "
        "models.golden; print(a, 'torch' in sys.modules, 'golden' in dir(models))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False True True\n"


@pytest.mark.thin(20)
@pytest.mark.parametrize("model_type", model_types())
def test_every_model_type_that_is_read_has_golden_numbers_that_verify(model_type: str) -> None:
    try:
        model = models.read({"model_type": model_type})
    except ConfigError:
        pytest.skip("not read by its defaults")
    made = golden(model, positions=[0, 1, 100, 5000])
    assert all(bool(each.double().isfinite().all()) for each in made.arrays.values())
    assert models.verify(model, dict(made.outputs), positions=[0, 1, 100, 5000]).agrees


def test_nobody_elses_random_numbers_are_used_up() -> None:
    torch.manual_seed(3)
    alone = torch.rand(3)
    torch.manual_seed(3)
    golden(CONFIGS["t5"])
    assert torch.equal(torch.rand(3), alone)


def test_arrays_are_the_callers_own() -> None:
    first = golden(TINY, positions=[0, 3])
    kept = first["layer0.q"].clone()
    first["layer0.q"].zero_()
    assert torch.equal(golden(TINY, positions=[0, 3])["layer0.q"], kept)
