"""Inkling in transformers: sliding and global layers, padding, a cache, and texts far beyond the profiles."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn
from transformers import DynamicCache
from transformers.models.inkling import modeling_inkling as inkling
from transformers.models.inkling.configuration_inkling import InklingTextConfig

from situs import Encoding, Positions, ProjectedBias, Temperature, attend

HEADS, WIDTH, WINDOW, EXTENT, FLOOR = 4, 8, 12, 20, 16
START = 100_000


def tiny_model() -> Any:
    """One sliding and one global layer with random weights, none of them at its start."""
    config = InklingTextConfig(
        vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=HEADS, num_key_value_heads=2,
        head_dim=WIDTH, swa_num_attention_heads=HEADS, swa_num_key_value_heads=2, swa_head_dim=WIDTH,
        sliding_window_size=WINDOW, d_rel=6, rel_extent=EXTENT, log_scaling_n_floor=FLOOR, local_layer_ids=[0],
        intermediate_size=32, moe_intermediate_size=16, n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1,
        pad_token_id=0, mlp_layer_types=["dense", "dense"],
    )  # fmt: skip
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = inkling.InklingTextModel(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(mean=1.0 if "norm" in name else 0.0, std=0.4)
    return model


@contextmanager
def caught(model: nn.Module) -> Iterator[dict[int, dict[str, Any]]]:
    """What every layer's attention is given and gives, by its number."""
    seen: dict[int, dict[str, Any]] = {0: {}, 1: {}}
    plain = inkling.eager_attention_forward

    def attention(module: Any, query: Tensor, key: Tensor, value: Tensor, *args: Any, **options: Any) -> Any:
        out, weights = plain(module, query, key, value, *args, **options)
        seen[module.layer_idx] |= {"key": key, "value": value, "out": out.transpose(1, 2), "module": module}
        return out, weights

    def keep(layer: int, name: str) -> Any:
        return lambda module, given, made: seen[layer].update({name: made})

    attentions = [each for each in model.modules() if isinstance(each, inkling.InklingAttention)]
    hooks = [each.q_norm.register_forward_hook(keep(each.layer_idx, "query")) for each in attentions]
    hooks += [each.r_proj.register_forward_hook(keep(each.layer_idx, "relative")) for each in attentions]
    with patch.object(inkling, "eager_attention_forward", attention):
        yield seen
    for hook in hooks:
        hook.remove()


def ours(seen: dict[str, Any], positions: Positions, impl: str) -> Tensor:
    """Situs' attention on what a layer's attention was given."""
    module = seen["module"]
    encoding = ProjectedBias(
        num_heads=HEADS, rank=6, distances=module.rel_extent, dim=32, tempered=not module.is_sliding
    )
    encoding.load_state_dict({"profiles": module.rel_logits_proj.proj, "projection.weight": module.r_proj.weight})
    encodings: list[Encoding] = (
        [encoding] if module.is_sliding else [Temperature(dialect="inkling", original_length=FLOOR), encoding]
    )
    relative = seen["relative"].unflatten(-1, (HEADS, -1)).transpose(1, 2)
    return attend(
        seen["query"].transpose(1, 2), seen["key"], seen["value"], encoding=encodings, causal=True,
        positions=positions, key_positions=positions, window=module.sliding_window, scale=1 / WIDTH,
        features={"relative": relative}, impl=impl,  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.mark.parametrize("impl", ["toeplitz", "reference"])
@torch.no_grad()
def test_layers_attend_as_inklings_do(impl: str) -> None:
    model, tokens = tiny_model(), torch.randint(1, 40, (2, 300))
    with caught(model) as seen:
        model(input_ids=tokens)
    for layer in seen.values():
        out = ours(layer, Positions.range(300), impl)
        torch.testing.assert_close(out, layer["out"], atol=1e-5, rtol=0)


@torch.no_grad()
def test_padding_is_left_out_as_inkling_leaves_it_out() -> None:
    model, tokens = tiny_model(), torch.randint(1, 40, (2, 50))
    mask = torch.ones(2, 50, dtype=torch.long)
    mask[0, 37:] = 0
    with caught(model) as seen:
        model(input_ids=tokens, attention_mask=mask)
    for layer in seen.values():
        out = ours(layer, Positions.from_mask(mask), "auto")
        for row, count in enumerate((37, 50)):
            torch.testing.assert_close(out[row, :, :count], layer["out"][row, :, :count], atol=1e-5, rtol=0)


class Begun(DynamicCache):
    """A cache that is empty and says that a text began long before."""

    def get_query_offset(self, layer_idx: int = 0) -> int:
        """Where the next query stands."""
        offset: int = super().get_query_offset(layer_idx)
        return START + offset

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """How many keys there are, and where the first of them stands."""
        length, offset = super().get_mask_sizes(query_length, layer_idx)
        return length, START + offset


@torch.no_grad()
def test_padding_on_the_left_is_left_out_as_inkling_leaves_it_out() -> None:
    model, tokens = tiny_model(), torch.randint(1, 40, (2, 40))
    mask = torch.ones(2, 40, dtype=torch.long)
    mask[0, :11] = 0
    with caught(model) as seen:
        model(input_ids=tokens, attention_mask=mask)
    # Inkling counts the tokens of a row, padding too; of its layers, those with a temperature alone can tell
    in_row = Positions.explicit(torch.arange(40), valid=mask.bool())
    for number, layer in seen.items():
        for positions in (in_row, Positions.from_mask(mask)) if number == 0 else (in_row,):
            out = ours(layer, positions, "auto")
            for row, first in enumerate((11, 0)):
                torch.testing.assert_close(out[row, :, first:], layer["out"][row, :, first:], atol=1e-5, rtol=0)


@torch.no_grad()
def test_far_starts_are_as_inklings_are() -> None:
    model, tokens = tiny_model(), torch.randint(1, 40, (1, 40))
    with caught(model) as seen:
        model(input_ids=tokens, past_key_values=Begun(config=model.config))
    for layer in seen.values():
        out = ours(layer, Positions.range(40, start=START), "auto")
        torch.testing.assert_close(out, layer["out"], atol=1e-5, rtol=0)


@torch.no_grad()
def test_inklings_cache_gives_the_rows_of_a_whole_call() -> None:
    model, tokens = tiny_model(), torch.randint(1, 40, (1, 45))
    with caught(model) as seen:
        model(input_ids=tokens)
    whole = {number: ours(layer, Positions.range(45), "auto") for number, layer in seen.items()}
    cache = DynamicCache(config=model.config)
    with caught(model) as seen:
        model(input_ids=tokens[:, :40], past_key_values=cache, use_cache=True)
        for step in range(40, 45):
            model(input_ids=tokens[:, step : step + 1], past_key_values=cache, use_cache=True)
            for number, layer in seen.items():
                row = whole[number][:, :, step : step + 1]
                torch.testing.assert_close(row, layer["out"], atol=1e-5, rtol=0)
