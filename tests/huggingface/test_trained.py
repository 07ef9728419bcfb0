"""Encodings taken out of loaded models hold the models' own numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from situs import Positions, huggingface
from tests.huggingface.small_models import made


def encodings_of(model: Any) -> Any:
    """The encodings, whose parameters mypy cannot know by name."""
    return huggingface.encodings_of(model)


def test_t5_has_one_table_for_each_stack() -> None:
    model = made("t5")
    taken = encodings_of(model)
    for side in ("encoder", "decoder"):
        attention = getattr(model, side).block[0].layer[0].SelfAttention
        for layer in taken.submodels[side].layers:
            (encoding,) = layer
            bias = encoding(Positions.range(30))
            torch.testing.assert_close(bias[-1:], attention.compute_bias(30, 30))


def test_umt5_has_a_table_in_every_layer() -> None:
    model = made("umt5")
    taken = encodings_of(model)
    for number, block in enumerate(model.decoder.block):
        (encoding,) = taken.submodels["decoder"].layers[number]
        assert torch.equal(encoding.table, block.layer[0].SelfAttention.relative_attention_bias.weight)


@pytest.mark.parametrize(("name", "table"), [("bert", "bert.embeddings.position_embeddings"), ("mpnet", None)])
def test_learned_tables_are_taken(name: str, table: str | None) -> None:
    model = made(name)
    (encoding, *_) = encodings_of(model).input
    own = model.get_submodule(table or "mpnet.embeddings.position_embeddings").weight
    assert torch.equal(encoding.table, own)
    assert encoding.table.data_ptr() != own.data_ptr()


@pytest.mark.parametrize("name", ["deberta v2", "deberta v3", "deberta"])
def test_deberta_is_taken_with_its_projections(name: str) -> None:
    model = made(name)
    layers = encodings_of(model).layers
    encoder = model.deberta.encoder
    for (encoding,), layer in zip(layers, encoder.layer, strict=True):
        assert torch.equal(encoding.table, encoder.rel_embeddings.weight)
        own = layer.attention.self
        if name == "deberta v3":
            assert encoding.borrowed == (own.query_proj, own.key_proj)
            assert torch.equal(encoding.norm.weight, encoder.LayerNorm.weight)
        else:
            key = own.pos_proj if name == "deberta" else own.pos_key_proj
            assert torch.equal(encoding.key_projection.weight, key.weight)


@pytest.mark.parametrize("name", ["llama", "bloom", "gemma 3"])
def test_encodings_without_weights_are_made(name: str) -> None:
    model = made(name)
    layers = encodings_of(model).layers
    assert len(layers) == 2
    assert all(len(layer) == 1 for layer in layers)


def test_tables_of_images_are_taken() -> None:
    config: Any = transformers.ViTConfig(
        hidden_size=32, num_attention_heads=4, num_hidden_layers=1, intermediate_size=16, image_size=32, patch_size=8
    )
    model = transformers.ViTModel(config)
    (encoding,) = encodings_of(model).input
    assert torch.equal(encoding.table, model.embeddings.position_embeddings[0])


def test_half_precision_stays_as_it_is() -> None:
    model = made("t5 encoder", torch.bfloat16)
    taken = encodings_of(model)
    (encoding,) = (taken.layers or taken.submodels["encoder"].layers)[0]
    own = model.encoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight
    assert encoding.table.dtype == torch.bfloat16
    assert torch.equal(encoding.table, own)


def test_weights_that_are_not_known_by_name_are_refused() -> None:
    told = (
        r"^model must have encodings whose weights are known by name, since others would be drawn at random; got "
        r"TransformerXL, whose \w+ is not\.$"
    )
    with pytest.raises(ValueError, match=told):
        encodings_of(made("xlnet"))
    with pytest.raises(TypeError, match=r"^model must be a model of transformers, .*; got Linear\.$"):
        encodings_of(torch.nn.Linear(2, 2))
