"""Compiled attention gives what the formula gives in float64, and so do its gradients."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

import situs
from situs import compiled
from situs.compiled import attending
from situs.compiled.attending import Added, Band, Gradients, calling

pytestmark = pytest.mark.skipif(
    not (compiled.available() and calling._lanes()), reason="llvmlite is not installed, or not for this machine"
)
TOLERANCE = {torch.float32: 3e-6, torch.bfloat16: 2e-2, torch.float16: 2e-3}
SHAPES = [
    (1, 2, 100, 300, 64, 64),
    (2, 3, 193, 193, 64, 64),
    (1, 2, 7, 1, 32, 32),
    (1, 2, 300, 131, 128, 128),
    (1, 2, 97, 97, 80, 80),
    (1, 1, 97, 193, 16, 48),
    (1, 1, 50, 400, 256, 256),
    (3, 1, 1, 65, 64, 64),
]
BANDS = {
    "everything": lambda queries, keys: attending.EVERYTHING,
    "causal": lambda queries, keys: attending.CAUSAL,
    "causal behind a cache": lambda queries, keys: Band(-(2**30), keys - queries),
    "window": lambda queries, keys: Band(-7, 9),
    "causal window": lambda queries, keys: Band(keys - queries - 64, keys - queries),
    "only later keys": lambda queries, keys: Band(3, 2**30),
    "nothing": lambda queries, keys: Band(2**29, 2**30),
}
ADDED = ("nothing", "pairs", "one row", "one number for a head", "offsets", "offsets of one head")


class Case(NamedTuple):
    """Tensors, and what is added."""

    query: Tensor
    key: Tensor
    value: Tensor
    gradient: Tensor
    added: Added | None

    @property
    def pairs(self) -> Tensor | None:
        """What is added to each pair, in float64."""
        if self.added is None:
            return None
        numbers, (batch, heads, queries, _), keys = self.added.numbers, self.query.shape, self.key.shape[2]
        if self.added.by_offset:
            numbers = numbers.unfold(-1, keys, 1).flip(2)
        return numbers.double().expand(batch, heads, queries, keys)


def made(shape: tuple[int, ...], dtype: torch.dtype, added: str) -> Case:
    batch, heads, queries, keys, head_dim, value_dim = shape
    # heads behind tokens, as layers have them
    query = torch.randn(batch, queries, heads, head_dim).transpose(1, 2).to(dtype)
    key = torch.randn(batch, keys, heads, head_dim).transpose(1, 2).to(dtype)
    value = torch.randn(batch, heads, keys, value_dim).to(dtype)
    gradient = torch.randn(batch, heads, queries, value_dim).to(dtype)
    if added == "pairs":
        numbers = torch.randn(1, heads, queries, keys).masked_fill(torch.rand(1, heads, queries, keys) < 0.3, -math.inf)
        numbers[:, :, queries // 2] = -math.inf
        return Case(query, key, value, gradient, Added(numbers))
    if added == "one row":
        return Case(query, key, value, gradient, Added(torch.randn(batch, 1, 1, keys)))
    if added == "one number for a head":
        return Case(query, key, value, gradient, Added(torch.randn(heads, 1, 1)[None]))
    if added.startswith("offsets"):
        own = heads if added == "offsets" else 1
        return Case(query, key, value, gradient, Added(torch.randn(1, own, queries + keys - 1), by_offset=True))
    return Case(query, key, value, gradient, None)


def expected(case: Case, scale: float, band: Band) -> dict[str, Tensor]:
    """By the formula, in float64."""
    query, key, value = (each.double().requires_grad_() for each in case[:3])
    scores = scale * query @ key.mT
    pairs = case.pairs
    if pairs is not None:
        pairs = pairs.clone().requires_grad_()
        scores = scores + pairs
    apart = torch.arange(key.shape[2]) - torch.arange(query.shape[2])[:, None]
    scores = scores.masked_fill((apart < band.first) | (apart > band.last), -math.inf)
    blind = (scores == -math.inf).all(-1, keepdim=True)
    weights = scores.masked_fill(blind, 0.0).softmax(-1).masked_fill(blind, 0.0)
    out = weights @ value
    out.backward(case.gradient.double())
    found = {"out": out, "logsumexp": scores.logsumexp(-1), "query": query.grad, "key": key.grad, "value": value.grad}
    if pairs is not None:
        found["added"] = pairs.grad
    return {name: each.detach() for name, each in found.items() if each is not None}


def computed(case: Case, scale: float, band: Band) -> dict[str, Tensor]:
    query, key, value, gradient, added = case
    attended = attending.attend(query, key, value, scale, added, band)
    assert attended is not None
    out, logsumexp = attended
    delta = (gradient.float() * out.float()).sum(-1)
    shape = *query.shape[:2], query.shape[2] + key.shape[2] - 1
    wanted = None
    if added is not None:
        by_offset = added.by_offset
        wanted = Added(torch.zeros(shape if by_offset else (*query.shape[:3], key.shape[2])), by_offset)
    into = Gradients(torch.zeros(query.shape), torch.zeros(key.shape), torch.zeros(value.shape), wanted)
    finite = logsumexp.nan_to_num(neginf=0.0)
    assert attending.attend_backward(gradient, query, key, value, finite, delta, scale, into, added, band)
    found = {"out": out, "logsumexp": logsumexp, "query": into.query, "key": into.key, "value": into.value}
    return found if wanted is None else found | {"added": wanted.numbers}


def over_offsets(pairs: Tensor) -> Tensor:
    queries, keys = pairs.shape[2:]
    total = pairs.new_zeros(*pairs.shape[:2], queries + keys - 1)
    for query in range(queries):
        total[..., queries - 1 - query : queries - 1 - query + keys] += pairs[:, :, query]
    return total


def assert_right(case: Case, scale: float, band: Band) -> None:
    right, found = expected(case, scale, band), computed(case, scale, band)
    if case.added is not None and case.added.by_offset:
        right["added"] = over_offsets(right["added"])
    for name, each in right.items():
        assert found[name].shape == each.shape, name
        tolerance = TOLERANCE[case.query.dtype] * max(1.0, float(each.nan_to_num(neginf=0.0).abs().max()))
        torch.testing.assert_close(found[name].double(), each, rtol=0, atol=tolerance)


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("band", BANDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_outputs_and_gradients_are_those_of_the_formula(shape: tuple[int, ...], band: str, threads: int) -> None:
    for number, added in enumerate(ADDED):
        torch.manual_seed(number)
        assert_right(made(shape, torch.float32, added), 0.125, BANDS[band](*shape[2:4]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shape", SHAPES[:2], ids=str)
def test_halves_are_read_as_they_are_and_computed_in_float32(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    for added in ADDED:
        assert_right(made(shape, dtype, added), 0.125, attending.CAUSAL)


@pytest.mark.parametrize("scale", [0.0, -0.3, 1.0])
def test_any_scale_serves(scale: float) -> None:
    assert_right(made((1, 2, 70, 90, 16, 16), torch.float32, "offsets"), scale, attending.CAUSAL)


@pytest.mark.parametrize("band", ["causal", "window", "only later keys"])
def test_what_is_hidden_may_be_no_number(band: str) -> None:
    """Keys that no query sees are not read, and those that some do not see leave these alone."""
    case, own = made((1, 2, 60, 200, 64, 64), torch.float32, "nothing"), BANDS[band](60, 200)
    right = computed(case, 0.125, own)
    apart = torch.arange(200) - torch.arange(60)[:, None]
    unseen = ((apart < own.first) | (apart > own.last)).all(0)
    assert unseen.any()
    key = case.key.masked_fill(unseen[:, None], math.nan)
    found = computed(case._replace(key=key), 0.125, own)
    for name, each in right.items():
        assert torch.equal(found[name], each), name


def test_a_key_that_is_no_number_reaches_the_queries_that_see_it_alone() -> None:
    case = made((1, 1, 90, 90, 64, 64), torch.float32, "nothing")
    case.key[:, :, 50] = math.nan
    attended = attending.attend(*case[:3], 0.125, None, attending.CAUSAL)
    assert attended is not None
    out, logsumexp = attended
    assert out[:, :, :50].isfinite().all()
    assert logsumexp[:, :, :50].isfinite().all()
    assert out[:, :, 50:].isnan().all()


def test_nothing_is_written_beyond_the_tensors() -> None:
    """Every gradient lies amid other numbers, which stay."""
    case = made((1, 2, 61, 67, 32, 48), torch.float32, "pairs")
    query, key, value, gradient, added = case
    attended = attending.attend(query, key, value, 0.2, added)
    assert attended is not None
    out, logsumexp = attended
    delta = (gradient * out).sum(-1)
    sizes = {"query": (1, 2, 61, 32), "key": (1, 2, 67, 32), "value": (1, 2, 67, 48), "added": (1, 2, 61, 67)}
    wide = {name: torch.full((1, 4, size[2] + 40, size[3] + 40), 5.0) for name, size in sizes.items()}
    inner = {name: each[:, 1:3, 20:-20, 20:-20] for name, each in wide.items()}
    for each in inner.values():
        each.zero_()
    into = Gradients(inner["query"], inner["key"], inner["value"], Added(inner["added"]))
    finite = logsumexp.nan_to_num(neginf=0.0)
    assert attending.attend_backward(gradient, query, key, value, finite, delta, 0.2, into, added)
    right = computed(case, 0.2, attending.EVERYTHING)
    for name, each in inner.items():
        assert torch.equal(each, right[name]), name
        each.fill_(5.0)
        assert (wide[name] == 5.0).all(), name


@pytest.mark.parametrize("laid", ["expanded", "expanded channels", "channels first", "negative view", "zeros"])
def test_a_gradient_may_lie_in_any_way(laid: str) -> None:
    case = made((1, 2, 61, 67, 32, 48), torch.float32, "offsets")
    gradient = {
        "expanded": lambda: torch.ones(()).expand(1, 2, 61, 48),
        "expanded channels": lambda: torch.randn(1, 2, 61, 1).expand(-1, -1, -1, 48),
        "channels first": lambda: torch.randn(1, 2, 48, 61).mT,
        "negative view": lambda: torch._neg_view(torch.randn(1, 2, 61, 48)),
        "zeros": lambda: torch._efficientzerotensor((1, 2, 61, 48)),
    }[laid]()
    assert_right(case._replace(gradient=gradient), 0.2, attending.CAUSAL)


def test_gradients_are_added_to_those_that_are_there() -> None:
    case = made((1, 2, 61, 67, 32, 32), torch.float32, "offsets")
    right = computed(case, 0.2, attending.CAUSAL)
    query, key, value, gradient, added = case
    into = Gradients(torch.ones(query.shape), torch.ones(key.shape), torch.ones(value.shape))
    delta = (gradient * right["out"]).sum(-1)
    asked = gradient, query, key, value, right["logsumexp"], delta, 0.2
    assert attending.attend_backward(*asked, into, added, attending.CAUSAL)
    for name, each in zip(("query", "key", "value"), into[:3], strict=True):
        torch.testing.assert_close(each, right[name] + 1, rtol=1e-5, atol=1e-5)


def test_a_call_gives_the_same_again_with_any_number_of_threads() -> None:
    case, before = made((1, 3, 400, 400, 64, 64), torch.float32, "offsets"), torch.get_num_threads()
    found = []
    for count in (1, 2, 3, 2):
        torch.set_num_threads(count)
        found.append(attending.attend(*case[:3], 0.125, case.added, attending.CAUSAL))
    torch.set_num_threads(before)
    for each in found[1:]:
        assert each is not None
        assert found[0] is not None
        torch.testing.assert_close(each[0], found[0][0], rtol=0, atol=1e-6)


def test_which_tensors_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.zeros(1, 8, 512, 64)
    assert attending.serves(x, x, x)
    assert attending.serves(x.bfloat16(), x.bfloat16(), x.bfloat16())
    assert not attending.serves(x, x, x.bfloat16())
    assert not attending.serves(x.double(), x.double(), x.double())
    assert not attending.serves(x[..., :40], x[..., :40], x[..., :40])  # which no vectors fill
    assert not attending.serves(x.mT, x.mT, x.mT)
    assert not attending.serves(*[x.to("meta")] * 3)
    assert not attending.serves(torch._neg_view(x), x, x)
    assert not attending.serves(x, torch._efficientzerotensor(x.shape), x)
    assert not attending.serves(x, x, torch.zeros(1, 8, 575).unfold(-1, 64, 1))  # whose gradient would lie otherwise
    assert not attending.serves(x[:, :, :4], x, x)  # as in decoding
    many = torch.zeros(1, 8, 65536, 64)
    assert attending.serves(many, x[:, :, :16], x[:, :, :16])
    assert not attending.serves(many, x[:, :, :8], x[:, :, :8])  # which fill no vector
    assert not attending.serves(x[:, :, :64], x[:, :, :64], x[:, :, :64])  # too little to compile for
    wide = torch.zeros(1, 8, 512, 512)
    assert not attending.serves(wide, wide, wide)
    monkeypatch.setattr(compiled, "_failure", RuntimeError("none"))
    assert not attending.serves(x, x, x)


def test_what_records_operations_sees_those_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops write what no graph knows of."""
    monkeypatch.setattr(calling, "LEAST_WORK", 0)
    q, k, v = (torch.randn(1, 2, 40, 32) for _ in range(3))
    for encoding in (None, situs.ALiBi(num_heads=2)):
        graph = make_fx(partial(situs.attend, encoding=encoding, causal=True))(q, k, v)
        torch.testing.assert_close(graph(v, q, k), situs.attend(v, q, k, encoding=encoding, causal=True))


