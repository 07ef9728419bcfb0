"""Shapes in annotations are executed: every call of the package in a test is checked by jaxtyping and beartype.

Not in tests marked ``compiled``, which run in a second process: torch.compile cannot see through the checks.
"""

import os
import pathlib

import hypothesis
import pytest
import torch

if os.environ.get("SITUS_CHECK_SHAPES") == "1":
    import jaxtyping

    source = pathlib.Path(__file__).parent.parent / "src"
    paths = (path.relative_to(source).with_suffix("") for path in source.rglob("*.py"))
    names = {".".join(path.parts).removesuffix(".__init__") for path in paths}
    jaxtyping.install_import_hook(sorted(names), "beartype.beartype")

hypothesis.settings.register_profile("situs", deadline=None, derandomize=True, max_examples=40)
hypothesis.settings.load_profile("situs")


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Random data is the same in every run."""
    torch.manual_seed(0)
