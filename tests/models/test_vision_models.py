"""Vision models: rotations and tables that are read, against those of tiny models of transformers that see an image."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from situs import Positions
from situs.models import read
from situs.models.positions import ModelPositions
from situs.models.readers.vision import READERS, REFUSED, STACKS
from situs.models.sources.strict import ConfigError
from tests.models.hugging_face import config_of, modeling_of
from tests.models.reading import file_of
from tests.parity.wide_transformers import WIDE_TOLERANCE, in_float64

pytestmark = pytest.mark.once

LEFT_OUT = dict(REFUSED)

HEIGHT, WIDTH, PATCH, DIM, HEADS = 3, 4, 2, 48, 2  # heads of 24, of which 3 coordinates and 2 get whole pairs

TINY: dict[str, Any] = {
    "depth": 2, "num_hidden_layers": 2, "hidden_size": DIM, "embed_dim": DIM, "num_heads": HEADS,
    "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "intermediate_size": DIM, "out_hidden_size": 32,
    "patch_size": PATCH, "spatial_merge_size": 1, "temporal_patch_size": 1, "patch_temporal": 1, "image_size": 8,
    "num_position_embeddings": 16, "pos_emb_height": 4, "pos_emb_width": 4, "merge_size": 1,
    "merge_kernel_size": (1, 1),
    "head_dim": DIM // HEADS, "position_embedding_size": 16, "window_size": 2, "pretrain_image_size": 8,
    "fullatt_block_indexes": [1], "global_attn_indexes": [1], "deepstack_visual_indexes": [], "num_register_tokens": 3,
    "memory_attention_hidden_size": DIM, "memory_attention_num_attention_heads": HEADS,
    "memory_attention_rope_feat_sizes": [WIDTH, HEIGHT], "memory_attention_rope_k_sizes": [2, 2],
    "pooling_kernel_size": 1, "num_key_value_attention_heads": 1, "num_first_full_attention_layers": 1,
    "num_last_full_attention_layers": 0, "layerscale_value": 1.0, "mlp_bias": True, "vision_output_dim": 32,
    "projector_input_dim": 32, "projector_output_dim": 32, "pixel_shuffle_ratio": 1.0, "descriptor_dim": DIM,
}  # fmt: skip

MODELS = {
    "qwen2_vl_vision": "Qwen2VisionTransformerPretrainedModel",
    "qwen2_5_vl_vision": "Qwen2_5_VisionTransformerPretrainedModel",
    "qwen2_5_omni_vision_encoder": "Qwen2_5OmniVisionEncoder",
    "qwen3_omni_moe_vision_encoder": "Qwen3OmniMoeVisionEncoder",
    "ernie4_5_vl_moe_vision": "Ernie4_5_VLMoeVisionTransformerPretrainedModel",
    "sam2_video": "Sam2VideoMemoryAttention",
    "sam3_tracker_video": "Sam3TrackerVideoMemoryAttention",
    "edgetam_video": "EdgeTamVideoMemoryAttention",
    "sam3_vit_model": "Sam3ViTModel",
    "dinov3_vit": "DINOv3ViTModel",
    "sapiens2": "Sapiens2Model",
    "eomt_dinov3": "EomtDinov3RotaryEmbedding",  # its model needs scipy
    "pixtral": "PixtralVisionModel",
    "gemma4_vision": "Gemma4VisionModel",
}

TABLES = {  # the module whose output is what the table is added to; what holds the sum; the table
    "glm4v": ("embeddings:in", "embeddings", "embeddings.position_embedding.weight"),
    "paddleocr": (
        "vision_model.embeddings.patch_embedding",
        "vision_model.embeddings",
        "vision_model.embeddings.position_embedding.weight",
    ),
    "kimi": ("patch_embed.proj", "patch_embed", "patch_embed.pos_emb.position_embeddings"),
    "step3p5": ("", "embeddings", "embeddings.position_embedding.weight"),
    "muse": ("patch_embedder.patch_embedding", "patch_embedder", "patch_embedder.position_embedding_table.weight"),
    "gemma4": ("patch_embedder.input_proj", "patch_embedder", "patch_embedder.position_embedding_table"),
    "llama4": ("", "layernorm_pre:in", "positional_embedding_vlm"),
    "sam3_vit": ("", "embeddings", "embeddings.position_embeddings"),
    "": ("patch_embed", "blocks.0:in", "pos_embed.weight"),
}


def model_class(config: Any) -> type[Any]:
    module = modeling_of(config)
    if config.model_type in MODELS:
        return getattr(module, MODELS[config.model_type])  # type: ignore[no-any-return]
    found = [each for name, each in vars(module).items() if inspect.isclass(each) and name.endswith("VisionModel")]
    (only,) = (each for each in found if each.__module__ == module.__name__)
    return only


def tiny(model_type: str, **settings: Any) -> Any:
    held = set(config_of(model_type).to_dict())
    config = config_of(model_type, **{key: value for key, value in (TINY | settings).items() if key in held})
    config._attn_implementation = "eager"
    if model_type == "sam3_tracker_video":  # which makes its own of the image's size
        config.memory_attention_rope_feat_sizes = TINY["memory_attention_rope_feat_sizes"]
    return config


class Seen:
    """Keep what modules of a model were given and gave."""

    def __init__(self, model: nn.Module) -> None:
        self.calls: dict[str, list[tuple[tuple[Any, ...], Any]]] = {}
        for name, module in model.named_modules():
            module.register_forward_hook(self._keep(name), with_kwargs=True)

    def _keep(self, name: str) -> Callable[..., None]:
        def keep(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            self.calls.setdefault(name, []).append(((*args, *kwargs.values()), output))

        return keep

    def of(self, name: str) -> Tensor:
        """The output of a module, or with ``:in`` its input."""
        path, _, kind = name.partition(":")
        args, output = self.calls[path][0]
        found: Tensor = args[0] if kind == "in" else output
        return found

    def rotations(self) -> list[tuple[tuple[Any, ...], Any]]:
        """What rotary modules were given and gave, layer by layer."""
        names = [name for name in self.calls if any(word in name for word in ("rot", "rope", "patch_pos"))]
        return [each for name in names or [""] for each in self.calls[name]]


def look(model: Any, model_type: str) -> None:
    """Have a model see an image of 3 x 4 patches."""
    height = WIDTH if "muse" in model_type else HEIGHT  # the grid of its table, as it resizes in a way of its own
    grid, count = torch.tensor([[1, height, WIDTH]]), height * WIDTH
    image = torch.randn(1, 3, HEIGHT * PATCH, WIDTH * PATCH)
    if "MemoryAttention" in type(model).__name__:
        args: tuple[Any, ...] = (torch.randn(count, 1, DIM), torch.randn(count, 1, 64), torch.randn(count, 1, DIM),
                                 torch.randn(count, 1, 64))  # fmt: skip
        if model_type == "edgetam_video":
            memory = 4
            args = (args[0], torch.randn(memory, 1, 64), args[2], torch.randn(memory, 1, 64), 0, 1)
    elif model_type in ("dinov3_vit", "sapiens2", "pixtral", "mlcd_vision_model", "step3p5_vision", "eomt_dinov3"):
        square = torch.randn(1, 3, HEIGHT * PATCH, HEIGHT * PATCH) if model_type == "mlcd_vision_model" else image
        args = (square,)
    elif model_type in ("llama4_vision_model", "sam3_vit_model"):  # of the size that they are made for
        args = (torch.randn(1, 3, 8, 8),)
    elif model_type == "gemma4_vision":
        ids = Positions.grid(HEIGHT, WIDTH).ids.flip(-1)
        args = (torch.randn(1, count, 3 * PATCH**2), ids)
    elif model_type == "video_llama_3_vision":
        args = (torch.randn(count, 3 * PATCH**2), grid, torch.tensor([1]))
    elif model_type in ("paddleocr_vl_vision", "kimi_k25_vision"):
        pixels = torch.randn(count, 3, PATCH, PATCH)
        args = (pixels[None] if model_type.startswith("paddle") else pixels, grid)
    else:
        args = (torch.randn(count, 3 * PATCH**2), grid)
    model(*args)


def rotated(config: Any, x: Tensor, found: Any, ids: Tensor | None) -> Tensor:
    """What a model's own function makes of vectors (batch, heads, tokens, channels)."""
    module, model_type = modeling_of(config), config.model_type
    if model_type == "llama4_vision_model":
        return module.vision_apply_rotary_emb(x.transpose(1, 2), x.transpose(1, 2), found)[0].transpose(1, 2)  # type: ignore[no-any-return]
    if model_type == "gemma4_vision":
        return module.apply_multidimensional_rope(x.transpose(1, 2), *found, ids).transpose(1, 2)  # type: ignore[no-any-return]
    if model_type == "edgetam_video":
        return module.apply_rotary_pos_emb_2d_self_attn(x, x, *found)[0]  # type: ignore[no-any-return]
    for name in ("apply_rotary_pos_emb_2d", "apply_rotary_pos_emb_vision", "apply_rotary_pos_emb"):
        if hasattr(module, name):
            break
    apply = getattr(module, name)
    if name == "apply_rotary_pos_emb_vision":  # (batch, tokens, heads, channels)
        return apply(x.transpose(1, 2), x.transpose(1, 2), *found)[0].transpose(1, 2)  # type: ignore[no-any-return]
    more = {"unsqueeze_dim": 0} if model_type == "pixtral" else {}
    return apply(x, x, *found, **more)[0]  # type: ignore[no-any-return]


