"""Rotary values: values rotated by their positions, and the output rotated back by the query's.

Released  DeepSeek-V4 (rotated back); RoFormer's ``rotary_value``, CLVP (rotated only).
Acts on   values.    Learned: no.    Relative: yes, if rotated back.

    o_i = R(-i) sum_j a_ij R(j) v_j = sum_j a_ij R(j - i) v_j

With queries and keys alone, attention knows from the offsets where to look; what it gathers does not say from where.
The rotated value does. DeepSeek-V4 has one vector for key and value, so that the value comes rotated with the key, and
the output is rotated back to be relative again.

Departures: none. A scaling's magnitude m multiplies both rotations, as in released code, and so the output by m^2;
DeepSeek-V4 has m = 1.
"""

from __future__ import annotations

from typing import final

from jaxtyping import Float
from torch import Tensor

from situs.arguments import require_axes_of, require_base, require_count, require_flag
from situs.encodings.bands import refuse_bands
from situs.encodings.base import computing_dtype
from situs.encodings.fitting import require_width
from situs.encodings.rotary import Rotary
from situs.encodings.scaling import Scaling
from situs.encodings.value_map import ValueMap, ValueRole, require_value_role
from situs.functional.rotation import Channels, Pairing
from situs.positions import Positions, PositionsLike
from situs.registry import register
from situs.rotation.apply import rotate_checked


@final
@register(
    name="rotary_value",
    paper="DeepSeek-AI 2026, DeepSeek-V4 (released code); Su et al. 2021, RoFormer, arXiv:2104.09864 (released code)",
    formula="o_i = R(-i) sum_j a_ij R(j) v_j",
    dialects={
        "DeepSeek-V4": 'rotary_dim=64, channels="trailing", pairing="interleaved"',
        "RoFormer's rotary_value": 'rotate_back=False, pairing="interleaved"',
        "CLVP": "rotate_back=False, rotary_dim=...",
    },
)
class RotaryValue(ValueMap):
    """Rotate values by their positions, and the output of attention back by the position of the query.

    >>> import torch, situs
    >>> q, k, v = (torch.randn(1, 2, 6, width) for width in (8, 8, 12))
    >>> both = [situs.Rotary(head_dim=8), situs.RotaryValue(head_dim=8, value_dim=12)]
    >>> situs.attend(q, k, v, encoding=both, causal=True).shape
    torch.Size([1, 2, 6, 12])
    """

    takes_unplaced = True  # they are not rotated

    def __init__(
        self,
        *,
        head_dim: int,
        value_dim: int | None = None,
        base: float = 10000.0,
        rotary_dim: int | None = None,
        pairing: Pairing = "halves",
        channels: Channels = "leading",
        scaling: Scaling | None = None,
        rotate_back: bool = True,
    ) -> None:
        """
        head_dim: channels of a query head.
        value_dim: channels of a value head; head_dim if left out.
        base: sets the slowest wavelength, about ``2 pi base`` positions.
        rotary_dim: channels of a value that are rotated; the rest pass unchanged. All by default.
        pairing: "halves" (CLVP) or "interleaved" (DeepSeek-V4, RoFormer).
        channels: where the rotated ones stand, "leading" or "trailing" (DeepSeek-V4).
        scaling: how the frequencies are changed for a longer context.
        rotate_back: rotate the output back by the query's position; without, values depend on absolute positions.
        """
        super().__init__()
        self.head_dim = require_count("head_dim", head_dim, "it counts channels", least=1)
        if value_dim is not None:
            value_dim = require_count("value_dim", value_dim, "it counts channels", least=1)
        self.value_dim = self.head_dim if value_dim is None else value_dim
        if self.value_dim % 2:
            raise ValueError(f"value_dim must be even, since pairs of channels are rotated; got {self.value_dim}.")
        self.base = require_base(base)
        self.rotate_back = require_flag("rotate_back", rotate_back, "outputs are rotated back or not")
        refuse_bands("scaling", scaling, "RotaryValue")
        self.rotary = Rotary(
            head_dim=self.value_dim, base=self.base, rotary_dim=rotary_dim, pairing=pairing, channels=channels,
            scaling=scaling,
        )  # fmt: skip
        self.rotary_dim = self.rotary.rotary_dim
        self.pairing: Pairing = pairing
        self.channels: Channels = channels
        self.scaling = scaling
        self.maps_output = rotate_back
        self.by_length = self.rotary.by_length
        self.identity = (type(self), self.head_dim, self.rotary.identity, rotate_back)
        self.tags = frozenset({"relative", "far", "real"} if rotate_back else {"far", "real"})

    def forward(
        self,
        x: Float[Tensor, "batch heads sequence value_dim"],
        positions: PositionsLike = None,
        *,
        role: ValueRole = "value",
    ) -> Float[Tensor, "batch heads sequence value_dim"]:
        """Rotate values, or the output back."""
        require_value_role(role)
        require_width(self, "value_dim", x, self.rotary.head_dim)
        require_axes_of("x", x, ("batch", "heads", "sequence", "value_dim"), "each head has a value a token")
        if role == "value":
            rotated: Tensor = self.rotary(x, positions, role="key")
            return rotated
        if not self.rotate_back:
            return x
        where = Positions.of(positions, x.shape[-2], batch=x.shape[0], device=x.device)
        table = self.rotary.table(where, dtype=computing_dtype(x.dtype))
        return rotate_checked(x, table.transposed(), self.pairing)

    def require_agreement(self, query: Positions, key: Positions) -> None:
        """Raise if a scaling that chooses by length was given two lengths that it treats differently."""
        if self.rotate_back:
            self.rotary.require_agreement(query, key)

    def moved(self, values: Tensor, before: Positions, after: Positions) -> Tensor:
        """Rotate values on from where they stood to where they stand."""
        return self.rotary.rerotate(values, before, after)
