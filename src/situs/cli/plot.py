"""``situs plot``: one figure of one encoding, or of several."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import tempfile
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import situs
from situs.cli.check import parse, printing_to_stderr
from situs.cli.writing import require_writable, write
from situs.registry import canonical, did_you_mean, is_own, scaling_named
from situs.registry.origins import place_of, sentence_of
from situs.registry.own import require_imported

if TYPE_CHECKING:
    from situs.lab.naming import Method
    from situs.lab.probing.sitters import Sitter
    from situs.plots import Kind

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

FORMATS = (".png", ".svg", ".pdf")
CHOICES = {
    "length": "tokens of the text",
    "train_length": "tokens that a model was trained on",
    "head": "which head, counted from 0; figures call that one head 1",
    "pair": "which pair of channels, from 0",
    "channels": "which channels, such as 0,1,8",
    "size": "patches of an image, such as 14x14",
}


def add_commands(commands: Commands) -> None:
    """Add the command to the parser."""
    plot = commands.add_parser(
        "plot",
        help="draw what an encoding does",
        description="Draw what an encoding does, computed with the same object that runs in models.",
    )
    plot.add_argument(
        "names",
        nargs="?",
        help="such as rotary, RoPE, alibi,kerple,t5, rotary+yarn(factor=8), shaw(values=False), FILE.py:CLASS",
    )
    plot.add_argument(
        "options", nargs="*", metavar="OPTION=VALUE", help="arguments of the encodings, as Python literals"
    )
    plot.add_argument("--kind", help="which kind of figure; the first that suits the encoding if left out. See --list")
    plot.add_argument(
        "--out", type=Path, metavar="FILE", help="file to write, .png, .svg or .pdf; NAMES-KIND.png if left out"
    )
    plot.add_argument("--show", action="store_true", help="open the figure in a viewer")
    plot.add_argument("--dark", action="store_true", help="draw for dark pages")
    for name, meaning in CHOICES.items():
        plot.add_argument(_flag(name), metavar=name.upper(), help=meaning)
    plot.add_argument(
        "--no-causal", action="store_true", help="for attention: let every token see all others, later ones too"
    )
    plot.add_argument("--untrained", action="store_true", help="draw parameters as initialised, not trained ones")
    plot.add_argument("--list", action="store_true", help="list the kinds of figures, and which suit which encoding")
    plot.add_argument("--json", action="store_true", help="with --list: print JSON, for programs")
    plot.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Draw, write whole or not at all, and say where."""
    try:
        from situs.plots import style
    except ModuleNotFoundError as problem:
        missing = str(problem.name).partition(".")[0]
        cure = "pip install 'situs[lab]', or '.[lab]' in the repository"
        raise ValueError(f"figures need {missing}. Install it: {cure}.") from problem
    if options.list:
        return _list(options.names, as_json=options.json)
    if options.names is None:
        raise ValueError("names must be given, such as situs plot rotary; got none. See situs plot --list.")
    if options.json:
        raise ValueError("--json must be used with --list, since a figure is not data; got it without --list.")
    out = None if options.out is None else require_writable("--out", options.out, endings=FORMATS)
    try:
        kind, sitters, chosen = _wanted(options)
        figure = kind.draw(sitters, dark=options.dark, **chosen)
    except (MemoryError, RuntimeError) as problem:
        if isinstance(problem, RuntimeError) and "allocate" not in str(problem):
            raise
        raise ValueError(f"{options.names} needs more memory than there is. Choose smaller sizes.") from problem
    names = ",".join(sitter.name for sitter in sitters)
    named = f"{re.sub(r'[^A-Za-z0-9]+', '-', names).strip('-').lower()[:60].strip('-')}-{kind.name}"
    if out is None:
        folder = Path(tempfile.mkdtemp(prefix="situs-plot-")) if options.show else Path.cwd()
        out = require_writable("--out", folder / f"{named}.png", endings=FORMATS)
    write(style.image(figure, out.suffix.lower().removeprefix(".")), out)
    print(out)
    if options.show and not webbrowser.open(out.resolve().as_uri()):
        raise ValueError(f"--show needs a viewer, and none was found; the figure is in {out}.")
    return 0


def _wanted(options: argparse.Namespace) -> tuple[Kind, list[Sitter], dict[str, Any]]:
    """Choose the kind, make its encodings and read its options."""
    from situs.lab.probing.sitters import TRAINED, sitters_of
    from situs.plots import KINDS

    if options.kind is not None and options.kind not in KINDS:
        cure = did_you_mean(options.kind, KINDS)
        raise ValueError(f"--kind must be one of {', '.join(KINDS)}; got {options.kind!r}.{cure}")
    names = [option for option in options.options if _is_name(option)]
    if names:
        joined = ",".join([options.names, *names])
        raise ValueError(f"names must be separated by commas; got {names[0]!r} behind a space. Write {joined}.")
    own = dict(parse(option) for option in options.options)
    given = _given(options)
    length, trained = given.get("length"), given.get("train_length")
    methods = _found(options.names)
    kind = _portrait(sitters_of(methods, own, length=2)) if options.kind is None else KINDS[options.kind]
    stretching = any(method.scaling is not None for method in methods)
    for name in given:
        if name not in kind.options and not (name == "train_length" and stretching):
            takes = ", ".join(_flag(each) for each in kind.options if each in (*CHOICES, "causal"))
            raise ValueError(f"{kind.name} takes {takes}; got {_flag(name)}.")
    kind.require_lengths(given)  # before anything large is built
    trained = trained or TRAINED
    default = kind.default_length
    stretched = length if length is not None and length > trained else None
    made = sitters_of(
        methods, own, length=length or default or 2, needed=length or 1, trained=trained, stretched=stretched,
        untrained=options.untrained, one_model=kind.one_model,
    )  # fmt: skip
    _require_finite(made)
    if stretching and default is None and "length" in kind.options:  # for scalings that choose by the text's length
        given.setdefault("length", stretched or min(4 * trained, kind.longest))
    return kind, made, {name: value for name, value in given.items() if name in kind.options}


