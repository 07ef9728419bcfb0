"""Remake what is committed under docs/: the figures, and the page of encodings, which is written from the registry.

python docs/make.py figures
python docs/make.py encodings
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from pathlib import Path
from typing import Any

import situs
from situs.cli.listing import learned_in_words, summary
from situs.encodings import scalings, splits
from situs.lab import image_probes, named
from situs.lab.methods import OF_IMAGES
from situs.lab.methods import parse as parse_method
from situs.lab.probes import PROBES, measure
from situs.lab.trial import Settings
from situs.plots import KINDS, suiting
from situs.plots.style import png

FOLDER = Path(__file__).parent
DPI = 150  # twice what most screens show, and still small files
LONGER = 8192  # where a kind leaves the text's length open
HERO = "sinusoidal,learned,rotary,xpos,alibi,kerple,t5,sandwich,fire,shaw,transformer_xl,deberta"
FIGURES = {
    "likeness": (HERO, "likeness"),
    "decay": ("rotary,xpos,alibi,kerple,sandwich", "decay"),
    "wavelengths": ("rotary,rotary+linear,rotary+ntk,rotary+yarn,rotary+llama3", "wavelengths"),
    "scalings": ("rotary", "scalings"),
    "speeds": ("rotary", "speeds"),
    "rotary-decay": ("rotary", "decay"),
    "axial": ("rotary+axial", "grid"),
}
"""Beside a portrait of every encoding."""
MORE = {
    "": {"likeness": "what position does to a score", "decay": "how scores fall with distance"},
    "rotary": {
        "speeds": "every pair has a speed of its own",
        "rotary-decay": "how its scores sway with distance",
        "wavelengths": "positions a turn, plain and scaled",
        "scalings": "what scalings do, over pairs and over distance",
        "axial": "on an image",
    },
}
"""Which of them stand where on the page of encodings: at its head, or under an encoding."""
ASKED = {
    "unique": "places are told apart",
    "relative": "only distances count",
    "bounded": "effects stay bounded",
    "norm_preserving": "lengths are kept",
    "decaying": "scores fall with distance",
    "equivariant": "blind to order",
}


def wanted() -> dict[str, tuple[str, str, bool]]:
    """Every committed figure by its path under docs/: names, kind, and whether it is for dark pages."""
    chosen = {name: (name, "") for name in situs.names()} | FIGURES
    return {
        f"figures/{file}{'-dark' * dark}.png": (names, kind, dark)
        for file, (names, kind) in chosen.items()
        for dark in (False, True)
    }


def figure(names: str, kind: str, dark: bool) -> bytes:
    """One of them; a portrait where no kind is named."""
    chosen = KINDS[kind or suiting(named.from_names(names, {}, length=2)[0])[0]]
    sitters = named.from_names(names, {}, length=chosen.default_length or LONGER)
    return png(chosen.draw(sitters, dark=dark), dpi=DPI)


def encodings() -> str:
    """The page of encodings."""
    head = (
        "# Encodings\n\n"
        "Written by `make docs` from the registry: what `situs show NAME` prints, a portrait (`situs plot NAME`), and\n"
        "properties as the probes of `situs compare` measure them, on objects of the lab's size with random numbers\n"
        "where training would put some. Other figures of an encoding: `situs plot --list`.\n"
    )
    contents = "\n".join(f"- [{name}](#{name}): {situs.entry(name).place}" for name in situs.names())
    sections = [_section(name) for name in situs.names()]
    return "\n".join([head, contents, "", *_more(""), *sections, *_strategies()])


def _strategies() -> list[str]:
    """What rotary takes as ``scaling`` and ``split``."""
    lines = []
    for title, module in (("Scalings of rotary", scalings), ("Splits of rotary", splits)):
        lines += [f"\n## {title}\n", "| class | what it does | options |\n|---|---|---|"]
        for name, cls in inspect.getmembers(module, inspect.isclass):
            if cls.__module__ == module.__name__ and name[0] != "_" and dataclasses.is_dataclass(cls):
                said = " ".join((inspect.getdoc(cls) or "").split())
                options = ", ".join(f"`{each.name}`" for each in dataclasses.fields(cls))
                lines.append(f"| `situs.{name}` | {_code(said)} | {options} |")
    return [*lines, ""]


def _more(where: str) -> list[str]:
    return [picture(f"figures/{file}", alt) + "\n" for file, alt in MORE.get(where, {}).items()]


def _section(name: str) -> str:
    facts = summary(situs.entry(name))
    lines = [
        f"\n## {name}\n",
        f"`{facts['class']}`: {facts['summary']}\n",
        picture(f"figures/{name}", f"{name}: its portrait"),
        *_more(name),
        f"\n    {facts['formula']}\n",
        "| | |\n|---|---|",
        f"| place | {facts['place']} |",
        f"| paper | {facts['paper']} |",
        f"| learned | {learned_in_words(facts['learned'])} |",
        *(f"| {whose} | {_code(choice)} |" for whose, choice in facts["dialects"].items()),
    ]
    if facts["options"]:
        lines += ["\n| option | default | meaning |\n|---|---|---|"]
        lines += [_option(option) for option in facts["options"]]
    return "\n".join([*lines, "", *_card(name)])


def _option(option: dict[str, Any]) -> str:
    default = "required" if option["required"] else f"`{option['default']}`"
    return f"| `{option['name']}` | {default} | {_code(option['meaning'])} |"


def _code(text: str) -> str:
    return text.replace("|", "\\|").replace("``", "`")


def _card(name: str) -> list[str]:
    """What the probes found, without digits that differ between machines."""
    found = _of_image(name) if name in OF_IMAGES else measure(parse_method(name), Settings())
    lines = ["| property | measured | how |\n|---|---|---|"]
    for probe in PROBES:
        finding = found[probe]
        holds = {True: "yes", False: "no", None: "not asked"}[finding["holds"]]
        lines.append(f"| {ASKED[probe]} | {holds} | {_within_rounding(finding['said'])} |")
    return lines


def _of_image(name: str) -> dict[str, dict[str, Any]]:
    own, size, known = {"dim": image_probes.DIM, "num_heads": image_probes.HEADS}, (7, 7), situs.entry(name).options
    sizes = {"size": size, "window": size, **own}
    options = {option: value for option, value in sizes.items() if option in known}
    (sitter,) = named.from_names(name, options, length=2)
    return image_probes.measure(sitter.encodings[0], size)


def _within_rounding(said: str) -> str:
    words = []
    for word in said.split(" "):
        try:
            small = 0 < abs(float(word)) < 1e-4
        except ValueError:
            small = False
        words.append("less than 0.0001" if small else word)
    return " ".join(words).replace("at most less than", "less than")


def picture(path: str, alt: str) -> str:
    """A figure in the colours of the page."""
    return (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="{path}-dark.png">'
        f'<img src="{path}.png" alt="{alt}" width="760"></picture>'
    )


def main() -> int:
    """Remake one or the other."""
    what = sys.argv[1:]
    if what == ["figures"]:
        for path, choice in wanted().items():
            data = figure(*choice)
            (FOLDER / path).parent.mkdir(exist_ok=True)
            (FOLDER / path).write_bytes(data)
            print(f"{FOLDER.name}/{path}  {len(data) // 1024} KiB")
        return 0
    if what == ["encodings"]:
        (FOLDER / "encodings.md").write_text(encodings(), encoding="utf-8")
        return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
