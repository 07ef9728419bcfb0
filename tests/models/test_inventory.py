"""How many of transformers' model types are read, and that none is read by two."""

from situs.models.readers import biases, fixed, tables, vision
from situs.models.readers.families import FAMILIES
from tests.models.inventory import BIASES, ROTARY
from tests.models.test_rotary_parity import LEFT_OUT

REFUSED = {*vision.REFUSED, *biases.LEFT_OUT}
READ = {*FAMILIES, *vision.READERS, *fixed.READERS, *biases.READERS} - REFUSED - set(LEFT_OUT)


def test_most_rotary_model_types_are_compared_with_transformers() -> None:
    assert len(ROTARY & READ) == 234
    assert {"blt", "esmfold2", "musicflamingo", "seamless_m4t", "vjepa2"} <= ROTARY - READ


def test_most_model_types_with_biases_are_compared_with_transformers() -> None:
    assert len(BIASES & READ) == 51
    assert {"cpmant", "prophetnet", "pp_doclayout_v2"} == BIASES - READ


def test_no_model_type_has_two_readers() -> None:
    tables_of = [set(FAMILIES), set(vision.READERS), set(tables.READERS), set(fixed.READERS), set(biases.READERS)]
    assert sum(map(len, tables_of)) == len(set.union(*tables_of))
