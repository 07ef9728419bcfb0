"""Cases of the layer: one whole number draws one training step, or one generation with a cache."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any

import torch

import situs
from tests.fuzz import cases, draw_encodings
from tests.fuzz.cases import DTYPES
from tests.fuzz.draw_encodings import RECIPES, draw_recipes

DIM = 6  # of tokens, as the tables of DeBERTa have, so that it can use the layer's projections


@dataclass(frozen=True)
class LayerCase:
    """Calls of ``Attention``. Tokens and parameters are drawn from the seed."""

    seed: int
    encodings: tuple[str, ...] = ()
    batch: int = 1
    heads: int = 2
    kv_heads: int = 2
    head_dim: int = 8
    causal: bool = True
    window: int | None = None
    qk_norm: bool = False
    bias: bool = False
    dtype: str = "float64"
    chunks: tuple[int, ...] = ()
    """Tokens of each call with a cache; the first is the prompt. None for training."""

    prompts: tuple[int, ...] | None = None
    """Real tokens of each row of the prompt, where they differ."""

    side: str = "right"
    """Where padding stands: "right", "left" or "anywhere"."""

    padding: str | None = None
    """What padded tokens hold."""

    length: int = 8
    """Tokens, in training."""

    told: bool = False
    """Whether chunks are told their part of the whole sequence's positions."""

    evicted: tuple[int, int, int] | None = None
    """After which chunk, how many tokens, behind how many that stay."""

    @property
    def name(self) -> str:
        """What to set to run it again."""
        return "corner" if self.seed < 0 else f"SITUS_FUZZ_SEED=layer:{self.seed}"


def draw_layer(seed: int) -> LayerCase:
    """The case of a seed."""
    rng = Random(seed)
    while True:
        names = draw_recipes(rng, seed if rng.random() < 0.5 else rng.randrange(1000))
        needs = cases.needs_of(names)
        if 1 in needs.axes and "before" not in names:
            sizes = replace(cases.draw_sizes(rng, replace(needs, same_width=True)), dim=DIM)
            if "gated" in names and DIM % sizes.heads:  # each head's gates have a share of the channels
                continue
            encodings = tuple(RECIPES[name][1](rng, sizes) for name in names)
            if cases.scales_agree(encodings):
                break
    case = LayerCase(
        seed=seed,
        encodings=encodings,
        batch=rng.choice((1, 2, 3)),
        heads=sizes.heads,
        kv_heads=sizes.kv_heads,
        head_dim=sizes.head_dim,
        causal=rng.random() < 0.8 or needs.causal,
        window=rng.choice((None, None, None, 1, 5, 40)),
        qk_norm=rng.random() < 0.3,
        bias=rng.random() < 0.5,
        dtype=rng.choice(("float64", "float64", "float64", "float32")),
    )
    if rng.random() < 0.3:
        return replace(case, length=rng.choice((1, 2, 33, 64, 129, 257)), causal=rng.random() < 0.5 or needs.causal)
    prompt = rng.choice((1, 2, 9, 33, 64, 100, 255, 300))
    chunks = (prompt, *rng.choice(((1, 1, 1), (1, 1, 5, 1), (40, 1), (3, 17, 1, 1), (130, 2))))
    case = replace(case, chunks=chunks, told=needs.lengths or rng.random() < 0.2)
    if not case.told and rng.random() < 0.4:
        prompts = tuple(rng.randint(1, prompt) for _ in range(case.batch))
        padding, side = rng.choice(("nan", "inf", "anything", None)), rng.choice(("right", "left", "anywhere"))
        return replace(case, prompts=prompts, padding=padding, side=side)
    by_rotation = not any("Gain" in each for each in encodings)
    if not case.told and by_rotation and rng.random() < 0.4:
        at = rng.randrange(1, len(chunks))
        stay = rng.randint(0, min(4, sum(chunks[:at])))
        most = sum(chunks[:at]) - stay
        if case.window is not None and stay:  # tokens behind those that stay are held as far as the window reaches
            most = max(0, most - case.window + 1)
        return replace(case, evicted=(at, rng.randint(0, most), stay))
    return case


def make_layer(case: LayerCase) -> Any:
    """The layer of a case, with parameters that matter."""
    torch.manual_seed(case.seed)
    generator = torch.Generator().manual_seed(case.seed)
    encodings = [draw_encodings.make(each) for each in case.encodings]
    layer = situs.Attention(
        dim=DIM,
        num_heads=case.heads,
        num_kv_heads=case.kv_heads,
        head_dim=case.head_dim,
        encoding=encodings or None,
        causal=case.causal,
        window=case.window,
        qk_norm=case.qk_norm,
        bias=case.bias,
    )
    with torch.no_grad():
        for projection in (layer.query, layer.key, layer.value, layer.out):
            for parameter in projection.parameters():
                parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator))
        for norm in (layer.query_norm, layer.key_norm):
            if norm is not None:
                norm.weight.copy_(0.5 + torch.rand(norm.weight.shape, generator=generator))
    draw_encodings.draw_parameters(encodings, generator)
    for each in encodings:
        if getattr(each, "share_att_key", False):
            if case.heads == case.kv_heads:
                each.tie(query=layer.query, key=layer.key)
            for lent in each.borrowed:
                lent.to(DTYPES[case.dtype])
    return layer.to(DTYPES[case.dtype])
