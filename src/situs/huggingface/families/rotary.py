"""Rotary models: cosines and sines of exact angles, and queries and keys that are rotated by them in float32.

transformers multiplies positions by frequencies in float32, which is off by 4e-3 rad at position 65,536, rounds the
cosines to the model's dtype, and rotates in that. Here angles are float64, cosines are float32 whatever the model's
dtype, and each vector is rounded once, to the dtype that it had. Frequencies are the model's own, with all updates that
transformers makes to them.

A layer's code stays transformers', with one other name in it: that of the function which rotates.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any, ClassVar, TypeAlias

import torch
from torch import Tensor
from torch.compiler import is_compiling
from transformers.modeling_rope_utils import dynamic_rope_update

from situs.functional.angles import unit_circle, widest
from situs.functional.rotation import rotate_by_real_form
from situs.huggingface.families import Expects, Family
from situs.huggingface.families.rotary_forms import APPLY, Form, Layout, form_of, laid_out, layout_of, narrowed
from situs.rotation.apply import rotate_both_checked
from situs.rotation.table import RotationTable

OURS = f"situs_{APPLY}"
"""The name, among those of a model's file, of the function that rotates in the place of the file's own."""

TABLE = "situs_table"
"""The attribute of cosines under which the table is that all layers share."""

Rotation: TypeAlias = Callable[..., tuple[Tensor, Tensor]]


class ExactAngles(Family):
    """A rotary module, which gives cosines and sines to all layers."""

    expects: ClassVar[Expects] = {"forward": ("self", "x", "position_ids")}
    layout: ClassVar[Layout]

    @classmethod
    def methods(cls, before: Any) -> dict[str, Any]:
        """Give cosines in the layout that they had."""
        layout = layout_of(before)
        assert layout is not None
        return {"layout": layout}

    @torch.no_grad()
    @dynamic_rope_update  # type: ignore[untyped-decorator]
    def forward(self: Any, x: Tensor, position_ids: Tensor, layer_type: str | None = None) -> tuple[Tensor, Tensor]:
        """Compute cosines and sines of positions in float32 or wider, from angles in float64."""
        kind = "" if layer_type is None else f"{layer_type}_"
        frequencies, scaling = getattr(self, f"{kind}inv_freq"), getattr(self, f"{kind}attention_scaling")
        cos, sin = unit_circle(position_ids[..., None], frequencies.to(x.device), widest(x.device))
        dtype = torch.promote_types(x.dtype, torch.float32)
        if not (isinstance(scaling, float) and scaling == 1):
            cos, sin = cos * scaling, sin * scaling
        cos, sin = cos.to(dtype), sin.to(dtype)
        wide_cos, wide_sin = laid_out(cos, self.layout), laid_out(sin, self.layout)
        if cos.ndim == 3 and not is_compiling():
            setattr(wide_cos, TABLE, (wide_sin, RotationTable(cos.unsqueeze(1), sin.unsqueeze(1))))
        return wide_cos, wide_sin


class ExactRotation(Family):
    """Attention that rotates queries and keys by cosines and sines that it is given."""

    expects: ClassVar[Expects] = {}

    @classmethod
    def methods(cls, before: Any) -> dict[str, Any]:
        """Run the layer's own code, which calls Situs' rotation where it called its file's."""
        names = before.forward.__globals__
        return {"forward": with_name(before.forward, APPLY, OURS, rotation_like(names[APPLY]))}


def rotation_like(function: Rotation) -> Rotation:
    """Find the rotation of Situs' that does what a function of transformers does; the function itself if there is
    none."""
    form = form_of(function)
    return function if form is None else rotation(form)


@cache
def rotation(form: Form) -> Rotation:
    """Make the function that rotates in a form in float32, or in float64 by cosines that are."""

    def rotated(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1) -> tuple[Tensor, Tensor]:
        """Rotate queries and keys, rounded once to the dtypes that they have."""
        if q.ndim == k.ndim == 4 and cos.ndim == 3 and unsqueeze_dim == 1 and not is_compiling():
            return rotate_both_checked(q, k, _table(cos, sin, form.layout), form.pairing)
        cos, sin = (_factors(each, form.layout).unsqueeze(unsqueeze_dim) for each in (cos, sin))
        return rotate_by_real_form(q, cos, sin, form.pairing), rotate_by_real_form(k, cos, sin, form.pairing)

    return rotated


def _table(cos: Tensor, sin: Tensor, layout: Layout) -> RotationTable:
    """The table that was made with the cosines; a new one where they were moved or changed since."""
    held = getattr(cos, TABLE, None)
    if held is not None and held[0] is sin:
        table: RotationTable = held[1]
        return table
    return RotationTable(_factors(cos, layout).unsqueeze(1), _factors(sin, layout).unsqueeze(1))


def _factors(each: Tensor, layout: Layout) -> Tensor:
    """The cosines or sines of pairs, in float32 or wider."""
    return narrowed(each, layout).to(torch.promote_types(each.dtype, torch.float32))


def with_name(forward: Any, name: str, ours: str, value: object) -> FunctionType:
    """Make a function of the same code that asks for ``ours``, a value among the names of its file, instead of
    ``name``."""
    names = forward.__globals__
    names[ours] = value
    code = forward.__code__.replace(
        co_names=tuple(ours if each == name else each for each in forward.__code__.co_names)
    )
    made = FunctionType(code, names, forward.__name__, forward.__defaults__, forward.__closure__)
    for kept in ("__kwdefaults__", "__annotations__", "__doc__", "__qualname__", "__module__"):
        setattr(made, kept, getattr(forward, kept))
    return made
