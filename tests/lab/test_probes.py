"""Probes: what theory says of every encoding is what is measured, and broken encodings are told from sound ones."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from situs import InputEncoding, OffsetBias, Positions
from situs.encodings.bias import Rule
from situs.lab.naming import parse
from situs.lab.naming.methods import suiting_text
from situs.lab.plain import from_json, to_json
from situs.lab.probing import properties as probes
from situs.lab.probing.findings import CLAIMS, Finding
from situs.lab.settings import Settings, Size
from tests.broken_encodings import Broken, Float32Angles, LosesNorm, NotRelative, Sound, rotate

# For each property, why some encodings have it and others do not.
EXPECTED: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "unique": (
        {
            "falls with every step": "alibi forgetting kerple",
            "a curve of its own in every head": "fire mlp",
            "a row each": "learned tupe",
            "fast waves tell neighbours apart, slow ones the rest": "lerope pope rotary rotary_value sinusoidal "
            "transformer_xl xpos",
            "the same, if only just": "sandwich",
        },
        {
            "no positions": "none",
            "positions of queries alone": "temperature",
            "far distances share a row": "cope deberta gated projected shaw t5",
        },
    ),
    "relative": (
        {
            "by offset": "alibi deberta gated kerple mlp projected sandwich shaw t5 transformer_xl",
            "by order": "cope forgetting",
            "nothing to move": "none",
            "R(m)' R(n) = R(n - m)": "lerope pope rotary rotary_value xpos",
        },
        {
            "divides by the query's position": "fire",
            "absolute": "learned temperature tupe",
            "p_m . p_n would be, but W_q p_m . W_k p_n is not": "sinusoidal",
        },
    ),
    "bounded": (
        {
            "a table": "cope deberta gated learned projected shaw t5 tupe",
            "shares of 0 .. 1": "fire",
            "waves": "lerope pope rotary rotary_value sandwich sinusoidal transformer_xl",
            "nothing": "none",
        },
        {
            "a line": "alibi",
            "a sum over all tokens between": "forgetting",
            "a logarithm": "kerple mlp temperature",
            "keys grow by z^-n, though scores do not": "xpos",
        },
    ),
    "norm_preserving": (
        {
            "leaves vectors alone": "alibi cope deberta fire forgetting gated kerple mlp none projected rotary_value "
            "sandwich shaw t5 transformer_xl tupe",
            "turns": "lerope rotary",
        },
        {"adds": "learned sinusoidal", "stretches": "temperature xpos", "makes magnitudes of channels": "pope"},
    ),
    "decaying": (
        {"a falling curve, whatever is learnt": "alibi forgetting kerple", "like a logarithm, swaying": "sandwich"},
        {
            "learns": "cope deberta fire gated learned lerope mlp projected shaw t5 transformer_xl tupe",
            "nothing, or not in the scores": "none rotary_value temperature",
            "sways more than it falls, with the 8 pairs of a head of 16": "pope rotary",
            "its decay takes 512 positions, and texts have 256": "xpos",
            "projections mix the waves": "sinusoidal",
        },
    ),
    "equivariant": (
        {"no positions": "none"},
        {
            "positions": "alibi cope deberta fire forgetting gated kerple learned lerope mlp pope projected rotary "
            "rotary_value sandwich shaw sinusoidal t5 temperature transformer_xl tupe xpos"
        },
    ),
}


def names_in(reasons: dict[str, str]) -> list[str]:
    return [name for names in reasons.values() for name in names.split()]


@functools.cache
def found(name: str, settings: Settings = Settings()) -> dict[str, Finding]:  # noqa: B008
    return probes.measure(parse(name), settings)


def own(cls: type) -> str:
    """The name of one's own class, as methods have it."""
    return f"{cls.__module__}:{cls.__name__}"


def test_theory_speaks_of_every_property_and_encoding() -> None:
    assert list(EXPECTED) == list(probes.PROBES) == list(CLAIMS)
    for holding, others in EXPECTED.values():
        assert sorted(names_in(holding) + names_in(others)) == suiting_text()


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", suiting_text())
def test_measurements_agree_with_theory(name: str) -> None:
    measured = {key: finding.holds for key, finding in found(name).items()}
    assert measured == {key: name in names_in(holding) for key, (holding, _) in EXPECTED.items()}


