"""Content-free biases that must agree in all their forms, each with the paper's formula for it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from situs import ALiBi, Fire, Kerple, MLPBias, Positions, Sandwich, SwinBias, T5Bias, Tupe
from situs.encodings.bias import BiasEncoding, ScoreMod
from tests.encodings import test_alibi, test_fire, test_kerple, test_mlp, test_sandwich, test_swin, test_t5, test_tupe
from tests.encodings.bias_places import KINDS, KINDS_WITHIN_A_TABLE, ROWS, Formula, Kinds
from tests.encodings.score_situations import stirred


@dataclass(frozen=True)
class Case:
    """An encoding of two heads and the paper's formula for it."""

    make: Callable[[], BiasEncoding]
    by_paper: Formula


def tupe(**options: Any) -> Case:
    sizes: dict[str, Any] = {"dim": 6, "num_heads": 2, "head_dim": 16, "max_length": ROWS}
    return Case(lambda: stirred(Tupe(**sizes, **options)), test_tupe.by_paper)


CASES = {
    "t5": Case(lambda: T5Bias(num_heads=2, init_std=1.0), test_t5.by_paper),
    "t5 causal": Case(lambda: T5Bias(num_heads=2, bidirectional=False, init_std=1.0), test_t5.by_paper),
    "t5 clipped": Case(lambda: T5Bias(num_heads=2, buckets="clipped", max_distance=9, init_std=1.0), test_t5.by_paper),
    "alibi": Case(lambda: ALiBi(num_heads=2), test_alibi.by_paper),
    "alibi learned": Case(
        lambda: ALiBi(num_heads=2, learned=True, asymmetric=True, slopes_ahead=[0.5, 0.2]), test_alibi.by_paper
    ),
    "kerple log": Case(lambda: Kerple(num_heads=2), test_kerple.by_paper),
    "kerple power": Case(lambda: Kerple(num_heads=2, kernel="power"), test_kerple.by_paper),
    "sandwich": Case(lambda: Sandwich(num_heads=2, cosine_dim=8), test_sandwich.by_paper),
    "fire": Case(lambda: Fire(num_heads=2, width=4, threshold=5.0), test_fire.by_paper),
    "mlp": Case(lambda: MLPBias(num_heads=2, width=4, log_distance=True), test_mlp.by_paper),
    "mlp normalised": Case(lambda: MLPBias(num_heads=2, width=4, depth=1, norm=True), test_mlp.by_paper),
    "swin v1": Case(lambda: SwinBias(num_heads=2, window=(8, 16), init_std=1.0), test_swin.by_paper),
    "swin v2": Case(
        lambda: SwinBias(num_heads=2, window=(8, 16), version="v2", width=4, init_std=1.0), test_swin.by_paper
    ),
    "tupe": tupe(),
    "tupe tied": tupe(untie_cls=False),
    "tupe relative": tupe(relative_buckets=8),
    "tupe relative, tied": tupe(untie_cls=False, relative_buckets=32),
}
SEQUENCES = [name for name in CASES if not name.startswith("swin")]
LEARNED = [name for name in CASES if name not in ("alibi", "sandwich")]
every_case = pytest.mark.parametrize("name", CASES)


def kinds_for(name: str) -> Kinds:
    """Positions of every kind that a bias of sequences takes: those of tables that end lie within them."""
    return KINDS_WITHIN_A_TABLE if CASES[name].make().usable_length else KINDS


every_sequence_and_kind = pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name in SEQUENCES for kind in kinds_for(name)]
)


def places_for(name: str, kind: str = "range") -> Positions:
    """128 places of one window for Swin, else of a sequence; by row and unsorted if asked."""
    if name.startswith("swin"):
        cells = Positions.grid(8, 16).ids
        return Positions.explicit(cells if kind == "range" else torch.cat([cells + 10_000_000, cells.flip(1)]))
    far = 200 if name.startswith("tupe") else 70_000
    if kind == "range":
        return Positions.range(128, start=far)
    return Positions.explicit(torch.stack([torch.randperm(128), torch.randint(far, far + 300, (128,))]))


def as_matrix(modify: ScoreMod, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """What a score_mod adds to each score, each asked for alone, as FlexAttention asks."""
    every: Callable[..., Tensor] = modify
    for axis in (3, 2, 1, 0):
        every = torch.vmap(every, in_dims=(0, *(0 if each == axis else None for each in range(4))))
    zeros = torch.zeros(*shape, dtype=dtype)
    return every(zeros, *(torch.arange(count, dtype=torch.int32) for count in zeros.shape))
