"""The spectrum of a released model: labels stand where neither a line of a length nor a curve crosses them."""

from __future__ import annotations

from typing import Any

import pytest

from situs.models import inspect
from tests.models.released_models import config_of

pytestmark = pytest.mark.once


@pytest.mark.thin(3)
@pytest.mark.parametrize(("name", "target"), [
    ("qwen2_7b", 34000), ("qwen2_7b", 40960), ("qwen2_7b", 131072), ("gemma_3_1b", 36000), ("gemma_3_1b", 131072),
    ("gemma_3_1b", 5_000_000), ("gemma_4_31b", 300_000), ("gemma_4_31b", 5_000_000), ("deepseek_v4_flash", 1_200_000),
])  # fmt: skip
def test_no_label_lies_on_a_line_or_a_curve(name: str, target: int) -> None:
    report = inspect(config_of(name), target=target)
    figure = report.figure()
    figure.canvas.draw()
    (axes,) = figure.axes
    training = report.parts[0].training
    assert training is not None
    heights = [axes.transData.transform((0.0, each))[1] for each in (training.length, target)]
    texts: list[Any] = [text for text in axes.texts if text.get_text()]
    assert len(texts) >= 2
    for text in texts:
        box = text.get_window_extent()
        crossed = [height for height in heights if box.y0 < height < box.y1]
        assert not crossed, text.get_text()
        points = [axes.transData.transform(line.get_xydata()) for line in axes.lines if line.get_marker() != "None"]
        hidden = [point for each in points for point in each if box.contains(*point)]
        assert not hidden, text.get_text()
