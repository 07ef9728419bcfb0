"""What acts on queries, keys and values, drawn at random: rotary with every scaling, pairing and split, and others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import situs
from tests.fuzz.needs import Needs, Recipe, Sizes, written

# Each scaling by the name that says what it is, or by the one that it had before.
SCALINGS: dict[str, Any] = {
    f"{short}Scaling": getattr(situs, f"{short}Scaling", None) or getattr(situs, short)
    for short in ("Linear", "NTK", "DynamicNTK", "NTKByParts", "Llama3", "Proportional")
}
PAIRINGS = ("halves", "interleaved")


def _rotary(needs: Needs, scaling: Callable[[Random, int], str] | None = None) -> Recipe:
    def write(rng: Random, sizes: Sizes) -> str:
        rotary_dim = rng.choice((sizes.head_dim, sizes.head_dim, max(2, sizes.head_dim // 4 * 2)))
        given = {
            "head_dim": str(sizes.head_dim),
            "base": rng.choice(("10000.0", "10000.0", "100.0", "500000.0")),
            "rotary_dim": str(rotary_dim),
            "pairing": repr(rng.choice(PAIRINGS)),
            "channels": repr(rng.choice(("leading", "trailing"))),
            "reverse": rng.choice(("False", "False", "True")),
        }
        if scaling is not None:
            given["scaling"] = scaling(rng, rotary_dim)
        return written("situs.Rotary", given)

    return needs, write


def _stretch(name: str, *lengths: int) -> Callable[[Random, int], str]:
    def write(rng: Random, rotary_dim: int) -> str:
        given = {"factor": rng.choice(("1.0", "2.0", "8.0"))}
        if lengths:
            given["original_length"] = str(rng.choice(lengths))
        return written(name, given)

    return write


def _parts(name: str) -> Callable[[Random, int], str]:
    def write(rng: Random, rotary_dim: int) -> str:
        given = {"factor": rng.choice(("2.0", "16.0")), "original_length": rng.choice(("64", "4096"))}
        given["dialect"] = repr(rng.choice(("hf", "paper")))
        if given["dialect"] == "'hf'":
            given["truncate"] = rng.choice(("True", "False"))
        if name == "situs.YaRN" and rng.random() < 0.6:
            given |= rng.choice(
                (
                    {"attention_factor": "1.3"},
                    {"mscale": "0.7", "mscale_all_dim": "1.0"},
                    {"mscale_all_dim": "0.8"},
                    {"mscale": "0.7", "mscale_all_dim": "1.0", "mscale_dialect": "'ministral3'"},
                )
            )
        return written(name, given)

    return write


def _longrope(rng: Random, rotary_dim: int) -> str:
    short, long = (tuple(round(rng.uniform(1, most), 2) for _ in range(rotary_dim // 2)) for most in (1.5, 8.0))
    given = {"factor": "4.0", "original_length": rng.choice(("32", "64", "250"))}
    given |= rng.choice(({}, {"short_mscale": "1.2", "long_mscale": "0.8"}))
    return written("situs.LongRoPE", {**given, "short_factors": str(short), "long_factors": str(long)})


def _proportional(rng: Random, rotary_dim: int) -> str:
    return f"ProportionalScaling(fraction={rng.choice((0.25, 0.5, 1.0))}, factor={rng.choice((1.0, 4.0))})"


def _self_extend(rng: Random, rotary_dim: int) -> str:
    return f"situs.SelfExtend(window={rng.choice((1, 5, 64, 200))}, group={rng.choice((1, 3, 8, 40))})"


def _rerope(rng: Random, rotary_dim: int) -> str:
    return f"situs.ReRoPE(window={rng.choice((1, 5, 64, 200))}, leak={rng.choice((0.0, 0.0, 0.25, 1 / 3, 1.0))})"


def _dual_chunk(rng: Random, rotary_dim: int) -> str:
    chunk, local = rng.choice(((1, 0), (3, 1), (16, 0), (40, 8), (64, 31), (130, 2), (400, 100)))
    return f"situs.DualChunk(chunk_size={chunk}, local_size={local})"


def _by_head(rng: Random, sizes: Sizes) -> str:
    bases = tuple(rng.choice((100.0, 1000.0, 10000.0)) for _ in range(sizes.heads))
    return f"situs.Rotary(head_dim={sizes.head_dim}, base={bases}, pairing={rng.choice(PAIRINGS)!r})"


def _axial(axes: int) -> Recipe:
    needs = Needs(axes=(axes,), multiple=2 * axes)

    def write(rng: Random, sizes: Sizes) -> str:
        split = f"situs.Axial(axes={axes}, ladder={rng.choice(('own', 'shared'))!r})"
        return f"situs.Rotary(head_dim={sizes.head_dim}, split={split}, pairing={rng.choice(PAIRINGS)!r})"

    return needs, write


def _uneven(rng: Random, sizes: Sizes) -> str:
    first = rng.choice(range(2, sizes.head_dim - 1, 2))
    bases = rng.choice((None, (100.0, 10000.0)))
    scalings = rng.choice(("None", "(NTKScaling(factor=2.0), None)", "(None, LinearScaling(factor=4.0))"))
    pairing = rng.choice(PAIRINGS)
    halves = rng.choice(("head", "axis")) if pairing == "halves" else "head"
    split = (
        f"situs.Axial(dims={(first, sizes.head_dim - first)}, bases={bases}, scalings={scalings}, halves={halves!r})"
    )
    return f"situs.Rotary(head_dim={sizes.head_dim}, split={split}, pairing={pairing!r})"


def _lerope(rng: Random, sizes: Sizes) -> str:
    scaling = rng.choice(("None", "LinearScaling(factor=2.0)"))
    return f"situs.LeRoPE(head_dim={sizes.head_dim}, pairing={rng.choice(PAIRINGS)!r}, scaling={scaling})"


def _rope_mixed(rng: Random, sizes: Sizes) -> str:
    return f"situs.RoPEMixed(head_dim={sizes.head_dim}, num_heads={sizes.heads}, pairing={rng.choice(PAIRINGS)!r})"


def _sections(rng: Random, sizes: Sizes) -> str:
    third = sizes.head_dim // 6
    order = rng.choice(("contiguous", "interleaved", "time_last"))
    dealt = (
        (third, third, third) if order != "contiguous" else rng.choice(((2 * third, third, 0), (third, third, third)))
    )
    return f"situs.Rotary(head_dim={sizes.head_dim}, split=situs.Sections(sizes={dealt}, order={order!r}))"


def _xpos(centre: str) -> Recipe:
    needs = Needs(multiple=2, far=700, lengths=centre == "'middle'")
    return (
        needs,
        lambda rng, sizes: (
            f"situs.XPos(head_dim={sizes.head_dim}, centre={centre}, pairing={rng.choice(PAIRINGS)!r}, "
            f"scale_base={rng.choice((512.0, 300.0))})"
        ),
    )


def _value(rng: Random, sizes: Sizes) -> str:
    given = {"head_dim": str(sizes.head_dim), "rotary_dim": str(max(2, sizes.head_dim // 4 * 2))}
    given |= {"pairing": repr(rng.choice(PAIRINGS)), "channels": repr(rng.choice(("leading", "trailing")))}
    return written("situs.RotaryValue", {**given, "rotate_back": rng.choice(("True", "True", "False"))})


def _temperature(rng: Random, sizes: Sizes) -> str:
    dialect = rng.choice(("llama4", "ministral3", "inkling", "log_n", "power", "ssmax"))
    given = {"dialect": repr(dialect), "original_length": rng.choice(("3", "17", "200"))}
    if dialect in ("log_n", "ssmax"):
        return written("situs.Temperature", {**given, "num_heads": str(sizes.heads)})
    return written("situs.Temperature", {**given, "factor": rng.choice(("0.1", "0.5"))})


def _pope(rng: Random, sizes: Sizes) -> str:
    given = {"head_dim": str(sizes.head_dim), "base": rng.choice(("10000.0", "100.0"))}
    learned = rng.random() < 0.7
    return written("situs.PoPE", given | ({"num_heads": str(sizes.heads)} if learned else {"learned": "False"}))


EVEN = Needs(multiple=2)
BY_LENGTH = Needs(multiple=2, lengths=True)

BANDED: dict[str, Recipe] = {
    "self extend": _rotary(EVEN, _self_extend),
    "rerope": _rotary(EVEN, _rerope),
    "dual chunk": _rotary(EVEN, _dual_chunk),
}
ROTATIONS: dict[str, Recipe] = {
    "rotary": _rotary(EVEN),
    "rotary by head": (replace(EVEN, own_keys=True), _by_head),
    "linear": _rotary(EVEN, _stretch("LinearScaling")),
    "ntk": _rotary(EVEN, _stretch("NTKScaling")),
    "dynamic ntk": _rotary(BY_LENGTH, _stretch("DynamicNTKScaling", 16, 64, 250)),
    "by parts": _rotary(EVEN, _parts("NTKByPartsScaling")),
    "yarn": _rotary(EVEN, _parts("situs.YaRN")),
    "longrope": _rotary(BY_LENGTH, _longrope),
    "llama3": _rotary(EVEN, _stretch("Llama3Scaling", 64, 8192)),
    "proportional": _rotary(EVEN, _proportional),
    **BANDED,
    "axial": _axial(2),
    "axial of videos": _axial(3),
    "axial of unequal axes": (Needs(axes=(2,), multiple=4), _uneven),
    "lerope": (EVEN, _lerope),
    "rope mixed": (Needs(axes=(2,), multiple=4, own_keys=True), _rope_mixed),
    "sections": (Needs(axes=(1, 3), multiple=6), _sections),
    "xpos": _xpos("'origin'"),
    "xpos around the middle": _xpos("'middle'"),
    "xpos around a number": _xpos("30.0"),
    "rotary value": (Needs(multiple=2, same_width=True), _value),
    "temperature": (Needs(), _temperature),
    "pope": (Needs(), _pope),
}
