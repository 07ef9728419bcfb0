"""What tests of rotations share."""

import pytest
import torch
from torch import Tensor

from situs.functional import rotary_frequencies, unit_circle
from situs.functional.rotation import PAIRINGS
from situs.rotation import RotationTable
from tests.references import rotary as reference

both_pairings = pytest.mark.parametrize("pairing", PAIRINGS)
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def table_of(positions: Tensor, dim: int, dtype: torch.dtype = torch.float32) -> RotationTable:
    """A table for positions of shape (batch, heads, sequence)."""
    return RotationTable(*unit_circle(positions.unsqueeze(-1), rotary_frequencies(dim), dtype))


def by_paper(x: Tensor, positions: Tensor, dim: int, pairing: str) -> Tensor:
    """The reference's float64 matrices, applied place by place; ``dim`` channels turn."""
    where = positions.expand(x.shape[:-1]).reshape(-1).double().numpy()
    rows = x.double().reshape(-1, x.shape[-1]).numpy()
    turned = reference.rotate(rows, where, reference.frequencies(dim), pairing)
    return torch.from_numpy(turned.reshape(x.shape))


def layouts() -> dict[str, Tensor]:
    """Vectors for 5 places of 8 channels, lying in memory in different ways."""
    storage = torch.randn(1000)
    return {
        "contiguous": storage[:240].view(2, 3, 5, 8),
        "transposed": storage[:240].view(2, 5, 3, 8).transpose(1, 2),
        "odd offset": storage[1:241].view(2, 3, 5, 8),
        "odd strides": storage[: 2 * 3 * 5 * 9].view(2, 3, 5, 9)[..., 1:],
        "channels first": storage[:240].view(2, 3, 8, 5).transpose(2, 3),
        "every other channel": storage[:480].view(2, 3, 5, 16)[..., ::2],
        "part of fused projections": storage[: 2 * 5 * 3 * 24].view(2, 5, 3, 24).transpose(1, 2)[..., 8:16],
        "expanded": storage[:40].view(1, 1, 5, 8).expand(2, 3, 5, 8),
        "odd stride of an axis of one": storage[:81].as_strided((1, 2, 5, 8), (81, 40, 8, 1)),
        "negated view": torch._neg_view(storage[:240].view(2, 3, 5, 8)),
    }
