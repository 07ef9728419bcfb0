"""Encodings by the names that people write."""

import inspect

import pytest
import torch

import situs
from situs.registry import SCALINGS, canonical, fold, scaling_named
from situs.registry.spelling import SYNONYMS
from tests.raising import raises_exactly

KNOWN = ", ".join(situs.names())

MEANT = {
    "ALiBi": "alibi",
    " alibi ": "alibi",
    "RoPE": "rotary",
    "Rope": "rotary",
    "Rotary": "rotary",
    "T5": "t5",
    "T5Bias": "t5",
    "t5bias": "t5",
    "t5-bias": "t5",
    "Transformer-XL": "transformer_xl",
    "transformer xl": "transformer_xl",
    "TransformerXL": "transformer_xl",
    "NoPE": "none",
    "None": "none",
    "learned grid": "learned_grid",
    "SwinBias": "swin",
    "DeBERTa": "deberta",
    "xPos": "xpos",
}


@pytest.mark.parametrize("written", MEANT)
def test_case_dashes_spaces_and_underscores_do_not_matter_and_classes_are_names(written: str) -> None:
    assert canonical(written) == MEANT[written]
    assert situs.entry(written) is situs.entry(MEANT[written])


@pytest.mark.parametrize("name", situs.names())
def test_every_encoding_is_found_by_its_name_and_by_its_class(name: str) -> None:
    cls = situs.entry(name).cls
    assert situs.entry(name.upper()).cls is situs.entry(cls.__name__).cls is cls


@pytest.mark.parametrize("written", ["rotary+yarn", "RoPE+YaRN", "rope + yarn", "yarn", "YaRN"])
def test_a_scaling_is_rotary_with_it(written: str) -> None:
    found = situs.entry(written)
    assert (found.name, found.cls, found.scaling) == ("rotary+yarn", situs.Rotary, situs.YaRN)
    made = situs.create(written, head_dim=16, base=500.0, factor=4.0, original_length=64)
    assert isinstance(made, situs.Rotary)
    assert (made.base, made.scaling) == (500.0, situs.YaRN(factor=4.0, original_length=64))


@pytest.mark.parametrize("name", SCALINGS)
def test_every_scaling_is_found_by_its_name_and_by_its_class(name: str) -> None:
    assert scaling_named(name.upper()) == scaling_named(SCALINGS[name].cls) == name
    found = situs.entry(f"rope+{name}")
    assert (found.name, found.paper, found.formula) == (f"rotary+{name}", SCALINGS[name].paper, SCALINGS[name].formula)
    assert "scaling" not in found.options
    assert {"head_dim", *inspect.signature(getattr(situs, SCALINGS[name].cls)).parameters} <= found.options.keys()


def test_layers_are_named_in_any_spelling() -> None:
    layers = situs.schedule(
        ["RoPE", ["YaRN", "ALiBi"], "NoPE"], num_layers=3, head_dim=16, num_heads=2, factor=2.0, original_length=8
    )
    assert [type(each).__name__ for each in layers] == ["Rotary", "ModuleList", "NoPE"]
    together = layers[1]
    assert isinstance(together, torch.nn.ModuleList)
    scaled, alibi = together
    assert isinstance(scaled, situs.Rotary)
    assert scaled.scaling == situs.YaRN(factor=2.0, original_length=8)
    assert isinstance(alibi, situs.ALiBi)


@pytest.mark.parametrize(
    ("written", "cure"),
    [
        ("rotery", " Did you mean 'rotary'?"),
        ("AliBy", " Did you mean 'alibi'?"),
        ("yern", " Did you mean 'rotary+yarn'?"),
        ("relative", " Did you mean 'shaw' or 't5'?"),
        ("Absolute", " Did you mean 'learned' or 'sinusoidal'?"),
        ("positional", " Did you mean 'sinusoidal' or 'learned'?"),
        ("rotary_embedding", " Did you mean 'rotary'?"),
        ("RotaryEmbedding", " Did you mean 'rotary'?"),
        ("pi", " Did you mean 'rotary+linear'?"),
        ("position_interpolation", " Did you mean 'rotary+linear'?"),
        ("dynamic", " Did you mean 'rotary+dynamic_ntk'?"),
        ("zzz", ""),
        ("", ""),
    ],
)
def test_another_name_is_refused_with_what_may_have_been_meant(written: str, cure: str) -> None:
    with raises_exactly(ValueError, f"name must be one of {KNOWN}; got {written!r}.{cure}"):
        situs.entry(written)


def test_synonyms_lead_to_encodings_and_are_none_themselves() -> None:
    for word, meant in SYNONYMS.items():
        assert word == fold(word)
        assert canonical(word) is scaling_named(word) is None
        assert [situs.entry(name).name for name in meant] == list(meant)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("alibi+yarn", "alibi+yarn: + must follow rotary, since yarn scales its frequencies; got 'alibi'. Write "
         "rotary+yarn."),
        ("rope+yern", f"rope+yern: + must be followed by one of {', '.join(SCALINGS)}; got 'yern'. Did you mean "
         "'yarn'?"),
        ("rotary+PI", f"rotary+PI: + must be followed by one of {', '.join(SCALINGS)}; got 'PI'. Did you mean "
         "'linear'?"),
        ("rotary+", f"rotary+: + must be followed by one of {', '.join(SCALINGS)}; got ''."),
    ],
)  # fmt: skip
def test_what_cannot_be_scaled_is_refused(written: str, message: str) -> None:
    with raises_exactly(ValueError, message):
        situs.entry(written)


def test_options_of_a_scaling_are_refused_with_what_it_takes() -> None:
    with raises_exactly(
        TypeError,
        "rotary+linear takes head_dim, base, rotary_dim, pairing, channels, reverse, split, factor, original_length, "
        "target_length; got 'fctor'. Did you mean 'factor'?",
    ):
        situs.create("linear", head_dim=8, fctor=2.0)


def test_the_version_is_that_of_the_package() -> None:
    from importlib import metadata

    assert situs.__version__ == metadata.version("situs")
    assert "__version__" in dir(situs)
