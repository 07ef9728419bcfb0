"""What ``situs compare`` leaves in its folder besides the records: table, figures and report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from situs.lab.store import Store
from situs.plots.compare import figures
from situs.plots.report import report_html
from situs.plots.style import png
from situs.plots.table import table_csv


def write(records: Mapping[str, Any], store: Store) -> None:
    """Each file whole or not at all."""
    store.write("table.csv", table_csv(records))
    for name, figure in figures(records).items():
        store.write(f"figures/{name}.png", png(figure))
    store.write("report.html", report_html(records))