def cells(model_type: str) -> Positions:
    """The positions of the image, as the notes of what is read tell them."""
    height, width = (HEIGHT, HEIGHT) if model_type == "mlcd_vision_model" else (HEIGHT, WIDTH)
    if model_type in ("llama4_vision_model", "sam3_vit_model", "muse_glimmer_vision", "muse_spark_vision"):
        height = width = 4
    where = STACKS[model_type].where
    if "-1 .. 1" in where:
        return Positions.grid(height, width, normalised="each").scaled(math.tau)
    ids = Positions.grid(height, width, first=1 if "from 1" in where else 0).ids
    if "frame" in where:
        ids = torch.cat((torch.zeros_like(ids[..., :1]), ids), -1)
    return Positions.explicit(ids.flip(-1) if "the column and the row" in where else ids)


def in_its_order(model_type: str, x: Tensor) -> Tensor:
    """The channels of a head as our encoding has them: Kimi's pairs of columns and rows alternate."""
    if model_type != "kimi_k25_vision":
        return x
    half = x.shape[-1] // 2
    order = torch.cat((torch.arange(0, half, 2), torch.arange(1, half, 2)))
    return x[..., torch.cat((order, half + order))]


def compare(config: Any, ours: Any, found: Any, positions: Positions, ids: Tensor | None) -> None:
    x = torch.randn(1, HEADS, found[0].shape[-2] if isinstance(found, tuple) else len(found), DIM // HEADS)
    theirs = in_its_order(config.model_type, rotated(config, x, found, ids))
    mine = ours(in_its_order(config.model_type, x), positions)
    torch.testing.assert_close(mine, theirs, rtol=0.0, atol=WIDE_TOLERANCE)


@pytest.mark.thin(6)
@pytest.mark.parametrize("model_type", STACKS)
@torch.no_grad()
def test_layers_rotate_as_those_of_a_model_that_sees_an_image(model_type: str) -> None:
    config = tiny(model_type)
    read_from_it = read(file_of(config))
    with in_float64(model_class(config)):
        model = model_class(config)(config).eval()
        seen = Seen(model)
        look(model, model_type)
        rotations = seen.rotations()
        encodings = [layer.encodings[0] for layer in read_from_it.layers]
        positions = cells(model_type)
        if model_type == "sam3_vit_model":  # a layer in windows of 2 x 2, then one without
            windows = Positions.explicit(Positions.grid(2, 2).ids.flip(-1))
            compare(config, encodings[0], rotations[0][1], windows, None)
            rotations, encodings = rotations[1:], encodings[1:]
        (args, found), encoding = rotations[0], encodings[0]
        if model_type == "llama4_vision_model":  # the class token is the last, and not rotated
            torch.testing.assert_close(found[-1], torch.ones_like(found[-1]), rtol=0.0, atol=0.0)
            found = found[:-1]
        compare(config, encoding, found, positions, args[-1])
        if len(args) > 1 and model_type != "sam3_vit_model":  # far positions too
            far = torch.randint(1 << 16, args[1].shape)
            module = next(each for name, each in model.named_modules() if "otary" in type(each).__name__)
            flipped = far.flip(-1) if model_type == "kimi_k25_vision" else far  # it turns them round by itself
            compare(config, encoding, module(args[0], far), Positions.explicit(flipped.view(1, *far.shape[-2:])), far)


def prefix_of(model_type: str) -> tuple[str, str, str]:
    return next(each for name, each in TABLES.items() if model_type.startswith(name))


@pytest.mark.thin(6)
@pytest.mark.parametrize("model_type", [each for each in STACKS if STACKS[each].table])
@torch.no_grad()
def test_tables_add_what_those_of_a_model_do(model_type: str) -> None:
    config = tiny(model_type)
    read_from_it = read(file_of(config))
    before, after, table = prefix_of(model_type)
    with in_float64(model_class(config)):
        model = model_class(config)(config).eval()
        rows = model.get_parameter(table)
        rows.normal_()
        seen = Seen(model)
        look(model, model_type)
        ours = [call.build() for call in read_from_it.input]
        if model_type == "gemma4_vision":
            for encoding, each in zip(ours, rows, strict=True):
                encoding.load_state_dict({"table": each})
        else:
            ours[0].load_state_dict({"table": rows.reshape(-1, DIM)})
        if before:
            start = seen.of(before)
        else:
            patches = next(name for name in seen.calls if name.endswith(("patch_embedding", "patch_embeddings")))
            start = seen.of(patches)
            start = (
                start.flatten(2).transpose(1, 2) if start.ndim == 4 and model_type != "llama4_vision_model" else start
            )
        if model_type == "llama4_vision_model":
            start = torch.cat((start, model.class_embedding.expand(1, 1, -1)), 1)
        found = tables_of(model_type, ours)(start.reshape(1, -1, DIM))
        torch.testing.assert_close(found, seen.of(after).reshape(1, -1, DIM), rtol=0.0, atol=1e-6)


def tables_of(model_type: str, ours: list[Any]) -> Callable[[Tensor], Tensor]:
    """The tables for the image that is seen, resized where it is not the one they are made for."""
    if model_type == "gemma4_vision":
        columns, rows = Positions.grid(HEIGHT, WIDTH).ids.flip(-1).unbind(-1)
        return lambda x: ours[1](ours[0](x, Positions.explicit(columns)), Positions.explicit(rows))
    if model_type in ("llama4_vision_model", "sam3_vit_model"):
        return ours[0]  # type: ignore[no-any-return]
    options = STACKS[model_type].resized
    if not options.startswith("encoding.resize("):  # Muse fades to the borders, which resize does not
        return ours[0]  # type: ignore[no-any-return]
    settings = {
        "align_corners": "align_corners=True" in options,
        "mode": "bilinear" if "bilinear" in options else "bicubic",
    }
    return ours[0].resize((HEIGHT, WIDTH), **settings)  # type: ignore[no-any-return]


@torch.no_grad()
def test_angles_of_lightglue_are_projections_of_keypoints() -> None:
    config = config_of("lightglue", descriptor_dim=DIM, num_attention_heads=HEADS, num_hidden_layers=3)
    read_from_it = read(file_of(config))
    assert len(read_from_it.layers) == 3
    module = modeling_of(config)
    with in_float64(module.LightGluePositionalEncoder):
        encoder = module.LightGluePositionalEncoder(config)
        keypoints = torch.rand(1, 7, 2) * 2 - 1
        x = torch.randn(1, HEADS, 7, DIM // HEADS)
        theirs = module.apply_rotary_pos_emb(x, x, *encoder(keypoints)[0])[0]
    ours = read_from_it.layer(0).encodings[0].double()
    weights = encoder.projector.weight.T[:, None].expand(-1, HEADS, -1)
    ours.load_state_dict({"frequencies": weights})
    torch.testing.assert_close(ours(x, Positions.explicit(keypoints)), theirs, rtol=0.0, atol=WIDE_TOLERANCE)


def test_every_vision_stack_is_compared_or_left_out() -> None:
    assert set(READERS) == set(STACKS) | {"lightglue"} | set(LEFT_OUT)
    assert (len(STACKS) + 1, len(LEFT_OUT)) == (35, 2)


@pytest.mark.thin(6)
@pytest.mark.parametrize("model_type", REFUSED)
def test_rotations_that_no_encoding_makes_are_refused(model_type: str) -> None:
    with pytest.raises(ConfigError, match=r"^model_type must be one whose positions Situs has an encoding for; got "):
        read(file_of(config_of(model_type)))


def changed(model_type: str, **settings: Any) -> ModelPositions:
    return read({"model_type": model_type, **settings})


def test_files_that_leave_sizes_out_have_those_of_transformers() -> None:
    for model_type in STACKS:
        whole = config_of(model_type)
        assert read({"model_type": model_type}) == read(file_of(whole)), model_type


def test_older_spellings_say_the_same() -> None:
    step = changed("step3p5_vision", width=96, layers=3, heads=2)
    assert step == changed("step3p5_vision", hidden_size=96, num_hidden_layers=3, num_attention_heads=2)
    theta = changed("qwen2_vl_vision", rope_theta=500.0).layers
    assert theta == changed("qwen2_vl_vision", rope_parameters={"rope_type": "default", "rope_theta": 500.0}).layers
    assert theta[0].calls[0].option("base") == 500.0


@pytest.mark.parametrize(
    ("model_type", "settings", "message"),
    [
        (
            "qwen2_vl_vision",
            {"rope_parameters": {"rope_type": "linear", "factor": 2.0}},
            "rope_parameters.rope_type must be axial, and without partial_rotary_factor, since qwen2_vl_vision rotates "
            "by coordinates of images in no other way; got {'rope_type': 'linear', 'factor': 2.0}.",
        ),
        (
            "qwen2_vl_vision",
            {"embed_dim": 36, "num_heads": 6},
            "embed_dim must give heads of a multiple of 4 channels, since 2 coordinates rotate whole pairs; got heads "
            "of 6.",
        ),
        (
            "qwen3_vl_vision",
            {"num_position_embeddings": 15},
            "num_position_embeddings must be a square, since it is read as one; got 15.",
        ),
        (
            "glm4v_vision",
            {"image_size": 8},
            "patch_size must be at most image_size, since images are cut into patches; got 14 and 8.",
        ),
        (
            "glm4v_vision",
            {"image_size": [8, 8, 8]},
            "image_size must be a number, or a height and a width, since images are cut into patches; got [8, 8, 8].",
        ),
        (
            "sam3_vit_model",
            {"window_size": 73},
            "window_size must be at most 72, the patches of image_size, since coordinates are interpolated between "
            "those of a window; got 73.",
        ),
        (
            "qwen2_5_vl_vision",
            {"fullatt_block_indexes": "all"},
            "fullatt_block_indexes must be a list of layers, by number; got 'all'.",
        ),
        ("pixtral", {"rope_type": "axial"}, "rope_type must be a setting that is understood, since it speaks of "
         "positions; got 'axial'. Did you mean 'rope_theta'?"),
    ],
)  # fmt: skip
def test_wrong_settings_are_refused(model_type: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        changed(model_type, **settings)
    assert str(raised.value) == message
