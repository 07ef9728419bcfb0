"""Content-free biases in all their forms: dense, by offset and as a score_mod, at positions of every kind."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import situs
from situs import ALiBi, Fire, Kerple, OffsetBias, Positions, Sandwich, SwinBias, T5Bias
from situs.attention import reference
from situs.encodings.bias import BiasEncoding, PairBias, Rule, ScoreMod
from tests.encodings import test_alibi, test_fire, test_kerple, test_sandwich, test_swin, test_t5
from tests.raising import raises_exactly


@dataclass(frozen=True)
class Case:
    """An encoding of two heads and the paper's formula for it."""

    make: Callable[[], BiasEncoding]
    by_paper: Callable[[Any, NDArray[Any], NDArray[Any]], NDArray[np.float64]]


CASES = {
    "t5": Case(lambda: T5Bias(num_heads=2, init_std=1.0), test_t5.by_paper),
    "t5 causal": Case(lambda: T5Bias(num_heads=2, bidirectional=False, init_std=1.0), test_t5.by_paper),
    "t5 clipped": Case(lambda: T5Bias(num_heads=2, buckets="clipped", max_distance=9, init_std=1.0), test_t5.by_paper),
    "alibi": Case(lambda: ALiBi(num_heads=2), test_alibi.by_paper),
    "alibi learned": Case(
        lambda: ALiBi(num_heads=2, learned=True, asymmetric=True, slopes_ahead=[0.5, 0.2]), test_alibi.by_paper
    ),
    "kerple log": Case(lambda: Kerple(num_heads=2), test_kerple.by_paper),
    "kerple power": Case(lambda: Kerple(num_heads=2, kernel="power"), test_kerple.by_paper),
    "sandwich": Case(lambda: Sandwich(num_heads=2, cosine_dim=8), test_sandwich.by_paper),
    "fire": Case(lambda: Fire(num_heads=2, width=4, threshold=5.0), test_fire.by_paper),
    "swin v1": Case(lambda: SwinBias(num_heads=2, window=(8, 16), init_std=1.0), test_swin.by_paper),
    "swin v2": Case(
        lambda: SwinBias(num_heads=2, window=(8, 16), version="v2", width=4, init_std=1.0), test_swin.by_paper
    ),
}
SEQUENCES = [name for name in CASES if not name.startswith("swin")]
LEARNED = [name for name in CASES if name not in ("alibi", "sandwich")]
every_case = pytest.mark.parametrize("name", CASES)
every_sequence = pytest.mark.parametrize("name", SEQUENCES)
every_real = pytest.mark.parametrize("name", [name for name in SEQUENCES if "real" in CASES[name].make().tags])


def left_out(*holes: int) -> Tensor:
    mask = torch.ones(1, 9, dtype=torch.int64)
    mask[0, list(holes)] = 0
    return mask


