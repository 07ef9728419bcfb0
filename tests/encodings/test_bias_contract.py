"""What every content-free bias owes as a module, whatever its formula; and a bias of one's own."""

import copy

import pytest
import torch

import situs
from situs import Boxes, OffsetBias, Positions
from situs.encodings.bias import BiasEncoding, PairBias, Rule
from tests.encodings.bias_cases import CASES, LEARNED, as_matrix, every_case, places_for


def test_every_bias_of_the_package_is_among_these() -> None:
    classes = {situs.entry(name).cls for name in situs.names()}
    own = {each for each in classes if each.__module__.startswith("situs.") and issubclass(each, BiasEncoding)}
    assert own == {Boxes, *(type(case.make()) for case in CASES.values())}  # boxes, of three axes, have their own tests


@every_case
def test_its_configuration_makes_it_again(name: str) -> None:
    encoding = CASES[name].make()
    again = type(encoding)(**encoding.config)
    assert again.config == encoding.config
    again.load_state_dict(encoding.state_dict())
    for kind in ("range", "ids"):
        places = places_for(name, kind)
        assert torch.equal(again(places), encoding(places))


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
