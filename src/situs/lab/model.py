"""The model that is compared: a small decoder, alike for all methods in everything but positions.

RMSNorm before attention and before an MLP of twice the width, no biases. For one seed, weights of the same name
start alike whatever the method is.
"""

from __future__ import annotations

import hashlib
from typing import Any, final

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from situs.attention.layer import Attention
from situs.encodings.base import Encoding, InputEncoding
from situs.encodings.rotary import Rotary
from situs.lab.naming.grammar import Method
from situs.lab.naming.methods import build_layer
from situs.lab.naming.scalings import Ramp, scaled
from situs.lab.settings import Size
from situs.positions import Positions

TOKENS = 0.3
"""The standard deviation of token vectors at the start: tasks of copying are not learnt in time with much less."""
WIDER = 2  # the MLP than the model: matrix products there are most of the time, and no method depends on them
RANDOM_RANGE = 32
"""Randomised positions are drawn from as many times the training length."""


@final
class Decoder(nn.Module):
    """Predict the token after each, by logits."""

    def __init__(self, method: Method, *, vocabulary: int, size: Size, train_length: int, seed: int) -> None:
        super().__init__()
        self.method, self.train_length, self.seed = method, train_length, seed
        self.drawn = 0  # batches so far, each of which has random positions of its own
        head_dim = size.dim // size.heads
        sizes: dict[str, Any] = {
            "dim": size.dim, "num_heads": size.heads, "head_dim": head_dim, "max_length": train_length,
        }  # fmt: skip
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(seed)  # encodings draw their own start
            self.embedding = nn.Embedding(vocabulary, size.dim)
            self.inputs = nn.ModuleList()
            self.layers = nn.ModuleList()
            for number in range(size.layers):
                encodings = build_layer(method, number, sizes)
                of_input = [each for each in encodings if isinstance(each, InputEncoding)]
                self.inputs.extend(of_input if number == 0 else ())
                self.layers.append(Layer(size, [each for each in encodings if each not in of_input], causal=True))
            for each in self.encodings:
                if method.scaling is not None and isinstance(each, Rotary):  # refused here if it does not fit the sizes
                    scaled(each, method.scaling, factor=2.0, train_length=train_length)
            self.norm = nn.RMSNorm(size.dim)
            self.head = nn.Linear(size.dim, vocabulary, bias=False)
        self._draw(seed)

    def forward(self, tokens: Int64[Tensor, "batch length"]) -> Float[Tensor, "batch length vocabulary"]:
        """Compute the logits of the token after each."""
        positions = self._positions(tokens.shape[1], tokens.device)
        x = self.embedding(tokens)
        for encoding in self.inputs:
            x = encoding(x, positions)
        for layer in self.layers:
            x = layer(x, positions)
        logits: Tensor = self.head(self.norm(x))
        return logits

    def scaled_to(self, method: Method, length: int, ramp: Ramp) -> None:
        """Scale the frequencies of all rotary encodings to a length, by another method that shares the weights."""
        factor = length / self.train_length
        for layer in self.layers:
            assert isinstance(layer, Layer)
            layer.scaled_to(method.scaling if factor > 1 else None, factor, self.train_length, ramp)

    @property
    def usable_length(self) -> int | None:
        """The longest text that every encoding has positions for; None if any will do."""
        lengths = [each.usable_length for each in self.encodings]
        return min((length for length in lengths if length is not None), default=None)

    @property
    def encodings(self) -> list[Encoding]:
        """All encodings of the model."""
        return [each for each in self.modules() if isinstance(each, Encoding)]

    def parameters_of_encodings(self) -> int:
        """Count the parameters of all encodings."""
        return sum(parameter.numel() for each in self.encodings for parameter in each.parameters())

    def _positions(self, length: int, device: torch.device) -> Positions:
        self.drawn += self.training
        seed = self.seed + 1000 * self.drawn if self.training else self.seed
        return positions_of(self.method, length, self.train_length, seed=seed, device=device)

    @torch.no_grad()
    def _draw(self, seed: int) -> None:
        """Draw every weight but the encodings' by a generator of its own name, so that no method shifts another's."""
        own = {id(parameter) for each in self.encodings for parameter in each.parameters()}
        for name, parameter in self.named_parameters():
            if id(parameter) not in own and parameter.ndim > 1:
                digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
                std = TOKENS if name == "embedding.weight" else (3 * parameter.shape[1]) ** -0.5
                parameter.normal_(std=std, generator=torch.Generator().manual_seed(int.from_bytes(digest[:7], "big")))


def positions_of(
    method: Method, length: int, train_length: int, *, seed: int = 0, device: torch.device | str = "cpu"
) -> Positions:
    """Make the positions of a text, as a method has them."""
    plain = Positions.range(length, device=device)
    return plain.randomised(max(RANDOM_RANGE * train_length, length), seed=seed) if method.randomised else plain


@final
class Layer(nn.Module):
    """Attend and transform, each after a norm and beside a residual connection."""

    def __init__(self, size: Size, encodings: list[Encoding], *, causal: bool) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(size.dim)
        self.attention = Attention(dim=size.dim, num_heads=size.heads, encoding=encodings, causal=causal)
        self.mlp_norm = nn.RMSNorm(size.dim)
        self.up = nn.Linear(size.dim, WIDER * size.dim, bias=False)
        self.down = nn.Linear(WIDER * size.dim, size.dim, bias=False)

    def forward(self, x: Tensor, positions: Positions) -> Tensor:
        """Transform the tokens at these positions."""
        x = x + self.attention(self.attention_norm(x), positions)
        out: Tensor = x + self.down(nn.functional.gelu(self.up(self.mlp_norm(x))))
        return out

    def scaled_to(self, scaling: str | None, factor: float, train_length: int, ramp: Ramp) -> None:
        """Scale the frequencies of rotary; None takes a scaling away."""
        for number, each in enumerate(self.attention.encodings):
            if isinstance(each, Rotary):
                self.attention.encodings[number] = scaled(
                    each, scaling, factor=factor, train_length=train_length, ramp=ramp
                )
