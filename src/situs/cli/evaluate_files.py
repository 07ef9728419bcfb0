"""What ``situs evaluate`` leaves in its folder besides the records: table, figures, report, and a configuration."""

from __future__ import annotations

import json
from pathlib import Path

from situs.lab.comparing.store import Store
from situs.lab.evaluating.advice import advise
from situs.lab.evaluating.scalings import named, whole_config
from situs.lab.evaluating.summary import Summary
from situs.plots.evaluation.figures import figures
from situs.plots.evaluation.report import report_html
from situs.plots.evaluation.tables import table_csv
from situs.plots.style import png

CONFIG = "config.json"


def write(summary: Summary, store: Store, model: Path) -> None:
    """Write table, figures, report and the configuration to use, each file whole or not at all."""
    store.write("table.csv", table_csv(summary))
    for name, figure in figures(summary).items():
        store.write(f"figures/{name}.png", png(figure))
    store.write("report.html", report_html(summary))
    advice = advise(summary)
    if advice is not None and advice.settings:
        config = whole_config(model, named(advice.sets), summary.records.setup)
        store.write(CONFIG, json.dumps(config, indent=2) + "\n")
    else:
        store.remove(CONFIG)  # that of another evaluation
