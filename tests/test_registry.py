"""The registry: a name means one encoding, whether it was loaded or not."""

import importlib
from typing import Any

import pytest
import torch

import situs
from situs import registry
from situs.encodings import alibi
from tests.raising import raises_exactly


class ALiBi(situs.NoPE):  # type: ignore[misc]
    """A user's own, of the same name as ours."""


@pytest.fixture(params=["loaded", "not loaded"])
def ours(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What "alibi" means, before its module was loaded and after."""
    entries = {name: situs.entry(name) for name in situs.names()}  # all: one that loads in a test is forgotten with it
    loaded = request.param == "loaded"
    monkeypatch.setattr(registry, "_entries", {"alibi": entries["alibi"]} if loaded else {})
    return "situs.encodings.alibi.ALiBi" if loaded else "situs.encodings.alibi"


def add(name: str, cls: type[situs.Encoding]) -> None:
    situs.register(name=name, paper="-", formula="-")(cls)


def test_nobody_replaces_one_of_ours(ours: str) -> None:
    for cls, address in ((ALiBi, f"{__name__}.ALiBi"), (situs.XPos, "situs.encodings.xpos.XPos")):
        with raises_exactly(
            ValueError, f"name must be new, since 'alibi' already means {ours}; got it again for {address}."
        ):
            add("alibi", cls)


def test_the_same_class_may_come_again(ours: str, monkeypatch: pytest.MonkeyPatch) -> None:
    add("alibi", situs.ALiBi)
    assert registry._entries["alibi"].cls is situs.ALiBi
    monkeypatch.setattr(alibi, "ALiBi", situs.ALiBi)  # whatever reloading puts there is taken away again
    importlib.reload(alibi)
    assert situs.entry("alibi").cls is alibi.ALiBi is not situs.ALiBi


def test_ones_own_name_means_one_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    add("own", ALiBi)
    add("own", ALiBi)
    assert situs.entry("own").cls is ALiBi
    with raises_exactly(
        ValueError,
        f"name must be new, since 'own' already means {__name__}.ALiBi; got it again for situs.encodings.nope.NoPE.",
    ):
        add("own", situs.NoPE)


def test_a_name_that_stands_for_another_is_taken() -> None:
    with raises_exactly(
        ValueError, f"name must be new, since 'nope' already means 'none'; got it again for {__name__}.ALiBi."
    ):
        add("nope", ALiBi)
    assert situs.entry("nope") is situs.entry("none")


@pytest.mark.parametrize(
    ("name", "known", "options", "message"),
    [
        ("one", ("base", "scaling"), ("base", "skaling"), "one takes base, scaling; got 'skaling'. Did you mean "
         "'scaling'?"),
        ("one", ("base",), ("x", "y"), "one takes base; got 'x'."),
        ("none", (), ("base",), "none takes no options; got 'base'."),
    ],
)  # fmt: skip
def test_an_option_that_is_not_known_is_refused(
    name: str, known: tuple[str, ...], options: tuple[str, ...], message: str
) -> None:
    with raises_exactly(TypeError, message):
        registry.require_options(name, known, options)
    registry.require_options(name, known, known)


@pytest.mark.parametrize("name", situs.names())
def test_every_encoding_tells_its_sizes(name: str) -> None:
    sizes = {"dim": 16, "head_dim": 8, "num_heads": 2, "max_length": 12, "size": (2, 3)}
    encoding = situs.entry(name).build(**sizes)
    options = situs.entry(name).options
    assert encoding.num_heads == (2 if "num_heads" in options else None)
    assert encoding.head_dim == (8 if "head_dim" in options else None)
    assert encoding.usable_length == {"learned": 12, "learned_grid": 6, "tupe": 12}.get(name)
    assert encoding.extent == {"swin": (7, 7), "vitdet": (14, 14)}.get(name)


@pytest.mark.parametrize("name", [name for name in situs.names() if name != "none"])
def test_options_of_our_encodings_stay_what_they_were_made_with(name: str) -> None:
    encoding = situs.entry(name).build(dim=16, head_dim=8, num_heads=2, max_length=12, size=(2, 3))
    options = [option for option in encoding.config if option in vars(encoding)]
    assert options
    for option in options:
        made = vars(encoding)[option]
        with pytest.raises(AttributeError, match=rf"^{option} must be given when {type(encoding).__name__} is made, "):
            setattr(encoding, option, made)
        assert vars(encoding)[option] is made


def test_options_of_ones_own_encoding_may_be_assigned(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slope(situs.OffsetBias):
        def __init__(self, *, num_heads: int, slope: float) -> None:
            super().__init__()
            self.num_heads, self.slope = num_heads, slope

        def rule(self, device: torch.device, dtype: torch.dtype) -> Any:
            return lambda offset, head: self.slope * offset.to(dtype) + 0 * head

    monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    add("slope", Slope)
    encoding = situs.create("slope", num_heads=2, slope=1.0)
    encoding.slope = 3.0
    assert encoding(situs.Positions.range(2))[0, 1].tolist() == [[0.0, 3.0], [-3.0, 0.0]]


def test_creating_takes_known_options_alone() -> None:
    with raises_exactly(
        TypeError,
        "rotary takes head_dim, base, rotary_dim, pairing, channels, reverse, scaling, split; got 'headdim'. Did "
        "you mean 'head_dim'?",
    ):
        situs.create("rotary", headdim=16)
    assert isinstance(situs.create("nope"), situs.NoPE)
    assert isinstance(situs.create("rope", head_dim=8), situs.Rotary)
