"""Records that several tests read, summarised once."""

import pytest

from situs.plots.comparison.view import View
from tests.plots.comparison.sample import make_records


@pytest.fixture(scope="session")
def view() -> View:
    """Everything at once: text, retrieval and another task; failures, an ended table and an odd name."""
    return View.of(make_records(tasks=("text", "passkey", "copy")))
