"""Properties of encodings for images: each answer is one that is known, or follows from a formula."""

import pytest
import torch

import situs
from situs.lab.probing.findings import Finding
from situs.lab.probing.images import DIM, HEADS, measure
from situs.lab.probing.properties import PROBES

ASKED = ("unique", "relative", "norm_preserving", "equivariant")


def swin() -> situs.SwinBias:
    bias = situs.SwinBias(num_heads=HEADS, window=(5, 4))
    with torch.no_grad():
        bias.table.normal_(generator=torch.Generator().manual_seed(0))
    return bias


def learned() -> situs.LearnedGrid:
    table = situs.LearnedGrid(dim=DIM, size=(5, 4), prefix=1)
    with torch.no_grad():
        table.table.normal_(generator=torch.Generator().manual_seed(0))
    return table


@pytest.mark.parametrize(
    ("encoding", "holds"),
    [
        (swin(), (True, True, True, False)),
        (learned(), (True, False, False, False)),
        (situs.NoPE(), (False, True, True, True)),
        (situs.Sinusoidal(dim=DIM, axes=2), (True, False, False, False)),
        (situs.Rotary(head_dim=DIM // HEADS, split=situs.Axial()), (True, True, True, False)),
    ],
    ids=["swin", "learned_grid", "none", "sinusoidal", "rotary"],
)
def test_properties_are_those_that_the_formula_has(encoding: situs.Encoding, holds: tuple[bool, ...]) -> None:
    found = measure(encoding, (5, 4))
    assert tuple(found[name].holds for name in ASKED) == holds


def test_what_a_window_cannot_show_is_not_asked() -> None:
    found = measure(swin(), (5, 4))
    assert list(found) == list(PROBES)
    for name in set(PROBES) - set(ASKED):
        assert found[name] == Finding(None, None, "", "A window of 5 x 4 patches has an end.")


def test_a_learned_table_differs_between_patches_by_what_its_rows_differ() -> None:
    table = learned()
    with torch.no_grad():
        table.table[1:] = table.table[1]  # every patch the same
    found = measure(table, (5, 4))
    assert not found["unique"].holds
    assert found["relative"].holds
    assert found["equivariant"].holds
