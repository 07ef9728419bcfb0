"""The two ways to run an encoding that every feature is tried with: ``situs.attend`` and ``situs.Attention``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

import situs
from situs import Attention, Encoding, InputEncoding, KVCache, Positions, RotationEncoding
from situs.attention.features import features_of
from situs.encodings.features import computed_features

BATCH, HEADS, KV_HEADS, HEAD_DIM = 2, 4, 2, 8
DIM = HEADS * HEAD_DIM
CELLS = (18, 20)  # of the image that positions with two coordinates or more are taken from
LENGTHS = (40, 72, 150, 300)
SIZES: dict[str, Any] = {
    "dim": DIM, "num_heads": HEADS, "head_dim": HEAD_DIM, "max_length": 360, "size": CELLS, "window": CELLS,
    "init_std": 0.5, "max_distance": 48, "max_position": 20, "threshold": 40.0, "original_length": 12,
}  # fmt: skip
"""So that lengths reach beyond what encodings tell apart; each takes what it knows."""


class Form(nn.Module, ABC):
    """A module around one encoding, with parameters of its own."""

    axis: ClassVar[int]
    """The axis of the inputs along which tokens follow one another."""

    def __init__(self, encoding: Encoding, *, planned: int | None) -> None:
        super().__init__()
        self.axes = encoding.axes
        self.planned = planned

    @classmethod
    def seeded(cls, make: Callable[[], Encoding], *, planned: int | None = None, seed: int = 1, **options: Any) -> Form:
        """Around the encoding that ``make`` makes, with parameters that depend on the seed alone."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return cls(make(), planned=planned, **options)

    @abstractmethod
    def inputs(self, length: int, *, batch: int = BATCH, seed: int = 2) -> tuple[Tensor, ...]:
        """What ``forward`` takes, with gradients; the same in every call."""

    @abstractmethod
    def make_cache(self, *, max_length: int, batch: int = BATCH) -> KVCache:
        """An empty cache."""

    def places(self, count: int, start: int = 0) -> Positions:
        """Where some tokens stand, of a text or of an image read line by line."""
        if self.axes > 1:
            return Positions.grid(*(1,) * (self.axes - 2), *CELLS)[start : start + count]
        return Positions.range(count, start=start, sequence_length=self.planned)


class Attend(Form):
    """``attend`` of values with a learned gain; an encoding of the input is added to queries, keys and values."""

    axis = 2

    def __init__(
        self, encoding: Encoding, *, planned: int | None = None, causal: bool = True, dropout: float = 0.0
    ) -> None:
        super().__init__(encoding, planned=planned)
        self.encoding = encoding
        self.causal = causal or encoding.causal_only
        self.dropout = dropout
        self.gain = nn.Parameter(1 + torch.rand(HEADS, 1, HEAD_DIM))

    def inputs(self, length: int, *, batch: int = BATCH, seed: int = 2) -> tuple[Tensor, ...]:
        generator = torch.Generator("cpu").manual_seed(seed)
        shape = batch, HEADS, length, HEAD_DIM
        return tuple(torch.randn(shape, generator=generator, device="cpu").requires_grad_() for _ in range(3))

    def make_cache(self, *, max_length: int, batch: int = BATCH) -> KVCache:
        like = self.gain
        sizes: dict[str, int] = {"batch": batch, "num_heads": HEADS, "head_dim": HEAD_DIM, "max_length": max_length}
        return KVCache(**sizes, dtype=like.dtype, device=like.device)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        positions: Positions | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        start = 0 if cache is None else cache.length
        if positions is None and (self.axes > 1 or cache is not None):
            positions = self.places(query.shape[2], start)
        if isinstance(self.encoding, InputEncoding):
            query, key, value = (self._embedded(each, positions) for each in (query, key, value))
        value, key_positions = value * self.gain, positions
        features: dict[str, Tensor] = {}
        for name, feature in self.encoding.features.items():
            tokens = (query if feature.role == "query" else key).transpose(1, 2).flatten(2)
            features[name] = computed_features(self.encoding, tokens)[name]
        if cache is not None:
            of_keys = {name: features[name] for name in features_of([self.encoding], "key")}
            key, value = (each.to(query.dtype) for each in cache.append(key, value, features=of_keys))
            features |= {name: each[:, :, : key.shape[2]].to(query.dtype) for name, each in cache.features.items()}
            key_positions = self.places(start + query.shape[2])
        return situs.attend(
            query,
            key,
            value,
            encoding=self.encoding,
            causal=self.causal,
            positions=positions,
            key_positions=key_positions,
            dropout=self.dropout,
            features=features,
        )

    def _embedded(self, heads: Tensor, positions: Positions | None) -> Tensor:
        tokens = self.encoding(heads.transpose(1, 2).flatten(2), positions)
        split: Tensor = tokens.view(*tokens.shape[:2], HEADS, HEAD_DIM).transpose(1, 2)
        return split


