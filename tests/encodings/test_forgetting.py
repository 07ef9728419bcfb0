"""Forgetting attention against the paper's formula, and what float32 keeps of it."""

import numpy as np
import pytest
import torch

import situs
from situs import Forgetting, Positions, attend
from situs.attention import reference
from tests.raising import raises_exactly
from tests.references import forgetting

HEADS = 3


def term(gate: torch.Tensor, query_positions: Positions, key_positions: Positions) -> np.ndarray:
    q, k = (torch.randn(len(gate), HEADS, each.length, 4).double() for each in (query_positions, key_positions))
    added: torch.Tensor = Forgetting(num_heads=HEADS)(q, k, query_positions, key_positions, features={"gate": gate})
    return added.numpy()


def test_the_term_is_the_papers() -> None:
    gate = 3 * torch.randn(2, HEADS, 9, 1, dtype=torch.float64)
    text = Positions.range(9, start=10_000_000)
    for row in range(2):
        expected = forgetting.decay(gate[row, :, :, 0].numpy())
        np.testing.assert_allclose(term(gate, text, text)[row], expected, atol=1e-12)
        np.testing.assert_allclose(term(gate, text[6:], text)[row], expected[:, 6:], atol=1e-12)


def test_documents_begin_anew_and_padding_closes_no_gate() -> None:
    gate = 3 * torch.randn(1, HEADS, 9, 1, dtype=torch.float64)
    packed = Positions.packed([4, 5])
    added = term(gate, packed, packed)[0]
    for here in (slice(0, 4), slice(4, 9)):
        np.testing.assert_allclose(added[:, here, here], forgetting.decay(gate[0, :, here, 0].numpy()), atol=1e-12)
    real = torch.tensor([[0, 1, 1, 0, 1, 1, 0, 1, 0]], dtype=torch.bool)
    padded = Positions.from_mask(real)
    alone = forgetting.decay(gate[0, :, real[0], 0].numpy())
    np.testing.assert_allclose(term(gate, padded, padded)[0][:, real[0]][:, :, real[0]], alone, atol=1e-12)


def test_tokens_of_another_chunk_close_no_gate() -> None:
    q, k, v = torch.randn(3, 1, HEADS, 6, 4, dtype=torch.float64)
    gate = 3 * torch.randn(1, HEADS, 6, 1, dtype=torch.float64)
    ids = torch.tensor([0, 4, 1, 5, 2, 6])  # two chunks of 4, by turns
    forget = Forgetting(num_heads=HEADS)
    out = attend(q, k, v, encoding=forget, causal=True, positions=ids, chunk=4, features={"gate": gate})
    for first in (0, 1):
        q_, k_, v_, gate_ = (each[:, :, first::2] for each in (q, k, v, gate))
        alone = attend(q_, k_, v_, encoding=forget, causal=True, features={"gate": gate_})
        torch.testing.assert_close(out[:, :, first::2], alone)


def test_equal_gates_are_alibi() -> None:
    alibi = situs.ALiBi(num_heads=4)
    slopes = -alibi.by_offset(torch.tensor([-1]))[:, 0]
    gate = -torch.log(torch.expm1(slopes.double()))  # whose log sigmoid is -slope
    q, k, v = (torch.randn(1, 4, 300, 8, dtype=torch.float64) for _ in range(3))
    features = {"gate": gate.view(1, 4, 1, 1).expand(1, 4, 300, 1)}
    out = attend(q, k, v, encoding=Forgetting(num_heads=4), causal=True, features=features)
    torch.testing.assert_close(out, attend(q, k, v, encoding=alibi, causal=True), atol=1e-6, rtol=0)


@pytest.mark.parametrize("mean", [-5.0, 0.0, 8.0])
def test_float32_keeps_the_digits_of_long_texts(mean: float) -> None:
    q, k, v = (torch.randn(1, 2, 1500, 8) for _ in range(3))
    gate = mean + 2 * torch.randn(1, 2, 1500, 1)
    encoding = Forgetting(num_heads=2)
    out = attend(q, k, v, encoding=encoding, causal=True, features={"gate": gate})
    q, k, v, gate = q.double(), k.double(), v.double(), gate.double()
    exact = reference(q, k, v, encoding=encoding, causal=True, features={"gate": gate})
    torch.testing.assert_close(out.double(), exact, atol=2e-6, rtol=0)


def test_gates_begin_half_open() -> None:
    encoding = Forgetting(num_heads=2, dim=6, init_std=0.0)
    assert bool((encoding.project(torch.randn(1, 4, 6))["gate"] == 0).all())


def test_attention_that_is_not_causal_is_refused() -> None:
    q, gate = torch.randn(1, 2, 4, 8), torch.randn(1, 2, 4, 1)
    with raises_exactly(
        ValueError,
        "causal must be True with Forgetting, since it sums up over the tokens from a key to a later query; got False.",
    ):
        attend(q, q, q, encoding=Forgetting(num_heads=2), features={"gate": gate})


@pytest.mark.parametrize("tokens", [1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 24, 25, 47, 48, 49])
def test_squares_are_halved_at_any_length(tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("situs.attention.kernels.toeplitz.halving.SQUARE", 3)
    monkeypatch.setattr("situs.attention.kernels.toeplitz.halving.SCORES", 2 * 4 * 9 * 2)  # two squares at once
    q = torch.randn(2, tokens, 4, 8, dtype=torch.float64).transpose(1, 2)
    k, v = torch.randn(2, 2, 2, tokens, 8, dtype=torch.float64)
    features = {"gate": 3 * torch.randn(2, 4, tokens, 1, dtype=torch.float64)}
    encoding = [situs.Rotary(head_dim=8), Forgetting(num_heads=4)]
    out = attend(q, k, v, encoding=encoding, causal=True, features=features)
    exact = reference(q, k, v, encoding=encoding, causal=True, features=features)
    torch.testing.assert_close(out, exact, atol=1e-12, rtol=0)


def test_bfloat16_is_rounded_once() -> None:
    q, k, v = torch.randn(3, 1, 2, 1000, 16).bfloat16()
    features = {"gate": torch.randn(1, 2, 1000, 1).bfloat16()}
    encoding = Forgetting(num_heads=2)
    out = attend(q, k, v, encoding=encoding, causal=True, features=features).double()
    wide = {"gate": features["gate"].double()}
    exact = reference(q.double(), k.double(), v.double(), encoding=encoding, causal=True, features=wide)
    plain = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).double()
    plainly = reference(q.double(), k.double(), v.double(), causal=True)
    assert (out - exact).abs().max() < 2 * (plain - plainly).abs().max()
