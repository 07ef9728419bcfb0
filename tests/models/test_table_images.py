"""Tables of images and sounds of models that are no ViT: what ours add, against transformers' own modules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from situs.models import ConfigError, read
from situs.models.readers.table_rows import PATCHES
from tests.models.hugging_face import config_of, modeling_of
from tests.models.reading import file_of

pytestmark = pytest.mark.once

DIM, SIDE, PATCH = 32, 16, 4
SIZES: dict[str, Any] = {
    "hidden_size": DIM, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 48, "patch_size": PATCH,
    "image_size": SIDE,
}  # fmt: skip


def image() -> Tensor:
    """An image of 4 x 4 patches."""
    return torch.randn(1, 3, SIDE, SIDE)


def patches() -> Tensor:
    """The same, cut already."""
    return torch.randn(16, 3 * PATCH * PATCH)


@dataclass(frozen=True)
class Made:
    """Hold how transformers embeds what it sees, and where its table is.

    before: tokens that have no row.
    unused: rows that no token has.
    """

    module: str
    run: Callable[[Any], Tensor]
    table: str = "position_embeddings"
    settings: dict[str, Any] = field(default_factory=dict)
    before: int = 0
    unused: int = 0


def _glm(module: Any) -> Tensor:
    rows, columns = torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij")
    found: Tensor = module(
        torch.zeros(16, DIM), [16], torch.tensor([[1, 4, 4]]), rows.flatten().float(), columns.flatten().float()
    )
    return found[None]


MODELS = {
    "eomt": Made("EomtEmbeddings", lambda each: each(image()), before=5),
    "videomt": Made("VideomtEmbeddings", lambda each: each(image()), before=5),
    "aimv2_vision_model": Made("Aimv2VisionEmbeddings", lambda each: each(image()), "position_embedding"),
    "audio-spectrogram-transformer": Made(
        "ASTEmbeddings", lambda each: each(torch.randn(1, 30, 20)),
        settings={"num_mel_bins": 20, "max_length": 30, "frequency_stride": 3, "time_stride": 5},
    ),
    "bridgetower_vision_model": Made(
        "BridgeTowerVisionEmbeddings", lambda each: each(image()), "position_embedding", {"hidden_size": 128},
    ),
    "glm_image_vision": Made("GlmImageVisionEmbeddings", _glm, "position_embedding"),
    "hunyuan_vl_vision": Made(
        "HunYuanVLVisionPatchEmbed", lambda each: each(patches(), [[1, 4, 4]]), "position_embedding",
        {"max_image_size": SIDE}, unused=1,
    ),
    "lw_detr_vit": Made(
        "LwDetrViTEmbeddings", lambda each: each(image()).flatten(2).transpose(1, 2),
        settings={"pretrain_image_size": SIDE, "image_size": 64}, unused=1,
    ),
    "molmo2_vision": Made(
        "Molmo2VisionModel", lambda each: each(patches()[None]).last_hidden_state, "positional_embedding",
        {"image_size": [SIDE, SIDE], "num_position_embeddings": 16, "num_hidden_layers": 0, "head_dim": 8,
         "num_key_value_heads": 4},
    ),
    "rf_detr_dinov2": Made("RfDetrDinov2Embeddings", lambda each: each(image()), settings={"num_windows": 1}),
}  # fmt: skip


@pytest.mark.parametrize("model_type", MODELS)
@torch.no_grad()
def test_tables_add_what_a_module_does(model_type: str) -> None:
    made = MODELS[model_type]
    named = {"glm_image_vision": {"depth": 2, "num_heads": 4}}.get(model_type, {})
    config = config_of(model_type, **{**SIZES, **named, **made.settings})
    module = getattr(modeling_of(config), made.module)(config).eval()
    held = getattr(module, made.table)
    parameter = held.weight if hasattr(held, "weight") else held
    rows = parameter.normal_().reshape(-1, config.hidden_size).clone()
    layers = {} if model_type != "molmo2_vision" else {"num_hidden_layers": 1}  # run without layers above
    (call,) = read({**file_of(config), **layers}).input
    encoding = call.build()
    encoding.load_state_dict({"table": rows})
    found = []
    for table in (rows, torch.zeros_like(rows)):
        parameter.copy_(table.reshape(parameter.shape))
        torch.manual_seed(0)
        found.append(made.run(module))
    theirs = (found[0] - found[1])[:, made.before :]
    ours = encoding(torch.zeros(1, len(rows), config.hidden_size))[:, made.unused :]
    torch.testing.assert_close(theirs, ours, rtol=0.0, atol=1e-5)


def test_heads_of_bridgetower_have_64_channels() -> None:
    heads = read({"model_type": "bridgetower_vision_model", "hidden_size": 256}).layer(0).heads
    assert heads is not None
    assert (heads.queries, heads.dim) == (4, 64)


def test_tables_of_sines_are_refused() -> None:
    with pytest.raises(ConfigError) as problem:
        read({"model_type": "aimv2_vision_model", "is_native": True})
    assert str(problem.value) == (
        "is_native must be false, since aimv2_vision_model is read with a learned table alone; got true."
    )
    with pytest.raises(ConfigError) as problem:
        read({"model_type": "audio-spectrogram-transformer", "num_mel_bins": 8})
    assert str(problem.value) == "num_mel_bins must be at least patch_size=16, since patches are cut; got 8."


def test_all_have_rows() -> None:
    assert set(MODELS) <= set(PATCHES)
