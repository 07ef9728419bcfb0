"""Axes of unequal share, base, scaling and layout, as image and video models have them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from situs import (
    Axial,
    DynamicNTKScaling,
    LinearScaling,
    LongRoPE,
    NTKScaling,
    Positions,
    Rotary,
    Sections,
    YaRN,
    attend,
)
from situs.functional import time_last_axis_map
from tests.raising import raises_exactly
from tests.references import axial as reference
from tests.references.scaling import by_parts

FAR = 10_000_000


class Model(NamedTuple):
    """A released layout, smaller, and the ladders of its formula."""

    split: Axial
    ladders: list[Any]
    sizes: tuple[int, ...]
    pairing: str = "interleaved"
    base: float = 10000.0
    layout: str = "interleaved"


MODELS = {
    "Flux": Model(Axial(dims=(4, 6, 6)), reference.own_ladders((4, 6, 6), (1e4,) * 3), (1, 2, 3)),
    "Flux 2": Model(Axial(axes=4), reference.own_ladders((4,) * 4, (2e3,) * 4), (2, 2, 1, 2), base=2e3),
    "Wan": Model(Axial(dims=(8, 4, 4)), reference.own_ladders((8, 4, 4), (1e4,) * 3), (2, 2, 2)),
    "HunyuanVideo": Model(Axial(dims=(4, 6, 6)), reference.own_ladders((4, 6, 6), (256.0,) * 3), (2, 2, 2), base=256.0),
    "Cosmos": Model(
        Axial(dims=(8, 4, 4), scalings=(NTKScaling(factor=2.0), None, NTKScaling(factor=3.0))),
        reference.own_ladders((8, 4, 4), (1e4,) * 3, (2.0, 1.0, 3.0)),
        (3, 2, 2), "halves", layout="halves",
    ),
    "own bases": Model(
        Axial(dims=(4, 12), bases=(100.0, 5e5)), reference.own_ladders((4, 12), (100.0, 5e5)), (3, 4), "halves",
        layout="halves",
    ),
    "Gemma 4": Model(
        Axial(halves="axis"), reference.own_ladders((8, 8), (100.0, 100.0)), (3, 4), "halves", 100.0, "blocks"
    ),
    "unequal blocks": Model(
        Axial(dims=(4, 2, 10), halves="axis"), reference.own_ladders((4, 2, 10), (1e4,) * 3), (2, 2, 2), "halves",
        layout="blocks",
    ),
}  # fmt: skip
each_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


def made(model: Model, **options: Any) -> Rotary:
    given: dict[str, Any] = {
        "head_dim": 16,
        "base": model.base,
        "pairing": model.pairing,
        "split": model.split,
    } | options
    return Rotary(**given)


def by_formula(model: Model, x: Tensor, positions: Positions) -> Tensor:
    angle = reference.angles(positions.ids[0].double().numpy(), model.ladders)
    blocks = tuple(2 * len(each) for each in model.ladders)
    heads = [reference.rotate(head.double().numpy(), angle, model.layout, blocks) for head in x[0]]
    return torch.from_numpy(np.stack(heads))[None]


@each_model
@pytest.mark.parametrize("moved", [0, FAR])
def test_released_layouts_are_those_of_their_formulas(model: Model, moved: int) -> None:
    encoding, cells = made(model), Positions.grid(*model.sizes, first=moved, step=0.5)
    x = torch.randn(1, 2, cells.length, 16)
    assert torch.allclose(encoding(x, cells).double(), by_formula(model, x, cells), rtol=0, atol=2e-6)
    wider = made(model, head_dim=20, rotary_dim=16)
    more = torch.cat((x, torch.randn(1, 2, cells.length, 4)), -1)
    assert torch.allclose(wider(more, cells)[..., :16].double(), by_formula(model, x, cells), rtol=0, atol=2e-6)
    assert torch.equal(wider(more, cells)[..., 16:], more[..., 16:])


@each_model
def test_every_way_to_rotate_gives_one_result(model: Model) -> None:
    encoding, cells = made(model), Positions.grid(*model.sizes, first=3)
    query, key = torch.randn(2, 1, 2, cells.length, 16, dtype=torch.float64).unbind()
    expected = by_formula(model, query, cells)
    assert torch.allclose(encoding.both(query, key, cells)[0], expected, atol=1e-12)
    assert torch.allclose(encoding.both(query, key, encoding.table(cells, dtype=torch.float64))[0], expected)
    assert torch.allclose(encoding.inverse(expected, cells), query, atol=1e-12)
    moved = Positions.grid(*model.sizes, first=70_001)
    assert torch.allclose(encoding.rerotate(encoding(key, cells), cells, moved), encoding(key, moved), atol=1e-9)
    dense = torch.stack(
        [encoding.rotation_matrix(cell) @ one for cell, one in zip(cells.ids[0], query[0, 0], strict=True)]
    )
    assert torch.allclose(dense, expected[0, 0], atol=1e-12)
    again = Rotary(**encoding.config)
    assert again.identity == encoding.identity
    assert hash(again.split) == hash(encoding.split)


def test_gradients_pass_blocks_of_halves() -> None:
    encoding, cells = made(MODELS["unequal blocks"]), Positions.grid(1, 2, 1)
    x = torch.randn(1, 1, 2, 16, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: encoding(x, cells), x)


def test_keys_are_not_moved_between_layouts() -> None:
    blocks, head = (Rotary(head_dim=16, split=Axial(halves=each)) for each in ("axis", "head"))
    cells = Positions.grid(1, 2)
    with pytest.raises(ValueError, match=r"^source must rotate the same channels, since keys are moved pair by pair; "):
        blocks.rerotate(torch.zeros(1, 1, 2, 16), cells, cells, source=head)


def test_attention_with_blocks_of_halves_is_that_of_permuted_heads() -> None:
    """Two layouts are the same map up to the order of channels, which products do not see."""
    blocks, head = (Rotary(head_dim=16, split=Axial(halves=each)) for each in ("axis", "head"))
    query, key, value = torch.randn(3, 1, 2, 12, 16).unbind()
    cells = Positions.grid(3, 4)
    order = torch.tensor([*range(4), *range(8, 12), *range(4, 8), *range(12, 16)])
    expected = attend(query[..., order], key[..., order], value, encoding=head, positions=cells)
    assert torch.allclose(attend(query, key, value, encoding=blocks, positions=cells), expected, atol=1e-6)


def test_shares_of_equal_size_are_what_axes_alone_give() -> None:
    x, cells = torch.randn(1, 1, 8, 12), Positions.grid(2, 2, 2)
    for pairing in ("halves", "interleaved"):
        plain, told = (
            Rotary(head_dim=12, pairing=pairing, split=each) for each in (Axial(axes=3), Axial(dims=(4,) * 3))
        )
        assert torch.equal(plain(x, cells), told(x, cells))
    assert Axial() == Axial(axes=2)
    assert Axial(dims=(2, 4, 6)).axes == Axial(bases=(10.0, 20.0, 30.0)).axes == 3


def test_one_scaling_for_all_axes_is_the_same_for_each() -> None:
    linear, cells, x = LinearScaling(factor=4.0), Positions.grid(2, 3), torch.randn(1, 1, 6, 16)
    whole = Rotary(head_dim=16, scaling=linear, split=Axial(dims=(4, 12)))
    each = Rotary(head_dim=16, split=Axial(dims=(4, 12), scalings=(linear, linear)))
    assert torch.equal(whole(x, cells), each(x, cells))
    assert whole.describe()["short_context"] == "changed at every length: frequencies x0.25"
    yarn = YaRN(factor=4.0, original_length=64)
    assert Rotary(head_dim=16, split=Axial(dims=(4, 12), scalings=(yarn, yarn))).rotation_factor > 1.1
    by_length = Rotary(head_dim=16, scaling=DynamicNTKScaling(factor=2.0, original_length=4), split=Axial(dims=(4, 12)))
    longer = Rotary(head_dim=16, split=Axial(dims=(4, 12), scalings=(NTKScaling(factor=2.0),) * 2))
    assert torch.allclose(by_length(x, cells), longer(x, cells))


def test_axes_share_a_magnitude_that_goes_by_the_length_of_each_row() -> None:
    short, long = (1.0, 1.5), (2.0, 4.0)
    scaling = LongRoPE(
        original_length=8, target_length=64, short_factors=short, long_factors=long, short_mscale=1.1, long_mscale=1.3
    )
    rotary = Rotary(head_dim=8, scaling=scaling, split=Axial(axes=2))
    ids = torch.randint(FAR, (2, 12, 2))
    real = torch.arange(12) >= torch.tensor([[6], [0]])  # of 6 and 12 tokens
    lengths = torch.tensor([[6], [12]])
    table = rotary.table(Positions.explicit(ids, valid=real).with_sequence_length(lengths), dtype=torch.float64)
    for row, (divisors, magnitude) in enumerate(((short, 1.1), (long, 1.3))):
        frequencies = np.concatenate([each / np.array(divisors) for each in reference.own_ladders((4, 4), (1e4, 1e4))])
        angles = ids[row].numpy().repeat(2, -1) * frequencies
        kept = real[row].numpy()
        for found, expected in ((table.cos, np.cos(angles)), (table.sin, np.sin(angles))):
            np.testing.assert_allclose(found[row, 0].numpy()[kept], magnitude * expected[kept], rtol=0, atol=1e-8)


def test_yarns_of_axes_may_differ_where_their_magnitudes_are_one() -> None:
    factors, magnitude = (4.0, 2.0), 1.2
    yarns = tuple(YaRN(factor=each, original_length=64, attention_factor=magnitude) for each in factors)
    rotary = Rotary(head_dim=32, split=Axial(dims=(12, 20), scalings=yarns))
    ids = torch.randint(FAR, (1, 9, 2))
    ladders = [by_parts(dim, 1e4, factor, 64)[0] for dim, factor in zip((12, 20), factors, strict=True)]
    coordinates = ids[0].numpy()
    angles = np.concatenate([coordinates[:, axis, None] * ladder for axis, ladder in enumerate(ladders)], -1)
    table = rotary.table(Positions.explicit(ids), dtype=torch.float64)
    np.testing.assert_allclose(table.cos[0, 0].numpy(), magnitude * np.cos(angles), rtol=0, atol=1e-8)
    np.testing.assert_allclose(table.sin[0, 0].numpy(), magnitude * np.sin(angles), rtol=0, atol=1e-8)


def test_sections_with_time_last_are_those_of_ernie() -> None:
    sections = Sections(sizes=(20, 22, 22), order="time_last")
    encoding = Rotary(head_dim=128, base=5e5, pairing="interleaved", split=sections)
    assert encoding.axis_of_pair.tolist() == reference.ernie_axes(22, 22, 20)
    assert torch.equal(encoding.frequencies, Rotary(head_dim=128, base=5e5).frequencies)
    x = torch.randn(1, 1, 9, 128)
    assert torch.equal(encoding(x, 70_000), Rotary(head_dim=128, base=5e5, pairing="interleaved")(x, 70_000))
    assert time_last_axis_map((1, 2, 2)).tolist() == [1, 2, 1, 2, 0]


ERRORS: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: Axial(axes=0.5), TypeError, "axes must be a whole number, since it counts coordinates; got 0.5."),  # type: ignore[arg-type]
    (lambda: Axial(axes=-1), ValueError, "axes must be 1 or more, since it counts coordinates; got -1."),
    (
        lambda: Axial(axes=2, dims=(4, 6, 6)),
        ValueError,
        "dims must be 2, one for each axis, since each axis has its own; got 3.",
    ),
    (
        lambda: Axial(dims=(4, 5)),
        ValueError,
        "dims must be even, since each axis gets whole pairs of channels; got 5.",
    ),
    (lambda: Axial(dims=(4, 0)), ValueError, "dims must be 2 or more, since they count channels; got 0."),
    (lambda: Axial(dims=8), TypeError, "dims must be a sequence, since each axis has its own; got 8."),  # type: ignore[arg-type]
    (
        lambda: Axial(dims=(4, 4), ladder="shared"),
        ValueError,
        'dims must be left out with ladder="shared", since one ladder serves all axes; got (4, 4).',
    ),
    (
        lambda: Axial(bases=(1e4, 1.0)),
        ValueError,
        "bases must be more than 1, since wavelengths grow by its powers; got 1.0.",
    ),
    (
        lambda: Axial(scalings=("ntk", None)),  # type: ignore[arg-type]
        TypeError,
        "scalings must be a situs.Scaling or None for each axis, since they change frequencies; got 'ntk'. Use such as "
        "situs.NTKScaling(factor=2.0).",
    ),
    (
        lambda: Axial(scalings=(DynamicNTKScaling(factor=2.0, original_length=8), None)),
        ValueError,
        "scalings must not choose by length, since a coordinate has no sequence length; got DynamicNTKScaling. Give it "
        "to Rotary(scaling=...), for all axes.",
    ),
    (
        lambda: Rotary(head_dim=16, split=Axial(scalings=(YaRN(factor=4.0, original_length=8), None))),
        ValueError,
        "scalings must have one factor of cosines and sines and one of the softmax scale, since these belong to the "
        "whole head; got 1 and 1 and 1.139 and 1.",
    ),
    (
        lambda: Rotary(head_dim=16, scaling=LinearScaling(factor=2.0), split=Axial(scalings=(None, None))),
        ValueError,
        "scaling must be left out where each axis has its own, since one of them acts; got LinearScaling(factor=2.0, "
        "original_length=None, target_length=None).",
    ),
    (
        lambda: Rotary(head_dim=16, base=(1e4, 1e5), split=Axial(bases=(1e4, 1e5))),
        ValueError,
        "base must be one number with Axial(bases=...), since bases tells those of the axes; got 2 bases.",
    ),
    (
        lambda: Rotary(head_dim=16, split=Axial(dims=(4, 8))),
        ValueError,
        "dims must add up to rotary_dim=16, since every rotated channel belongs to an axis; got (4, 8), which makes "
        "12. Leave the rest unrotated with rotary_dim=12.",
    ),
    (
        lambda: Rotary(head_dim=16, split=Axial(dims=(8, 12))),
        ValueError,
        "dims must add up to rotary_dim=16, since every rotated channel belongs to an axis; got (8, 12), which "
        "makes 20.",
    ),
    (
        lambda: Rotary(head_dim=16, pairing="interleaved", split=Axial(halves="axis")),
        ValueError,
        "pairing must be 'halves' with halves='axis', since neighbouring channels lie in their axis' block anyway; got "
        "'interleaved'.",
    ),
    (
        lambda: Axial(halves="block"),  # type: ignore[arg-type]
        ValueError,
        "halves must be one of 'head', 'axis', since pairs reach over the head or stay in their axis' block; got "
        "'block'.",
    ),
    (
        lambda: Sections(sizes=(2, 3, 4), order="time_last"),
        ValueError,
        "sizes must be one for all axes but the first, since order='time_last' deals one pair of each in turns; got "
        "(2, 3, 4).",
    ),
    (
        lambda: time_last_axis_map((2, 3, 4)),
        ValueError,
        "sections must be one for all axes but the first, since one pair of each is dealt in turns; got (2, 3, 4).",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("make", "error", "message"), ERRORS, ids=[message for *_, message in ERRORS])
def test_what_does_not_fit_is_refused_in_these_words(
    make: Callable[[], object], error: type[Exception], message: str
) -> None:
    with raises_exactly(error, message):
        make()
