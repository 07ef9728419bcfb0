"""Cases: one whole number draws one call of attention, which prints as the Python that makes it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from random import Random
from typing import Literal

import torch
from torch import Tensor

from situs import Positions
from tests.fuzz import draw_encodings, made_positions
from tests.fuzz.draw_encodings import RECIPES, draw_recipes
from tests.fuzz.draw_positions import Drawn, Limits, draw_positions, draw_whole
from tests.fuzz.needs import Needs, Sizes
from tests.fuzz.oracle import declared_scale
from tests.fuzz.oracle_features import features_of

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
WIDTHS, VALUE_WIDTHS = (1, 2, 4, 7, 8, 12, 16, 24, 48, 64), (1, 5, 8, 20)
"""Of queries and keys, and of values, where these have their own."""
LOOPED = (16, 32, 48, 64, 96)
"""Of all three, where compiled loops shall serve."""


@dataclass(frozen=True)
class Shard:
    """A context-parallel rank: its queries meet the keys of all ranks, one rank's after another's."""

    rank: int
    world_size: int
    layout: Literal["contiguous", "zigzag"]


@dataclass(frozen=True)
class Case:
    """A call of ``attend``. Tensors and parameters are drawn from the seed."""

    seed: int
    encodings: tuple[str, ...] = ()
    positions: str | None = None
    key_positions: str | None = None
    batch: int = 1
    heads: int = 2
    kv_heads: int = 2
    queries: int = 8
    keys: int = 8
    head_dim: int = 8
    value_dim: int = 8
    dtype: str = "float64"
    parameter_dtype: str = "float64"
    feature_dtype: str | None = None
    """That of features, where encodings take some; the tensors' if left out."""

    causal: bool = True
    window: int | None = None
    mask: str | None = None
    chunk: int | None = None
    scale: float | None = None
    softcap: float | None = None
    sinks: bool = False
    layout: str = "contiguous"
    padding: str | None = None
    """What padded tokens hold: "nan", "inf", "large" or "anything"; None for numbers like others."""

    shard: Shard | None = None
    """If given, ``positions`` are those of the whole sequence."""

    looped: bool = False
    """Whether the seed was drawn for compiled loops."""

    @property
    def name(self) -> str:
        """What to set to run it again."""
        return "corner" if self.seed < 0 else f"SITUS_FUZZ_SEED={'loop:' * self.looped}{self.seed}"