KINDS: dict[str, Callable[[], tuple[Positions, Positions | None]]] = {
    "from 0": lambda: (Positions.range(9), None),
    "from 70 000": lambda: (Positions.range(9, start=70_000), None),
    "from 10 million": lambda: (Positions.range(9, start=10_000_000), None),
    "decoding": lambda: (Positions.range(1, start=20), Positions.range(21)),
    "decoding far": lambda: (Positions.range(1, start=10_000_000), Positions.range(7, start=9_999_994)),
    "more queries than keys": lambda: (Positions.range(9, start=70_000), Positions.range(2, start=70_004)),
    "keys far behind": lambda: (Positions.range(3, start=10_000_000), Positions.range(4)),
    "a start for each row": lambda: (Positions.range(4, start=torch.tensor([0, 70_000, 10_000_000])), None),
    "unsorted": lambda: (Positions.explicit(torch.tensor([[5, 0, 10_000_000], [70_000, 3, 3]])), None),
    "negative": lambda: (Positions.explicit(torch.tensor([-5, -10_000_000, 4])), Positions.range(3, start=-70_000)),
    "rows of keys alone": lambda: (Positions.range(3), Positions.explicit(torch.tensor([[5, 1], [70_000, 2]]))),
    "padded left": lambda: (Positions.from_mask(left_out(0, 1, 2), side="left"), None),
    "padded right": lambda: (Positions.from_mask(left_out(7, 8), side="right"), None),
    "padded in holes": lambda: (Positions.from_mask(torch.cat([left_out(0, 4, 5), left_out(8)])), None),
    "packed": lambda: (Positions.packed([3, 1, 4]), None),
    "randomised": lambda: (Positions.range(8).randomised(70_000, seed=1), None),
    "skipped": lambda: (Positions.range(8).skipped(10_000_000, seed=1, chunks=3), None),
    "a zigzag shard": lambda: (
        Positions.range(16, start=70_000).shard(1, 2, layout="zigzag"),
        Positions.range(16, start=70_000).shard(0, 2, layout="zigzag"),
    ),
    "a contiguous shard": lambda: (Positions.range(16).shard(1, 2), Positions.range(16)),
    "a slice of padded": lambda: (Positions.from_mask(left_out(0, 1))[4:7], Positions.from_mask(left_out(0, 1))),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def assert_is_the_papers(case: Case, query: Positions, key: Positions | None) -> None:
    encoding = case.make()
    bias = encoding(query, key, dtype=torch.float64).detach()
    key = query if key is None else key
    rows = max(query.rows, key.rows)
    assert bias.dtype == torch.float64
    assert bias.shape[1:] == (2, query.length, key.length)
    assert bias.shape[0] in (1, rows)
    for number in range(rows):
        at_query, at_key = (each.row(number if each.rows > 1 else 0) for each in (query, key))
        expected = case.by_paper(encoding, at_query.ids[0].numpy(), at_key.ids[0].numpy())
        actual = bias[number if bias.shape[0] > 1 else 0].numpy()
        if at_query.valid is not None and at_key.valid is not None:
            real = np.ix_(at_query.valid[0].numpy(), at_key.valid[0].numpy())
            actual, expected = (each[:, real[0], real[1]] for each in (actual, expected))
        np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-8)


@every_sequence
@every_kind
def test_positions_of_every_kind_get_the_papers_bias(name: str, kind: str) -> None:
    assert_is_the_papers(CASES[name], *KINDS[kind]())


@every_real
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_real_valued_positions_get_the_papers_bias(name: str, dtype: torch.dtype) -> None:
    ids = torch.tensor([[0.0, 2.5, -3.25, 70_000.5], [1e7, 9_999_998.0, 69_999.0, 4.0]], dtype=dtype)
    assert_is_the_papers(CASES[name], Positions.explicit(ids), None)
    assert_is_the_papers(CASES[name], Positions.range(3, start=70_000), Positions.explicit(ids))


@every_real
def test_offsets_of_float32_positions_are_not_rounded(name: str) -> None:
    ids = torch.tensor([0.125, 10_000_000.0])
    assert_is_the_papers(CASES[name], Positions.explicit(ids), None)


@every_real
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_bias_has_the_dtype_asked_for_whatever_the_positions_have(name: str, dtype: torch.dtype) -> None:
    encoding = CASES[name].make()
    for ids in (torch.tensor([0.5, 70_000.0]), torch.tensor([0.5, 70_000.0], dtype=torch.float64)):
        assert encoding(ids, dtype=dtype).dtype == dtype
        if isinstance(encoding, OffsetBias):
            assert encoding.by_offset(ids, dtype=dtype).dtype == dtype


@every_real
def test_float32_attention_takes_float64_positions(name: str) -> None:
    query, key, value = torch.randn(3, 1, 2, 4, 8)
    encoding, ids = CASES[name].make(), torch.tensor([0.5, 3.0, 70_000.25, 7.0], dtype=torch.float64)
    expected = reference(query, key, value, encoding=encoding, positions=ids.float())
    torch.testing.assert_close(reference(query, key, value, encoding=encoding, positions=ids), expected)


