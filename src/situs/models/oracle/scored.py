"""Numbers of a group that adds to scores: biases over offsets, terms of content, and the scores of probe vectors.

Parameters are probe numbers under their own names. Of terms by content one head is computed, whose hidden states are as
wide as itself where only a projection reads them: `built` says what becomes of a call.
"""

from __future__ import annotations

import functools
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from situs.encodings.base import Encoding
from situs.functional.buckets import deberta_rows
from situs.models.calls import Call
from situs.models.oracle.probes import probe
from situs.models.oracle.rotated import Numbers, Rotated
from situs.models.oracle.rules import as_written
from situs.positions import Positions

OF_BIASES, OF_NETWORKS, OF_TERMS, OF_SCORES = 2.0, 1024.0, 16.0, 2.0
"""In units of roundoff: a number that is looked up or multiplied once; what a network of 512 makes of sums; the largest
of products over a head; of what a product of two rotated vectors is summed of."""


@functools.lru_cache(maxsize=256)
def built(call: Call, name: str) -> Any:
    """Make the encoding of a call in float64, with probe numbers for parameters."""
    if call.cls in ("Deberta", "TransformerXL", "Shaw", "ProjectedBias", "GatedBias", "ViTDet"):
        call = call.replace(num_heads=1)
    if call.cls == "Deberta":  # tied projections are the attention's own, and as good as any
        call = call.replace(dim=call.option("head_dim"), share_att_key=None)
    if call.cls == "GatedBias":
        call = call.replace(dim=None)
    made: Encoding = call.build().double().requires_grad_(False)
    for key, parameter in made.named_parameters():
        parameter.copy_(probe(f"{name}.{key}", *parameter.shape))
    return made


class Scored(Rotated):
    """Compute the arrays of one group that add to scores, beside those that rotate."""

    @cached_property
    def relative(self) -> list[tuple[Call, Any]]:
        """Biases and terms with their calls; parameters of a second one have its number before their names."""
        calls = self.group.biases + self.group.terms
        return [(call, built(call, self.prefix(index))) for index, call in enumerate(calls)]

    def prefix(self, index: int) -> str:
        """What names of the parameters of one of them begin with."""
        return f"{self.name}.{index}" if index else self.name

    def scale(self) -> Numbers:
        """The softmax scale."""
        value = torch.tensor(self.group.scale, dtype=torch.float64)
        return Numbers(value, rounding=4 * value.abs())

    def bias(self) -> Numbers:
        """The bias of each offset, (heads, offsets)."""
        return self._biases(as_written(self.group.offsets))

    def slopes(self) -> Numbers:
        """By how much each head's scores fall per position."""
        value = torch.tensor(self.relative[0][1].resolved["slopes"], dtype=torch.float64)
        return Numbers(value, wide=4 * value.abs())

    def rows(self) -> Numbers:
        """The row of the table that each offset takes."""
        call, made = self.relative[0]
        offsets = as_written(self.group.offsets)[:, 0]
        offsets = -offsets if self.group.mirrored else offsets
        if call.cls == "T5Bias":
            return Numbers(made.rows_of(offsets))
        listed = deberta_rows(made.span, made.buckets)
        return Numbers(listed[offsets.clamp(-made.span, made.span) + made.span])

    def value_vectors(self) -> Numbers:
        """The vector that Shaw's method adds to the value of each offset."""
        offsets = as_written(self.group.offsets)[:, 0]
        value = self.relative[0][1].value_vectors(-offsets if self.group.mirrored else offsets, torch.float64)[0]
        return Numbers(value, rounding=value.abs())

    @cached_property
    def term(self) -> Numbers:
        """What terms by content add to the score of each pair, (tokens, tokens)."""
        q, k = self.q[None, None], self.k[None, None]
        value = torch.zeros(len(self.positions), len(self.positions), dtype=torch.float64)
        positions = self._positions()
        for call, made in self.relative:
            if call not in self.group.terms:
                continue
            given: dict[str, Any] = {"scale": self.group.scale}
            if made.features:
                given["features"] = {key: self._feature(key, each)[None, None] for key, each in made.features.items()}
            if made.acts_on_scores:
                value = value + made(q, k, positions, positions, **given)[0, 0]
        return Numbers(value, rounding=OF_TERMS * float(value.abs().max()))

    def scores(self) -> Numbers:
        """What the softmax is taken of, before masks, caps and sinks: (tokens, tokens), or of each head with a bias."""
        q, k, heat = self.rotated_q, self.rotated_k, self.temperature
        factors = (self.group.scale * heat.value)[:, None]
        value = factors * (q.value @ k.value.T)
        sizes = factors.abs() * (q.value.abs() @ k.value.abs().T)
        zero = torch.zeros_like(q.value)
        angle, wide = (
            factors.abs() * ((zero + of_q) @ k.value.abs().T + q.value.abs() @ (zero + of_k).T)
            for of_q, of_k in ((q.angle, k.angle), (q.wide, k.wide))
        )
        rounding = OF_SCORES * sizes
        if self.group.terms and self.group.adds:
            value, rounding = value + self.term.value, rounding + self.term.rounding
        if self.group.biases:
            bias = self._matrix()
            value = value + (bias.value if self.group.adds else torch.zeros_like(bias.value))
            rounding = rounding + bias.rounding
        return Numbers(value, rounding + 4 * value.abs(), angle, wide)

    def cls_bias(self) -> Numbers:
        """The bias from [CLS] to cells, from cells to it, and of it alone, (heads, 3)."""
        value = self.relative[0][1].table[-3:].T
        return Numbers(value, rounding=OF_BIASES * value.abs())

    def _biases(self, offsets: Tensor) -> Numbers:
        """The biases of some offsets, (offsets, axes), summed."""
        value, rounding = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
        offsets = -offsets if self.group.mirrored else offsets
        for call, made in self.relative:
            if call in self.group.biases:
                each = made.by_offset(offsets[:, 0] if made.axes == 1 else offsets, dtype=torch.float64)
                network = call.cls == "SwinBias" and call.option("version") == "v2"
                value, rounding = value + each, rounding + (OF_NETWORKS if network else OF_BIASES * each.abs())
        return Numbers(value, rounding)

    def _matrix(self) -> Numbers:
        """The bias of each pair, (heads, tokens, tokens)."""
        count = len(self.positions)
        if self.group.absolute:
            value = self.slopes().value[:, None, None] * self._moved(self.positions)[:, 0].expand(1, count, count)
            return Numbers(value, rounding=OF_BIASES * value.abs())
        where = self._moved(self.positions)
        whole = all(made.whole for _, made in self.relative) or bool((where == where.round()).all())
        offsets = (where[None] - where[:, None]).flatten(0, 1)  # key minus query
        found = self._biases(offsets.long() if whole else offsets)
        assert isinstance(found.rounding, Tensor)
        shape = (-1, count, count)
        return Numbers(found.value.reshape(shape), found.rounding.expand_as(found.value).reshape(shape))

    def _positions(self) -> Positions:
        """Positions as terms take them; mirrored, every offset has the other sign."""
        where = self._moved(self.positions)
        if self.group.mirrored:
            window = next((call.option("window") for call in self.group.terms if call.cls == "ViTDet"), None)
            where = -where if window is None else torch.tensor(window) - 1 - where
        return Positions.explicit(where.long()[None] if where.shape[1] > 1 else where.long().T)

    def _feature(self, name: str, feature: Any) -> Tensor:
        given = probe(f"{self.name}.{name}", len(self.positions), feature.width)
        return given * self.temperature.value[:, None] if feature.tempered else given
