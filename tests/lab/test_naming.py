"""Names as people write them: any spelling, files, and scalings with options."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import situs
from situs.encodings.bands import Bands
from situs.lab.model import Decoder
from situs.lab.naming import parse, parse_all
from situs.lab.naming.methods import parse_methods
from situs.lab.naming.scalings import PAPER, RAMPED, RAMPS, make_scaling, scaled
from situs.lab.plain import from_json, to_json
from situs.lab.probing.sitters import sitters_of
from situs.lab.settings import Size
from tests.raising import raises_exactly

OWN = """
import situs

class Own(situs.NoPE):
    pass
"""


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("ALiBi", "alibi"),
        ("RoPE", "rotary"),
        ("rope+yarn", "rotary+yarn"),
        ("Rope + YaRN", "rotary+yarn"),
        ("yarn", "rotary+yarn"),
        ("yarn+random", "rotary+yarn+random"),
        ("YaRN(factor=4)", "rotary+yarn(factor=4)"),
        ("T5Bias(max_distance=40)", "t5(max_distance=40)"),
        ("Transformer-XL", "transformer_xl"),
        ("transformer xl & RoPE / NoPE", "transformer_xl&rotary/none"),
        ("Rotary+Random", "rotary+random"),
        ("rotary+AXIAL", "rotary+axial"),
        ("my:Class", "my:Class"),
        ("rotery", "rotery"),
    ],
)
def test_a_method_has_the_name_of_the_registry_however_it_is_written(written: str, name: str) -> None:
    method = parse(written)
    assert method.name == name
    assert parse(method.name) == method
    assert from_json(type(method), to_json(method)) == method


def test_a_method_that_is_written_twice_is_compared_once() -> None:
    assert [method.name for method in parse_methods("rope, RoPE,rotary , yarn,rotary+yarn")] == [
        "rotary",
        "rotary+yarn",
    ]


@pytest.mark.parametrize(
    ("written", "layers"),
    [
        ("deep/own.py", [["deep/own.py"]]),
        ("deep/own.py:Own", [["deep/own.py:Own"]]),
        ("./deep/own.py:Own(x=1)", [["./deep/own.py:Own"]]),
        ("rope/deep/own.py", [["rotary"], ["deep/own.py"]]),
        ("deep/own.py/none", [["deep/own.py"], ["none"]]),
        ("alibi&deep/own.py/rope", [["alibi", "deep/own.py"], ["rotary"]]),
        ("not/there.py:Own", [["not/there.py:Own"]]),
        ("rotary/not/there.py", [["rotary"], ["not/there.py"]]),
        ("/not/there.py/none", [["/not/there.py"], ["none"]]),
        ("alibi/own.py", [["alibi/own.py"]]),
        ("deep/own.py/deep/own.py:Own", [["deep/own.py"], ["deep/own.py:Own"]]),
    ],
)
def test_a_path_is_one_encoding_and_its_slashes_separate_no_layers(
    written: str, layers: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("deep", "alibi"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "own.py").write_text(OWN)
    method = parse(written)
    assert [[part.name for part in layer] for layer in method.pattern] == layers
    assert parse(method.name) == method


def test_a_file_is_drawn_and_compared_like_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "own.py").write_text(OWN)
    (method,) = parse_methods("deep/own.py")
    assert method.parts[0].of_ones_own
    (sitter,) = sitters_of(parse_all("deep/own.py:Own"), {}, length=2)
    assert (sitter.name, type(sitter.encodings[0]).__name__) == ("deep/own.py:Own", "Own")


def test_options_of_a_scaling_are_used_as_written_and_the_lab_chooses_the_others() -> None:
    plain = situs.Rotary(head_dim=16)

    def made(written: str) -> situs.Scaling | None:
        scaling = parse(written).scaling
        return scaled(plain, scaling, factor=8.0, train_length=64, ramp=RAMPS[0]).scaling

    fast, slow = RAMPS[0]
    assert made("yarn") == situs.YaRN(factor=8.0, original_length=64, beta_fast=fast, beta_slow=slow)
    assert made("yarn(factor=2.0)") == situs.YaRN(factor=2.0, original_length=64)
    assert made("yarn(beta_fast=4.0, beta_slow=1.0)") == situs.YaRN(
        factor=8.0, original_length=64, beta_fast=4.0, beta_slow=1.0
    )
    assert made("yarn(target_length=256)") == situs.YaRN(original_length=64, target_length=256)
    assert made("rotary+llama3(factor=8.0,original_length=8192)") == situs.Llama3Scaling(
        factor=8.0, original_length=8192
    )
    assert made("linear") == situs.LinearScaling(factor=8.0)
    assert made("proportional(fraction=0.25)") == situs.ProportionalScaling(fraction=0.25)


def test_bands_are_fitted_so_that_all_distances_are_such_as_in_training() -> None:
    def made(written: str) -> situs.Scaling:
        return make_scaling(parse(f"rotary+{written}").scaling or "", factor=8.0, train_length=64)

    assert made("selfextend") == situs.SelfExtend(window=16, group=11)
    assert made("Self-Extend(window=32)") == situs.SelfExtend(window=32, group=15)
    assert made("selfextend(window=64,group=4)") == situs.SelfExtend(window=64, group=4)
    assert made("selfextend(window=100)") == situs.SelfExtend(window=100, group=1)
    assert made("rerope") == situs.ReRoPE(window=16)
    assert made("ReRoPE(leak=0.125)") == situs.ReRoPE(window=16, leak=0.125)
    assert made("dualchunk") == situs.DualChunk(chunk_size=48, local_size=4)
    assert made("dual_chunk(chunk_size=32)") == situs.DualChunk(chunk_size=32, local_size=4)
    last, first = torch.tensor(8 * 64 - 1), torch.tensor(0)
    for name in ("selfextend", "rerope", "dualchunk"):
        bands = made(name)
        assert isinstance(bands, Bands)
        assert 0 < int(bands.distances(last, first)) < 64


def test_a_ramp_is_searched_for_scalings_without_options_alone() -> None:
    assert parse("yarn").scaling in RAMPED
    assert parse("yarn(factor=4)").scaling not in RAMPED
    assert make_scaling("yarn(factor=4.0)", factor=8.0, train_length=64, ramp=RAMPS[0]) == situs.YaRN(
        factor=4.0, original_length=64, beta_fast=PAPER[0], beta_slow=PAPER[1]
    )


def test_a_factor_that_is_written_is_that_of_every_longer_text() -> None:
    (method,) = parse_methods("rotary+linear(factor=3.0)")
    model = Decoder(method, vocabulary=2, size=Size(dim=16, layers=1, heads=1), train_length=8, seed=0)
    found = []
    for length in (8, 16, 64):
        model.scaled_to(method, length, RAMPS[0])
        (rotary,) = model.encodings
        assert isinstance(rotary, situs.Rotary)
        found.append(rotary.scaling)
    assert found == [None, situs.LinearScaling(factor=3.0), situs.LinearScaling(factor=3.0)]
    assert method.has_own_factor
    assert method.trained.name == "rotary"


@pytest.mark.parametrize(
    ("written", "description"),
    [
        ("rotary+yarn", ""),
        ("alibi", ""),
        ("llama3(factor=8,original_length=8192)", "rotary+llama3(factor=8,original_length=8192) is scaled with "
         "factor=8, original_length=8192, as written. Its factor is the same at every length beyond the training "
         "length, and not derived from the length tested; its ramp, if it has one, is not searched."),
        ("selfextend(window=32)", "rotary+selfextend(window=32) has bands with window=32, as written. What is not "
         "written follows from the training length and the length tested."),
        ("yarn(beta_fast=4.0)", "rotary+yarn(beta_fast=4.0) is scaled with beta_fast=4.0, as written. Its factor is "
         "derived from the length tested; its ramp, if it has one, is not searched."),
    ],
)  # fmt: skip
def test_a_method_says_what_its_options_change(written: str, description: str) -> None:
    assert parse(written).description == description


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("longrope", "rotary+longrope: longrope must be given short_factors and long_factors, since they were "
         "searched for one model; got none. Write longrope(short_factors=(...), long_factors=(...)) with one number "
         "per pair, as in the rope_scaling of the model's config.json."),
        ("longrope(short_factors=(1, 2))", "rotary+longrope(short_factors=(1, 2)): longrope must be given "
         "long_factors, since they were searched for one model; got none. Write longrope(short_factors=(...), "
         "long_factors=(...)) with one number per pair, as in the rope_scaling of the model's config.json."),
        ("rotary+proportional(fraction=0.5)", "rotary+proportional(fraction=0.5): proportional must be part of the "
         "training, since it takes the rotation from pairs that were trained with one, and scalings are added after it "
         "here. Use rotary(rotary_dim=...), or situs plot."),
        ("rotary+yarn(factor=0.5)", "factor must be 1 or more, since a context is stretched by it; got 0.5."),
        ("rotary+yarn(4)", "options must be written yarn(name=value, ...) with plain values, such as "
         "llama3(factor=8.0); got 'yarn(4)'."),
        ("YaRN/none", "YaRN/none: yarn must stand behind a plus where there are several encodings, since it scales the "
         "frequencies of rotary in all layers; got it as one of them. Write rotary/none+yarn, for example."),
    ],
)  # fmt: skip
def test_a_scaling_that_cannot_be_is_refused_before_training(written: str, message: str) -> None:
    with raises_exactly(ValueError, message):
        parse_methods(written)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("rope+llama3(fctor=8)", "llama3 takes factor, original_length, target_length, low_frequency_factor, "
         "high_frequency_factor; got 'fctor'. Did you mean 'factor'?"),
        ("rotary+random(seed=1)", "random takes no options; got 'seed'."),
    ],
)  # fmt: skip
def test_an_option_that_a_scaling_does_not_take_is_refused_with_what_it_takes(written: str, message: str) -> None:
    with raises_exactly(TypeError, message):
        parse_methods(written)


def test_factors_that_do_not_fit_the_head_are_refused_when_the_model_is_made() -> None:
    (method,) = parse_methods("longrope(short_factors=(1, 2), long_factors=(3, 4))")
    Decoder(method, vocabulary=2, size=Size(dim=4, layers=1, heads=1), train_length=8, seed=0)
    with raises_exactly(ValueError, "short_factors must have 8 numbers, one for each pair of 16 channels; got 2."):
        Decoder(method, vocabulary=2, size=Size(dim=16, layers=1, heads=1), train_length=8, seed=0)


def test_a_proportional_scaling_is_drawn() -> None:
    with raises_exactly(
        ValueError,
        "rotary+proportional: proportional must be given a fraction, since it rotates that share of the pairs; got "
        "none. Write proportional(fraction=0.25).",
    ):
        sitters_of(parse_all("proportional"), {}, length=2)
    (sitter,) = sitters_of(parse_all("proportional(fraction=0.25)"), {}, length=2)
    (rotary,) = sitter.encodings
    assert isinstance(rotary, situs.Rotary)
    assert rotary.scaling == situs.ProportionalScaling(fraction=0.25)


SUBCLASS = """
import torch
import situs

