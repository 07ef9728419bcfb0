"""What content-free biases refuse: options that make no sense, what is no place, and places they cannot take."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from situs import ALiBi, Fire, Kerple, MLPBias, Positions, Sandwich, SwinBias, T5Bias, Tupe
from tests.encodings.bias_cases import CASES, every_case, places_for
from tests.raising import raises_exactly

TUPE = "must be 1 or more, since it sizes the table and the projections; got"
TUPE_BUCKETS = (
    "relative_buckets must be a multiple of 4 up to 256, since each direction halves into single and growing "
    "distances; got "
)

REFUSED: dict[Any, list[tuple[dict[str, Any], str]]] = {
    ALiBi: [
        ({"num_heads": 0}, "num_heads must be 1 or more, since each has a slope; got 0."),
        ({"slopes": [1.0]}, "slopes must be 2 numbers, since there is one per head; got [1.0]."),
        (
            {"slopes": (1.0, math.inf)},
            "slopes must be finite, since there is one per head; got inf.",
        ),
        (
            {"asymmetric": True, "slopes_ahead": [1.0, 2.0, 3.0]},
            "slopes_ahead must be 2 numbers, since there is one per head; got [1.0, 2.0, 3.0].",
        ),
        (
            {"asymmetric": True},
            "slopes_ahead must be given where asymmetric slopes are not learned, since they would equal the others; "
            "got None.",
        ),
        (
            {"slopes_ahead": [1.0, 2.0]},
            "asymmetric must be True where slopes_ahead is given, since only then keys ahead have their own; got "
            "slopes_ahead=[1.0, 2.0].",
        ),
        (
            {"first_head": 3, "all_heads": 4},
            "heads 3 .. 4 must lie in 0 .. 3, since the layer has 4; got first_head=3, num_heads=2 and all_heads=4.",
        ),
        (
            {"first_head": -1},
            "first_head must be 0 or more, since it is one of the layer's heads; got -1.",
        ),
        (
            {"all_heads": 8, "slopes": [1.0, 2.0]},
            "slopes must be 8 numbers, since there is one per head; got [1.0, 2.0].",
        ),
    ],
    Fire: [
        ({"num_heads": 0}, "num_heads must be 1 or more, since it sizes the MLP; got 0."),
        ({"width": 0}, "width must be 1 or more, since it sizes the MLP; got 0."),
        (
            {"rate": 0.0},
            "rate must be more than 0, since distances are measured by it; got 0.0.",
        ),
        (
            {"threshold": -1.0},
            "threshold must be more than 0, since distances are measured by it; got -1.0.",
        ),
    ],
    Kerple: [
        (
            {"kernel": "gauss"},
            "kernel must be one of 'log', 'power', since these are the paper's two families; got 'gauss'.",
        ),
        ({"num_heads": 0}, "num_heads must be 1 or more, since each has a curve; got 0."),
    ],
    MLPBias: [
        ({"depth": 0}, "depth must be 1 or more, since it sizes the network; got 0."),
        ({"axes": 0}, "axes must lie in 1 .. 3, since positions have that many coordinates; got 0."),
        (
            {"activation": "tanh"},
            "activation must be one of 'silu', 'relu', 'leaky_relu', since hidden layers have one of these; got "
            "'tanh'.",
        ),
    ],
    Sandwich: [
        ({"num_heads": 0}, "num_heads must be 1 or more, since each has a ratio; got 0."),
        ({"cosine_dim": 0}, "cosine_dim must be 2, 4, 6 ..., since every cosine stands for a pair; got 0."),
        ({"cosine_dim": 7}, "cosine_dim must be 2, 4, 6 ..., since every cosine stands for a pair; got 7."),
        ({"base": 1.0}, "base must be more than 1, since wavelengths grow by its powers; got 1.0."),
    ],
    SwinBias: [
        ({"version": "v3"}, "version must be one of 'v1', 'v2', since the bias is a table or a network; got 'v3'."),
        (
            {"window": (7,)},
            "window must be (height, width), since a window has that many cells each way; got (7,).",
        ),
        (
            {"window": (7, 0)},
            "window must be 1 or more, since a window has that many cells each way; got 0.",
        ),
        (
            {"window": (7, 7, 7)},
            "window must be (height, width), since a window has that many cells each way; got (7, 7, 7).",
        ),
        (
            {"version": "v2", "trained_window": (0, 8)},
            "trained_window must be 1 or more, since a window has that many cells each way; got 0.",
        ),
        ({"num_heads": 0}, "num_heads must be 1 or more, since it sizes the parameters; got 0."),
        ({"width": 0}, "width must be 1 or more, since it sizes the parameters; got 0."),
        (
            {"version": "v2", "cls": True},
            "version must be 'v1' for cls=True or signed=False, since they are rows of a table; got version='v2', "
            "cls=True, signed=True.",
        ),
    ],
    T5Bias: [
        (
            {"buckets": "linear"},
            "buckets must be one of 'log', 'clipped', since far distances share rows or the last one; got 'linear'.",
        ),
        (
            {"num_heads": 0},
            "num_heads must be 1 or more, since it sizes the table; got 0.",
        ),
        (
            {"buckets": "clipped", "max_distance": 0},
            "max_distance must be 1 or more, since it sizes the table; got 0.",
        ),
        *(
            (
                {"num_buckets": count},
                f"num_buckets must be at least 4, since each direction has single and growing distances; got {count}.",
            )
            for count in (-4, 0, 2)
        ),
        (
            {"num_buckets": 1, "bidirectional": False},
            "num_buckets must be at least 2, since there are single and growing distances; got 1.",
        ),
        (
            {"max_distance": 8},
            "max_distance must be more than 8, since that many buckets hold a single distance; got 8.",
        ),
        (
            {"max_distance": 16, "bidirectional": False},
            "max_distance must be more than 16, since that many buckets hold a single distance; got 16.",
        ),
    ],
    Tupe: [
        ({"dim": 0}, f"dim {TUPE} 0."),
        ({"num_heads": 0}, f"num_heads {TUPE} 0."),
        ({"head_dim": -1}, f"head_dim {TUPE} -1."),
        ({"max_length": 0}, f"max_length {TUPE} 0."),
        ({"relative_buckets": 0}, f"{TUPE_BUCKETS}0."),
        ({"relative_buckets": 6}, f"{TUPE_BUCKETS}6."),
        ({"relative_buckets": 260}, f"{TUPE_BUCKETS}260."),
    ],
}
EACH = [(cls, options, message) for cls, several in REFUSED.items() for options, message in several]


@pytest.mark.parametrize(
    ("cls", "options", "message"), EACH, ids=[f"{cls.__name__} {options}" for cls, options, _ in EACH]
)
def test_options_that_make_no_sense_are_refused(cls: Any, options: dict[str, Any], message: str) -> None:
    sizes = {"num_heads": 2, "dim": 8, "head_dim": 4} if cls is Tupe else {"num_heads": 2}
    with raises_exactly(ValueError, message):
        cls(**{**sizes, **options})


@every_case
@pytest.mark.parametrize("given", [5, [0, 1], None], ids=str)
def test_what_is_no_place_is_refused(name: str, given: Any) -> None:
    encoding, places = CASES[name].make(), places_for(name)
    rule = "must be Positions or a tensor, since a bias has a row or column for each position; got"
    calls: tuple[Callable[..., object], ...] = (encoding, encoding.score_mod)
    for call in calls:
        with raises_exactly(TypeError, f"query_positions {rule} {given}. Use Positions.range(length, start=...)."):
            call(given)
        if given is not None:
            with raises_exactly(TypeError, f"key_positions {rule} {given}. Use Positions.range(length, start=...)."):
                call(places, given)


OTHER_AXES = {
    1: {
        "2 in Positions(grid, 2 x 3, length 6, axes 2)": Positions.grid(2, 3),
        "3 in Positions(mixed, 1 segments, delta 0, length 2, axes 3)": Positions.mixed([2]),
    },
    2: {
        "1 in Positions(range 10000000..10000002, length 3)": Positions.range(3, start=10_000_000),
        "3 in Positions(grid, 1 x 2 x 2, length 4, axes 3)": Positions.grid(1, 2, 2),
    },
}


@every_case
def test_places_of_other_axes_are_refused(name: str) -> None:
    encoding, places = CASES[name].make(), places_for(name)
    wanted = "1 coordinate each" if encoding.axes == 1 else "2 coordinates each"
    for found, other in OTHER_AXES[encoding.axes].items():
        kind = type(encoding).__name__
        message = f"positions must have {wanted}, since this {kind} encodes that many; got {found}."
        for given in ((other,), (places, other), (other, places)):
            with raises_exactly(ValueError, message):
                encoding(*given)
            with raises_exactly(ValueError, message):
                encoding.score_mod(*given)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "real" not in case.make().tags])
def test_tables_refuse_real_places(name: str, dtype: torch.dtype) -> None:
    encoding, places = CASES[name].make(), places_for(name)
    kind, reals = type(encoding).__name__, torch.zeros((1, 4, 2) if encoding.axes == 2 else 4, dtype=dtype)
    for given in ((reals,), (places, reals), (reals, places)):
        for call in (encoding, encoding.score_mod):
            with raises_exactly(
                TypeError, f"positions must be whole numbers, since {kind} looks them up in a table; got dtype {dtype}."
            ):
                call(*given)


@every_case
def test_places_in_half_precision_are_refused(name: str) -> None:
    encoding, places = CASES[name].make(), places_for(name)
    halves = torch.zeros((1, 4, 2) if encoding.axes == 2 else 4, dtype=torch.bfloat16)
    for called, given in (("query_positions", (halves,)), ("key_positions", (places, halves))):
        with raises_exactly(
            TypeError,
            f"{called} must be integers, float32 or float64, since in half precision neighbouring positions "
            "collide (bfloat16 from 257 on, float16 from 2049 on); got dtype torch.bfloat16.",
        ):
            encoding(*given)


@every_case
def test_rows_that_do_not_belong_together_are_refused(name: str) -> None:
    encoding, places = CASES[name].make(), places_for(name).ids
    two, three = (Positions.explicit(places.expand(rows, *places.shape[1:])) for rows in (2, 3))
    for call in (encoding, encoding.score_mod):
        with raises_exactly(
            ValueError,
            "query_positions and key_positions must have as many rows, or one, since rows belong together; got 2 and "
            "3.",
        ):
            call(two, three)
