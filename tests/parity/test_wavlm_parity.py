"""WavLM in transformers: gates of each layer, buckets of the first, padding, and offsets beyond the last bucket."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.models.wavlm.configuration_wavlm import WavLMConfig
from transformers.models.wavlm.modeling_wavlm import WavLMAttention, WavLMEncoder, WavLMEncoderStableLayerNorm

from situs import Attention, GatedBias, Positions, attend

HEADS, WIDTH, DIM = 3, 8, 24


def encoder(buckets: int = 320, farthest: int = 800, kind: Any = WavLMEncoder) -> Any:
    """Two layers with random weights, none of them at its start."""
    config = WavLMConfig(
        hidden_size=DIM, num_hidden_layers=2, num_attention_heads=HEADS, intermediate_size=16, num_buckets=buckets,
        max_bucket_distance=farthest, num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2,
    )  # fmt: skip
    torch.manual_seed(0)
    model = kind(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(mean=float("norm" in name or "const" in name), std=0.3)
    return model


def ours(theirs: WavLMAttention, first: WavLMAttention) -> GatedBias:
    """Our encoding with the gates of a layer and the table of the first."""
    options = {"num_buckets": theirs.num_buckets, "max_distance": theirs.max_distance}
    gate = theirs.gru_rel_pos_linear
    encoding = GatedBias(num_heads=HEADS, options=options, dim=DIM).to(gate.weight.dtype)
    encoding.load_state_dict(
        {
            "bias_by_offset.table": first.rel_attn_embed.weight,
            "projection.weight": gate.weight.view(2, 4, -1).sum(1),
            "projection.bias": gate.bias.view(2, 4).sum(1),
            "strength": theirs.gru_rel_pos_const.flatten(),
        }
    )
    return encoding


def attention_of(theirs: WavLMAttention, encoding: GatedBias) -> Attention:
    """Our layer with the projections of theirs."""
    layer = Attention(dim=DIM, num_heads=HEADS, encoding=encoding, causal=False, bias=True).eval()
    pairs = (("query", "q"), ("key", "k"), ("value", "v"), ("out", "out"))
    parts = {name: getattr(theirs, f"{short}_proj") for name, short in pairs}
    state = {name: value for name, value in layer.state_dict().items() if name.startswith("encoding")}
    own = {name for name in layer.state_dict() if not name.startswith("encoding")}
    for name in own:
        part, _, kind = name.rpartition(".")
        word = next(each for each in parts if part.startswith(each))
        state[name] = getattr(parts[word], kind)
    layer.load_state_dict(state)
    return layer


def layers_of(model: nn.Module, x: Tensor, mask: Tensor | None = None) -> list[tuple[WavLMAttention, Tensor, Tensor]]:
    """Each layer's attention, what it is given and what it gives."""
    seen: list[tuple[WavLMAttention, Tensor, Tensor]] = []
    found = [each for each in model.modules() if isinstance(each, WavLMAttention)]
    hooks = [
        each.register_forward_hook(
            lambda module, given, options, made: seen.append((module, given[0], made[0])), with_kwargs=True
        )
        for each in found
    ]
    with torch.no_grad():
        model(x, attention_mask=mask)
    for hook in hooks:
        hook.remove()
    return seen


@pytest.mark.parametrize(
    ("buckets", "farthest", "length"), [(320, 800, 40), (32, 60, 300)], ids=["as released", "beyond its last bucket"]
)
@torch.no_grad()
def test_layers_attend_as_wavlms_do(buckets: int, farthest: int, length: int) -> None:
    seen = layers_of(encoder(buckets, farthest), torch.randn(2, length, DIM))
    assert len(seen) == 2
    for theirs, given, made in seen:
        layer = attention_of(theirs, ours(theirs, seen[0][0]))
        torch.testing.assert_close(layer(given), made, atol=1e-5, rtol=0)


@pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask and attn_mask")
@torch.no_grad()
def test_padding_is_left_out_as_wavlm_leaves_it_out() -> None:
    mask = torch.ones(2, 90, dtype=torch.bool)
    mask[0, 61:] = False
    seen = layers_of(encoder(32, 60, WavLMEncoderStableLayerNorm), torch.randn(2, 90, DIM), mask)
    for theirs, given, made in seen:
        out = attention_of(theirs, ours(theirs, seen[0][0]))(given, Positions.from_mask(mask))
        torch.testing.assert_close(out[mask], made[mask], atol=1e-5, rtol=0)


@torch.no_grad()
def test_the_gated_bias_is_wavlms_at_every_distance() -> None:
    theirs: Any = encoder().layers[0].attention
    encoding, x = ours(theirs, theirs), torch.randn(1, 5, DIM)
    offsets = torch.tensor([-5000, -801, -800, -799, -300, -80, -79, -1, 0, 1, 79, 80, 81, 500, 800, 5000])
    table = theirs.rel_attn_embed(theirs._relative_positions_bucket(offsets))  # (offsets, heads)
    torch.testing.assert_close(encoding.bias_by_offset.by_offset(offsets), table.T, atol=0, rtol=0)
    sums = theirs.gru_rel_pos_linear(x.view(1, 5, HEADS, WIDTH).transpose(1, 2)).unflatten(-1, (2, 4)).sum(-1)
    first, second = sums.sigmoid().unbind(-1)
    gate = first * (second * theirs.gru_rel_pos_const[..., 0] - 1.0) + 2.0
    torch.testing.assert_close(encoding.project(x)["bias_gate"][..., 0], gate, atol=1e-6, rtol=0)


def test_gradients_of_the_gates_and_the_table_are_wavlms() -> None:
    theirs: Any = encoder(8, 20).layers[0].attention.double()
    encoding: Any = ours(theirs, theirs)
    x = torch.randn(1, 30, DIM, dtype=torch.float64)
    q, k, v = (getattr(theirs, f"{name}_proj")(x).view(1, 30, HEADS, WIDTH).transpose(1, 2).detach() for name in "qkv")
    out = attend(q, k, v, encoding=encoding, features=encoding.project(x)).transpose(1, 2).reshape(1, 30, DIM)
    made = theirs(x)[0]
    torch.testing.assert_close(theirs.out_proj(out), made, atol=1e-12, rtol=0)
    theirs.out_proj(out).square().sum().backward()
    found = [encoding.bias_by_offset.table.grad, encoding.strength.grad, encoding.projection.weight.grad]
    wanted = torch.autograd.grad(
        made.square().sum(),
        [theirs.rel_attn_embed.weight, theirs.gru_rel_pos_const, theirs.gru_rel_pos_linear.weight],
    )
    torch.testing.assert_close(found[0], wanted[0])
    torch.testing.assert_close(found[1], wanted[1].flatten())
    # each of the four rows that are added up has the gradient of their sum
    torch.testing.assert_close(found[2].repeat_interleave(4, 0), wanted[2])
