"""What content-based encodings refuse: options, queries, keys and positions that make no sense to them."""

from typing import Any

import pytest
import torch
from torch import Tensor

from situs import CoPE, Deberta, Positions, ScoreEncoding, Shaw, TransformerXL
from situs.positions import PositionsLike
from tests.raising import raises_exactly

SIZES = "must be 1 or more, since it sizes"
DEBERTA_BUCKETS = "since half of them hold a single distance below max_distance - 1; got "
DEBERTA_TERMS = "terms must be among c2p, p2c, p2p, each once, and at least one, since each adds to the scores; got "

REFUSED: dict[Any, list[tuple[dict[str, Any], str]]] = {
    CoPE: [
        ({"num_heads": 0}, f"num_heads {SIZES} the table; got 0."),
        ({"head_dim": 0}, f"head_dim {SIZES} the table; got 0."),
        ({"max_position": 0}, f"max_position {SIZES} the table; got 0."),
    ],
    Shaw: [
        ({"num_heads": 0}, f"num_heads {SIZES} the tables; got 0."),
        ({"head_dim": 0}, f"head_dim {SIZES} the tables; got 0."),
        ({"max_distance": -1}, f"max_distance {SIZES} the tables; got -1."),
        (
            {"keys": False, "values": False},
            "keys or values must be True, since the method acts on one of them; got neither.",
        ),
    ],
    TransformerXL: [
        ({"dim": 7}, "dim must be even, since every frequency has a sine and a cosine; got 7."),
        ({"dim": 0}, "dim must be even, since every frequency has a sine and a cosine; got 0."),
        ({"num_heads": 0}, f"num_heads {SIZES} the projection; got 0."),
        ({"head_dim": -4}, f"head_dim {SIZES} the projection; got -4."),
        ({"clamp_len": 0}, "clamp_len must be 1 or more, since it bounds distances; got 0."),
        ({"clamp_len": -1}, "clamp_len must be 1 or more, since it bounds distances; got -1."),
        ({"base": 1.0}, "base must be more than 1, since wavelengths grow by its powers; got 1.0."),
        (
            {"layout": "mixed"},
            "layout must be one of 'interleaved', 'concatenated', since sines alternate with cosines or precede them; "
            "got 'mixed'.",
        ),
        (
            {"spacing": "even"},
            "spacing must be one of 'exclusive', 'inclusive', since the slowest wavelength is left out or reached; got "
            "'even'.",
        ),
    ],
    Deberta: [
        ({"dim": 0}, f"dim {SIZES} the table and the projections; got 0."),
        ({"num_heads": 0}, f"num_heads {SIZES} the table and the projections; got 0."),
        ({"head_dim": 0}, f"head_dim {SIZES} the table and the projections; got 0."),
        ({"max_distance": 0}, f"max_distance {SIZES} the table and the projections; got 0."),
        ({"buckets": 5}, f"buckets must be even and lie in 4 .. 1021, {DEBERTA_BUCKETS}5."),
        ({"buckets": 3}, f"buckets must be even and lie in 4 .. 1021, {DEBERTA_BUCKETS}3."),
        ({"buckets": 1022}, f"buckets must be even and lie in 4 .. 1021, {DEBERTA_BUCKETS}1022."),
        ({"buckets": 30, "max_distance": 16}, f"buckets must be even and lie in 4 .. 29, {DEBERTA_BUCKETS}30."),
        ({"terms": ()}, f"{DEBERTA_TERMS}()."),
        ({"terms": ("c2p", "c2p")}, f"{DEBERTA_TERMS}('c2p', 'c2p')."),
        (
            {"terms": ("c2p", "c2c")},
            "terms must be one of 'c2p', 'p2c', 'p2p', since each adds to the scores; got 'c2c'.",
        ),
        (
            {"p2c_row": "opposite"},
            "p2c_row must be one of 'same', 'mirrored', since released models and the paper differ; got 'opposite'.",
        ),
    ],
}


def among(*classes: Any) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("cls", classes, ids=lambda cls: cls.__name__)


