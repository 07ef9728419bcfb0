"""Encodings drawn at random, alone or in pairs, as the Python that makes them; and their parameters."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import torch
from torch import Tensor, nn

import situs
from tests.fuzz import own_encodings
from tests.fuzz.draw_rotations import BANDED, ROTATIONS, SCALINGS
from tests.fuzz.needs import Needs, Recipe, Sizes

TABLE = 700
"""Positions that TUPE is made for: more than the longest sequence."""


def _t5(rng: Random, sizes: Sizes) -> str:
    both_ways = rng.random() < 0.5
    scale = rng.choice(("1.0", "None"))
    if rng.random() < 0.3:
        rows = f"buckets='clipped', max_distance={rng.choice((1, 5, 40, 128))}"
    else:
        buckets, farthest = rng.choice(((32, 128), (32, 128), (8, 20), (16, 64), (4, 10)))
        rows = f"num_buckets={buckets}, max_distance={farthest}"
    return f"situs.T5Bias(num_heads={sizes.heads}, {rows}, bidirectional={both_ways}, softmax_scale={scale})"


def _alibi(rng: Random, sizes: Sizes) -> str:
    slopes, ahead = ([round(rng.uniform(0.01, 0.5), 3) for _ in range(sizes.heads)] for _ in range(2))
    options = rng.choice(
        (
            "",
            f", bias_max=4.0, factor=0.5, first_head=1, all_heads={sizes.heads + 2}",
            f", asymmetric=True, slopes_ahead={ahead}",
            ", learned=True",
            ", learned=True, asymmetric=True",
            f", slopes={slopes}",
        )
    )
    return f"situs.ALiBi(num_heads={sizes.heads}{options})"


def _kerple(rng: Random, sizes: Sizes) -> str:
    return f"situs.Kerple(num_heads={sizes.heads}, kernel={rng.choice(('log', 'power'))!r})"


def _sandwich(rng: Random, sizes: Sizes) -> str:
    return f"situs.Sandwich(num_heads={sizes.heads}, cosine_dim={rng.choice((2, 16, 128))})"


def _fire(rng: Random, sizes: Sizes) -> str:
    width, threshold = rng.choice((1, 5, 8)), rng.choice((4.3, 77.7, 512.3))
    return f"situs.Fire(num_heads={sizes.heads}, width={width}, threshold={threshold})"


def _mlp(rng: Random, sizes: Sizes) -> str:
    # two units that are normalised are 1 and -1 but for 1e-5, and their gradients nothing but rounding
    units = rng.choice(("width=2", "width=6", "width=6, norm=True"))
    return f"situs.MLPBias(num_heads={sizes.heads}, {units}, depth={rng.choice((1, 2))}, log_distance=True)"


def _swin(rng: Random, sizes: Sizes) -> str:
    version = rng.choice(("'v1'", "'v2', width=6", "'v2', width=6, trained_window=(5, 4)"))
    return f"situs.SwinBias(num_heads={sizes.heads}, window=(18, 18), version={version})"


def _boxes(rng: Random, sizes: Sizes) -> str:
    buckets, farthest = rng.choice((((32, 64, 64), (128, 256, 256)), ((8, 4, 12), (20, 9, 300))))
    factor = rng.choice((1.0, 0.3))
    return f"situs.Boxes(num_heads={sizes.heads}, num_buckets={buckets}, max_distance={farthest}, factor={factor})"


def _vitdet(rng: Random, sizes: Sizes) -> str:
    scaled = rng.random() < 0.5
    return f"situs.ViTDet(num_heads={sizes.heads}, head_dim={sizes.head_dim}, window=(18, 18), scaled={scaled})"


def _shaw(keys: bool, values: bool) -> Recipe:
    needs = Needs(whole=True, same_width=values)
    return (
        needs,
        lambda rng, sizes: (
            f"situs.Shaw(num_heads={sizes.heads}, head_dim={sizes.head_dim}, keys={keys}, values={values}, "
            f"max_distance={rng.choice((1, 3, 16, 100))}, per_head={rng.random() < 0.5}, "
            f"max_ahead={rng.choice((None, None, 0, 20))}, "
            f"rows={rng.choice(('key_minus_query', 'query_minus_key'))!r})"
        ),
    )


def _transformer_xl(rng: Random, sizes: Sizes) -> str:
    clamp = rng.choice((None, None, 1, 7, 40, 300))
    return f"situs.TransformerXL(dim=6, num_heads={sizes.heads}, head_dim={sizes.head_dim}, clamp_len={clamp})"


def _tupe(rng: Random, sizes: Sizes) -> str:
    options = f"untie_cls={rng.random() < 0.6}, relative_buckets={rng.choice((None, 32, 8))}"
    return f"situs.Tupe(dim=6, num_heads={sizes.heads}, head_dim={sizes.head_dim}, max_length={TABLE}, {options})"


def _deberta(rng: Random, sizes: Sizes) -> str:
    buckets, farthest = rng.choice(((None, 3), (None, 10), (None, 100), (8, 16), (4, 40), (32, 128)))
    terms = rng.choice((("c2p", "p2c"), ("c2p", "p2c"), ("c2p",), ("p2c",), ("c2p", "p2c", "p2p"), ("p2p",)))
    tied = rng.random() < 0.3
    options = (
        f"max_distance={farthest}, buckets={buckets}, terms={terms}, p2c_row={rng.choice(('same', 'mirrored'))!r}, "
        f"key_bias={rng.random() < 0.5}, layer_norm={rng.random() < 0.5}, share_att_key={tied}"
    )
    made = f"situs.Deberta(dim=6, num_heads={sizes.heads}, head_dim={sizes.head_dim}, {options})"
    return f"tied({made})" if tied else made


def _cope(rng: Random, sizes: Sizes) -> str:
    return (
        f"situs.CoPE(num_heads={sizes.heads}, head_dim={sizes.head_dim}, per_head={rng.random() < 0.5}, "
        f"max_position={rng.choice((1, 2, 5, 20, 64, 400))}, scaled={rng.random() < 0.7})"
    )


def _before(rng: Random, sizes: Sizes) -> str:
    return rng.choice(
        (
            "situs.NoPE()",
            "situs.Sinusoidal(dim=8)",
            "situs.Learned(dim=8, max_length=16)",
            "situs.LearnedGrid(dim=8, size=(2, 2))",
        )
    )


def _blocked(rng: Random, sizes: Sizes) -> str:
    kind, reach = rng.choice(
        (("band", 3), ("band", 40), ("ahead", 2), ("ahead", 90), ("stride", 3), ("near", 1), ("near", 20))
    )
    return f"Blocked(num_heads={sizes.heads}, reach={reach}, kind={kind!r})"


def _swell(rng: Random, sizes: Sizes) -> str:
    return f"Swell(num_heads={sizes.heads}, head_dim={sizes.head_dim}, span={rng.choice((None, 1, 9, 60))})"


def _projected(rng: Random, sizes: Sizes) -> str:
    scale = rng.choice((None, 1 / sizes.head_dim))
    return (
        f"situs.ProjectedBias(num_heads={sizes.heads}, distances={rng.choice((1, 5, 33, 128, 700))}, "
        f"rank={rng.choice((1, 3, 16))}, tempered={rng.random() < 0.5}, softmax_scale={scale}, dim={sizes.dim})"
    )


def _gated(rng: Random, sizes: Sizes) -> str:
    bias, options = rng.choice(
        (
            ("t5", "None"),
            ("t5", "{'num_buckets': 8, 'max_distance': 20, 'bidirectional': False}"),
            ("alibi", "None"),
            ("alibi", "{'learned': True, 'asymmetric': True}"),
            ("kerple", "{'kernel': 'log'}"),
        )
    )
    return f"situs.GatedBias(num_heads={sizes.heads}, bias={bias!r}, options={options}, dim={sizes.dim})"


ANY = Needs(axes=(1, 2, 3))
WHOLE = Needs(whole=True)

RECIPES: dict[str, Recipe] = {
    **ROTATIONS,
    "t5": (WHOLE, _t5),
    "alibi": (Needs(), _alibi),
    "kerple": (Needs(), _kerple),
    "sandwich": (Needs(), _sandwich),
    "fire": (Needs(pairs=1 << 19), _fire),
    "mlp": (Needs(pairs=1 << 19), _mlp),
    "swin": (Needs(axes=(2,), whole=True, window=(18, 18), pairs=1 << 19), _swin),
    "boxes": (Needs(axes=(3,), whole=True, pairs=1 << 19), _boxes),
    "vitdet": (Needs(axes=(2,), whole=True, window=(18, 18), pairs=1 << 19), _vitdet),
    "shaw": _shaw(True, True),
    "shaw of keys": _shaw(True, False),
    "shaw of values": _shaw(False, True),
    "transformer xl": (Needs(), _transformer_xl),
    "tupe": (Needs(whole=True, table=TABLE), _tupe),
    "deberta": (WHOLE, _deberta),
    "cope": (replace(ANY, pairs=1 << 20), _cope),
    "projected": (replace(WHOLE, pairs=1 << 20), _projected),
    "gated": (replace(WHOLE, pairs=1 << 20), _gated),
    "forgetting": (
        replace(ANY, pairs=1 << 20, causal=True),
        lambda rng, sizes: f"situs.Forgetting(num_heads={sizes.heads}, dim={sizes.dim})",
    ),
    "before": (ANY, _before),
    "blocked": (WHOLE, _blocked),
    "ripple": (Needs(), lambda rng, sizes: f"Ripple(num_heads={sizes.heads})"),
    "fading": (Needs(), lambda rng, sizes: f"Fading(num_heads={sizes.heads}, head_dim={sizes.head_dim})"),
    "swell": (Needs(pairs=1 << 17), _swell),
    "gain": (Needs(), lambda rng, sizes: f"Gain(head_dim={sizes.head_dim})"),
}

APART = {
    "blocked": {"cope"},
    "cope": {"blocked", "cope"},
    "pope": {*ROTATIONS, "gain"} - {"temperature", "rotary value"},
    "rotary value": {"rotary value"},
    **{name: set(BANDED) for name in BANDED},
    "projected": {"projected"},
    "gated": {"gated"},
    "forgetting": {"forgetting"},
}
"""Pairs that no formula settles: whether CoPE counts keys that a bias hides, what rotates the channels that PoPE has
added, how values that were rotated twice are moved, and which of two bands or features of one name is meant."""


def draw_recipes(rng: Random, number: int) -> tuple[str, ...]:
    """One encoding or two that fit each other; the first by ``number``, so that all have their turn."""
    names = list(RECIPES)
    first = names[number % len(names)]
    if rng.random() < 0.7:
        return (first, "temperature") if first == "projected" and rng.random() < 0.3 else (first,)
    others = [
        name for name in names if RECIPES[name][0].with_(RECIPES[first][0]).axes and name not in APART.get(first, ())
    ]
    return first, rng.choice(others)


def tied(encoding: Any) -> Any:
    """A DeBERTa that uses the projections of an attention."""
    width = encoding.num_heads * encoding.head_dim
    return encoding.tie(
        query=nn.Linear(encoding.dim, width), key=nn.Linear(encoding.dim, width, bias=encoding.key_bias)
    )


def make(expression: str) -> Any:
    """The encoding that an expression writes."""
    names = {name: getattr(own_encodings, name) for name in ("Blocked", "Ripple", "Fading", "Swell", "Gain")}
    return eval(expression, {"situs": situs, "tied": tied, **SCALINGS, **names})


def parameters_of(encodings: list[Any]) -> dict[str, Tensor]:
    """All that is learned, each once, by name; borrowed projections too."""
    found: dict[str, Tensor] = {}
    for number, each in enumerate(encodings):
        lent = {f"borrowed{index}": module for index, module in enumerate(getattr(each, "borrowed", ()))}
        for prefix, module in {"": each, **lent}.items():
            found |= {f"{type(each).__name__}[{number}]{prefix}.{name}": p for name, p in module.named_parameters()}
    return found


@torch.no_grad()
def draw_parameters(encodings: list[Any], generator: torch.Generator) -> None:
    """Numbers large enough that what they do is seen, some of them outside the range that a method holds them in."""
    for name, parameter in parameters_of(encodings).items():
        kind, last = name.split("[", maxsplit=1)[0], name.rsplit(".", maxsplit=1)[-1]
        unit = torch.rand(parameter.shape, generator=generator, dtype=torch.float64)
        normal = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        if kind == "Kerple":
            drawn = 2.4 * unit - 0.2
        elif kind == "ALiBi" or last in ("slope", "c"):
            drawn = 0.02 + 0.5 * unit
        elif last == "threshold_factor" or (".norm." in name and last == "weight"):
            drawn = 0.7 + 0.6 * unit
        else:
            drawn = 0.5 * normal
        parameter.copy_(drawn)
