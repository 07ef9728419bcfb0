"""Drawing imports what it draws with: no kernels of attention, no models, no tasks, no engines."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from situs.lab.plain import to_json
from tests.plots.comparison.sample import make_records
from tests.plots.evaluation.sample import make_records as evaluated

pytestmark = pytest.mark.once

HEAVY = (
    "situs.attention.kernels",
    "situs.attention.layer",
    "situs.lab.model",
    "situs.lab.probing.costs",
    "situs.lab.comparing.corpus",
    "situs.lab.comparing.jobs",
    "situs.lab.comparing.tasks",
    "situs.lab.comparing.trial",
    "situs.lab.evaluating.trial",
    "situs.lab.running.team",
    "transformers",
)
COMMAND = "from situs.cli import main; assert main({!r}) == 0"


def imported(code: str, folder: Path) -> list[str]:
    """The heavy modules that are there after some code was run."""
    listing = f"import sys, json; print(json.dumps([name for name in sys.modules if name.startswith({HEAVY!r})]))"
    code = f"{code}\n{listing}"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=folder)
    found: list[str] = json.loads(ran.stdout.splitlines()[-1])
    return found


@pytest.mark.heavy
def test_plots_are_imported_without_kernels_and_tasks(tmp_path: Path) -> None:
    assert imported("import situs.plots, situs.plots.comparison.report", tmp_path) == []


@pytest.mark.heavy
def test_a_portrait_is_drawn_without_kernels_and_tasks(tmp_path: Path) -> None:
    code = (
        "import situs; from situs.plots.style import png\n"
        "for encoding in (situs.Rotary(head_dim=8), situs.ALiBi(num_heads=2), situs.Shaw(num_heads=2, head_dim=8)):\n"
        "    png(situs.plots.decay(encoding, length=8), dpi=50); png(situs.plots.attention(encoding, length=8), dpi=50)"
    )
    assert imported(code, tmp_path) == []


@pytest.mark.heavy
def test_situs_plot_writes_its_file_without_kernels_and_tasks(tmp_path: Path) -> None:
    arguments = ["plot", "t5,rotary+yarn", "--kind", "decay", "--length", "8", "--out", "a.png"]
    assert imported(COMMAND.format(arguments), tmp_path) == []
    assert (tmp_path / "a.png").exists()


def test_a_report_is_made_again_without_kernels_and_tasks(tmp_path: Path) -> None:
    records = make_records(methods=("alibi", "rotary", "rotary+yarn"), windows=4)
    (tmp_path / "records.json").write_text(json.dumps(records))
    code = COMMAND.format(["compare", "--report", str(tmp_path), "--json"]).replace("== 0", "in (0, 1)")
    assert imported(code, tmp_path) == []
    assert list((tmp_path / "figures").glob("*.png"))


def test_the_report_of_an_evaluation_is_made_again_without_transformers_and_workers(tmp_path: Path) -> None:
    (tmp_path / "records.json").write_text(to_json(evaluated(tasks=("text",), failing=False)))
    assert imported(COMMAND.format(["evaluate", "--report", str(tmp_path)]), tmp_path) == []
    assert (tmp_path / "config.json").exists()
    assert list((tmp_path / "figures").glob("*.png"))


def test_the_modules_that_are_looked_for_exist(tmp_path: Path) -> None:
    code = (
        "import situs; situs.attend, situs.Attention; import situs.lab.comparing.compare, situs.lab.evaluating.trial\n"
        "import transformers"
    )
    found = imported(code, tmp_path)
    assert [name for name in HEAVY if not any(each.startswith(name) for each in found)] == []