def places_for(name: str, kind: str = "range") -> Positions:
    """128 places of one window for Swin, else of a sequence; by row and unsorted if asked."""
    if name.startswith("swin"):
        cells = Positions.grid(8, 16).ids
        return Positions.explicit(cells if kind == "range" else torch.cat([cells + 10_000_000, cells.flip(1)]))
    if kind == "range":
        return Positions.range(128, start=70_000)
    return Positions.explicit(torch.stack([torch.randperm(128), torch.randint(70_000, 70_300, (128,))]))


def as_matrix(modify: ScoreMod, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """What a score_mod adds to each score, each asked for alone, as FlexAttention asks."""
    every: Callable[..., Tensor] = modify
    for axis in (3, 2, 1, 0):
        every = torch.vmap(every, in_dims=(0, *(0 if each == axis else None for each in range(4))))
    zeros = torch.zeros(*shape, dtype=dtype)
    return every(zeros, *(torch.arange(count, dtype=torch.int32) for count in zeros.shape))


@every_sequence
@every_kind
def test_a_score_mod_adds_the_dense_bias(name: str, kind: str) -> None:
    encoding, (query, key) = CASES[name].make().double(), KINDS[kind]()
    with torch.no_grad():
        dense = encoding(query, key)
        rows = max(query.rows, query.rows if key is None else key.rows)
        added = as_matrix(encoding.score_mod(query, key), (rows, *dense.shape[1:]), dense.dtype)
    torch.testing.assert_close(added, dense.expand(rows, -1, -1, -1), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["swin v1", "swin v2"])
@pytest.mark.parametrize("kind", ["range", "ids"])
def test_a_windows_score_mod_adds_the_dense_bias(name: str, kind: str) -> None:
    encoding, places = CASES[name].make(), places_for(name, kind)
    with torch.no_grad():
        dense = encoding(places)
        added = as_matrix(encoding.score_mod(places), dense.shape, torch.float32)
    assert torch.equal(added, dense)


def test_a_score_mod_adds_to_the_score_in_its_own_dtype() -> None:
    modify = ALiBi(num_heads=2).score_mod(Positions.range(4, start=10_000_000))
    for dtype in (torch.bfloat16, torch.float32, torch.float64):
        result = modify(torch.tensor(1.5, dtype=dtype), *(torch.tensor(index) for index in (0, 1, 3, 1)))
        assert result.dtype == dtype
        assert result.item() == 1.5 - 2 * 2.0**-8


@every_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_by_offset_holds_the_whole_dense_bias(name: str, dtype: torch.dtype) -> None:
    encoding = CASES[name].make()
    if not isinstance(encoding, OffsetBias):
        assert name == "fire"
        return
    query, key = places_for(name)[3:6], places_for(name)[:9]
    offsets = key.ids[0][None] - query.ids[0][:, None]
    vector = encoding.by_offset(offsets.flatten(0, 1), dtype=dtype)
    assert vector.dtype == dtype
    assert torch.equal(vector.view(2, 3, 9), encoding(query, key, dtype=dtype)[0])


def assert_flex_is_the_reference(
    encoding: BiasEncoding, places: Positions, causal: bool, attend: Callable[..., Tensor]
) -> None:
    """One attention with the encoding's score_mod against the reference, for batches of two."""
    query, key, value = torch.randn(3, 2, 2, 128, 16)
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 128, 128, device="cpu") if causal else None
    options: dict[str, Any] = {"block_mask": mask, "scale": encoding.scale_for(16)}
    with torch.no_grad():
        result = attend(query, key, value, score_mod=encoding.score_mod(places), **options)
        expected = reference(query, key, value, encoding=encoding, causal=causal, positions=places)
    torch.testing.assert_close(result, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@every_case
@pytest.mark.parametrize("kind", ["range", "ids"])
def test_eager_flex_attention_is_the_reference(name: str, kind: str) -> None:
    for causal in (False, True):
        torch._dynamo.reset()
        assert_flex_is_the_reference(CASES[name].make(), places_for(name, kind), causal, flex_attention)


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("name", LEARNED)
def test_eager_flex_attention_teaches_the_parameters_as_the_reference_does(name: str) -> None:
    torch._dynamo.reset()
    encoding, places = CASES[name].make().double(), places_for(name, "ids")
    query, key, value, slope = torch.randn(4, 2, 2, 128, 16, dtype=torch.float64)
    results = (
        flex_attention(query, key, value, score_mod=encoding.score_mod(places), scale=encoding.scale_for(16)),
        reference(query, key, value, encoding=encoding, positions=places),
    )
    gradients = [torch.autograd.grad(result, list(encoding.parameters()), slope) for result in results]
    torch.testing.assert_close(gradients[0], gradients[1])


@pytest.mark.compiled
@pytest.mark.parametrize("name", ["t5", "alibi", "kerple log", "kerple power", "sandwich", "fire", "swin v1"])
def test_compiled_flex_attention_is_the_reference(name: str) -> None:
    torch._dynamo.reset()
    causal = name in ("t5", "alibi", "fire")
    assert_flex_is_the_reference(CASES[name].make(), places_for(name), causal, torch.compile(flex_attention))


@pytest.mark.compiled
def test_compiled_flex_attention_takes_ids_by_row_and_biases_one_after_another() -> None:
    torch._dynamo.reset()
    encodings = [CASES[name].make() for name in ("t5", "alibi", "kerple log", "kerple power", "sandwich", "fire")]
    places, (query, key, value) = places_for("t5", "ids"), torch.randn(3, 2, 2, 128, 16)
    with torch.no_grad():
        modifiers = [encoding.score_mod(places) for encoding in encodings]

    def add_all(score: Tensor, batch: Tensor, head: Tensor, query_index: Tensor, key_index: Tensor) -> Tensor:
        for modify in modifiers:
            score = modify(score, batch, head, query_index, key_index)
        return score

    with torch.no_grad():
        result = torch.compile(flex_attention)(query, key, value, score_mod=add_all, scale=0.25)
        expected = reference(query, key, value, encoding=encodings, positions=places, scale=0.25)
    torch.testing.assert_close(result, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_counts_the_heads_of_queries_where_keys_have_fewer() -> None:
    torch._dynamo.reset()
    encoding, places = ALiBi(num_heads=4), Positions.range(32, start=10_000_000)
    query, key, value = torch.randn(1, 4, 32, 16), torch.randn(1, 2, 32, 16), torch.randn(1, 2, 32, 16)
    result = flex_attention(query, key, value, score_mod=encoding.score_mod(places), enable_gqa=True)
    torch.testing.assert_close(result, reference(query, key, value, encoding=encoding, positions=places))


@every_case
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_module_cast_down_gives_the_bias_of_its_rounded_parameters_in_float32(name: str, dtype: torch.dtype) -> None:
    cast = CASES[name].make().to(dtype)
    widened = copy.deepcopy(cast).float()
    for places in (places_for(name), places_for(name, "ids")):
        assert cast(places).dtype == torch.float32
        assert torch.equal(cast(places), widened(places))
        assert torch.equal(cast(places, dtype=dtype), widened(places))
        assert torch.equal(cast(places, dtype=torch.float64), widened(places, dtype=torch.float64))


@every_case
def test_a_module_cast_to_float64_gives_float64_if_it_has_parameters(name: str) -> None:
    encoding, places = CASES[name].make(), places_for(name)
    plain = encoding(places, dtype=torch.float64)
    double = encoding.double()
    if name in LEARNED:
        assert double(places).dtype == torch.float64
        assert torch.equal(double(places), plain)
    else:
        assert double(places).dtype == torch.float32
        assert torch.equal(double(places, dtype=torch.float64), plain)


@every_case
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_changes_nothing(name: str, dtype: torch.dtype) -> None:
    encoding, places = CASES[name].make(), places_for(name)
    plain = encoding(places)
    with torch.autocast("cpu", dtype=dtype):
        under = encoding(places)
    assert under.dtype == torch.float32
    assert torch.equal(under, plain)


@every_case
def test_one_made_on_the_meta_device_and_loaded_is_the_plain_one(name: str) -> None:
    plain, places = CASES[name].make(), places_for(name, "ids")
    with torch.device("meta"):
        made = CASES[name].make()
    assert all(parameter.is_meta for parameter in made.parameters())
    made.to_empty(device="cpu").load_state_dict(plain.state_dict())
    assert torch.equal(made(places), plain(places))


@every_case
def test_forward_writes_nothing(name: str) -> None:
    encoding = CASES[name].make()
    before = {key: value.clone() for key, value in encoding.state_dict().items()}
    held = set(vars(encoding))
    encoding(places_for(name)).sum()
    encoding.score_mod(places_for(name))
    assert set(vars(encoding)) == held
    assert all(torch.equal(value, before[key]) for key, value in encoding.state_dict().items())


@every_case
def test_no_places_give_an_empty_bias(name: str) -> None:
    encoding, places = CASES[name].make(), places_for(name)
    assert encoding(places, places[:0]).shape == (1, 2, 128, 0)
    assert encoding(places[:0], places).shape == (1, 2, 0, 128)


class Linear(OffsetBias):
    """The example of the module's docstring."""

    def __init__(self, *, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads

    def rule(self, device: torch.device, dtype: torch.dtype) -> Rule:
        return lambda offset, head: -offset.abs() / (head + 1)


class Later(PairBias):
    """A bias of both positions."""

    num_heads = 2

    def rule(self, device: torch.device, dtype: torch.dtype) -> Rule:
        return lambda query, key, head: torch.maximum(query, key).to(dtype) * (head + 1)


def test_a_rule_of_ones_own_has_every_form() -> None:
    for places in (Positions.range(5, start=70_000), Positions.explicit(torch.tensor([[3, 0], [10_000_000, 2]]))):
        at_query, at_key = places.ids[:, None, :, None], places.ids[:, None, None, :]
        heads = torch.tensor([1.0, 2.0]).view(1, 2, 1, 1)
        linear, later = Linear(num_heads=2), Later()
        for encoding, expected in (
            (linear, -(at_key - at_query).abs() / heads),
            (later, torch.maximum(at_query, at_key) * heads),
        ):
            assert torch.equal(encoding(places), expected)
            assert torch.equal(as_matrix(encoding.score_mod(places), expected.shape, torch.float32), expected)
    assert linear.by_offset(torch.tensor([-70_000, 0, 3])).tolist() == [[-70_000.0, 0.0, -3.0], [-35_000.0, 0.0, -1.5]]


@every_case
@pytest.mark.parametrize("given", [5, [0, 1], None], ids=str)
def test_what_is_no_place_is_refused(name: str, given: Any) -> None:
    encoding, places = CASES[name].make(), places_for(name)
    rule = "must be Positions or a tensor, since a bias has a row or column for each place; got"
    calls: tuple[Callable[..., object], ...] = (encoding, encoding.score_mod)
    for call in calls:
        with raises_exactly(TypeError, f"query_positions {rule} {given}. Use Positions.range(length, start=...)."):
            call(given)
        if given is not None:
            with raises_exactly(TypeError, f"key_positions {rule} {given}. Use Positions.range(length, start=...)."):
                call(places, given)


@every_case
def test_places_of_other_axes_are_refused(name: str) -> None:
    encoding, places = CASES[name].make(), places_for(name)
    kind = type(encoding).__name__
    if encoding.axes == 1:
        other = Positions.grid(2, 3)
        found = "1 coordinate a place", "2 in Positions(grid, 2 x 3, length 6, axes 2)"
    else:
        other = Positions.range(3, start=10_000_000)
        found = "2 coordinates a place", "1 in Positions(range 10000000..10000002, length 3)"
    message = f"positions must have {found[0]}, since this {kind} encodes that many; got {found[1]}."
    for given in ((other,), (places, other), (other, places)):
        with raises_exactly(ValueError, message):
            encoding(*given)
        with raises_exactly(ValueError, message):
            encoding.score_mod(*given)


def test_every_bias_of_the_package_is_among_these() -> None:
    classes = {situs.entry(name).cls for name in situs.names()}
    own = {each for each in classes if each.__module__.startswith("situs.") and issubclass(each, BiasEncoding)}
    assert own == {type(case.make()) for case in CASES.values()}