class Layer(Form):
    """`Attention` with shared key heads, unless heads are rotated each by itself; behind the embedding where the
    encoding is one."""

    axis = 1

    def __init__(
        self, encoding: Encoding, *, planned: int | None = None, causal: bool = True, dropout: float = 0.0
    ) -> None:
        super().__init__(encoding, planned=planned)
        self.embedding = encoding if isinstance(encoding, InputEncoding) else None
        rotates_by_head = isinstance(encoding, RotationEncoding) and encoding.num_heads is not None
        self.attention = Attention(
            dim=DIM,
            num_heads=HEADS,
            num_kv_heads=HEADS if rotates_by_head else KV_HEADS,
            encoding=None if isinstance(encoding, InputEncoding) else encoding,
            causal=causal or encoding.causal_only,
            dropout=dropout,
        )

    def inputs(self, length: int, *, batch: int = BATCH, seed: int = 2) -> tuple[Tensor, ...]:
        generator = torch.Generator("cpu").manual_seed(seed)
        return (torch.randn(batch, length, DIM, generator=generator, device="cpu").requires_grad_(),)

    def make_cache(self, *, max_length: int, batch: int = BATCH) -> KVCache:
        return self.attention.make_cache(batch=batch, max_length=max_length)

    def forward(self, x: Tensor, positions: Positions | None = None, cache: KVCache | None = None) -> Tensor:
        if positions is None and cache is None and self.axes > 1:
            positions = self.places(x.shape[1])
        if positions is None and cache is not None and (self.axes > 1 or self.planned or self.embedding is not None):
            positions = self.places(x.shape[1], cache.length)
        x = x if self.embedding is None else self.embedding(x, positions)
        out: Tensor = self.attention(x, positions, cache=cache)
        return out


FORMS: dict[str, type[Form]] = {"attend": Attend, "Attention": Layer}


class Inside(nn.Module):
    """A form that makes its positions itself, of one more tensor; then a graph holds their making too."""

    def __init__(self, form: Form, make: Callable[[Form, Tensor, int], Positions]) -> None:
        super().__init__()
        self.form = form
        self.make = make

    def forward(self, told: Tensor, *inputs: Tensor) -> Tensor:
        out: Tensor = self.form(*inputs, positions=self.make(self.form, told, inputs[0].shape[-2]))
        return out


def from_mask(form: Form, mask: Tensor, length: int) -> Positions:
    """Padded rows."""
    if form.axes == 1:
        return Positions.from_mask(mask)
    return Positions.explicit(form.places(length).ids.to(mask.device).expand(mask.shape[0], -1, -1), valid=mask)


def from_bounds(form: Form, cu_seqlens: Tensor, length: int) -> Positions:
    """Packed documents."""
    if form.axes == 1:
        return Positions.packed(cu_seqlens=cu_seqlens, length=length)
    documents = torch.searchsorted(cu_seqlens[1:], torch.arange(length), right=True)
    return Positions.explicit(form.places(length).ids, documents=documents[None])


def packed(form: Form, lengths: Sequence[int]) -> Positions:
    """The same, where the host knows the lengths."""
    return Positions.pack([form.places(length) for length in lengths]) if form.axes > 1 else Positions.packed(lengths)


def right_padded(length: int) -> Tensor:
    """A mask of two rows, the second of which has padding."""
    return torch.arange(length) < torch.tensor([[length], [length - 9]])
