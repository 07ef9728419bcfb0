"""What tests ask for by name."""

from collections.abc import Iterator

import pytest
import torch

from situs.rotation.fused import planning


@pytest.fixture
def two_threads() -> Iterator[None]:
    """As many for torch and the compiled loop, and no plans left that were made for them."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)
    planning._plan.cache_clear()
