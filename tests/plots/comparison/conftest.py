"""Records that several tests read, summarised once."""

import pytest

from situs.plots.comparison.view import View
from tests.plots.comparison.sample import make_records, view_of


@pytest.fixture(scope="session")
def view() -> View:
    """Everything at once: text, retrieval and another task; failures, an ended table and an odd name."""
    return view_of(make_records(tasks=("text", "passkey", "copy")))