every_class = among(*REFUSED)


def made(cls: Any, **options: Any) -> ScoreEncoding:
    """One for 2 heads of 4, unless told otherwise."""
    width = {} if cls in (CoPE, Shaw) else {"dim": 8}
    encoding: ScoreEncoding = cls(**{"num_heads": 2, "head_dim": 4, **width, **options})
    return encoding


def tokens(heads: int = 2, width: int = 4) -> Tensor:
    return torch.zeros(1, heads, 2, width)


EACH = [(cls, options, message) for cls, several in REFUSED.items() for options, message in several]


@pytest.mark.parametrize(
    ("cls", "options", "message"), EACH, ids=[f"{cls.__name__} {options}" for cls, options, _ in EACH]
)
def test_options_that_make_no_sense_are_refused(cls: Any, options: dict[str, Any], message: str) -> None:
    with raises_exactly(ValueError, message):
        made(cls, **options)


@pytest.mark.parametrize(("heads", "width"), [(1, 4), (3, 4), (4, 4), (2, 2), (2, 3), (2, 5)])
@every_class
def test_queries_of_other_heads_are_refused(cls: Any, heads: int, width: int) -> None:
    for key in (tokens(heads, width), tokens(2, width)):
        with raises_exactly(
            ValueError,
            f"query must have shape (batch, 2, sequence, 4), since {cls.__name__} was made for 2 heads of 4; got shape "
            f"(1, {heads}, 2, {width}).",
        ):
            made(cls)(tokens(heads, width), key)


@every_class
def test_key_heads_that_do_not_divide_are_refused(cls: Any) -> None:
    with raises_exactly(
        ValueError, "query heads must be a multiple of key heads, since each key head serves as many; got 2 and 3."
    ):
        made(cls)(tokens(), tokens(3))


@every_class
def test_positions_of_another_length_are_refused(cls: Any) -> None:
    with raises_exactly(
        ValueError,
        "query_positions must have one for each of the 2 tokens, since each token stands somewhere; got "
        "Positions(range 0..2, length 3). Slice them with query_positions[first:last], or pass those of this call "
        "only.",
    ):
        made(cls)(tokens(), tokens(), Positions.range(3))


@every_class
def test_positions_in_half_precision_are_refused(cls: Any) -> None:
    with raises_exactly(
        TypeError,
        "query_positions must be integers, float32 or float64, since in half precision neighbouring positions collide "
        "(bfloat16 from 257 on, float16 from 2049 on); got dtype torch.bfloat16.",
    ):
        made(cls)(tokens(), tokens(), torch.tensor([0.0, 1.0], dtype=torch.bfloat16))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@among(Shaw, Deberta)
def test_tables_refuse_real_positions_of_queries_and_of_keys(cls: Any, dtype: torch.dtype) -> None:
    reals = torch.tensor([0.0, 1.0], dtype=dtype)
    told: list[tuple[PositionsLike, PositionsLike]] = [(reals, None), (0, reals)]
    for places in told:
        with raises_exactly(
            TypeError,
            f"positions must be whole numbers, since {cls.__name__} looks them up in a table; got dtype {dtype}.",
        ):
            made(cls)(tokens(), tokens(), *places)


SEVERAL_AXES = {
    "2 in Positions(grid, 1 x 2, length 2, axes 2)": Positions.grid(1, 2),
    "2 in Positions(grid, 2 x 1, length 2, axes 2)": Positions.grid(2, 1),
    "3 in Positions(mixed, 1 segments, delta 0, length 2, axes 3)": Positions.mixed([2]),
}


@pytest.mark.parametrize("shown", SEVERAL_AXES)
@among(Shaw, TransformerXL, Deberta)
def test_positions_of_several_axes_are_refused_unless_it_counts_tokens(cls: Any, shown: str) -> None:
    with raises_exactly(
        ValueError,
        f"positions must have 1 coordinate each, since this {cls.__name__} encodes that many; got {shown}.",
    ):
        made(cls)(tokens(), tokens(), SEVERAL_AXES[shown])
