"""DeBERTa: products of queries and of keys with projected rows of a table of relative positions."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from torch import Tensor, nn

from situs.functional.buckets import deberta_rows
from situs.huggingface.families import Expects, Family
from situs.huggingface.families.rows import RowScore
from situs.huggingface.interface import PlacedBias, attended, dropout_of, refuse_weights
from situs.huggingface.seeing import Rules, Sight


class DebertaEncoder(Family):
    """The encoder, which would make a mask and relative positions of all pairs for its layers."""

    expects: ClassVar[Expects] = {
        "get_attention_mask": ("self", "attention_mask"),
        "get_rel_pos": ("self", "hidden_states", "query_states", "relative_pos"),
    }

    @classmethod
    def cannot(cls, module: Any) -> str | None:
        """Leave an encoder to its own code that has a layer which is left."""
        layers = [each for each in module.modules() if hasattr(each, "pos_att_type")]
        return next((reason for each in layers if (reason := DebertaV1.cannot(each))), None)

    def get_attention_mask(self: Any, attention_mask: Tensor) -> Tensor | Sight:
        """Tell which tokens are real; give a mask of pairs as it is."""
        if attention_mask.dim() > 2:
            return super().get_attention_mask(attention_mask)  # type: ignore[misc, no-any-return]
        real, tokens = attention_mask.bool(), attention_mask.shape[1]
        return Sight(Rules(), tokens, tokens, 0, 0, None if bool(real.all()) else real)

    def get_rel_pos(
        self: Any, hidden_states: Any, query_states: Any = None, relative_pos: Tensor | None = None
    ) -> Tensor | None:
        """Give the relative positions of the caller, if any: the layers know their own."""
        return relative_pos


class Disentangled(Family):
    """What attention layers of all versions share."""

    def forward(
        self: Any,
        hidden_states: Tensor,
        attention_mask: Any,
        output_attentions: bool = False,
        query_states: Tensor | None = None,
        relative_pos: Tensor | None = None,
        rel_embeddings: Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, None]:
        """Attend without forming weights."""
        refuse_weights(output_attentions)
        if relative_pos is not None:
            raise ValueError(
                "relative_pos must be None while a model is accelerated, since offsets are known without it; got "
                f"{tuple(relative_pos.shape)}. Call situs.huggingface.restore(model) first."
            )
        query, key, value = self.projected(hidden_states, query_states)
        bias, terms = None, len([each for each in ("c2p", "p2c") if each in self.pos_att_type])
        if self.relative_attention and terms:
            bias = PlacedBias(self.score(self.pos_dropout(rel_embeddings)))
        if isinstance(attention_mask, Tensor):
            attention_mask = attention_mask.bool()
        out = attended(
            query, key, value, attention_mask, bias=bias,
            scale=1 / math.sqrt(self.attention_head_size * (1 + terms)), dropout=dropout_of(self, self.dropout),
        )  # fmt: skip
        return out.reshape(*out.shape[:2], -1), None

    def heads(self: Any, states: Tensor) -> Tensor:
        """Channels by head, (batch, heads, sequence, head_dim)."""
        return states.view(*states.shape[:2], self.num_attention_heads, -1).transpose(1, 2)

    def rows_of(
        self: Any, table: Tensor, for_query: nn.Module | None, for_key: nn.Module | None, buckets: int | None
    ) -> RowScore:
        """The term of a table whose rows are projected for queries and for keys."""
        queries, keys = (
            None if each is None else self.heads(each(table.unsqueeze(0)))[0] for each in (for_query, for_key)
        )
        return RowScore(deberta_rows(self.max_relative_positions, buckets), queries, keys)


LAYER = "hidden_states", "attention_mask", "output_attentions", "query_states", "relative_pos", "rel_embeddings"


class DebertaV2(Disentangled):
    """A layer of DeBERTa v2 and v3, with buckets and projections that may be those of content."""

    expects: ClassVar[Expects] = {"forward": ("self", *LAYER)}

    def projected(self: Any, hidden_states: Tensor, query_states: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values."""
        asking = hidden_states if query_states is None else query_states
        return (
            self.heads(self.query_proj(asking)),
            self.heads(self.key_proj(hidden_states)),
            self.heads(self.value_proj(hidden_states)),
        )

    def score(self: Any, table: Tensor) -> Any:
        """The term of the table of relative positions."""
        own = not self.share_att_key
        for_query = for_key = None
        if "c2p" in self.pos_att_type:
            for_query = self.pos_key_proj if own else self.key_proj
        if "p2c" in self.pos_att_type:
            for_key = self.pos_query_proj if own else self.query_proj
        buckets = self.position_buckets if self.position_buckets > 0 else None
        return self.rows_of(table[: 2 * self.pos_ebd_size], for_query, for_key, buckets)


class SEWD(DebertaV2):
    """A layer of SEW-D, which is one of DeBERTa v2; its arguments are given by name."""

    expects: ClassVar[Expects] = {"forward": ("self", *(each for each in LAYER if each != "output_attentions"))}


class DebertaV1(Disentangled):
    """A layer of the first DeBERTa: one projection of all three with biases of its own, a row for every distance."""

    expects: ClassVar[Expects] = {"forward": ("self", *LAYER)}

    @classmethod
    def cannot(cls, module: Any) -> str | None:
        """Leave heads that mix their scores to their own code."""
        return "heads that mix their scores need them all" if getattr(module, "talking_head", False) else None

    def projected(self: Any, hidden_states: Tensor, query_states: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values."""
        if query_states is not None:
            raise NotImplementedError(
                "query_states must be None while a model is accelerated, since the first DeBERTa has no code for them "
                "that runs; got some."
            )
        query, key, value = self.heads(self.in_proj(hidden_states)).chunk(3, -1)
        return query + self.heads(self.q_bias[None, None]), key, value + self.heads(self.v_bias[None, None])

    def score(self: Any, table: Tensor) -> Any:
        """The term of the table of relative positions."""
        for_query = self.pos_proj if "c2p" in self.pos_att_type else None
        return self.rows_of(table, for_query, self.pos_q_proj if "p2c" in self.pos_att_type else None, None)
