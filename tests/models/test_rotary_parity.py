"""Every rotary model type of transformers: frequencies, factors and scores are those of its own module."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import Tensor

import situs
from situs.models.positions import Layer
from situs.models.readers.families import FAMILIES
from situs.models.reading import read
from tests.models.hugging_face import (
    config_of,
    cosines_and_sines,
    factor,
    frequencies,
    in_float64,
    modeling_of,
    rotary_class,
    rotary_module,
)

pytestmark = pytest.mark.once

SETTINGS: dict[str, dict[str, Any]] = {
    # defaults that transformers itself cannot run, replaced by those of a release
    "cohere_compass_text": {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 50000.0}}},
    "bamba": {"attn_layer_indices": [1, 3], "num_hidden_layers": 4},
    "glm4_moe": {"head_dim": 128},
    "glm4v_moe_text": {"head_dim": 128},
    "glm4v_text": {"rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.5}},
    "glm_image_text": {"rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.5}},
    "qwen3_omni_moe_text": {"head_dim": 128},
    "qwen4_exp_text": {"rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.25}},
    "granitemoehybrid": {"layer_types": ["attention"] * 4, "num_hidden_layers": 4, "position_embedding_type": "rope"},
    "zamba2": {"use_mem_rope": True},
    "hunyuan_vl_text": {
        "head_dim": 128,
        "rope_parameters": {
            "rope_type": "dynamic", "rope_theta": 10000.0, "alpha": 1000.0, "factor": 1.0,
            "mrope_section": [16, 16, 16, 16],
        },
    },
}  # fmt: skip

LEFT_OUT = {
    "efficientloftr": "its heads have different frequencies, and its layers are of two images",
    "esmfold2": "rotates by coordinates of atoms in space, in stacks that are no model of their own",
    "musicflamingo": "rotates embeddings of sound by time stamps, and neither queries nor keys",
    "vjepa2": "gives the two channels of a pair different angles, which is no rotation",
}
"""Model types that no encoding of Situs rotates as, with the reason."""

TEXT_ALONE = {"hunyuan_vl_text"}
"""Compared at positions of text: of images, transformers rotates the two channels of a pair by different coordinates,
which its authors do not. See tests/parity."""

ROTARY = sorted(FAMILIES)


@pytest.mark.thin(10)
@pytest.mark.parametrize("model_type", ROTARY)
def test_scores_are_those_of_transformers(model_type: str) -> None:
    config = config_of(model_type, **SETTINGS.get(model_type, {}))
    model = read(config)
    rotating = [(numbers[0], layer) for numbers, layer in model.groups() if _rotary(layer) is not None]
    if rotary_class(config) is None or getattr(config, "rope_parameters", None) is None:
        assert not rotating
        return
    assert rotating
    module = rotary_module(config)
    for index, layer in rotating:
        _compare(config, module, layer, _label(config, index))


def test_parts_of_blt_are_read_as_the_models_that_they_are() -> None:
    config = config_of("blt")
    parts = {"patcher": "blt_patcher", "encoder": "blt_local_encoder", "decoder": "blt_local_decoder",
             "global": "blt_global_transformer"}  # fmt: skip
    model = read(config)
    assert set(model.submodels) == set(parts)
    assert set(parts.values()) <= set(ROTARY)
    for name, model_type in parts.items():
        assert model.submodels[name] == read(config_of(model_type))
        assert any(_rotary(layer) for layer in model.submodels[name].layers)


def _compare(config: Any, module: Any, layer: Layer, label: str) -> None:
    ours, heads = _rotary(layer), layer.heads
    assert ours is not None
    assert heads is not None
    exact, theirs = _laid_out(config, ours.frequencies.abs().flatten()), frequencies(module, label).double()
    torch.testing.assert_close(exact, theirs, rtol=2e-6, atol=0)
    assert getattr(ours, "rotation_factor", 1.0) == pytest.approx(factor(module, label), rel=1e-9)
    axes = 1 if config.model_type in TEXT_ALONE else ours.axes
    ids = torch.randint(0, 70_000, (axes, 1, 5)).expand(ours.axes, -1, -1)
    cosines = cosines_and_sines(module, exact, ids if ours.axes > 1 else ids[0], label)
    query, key = torch.randn(2, 1, 2, 5, heads.dim, dtype=torch.float64)
    own = situs.Positions.explicit(ids.movedim(0, -1) if ours.axes > 1 else ids[0])
    found = ours(query, own) @ ours(key, own, role="key").transpose(-2, -1)
    with in_float64():
        expected = _scores(config, ours, query, key, cosines)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)


def _scores(config: Any, ours: Any, query: Tensor, key: Tensor, cosines: Any) -> Tensor:
    """Scores of queries and keys that transformers' own function rotates, and of the channels that it does not."""
    module, width = modeling_of(config), ours.rotary_dim
    interleaves = ours.pairing == "interleaved" and hasattr(module, "apply_rotary_pos_emb_interleave")
    name = "apply_rotary_pos_emb_interleave" if interleaves else "apply_rotary_pos_emb"
    here = slice(-width, None) if ours.channels == "trailing" else slice(0, width)
    rest = slice(0, query.shape[-1] - width) if ours.channels == "trailing" else slice(width, None)
    q, k = query[..., here], key[..., here]
    if isinstance(cosines, tuple):
        apply = getattr(module, name)
        if "k" in inspect.signature(apply).parameters:
            q, k = apply(q, k, *cosines)
        else:  # one at a time
            q, k = apply(q, *cosines), apply(k, *cosines)
    else:  # complex numbers, and heads behind the sequence in Llama 4
        behind = config.model_type == "llama4_text"
        q, k = (each.transpose(1, 2) if behind else each for each in (q, k))
        q, k = module.apply_rotary_emb(q, k, cosines)
        q, k = (each.transpose(1, 2) if behind else each for each in (q, k))
    plain = query[..., rest] @ key[..., rest].transpose(-2, -1)
    scores: Tensor = q.double() @ k.double().transpose(-2, -1) + plain
    return scores


def _laid_out(config: Any, exact: Tensor) -> Tensor:
    """Frequencies in the order in which a module holds them."""
    if config.model_type != "ernie4_5_vl_moe_text":
        return exact
    of_images, of_time = exact[:44], exact[44:]
    return torch.cat((of_images[0::2], of_images[1::2], of_time))


def _label(config: Any, index: int) -> str:
    """What rope parameters call a layer."""
    types = getattr(config, "layer_types", None)
    type_ = types[index] if types else ""
    return dict(FAMILIES[config.model_type].labels).get(type_, type_) if config.model_type in FAMILIES else type_


def _rotary(layer: Layer) -> Any:
    return next((each for each in layer.encodings if isinstance(each, (situs.Rotary, situs.LeRoPE))), None)
