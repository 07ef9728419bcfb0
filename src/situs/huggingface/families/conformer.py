"""Conformers with relative positions: sinusoids of the distance as in Transformer-XL, or vectors of offsets as in Shaw.

Their layers would form a bias of all pairs, the sinusoids' for both directions at that. Padding attends as well, since
convolutions beside attention read what it gets.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from situs.huggingface.families import Expects, Family
from situs.huggingface.families.borrowing import table_of
from situs.huggingface.families.rows import RowScore, transformer_xl
from situs.huggingface.interface import PlacedBias, attended, dropout_of, refuse_weights
from situs.huggingface.seeing import Rules, Sight
from situs.huggingface.short import is_short

DENSE_UP_TO = {"relative": 640, "relative_key": 160}
"""Frames of a sound up to which a bias of all pairs is the faster way, as measured on the processor."""


class Conformer(Family):
    """A layer of wav2vec2-conformer, wav2vec2-BERT or SeamlessM4T."""

    expects: ClassVar[Expects] = {
        "forward": ("self", "hidden_states", "attention_mask", "relative_position_embeddings")
    }

    def forward(
        self: Any,
        hidden_states: Tensor,
        attention_mask: Any = None,
        relative_position_embeddings: Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, None]:
        """Attend without forming weights."""
        few = is_short(hidden_states.shape[1], DENSE_UP_TO.get(self.position_embeddings_type, 0))
        score = None if few else self.score(relative_position_embeddings)
        if score is None:  # as also with rotary, or nothing: the original asks the interface
            if relative_position_embeddings is not None:
                kwargs["relative_position_embeddings"] = relative_position_embeddings
            return super().forward(hidden_states, attention_mask, **kwargs)  # type: ignore[no-any-return]
        refuse_weights(kwargs.get("output_attentions"))
        shape = *hidden_states.shape[:2], self.num_heads, self.head_size
        query, key, value = (
            each(hidden_states).view(shape).transpose(1, 2) for each in (self.linear_q, self.linear_k, self.linear_v)
        )
        out = attended(
            query, key, value, attention_mask, bias=PlacedBias(score), scale=self.scaling,
            dropout=dropout_of(self, self.dropout), every_query=True,
        )  # fmt: skip
        return self.linear_out(out.reshape(*shape[:2], -1)), None

    def score(self: Any, sinusoids: Tensor | None) -> RowScore | None:
        """The term of relative positions; None where a layer has none. Sinusoids run from the farthest key behind to
        the farthest ahead."""
        if self.position_embeddings_type == "relative_key":
            behind, ahead = self.left_max_position_embeddings, self.right_max_position_embeddings
            span = max(behind, ahead)
            rows = torch.arange(-span, span + 1, device="cpu").clamp(-behind, ahead) + behind
            vectors = table_of(self.distance_embedding, behind + ahead + 1)
            return RowScore(rows, for_query=vectors.unsqueeze(0), num_heads=self.num_heads)
        if self.position_embeddings_type != "relative" or sinusoids is None:
            return None
        projected = self.linear_pos(sinusoids[0]).view(-1, self.num_heads, self.head_size).transpose(0, 1)
        rows = torch.arange(projected.shape[1], device=projected.device)
        return transformer_xl(rows, projected, self.pos_bias_u, self.pos_bias_v)


class ConformerOfKeys(Conformer):
    """A layer of SeamlessM4T v2, which has vectors of offsets or nothing."""

    expects: ClassVar[Expects] = {"forward": ("self", "hidden_states", "attention_mask")}


class ChunkedEncoder(Family):
    """The encoder of SeamlessM4T v2, which would make a mask of all pairs for the chunks of its input."""

    expects: ClassVar[Expects] = {"_apply_chunk_attention": ("self", "attention_mask", "hidden_states")}

    def _apply_chunk_attention(self: Any, attention_mask: Tensor | None, hidden_states: Tensor) -> Tensor | None:
        """Tell real frames alone where all lie in one chunk, which hides nothing."""
        if hidden_states.shape[1] <= self.config.speech_encoder_chunk_size:
            return attention_mask
        found: Tensor = super()._apply_chunk_attention(attention_mask, hidden_states)  # type: ignore[misc]
        return found


class Parakeet(Family):
    """A layer of Parakeet, whose sinusoids may be dropped out, for each sound apart."""

    expects: ClassVar[Expects] = {"forward": ("self", "hidden_states", "position_embeddings", "attention_mask")}

    def forward(
        self: Any,
        hidden_states: Tensor,
        position_embeddings: Tensor,
        attention_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, None]:
        """Attend without forming weights; sinusoids run from the farthest key behind to the farthest ahead."""
        if is_short(hidden_states.shape[1], DENSE_UP_TO["relative"]):  # the original asks the interface
            return super().forward(  # type: ignore[no-any-return]
                hidden_states, position_embeddings=position_embeddings, attention_mask=attention_mask, **kwargs
            )
        refuse_weights(kwargs.get("output_attentions"))
        shape = *hidden_states.shape[:2], -1, self.head_dim
        query, key, value = (
            each(hidden_states).view(shape).transpose(1, 2) for each in (self.q_proj, self.k_proj, self.v_proj)
        )
        apart = self.training and self.config.dropout_positions > 0
        every = slice(None)
        rows = [slice(row, row + 1) for row in range(len(query))] if apart else [every]
        out = [
            attended(
                query[row], key[row], value[row], pairs_of(None if attention_mask is None else attention_mask[row]),
                bias=PlacedBias(self.score(position_embeddings[row][0])), scale=self.scaling,
                dropout=dropout_of(self, self.attention_dropout),
            )
            for row in rows
        ]  # fmt: skip
        return self.o_proj(torch.cat(out).reshape(*shape[:2], -1)), None

    def score(self: Any, sinusoids: Tensor) -> RowScore:
        """The term of relative positions."""
        projected = self.relative_k_proj(sinusoids).view(len(sinusoids), -1, self.head_dim).transpose(0, 1)
        return transformer_xl(
            torch.arange(len(sinusoids), device=sinusoids.device), projected, self.bias_u, self.bias_v
        )


def pairs_of(mask: Tensor | None) -> Sight | Tensor | None:
    """Tell by tokens what a mask of pairs, (batch, 1, query, key), says, if it lets real ones see each other."""
    if mask is None or torch.compiler.is_compiling():
        return mask
    pairs = mask.bool()
    real = pairs[:, 0].diagonal(dim1=-2, dim2=-1)
    if not torch.equal(pairs[:, 0], real[:, :, None] & real[:, None, :]):
        return pairs
    tokens = real.shape[1]
    return Sight(Rules(), tokens, tokens, 0, 0, None if bool(real.all()) else real)
