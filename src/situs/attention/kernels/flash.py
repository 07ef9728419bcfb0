"""Encodings of the input and of queries and keys, and products of positions, straight onto torch's own attention.

It serves where a causal flag, or none, says which keys a query sees.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from situs.attention.kernels.inputs import cannot_widen, widened
from situs.attention.request import Request
from situs.functional.heads import grouped


def cannot(request: Request) -> str | None:
    """Why scaled_dot_product_attention alone does not serve; None if it does."""
    if request.acts_on_scores:
        acting = (*request.biases, *request.contents, *request.cumulated, *request.values)
        return f"{type(acting[0]).__name__} acts on scores or values"
    if request.sinks is not None or request.softcap is not None:
        return "torch's own attention knows neither sinks nor caps"
    if request.scale <= 0:
        return "with a scale of 0 or less torch's own causal attention gives NaN"
    why = cannot_widen(request)
    if why is not None:
        return why
    if request.mask is not None or request.window is not None:
        return "a mask or a window is more than a causal flag"
    if _causal_flag(request) is None:
        return "a causal flag does not say which keys queries at these positions see"
    return None


def run(request: Request) -> Tensor:
    """Rotated queries and keys, with a causal flag or none."""
    query, key, value = grouped(*widened(request))
    out = scaled_dot_product_attention(
        query, key, value, is_causal=bool(_causal_flag(request)), scale=request.scale, dropout_p=request.dropout
    )
    return out.reshape(*request.query.shape[:3], value.shape[-1])[..., : request.value.shape[-1]]


def _causal_flag(request: Request) -> bool | None:
    """Whether a causal flag, or none, says which keys a query sees; None where it does not."""
    query, key = request.query_positions, request.key_positions
    hides = query.documents is not None or query.valid is not None or key.valid is not None
    if not request.causal and not hides:
        return False
    start, key_start = query.first_slot, key.first_slot
    if start is None or key_start is None:
        return None
    apart = key_start - start
    if apart + key.length - 1 <= 0:
        return False
    return True if apart == 0 else None
