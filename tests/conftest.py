"""Shapes in annotations are executed: every call of the package in a test is checked by jaxtyping and beartype.

Not in tests marked ``compiled``, which run in a second process: torch.compile cannot see through the checks.
"""

import os
import pathlib
import zlib

import hypothesis
import pytest
import torch

CHECKING_SHAPES = os.environ.get("SITUS_CHECK_SHAPES") == "1"

if CHECKING_SHAPES:
    import jaxtyping

    source = pathlib.Path(__file__).parent.parent / "src"
    paths = (path.relative_to(source).with_suffix("") for path in source.rglob("*.py"))
    names = {".".join(path.parts).removesuffix(".__init__") for path in paths}
    jaxtyping.install_import_hook(sorted(names), "beartype.beartype")

hypothesis.settings.register_profile("situs", deadline=None, derandomize=True, max_examples=40)
hypothesis.settings.load_profile("situs")


THINNED_UNDER_SHAPE_CHECKS = 16  # a shape that is annotated wrongly is found by any case of a test


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is ``heavy``. Of a test marked ``thin(n)``, whose cases repeat each other, run every n-th: always
    the same ones, chosen as if at random, so that no value of a parameter is left out by a common period. Under shape
    checks, which run what has been run already, thin every test once more. SITUS_SLOW=1 runs everything.

    Files of long tests come first, lest one worker end with a long one while the other has nothing left."""
    items.sort(key=lambda item: not _is_long(item))
    if os.environ.get("SITUS_SLOW") == "1":
        return
    cases: dict[str, list[pytest.Item]] = {}
    left_out = {item for item in items if item.get_closest_marker("heavy")}
    for item in items:
        if CHECKING_SHAPES or item.get_closest_marker("thin"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for several in cases.values():
        marker = several[0].get_closest_marker("thin")
        every = (marker.args[0] if marker else 1) * (THINNED_UNDER_SHAPE_CHECKS if CHECKING_SHAPES else 1)
        several.sort(key=lambda item: zlib.crc32(item.nodeid.encode()))
        left_out |= set(several[-(-len(several) // every) :])
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


def _is_long(item: pytest.Item) -> bool:
    """Whether the whole file is marked as one that compiles or starts processes."""
    file = item.getparent(pytest.Module)
    return file is not None and any(marker.name in ("once", "compiled") for marker in file.own_markers)


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Random data is the same in every run."""
    torch.manual_seed(0)
