"""Texts of tests are short: they are served as long ones are, but where a test asks for them as they are."""

from collections.abc import Iterator

import pytest

from situs.huggingface.short import as_long


@pytest.fixture(autouse=True)
def served_as_long(request: pytest.FixtureRequest) -> Iterator[None]:
    """Serve inputs as long ones, unless the test is marked ``short``."""
    if request.node.get_closest_marker("short") is not None:
        yield
        return
    with as_long():
        yield