def draw(seed: int, *, looped: bool = False) -> Case:
    """The case of a seed; ``looped``, one of dtypes and widths that compiled loops serve."""
    rng = Random(f"looped {seed}" if looped else seed)
    names = draw_recipes(rng, seed)
    needs = needs_of(names)
    dtype = rng.choices(tuple(DTYPES), (60, 0, 20, 20) if looped else (50, 30, 10, 10))[0]
    batch = rng.choice((1, 1, 2, 2, 3))
    sizes = draw_sizes(rng, needs, *((LOOPED, LOOPED) if looped else (WIDTHS, VALUE_WIDTHS)))
    longest = max(16, math.isqrt(needs.pairs // (batch * sizes.heads)))
    limits = Limits(needs, batch, dtype != "float64", longest)
    shard = None
    if 1 in needs.axes and rng.random() < 0.12:
        shard = Shard(0, rng.choice((1, 2, 2, 3, 4)), rng.choice(("contiguous", "zigzag", "zigzag")))
        shard = replace(shard, rank=rng.randrange(shard.world_size))
        whole, length = draw_whole(rng, limits, shard.world_size, shard.layout)
        drawn = Drawn(whole, None, length // shard.world_size, length)
    else:
        drawn = draw_positions(rng, limits)
    encodings = tuple(RECIPES[name][1](rng, sizes) for name in names)
    case = Case(
        seed=seed,
        looped=looped,
        encodings=encodings,
        positions=drawn.positions,
        key_positions=drawn.key_positions,
        batch=batch,
        heads=sizes.heads,
        kv_heads=sizes.kv_heads,
        queries=drawn.queries,
        keys=drawn.keys,
        head_dim=sizes.head_dim,
        value_dim=sizes.value_dim,
        dtype=dtype,
        parameter_dtype=rng.choice((dtype, "float32")),
        causal=rng.random() < 0.6 or needs.causal,
        window=rng.choice((None, None, None, None, None, None, 1, 2, 7, 33, 70, 1000)),
        scale=rng.choice((None, None, None, None, None, None, 0.0, 0.05, 0.3, 1.0, 2.0, -0.4)),
        layout=rng.choice(("contiguous", "contiguous", "transposed", "transposed", "sliced", "strided")),
        padding=rng.choice(("nan", "inf", "large", "anything", None)),
        shard=shard,
    )
    if rng.random() < 0.3:
        case = replace(case, mask=_mask(rng, case))
    if case.scale is None and not scales_agree(encodings):
        case = replace(case, scale=0.3)
    return _with_softmax(case)


def _with_softmax(case: Case) -> Case:
    """Draw chunks, a cap and sinks for some cases."""
    rng = Random(f"softmax of {case.seed}")
    chunk = rng.choice((None, None, None, None, None, 1, 5, 32, 100))
    made = [draw_encodings.make(each) for each in case.encodings]
    return replace(
        case,
        chunk=chunk if _are_counted(case.positions) and _are_counted(case.key_positions) else None,
        softcap=rng.choice((None, None, None, None, 0.5, 2.0, 30.0)),
        sinks=rng.random() < 0.3,
        feature_dtype=rng.choice((None, None, case.parameter_dtype)) if features_of(made) else None,
    )


def _are_counted(written: str | None) -> bool:
    """Whether positions are whole numbers on one axis, which chunks are counted by."""
    given = made_positions.make(written)
    ids = given.ids if isinstance(given, Positions) else given
    return not isinstance(ids, Tensor) or (ids.ndim < 3 and not ids.is_floating_point())


def needs_of(names: tuple[str, ...]) -> Needs:
    found = draw_encodings.ANY
    for name in names:
        found = found.with_(RECIPES[name][0])
    return found


def draw_sizes(
    rng: Random, needs: Needs, widths: tuple[int, ...] = WIDTHS, value_widths: tuple[int, ...] = VALUE_WIDTHS
) -> Sizes:
    heads, group = rng.choice(((1, 1), (2, 1), (2, 2), (3, 1), (3, 3), (4, 1), (4, 2), (4, 4), (6, 3)))
    head_dim = rng.choice([each for each in widths if each % needs.multiple == 0])
    value_dim = head_dim if needs.same_width or rng.random() < 0.7 else rng.choice(value_widths)
    return Sizes(heads, heads if needs.own_keys else heads // group, head_dim, value_dim)


def scales_agree(encodings: tuple[str, ...]) -> bool:
    return len({declared_scale(draw_encodings.make(each)) for each in encodings} - {None}) < 2


def _mask(rng: Random, case: Case) -> str:
    """A mask of any number of axes that broadcasts to the scores."""
    full = case.batch, case.heads, case.queries, case.keys
    axes = rng.choice((4, 4, 4, 3, 2, 2, 1, 0))
    shape = tuple(size if rng.random() < 0.7 else 1 for size in full[4 - axes :])
    kind = rng.choice(("bool", "float", "float"))
    return f"mask({kind!r}, {shape}, seed={rng.randrange(1000)})"


def mask(kind: str, shape: tuple[int, ...], *, seed: int) -> Tensor:
    """A mask that hides some keys, and now and then all keys of a query."""
    generator = torch.Generator().manual_seed(seed)
    share = Random(seed).choice((0.1, 0.5, 0.9))
    shown = torch.rand(shape, generator=generator) > share
    if len(shape) > 1 and shape[-2] > 1:
        shown &= (torch.rand(shape[-2], generator=generator) > 0.2).unsqueeze(-1)
    if kind == "bool":
        return shown
    added = torch.randn(shape, generator=generator, dtype=torch.float64)
    return torch.where(shown, added, -math.inf)


def make_mask(case: Case) -> Tensor | None:
    """The mask that a case's expression writes, in the tensors' dtype."""
    if case.mask is None:
        return None
    made: Tensor = eval(case.mask, {"mask": mask})
    return made if made.dtype == torch.bool else made.to(DTYPES[case.dtype])
