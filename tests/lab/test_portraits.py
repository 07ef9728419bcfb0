"""Portraits show the papers' numbers: tables, turns, wavelengths and biases by formulas written anew."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

import situs
from situs import Positions
from situs.checks.bench import normal
from situs.lab.probing import portraits
from situs.lab.probing.sitters import HEAD_DIM, Sitter
from tests.references import alibi, fire, kerple, rotary, sandwich, scaling, sinusoidal, swin, t5, xpos

FAR = torch.tensor([0, 1, 7, 100, 4095])
Numbers = NDArray[np.float64]


def numbers(tensor: Tensor) -> Numbers:
    found: Numbers = tensor.detach().double().numpy()
    return found


def close(found: Tensor, expected: Any, atol: float = 1e-5) -> bool:
    return bool(np.allclose(numbers(found), expected, rtol=1e-5, atol=atol))


def places(length: int) -> NDArray[Any]:
    return np.arange(length)


@pytest.mark.parametrize("layout", ["interleaved", "concatenated"])
def test_a_table_is_the_papers_sines_and_cosines(layout: Any) -> None:
    encoding = situs.Sinusoidal(dim=16, layout=layout)
    found = portraits.table(encoding, Positions.explicit(FAR))
    assert close(found, sinusoidal.table(FAR.double().numpy(), 16, layout=layout))


def test_a_table_is_a_learned_ones_rows_without_dropout() -> None:
    encoding = situs.Learned(dim=4, max_length=9, offset=2, dropout=0.5).train()
    assert torch.equal(portraits.table(encoding, Positions.range(7)), encoding.table.detach()[2:])


def test_a_table_of_ones_own_needs_no_width() -> None:
    class Halves(situs.InputEncoding):
        def forward(self, x: Tensor, positions: Any = None) -> Tensor:
            return x + Positions.of(positions, x.shape[-2]).ids[..., None] / 2

    found = portraits.table(Halves(), Positions.range(5))
    assert torch.equal(found, (torch.arange(5) / 2)[:, None].expand(5, HEAD_DIM))


def test_places_are_as_alike_as_the_cosines_of_their_distance() -> None:
    sitter = Sitter("s", (situs.Sinusoidal(dim=16),))
    found = portraits.similarity(sitter, Positions.range(40))
    ladder = sinusoidal.frequencies(16, 10000.0, "interleaved", "exclusive")
    apart = np.subtract.outer(places(40), places(40))
    assert close(found, np.cos(apart[..., None] * ladder).mean(-1))


def unit_contents(dim: int) -> np.ndarray:
    """The vectors that similarity turns, as long as one."""
    contents: np.ndarray = numbers(normal(portraits.CONTENTS, 1, 1, dim, seed=2)[:, 0, 0])
    contents /= np.linalg.norm(contents, axis=1, keepdims=True)
    return contents


def test_contents_as_alike_as_rotary_turns_them() -> None:
    sitter = Sitter("r", (situs.Rotary(head_dim=8, pairing="halves"),))
    found = portraits.similarity(sitter, Positions.range(30))
    contents, ladder = unit_contents(8), rotary.frequencies(8)
    for i, j in ((0, 0), (29, 0), (3, 17)):
        turns = [rotary.matrix(place, ladder, "halves") for place in (i, j)]
        expected = np.mean([(turns[0] @ content) @ (turns[1] @ content) for content in contents])
        assert float(found[i, j]) == pytest.approx(expected, abs=1e-5)


def test_contents_are_as_alike_under_xpos_as_their_distance_and_nothing_else_says() -> None:
    sitter = Sitter("x", (situs.XPos(head_dim=8, pairing="interleaved"),))
    found = portraits.similarity(sitter, Positions.range(60))
    contents, ladder = unit_contents(8), rotary.frequencies(8)
    query, key = (
        np.stack([xpos.rotate(np.tile(each, (60, 1)), places(60).astype(float), ladder, role) for each in contents])
        for role in ("query", "key")
    )
    assert close(found, np.einsum("cid,cjd->ij", query, key) / portraits.CONTENTS)
    for apart in range(-59, 60):
        diagonal = found.diagonal(apart)
        assert float(diagonal.max() - diagonal.min()) < 1e-5, apart
    assert close(found.diagonal(), 1.0)
    assert float(found[59, 0]) < float(found[0, 59])  # keys ahead are lengthened


@pytest.mark.parametrize("name", ["sinusoidal", "learned", "rotary"])
def test_every_place_is_most_like_itself(name: str) -> None:
    encoding = situs.entry(name).build(dim=16, head_dim=16, max_length=32)
    found = portraits.similarity(Sitter(name, (encoding,)), Positions.range(32))
    assert close(found.diagonal(), 1.0)
    assert float(found.fill_diagonal_(-1).max()) < 0.999


@pytest.mark.parametrize("pairing", ["interleaved", "halves"])
@pytest.mark.parametrize("rotary_dim", [8, 4])
def test_a_pair_turns_by_its_frequency(pairing: Any, rotary_dim: int) -> None:
    encoding = situs.Rotary(head_dim=8, rotary_dim=rotary_dim, pairing=pairing)
    for pair, frequency in enumerate(rotary.frequencies(rotary_dim)):
        for positions in (FAR, torch.tensor([0.0, 0.5, 99.75], dtype=torch.float64)):
            angles = numbers(positions) * frequency
            expected = np.stack((np.cos(angles), np.sin(angles)), 1)
            assert close(portraits.rotated_pair(encoding, pair, positions), expected, atol=1e-9)


def test_xpos_changes_the_length_of_what_it_turns() -> None:
    encoding = situs.XPos(head_dim=8, pairing="interleaved")
    for pair in range(4):
        start = np.zeros((len(FAR), 8))
        start[:, 2 * pair] = 1
        turned = xpos.rotate(start, FAR.double().numpy(), rotary.frequencies(8), "query")
        found = portraits.rotated_pair(encoding, pair, FAR)
        assert close(found, turned[:, 2 * pair : 2 * pair + 2])
        lengths = np.hypot(*numbers(found).T)
        assert np.allclose(lengths, xpos.scales(8)[pair] ** (FAR.numpy() / 512))
        assert lengths[-1] < 0.9 < lengths[0]


def test_yarn_lengthens_all_it_turns() -> None:
    encoding = situs.Rotary(head_dim=8, scaling=situs.YaRN(factor=4.0, original_length=64))
    found = portraits.rotated_pair(encoding, 1, FAR)
    assert close(found.norm(dim=-1), 0.1 * math.log(4) + 1)


def test_wavelengths_are_those_of_the_ladder() -> None:
    assert close(
        portraits.wavelengths(situs.Rotary(head_dim=16, base=500.0), 64), math.tau / rotary.frequencies(16, 500)
    )
    assert close(portraits.wavelengths(situs.XPos(head_dim=16), 64), math.tau / rotary.frequencies(16))
    even = situs.Sinusoidal(dim=16, layout="concatenated", spacing="inclusive")
    expected = math.tau / sinusoidal.frequencies(16, 10000.0, "concatenated", "inclusive")
    assert close(portraits.wavelengths(even, 64), expected)
    of_image = portraits.wavelengths(situs.Rotary(head_dim=16, split=situs.Axial()), 64)
    assert close(of_image, math.tau / rotary.axial_frequencies(16, 2, 10000.0, "own")[0])


def test_scaled_wavelengths_are_the_papers_and_follow_the_text() -> None:
    yarn = situs.Rotary(head_dim=16, scaling=situs.YaRN(factor=4.0, original_length=64))
    assert close(portraits.wavelengths(yarn, 256), math.tau / scaling.yarn(16, 10000.0, 4.0, 64)[0], atol=1e-2)
    dynamic = situs.Rotary(head_dim=16, scaling=situs.DynamicNTKScaling(factor=2.0, original_length=64))
    for length in (32, 64, 65, 512):
        expected = math.tau / scaling.dynamic_ntk(16, 10000.0, 2.0, 64, length)[0]
        assert close(portraits.wavelengths(dynamic, length), expected), length


def test_pairs_that_stand_still_have_no_wavelength() -> None:
    found = portraits.wavelengths(situs.Rotary(head_dim=16, scaling=situs.ProportionalScaling(fraction=0.5)), 64)
    assert found.isinf().tolist() == [False] * 4 + [True] * 4


def drawn(encoding: Any) -> Any:
    with torch.no_grad():
        for number, parameter in enumerate(encoding.parameters()):
            parameter.copy_(normal(*parameter.shape, seed=number).abs() + 0.1)
    return encoding


def by_paper(encoding: situs.BiasEncoding, length: int) -> Numbers:
    at = places(length)
    if isinstance(encoding, situs.ALiBi):
        return alibi.bias(alibi.slopes(encoding.num_heads), alibi.slopes(encoding.num_heads), at, at)
    if isinstance(encoding, situs.Kerple):
        return kerple.bias(numbers(encoding.r1), numbers(encoding.r2), at, at, encoding.kernel)
    if isinstance(encoding, situs.T5Bias):
        return t5.bias(numbers(encoding.table), at, at, encoding.max_distance, encoding.bidirectional)
    if isinstance(encoding, situs.Sandwich):
        return sandwich.bias(encoding.num_heads, at, at, encoding.cosine_dim)
    assert isinstance(encoding, situs.Fire)
    c, threshold = encoding.c.item(), encoding.threshold_factor.item() * encoding.threshold
    first, second = encoding.hidden, encoding.out
    return fire.bias(
        at, at, c, threshold, numbers(first.weight)[:, 0], numbers(first.bias), numbers(second.weight),
        np.zeros(encoding.num_heads),
    )  # fmt: skip


BIASES: dict[str, Any] = {
    "alibi": lambda: situs.ALiBi(num_heads=6),
    "kerple": lambda: drawn(situs.Kerple(num_heads=3)),
    "kerple, power": lambda: drawn(situs.Kerple(num_heads=3, kernel="power")),
    "t5": lambda: drawn(situs.T5Bias(num_heads=2, num_buckets=8, max_distance=16)),
    "t5, one way": lambda: drawn(situs.T5Bias(num_heads=2, num_buckets=8, max_distance=16, bidirectional=False)),
    "sandwich": lambda: situs.Sandwich(num_heads=3, cosine_dim=16),
    "fire": lambda: drawn(situs.Fire(num_heads=2, width=4, threshold=8.0)),
}


@pytest.mark.parametrize("name", BIASES)
def test_biases_are_the_papers(name: str) -> None:
    encoding = BIASES[name]()
    expected = by_paper(encoding, 40)
    assert close(portraits.bias(encoding, 40), expected, atol=1e-4)
    assert close(portraits.bias_behind(encoding, 40), expected[:, -1, ::-1], atol=1e-4)


def test_t5_goes_down_a_staircase_and_is_level_from_its_farthest_distance_on() -> None:
    encoding = drawn(situs.T5Bias(num_heads=2, num_buckets=8, max_distance=32, bidirectional=False))
    found = numbers(portraits.bias_behind(encoding, 300))
    rows = [t5.bucket(-distance, False, 8, 32) for distance in range(300)]
    assert np.allclose(found, numbers(encoding.table).T[:, rows])
    assert len({*found[0]}) == 8
    assert np.ptp(found[:, 32:], axis=1).tolist() == [0, 0]


@pytest.mark.parametrize("window", [(3, 5), (4, 4)])
def test_the_patch_in_the_middle_adds_what_the_table_says(window: tuple[int, int]) -> None:
    encoding = drawn(situs.SwinBias(num_heads=2, window=window))
    cells = np.array([(row, column) for row in range(window[0]) for column in range(window[1])])
    middle = np.array([[window[0] // 2, window[1] // 2]])
    expected = swin.bias_v1(numbers(encoding.table), window, middle, cells)
    assert close(portraits.bias_around(encoding, window), expected.reshape(2, *window))
