"""What biases, temperatures and tables do at a length: how far a head reaches, which distances look alike, where a
table ends."""

from __future__ import annotations

from collections.abc import Iterator

from situs.models.calls import Call
from situs.models.positions import Layer, ModelPositions

HUNDREDTH = 5.0  # a bias of -5 makes a weight less than a hundredth


def lines_of(layer: Layer, target: int) -> Iterator[str]:
    """What the encodings of a layer that do not rotate do in a text of ``target`` tokens, a sentence each."""
    distance = min(target, layer.window or layer.chunk or target)
    for call in layer.calls:
        told = {"ALiBi": _alibi, "T5Bias": _buckets, "Deberta": _deberta, "Temperature": _temperature, "Shaw": _shaw,
                "TransformerXL": _clamped, "ProjectedBias": _projected}.get(call.cls)  # fmt: skip
        if told is not None:
            yield from told(call, target if call.cls == "Temperature" else distance)


def _alibi(call: Call, distance: int) -> Iterator[str]:
    import torch

    slopes = (-call.build().by_offset(torch.tensor([-1]), dtype=torch.float64)).flatten().tolist()
    reaches = sorted(HUNDREDTH / slope for slope in slopes)
    beyond = sum(reach < distance for reach in reaches)
    yield (
        f"ALiBi: heads reach {reaches[0]:,.0f} to {reaches[-1]:,.0f} tokens back (5 / slope: farther keys weigh less "
        f"than a hundredth); {beyond} of {len(slopes)} do not reach {distance:,}"
    )


def _buckets(call: Call, distance: int) -> Iterator[str]:
    from situs.functional.buckets import t5_rows

    both = call.option("bidirectional", True)
    far = call.option("max_distance", 128)
    rows = t5_rows(call.option("num_buckets", 32), far, both)[: far + 1].flip(0)  # of distances 0, 1, 2 ... behind
    last = int((rows != rows[-1]).sum())
    yield _saturated("T5's bias", last, distance)


def _deberta(call: Call, distance: int) -> Iterator[str]:
    from situs.functional.buckets import deberta_rows

    far = call.option("max_distance")
    rows = deberta_rows(far, call.option("buckets"))[: far + 1].flip(0)
    last = int((rows != rows[-1]).sum())
    yield _saturated("DeBERTa's terms", last, distance)


def _shaw(call: Call, distance: int) -> Iterator[str]:
    beyond = "share its last row" if call.option("beyond", "last") == "last" else "get nothing from it"
    bound = call.option("max_distance", 16)
    yield f"Shaw's table: has rows up to {bound:,} tokens back; farther keys {beyond}"


def _clamped(call: Call, distance: int) -> Iterator[str]:
    bound = call.option("clamp_len")
    if bound is None:
        yield "Transformer-XL's term: sinusoids of the distance, which do not end; distances beyond training are new"
    else:
        yield _saturated("Transformer-XL's term", bound, distance)


def _projected(call: Call, distance: int) -> Iterator[str]:
    extent = call.option("distances", 1024)
    farther = f"; keys farther back than {extent:,} tokens get none" if extent < distance else ""
    yield f"projected bias: a number for each of {min(extent, distance):,} distances{farther}"


def _saturated(name: str, last: int, distance: int) -> str:
    """A sentence on the distances that share one row of a table."""
    if last >= distance - 1:
        return f"{name}: every distance below {distance:,} is told apart from the farthest"
    alike = distance - last
    return f"{name}: distances from {last:,} on look alike, {alike:,} of {distance:,} ({100 * alike / distance:.3g} %)"


def _temperature(call: Call, target: int) -> Iterator[str]:
    dialect = call.option("dialect")
    if dialect == "ssmax":
        yield "temperature: queries are multiplied by s log(position + 1) + b, with s and b learned for each head"
        return
    from situs.functional.temperature import temperature_at

    encoding = call.build()
    start = encoding.original_length
    first, last = (temperature_at(each, dialect, start, encoding.factor) for each in (0, target - 1))
    yield f"temperature: queries are multiplied by {first:.4g} at position 0, and by {last:.4g} at {target - 1:,}"


def table_lines(model: ModelPositions, target: int) -> Iterator[str]:
    """What tables at the input do at a length, a sentence each."""
    for call in model.input:
        if call.cls == "Learned":
            usable = call.outline().usable_length
            rows = call.option("max_length")
            ends = f"ends at {usable:,} tokens" + (f" ({rows:,} rows)" if rows != usable else "")
            verdict = f"; {target:,} tokens do not fit" if target > usable else f"; {target:,} tokens fit"
            yield f"learned table {ends}{verdict}"
        elif call.cls == "Sinusoidal":
            yield "sinusoidal table: computed for any position; positions beyond training are new to the model"
        else:
            yield f"{call!r}"
