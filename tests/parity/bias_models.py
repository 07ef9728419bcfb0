"""Released models that add a bias to their scores, as tiny random models, and what each layer's bias should equal."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal
from unittest.mock import patch

import torch
import transformers
from torch import Tensor

import situs
from situs import ALiBi, Encoding, Positions, T5Bias
from situs.attention import reference
from tests.parity.attention_probe import FusedProjection, Projections, Run, SeenAttention, enliven
from tests.parity.wide_transformers import in_float64

HEADS = 3
HEAD_DIM = 16
VOCABULARY = 50
LAYERS = 2

# float64 throughout, and no angles: some hundred roundings of scores below 100 in size
TOLERANCE = 1e-11

Padding = Literal["unpadded", "padded left", "padded right"]
PADDINGS: tuple[Padding, ...] = ("unpadded", "padded left", "padded right")

Stack = Literal["encoder", "decoder"]


@dataclass(frozen=True)
class Batch:
    """Tokens of two sequences, the second a third shorter and padded, and where they stand."""

    tokens: Tensor
    mask: Tensor
    positions: Positions

    @property
    def length(self) -> int:
        return self.tokens.shape[1]


def batch(length: int, padding: Padding) -> Batch:
    """Two sequences; padding is told by the mask alone."""
    tokens = torch.randint(2, VOCABULARY, (2, length))
    if padding == "unpadded":
        return Batch(tokens, torch.ones_like(tokens), Positions.range(length))
    lengths = torch.tensor([[length], [length - length // 3]])
    mask = (torch.arange(length) < lengths).long()
    if padding == "padded left":
        mask = mask.flip(1)
    side: Literal["left", "right"] = "left" if padding == "padded left" else "right"
    return Batch(tokens, mask, Positions.from_mask(mask, side=side))


@dataclass(frozen=True)
class BucketModel:
    """An architecture of T5's kind, with two layers in each stack."""

    name: str
    table_in_every_layer: bool = False

    def __str__(self) -> str:
        return self.name.lower()

    @property
    def architecture(self) -> Any:
        """The class of the model without a head."""
        return getattr(transformers, f"{self.name}Model")

    def build(self, **options: Any) -> Any:
        """A random model in the default dtype."""
        sizes: dict[str, Any] = {
            "d_model": HEADS * HEAD_DIM,
            "d_kv": HEAD_DIM,
            "d_ff": 32,
            "num_layers": LAYERS,
            "num_heads": HEADS,
            "decoder_start_token_id": 0,
            "pad_token_id": 0,
        }
        if self.name == "MPNet":
            sizes = {
                "hidden_size": HEADS * HEAD_DIM,
                "intermediate_size": 32,
                "num_hidden_layers": LAYERS,
                "num_attention_heads": HEADS,
                "max_position_embeddings": 1024,
            }
        given = {"vocab_size": VOCABULARY, "attn_implementation": "eager", **sizes, **options}
        model = self.architecture(self.architecture.config_class(**given))
        return enliven(model.to(torch.get_default_dtype()).eval())

    def path(self, stack: Stack, layer: int) -> str:
        """The name of a layer's self-attention."""
        if self.name == "MPNet":
            return f"encoder.layer.{layer}.attention.attn"
        kind = "LocalSelfAttention" if self.name == "LongT5" and stack == "encoder" else "SelfAttention"
        return f"{stack}.block.{layer}.layer.0.{kind}"

    def watch(self, model: Any, stack: Stack, layer: int, run: Run) -> SeenAttention:
        """What a layer's self-attention saw and made."""
        return Projections(self.path(stack, layer), HEAD_DIM, query="q", key="k", value="v", output="o")(model, run)

    def table_owner(self, model: Any, stack: Stack, layer: int) -> Any:
        """The module that holds the table of a layer, and computes its bias."""
        if self.name == "MPNet":
            return model.encoder
        return model.get_submodule(self.path(stack, layer if self.table_in_every_layer else 0))

    def encoding(self, model: Any, stack: Stack, layer: int) -> T5Bias:
        """Ours, with the released table."""
        weight = self.table_owner(model, stack, layer).relative_attention_bias.weight
        if self.name == "MPNet":
            ours = T5Bias(num_heads=HEADS, softmax_scale=None)
        else:
            ours = T5Bias(
                num_heads=HEADS,
                num_buckets=model.config.relative_attention_num_buckets,
                max_distance=model.config.relative_attention_max_distance,
                bidirectional=stack == "encoder",
            )
        ours.to(weight.dtype).load_state_dict({"table": weight})
        return ours


BIDIRECTIONAL = [
    BucketModel("T5"),
    BucketModel("MT5"),
    BucketModel("UMT5", table_in_every_layer=True),
    BucketModel("MPNet"),
]
LONG_T5 = BucketModel("LongT5")
CAUSAL = [*BIDIRECTIONAL[:3], LONG_T5]


