"""What ``situs compare`` leaves in its folder besides the records: table, figures and report."""

from __future__ import annotations

from situs.lab.comparing.records import TrialRecord
from situs.lab.running.store import Store
from situs.plots.comparison.figures import figures
from situs.plots.comparison.report import report_html
from situs.plots.comparison.table_csv import table_csv
from situs.plots.comparison.view import View
from situs.plots.style import png


def write(view: View, store: Store[TrialRecord]) -> None:
    """Write table, figures and report, each file whole or not at all."""
    store.write("table.csv", table_csv(view))
    for name, figure in figures(view).items():
        store.write(f"figures/{name}.png", png(figure))
    store.write("report.html", report_html(view))
