"""NoPE: attention as it is without any encoding, and a module that changes nothing."""

import torch

from situs import NoPE, Positions, attend


def test_it_changes_nothing_wherever_it_stands() -> None:
    encoding = NoPE()
    for shape in ((2, 5, 8), (2, 3, 5, 8)):
        x = torch.randn(shape)
        for turned in (encoding(x), encoding(x, 65_537), encoding(x, Positions.range(5), role="key")):
            assert turned is x


def test_attention_with_it_is_attention_without() -> None:
    query, key, value = torch.randn(3, 1, 2, 6, 8)
    assert torch.equal(attend(query, key, value, encoding=NoPE(), causal=True), attend(query, key, value, causal=True))
