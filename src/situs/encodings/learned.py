"""Learned absolute positions: a table with one row per position.

Paper    Gehring et al., arXiv:1705.03122; Devlin et al. (BERT), arXiv:1810.04805.
Acts on  the input.    Learned: yes, rows x dim.    Relative: no.

    x_n + table[n + offset]

The table ends. A position past it is an error here, not a wrap, a clamp or a crash: call ``extend`` for a longer
one. OPT, BART and RoBERTa keep their first rows for other uses (``offset=2``).
"""

from __future__ import annotations

from typing import Literal, final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import dropout

from situs.arguments import require_choice, require_count, require_counts, require_dropout, require_spread
from situs.encodings.base import InputEncoding
from situs.encodings.fitting import require_axes, require_device_of, require_embeddings, require_rows
from situs.functional.tables import stretch, with_more_rows
from situs.positions import Positions, PositionsLike
from situs.registry import register


@final
@register(
    name="learned",
    paper="Gehring et al. 2017, Convolutional Sequence to Sequence Learning, arXiv:1705.03122",
    formula="x_n + table[n + offset]",
    dialects={"BERT, GPT-2": "offset=0", "OPT, BART": "offset=2", "RoBERTa": "offset=2, padding_row=1"},
)
class Learned(InputEncoding):
    """Add a trained vector for each position."""

    tags = frozenset({"unique", "learned", "bounded"})
    usable_length: int

    def __init__(
        self,
        *,
        dim: int,
        max_length: int,
        offset: int = 0,
        padding_row: int | None = None,
        init_std: float = 0.02,
        dropout: float = 0.0,
    ) -> None:
        """
        dim: channels of an embedding.
        max_length: rows of the table, as in a checkpoint's shape; ``usable_length`` is what the offset leaves.
        offset: row of position 0: 0 for BERT and GPT-2; 2 for OPT, BART and RoBERTa.
        padding_row: row that padding takes, held at zero and without gradient, as RoBERTa's 1.
        init_std: standard deviation of the normal start, 0.02 as in BERT and GPT-2.
        dropout: probability of dropping a channel of the sum, in training.
        """
        super().__init__()
        dim, max_length = require_counts("it sizes the table", dim=dim, max_length=max_length)
        offset = require_count("offset", offset, "it is a row of the table", least=0, most=max_length - 1)
        if padding_row is not None:
            padding_row = require_count(
                "padding_row", padding_row, "it is a row of the table", least=0, most=max_length - 1
            )
        init_std, dropout = require_spread(init_std), require_dropout(dropout)
        self.dim = dim
        self.max_length = max_length
        self.offset = offset
        self.padding_row = padding_row
        self.init_std = init_std
        self.dropout = dropout
        self.table = nn.Parameter(torch.empty(max_length, dim))
        self.usable_length = max_length - offset
        self.resolved = {"usable_length": self.usable_length}
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the table anew."""
        self.table.normal_(std=self.init_std)
        if self.padding_row is not None:
            self.table[self.padding_row] = 0

    def forward(
        self, x: Float[Tensor, "batch sequence dim"], positions: PositionsLike = None
    ) -> Float[Tensor, "batch sequence dim"]:
        """Add each position's row to ``x``."""
        require_embeddings(self, x, self.dim)
        require_device_of(self.table, x)
        positions = Positions.of(positions, x.shape[-2], batch=x.shape[0], device=x.device)
        require_axes(self, positions)
        require_rows(positions, self.usable_length, "Use extend() for a longer table.")
        if positions.start is not None and self.padding_row is None:
            first = positions.start + self.offset
            added = self.table[first : first + positions.length]
        else:
            rows = positions.ids + self.offset
            if self.padding_row is not None and positions.valid is not None:
                rows = torch.where(positions.valid, rows, self.padding_row)
            added = nn.functional.embedding(rows, self.table, padding_idx=self.padding_row)
        return dropout(x + added.to(x.dtype), self.dropout, self.training)

    @torch.no_grad()
    def extend(self, new_length: int, *, method: Literal["interpolate", "keep"] = "interpolate") -> Learned:
        """Make a longer copy, with ``new_length`` usable positions.

        "interpolate" stretches the learnt rows over the new length. "keep" leaves each at its position, bit for
        bit, and draws the new rows from a normal of the learnt rows' spread, to be trained.
        """
        require_choice("method", method, ("interpolate", "keep"), "old rows are stretched or kept")
        new_length = require_count("new_length", new_length, "it counts positions")
        if new_length < self.usable_length:
            raise ValueError(
                f"new_length must be at least {self.usable_length}, the present usable length, since rows are only "
                f"added; got {new_length}."
            )
        longer = Learned(**{**self.config, "max_length": new_length + self.offset}).to(self.table)
        reserved, learnt = self.table[: self.offset], self.table[self.offset :]
        if method == "interpolate":
            rows = stretch(learnt, new_length)
        else:
            fresh = torch.empty(new_length - len(learnt), self.dim).normal_(std=float(learnt.float().std(correction=0)))
            rows = with_more_rows(learnt, fresh)
        longer.table.copy_(torch.cat((reserved, rows)))
        if self.padding_row is not None:  # its row may have been stretched over, or into others
            longer.table[self.padding_row] = 0
        return longer.train(self.training)
