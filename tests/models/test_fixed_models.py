"""Rotations of models without rope parameters, against those of transformers in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from situs.models import read
from situs.models.readers.fixed import READERS
from situs.models.sources.strict import ConfigError
from tests.models.hugging_face import config_of, modeling_of
from tests.models.reading import file_of
from tests.parity.wide_transformers import WIDE_TOLERANCE, in_float64

pytestmark = pytest.mark.once

LENGTH, DIM, HEADS = 50, 160, 4  # heads of 40, of which CLVP rotates 32
SIZES: dict[str, dict[str, Any]] = {
    "gptj": {"n_embd": DIM, "n_head": HEADS, "n_layer": 2, "rotary_dim": 24, "n_positions": LENGTH},
    "codegen": {"n_embd": DIM, "n_head": HEADS, "n_layer": 2, "rotary_dim": 24, "n_positions": LENGTH},
    "roformer": {
        "hidden_size": DIM, "num_attention_heads": HEADS, "num_hidden_layers": 2, "max_position_embeddings": LENGTH,
        "rotary_value": True,
    },
    "esm": {
        "hidden_size": DIM, "num_attention_heads": HEADS, "num_hidden_layers": 2, "max_position_embeddings": LENGTH,
        "position_embedding_type": "rotary", "rope_theta": 500.0, "vocab_size": 33, "pad_token_id": 1,
    },
    "clvp_encoder": {"hidden_size": DIM, "num_attention_heads": HEADS, "num_hidden_layers": 2, "projection_dim": 64},
}  # fmt: skip


def theirs(config: Any, x: Tensor) -> Tensor:
    """What a model makes of queries (1, heads, tokens, channels), by its own modules and functions."""
    module, ids = modeling_of(config), torch.arange(LENGTH)[None]
    if config.model_type in ("gptj", "codegen"):
        table = module.create_sinusoidal_positions(LENGTH, config.rotary_dim)
        sin, cos = table[ids].chunk(2, -1)
        turned, rest = x.transpose(1, 2).split((config.rotary_dim, x.shape[-1] - config.rotary_dim), -1)
        turned = module.apply_rotary_pos_emb(turned, sin, cos)
        return torch.cat((turned, rest), -1).transpose(1, 2)
    if config.model_type == "roformer":
        made = module.RoFormerSinusoidalPositionalEmbedding(LENGTH, DIM // HEADS)
        table = made.create_weight()[None, None]
        return module.RoFormerSelfAttention.apply_rotary_position_embeddings(table, x, x, x)[2]  # type: ignore[no-any-return]
    if config.model_type == "esm":
        return module.apply_rotary_pos_emb(x, x, *module.EsmRotaryEmbedding(config)(x, ids))[0]  # type: ignore[no-any-return]
    angles = module.ClvpRotaryPositionalEmbedding(config)(x.transpose(1, 2).flatten(2))[0]
    turned, rest = x.split((angles.shape[-1], x.shape[-1] - angles.shape[-1]), -1)
    turned = module.apply_rotary_pos_emb(turned, turned, turned, angles.cos(), angles.sin(), ids)[2]
    return torch.cat((turned, rest), -1)


@pytest.mark.thin(6)
@pytest.mark.parametrize("model_type", READERS)
@torch.no_grad()
def test_fixed_rotations_are_those_of_transformers(model_type: str) -> None:
    config = config_of(model_type, **SIZES[model_type])
    part = read(file_of(config))
    assert len(part.layers) == 2
    with in_float64(modeling_of(config).__dict__[type(config).__name__.replace("Config", "PreTrainedModel")]
                    if model_type != "clvp_encoder" else modeling_of(config).ClvpPreTrainedModel):  # fmt: skip
        x = torch.randn(1, HEADS, LENGTH, DIM // HEADS)
        expected = theirs(config, x)
        for encoding in part.layer(0).encodings:  # of queries and keys, and of values where these are rotated too
            torch.testing.assert_close(encoding(x), expected, rtol=0.0, atol=WIDE_TOLERANCE)
    values = sum(call.cls == "RotaryValue" for call in part.layer(0).calls)
    assert values == (model_type in ("roformer", "clvp_encoder"))


@torch.no_grad()
def test_esms_table_gives_padding_a_row_of_its_own() -> None:
    config = config_of("esm", **SIZES["esm"] | {"position_embedding_type": "absolute"})
    (call,) = read(file_of(config)).input
    embeddings = modeling_of(config).EsmEmbeddings(config).eval()
    embeddings.position_embeddings.weight.data.normal_()
    ids = torch.randint(4, 30, (2, 9))
    ids[1, :3] = 1
    found: list[Tensor] = []
    embeddings.position_embeddings.register_forward_hook(lambda module, args, output: found.append(output.clone()))
    embeddings(ids)
    ours = call.build()
    ours.load_state_dict({"table": embeddings.position_embeddings.weight})
    from situs import Positions

    added = ours(torch.zeros(2, 9, DIM), Positions.from_mask(ids != 1))
    torch.testing.assert_close(added, found[0], rtol=0.0, atol=0.0)


@pytest.mark.parametrize(
    ("model_type", "settings", "message"),
    [
        ("gptj", {"rotary_dim": 33}, "rotary_dim must be even and at most 256, the channels of a head, since pairs are "
         "rotated; got 33."),
        ("esm", {"position_embedding_type": "rotery", "pad_token_id": 1}, "position_embedding_type must be one of "
         "absolute, rotary, since positions are a table or rotations; got 'rotery'. Did you mean 'rotary'?"),
        ("esm", {"max_position_embeddings": 2, "pad_token_id": 1}, "max_position_embeddings must be more than 2, since "
         "positions are counted from row 2 on; got 2."),
        ("clvp_encoder", {"hidden_size": 96}, "projection_dim must rotate an even number of at most 8 channels, those "
         "of a head, and rotates 32 or more; got 768, of which 32 are rotated."),
    ],
)  # fmt: skip
def test_wrong_settings_are_refused(model_type: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read({"model_type": model_type, **settings})
    assert str(raised.value) == message
