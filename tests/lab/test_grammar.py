"""Method names as people write them, taken apart once."""

import copy
import pickle
from typing import Any

import pytest

from situs.lab.naming import Method, parse, parse_all, require_additions
from tests.raising import raises_exactly


def names(method: Method) -> list[list[str]]:
    return [[part.name for part in layer] for layer in method.pattern]


def test_commas_within_brackets_separate_no_names() -> None:
    text = "shaw(max_distance=3), alibi(asymmetric=True, slopes=(0.5, 0.25), slopes_ahead=(1, 2)),rotary"
    written = ["shaw(max_distance=3)", "alibi(asymmetric=True, slopes=(0.5, 0.25), slopes_ahead=(1, 2))", "rotary"]
    assert [method.name for method in parse_all(text)] == written


@pytest.mark.parametrize("sign", ["+", "/", "&", ","])
def test_no_sign_separates_within_brackets(sign: str) -> None:
    (method,) = parse_all(f"own(x='1e{sign}5', y=('2{sign}3',))")
    assert names(method) == [["own"]]
    assert method.parts[0].options == {"x": f"1e{sign}5", "y": (f"2{sign}3",)}


def test_layers_alternate_and_have_several() -> None:
    method = parse("rotary & shaw(x='a/b&c') / none")
    assert names(method) == [["rotary", "shaw"], ["none"]]
    assert [part.text for part in method.parts] == ["rotary", "shaw(x='a/b&c')", "none"]
    assert str(method) == method.name == method.base == "rotary&shaw(x='a/b&c')/none"


def test_additions_come_in_their_order() -> None:
    method = parse(" rotary(base=1e+5)+random+yarn ")
    assert (method.base, method.added) == ("rotary(base=1e+5)", ("random", "yarn"))
    assert (method.scaling, method.randomised) == ("yarn", True)
    assert method.name == "rotary(base=1e+5)+random+yarn"
    assert method.trained == parse("rotary(base=1e+5)+random")
    assert method.without_last.without_last == parse("rotary(base=1e+5)")
    plain = parse("alibi")
    assert (plain.added, plain.scaling, plain.randomised, plain.trained) == ((), None, False, plain)


def test_only_scalings_are_taken_for_scalings() -> None:
    written = parse_all("alibi,rotary+yarn,rotary(base=1e+5)+linear,rotary+axial,rotary(base=1e+5),rotary+random")
    assert [method.scaling for method in written] == [None, "yarn", "linear", None, None, None]


def test_methods_are_equal_by_what_is_written_and_can_be_keys_copied_and_sent() -> None:
    method = parse("own:Cls(sizes=[1, 2])+yarn")
    assert method == parse("own:Cls(sizes=[1, 2])+yarn") != parse("own:Cls(sizes=[1, 3])+yarn")
    assert {method: 1}[parse("own:Cls(sizes=[1, 2])+yarn")] == 1
    assert pickle.loads(pickle.dumps(method)) == copy.deepcopy(method) == method
    assert method.parts[0].of_ones_own
    assert not parse("rotary").parts[0].of_ones_own


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a+yern", "a+yern: + must be followed by one of yarn, ntk; got 'yern'. Did you mean 'yarn'?"),
        ("a+", "a+: + must be followed by one of yarn, ntk; got ''."),
        ("a+yarn+x", "a+yarn+x: + must be followed by one of yarn, ntk; got 'x'."),
        ("a+yarn+ntk", "a+yarn+ntk: + must add one scaling at most, since each sets all frequencies of rotary; got "
         "yarn and ntk."),
    ],
)  # fmt: skip
def test_additions_that_nobody_knows_are_refused(name: str, message: str) -> None:
    with raises_exactly(ValueError, message):
        require_additions(parse(name), ["yarn", "ntk"])


def test_nothing_can_be_added_to() -> None:
    with raises_exactly(
        ValueError, "+yarn: + must stand behind an encoding, since something is added to it; got nothing there."
    ):
        parse("+yarn")


@pytest.mark.parametrize("text", ["", " , "])
def test_nothing_is_no_name(text: str) -> None:
    with raises_exactly(
        ValueError, f"encodings must be names separated by commas, such as rotary,alibi; got {text!r}."
    ):
        parse_all(text)


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        ("rotary", "rotary", {}),
        ("rotary()", "rotary", {}),
        ("my_module:Own(base=1e+5, sizes=(2, 3), kind='log')", "my_module:Own", {"base": 1e5, "sizes": (2, 3),
         "kind": "log"}),
    ],
)  # fmt: skip
def test_options_are_python_literals(text: str, name: str, options: dict[str, Any]) -> None:
    (part,) = parse(text).parts
    assert (part.text, part.name, part.options) == (text, name, options)


@pytest.mark.parametrize("part", ["shaw(3)", "shaw(max_distance=x)", "shaw(max_distance=3", "shaw(max_distance=3)x"])
def test_other_options_are_refused(part: str) -> None:
    with raises_exactly(
        ValueError,
        "options must be written shaw(name=value, ...) with plain values, such as shaw(max_distance=32); got "
        f"{part!r}.",
    ):
        parse(part)
