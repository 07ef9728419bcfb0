"""Names as people write them, taken apart."""

from typing import Any

import pytest

from situs.lab.grammar import name_of, options_of, split, split_additions, split_layers, split_names
from tests.raising import raises_exactly


def test_commas_within_brackets_separate_no_names() -> None:
    text = "shaw(max_distance=3), alibi(asymmetric=True, slopes=(0.5, 0.25), slopes_ahead=(1, 2)),rotary"
    names = ["shaw(max_distance=3)", "alibi(asymmetric=True, slopes=(0.5, 0.25), slopes_ahead=(1, 2))", "rotary"]
    assert split_names(text) == names


@pytest.mark.parametrize("sign", [",", "+", "/", "&"])
def test_no_sign_separates_within_brackets(sign: str) -> None:
    assert split(f"a{sign}b(x=1e{sign}5, y=(2{sign}3)){sign}", sign) == ["a", f"b(x=1e{sign}5, y=(2{sign}3))", ""]


def test_layers_take_turns_and_have_several() -> None:
    assert split_layers("rotary & shaw(x='a/b&c')/none") == (("rotary", "shaw(x='a/b&c')"), ("none",))


def test_additions_come_in_their_order() -> None:
    assert split_additions("rotary(base=1e+5)+random+yarn", ["yarn", "random"]) == (
        "rotary(base=1e+5)", ["random", "yarn"],
    )  # fmt: skip
    assert split_additions("alibi", []) == ("alibi", [])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a+yern", "a+yern: + must be followed by one of yarn, ntk; got 'yern'. Did you mean 'yarn'?"),
        ("a+", "a+: + must be followed by one of yarn, ntk; got ''."),
        ("a+yarn+x", "a+yarn+x: + must be followed by one of yarn, ntk; got 'x'."),
        ("+yarn", "+yarn: + must stand behind an encoding, since something is added to it; got nothing there."),
    ],
)
def test_additions_that_nobody_knows_are_refused(name: str, message: str) -> None:
    with raises_exactly(ValueError, message):
        split_additions(name, ["yarn", "ntk"])


@pytest.mark.parametrize("text", ["", " , "])
def test_nothing_is_no_name(text: str) -> None:
    with raises_exactly(
        ValueError, f"encodings must be names separated by commas, such as rotary,alibi; got {text!r}."
    ):
        split_names(text)


@pytest.mark.parametrize(
    ("part", "name", "options"),
    [
        ("rotary", "rotary", {}),
        ("rotary()", "rotary", {}),
        ("my_module:Own(base=1e+5, sizes=(2, 3), kind='log')", "my_module:Own", {"base": 1e5, "sizes": (2, 3),
         "kind": "log"}),
    ],
)  # fmt: skip
def test_options_are_python_literals(part: str, name: str, options: dict[str, Any]) -> None:
    assert (name_of(part), options_of(part)) == (name, options)


@pytest.mark.parametrize("part", ["shaw(3)", "shaw(max_distance=x)", "shaw(max_distance=3", "shaw(max_distance=3)x"])
def test_other_options_are_refused(part: str) -> None:
    with raises_exactly(
        ValueError,
        "options must be written shaw(name=value, ...) with plain values, such as shaw(max_distance=32); got "
        f"{part!r}.",
    ):
        options_of(part)
