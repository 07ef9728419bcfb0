"""Models of pages, and those with tables alone: what their configurations are read as, and transformers' layers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.perceiver.modeling_perceiver import PerceiverTextPreprocessor

from tests.models.bias_layers import assert_attends, lively, made, read_config
from tests.models.hugging_face import modeling_of
from tests.parity.attention_probe import Projections, SeenAttention, as_heads
from tests.parity.wide_transformers import in_float64

pytestmark = pytest.mark.once

HEADS, DIM, LENGTH = 3, 16, 40
WIDTH = HEADS * DIM
BERT: dict[str, Any] = {
    "hidden_size": WIDTH, "num_attention_heads": HEADS, "num_hidden_layers": 2, "intermediate_size": 16,
    "vocab_size": 30, "max_position_embeddings": 50,
}  # fmt: skip
PAGE: dict[str, Any] = {
    "coordinate_size": 8, "shape_size": 8, "rel_pos_bins": 8, "max_rel_pos": 11, "rel_2d_pos_bins": 12,
    "max_rel_2d_pos": 99, "pad_token_id": 1,
}  # fmt: skip


def pages() -> torch.Tensor:
    corners = torch.randint(0, 900, (2, LENGTH, 2))
    return torch.cat((corners, corners + torch.randint(1, 20, (2, LENGTH, 2))), -1)


@pytest.mark.parametrize("switched", [(True, True), (True, False), (False, True), (False, False)], ids=str)
@pytest.mark.thin(6)
@pytest.mark.parametrize("model_type", ["layoutlmv2", "layoutlmv3"])
@torch.no_grad()
def test_biases_of_text_and_of_boxes(model_type: str, switched: tuple[bool, bool]) -> None:
    """LayoutLMv2's whole model needs a package that sees; its encoder does not."""
    text, page = switched
    biases: dict[str, Any] = {"has_relative_attention_bias": text, "has_spatial_attention_bias": page}
    config: Any = CONFIG_MAPPING[model_type](**BERT, **PAGE, **biases)
    module = modeling_of(config)
    encoder_class = module.LayoutLMv2Encoder if model_type == "layoutlmv2" else module.LayoutLMv3Encoder
    with in_float64(encoder_class):
        encoder = lively(encoder_class(config))
        boxes, x = pages(), torch.randn(2, LENGTH, WIDTH)
        ids = torch.arange(LENGTH).expand(2, -1)
        attention = encoder.layer[1].attention.self
        caught: list[Any] = []
        attention.register_forward_hook(lambda module, given, out: caught.append((given[0], out[0])))
        mask = torch.zeros(2, 1, 1, LENGTH)
        encoder(x, bbox=boxes, attention_mask=mask, position_ids=ids)
        ((hidden, out),) = caught
        if model_type == "layoutlmv2":
            query, key, value = (as_heads(each, DIM) for each in attention.compute_qkv(hidden))
        else:
            query, key, value = (as_heads(getattr(attention, name)(hidden), DIM) for name in ("query", "key", "value"))
        layer = read_config(config).layers[1]
        names = ["rel_pos_bias"] * text + ["rel_pos_x_bias", "rel_pos_y_bias"] * page
        seen = SeenAttention(query, key, value, as_heads(out, DIM))
        if not layer.calls:
            assert not text
            assert_attends(seen, layer, [])
            return
        (encoding,) = made(layer, {"table": torch.cat([getattr(encoder, name).weight.T for name in names])})
        columns = [ids] * text + [boxes[..., 0], boxes[..., 3]] * page
        assert_attends(seen, layer, [encoding], positions=torch.stack(columns, -1))  # type: ignore[arg-type]


TABLES: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "layoutlm": ("LayoutLMModel", "embeddings.position_embeddings", "encoder.layer.1.attention", {}),
    "layoutlmv3": ("LayoutLMv3Model", "embeddings.position_embeddings", "", PAGE),
    "clap_text_model": ("ClapTextModel", "embeddings.position_embeddings", "encoder.layer.1.attention",
                        {"pad_token_id": 1}),
    "lilt": ("LiltModel", "embeddings.position_embeddings", "", {"hidden_size": WIDTH, "pad_token_id": 2}),
}  # fmt: skip


@pytest.mark.thin(6)
@pytest.mark.parametrize("model_type", TABLES)
@torch.no_grad()
def test_tables_of_the_text(model_type: str) -> None:
    cls, path, attention, options = TABLES[model_type]
    config: Any = CONFIG_MAPPING[model_type](**{**BERT, **options})
    config._attn_implementation = "eager"
    architecture = getattr(modeling_of(config), cls)
    with in_float64(architecture):
        model = lively(architecture(config))
        found = read_config(config)
        table = model.get_submodule(path)
        (encoding,) = (call.build().double() for call in found.input)
        assert encoding.table.shape == table.weight.shape
        encoding.table.copy_(table.weight)
        rows: list[torch.Tensor] = []
        table.register_forward_hook(lambda module, given, out: rows.append(out))
        ids = torch.randint(3, 30, (1, LENGTH))
        inputs = {} if model_type == "clap_text_model" else {"bbox": pages()[:1]}
        if attention:
            probe = Projections(attention, DIM, "self.query", "self.key", "self.value", output="output.dense")
            seen = probe(model, lambda: model(input_ids=ids, **inputs))
            assert_attends(seen, found.layers[1], [])
        else:
            model(input_ids=ids, **inputs)
        assert torch.equal(rows[0].expand(1, -1, -1), encoding(torch.zeros(1, LENGTH, WIDTH)))
        assert found.lengths.limit == encoding.usable_length


@torch.no_grad()
def test_perceivers_text() -> None:
    sizes: dict[str, Any] = {
        "d_model": 12, "d_latents": 24, "num_self_attention_heads": 3, "num_blocks": 2, "num_self_attends_per_block": 4,
        "max_position_embeddings": 50,
    }  # fmt: skip
    config: Any = CONFIG_MAPPING["perceiver"](**sizes)
    found = read_config(config)
    text = lively(PerceiverTextPreprocessor(config))
    encoding = found.input[0].build().double()
    encoding.table.copy_(text.position_embeddings.weight)
    ids = torch.randint(0, 30, (2, LENGTH))
    out, _, words = text(ids)
    assert torch.equal(out, encoding(text.embeddings(ids)))
    assert torch.equal(words, text.embeddings(ids))
    assert [(each.calls, each.heads.dim) for each in found.layers if each.heads] == [((), 8)] * 8