@dataclass(frozen=True)
class SlopeModel:
    """An architecture with ALiBi."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        shared = " with shared keys" if self.options.get("multi_query") else ""
        return f"{self.name.lower()}{shared}"

    @property
    def architecture(self) -> Any:
        """The class of the language model."""
        return getattr(transformers, f"{self.name}ForCausalLM")

    def build(self, heads: int, **options: Any) -> Any:
        """A random model in the default dtype."""
        width = heads * HEAD_DIM
        sizes: dict[str, dict[str, Any]] = {
            "Bloom": {"hidden_size": width, "n_layer": 1, "n_head": heads},
            "Mpt": {"d_model": width, "n_layers": 1, "n_heads": heads, "max_seq_len": 700, "use_cache": True},
            "Falcon": {
                "hidden_size": width,
                "num_hidden_layers": 1,
                "num_attention_heads": heads,
                "alibi": True,
                "attn_implementation": "sdpa",
            },
        }
        given = {"vocab_size": VOCABULARY, "bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
        config = self.architecture.config_class(**{**given, **sizes[self.name], **self.options, **options})
        return enliven(self.architecture(config).to(torch.get_default_dtype()).eval())

    def watch(self, model: Any, run: Run) -> SeenAttention:
        """What the layer's attention saw and made."""
        if self.name == "Mpt":
            heads = model.config.n_heads
            return FusedProjection("transformer.blocks.0.attn", HEAD_DIM, "Wqkv", "out_proj", heads)(model, run)
        kv_heads = 1 if self.options.get("multi_query") else None
        path = "transformer.h.0.self_attention"
        return FusedProjection(path, HEAD_DIM, "query_key_value", "dense", kv_heads)(model, run)

    def encoding(self, heads: int) -> ALiBi:
        """Ours."""
        return ALiBi(num_heads=heads, factor=HEAD_DIM**-0.5 if self.name == "Falcon" else 1.0)

    @contextmanager
    def widened(self) -> Iterator[None]:
        """Within, the model computes in float64, with every mention of float32 and of bfloat16 read as that."""
        with in_float64(self.architecture), patch.object(torch.Tensor, "bfloat16", torch.Tensor.double):
            yield


BLOOM = SlopeModel("Bloom")
MPT = SlopeModel("Mpt")
FALCON = SlopeModel("Falcon", {"multi_query": False})
FALCON_WITH_SHARED_KEYS = SlopeModel("Falcon", {"multi_query": True})
SLOPED = [BLOOM, MPT, FALCON, FALCON_WITH_SHARED_KEYS]


def assert_attention_is_ours(
    seen: SeenAttention,
    encoding: Encoding,
    *,
    causal: bool,
    positions: Positions | None = None,
    window: int | None = None,
    tolerance: float = TOLERANCE,
) -> None:
    """Our reference attention on what the layer saw gives what the layer made, at every real token."""
    ours, unencoded = (
        reference(
            seen.query, seen.key, seen.value,
            encoding=each, causal=causal, positions=positions, window=window, scale=scale,
        )
        for each, scale in ((encoding, None), (situs.NoPE(), encoding.scale_for(seen.query.shape[-1])))
    )  # fmt: skip
    assert ours.shape == seen.output.shape
    real = torch.ones(ours.shape[0], ours.shape[2], dtype=torch.bool)
    if positions is not None and positions.valid is not None:
        real = positions.valid.expand_as(real)
    error, effect = ((each - seen.output).abs().amax((1, 3))[real].max() for each in (ours, unencoded))
    assert effect > 0.05, "the layer hardly depends on position, so agreement would prove nothing"
    assert error <= tolerance, f"off by {error:.2e}"


def assert_steps_are_ours(
    seen: SeenAttention, encoding: Encoding, positions: Positions, ends: list[int], tolerance: float = TOLERANCE
) -> None:
    """The same, of causal attention with a cache: calls that ended at these places, after a prompt up to the first."""
    for start, end in pairwise(ends):
        new = slice(start, end)
        known = slice(0, end)
        told: dict[str, Any] = {"positions": positions[new], "key_positions": positions[known]}
        untold: dict[str, Any] = {}
        for places in (told, untold) if positions.structure == "range" else (told,):
            ours = reference(
                seen.query[:, :, new], seen.key[:, :, known], seen.value[:, :, known],
                encoding=encoding, causal=True, **places,
            )  # fmt: skip
            assert (ours - seen.output[:, :, new]).abs().max() <= tolerance


def error_in_float32(seen: SeenAttention, encoding: ALiBi) -> float:
    """How far a float32 model's output may lie from the truth, from its rounding alone.

    A score is off by the rounding of its head_dim products and of its bias. transformers forms a slope as a power of
    a rounded number, so off by up to as many roundings as there are heads, and its product with the position by one
    more; ours has two. A softmax whose scores are off by at most d moves its weights by a factor of exp(2d) at most.
    """
    assert seen.query.dtype == torch.float32
    rounding, length = 2**-23, seen.query.shape[2]
    products = float(seen.query.norm(dim=-1).max() * seen.key.norm(dim=-1).max()) * encoding.scale_for(HEAD_DIM)
    bias = float(encoding.by_offset(torch.tensor([1 - length])).abs().max())
    score = rounding * (products * HEAD_DIM + bias * (2 * encoding.num_heads + 3))
    return float(seen.value.abs().max()) * (math.expm1(2 * score) + length * rounding)
