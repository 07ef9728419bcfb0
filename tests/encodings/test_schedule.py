"""Schedules: an encoding for each layer, said positively."""

from collections.abc import Sequence

import pytest
import torch
from torch import nn

import situs
from situs.attention import reference
from tests.raising import raises_exactly


def test_every_fourth_layer_has_no_positions() -> None:
    layers = situs.schedule(["rotary", "rotary", "rotary", "nope"], num_layers=10, head_dim=16)
    kinds = [type(layer).__name__ for layer in layers]
    assert kinds == ["Rotary", "Rotary", "Rotary", "NoPE", "Rotary", "Rotary", "Rotary", "NoPE", "Rotary", "Rotary"]


def test_layers_have_bases_and_scalings_of_their_own() -> None:
    near = ("rotary", {"base": 1e4})
    far = ("rotary", {"base": 1e6, "scaling": situs.LinearScaling(factor=8.0)})
    layers = situs.schedule([near] * 5 + [far], num_layers=7, head_dim=16)
    turned = [layer for layer in layers if isinstance(layer, situs.Rotary)]
    assert [layer.base for layer in turned] == [1e4] * 5 + [1e6, 1e4]
    assert turned[5].scaling == situs.LinearScaling(factor=8.0)


@pytest.mark.parametrize("both", [["rotary", "alibi"], ("rotary", "alibi")], ids=["list", "tuple"])
def test_a_layer_may_have_two_encodings(both: Sequence[str]) -> None:
    layers = situs.schedule([both], num_layers=2, head_dim=16, num_heads=4)
    q, k, v = torch.randn(3, 1, 4, 9, 16)
    made = [situs.Rotary(head_dim=16), situs.ALiBi(num_heads=4)]
    torch.testing.assert_close(
        reference(q, k, v, encoding=layers[1], causal=True), reference(q, k, v, encoding=made, causal=True)
    )


def test_a_name_with_options_is_one_encoding_within_a_tuple_too() -> None:
    far = ("rotary", {"base": 1e6})
    (alone, both) = situs.schedule([far, (far, "none")], num_layers=2, head_dim=16)
    assert isinstance(alone, situs.Rotary)
    assert isinstance(both, nn.ModuleList)
    assert [type(each).__name__ for each in both] == ["Rotary", "NoPE"]
    assert all(each.base == 1e6 for each in (alone, both[0]))


def test_names_get_parameters_of_their_own_and_an_encoding_is_shared() -> None:
    own = situs.schedule(["t5"], num_layers=3, num_heads=2)
    assert len({id(layer.table) for layer in own}) == 3
    shared = situs.schedule([situs.T5Bias(num_heads=2)], num_layers=3)
    assert len(list(shared.parameters())) == 1


def test_a_schedule_is_a_module_that_saves_and_loads() -> None:
    layers = situs.schedule([["t5", "shaw"], "kerple"], num_layers=2, num_heads=2, head_dim=8)
    other = situs.schedule([["t5", "shaw"], "kerple"], num_layers=2, num_heads=2, head_dim=8)
    other.load_state_dict(layers.state_dict())
    assert isinstance(layers, nn.ModuleList)
    assert all(torch.equal(one, two) for one, two in zip(layers.parameters(), other.parameters(), strict=True))


def test_bad_schedules_say_what_is_wrong() -> None:
    with raises_exactly(
        ValueError,
        "pattern must be a list with an item for each layer until it repeats, since layers may differ; got "
        "'rotary'. Use [\"rotary\"] for one encoding in all layers.",
    ):
        situs.schedule("rotary", num_layers=2, head_dim=16)
    with raises_exactly(ValueError, "num_layers must be at least 3, since the pattern has that many items; got 2."):
        situs.schedule(["rotary"] * 3, num_layers=2, head_dim=16)
    with raises_exactly(
        ValueError,
        "pattern must name encodings of attention, since those of the input act once, before the first layer; got "
        "Sinusoidal.",
    ):
        situs.schedule(["sinusoidal"], num_layers=2, dim=16)
    with raises_exactly(
        TypeError, "sizes must be options of an encoding in the pattern; got 'head_dims'. Did you mean 'head_dim'?"
    ):
        situs.schedule(["rotary", "none"], num_layers=2, head_dims=16)
    with raises_exactly(TypeError, "none takes no options; got 'base'."):
        situs.schedule([("none", {"base": 3.0})], num_layers=1)
    with raises_exactly(TypeError, "kerple takes num_heads, kernel; got 'kernal'. Did you mean 'kernel'?"):
        situs.schedule([("kerple", {"kernal": "log"})], num_layers=1, num_heads=2)
    with raises_exactly(
        TypeError,
        'pattern must have names, ("name", {options}), encodings, or lists of these as items, since each stands for'
        " a layer; got 3.",
    ):
        situs.schedule([3], num_layers=1)  # type: ignore[list-item]