def _found(names: str) -> list[Method]:
    """Take names apart, and raise in one sentence where a file of one's own cannot be imported."""
    from situs.lab.naming import parse_all

    methods = parse_all(names)
    for part in (part for method in methods for part in method.parts if part.of_ones_own):
        require_imported(part.name)
    return methods


def _require_finite(sitters: list[Sitter]) -> None:
    """Raise unless encodings of one's own give finite numbers, which alone can be drawn."""
    from situs.checks.bench import Bench
    from situs.checks.form import hint, require_finite

    for sitter in sitters:
        for encoding in sitter.encodings:
            if type(encoding).__module__.startswith("situs."):
                continue
            try:
                require_finite(Bench.around(encoding))
            except (AssertionError, RuntimeError) as problem:
                place, cure = place_of(problem, with_code=True), hint(problem, encoding)
                if cure:
                    raise ValueError(f"{sentence_of(problem, place)}. {cure}") from problem
                if place or isinstance(problem, RuntimeError):
                    raise  # of the encoding's own
                end = "" if str(problem).endswith("?") else "."
                raise ValueError(f"{sitter.name} cannot be drawn: {problem}{end}") from problem


def _is_name(option: str) -> bool:
    """Whether an encoding's name stands where an option is expected."""
    return is_own(option.partition("=")[0]) or any(find(option) is not None for find in (canonical, scaling_named))


def _portrait(sitters: list[Sitter]) -> Kind:
    """Choose the first kind that suits all sitters."""
    from situs.plots import KINDS, suiting

    fitting = [name for name in suiting(sitters[0]) if all(name in suiting(each) for each in sitters)]
    kinds = [KINDS[name] for name in fitting if KINDS[name].many or len(sitters) == 1]
    if not kinds:
        names = ",".join(sitter.name for sitter in sitters)
        raise ValueError(
            f"names must have a kind of figure in common, since they are drawn in one; got {names}. Draw each by "
            "itself, or see situs plot --list."
        )
    return kinds[0]


def _flag(name: str) -> str:
    """Write a choice as on the command line."""
    return "--no-causal" if name == "causal" else f"--{name.replace('_', '-')}"


def _given(options: argparse.Namespace) -> dict[str, Any]:
    """Read the choices that were made, as values."""
    found: dict[str, Any] = {}
    for name in CHOICES:
        text = getattr(options, name)
        if text is not None:
            found[name] = _value(name, text)
    if options.no_causal:
        found["causal"] = False
    return found


def _value(name: str, text: str) -> int | tuple[int, ...]:
    """Read a choice as it was written: a number, several separated by commas, or two separated by an x."""
    form, example = {"channels": (r"\d+(,\d+)*", "0,1,8"), "size": (r"\d+x\d+", "14x14")}.get(name, (r"\d+", "64"))
    if not re.fullmatch(form, text):
        raise ValueError(f"{_flag(name)} must be written like {example}; got {text!r}.")
    numbers = tuple(int(part) for part in re.split("[,x]", text))
    return numbers if name in ("channels", "size") else numbers[0]


def _list(chosen: str | None, *, as_json: bool) -> int:
    """Print the kinds, then which suit which encoding: all of them, or those that were named."""
    from situs.lab.probing.sitters import sitters_of
    from situs.plots import KINDS, suiting

    names = ",".join([*situs.names(), "rotary+axial", "sinusoidal(axes=2)"]) if chosen is None else chosen
    with printing_to_stderr() if as_json else contextlib.nullcontext():
        suited = {each.name: suiting(each) for method in _found(names) for each in sitters_of([method], {}, length=2)}
    if as_json:
        kinds = [
            {"name": kind.name, "about": kind.about, "suits": kind.suits.words, "several": kind.many,
             "options": {name: each.default for name, each in kind.options.items() if name in (*CHOICES, "causal")}}
            for kind in KINDS.values()
        ]  # fmt: skip
        print(json.dumps({"kinds": kinds, "encodings": suited}, indent=2))
        return 0
    width = max(len(name) for name in KINDS)
    for kind in KINDS.values():
        print(f"{kind.name:<{width}}  {kind.about}{' (several at once)' if kind.many else ''}")
    print()
    width = max(len(name) for name in suited)
    for name, kinds_of in suited.items():
        print(f"{name:<{width}}  {', '.join(kinds_of)}")
    return 0
