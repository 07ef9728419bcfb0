"""How many of transformers' model types are read and compared with it, and that none is read by two."""

from situs.models.readers import biases, fixed, reformer, tables, vision
from situs.models.readers.families import FAMILIES
from tests.models.inventory import BIASES, ROTARY
from tests.models.test_rotary_parity import LEFT_OUT

REFUSED = {*vision.REFUSED, *biases.LEFT_OUT}
READ = {*FAMILIES, *vision.READERS, *fixed.READERS, *reformer.READERS, *biases.READERS, "blt"} - REFUSED
"""Each is compared in a test of its own or in one over a whole table; BLT by its parts."""


def test_most_rotary_model_types_are_compared_with_transformers() -> None:
    compared, left_out = ROTARY & READ, ROTARY - READ
    print(f"{len(compared)} of {len(ROTARY)} model types that rotate or have no positions; not {sorted(left_out)}")
    assert len(ROTARY) == 244
    assert len(compared) == 240 >= 230
    assert left_out == set(LEFT_OUT)


def test_most_model_types_with_biases_are_compared_with_transformers() -> None:
    compared, left_out = BIASES & READ, BIASES - READ
    print(f"{len(compared)} of {len(BIASES)} model types with relative biases; not {sorted(left_out)}")
    assert len(BIASES) == 54
    assert len(compared) == 51 >= 45
    assert left_out == set(biases.LEFT_OUT)


def test_no_model_type_has_two_readers() -> None:
    tables_of = [set(FAMILIES), set(vision.READERS), set(tables.READERS), set(fixed.READERS), set(reformer.READERS),
                 set(biases.READERS)]  # fmt: skip
    assert sum(map(len, tables_of)) == len(set.union(*tables_of))
