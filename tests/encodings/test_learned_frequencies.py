"""LeRoPE and RoPE-Mixed: formulas, exact gradients on every path, far positions, and no table that is out of date."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import situs
from situs import Attention, LeRoPE, Positions, RoPEMixed, Rotary, attend
from situs.functional.rotation import PAIRINGS, Pairing
from situs.rotation.fused import planning
from tests.raising import raises_exactly
from tests.references import axial
from tests.references import rotary as reference

FAR = 10_000_000


def lerope(**options: Any) -> LeRoPE:
    encoding = LeRoPE(**({"head_dim": 8} | options))
    nn.init.normal_(encoding.alpha, std=0.3)
    return encoding


def mixed(**options: Any) -> RoPEMixed:
    return RoPEMixed(**({"head_dim": 8, "num_heads": 2} | options))


Learning = LeRoPE | RoPEMixed
MADE: dict[str, tuple[Callable[[], Learning], Positions]] = {
    "one position": (lerope, Positions.range(1, start=70_001)),
    "a range": (lerope, Positions.range(5, start=3)),
    "a long range": (lerope, Positions.range(130, start=3)),
    "positions": (lerope, Positions.explicit(torch.tensor([[0, 5, 70_001], [7, 2, 2]]))),
    "halves": (lambda: lerope(pairing="halves", rotary_dim=4), Positions.range(4)),
    "by length": (
        lambda: lerope(scaling=situs.DynamicNTKScaling(factor=2.0, original_length=4)),
        Positions.batch([Positions.range(6), Positions.range(4)]),
    ),
    "axes": (lambda: lerope(split=situs.Axial(halves="axis"), pairing="halves"), Positions.grid(2, 2)),
    "two coordinates": (mixed, Positions.grid(2, 3, first=9)),
    "two coordinates, halves": (lambda: mixed(pairing="halves"), Positions.grid(2, 3).scaled(0.3)),
}
each_kind = pytest.mark.parametrize(("make", "positions"), MADE.values(), ids=MADE)


def heads_of(encoding: Learning, positions: Positions, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(positions.rows, encoding.num_heads or 2, positions.length, encoding.head_dim, dtype=dtype)


# ---------------------------------------------------------------------- formulas


@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("start", [0, FAR])
def test_learned_factors_multiply_the_frequencies(pairing: Pairing, start: int) -> None:
    encoding = lerope(pairing=pairing, head_dim=16, rotary_dim=8)
    ladder = reference.frequencies(8) * np.exp(encoding.alpha.detach().double().numpy())
    x = torch.randn(1, 2, 5, 16)
    expected = [
        reference.rotate(head.double().numpy(), np.arange(start, start + 5.0), ladder, pairing) for head in x[0]
    ]
    assert np.allclose(encoding(x, start).detach()[0].numpy(), np.stack(expected), rtol=0, atol=1e-6)
    assert np.allclose(encoding.frequencies[0].numpy(), ladder, rtol=1e-15, atol=0)


@pytest.mark.parametrize("first", [0, FAR])
@pytest.mark.parametrize("pairing", PAIRINGS)
def test_mixed_frequencies_add_what_both_coordinates_rotate(pairing: Pairing, first: int) -> None:
    encoding, cells = mixed(pairing=pairing), Positions.grid(3, 2, first=first)
    x = torch.randn(1, 2, 6, 8)
    angles = axial.mixed_angles(cells.ids[0].double().numpy(), encoding.frequencies.detach().double().numpy())
    expected = [axial.rotate(head.double().numpy(), angle, pairing) for head, angle in zip(x[0], angles, strict=True)]
    assert np.allclose(encoding(x, cells).detach()[0].numpy(), np.stack(expected), rtol=0, atol=1e-6)


def test_mixed_frequencies_begin_along_and_across_a_direction_of_each_head() -> None:
    encoding = RoPEMixed(head_dim=16, num_heads=6)
    down, right = encoding.frequencies.detach().double()
    lengths = torch.tensor([10.0 ** (-4 * pair / 16) for pair in range(4)]).repeat(2)
    assert torch.allclose(torch.hypot(down, right), lengths.double().expand(6, 8), atol=1e-6)
    directions = torch.atan2(down, right)
    assert torch.allclose(directions[:, :4], directions[:, :1].expand(6, 4), atol=1e-5)
    across = (directions[:, 4:] - directions[:, :4]).remainder(2 * torch.pi)
    assert torch.allclose(across, torch.full((6, 4), torch.pi / 2, dtype=torch.float64), atol=1e-5)
    assert len(set(directions[:, 0].tolist())) == 6


def test_without_learning_lerope_is_rotary() -> None:
    scaling, x = situs.YaRN(factor=4.0, original_length=64), torch.randn(1, 2, 300, 16)
    plain = Rotary(head_dim=16, pairing="interleaved", scaling=scaling)
    learned = LeRoPE(head_dim=16, scaling=scaling)
    assert torch.equal(learned(x, 5000), plain(x, 5000))
    assert (learned.softmax_factor, learned.tags) == (plain.softmax_factor, plain.tags | {"learned"})
    assert LeRoPE(**learned.config).config == learned.config


# ---------------------------------------------------------------------- gradients


@each_kind
def test_gradients_to_frequencies_are_exact(make: Callable[[], Learning], positions: Positions) -> None:
    encoding = make().double()
    ((name, parameter),) = encoding.named_parameters()
    x = heads_of(encoding, positions)
    fast = positions.length > 100

    def run(value: Tensor, x: Tensor) -> Tensor:
        return torch.func.functional_call(encoding, {name: value}, (x, positions))  # type: ignore[no-any-return]

    inputs = parameter.detach().clone().requires_grad_(), x.requires_grad_()
    far = float(positions.ids.max()) > 1000  # where a difference quotient of 1e-6 spans many turns
    step, tolerance = (1e-9, 1e-3) if far else (1e-6, 1e-5)
    assert torch.autograd.gradcheck(run, inputs, eps=step, atol=tolerance, rtol=tolerance, fast_mode=fast)


@each_kind
def test_both_and_tables_and_attention_give_the_gradients_of_plain_operations(
    make: Callable[[], Learning], positions: Positions
) -> None:
    encoding = make().double()
    (parameter,) = encoding.parameters()
    query, key = heads_of(encoding, positions), heads_of(encoding, positions)

    def gradient(queries: Tensor, keys: Tensor) -> Tensor:
        (found,) = torch.autograd.grad((queries.sin() * keys.cos()).sum(), parameter)
        return found

    by_matrices = [encoding(each, positions) for each in (query, key)]
    expected = gradient(*by_matrices)
    assert float(expected.abs().max()) > 0
    assert torch.allclose(gradient(*encoding.both(query, key, positions)), expected, rtol=1e-9)
    table = encoding.table(positions, dtype=torch.float64)
    assert torch.allclose(gradient(*encoding.both(query, key, table)), expected, rtol=1e-9)
    seen = attend(query, key, query, encoding=encoding, positions=positions, key_positions=positions)
    slow = situs.attention.reference(query, key, query, encoding=encoding, positions=positions, key_positions=positions)
    found, wanted = (torch.autograd.grad(each.square().sum(), parameter)[0] for each in (seen, slow))
    assert torch.allclose(found, wanted, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("direction", ["forward", "jacobian"])
def test_forward_mode_and_torch_func_reach_the_frequencies(direction: str) -> None:
    encoding = lerope().double()
    x, positions = torch.randn(1, 1, 4, 8, dtype=torch.float64), Positions.range(4, start=2)

    def run(alpha: Tensor) -> Tensor:
        return torch.func.functional_call(encoding, {"alpha": alpha}, (x, positions)).sin().sum()  # type: ignore[no-any-return]

    alpha, tangent = encoding.alpha.detach(), torch.randn(4, dtype=torch.float64)
    (expected,) = torch.autograd.grad(run(leaf := alpha.clone().requires_grad_()), leaf)
    if direction == "forward":
        found = torch.func.jvp(run, (alpha,), (tangent,))[1]
        assert torch.allclose(found, expected @ tangent)
    else:
        assert torch.allclose(torch.func.grad(run)(alpha), expected)
    with torch.no_grad():  # nothing of a transform is left in the positions
        assert torch.allclose(run(alpha), encoding(x, positions).sin().sum())


# ---------------------------------------------------------------------- tables


WRITES: dict[str, Callable[[Tensor], object]] = {
    "in place": lambda parameter: parameter.add_(0.1),
    "data": lambda parameter: setattr(parameter, "data", parameter.data + 0.1),
    "data in place": lambda parameter: parameter.data.add_(0.1),
    "an optimizer": lambda parameter: _step(parameter, fused=False),
    "a fused optimizer": lambda parameter: _step(parameter, fused=True),
}


def _step(parameter: Tensor, *, fused: bool) -> None:
    parameter.grad = torch.ones_like(parameter)
    torch.optim.Adam([parameter], lr=0.1, fused=fused).step()


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("name", ["a range", "two coordinates"])
def test_a_table_is_never_out_of_date(name: str, write: Callable[[Tensor], object]) -> None:
    make, positions = MADE[name]
    encoding = make()
    (parameter,) = encoding.parameters()
    x = heads_of(encoding, positions, torch.float32)
    with torch.no_grad():
        before = encoding(x, positions)
        assert encoding.table(positions) is encoding.table(positions)
        count = len(positions.tables)
        write(parameter)
        after = encoding(x, positions)
        assert len(positions.tables) == count  # nor are old ones kept
        assert torch.equal(after, encoding(x, Positions.explicit(positions.ids)))
    assert float((after - before).abs().max()) > 1e-3


def test_nothing_is_cached_while_gradients_are_recorded() -> None:
    encoding, positions, x = lerope(), Positions.range(4), torch.randn(1, 1, 4, 8)
    with torch.no_grad():
        encoding(x, positions)
    count = len(positions.tables)
    for _ in range(2):  # a second backward through a cached graph would raise
        encoding(x, positions).sum().backward()
    assert len(positions.tables) == count
    encoding.alpha.requires_grad_(False)
    assert encoding.table(positions) is encoding.table(positions)
    assert not encoding(x, positions).requires_grad


def test_layers_of_one_configuration_do_not_share_their_tables() -> None:
    positions, x = Positions.range(4), torch.randn(1, 1, 4, 8)
    layers = [lerope() for _ in range(2)]
    with torch.no_grad():
        shared = [layer(x, positions) for layer in layers for _ in range(2)]
        alone = [layer(x, Positions.range(4)) for layer in layers for _ in range(2)]
    assert all(map(torch.equal, shared, alone))
    assert not torch.equal(shared[0], shared[2])
    with pytest.raises(ValueError, match=r"^table must be made by this LeRoPE or an equal one, since others rotate"):
        layers[0](x, layers[1].table(positions))


@pytest.mark.skipif(not planning.available(), reason="without situs[fast]")
def test_the_compiled_loop_serves_inference_and_steps_aside_for_gradients() -> None:
    encoding, positions, x = lerope(), Positions.range(4), torch.randn(1, 2, 4, 8)
    with torch.no_grad():
        fast, table = encoding(x, positions), encoding.table(positions)
        assert table.plan_for((x,), "interleaved") is not None
    slow = encoding(x, positions)
    assert slow.requires_grad
    assert encoding.table(positions).plan_for((x,), "interleaved") is None
    assert torch.allclose(slow, fast, atol=1e-6)


def test_decoding_equals_the_whole_and_learns_from_it() -> None:
    encoding = lerope()
    layer = Attention(dim=16, num_heads=2, encoding=encoding)
    x = torch.randn(1, 12, 16)
    with torch.no_grad():
        cache = layer.make_cache(batch=1, max_length=12)
        steps = torch.cat([layer(x[:, part], cache=cache) for part in (slice(0, 5), slice(5, 6), slice(6, 12))], 1)
        assert torch.allclose(steps, layer(x), atol=1e-5)
    layer(x).square().sum().backward()
    assert encoding.alpha.grad is not None
    assert float(encoding.alpha.grad.abs().max()) > 0


# ---------------------------------------------------------------------- errors


def test_wrong_sizes_are_refused_in_these_words() -> None:
    with raises_exactly(
        ValueError,
        "head_dim must be a multiple of 4, since half of the pairs lie across the others at first; got 6.",
    ):
        RoPEMixed(head_dim=6, num_heads=2)
    with raises_exactly(ValueError, "num_heads must be 1 or more, since each has frequencies; got 0."):
        RoPEMixed(head_dim=8, num_heads=0)
    with raises_exactly(ValueError, "init_base must be more than 1, since wavelengths grow by its powers; got 1.0."):
        RoPEMixed(head_dim=8, num_heads=2, init_base=1.0)
    with raises_exactly(
        ValueError, "x must have 2 heads, since this RoPEMixed has frequencies for each; got shape (1, 3, 4, 8)."
    ):
        mixed()(torch.zeros(1, 3, 4, 8), Positions.grid(2, 2))
    with raises_exactly(
        ValueError,
        "positions must have 2 coordinates each, since this RoPEMixed encodes that many; got 1 in "
        "Positions(range 0..3, length 4). "
        "Use Positions.grid(...) for images, or Positions.explicit(ids), with ids of shape (batch, tokens, 2).",
    ):
        mixed()(torch.zeros(1, 2, 4, 8))
    with raises_exactly(TypeError, "base must be a number, since wavelengths grow by its powers; got (10000.0, 10.0)."):
        LeRoPE(head_dim=8, base=(1e4, 10.0))  # type: ignore[arg-type]
