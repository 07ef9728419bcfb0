"""Mistakes in what scores are multiplied by, and in what is added to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from situs.functional.slopes import alibi_slopes
from situs.models.calls import Call
from situs.models.oracle.parts import Group, Part
from situs.models.verifying.mistake import Mistake, in_groups, line, said


def _scaled(change: Callable[[float, int], float]) -> Callable[[Part], Part | None]:
    """Multiply scores by something else, a function of the scale and the channels of a head."""

    def of_part(part: Part) -> Part | None:
        def each(group: Group) -> Group | None:
            assert group.layer.heads is not None
            scale = change(group.scale, group.layer.heads.dim)
            return None if scale == group.scale else replace(group, scale=scale)

        found = part.change(each)
        if found is None:
            return None
        layers = [
            layer
            if layer.heads is None
            else replace(layer, scale=change(layer.scale or layer.heads.dim**-0.5, layer.heads.dim))
            for layer in part.layers
        ]
        return replace(found, layers=tuple(layers))

    return of_part


def _on_tables(group: Group) -> Group | None:
    """Put the factor of the softmax scale on cosines and sines."""
    assert group.layer.heads is not None
    usual = group.layer.heads.dim**-0.5
    scaling = None if group.rotation is None else group.rotation.option("scaling")
    if scaling is None or scaling.cls != "YaRN" or not scaling.option("mscale_all_dim") or group.scale == usual:
        return None
    factor = (group.scale / usual) ** 0.5
    return replace(group, scale=usual, changes=(*group.changes, lambda rule, _: replace(rule, factor=factor)))


def _about_scale(part: Part) -> str:
    group = part.groups[0]
    assert group.layer.heads is not None
    dim = group.layer.heads.dim
    usual = f"1/sqrt({dim})" if abs(group.scale * dim**0.5 - 1) < 1e-12 else f"not 1/sqrt({dim}) = {dim**-0.5:.9g}"
    keys = ("query_pre_attn_scalar", "attention_multiplier", "mscale_all_dim", "softmax_scale")
    where = next((found for found in (line(part, key) for key in keys) if "default" not in found), "")
    return f"q . k is multiplied by {group.scale:.9g}, {usual}{'; ' * bool(where)}{where}"


def _biases(cls: str, change: Callable[[Call], Call | None]) -> Callable[[Part], Part | None]:
    """Change the options of biases of a class."""

    def each(group: Group) -> Group | None:
        changed = tuple((change(call) or call) if call.cls == cls else call for call in group.biases)
        return None if changed == group.biases else replace(group, biases=changed)

    return in_groups(each)


def _terms(cls: str, change: Callable[[Call], Call | None]) -> Callable[[Part], Part | None]:
    """Change the options of terms of a class."""

    def each(group: Group) -> Group | None:
        changed = tuple((change(call) or call) if call.cls == cls else call for call in group.terms)
        return None if changed == group.terms else replace(group, terms=changed)

    return in_groups(each)


def _slopes(call: Call) -> torch.Tensor:
    given = call.option("slopes")
    heads = call.option("num_heads")
    return alibi_slopes(heads, call.option("bias_max", 8.0)) if given is None else torch.tensor(given).double()


def _by_formula(call: Call) -> Call | None:
    heads = call.option("num_heads")
    if heads & (heads - 1) == 0:
        return None
    return call.replace(slopes=tuple(2.0 ** (-8 * (head + 1) / heads) for head in range(heads)))


def _rounded(call: Call) -> Call:
    slopes = _slopes(call) * call.option("factor", 1.0)
    return call.replace(slopes=tuple(slopes.to(torch.bfloat16).double().tolist()), factor=None)


def _without(term: str) -> Callable[[Call], Call | None]:
    def change(call: Call) -> Call | None:
        kept = tuple(each for each in call.option("terms", ("c2p", "p2c")) if each != term)
        return call.replace(terms=kept) if kept else None

    return change


def _other_direction(call: Call) -> Call:
    return call.replace(bidirectional=not call.option("bidirectional", True))


def _other_row(call: Call) -> Call:
    return call.replace(p2c_row="same" if call.option("p2c_row") == "mirrored" else "mirrored")


def _other_layout(call: Call) -> Call:
    return call.replace(layout="concatenated" if call.option("layout") == "interleaved" else "interleaved")


def _other_order(call: Call) -> Call:
    backwards = call.option("rows") == "query_minus_key"
    return call.replace(rows="key_minus_query" if backwards else "query_minus_key")


def _other_end(call: Call) -> Call:
    return call.replace(beyond="last" if call.option("beyond") == "nothing" else "nothing")


def _mirrored(group: Group) -> Group | None:
    """Exchange queries and keys in offsets, wherever the two sides differ."""
    sides = any(call.cls != "ALiBi" for call in group.biases + group.terms)
    return replace(group, mirrored=True) if sides else None


def _by_index(group: Group) -> Group | None:
    return replace(group, absolute=True) if any(call.cls == "ALiBi" for call in group.biases) else None


def _not_added(group: Group) -> Group | None:
    return replace(group, adds=False) if group.biases + group.terms else None


def _about_buckets(part: Part) -> str:
    return f"encoders tell keys ahead from keys behind, decoders do not: {_about_relative(part)}"


def _about_slopes(part: Part) -> str:
    call = next(call for group in part.groups for call in group.biases if call.cls == "ALiBi")
    slopes = (_slopes(call) * call.option("factor", 1.0)).tolist()
    return (
        f"slopes are {', '.join(f'{each:.6g}' for each in slopes[:3])} ...; of {call.option('num_heads')} heads those "
        f"beyond a power of two have every second slope of the next one"
    )


def _about_relative(part: Part) -> str:
    group = next(group for group in part.groups if group.biases or group.terms)
    return f"{(group.biases + group.terms)[0]!r:.200}, of offsets key minus query"


SCORES: tuple[Mistake, ...] = (
    Mistake("softmax scale missing", "scale", _scaled(lambda scale, dim: 1.0), _about_scale),
    Mistake("softmax scale applied twice", "scale", _scaled(lambda scale, dim: scale**2), _about_scale),
    Mistake(
        "1/sqrt(head_dim) for the model's own softmax scale",
        "scale",
        _scaled(lambda scale, dim: dim**-0.5),
        _about_scale,
    ),
    Mistake("1/head_dim for the softmax scale", "scale", _scaled(lambda scale, dim: 1 / dim), _about_scale),
    Mistake("mscale on cosines and sines instead of the softmax scale", "scale", in_groups(_on_tables), _about_scale),
    Mistake(
        "T5 buckets of the other direction", "direction of buckets", _biases("T5Bias", _other_direction), _about_buckets
    ),
    Mistake("offsets mirrored: query minus key", "sign of offsets", in_groups(_mirrored), _about_relative),
    Mistake("ALiBi slopes by the formula for powers of two", "slopes", _biases("ALiBi", _by_formula), _about_slopes),
    Mistake(
        "ALiBi slopes rounded to bfloat16",
        "slopes",
        _biases("ALiBi", _rounded),
        said("keep slopes in float32: rounded and multiplied with a far index, neighbours share a bias"),
    ),
    Mistake(
        "ALiBi with the other sign",
        "sign of slopes",
        _biases("ALiBi", lambda call: call.replace(slopes=tuple((-_slopes(call)).tolist()))),
        said("scores fall with distance: - m |i - j|"),
    ),
    Mistake(
        "ALiBi by the key's index instead of the distance",
        "absolute index",
        in_groups(_by_index),
        said(
            "- m (i - j). Under a causal mask softmax cannot tell, but half precision loses it at far positions, and "
            "without a mask it is wrong"
        ),
    ),
    Mistake(
        "ALiBi's factor missing",
        "slopes' factor",
        _biases("ALiBi", lambda call: call.replace(factor=None)),
        said("Falcon divides the bias by sqrt(head_dim), together with q . k"),
    ),
    Mistake(
        "DeBERTa's p2c row mirrored",
        "p2c",
        _terms("Deberta", _other_row),
        said("k_j . Q[d(i, j)]: the row of query minus key, as for c2p"),
    ),
    Mistake("DeBERTa's c2p left out", "c2p", _terms("Deberta", _without("c2p")), _about_relative),
    Mistake("DeBERTa's p2c left out", "p2c", _terms("Deberta", _without("p2c")), _about_relative),
    Mistake(
        "sines and cosines of offsets in turn for all sines first, or the reverse",
        "layout of offsets",
        _terms("TransformerXL", _other_layout),
        _about_relative,
    ),
    Mistake(
        "u and v left out",
        "u and v",
        _terms("TransformerXL", lambda call: call.replace(biases=False) if call.option("biases", True) else None),
        _about_relative,
    ),
    Mistake("the table's rows in the other order", "order of rows", _terms("Shaw", _other_order), _about_relative),
    Mistake(
        "what lies beyond the table gets its last row, or nothing, confused",
        "beyond",
        _terms("Shaw", _other_end),
        _about_relative,
    ),
    Mistake(
        "the bias not multiplied by the temperature",
        "tempered",
        _terms("ProjectedBias", lambda call: call.replace(tempered=None)),
        _about_relative,
    ),
    Mistake("the bias or term not added", "added", in_groups(_not_added), _about_relative),
)
