"""The readers that docs/golden.md shows are compiled and run on a file."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess

import pytest

from situs.models import golden
from tests.models.golden_configs import CONFIGS

pytestmark = pytest.mark.once

PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "golden.md").read_text(encoding="utf-8")
FENCED = re.compile(r"^```([^`\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

LANGUAGES = {
    "cpp": ("reader.cpp", ["g++", "-std=c++17", "-Wall", "-Werror", "reader.cpp", "-o", "reader"], ["./reader"]),
    "rust": ("reader.rs", ["rustc", "--edition", "2021", "-D", "warnings", "reader.rs", "-o", "reader"], ["./reader"]),
    "js": ("reader.js", [], ["node", "reader.js"]),
}


def block(language: str) -> str:
    (found,) = [code for name, code in FENCED.findall(PAGE) if name == language]
    return str(found)


@pytest.mark.parametrize("language", LANGUAGES)
def test_readers_in_other_languages_find_the_numbers(language: str, tmp_path: pathlib.Path) -> None:
    file, compile_, run = LANGUAGES[language]
    tool = (compile_ or run)[0]
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    made = golden(CONFIGS["llama 3.1"])
    made.save(tmp_path / "golden.safetensors")
    (tmp_path / file).write_text(block(language), encoding="utf-8")
    if compile_:
        subprocess.run(compile_, cwd=tmp_path, check=True)
    ran = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout == "true\n"
    wrong = {**made.arrays, "layer0.rotated_q": made["layer0.rotated_q"].roll(1, -1)}
    type(made)(made.meta, wrong).save(tmp_path / "golden.safetensors")
    ran = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout == "false\n"