def test_several_gradients_are_taken_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calling, "LEAST_WORK", 0)
    q, k, v = (torch.randn(1, 2, 40, 32, requires_grad=True) for _ in range(3))
    out, gradients = situs.attend(q, k, v), torch.randn(3, 1, 2, 40, 32)
    found = torch.autograd.grad(out, (q, k, v), gradients, is_grads_batched=True, retain_graph=True)
    for number, gradient in enumerate(gradients):
        expected = torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True)
        torch.testing.assert_close([each[number] for each in found], list(expected))


def test_a_machine_that_cannot_compile_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("no executable memory")

    monkeypatch.setattr(calling, "_made", fail)
    monkeypatch.setattr(compiled, "_failure", None)
    case = made((1, 2, 60, 60, 64, 64), torch.float32, "nothing")
    with pytest.warns(UserWarning, match=r"^situs\[fast\] must compile") as told:
        assert attending.attend(*case[:3], 0.125) is None
    assert [str(each.message) for each in told] == [
        "situs[fast] must compile its loop with llvmlite 0.45 or newer, since attention runs fastest so; got OSError: "
        "no executable memory. torch's own kernel is used instead; SITUS_FUSED=0 leaves this out."
    ]
    assert not compiled.available()


def test_a_thread_works_in_memory_of_its_own_that_is_small() -> None:
    """Less than a few blocks take, whatever the length."""
    from situs.compiled.attending import backward, forward
    from situs.compiled.attending.blocks import END, Work, places_of

    for dim in (16, 64, 128, 256):
        for module in (forward, backward):
            work = Work(torch.float32, dim, dim, calling._lanes(), masked=True)
            assert ctypes.sizeof(ctypes.c_float) * places_of(module.sizes(work))[END] <= 512 * 1024
