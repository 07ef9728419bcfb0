"""Shuffled tokens, as drawn: without positions their weights are shuffled along; with positions they are not."""

import numpy as np
import pytest
import torch

import situs
from situs import plots
from situs.lab.probing import portraits
from situs.lab.probing.sitters import Sitter
from tests.plots.portraits.reading import drawn, lines, names, panels, words

pytestmark = pytest.mark.once

NOTHING, ROTARY = Sitter("none", (situs.NoPE(),)), Sitter("rotary", (situs.Rotary(head_dim=16),))


def test_without_positions_shuffled_tokens_have_shuffled_weights() -> None:
    found = portraits.shuffled(NOTHING, 12)
    assert torch.allclose(found.back, found.plain, atol=1e-6)
    assert torch.equal(found.mixed, found.back[found.order][:, found.order])
    assert not torch.allclose(found.mixed, found.plain, atol=1e-2)
    assert not torch.allclose(portraits.shuffled(ROTARY, 12).back, portraits.shuffled(ROTARY, 12).plain, atol=1e-2)


def test_under_a_causal_mask_each_token_sees_those_before_it() -> None:
    found = portraits.shuffled(NOTHING, 12)
    shuffled = found.causal[found.order][:, found.order]
    assert bool((shuffled.triu(1) == 0).all())
    assert torch.allclose(found.causal.sum(-1), torch.ones(12), atol=1e-5)
    assert float(found.first[0]) == pytest.approx(1)
    assert torch.allclose(found.first, 1 / torch.arange(1.0, 13.0), atol=0.1)


def test_maps_have_letters_for_tokens_and_the_line_its_even_share_beside() -> None:
    figure = plots.order(situs.NoPE())
    found = portraits.shuffled(NOTHING, 12)
    assert [title for title, _ in names(figure)] == ["in order", "shuffled", "shuffled, put back", "same, causal mask"]
    for axes, expected in zip(panels(figure), found.maps, strict=False):
        assert np.allclose(drawn(axes), expected.sqrt().numpy(), atol=1e-6)
    shuffled = [label.get_text() for label in panels(figure)[1].get_xticklabels()]
    assert shuffled == ["abcdefghijkl"[token] for token in found.order.tolist()]
    shown = lines(panels(figure)[-1])
    assert np.allclose(shown["none"][1], found.first.numpy(), atol=1e-6)
    assert np.allclose(shown["1 / visible tokens"][1], 1 / np.arange(1, 13))
    assert words(figure)[2].startswith("Shuffled tokens have the same weights, shuffled along: ")
    assert words(plots.order(situs.Rotary(head_dim=16)))[2].startswith("Shuffled tokens have other weights: ")


def test_many_tokens_are_numbered() -> None:
    labels = [label.get_text() for label in panels(plots.order(situs.NoPE(), length=40))[0].get_xticklabels()]
    assert "a" not in labels


def test_parameters_at_zero_are_drawn_as_they_are() -> None:
    encoding = situs.CoPE(num_heads=2, head_dim=8)
    figure = plots.scores(encoding, length=10)
    assert float(np.nanmax(np.abs(drawn(panels(figure)[1])))) == 0
    assert words(figure)[2].endswith(" As initialised. All parameters are 0.")
    table = situs.Learned(dim=8, max_length=10, init_std=0.0)
    for kind in plots.suiting(Sitter("learned", (table,))):
        assert words(plots.KINDS[kind].draw(table, length=8))[2].endswith(" As initialised. All parameters are 0."), (
            kind
        )
