"""The sentences that people meet most, word for word."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import situs
from situs import Positions
from tests.raising import raises_exactly

X = torch.ones(1, 2, 3, 8)
TOKENS = torch.ones(1, 3, 16)


def layer(**options: Any) -> situs.Attention:
    return situs.Attention(**{"dim": 16, "num_heads": 2, **options})


MET: list[tuple[type[Exception], Callable[[], object], str]] = [
    (
        TypeError,
        lambda: situs.attend(X, X, X, causal="yes"),  # type: ignore[arg-type]
        "causal must be True or False, since later keys are hidden or not; got 'yes'.",
    ),
    (
        TypeError,
        lambda: situs.attend(X, X, X, window=2.5),  # type: ignore[arg-type]
        "window must be a whole number, since it counts the keys that a query sees, itself included; got 2.5.",
    ),
    (
        ValueError,
        lambda: situs.attend(X, X, X, scale=float("nan")),
        "scale must be finite, since it multiplies q . k; got nan.",
    ),
    (
        TypeError,
        lambda: situs.attend(X.tolist(), X, X),  # type: ignore[arg-type]
        "query must be a tensor, since attention computes with fractions; got list. Use torch.as_tensor(...) on lists "
        "and arrays.",
    ),
    (
        TypeError,
        lambda: situs.attend(X, X, X, encoding=situs.ALiBi),  # type: ignore[arg-type]
        "encoding must be a situs.Encoding or a list of them, since it tells attention where tokens stand; got "
        "<class 'situs.encodings.alibi.ALiBi'>. Make one: ALiBi(...).",
    ),
    (
        TypeError,
        lambda: situs.attend(X, X, X, positions=[0, 1, 2]),  # type: ignore[arg-type]
        "positions must be a situs.Positions, a tensor, the first position as an int, or None, since each token stands "
        "somewhere; got [0, 1, 2]. Use torch.as_tensor(...) on lists and arrays.",
    ),
    (
        ValueError,
        lambda: situs.attend(X, X, X, key_positions=torch.arange(4)),
        "key_positions must have one for each of the 3 tokens, since each token stands somewhere; got shape (4,). "
        "Slice them with key_positions[first:last], or pass those of this call only.",
    ),
    (
        ValueError,
        lambda: situs.Rotary(head_dim=8)(X, torch.tensor([0.0, float("nan"), 2.0])),
        "positions must be finite, since encodings compute with them; got nan. Mark padding by valid, and let it have "
        "position 0.",
    ),
    (
        TypeError,
        lambda: layer(num_heads="2"),
        "num_heads must be a whole number, since it sizes the projections; got '2'.",
    ),
    (
        ValueError,
        lambda: layer()(TOKENS[..., :8]),
        "x must have shape (batch, sequence, 16), since the layer was made with dim=16; got shape (1, 3, 8).",
    ),
    (
        TypeError,
        lambda: layer()(TOKENS.long()),
        "x must hold embeddings in a floating-point dtype, since its tokens are projected; got dtype torch.int64. "
        "Embed token ids first.",
    ),
    (
        TypeError,
        lambda: layer()(TOKENS, cache=True),
        "cache must be a situs.KVCache, since it holds the keys so far; got True.",
    ),
    (
        ValueError,
        lambda: layer()(TOKENS, context_positions=0),
        "context_positions must be left out without context, since they are those of its tokens; got 0.",
    ),
    (
        ValueError,
        lambda: situs.Fire(num_heads=2, rate=float("nan")),
        "rate must be finite, since distances are measured by it; got nan.",
    ),
    (
        TypeError,
        lambda: situs.YaRN(factor=4.0, original_length=64.5),  # type: ignore[arg-type]
        "original_length must be a whole number, since it counts tokens; got 64.5.",
    ),
    (
        TypeError,
        lambda: situs.Shaw(num_heads=2, head_dim=True),
        "head_dim must be a whole number, since it sizes the tables; got True.",
    ),
    (
        TypeError,
        lambda: Positions.range(3, device=0),  # type: ignore[arg-type]
        'device must be a torch.device or a name such as "cpu" or "cuda:0", since tensors live there; got 0.',
    ),
    (
        TypeError,
        lambda: situs.create(3),  # type: ignore[arg-type]
        "name must be a string, since encodings are known by it; got 3.",
    ),
]


@pytest.mark.parametrize(("error", "call", "message"), MET, ids=[message for _, _, message in MET])
def test_a_mistake_is_answered_in_these_words(error: type[Exception], call: Callable[[], object], message: str) -> None:
    with raises_exactly(error, message):
        call()
