"""Every Python block of the README and the documentation runs, and links lead somewhere."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.compiled


def run_blocks(document: pathlib.Path, folder: pathlib.Path) -> str:
    """Run a document's blocks, one after another, as a script."""
    script = folder / f"{document.stem}.py"
    script.write_text("\n".join(BLOCK.findall(document.read_text(encoding="utf-8"))), encoding="utf-8")
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_code_blocks_run_in_order(document: pathlib.Path, tmp_path: pathlib.Path) -> None:
    printed = run_blocks(document, tmp_path)
    if document.name == "README.md":
        assert "Swing(head_dim=16) keeps the contract: " in printed


def test_links_lead_to_files() -> None:
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text(encoding="utf-8")):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
