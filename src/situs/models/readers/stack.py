"""What readers of models without rotary share: sizes of attention, tables of the input, stacks of equal layers."""

from __future__ import annotations

from typing import Any

from situs.models.calls import Call
from situs.models.positions import Heads, Kind, Layer, Lengths, Note
from situs.models.readers.sizes import shared
from situs.models.readers.view import View, told
from situs.models.sources.strict import ConfigError

TOKENS = "it counts tokens"


class Options(dict[str, Any]):
    """Hold options of a call that are a mapping themselves, so that the call can be compared and looked up."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


def equal_heads(view: View, *, layers: str = "num_attention_heads", dim: int | None = None) -> Heads:
    """Heads that share the model's channels, or have ``dim`` each, and as many for keys as for queries."""
    queries = view.require(layers, reason="it counts heads")
    dim = shared(view, ("hidden_size",), queries) if dim is None else dim
    return Heads(queries, queries, dim, dim)


def stacked(
    count: int, heads: Heads, *calls: Call, causal: bool, scale: float | None = None, window: int | None = None
) -> tuple[Layer, ...]:
    """Layers that are all alike; the scale is 1 / sqrt(head_dim) where none is given."""
    kind: Kind = "full" if window is None else "sliding"
    scale = heads.dim**-0.5 if scale is None else scale
    return (Layer(kind, calls, heads, window=window, causal=causal, scale=scale),) * count


def bert_table(view: View, dim: int, key: str = "max_position_embeddings") -> tuple[Call, Lengths]:
    """A table with a row for each position, and the length at which it ends."""
    rows = view.require(key, reason="it counts rows of the table of positions")
    reason = f"the table of positions has {rows} rows"
    return Call.of("Learned", dim=dim, max_length=rows), Lengths(rows, limit=rows, reason=reason)


def roberta_table(view: View, dim: int, padding: int | None = None) -> tuple[Call, Lengths]:
    """A table whose first rows are for padding and before it; ``padding`` is its row, pad_token_id if left out."""
    rows = view.require("max_position_embeddings", reason="it counts rows of the table of positions")
    if padding is None:
        padding = view.require("pad_token_id", reason="positions are counted from the row behind it", least=0)
    usable = rows - padding - 1
    if usable < 1:
        raise ConfigError(
            f"{view.name('max_position_embeddings')} must be more than {padding + 1}, since positions are counted from "
            f"row {padding + 1} on; got {rows}."
        )
    call = Call.of("Learned", dim=dim, max_length=rows, offset=padding + 1, padding_row=padding)
    reason = f"the table of positions has {rows} rows, the first {padding + 1} of them for other uses"
    return call, Lengths(rows, limit=usable, reason=reason)


def t5_bias(
    view: View, heads: int, buckets: tuple[str, ...], farthest: tuple[str, ...], *, bidirectional: bool = True,
    softmax_scale: float | None = 1.0,
) -> Call:  # fmt: skip
    """T5's bias, whose buckets and farthest distance have these names."""
    rows, far = bucket_sizes(view, buckets, farthest, bidirectional=bidirectional)
    made: dict[str, Any] = {"num_heads": heads, "num_buckets": rows, "max_distance": far}
    made |= {} if bidirectional else {"bidirectional": False}
    call = Call.of("T5Bias", **made)
    return call if softmax_scale == 1.0 else Call(call.cls, (*call.options, ("softmax_scale", softmax_scale)))


def bucket_sizes(
    view: View, buckets: tuple[str, ...], farthest: tuple[str, ...], *, bidirectional: bool = True
) -> tuple[int, int]:
    """How many buckets there are, and the distance from which on all share the last."""
    fewest = 4 if bidirectional else 2
    rows = view.require(*buckets, reason="offsets share a number of buckets, near and far", least=fewest)
    far = view.require(*farthest, reason="all distances from there on share a bucket")
    if far <= rows // fewest:
        raise ConfigError(
            f"{view.spelling(*farthest)} must be more than {rows // fewest}, since that many of "
            f"{view.spelling(*buckets)}={rows} hold a single distance; got {far}."
        )
    return rows, far


def refused(view: View, key: str, rule: str, reason: str, cure: str = "") -> ConfigError:
    """An error about a setting that is understood, and that Situs has no encoding for."""
    return ConfigError(f"{view.name(key)} must be {rule}, since {reason}; got {told(view.get(key))}.{cure}")


SHARED = Note("", "all layers share the table of the first")
OWN = Note("", "each layer has a table of its own")
COUNTS_PADDING = Note("", "positions count every token, padding too: positions=None")
