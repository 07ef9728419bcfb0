"""The three forms of a rotation agree with one another and with the paper's matrix."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from situs.functional import as_complex, from_complex, rotate_complex, rotate_matrix, rotate_real, rotation_matrix
from situs.functional.rotation import Pairing
from situs.rotation import rotate
from tests.references import rotary as reference
from tests.rotation.rotation_cases import both_pairings, by_paper, layouts, table_of


@both_pairings
@given(data=st.data())
def test_all_forms_agree_with_the_paper(pairing: Pairing, data: st.DataObject) -> None:
    batch, heads, length = (data.draw(st.integers(0 if size == 2 else 1, 3)) for size in range(3))
    dim = 2 * data.draw(st.integers(1, 6))
    shared = [data.draw(st.booleans()) for _ in range(2)]
    start = data.draw(st.sampled_from([0, 257, 65_537, 10_000_000]))
    positions = start + torch.randint(0, 1000, (1 if shared[0] else batch, 1 if shared[1] else heads, length))
    x = torch.randn(batch, heads, length, dim, dtype=torch.float64)
    table = table_of(positions, dim, torch.float64)
    expected = by_paper(x, positions, dim, pairing)
    matrix = rotation_matrix(table.cos, table.sin, pairing).expand(batch, heads, length, dim, dim)
    for result in (
        rotate(x, table, pairing),
        rotate_real(x, table.cos, table.sin, pairing),
        from_complex(rotate_complex(as_complex(x.reshape(-1, dim), pairing), table.polar.expand(
            batch, heads, length, -1).reshape(-1, dim // 2)), pairing).reshape(x.shape),
        rotate_matrix(x, matrix),
    ):  # fmt: skip
        assert result.shape == x.shape
        assert torch.allclose(result, expected, rtol=0, atol=1e-8)


@both_pairings
def test_the_matrix_is_the_papers(pairing: Pairing) -> None:
    for position in (0, 1, 65_537, -3):
        table = table_of(torch.tensor([[[position]]]), 10, torch.float64)
        expected = reference.matrix(position, reference.frequencies(10), pairing)
        assert np.allclose(rotation_matrix(table.cos, table.sin, pairing)[0, 0, 0].numpy(), expected, atol=1e-11)


@both_pairings
def test_as_complex_and_back_is_the_identity(pairing: Pairing) -> None:
    for x in layouts().values():
        z = as_complex(x.resolve_neg(), pairing)
        assert z.shape == (*x.shape[:-1], 4)
        assert torch.equal(from_complex(z, pairing), x)
    assert as_complex(torch.zeros(2, 0, 8), pairing).shape == (2, 0, 4)


def test_neighbours_become_complex_without_a_copy() -> None:
    x = torch.randn(2, 3, 5, 8)
    assert as_complex(x, "interleaved").data_ptr() == x.data_ptr()
