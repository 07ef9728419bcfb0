"""Error messages are tested whole: name, rule, reason, value and cure."""

import os
import re
from typing import Any

import jaxtyping
import pytest

SHAPES_ARE_CHECKED = os.environ.get("SITUS_CHECK_SHAPES") == "1"


def raises_exactly(error: type[Exception], message: str) -> Any:
    """``pytest.raises`` for the whole of ``message``; where annotations are executed, they may object first."""
    whole = f"^{re.escape(message)}$"
    if SHAPES_ARE_CHECKED:
        return pytest.raises((error, jaxtyping.TypeCheckError), match=f"{whole}|^Type-check error")
    return pytest.raises(error, match=whole)
