"""Reformer's table and layers, against those of transformers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from situs import Positions
from situs.attention import reference
from situs.models import ConfigError, read
from tests.models.hugging_face import config_of, modeling_of
from tests.models.reading import file_of

pytestmark = pytest.mark.once

SIZES: dict[str, Any] = {
    "hidden_size": 24, "num_attention_heads": 3, "attention_head_size": 8, "attn_layers": ["local", "lsh"],
    "axial_pos_shape": [6, 10], "axial_pos_embds_dim": [8, 16], "local_attn_chunk_length": 20,
    "max_position_embeddings": 60, "lsh_attn_chunk_length": 20,
}  # fmt: skip


@pytest.mark.parametrize("axial", [True, False])
@torch.no_grad()
def test_its_table_is_transformers_own(axial: bool) -> None:
    config = config_of("reformer", **SIZES, axial_pos_embds=axial)
    theirs = modeling_of(config).ReformerEmbeddings(config).eval().position_embeddings
    for parameter in theirs.parameters():
        parameter.normal_()
    (call,) = read(file_of(config)).input
    encoding = call.build()
    if axial:
        rows, columns = theirs.weights  # (6, 1, 8) and (1, 10, 16)
        parts = (rows.expand(6, 10, 8), columns.expand(6, 10, 16))
        table = torch.cat(parts, -1).reshape(60, 24)
    else:
        table = theirs.embedding.weight
    encoding.load_state_dict({"table": table})
    ids = torch.randint(0, 60, (1, 33))
    ours = encoding(torch.zeros(1, 33, 24), Positions.explicit(ids))
    torch.testing.assert_close(ours, theirs(ids), rtol=0, atol=0)


@pytest.mark.parametrize("causal", [True, False])
@torch.no_grad()
def test_its_local_layers_see_chunks(causal: bool) -> None:
    config = config_of("reformer", **SIZES, is_decoder=causal)
    theirs = modeling_of(config).LocalSelfAttention(config).double().eval()
    layer = read(file_of(config)).layer(0)
    assert (layer.kind, layer.causal) == ("chunked", causal)
    x = torch.randn(1, 60, 24, dtype=torch.float64)
    query, key, value = (
        getattr(theirs, name)(x).view(1, 60, 3, 8).transpose(1, 2) for name in ("query", "key", "value")
    )
    chunks = torch.arange(60) // 20
    behind = (chunks[:, None] - chunks[None]) % 3  # the first chunk sees the last
    ours = reference(query, key, value, mask=behind <= 1, **layer.options())
    expected = theirs(x).hidden_states.view(1, 60, 3, 8).transpose(1, 2)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-12)


def test_what_is_read_is_told() -> None:
    model = read({"model_type": "reformer", **SIZES})
    assert [layer.kind for layer in model.layers] == ["chunked", "full"]
    assert (model.lengths.declared, model.lengths.limit) == (60, 60)
    assert [str(note) for note in model.notes] == [
        "axial_pos_shape: row i is row i // 10 of the first part beside row i % 10 of the second, of 8 and 16 channels",
        "attn_layers: tokens of local layers see their chunk of 20, 1 before and 0 behind it, by a mask; the first "
        "chunk follows on the last; all of a text that is no longer than a chunk",
        "attn_layers: layers of lsh take keys from queries, normalised, and see those of their own hash: Situs has "
        "none such",
    ]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError) as problem:
        read({"model_type": "reformer", **SIZES, "axial_pos_embds_dim": [8, 8]})
    assert str(problem.value) == (
        "axial_pos_embds_dim must add up to hidden_size=24, since both parts of the table lie side by side; got [8, 8]."
    )
    with pytest.raises(ConfigError) as problem:
        read({"model_type": "reformer", **SIZES, "attn_layers": ["global"]})
    assert str(problem.value) == (
        "attn_layers must be a list of local and lsh, since layers see chunks or hashes; got ['global']."
    )