@pytest.mark.parametrize("name", [*suiting_text(), "rotary+yarn", "rotary+random", "rotary/none", "rotary&alibi"])
def test_findings_can_be_stored_and_have_a_sentence(name: str) -> None:
    findings = found(name)
    assert from_json(dict[str, Finding], to_json(findings)) == findings
    for finding in findings.values():
        assert not finding.said[0].islower()
        assert finding.said.endswith(".")


class AbsoluteError(Broken):
    """A rotary whose angles are not quite proportional to the position."""

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        ids = self.ids(x, positions).double()
        angles = (ids + 1e-6 * ids**2) * self.ladder()
        return rotate(x, angles)


class Stretched(Broken):
    """A rotary times 1.01."""

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        return 1.01 * super().forward(x, positions, role=role)


class Idle(Broken):
    """Does nothing at all."""

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        return x


@pytest.mark.parametrize(
    ("cls", "flipped"),
    [
        (Sound, {}),
        (AbsoluteError, {"relative": False}),
        (NotRelative, {"relative": False}),
        (Float32Angles, {"relative": False}),
        (Stretched, {"norm_preserving": False}),
        (LosesNorm, {"relative": False, "norm_preserving": False}),
        (Idle, {"unique": False, "equivariant": True}),
    ],
)
def test_a_broken_rotary_answers_otherwise_than_a_sound_one(cls: type, flipped: dict[str, bool]) -> None:
    sound = {name: finding.holds for name, finding in found("rotary").items()}
    assert {name: finding.holds for name, finding in found(own(cls)).items()} == {**sound, **flipped}


class Added(InputEncoding):
    """A vector that repeats, grows, or has a table's end of which nothing is said."""

    def __init__(self, *, dim: int, kind: str = "sound") -> None:
        super().__init__()
        self.dim, self.kind = dim, kind
        self.rows = nn.Parameter(torch.randn(200, dim))
        if kind != "unsaid":
            self.usable_length = 200

    def forward(self, x: Tensor, positions: Any = None) -> Tensor:
        ids = Positions.of(positions, x.shape[-2], batch=x.shape[0]).ids
        rows = self.rows[ids % 50 if self.kind == "repeats" else ids]
        return x + (rows * ids[..., None] if self.kind == "grows" else rows)


def test_a_table_that_repeats_is_not_unique_and_one_that_grows_not_bounded() -> None:
    sound, repeats, grows = (found(f"{own(Added)}(kind={kind!r})") for kind in ("sound", "repeats", "grows"))
    assert [each["unique"].holds for each in (sound, repeats, grows)] == [True, False, True]
    assert [each["bounded"].holds for each in (sound, repeats, grows)] == [True, True, False]
    assert "200 of 200 positions have the same scores as another" in repeats["unique"].said


def test_an_encoding_that_fails_is_not_judged_and_says_why() -> None:
    finding = found(f"{own(Added)}(kind='unsaid')")["relative"]
    assert finding.holds is finding.number is None
    assert "could not be asked: IndexError: index" in finding.said


def test_a_table_too_short_to_ask_says_so() -> None:
    for finding in found("learned(max_length=3)").values():
        assert finding.holds is None
        assert finding.said.endswith("it takes 4 positions to ask; the table has 3.")


class Curve(OffsetBias):
    """A bias by a curve of the distance."""

    def __init__(self, *, num_heads: int, kind: str) -> None:
        super().__init__()
        self.num_heads, self.kind = num_heads, kind

    def rule(self, device: torch.device, dtype: torch.dtype) -> Rule:
        curve = {
            "rising": lambda distance: distance / 64,
            "logarithm": lambda distance: -(1 + distance).log(),
            "root": lambda distance: -distance.sqrt(),
            "saturating": lambda distance: -distance / (distance + 64),
            "periodic": lambda distance: -(distance % 8),
        }[self.kind]
        return lambda offset, head: curve(offset.abs().to(dtype)) + 0 * head


