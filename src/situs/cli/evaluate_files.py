"""What ``situs evaluate`` leaves in its folder besides the records: table, figures, report, and a configuration."""

from __future__ import annotations

import json

from situs.lab.evaluating.advice import advise
from situs.lab.evaluating.records import TrialRecord
from situs.lab.evaluating.scalings import extension_of, named
from situs.lab.evaluating.summary import Summary
from situs.lab.running.store import Store
from situs.plots.evaluation.figures import figures
from situs.plots.evaluation.report import report_html
from situs.plots.evaluation.tables import table_csv
from situs.plots.style import png

CONFIG = "config.json"


def write(summary: Summary, store: Store[TrialRecord]) -> None:
    """Write table, figures, report and the configuration to use, each file whole or not at all."""
    store.write("table.csv", table_csv(summary))
    for name, figure in figures(summary).items():
        store.write(f"figures/{name}.png", png(figure))
    store.write("report.html", report_html(summary))
    advice, records = advise(summary), summary.records
    if advice is None or not advice.settings:
        store.remove(CONFIG)  # that of another evaluation
    elif records.config:
        longer = extension_of(records.config, named(advice.sets), records.setup)
        store.write(CONFIG, json.dumps(longer.config, indent=2) + "\n")
