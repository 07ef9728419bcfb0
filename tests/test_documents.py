"""Every Python block of the README and the documentation runs and prints what the page says; links lead somewhere."""

import functools
import importlib.util
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import torch
import transformers
from safetensors.torch import save_file

import situs
from situs.cli import main
from tests.anchors import anchors_of

ROOT = pathlib.Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
DOCUMENTS += [*sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "course").glob("*.md"))]
FENCED = re.compile(r"^```([^`\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
END_OF_BLOCK = "---- the block ends here ----"

pytestmark = pytest.mark.compiled


class Block(NamedTuple):
    """A Python block, and the text block that directly follows it, if one does."""

    code: str
    said: str | None


def blocks_of(text: str) -> list[Block]:
    """A document's Python blocks, in order."""
    fenced = list(FENCED.finditer(text))
    blocks = []
    for number, block in enumerate(fenced):
        if block[1] != "python":
            continue
        after = fenced[number + 1] if number + 1 < len(fenced) else None
        follows = after is not None and after[1] == "text" and not text[block.end() : after.start()].strip()
        blocks.append(Block(block[2], after[2] if after is not None and follows else None))
    return blocks


@functools.cache
def printed_by(document: pathlib.Path) -> list[str]:
    """What each block prints, when they run one after another as one script."""
    blocks = blocks_of(document.read_text(encoding="utf-8"))
    source = "\n".join(f"{block.code}\nprint({END_OF_BLOCK!r})" for block in blocks)
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder) / f"{document.stem}.py"
        script.write_text(source, encoding="utf-8")
        command = [sys.executable, "-X", "utf8", str(script)]
        ran = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False, cwd=folder)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.split(f"{END_OF_BLOCK}\n")[:-1]


def differences(document: pathlib.Path) -> list[tuple[str, str]]:
    """What the page says and what its block prints, wherever the two are not the same."""
    blocks = blocks_of(document.read_text(encoding="utf-8"))
    both = zip(blocks, printed_by(document), strict=True)
    return [(block.said, printed) for block, printed in both if block.said is not None and block.said != printed]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_code_blocks_run_in_order_and_print_the_text_blocks_after_them(document: pathlib.Path) -> None:
    assert differences(document) == []
    if document == ROOT / "README.md":
        assert "Sway(num_heads=4) keeps the contract: " in "".join(printed_by(document))
    if document.name == "mistakes.md":
        assert all(block.said for block in blocks_of(document.read_text(encoding="utf-8")))


def test_a_text_block_that_is_not_what_was_printed_is_found(tmp_path: pathlib.Path) -> None:
    page = "```python\nx = 1\nprint(x)\n```\n\n```text\n1\n```\n\n```python\nprint(x + 1)\n```\n\n{}```text\n3\n```\n"
    wrong, apart = tmp_path / "wrong.md", tmp_path / "apart.md"
    wrong.write_text(page.format(""), encoding="utf-8")
    apart.write_text(page.format("Something else prints\n\n"), encoding="utf-8")
    assert differences(wrong) == [("3\n", "2\n")]
    assert differences(apart) == []


REPEATED = [
    ("none", "64", "2.29"), ("sinusoidal", "128", "+1.251"), ("rotary", "128", "+.293"), ("rotary", "256", "+1.039"),
    ("rotary+yarn", "256", "+.184"), ("t5", "1024", "+.404"), ("alibi", "1024", "+.005"),
    ("rotary", "passkey at 1024", "30 %"), ("alibi", "passkey at 1024", "85 %"),
]  # fmt: skip
"""What mistakes.md takes from the README's table."""


def test_measured_numbers_that_pages_repeat_are_those_of_the_readme() -> None:
    lines = (
        (ROOT / "README.md")
        .read_text(encoding="utf-8")
        .partition("| encoding | loss at 64 |")[2]
        .split("\n\n")[0]
        .splitlines()
    )
    columns = ["64", "128", "256", "512", "1024", "passkey at 1024"]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    table = {name: dict(zip(columns, numbers, strict=True)) for name, *numbers in cells}
    prose = FENCED.sub("", (ROOT / "docs" / "mistakes.md").read_text(encoding="utf-8"))
    assert [(name, column, table[name][column]) for name, column, _ in REPEATED] == REPEATED
    said = [number for _, _, number in REPEATED]
    assert set(re.findall(r"\+\d?\.\d{3}\b", prose)) == {number for number in said if number.startswith("+")}
    assert all(number in prose for number in said)
    assert table["none"]["passkey at 1024"] == table["kerple"]["passkey at 1024"] == "100 %"
    losses = {name: row["128"] for name, row in table.items() if row["128"][0] in "+-"}
    assert max(losses, key=lambda name: float(losses[name])) == "sinusoidal"


