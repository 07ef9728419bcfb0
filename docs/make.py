"""Remake what is committed and computed: the figures, the pages of encodings and of models, which are written from the
registry, the course's table of encodings, the page of torch features, which is written from what their tests record,
and the trained parameters that figures show.

python docs/make.py figures
python docs/make.py encodings
python docs/make.py models
python docs/make.py course
python docs/make.py torch
python docs/make.py trained [NAME ...]
"""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from matplotlib.figure import Figure

import situs
from situs.checks.measures import draw_small_parameters
from situs.cli.listing import learned_in_words, summary
from situs.encodings import bands, scaling, split
from situs.lab.naming import parse, parse_all
from situs.lab.naming.methods import OF_IMAGES
from situs.lab.probing import images
from situs.lab.probing.findings import Finding
from situs.lab.probing.properties import PROBES, measure
from situs.lab.probing.recipes import RECIPES
from situs.lab.probing.sitters import sitters_of
from situs.lab.probing.stored import as_file, file_of
from situs.lab.probing.training import train
from situs.lab.settings import Settings
from situs.plots import KINDS, suiting
from situs.plots.style import png
from situs.registry.families import FAMILIES

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
    "learned-similarity": ("learned", "similarity"),
}
"""Beside a portrait of every encoding."""
MORE = {
    "": {"likeness": "what position does to a score", "decay": "how scores fall with distance"},
    "learned": {"learned-similarity": "how similar its positions are"},
    "rotary": {
        "speeds": "every pair rotates at its own speed",
        "rotary-decay": "how its scores change with distance",
        "wavelengths": "positions per full rotation, plain and scaled",
        "scalings": "what scalings do, over pairs and over distance",
        "axial": "on an image",
    },
}
"""Which of them stand where on the page of encodings: at its head, or under an encoding."""
ASKED = {
    "unique": "positions can be distinguished",
    "relative": "only distances count",
    "bounded": "effects stay bounded",
    "norm_preserving": "norms do not change",
    "decaying": "scores fall with distance",
    "equivariant": "does not know the order of tokens",
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
    methods = parse_all(names)
    chosen = KINDS[kind or suiting(sitters_of(methods, {}, length=2)[0])[0]]
    sitters = sitters_of(methods, {}, length=chosen.default_length or LONGER, one_model=chosen.one_model)
    return png(chosen.draw(sitters, dark=dark), dpi=DPI)


def course() -> dict[str, tuple[Callable[..., Figure], bool]]:
    """Every picture of the course by its path under docs/: the function that draws it, from the tables ``PICTURES`` in
    docs/course/draw_*.py, and whether it is for dark pages."""
    found: dict[str, tuple[Callable[..., Figure], bool]] = {}
    for file in sorted((FOLDER / "course").glob("draw_*.py")):
        for name, draw in loaded(file).PICTURES.items():
            found |= {f"figures/course-{name}{'-dark' * dark}.png": (draw, dark) for dark in (False, True)}
    return found


def loaded(file: Path) -> ModuleType:
    """Import a file that is in no package."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def encodings() -> str:
    """The page of encodings."""
    head = (
        "# Encodings\n\n"
        "Written by `make docs` from the registry: what `situs show NAME` prints, a portrait (`situs plot NAME`), and\n"
        "properties as the probes of `situs compare` measure them. Portraits of methods with parameters show trained\n"
        "ones; the caption says what they were trained on. Properties are measured on objects of the lab's size with\n"
        "random parameters, so that they do not depend on one training. Other figures: `situs plot --list`.\n"
    )
    contents = "\n".join(f"- [{name}](#{name}): {situs.entry(name).place}" for name in situs.names())
    sections = [_section(name) for name in situs.names()]
    return "\n".join([head, contents, "", *_more(""), *sections, *_strategies()])


def models() -> str:
    """The page that says which call stands for a released model."""
    lines = [
        "# Which call for which model\n",
        "Search this page for the model's name, or for `model_type` in its `config.json`. A model that is not listed\n"
        "is most often the first row: look at `rope_parameters` (in older files `rope_theta` and `rope_scaling`).\n"
        "`situs show NAME` lists the models of one encoding.\n\n"
        "Names in calls stand for numbers of a `config.json`:\n\n"
        "| name | in `config.json` |\n|---|---|\n"
        "| `head_dim` | the same, or hidden_size / num_attention_heads |\n"
        "| `rotary_dim` | head_dim x partial_rotary_factor |\n"
        "| `rope_theta`, `factor`, `low_freq_factor`, `high_freq_factor` | the same, in rope_parameters |\n"
        "| `original_length` | original_max_position_embeddings |\n"
        "| `qk_rope_head_dim`, `qk_head_dim` | the same; qk_nope_head_dim + qk_rope_head_dim |\n"
        "| `sinks` | not there: a layer's parameter |\n"
        "| `relative`, `gate`, `bias_gate` | not there: features of a layer's tokens |\n\n"
        "Numbers are those of one released model of the row; put in your own. The encoding goes to\n"
        "`situs.attend(q, k, v, encoding=encoding)` or `situs.Attention(encoding=encoding)`; where no arguments of\n"
        "`attend` are shown, decoders add `causal=True`. Encodings of the input (`Learned`, `LearnedGrid`,\n"
        "`Sinusoidal`) stand before the first layer: `x = encoding(x)`. Where several rows name a model, each is for\n"
        "some of its layers. Norms of queries and keys are the layer's own: `q` and `k` are what comes out of them,\n"
        "unless a note says otherwise.\n\n"
        "Written by `make docs` from `situs.registry.families`. Every call is run by the tests, and for the model\n"
        "types that are listed frequencies are compared with those that transformers computes by default.\n",
    ]
    for each in FAMILIES:
        call = f"encoding = {each.encoding}"
        if each.attend:
            call += f"\nsitus.attend(q, k, v, encoding=encoding, {each.attend})"
        lines += [f"## {each.models}\n", f"```text\n{call}\n```\n"]
        lines += [f"Note: {each.note}.\n"] if each.note else []
        lines += [f"Model types: {', '.join(f'`{name}`' for name in each.types)}.\n"] if each.types else []
    return "\n".join(lines)


def _strategies() -> list[str]:
    """What rotary takes as ``scaling`` and ``split``."""
    lines = []
    of_scalings = "Scalings of rotary", (scaling, bands)
    for title, modules in (of_scalings, ("Splits of rotary", (split,))):
        lines += [f"\n## {title}\n", "| class | what it does | options |\n|---|---|---|"]
        for name, cls in (each for module in modules for each in inspect.getmembers(module, inspect.isclass)):
            own = cls.__module__ in [module.__name__ for module in modules]
            if own and name[0] != "_" and dataclasses.is_dataclass(cls):
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
    found = _of_image(name) if name in OF_IMAGES else measure(parse(name), Settings())
    lines = ["| property | measured | how |\n|---|---|---|"]
    for probe in PROBES:
        finding = found[probe]
        holds = {True: "yes", False: "no", None: "not asked"}[finding.holds]
        lines.append(f"| {ASKED[probe]} | {holds} | {_within_rounding(finding.said)} |")
    return lines


def _of_image(name: str) -> dict[str, Finding]:
    own = {"dim": images.DIM, "num_heads": images.HEADS, "head_dim": images.DIM // images.HEADS}
    size, known = (7, 7), situs.entry(name).options
    sizes = {"size": size, "window": size, **own}
    options = {option: value for option, value in sizes.items() if option in known}
    (sitter,) = sitters_of([parse(name)], options, length=2, untrained=True)
    draw_small_parameters(sitter.encodings)
    return images.measure(sitter.encodings[0], size)


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


def torch_features(lines: Iterable[str]) -> str:
    """The page of torch features, of the lines that tests/torch_features record; raises where a cell has none."""
    from tests.torch_features.table import FEATURES, ROWS

    outcomes: dict[tuple[str, str, str], set[str]] = {}
    for said in map(json.loads, lines):
        outcomes.setdefault((said["group"], said["feature"], said["row"]), set()).add(said["outcome"])
    parts = [
        "# Torch features\n\n"
        "Written by `python docs/make.py torch` from what the tests in `tests/torch_features` record. A cell says yes\n"
        "where outputs and gradients are those of a plain eager call, by `situs.attend`, by `situs.Attention` or by\n"
        "both; an encoding of the input stands before them. A number leads to what torch itself refuses there,\n"
        "without Situs: there an encoding is refused in the same words, never wrong.\n"
    ]
    for group, features in FEATURES.items():
        reasons: list[str] = []
        parts += [f"## {group}\n", *(f"- **{name}**: {says}" for name, says in features.items())]
        parts += ["", f"| encoding | {' | '.join(features)} |", "|---" * (1 + len(features)) + "|"]
        for row in ROWS:
            cells = [_cell(outcomes[group, feature, row], reasons) for feature in features]
            parts.append(f"| {row} | {' | '.join(cells)} |")
        parts += ["", *(f"{number}. {reason}" for number, reason in enumerate(reasons, 1)), *[""] * bool(reasons)]
    return "\n".join(parts)


def _cell(outcomes: set[str], reasons: list[str]) -> str:
    """Yes, no, or the number of the reason that torch gives; the worst counts where there are several."""
    if outcomes <= {"yes"} or "no" in outcomes:
        return "no" if "no" in outcomes else "yes"
    reason = max(outcomes - {"yes"})
    if reason not in reasons:
        reasons.append(reason)
    return f"({reasons.index(reason) + 1})"


def _recorded() -> list[str]:
    """What the tests of torch features record, all of them: they run for a quarter of an hour or more."""
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "cells.jsonl"
        record.touch()
        command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-n", "2", "tests/torch_features"]
        environment = {**os.environ, "SITUS_TORCH_RECORD": str(record), "SITUS_SLOW": "1", "OMP_NUM_THREADS": "1"}
        subprocess.run(command, check=False, cwd=FOLDER.parent, env=environment)
        return record.read_text(encoding="utf-8").splitlines()


def main() -> int:
    """Remake one of them."""
    what = sys.argv[1:]
    if what == ["figures"]:
        drawn = ((path, figure(*choice)) for path, choice in wanted().items())
        taught = ((path, png(draw(dark=dark), dpi=DPI)) for path, (draw, dark) in course().items())
        for path, data in itertools.chain(drawn, taught):
            (FOLDER / path).parent.mkdir(exist_ok=True)
            (FOLDER / path).write_bytes(data)
            print(f"{FOLDER.name}/{path}  {len(data) // 1024} KiB")
        return 0
    if what[:1] == ["trained"]:
        for name in what[1:] or RECIPES:
            training = train(RECIPES[name])
            data = as_file(training)
            file_of(name).write_bytes(data)
            print(f"{file_of(name).name}  {len(data) / 1024:.1f} KiB  loss {training.loss:.3f}", flush=True)
        return 0
    if what == ["encodings"]:
        (FOLDER / "encodings.md").write_text(encodings(), encoding="utf-8")
        return 0
    if what == ["models"]:
        (FOLDER / "which-call.md").write_text(models(), encoding="utf-8")
        return 0
    if what == ["course"]:
        page = loaded(FOLDER / "course" / "table_of_encodings.py").page()
        (FOLDER / "course" / "10-choosing.md").write_text(page, encoding="utf-8")
        return 0
    if what == ["torch"]:
        sys.path.insert(0, str(FOLDER.parent))  # where the tests are
        (FOLDER / "torch.md").write_text(torch_features(_recorded()), encoding="utf-8")
        return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