class Own(situs.Rotary):
    def __init__(self, *, head_dim, base=500.0, scaling=None):
        super().__init__(head_dim=head_dim, base=base, scaling=scaling)
        self.gain = torch.nn.Parameter(torch.zeros(3))

class Fixed(situs.Rotary):
    def __init__(self, *, head_dim):
        super().__init__(head_dim=head_dim)
"""


@pytest.fixture
def subclasses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "subclasses.py").write_text(SUBCLASS)


@pytest.mark.usefixtures("subclasses")
def test_a_subclass_of_rotary_is_scaled_and_keeps_its_parameters() -> None:
    (method,) = parse_methods("subclasses.py:Own+yarn")
    assert method.trained.name == "subclasses.py:Own"
    model = Decoder(method, vocabulary=2, size=Size(dim=16, layers=1, heads=1), train_length=8, seed=0).eval()
    (plain,) = model.encodings
    with torch.no_grad():
        plain.get_parameter("gain").fill_(7.0)
    model.scaled_to(method, 32, RAMPS[0])
    (made,) = model.encodings
    assert isinstance(made, situs.Rotary)
    assert type(made) is type(plain)
    assert (made.config["base"], made.training) == (500.0, False)
    assert made.config["scaling"] == make_scaling("yarn", factor=4.0, train_length=8, ramp=RAMPS[0])
    assert made.get_parameter("gain").tolist() == [7.0] * 3
    (sitter,) = sitters_of(parse_all("subclasses.py:Own+linear"), {}, length=2)
    assert sitter.encodings[0].config["scaling"] == situs.LinearScaling(factor=4.0)


@pytest.mark.usefixtures("subclasses")
def test_a_subclass_of_rotary_that_takes_no_scaling_is_told_how_to() -> None:
    message = (
        "{} must take the option {}, since it is made again with another; got a class that takes {}. Add {}=None to "
        "its __init__, and pass it on to super().__init__."
    )
    name = "subclasses.py:Fixed"
    with raises_exactly(ValueError, message.format(f"{name}+yarn: {name}", "scaling", "head_dim", "scaling")):
        parse_methods(f"{name}+yarn")
    with raises_exactly(ValueError, message.format("Fixed", "scaling", "head_dim", "scaling")):
        sitters_of(parse_all(f"{name}+yarn"), {}, length=2)
    with raises_exactly(ValueError, message.format("Own", "split", "head_dim, base, scaling", "split")):
        sitters_of(parse_all("subclasses.py:Own+axial"), {}, length=2)


def test_a_scaling_is_fitted_to_the_channels_that_are_rotated() -> None:
    (method,) = parse_methods("rotary(rotary_dim=4)+longrope(short_factors=(1, 2), long_factors=(3, 4))")
    decoder = Decoder(method, vocabulary=2, size=Size(dim=16, layers=1, heads=1), train_length=8, seed=0)
    (rotary,) = (each for each in decoder.modules() if isinstance(each, situs.Rotary))
    assert (rotary.rotary_dim, rotary.frequencies.shape[-1]) == (4, 2)