def test_links_lead_to_files() -> None:
    for document in DOCUMENTS:
        text = FENCED.sub("", document.read_text(encoding="utf-8"))  # code may look like a link
        targets = re.findall(r"\]\(([^)#:]+)\)", text) + re.findall(r'(?:src|srcset)="([^":]+)"', text)
        for target in targets:
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_links_to_headings_lead_to_headings() -> None:
    for document in DOCUMENTS:
        for target, anchor in re.findall(
            r"\]\(([^)#:]*)#([^)]+)\)", FENCED.sub("", document.read_text(encoding="utf-8"))
        ):
            page = document.parent / target if target else document
            assert anchor in anchors_of(page), f"{document.name} links to {target}#{anchor}"


def commands_of(document: pathlib.Path) -> list[list[str]]:
    """The lines for a shell that call situs, without their remarks."""
    lines = re.findall(r"^    (situs .*)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return [shlex.split(line, comments=True)[1:] for line in lines]


SMALL = [
    "--steps",
    "2",
    "--lengths",
    "1,2",
    "--seeds",
    "1",
    "--workers",
    "1",
    "--dim",
    "16",
    "--layers",
    "1",
    "--heads",
    "2",
    "--tasks",
    "text",
]
SMALLER = {"compare": SMALL, "evaluate": ["--windows", "2"]}


@pytest.mark.once
@pytest.mark.parametrize(
    "document",
    [ROOT / "README.md", pytest.param(ROOT / "docs" / "guide.md", marks=pytest.mark.heavy)],
    ids=lambda path: path.name,
)
def test_lines_for_a_shell_run(
    document: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = blocks_of(document.read_text(encoding="utf-8"))
    defining = [block.code for block in blocks if re.search(r"^class ", block.code, re.MULTILINE)]
    assert defining
    (tmp_path / "my_module.py").write_text(defining[0], encoding="utf-8")
    (tmp_path / "my_texts").mkdir()
    for number in range(8):
        text = "\n".join(f"line {line} of text {number}: {line * number}" for line in range(400))
        (tmp_path / "my_texts" / f"{number}.txt").write_text(text, encoding="utf-8")
    config = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}
    (tmp_path / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 4096}), encoding="utf-8")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_bytes((tmp_path / "config.json").read_bytes())
    names = [f"model.layers.{layer}.self_attn.{part}_proj.weight" for layer in range(2) for part in "qkvo"]
    save_file({name: torch.zeros(64, 64) for name in names}, tmp_path / "model" / "model.safetensors")
    sizes: dict[str, Any] = {**config, "num_key_value_heads": 4, "intermediate_size": 64, "vocab_size": 256}
    released = transformers.AutoConfig.for_model(**sizes, max_position_embeddings=64)
    transformers.AutoModelForCausalLM.from_config(released).save_pretrained(tmp_path / "my_model")
    commands = commands_of(document)
    assert commands
    for command in commands:
        small = SMALLER.get(command[0], [])  # the last of an option's values counts
        code = main([*command, *small])
        if command[0] == "golden":  # which a port that is right fills with the same numbers
            (tmp_path / "filled.json").write_bytes((tmp_path / "golden.json").read_bytes())
        expected = int(command[0] == "diff" and "longer.json" in command)  # as diff has it where files differ
        assert code == expected, f"situs {shlex.join(command)}\n{capsys.readouterr().err}"


@functools.cache
def maker() -> ModuleType:
    """docs/make.py."""
    spec = importlib.util.spec_from_file_location("docs_make", ROOT / "docs" / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_page_of_encodings_is_what_the_registry_and_the_probes_say() -> None:
    committed = (ROOT / "docs" / "encodings.md").read_text(encoding="utf-8")
    number = re.compile(r"-?\d[\d.,e+-]*")  # digits may differ between machines
    assert number.sub("#", committed) == number.sub("#", maker().encodings()), "run make docs"
    assert all(f"\n## {name}\n" in committed for name in situs.names())


def test_page_of_models_is_what_the_registry_says() -> None:
    committed = (ROOT / "docs" / "which-call.md").read_text(encoding="utf-8")
    assert committed == maker().models(), "run make docs"


def test_committed_figures_are_those_that_make_figures_makes() -> None:
    folder = ROOT / "docs"
    wanted = {*maker().wanted(), *maker().course()}
    assert {str(path.relative_to(folder)) for path in folder.glob("figures/*")} == wanted
    assert all(path.stat().st_size < 64 * 1024 for path in folder.glob("figures/*"))