@pytest.mark.parametrize(
    ("kind", "properties"),
    [
        ("rising", {"unique"}),
        ("logarithm", {"unique", "decaying"}),
        ("root", {"unique", "decaying"}),
        ("saturating", {"unique", "bounded", "decaying"}),
        ("periodic", {"bounded"}),
    ],
)
def test_curves_of_known_shape_are_known(kind: str, properties: set[str]) -> None:
    findings = found(f"{own(Curve)}(kind={kind!r})")
    assert {name for name in ("unique", "bounded", "decaying") if findings[name].holds} == properties


def test_rank_correlation_is_spearmans_with_ties() -> None:
    assert probes._rank_correlation(torch.arange(9.0) ** 3) == pytest.approx(1)
    assert probes._rank_correlation(-torch.arange(9.0)) == pytest.approx(-1)
    assert probes._rank_correlation(torch.ones(9)) == 0
    # ranks 1.5, 1.5, 3, 4 against 1, 2, 3, 4: 4.5 / sqrt(4.5 * 5)
    assert probes._rank_correlation(torch.tensor([0.0, 0.0, 1.0, 2.0])) == pytest.approx(0.9**0.5)


def test_a_pattern_holds_only_what_all_its_layers_hold() -> None:
    findings = found("rotary/none")
    assert [findings[name].holds for name in ("unique", "relative", "equivariant")] == [False, True, False]
    assert findings["unique"].said.startswith("In layer 2: 1,024 of 1,024 positions have the same scores as another")


def test_encodings_of_the_input_reach_every_layer() -> None:
    assert found("learned/none")["unique"].holds is True


def test_encodings_that_act_together_are_asked_together() -> None:
    findings = found("rotary&alibi")
    assert (findings["bounded"].holds, findings["decaying"].holds) == (False, True)
    assert findings["norm_preserving"].said.startswith("Queries and keys change by at most")
    assert found("sinusoidal&alibi")["relative"].holds is False


@pytest.mark.parametrize("scaling", ["linear", "ntk", "dynamic_ntk", "ntk_by_parts", "llama3", "yarn"])
def test_scalings_stay_relative_and_yarn_alone_stretches(scaling: str) -> None:
    findings = found(f"rotary+{scaling}")
    assert findings["relative"].holds is True
    assert findings["norm_preserving"].holds is (scaling != "yarn")
    assert findings["unique"].said.startswith("Scaled to 4 times the training length: ")
    assert findings["decaying"].number != found("rotary")["decaying"].number


def test_random_positions_tell_places_apart_but_not_by_their_distance() -> None:
    findings = found("rotary+random")
    assert (findings["unique"].holds, findings["relative"].holds) == (True, False)
    assert findings["relative"].said.startswith("With positions drawn at random: tokens moved by ")


@pytest.mark.parametrize("name", ["cope", "t5", "learned", "transformer_xl"])
def test_parameters_that_start_near_zero_are_drawn(name: str) -> None:
    finding = found(name)["equivariant"]
    assert (finding.number or 0) > 1
    assert "of 4 draws of its parameters: " in finding.said


def test_values_count_too() -> None:
    assert found("shaw(keys=False, max_distance=2000)")["unique"].holds is True
    assert found("shaw(keys=False)")["unique"].holds is False


def test_without_positions_a_causal_mask_still_tells_order() -> None:
    said = found("none")["equivariant"].said
    assert float(said.rpartition("under a causal mask, ")[2].rstrip(".")) > 0.1


@pytest.mark.thin(2)
@pytest.mark.parametrize("size", [Size(dim=32, heads=2), Size(dim=128, heads=8, layers=1)])
@pytest.mark.parametrize("name", ["alibi", "rotary", "t5", "learned", "kerple", "sinusoidal", "tupe"])
def test_other_sizes_find_the_same(name: str, size: Size) -> None:
    other = probes.measure(parse(name), Settings(train_length=32, size=size))
    for key, finding in found(name).items():
        assert other[key].holds is finding.holds, (key, other[key])


@pytest.mark.parametrize("name", ["fire", "rotary+random"])
def test_measurements_repeat_and_leave_the_global_generator_alone(name: str) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = probes.measure(parse(name), Settings())
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    assert probes.measure(parse(name), Settings()) == first
