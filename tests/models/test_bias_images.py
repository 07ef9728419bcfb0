"""Models of images with two-dimensional biases: what their configurations are read as, and transformers' layers."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from situs import Positions
from situs.models.sources.strict import ConfigError
from tests.models.bias_layers import assert_attends, lively, made, read_config
from tests.models.hugging_face import modeling_of
from tests.parity.attention_probe import Projections, SeenAttention
from tests.parity.wide_transformers import in_float64

pytestmark = pytest.mark.once

SWIN: dict[str, Any] = {
    "image_size": 32, "patch_size": 2, "embed_dim": 12, "depths": [2, 1], "num_heads": [2, 3], "window_size": 4,
    "drop_path_rate": 0.0,
}  # fmt: skip
SWINS: dict[str, tuple[str, dict[str, Any]]] = {
    "swin": ("SwinModel", {**SWIN, "use_absolute_embeddings": True}),
    "donut-swin": ("DonutSwinModel", SWIN),
    "maskformer-swin": ("MaskFormerSwinModel", SWIN),
    "swinv2": ("Swinv2Model", {**SWIN, "pretrained_window_sizes": [3, 0]}),
    "swin2sr": ("Swin2SRModel", {**SWIN, "patch_size": 1, "image_size": 8, "resi_connection": "1conv"}),
    "clap_audio_model": ("ClapAudioModel", {
        "spec_size": 32, "patch_size": 2, "patch_stride": [2, 2], "patch_embeds_hidden_size": 12, "depths": [2, 1],
        "num_attention_heads": [2, 3], "window_size": 4, "hidden_size": 24, "num_mel_bins": 8,
    }),
}  # fmt: skip


def build(model_type: str, cls: str, **options: Any) -> tuple[Any, Any]:
    config: Any = CONFIG_MAPPING[model_type](**options)
    config._attn_implementation = "eager"
    return config, lively(getattr(modeling_of(config), cls)(config))


def class_of(model_type: str, cls: str) -> Any:
    return getattr(modeling_of(CONFIG_MAPPING[model_type]()), cls)


def attentions(model: nn.Module) -> list[Any]:
    """Window attentions, in the order of the layers."""
    names = ("relative_position_bias_table", "relative_position_bias", "continuous_position_bias_mlp")
    return [
        each for each in model.modules() if any(name in each._parameters or name in each._modules for name in names)
    ]


@pytest.mark.thin(6)
@pytest.mark.parametrize("model_type", SWINS)
@torch.no_grad()
def test_windows_of_swin(model_type: str) -> None:
    cls, options = SWINS[model_type]
    with in_float64(class_of(model_type, cls)):
        config, model = build(model_type, cls, **options)
        found = read_config(config)
        layers = [each for each in attentions(model) if not hasattr(each, "window_area")]
        assert len(layers) == len(found.layers) == 3
        for theirs, layer in zip(layers, found.layers, strict=True):
            window = layer.calls[0].option("window")
            if hasattr(theirs, "continuous_position_bias_mlp"):
                network = theirs.continuous_position_bias_mlp
                state = {
                    "hidden.weight": network[0].weight,
                    "hidden.bias": network[0].bias,
                    "out.weight": network[2].weight,
                }
                assert tuple(theirs.window_size) == window
            else:
                owner = getattr(theirs, "relative_position_bias", theirs)
                state = {"table": owner.relative_position_bias_table}
                assert tuple(owner.window_size) == window
            encodings = made(layer, state)
            width = layer.heads.queries * layer.heads.dim  # type: ignore[union-attr]
            x = torch.randn(2, math.prod(window), width)
            seen = seen_by(theirs, model, x, layer.heads.dim)  # type: ignore[union-attr]
            assert_attends(seen, layer, encodings, positions=Positions.grid(*window), effect=0.005)
        if model_type == "swin":
            table = next(each for name, each in model.named_parameters() if name.endswith("position_embeddings"))
            assert table.shape[1:] == found.input[0].build().table.shape


@pytest.mark.thin(6)
@pytest.mark.parametrize("model_type", ["donut-swin", "maskformer-swin", "swinv2", "swin2sr"])
@torch.no_grad()
def test_tables_of_the_input_that_fail_in_transformers_are_refused(model_type: str) -> None:
    cls, options = SWINS[model_type]
    config, model = build(model_type, cls, **options, use_absolute_embeddings=True)
    with pytest.raises(RuntimeError, match="must match the size"):
        model(torch.randn(1, 3, config.image_size, config.image_size, dtype=torch.float64))
    message = (
        "use_absolute_embeddings must be false, since transformers makes the table a row longer than there are "
        "patches, and fails; got true."
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        read_config(config)


def seen_by(theirs: Any, model: nn.Module, x: Tensor, dim: int) -> SeenAttention:
    """What a window attention makes of hidden states; in version 2 queries bring their factor."""
    if hasattr(theirs, "q_proj"):
        return Projections("", dim)(theirs, lambda: theirs(x))
    parent = next(each for each in model.modules() if getattr(each, "self", None) is theirs)
    names = {"query": "self.query", "key": "self.key", "value": "self.value", "output": "output.dense"}
    seen = Projections("", dim, **names)(parent, lambda: parent(x))
    if not hasattr(theirs, "logit_scale"):
        return seen
    heat = theirs.logit_scale.clamp(max=math.log(100)).exp()
    query, key = (nn.functional.normalize(each, dim=-1) for each in (seen.query, seen.key))
    return SeenAttention(query * heat, key, seen.value, seen.output)


def test_windows_of_the_second_version_are_no_larger_than_an_image_is_high() -> None:
    options = {**SWIN, "image_size": [24, 32], "window_size": 7}
    config, model = build("swinv2", "Swinv2Model", **options)
    windows = [tuple(each.window_size) for each in attentions(model)]
    assert windows == [each.calls[0].option("window") for each in read_config(config).layers]
    assert windows == [(7, 7), (7, 7), (6, 6)]


@pytest.mark.parametrize("switched", [(True, False), (False, True), (True, True), (False, False)], ids=str)
@pytest.mark.thin(6)
@pytest.mark.parametrize("model_type", ["beit", "data2vec-vision"])
@torch.no_grad()
def test_beit(model_type: str, switched: tuple[bool, bool]) -> None:
    own, shared = switched
    cls = "BeitModel" if model_type == "beit" else "Data2VecVisionModel"
    options: dict[str, Any] = {
        "hidden_size": 24, "num_attention_heads": 3, "num_hidden_layers": 2, "intermediate_size": 16, "image_size": 20,
        "patch_size": 4, "use_relative_position_bias": own, "use_shared_relative_position_bias": shared,
        "use_absolute_position_embeddings": True, "drop_path_rate": 0.0,
    }  # fmt: skip
    with in_float64(class_of(model_type, cls)):
        config, model = build(model_type, cls, **options)
        found = read_config(config)
        layer = found.layers[1]
        beit = model_type == "beit"
        if beit:
            probe, block = Projections("layers.1.attention", 8), model.layers[1]
        else:
            names = {"query": "attention.query", "key": "attention.key", "value": "attention.value"}
            probe, block = (
                Projections("encoder.layer.1.attention", 8, **names, output="output.dense"),
                model.encoder.layer[1],
            )
        seen = probe(model, lambda: model(torch.randn(2, 3, 20, 20)))
        states = []
        if own:
            states.append((block if beit else block.attention.attention).relative_position_bias)
        if shared:
            states.append(model.shared_position_bias if beit else model.encoder.relative_position_bias)
        encodings = made(layer, *({"table": each.relative_position_bias_table} for each in states))
        assert_attends(seen, layer, encodings, positions=Positions.grid(5, 5, prefix=1))
        assert model.embeddings.position_embeddings.shape[1:] == found.input[0].build().table.shape


VIT: dict[str, Any] = {
    "hidden_size": 24, "num_attention_heads": 3, "num_hidden_layers": 3, "image_size": 80, "patch_size": 16,
    "window_size": 3, "global_attn_indexes": [1], "mlp_dim": 16, "output_channels": 8,
}  # fmt: skip
SAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "sam_vision_model": ("SamVisionEncoder", VIT),
    "sam_hq_vision_model": ("SamHQVisionEncoder", VIT),
    "got_ocr2_vision": ("GotOcr2VisionEncoder", VIT),
    "deepseek_ocr2_sam_vision_model": ("DeepseekOcr2SamVisionEncoder", VIT),
    "unlimited_ocr_sam_vision_model": ("UnlimitedOcrSamVisionEncoder", VIT),
    "slanext_vision": ("SLANeXtVisionEncoder", VIT),
    "pp_formulanet_vision": ("PPFormulaNetVisionModel", VIT),
    "vitdet": ("VitDetModel", {
        "hidden_size": 24, "num_attention_heads": 3, "num_hidden_layers": 3, "image_size": 80, "patch_size": 16,
        "window_size": 3, "window_block_indices": [0, 2], "use_relative_position_embeddings": True,
        "pretrain_image_size": 64, "drop_path_rate": 0.0,
    }),
    "seggpt": ("SegGptModel", {
        "hidden_size": 24, "num_attention_heads": 3, "num_hidden_layers": 3, "image_size": [64, 32], "patch_size": 16,
        "pretrain_image_size": 32, "merge_index": 0, "intermediate_hidden_state_indices": [1, 2], "mlp_dim": 16,
        "drop_path_rate": 0.0,
    }),
}  # fmt: skip


@pytest.mark.thin(6)
@pytest.mark.parametrize("model_type", SAMS)
@torch.no_grad()
def test_offsets_down_and_across(model_type: str) -> None:
    cls, options = SAMS[model_type]
    with in_float64(class_of(model_type, cls)):
        config, model = build(model_type, cls, **options)
        found = read_config(config)
        layers = [each for each in model.modules() if "rel_pos_h" in each._parameters]
        assert len(layers) == len(found.layers) == 3
        for theirs, layer in zip(layers, found.layers, strict=True):
            height, width = layer.calls[0].option("window")
            assert (len(theirs.rel_pos_h), len(theirs.rel_pos_w)) == (2 * height - 1, 2 * width - 1)
            kept: dict[str, Tensor] = {}
            handles = [
                theirs.qkv.register_forward_hook(lambda module, given, out: kept.update(qkv=out)),  # noqa: B023
                theirs.proj.register_forward_pre_hook(lambda module, given: kept.update(out=given[0])),  # noqa: B023
            ]
            theirs(torch.randn(2, height, width, 24))
            for handle in handles:
                handle.remove()
            heads = [each.reshape(2, height * width, 3, 8).transpose(1, 2) for each in
                     (*kept["qkv"].reshape(2, height * width, 72).chunk(3, -1), kept["out"])]  # fmt: skip
            state = {"down_table": theirs.rel_pos_h, "across_table": theirs.rel_pos_w}
            assert_attends(SeenAttention(*heads), layer, made(layer, state), positions=Positions.grid(height, width))
        kinds = ["full"] * 3 if model_type == "seggpt" else ["chunked", "full", "chunked"]
        assert [each.kind for each in found.layers] == kinds
        assert_table(model_type, model, found.input[0].build().double())


@torch.no_grad()
def assert_table(model_type: str, model: Any, encoding: Any) -> None:
    """The table of the input is the model's, for those images and, resized, for others."""
    names = ("pos_embed", "position_embeddings", "position_embedding")
    name, table = next((name, each) for name, each in model.named_parameters() if name.rpartition(".")[2] in names)
    rows = table.reshape(-1, table.shape[-1])
    if model_type in ("vitdet", "seggpt"):
        encoding.table.copy_(rows[1:])
        size = (5, 5) if model_type == "vitdet" else (4, 2)
        theirs = (
            model.embeddings.get_absolute_positions(table, True, *size) if model_type == "vitdet"
            else model.embeddings.interpolate_pos_encoding(*size)
        )  # fmt: skip
        torch.testing.assert_close(encoding.resize(size).table, theirs.reshape(-1, 24), rtol=0, atol=1e-12)
    else:
        assert encoding.table.shape == rows.shape, name


@torch.no_grad()
def test_unlimited_ocrs_vision_has_a_table_alone() -> None:
    with in_float64(class_of("unlimited_ocr_vision_encoder", "UnlimitedOcrVisionEmbeddings")):
        config, table = build("unlimited_ocr_vision_encoder", "UnlimitedOcrVisionEmbeddings", hidden_size=24,
                              num_attention_heads=3, num_hidden_layers=2, image_size=70, patch_size=14)  # fmt: skip
        found = read_config(config)
        encoding = found.input[0].build().double()
        encoding.table.copy_(table.position_embedding.weight)
        patches = torch.randn(1, 24, 5, 5)
        x = torch.cat((table.class_embedding.expand(1, 1, -1), patches.flatten(2).transpose(1, 2)), 1)
        torch.testing.assert_close(table(patches), encoding(x, Positions.grid(5, 5, prefix=1)), rtol=0, atol=1e-12)
        assert [(each.calls, each.causal) for each in found.layers] == [((), False)] * 2
