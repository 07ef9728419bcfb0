"""Funnel's attention, whose [CLS] has no position, within a block and from pooled queries to all keys, and ours."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import FunnelConfig
from transformers.models.funnel.modeling_funnel import FunnelAttentionStructure, FunnelRelMultiheadAttention

from situs import Positions, TransformerXL, attend
from situs.attention import reference
from tests.parity.attention_probe import as_heads, enliven
from tests.parity.score_models import padded
from tests.parity.wide_transformers import WIDE_TOLERANCE, in_float64

HEADS, HEAD_DIM, LENGTH = 4, 8, 30
WIDTH = HEADS * HEAD_DIM


def first_is_cls(ids: list[int], separate: bool, valid: torch.Tensor | None = None) -> Positions:
    placed = torch.arange(len(ids)) > 0
    return Positions.explicit(torch.tensor(ids), placed=placed if separate else None, valid=valid)


@pytest.mark.parametrize("separate", [True, False], ids=["cls apart", "cls as others"])
@pytest.mark.parametrize("pooled", [False, True], ids=["within a block", "pooled queries"])
@pytest.mark.parametrize("side", [None, "right"])
@torch.no_grad()
def test_funnels_attention_equals_ours(separate: bool, pooled: bool, side: str | None) -> None:
    config = FunnelConfig(
        d_model=WIDTH, n_head=HEADS, d_head=HEAD_DIM, block_sizes=[1, 1], separate_cls=separate, truncate_seq=True
    )
    with in_float64(FunnelRelMultiheadAttention):
        layer: Any = enliven(FunnelRelMultiheadAttention(config, 1 if pooled else 0).double().eval())
        for parameter in (layer.r_w_bias, layer.r_r_bias, layer.r_kernel):
            parameter.normal_(std=0.5)
        x = torch.randn(2, LENGTH, WIDTH, dtype=torch.float64)
        mask = torch.ones(2, LENGTH) if side is None else padded(LENGTH, LENGTH - 9, side).double()
        structure = FunnelAttentionStructure(config).eval()
        inputs = structure.init_attention_inputs(x, attention_mask=mask)
        query, at_queries = x, list(range(LENGTH))
        if pooled:
            query, inputs = structure.pre_attention_pooling(x, inputs)
            at_queries = structure.stride_pool_pos(at_queries, 1)
        kept: list[torch.Tensor] = []
        layer.post_proj.register_forward_pre_hook(lambda module, given: kept.append(given[0]))
        layer(query, x, x, inputs)
    ours = TransformerXL(dim=WIDTH, num_heads=HEADS, head_dim=HEAD_DIM).double()
    weights = {
        "projection": layer.r_kernel.flatten(1).T,
        "content_bias": layer.r_w_bias,
        "position_bias": layer.r_r_bias,
    }
    ours.load_state_dict(weights)
    heads = [as_heads(each, HEAD_DIM) for each in (layer.q_head(query), layer.k_head(x), layer.v_head(x), kept[0])]
    told: dict[str, Any] = {
        "positions": first_is_cls(at_queries, separate),
        "key_positions": first_is_cls(list(range(LENGTH)), separate, mask.bool()),
    }
    for run in (attend, reference):
        out = run(*heads[:3], encoding=ours, **told)
        torch.testing.assert_close(out, heads[3], rtol=0.0, atol=WIDE_TOLERANCE)
    plain = attend(
        *heads[:3], encoding=ours, positions=torch.tensor(at_queries), key_positions=told["key_positions"].ids
    )
    if separate and side is None:
        assert float((plain - heads[3]).abs().max()) > 0.05
