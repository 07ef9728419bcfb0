"""Swin's window attentions of transformers and ours, on the same queries, keys and values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import SwinConfig, SwinModel, Swinv2Config, Swinv2Model
from transformers.models.swin.modeling_swin import SwinAttention, SwinRelativePositionBias
from transformers.models.swinv2.modeling_swinv2 import Swinv2Attention

from situs import Positions, SwinBias
from tests.parity.attention_probe import enliven
from tests.parity.score_models import (
    HEADS,
    SWIN_HEAD_DIM,
    TOLERANCE,
    assert_same,
    seen_by_swin,
    swin,
    swin_encoding,
    swin_layer,
)
from tests.parity.wide_transformers import in_float64
from tests.references import swin as formula

WIDTH = HEADS * SWIN_HEAD_DIM
SCALES = {"v1": None, "v2": 1.0}  # v2's queries bring their own
MODELS = {"v1": SwinModel, "v2": Swinv2Model}

each_version = pytest.mark.parametrize("version", ["v1", "v2"])
each_window = pytest.mark.parametrize("window", [(3, 5), (5, 2), (4, 4), (2, 2)], ids=str)
flat_windows = pytest.mark.parametrize("window", [(1, 1), (1, 5), (5, 1)], ids=str)


@pytest.fixture
def wide() -> Iterator[None]:
    """transformers computes in float64 within; else it forms v1's softmax and v2's coordinates in float32."""
    with in_float64(SwinModel, Swinv2Model):
        yield


def attention_of(version: str, window: tuple[int, int], pretrained: tuple[int, int] = (0, 0)) -> Any:
    """A window attention alone; models take square windows only."""
    attention: Any
    if version == "v1":
        config: Any = SwinConfig()
        config._attn_implementation = "eager"
        attention = SwinAttention(config, WIDTH, HEADS, window[0])
        attention.relative_position_bias = SwinRelativePositionBias(HEADS, window)
    else:
        attention = Swinv2Attention(Swinv2Config(), WIDTH, HEADS, window, pretrained)
    return enliven(attention.double().eval())


def windows(window: tuple[int, int], count: int = 3) -> Tensor:
    return torch.randn(count, window[0] * window[1], WIDTH, dtype=torch.float64)


@pytest.mark.usefixtures("wide")
@each_version
@pytest.mark.parametrize("window", [2, 4, 7])
@pytest.mark.parametrize("layer", [0, 1], ids=["plain", "shifted"])
def test_attention_in_a_model_equals_ours(version: str, window: int, layer: int) -> None:
    model = swin(MODELS[version], window=window, grid=2 * window)
    chosen = swin_layer(model, layer)
    seen = seen_by_swin(chosen.attention, lambda: model(torch.randn(2, 3, 4 * window, 4 * window)))
    assert seen.query.shape == (8, HEADS, window * window, SWIN_HEAD_DIM)
    mask = chosen.get_attn_mask(2 * window, 2 * window, dtype=torch.float64, device="cpu") if layer else None
    if mask is not None:
        assert mask.min() == -100
        mask = mask.repeat(2, 1, 1).unsqueeze(1)  # windows of the first image, then of the second
        mask = 2 * mask if version == "v2" else mask  # which transformers adds twice
    positions = Positions.grid(window, window)
    assert_same(seen, swin_encoding(chosen.attention), positions=positions, scale=SCALES[version], mask=mask)


@pytest.mark.usefixtures("wide")
@each_version
@each_window
def test_attention_in_a_window_of_any_sides_equals_ours(version: str, window: tuple[int, int]) -> None:
    attention = attention_of(version, window)
    seen = seen_by_swin(attention, lambda: attention(windows(window)))
    assert_same(seen, swin_encoding(attention), positions=Positions.grid(*window), scale=SCALES[version])


@pytest.mark.usefixtures("wide")
@each_window
@pytest.mark.parametrize("pretrained", [(4, 4), (12, 6), (2, 3)], ids=str)
def test_attention_pretrained_with_another_window_equals_ours(
    window: tuple[int, int], pretrained: tuple[int, int]
) -> None:
    attention = attention_of("v2", window, pretrained)
    seen = seen_by_swin(attention, lambda: attention(windows(window)))
    encoding = swin_encoding(attention)
    assert encoding.trained_window == pretrained
    assert_same(seen, encoding, positions=Positions.grid(*window), scale=1.0)


@pytest.mark.usefixtures("wide")
def test_attention_in_a_model_pretrained_with_another_window_equals_ours() -> None:
    model = swin(Swinv2Model, window=6, grid=12, pretrained_window_sizes=[3])
    attention = swin_layer(model, 0).attention
    seen = seen_by_swin(attention, lambda: model(torch.randn(2, 3, 24, 24)))
    encoding = swin_encoding(attention)
    assert encoding.trained_window == (3, 3)
    assert_same(seen, encoding, positions=Positions.grid(6, 6), scale=1.0)


@pytest.mark.usefixtures("wide")
@each_version
@each_window
def test_the_bias_equals_the_released_bias_and_the_formula(version: str, window: tuple[int, int]) -> None:
    attention = attention_of(version, window)
    encoding = swin_encoding(attention)
    ours = encoding(Positions.grid(*window)).detach()[0]
    np.testing.assert_allclose(ours.numpy(), from_formula(encoding), atol=TOLERANCE)
    if version == "v1":
        assert torch.equal(ours, attention.relative_position_bias()[0])


def from_formula(encoding: SwinBias) -> Any:
    """The bias of the encoding's window, by explicit loops."""
    cells = np.array(list(np.ndindex(*encoding.window)))
    if encoding.version == "v1":
        return formula.bias_v1(encoding.table.detach().numpy(), encoding.window, cells, cells)
    weights = (each.detach().numpy() for each in (encoding.hidden.weight, encoding.hidden.bias, encoding.out.weight))
    return formula.bias_v2(encoding.window, encoding.trained_window or (0, 0), cells, cells, *weights)


@pytest.mark.usefixtures("wide")
@each_version
def test_a_window_of_one_cell_equals_ours(version: str) -> None:
    """It sees itself alone, so the bias shows in nothing, but must be finite."""
    attention = attention_of(version, (1, 1))
    seen = seen_by_swin(attention, lambda: attention(windows((1, 1))))
    encoding = swin_encoding(attention)
    assert (seen.output - seen.value).abs().max() <= TOLERANCE
    bias = encoding(Positions.grid(1, 1))
    assert bias.shape == (1, HEADS, 1, 1)
    assert bias.isfinite().all()
    if version == "v1":
        assert torch.equal(bias.flatten(), encoding.table[0])


@each_version
@flat_windows
def test_a_window_one_cell_high_or_wide_has_the_bias_of_the_formula(version: Any, window: tuple[int, int]) -> None:
    encoding = SwinBias(num_heads=HEADS, window=window, version=version, init_std=1.0).double()
    ours = encoding(Positions.grid(*window)).detach()[0]
    np.testing.assert_allclose(ours.numpy(), from_formula(encoding), atol=TOLERANCE)


@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize(("window", "finite"), [((1, 5), True), ((5, 1), False)], ids=str)
def test_released_code_does_not_scale_a_window_one_cell_high_and_divides_by_zero_in_one_a_cell_wide(
    window: tuple[int, int], finite: bool
) -> None:
    attention = attention_of("v2", window)
    theirs = attention.self.relative_coords_table.view(-1, 2)
    assert bool(theirs.isfinite().all()) == finite
    assert bool(attention(windows(window))[0].isfinite().all()) == finite
    if finite:
        assert theirs.max() == pytest.approx(np.log2(1 + 8 * 4) / 3)  # where other windows' edges have log2(9) / 3


@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize(
    "change", [{"window": (5, 3)}, {"trained_window": (4, 5)}, {"trained_window": (3, 6)}], ids=str
)
def test_an_encoding_that_is_nearly_right_is_told_apart(change: dict[str, Any]) -> None:
    attention = attention_of("v1" if "window" in change else "v2", (3, 5))
    seen = seen_by_swin(attention, lambda: attention(windows((3, 5))))
    scale = None if "window" in change else 1.0
    window = change.get("window", (3, 5))
    with pytest.raises(AssertionError, match="off by"):
        assert_same(seen, swin_encoding(attention, **change), positions=Positions.grid(*window), scale=scale)


# --- another window


@pytest.mark.parametrize(
    ("old", "new"), [((4, 4), (7, 7)), ((3, 5), (6, 4)), ((7, 7), (4, 4)), ((2, 3), (1, 1)), ((1, 1), (3, 2))], ids=str
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_a_resized_table_is_the_interpolated_table(
    old: tuple[int, int], new: tuple[int, int], dtype: torch.dtype
) -> None:
    """As the authors load a checkpoint for another window: bicubic, each head an image of offsets."""
    encoding = SwinBias(num_heads=HEADS, window=old, init_std=1.0).to(dtype)
    image = encoding.table.detach().T.reshape(1, HEADS, 2 * old[0] - 1, 2 * old[1] - 1)
    sizes = (2 * new[0] - 1, 2 * new[1] - 1)
    expected = torch.nn.functional.interpolate(image, size=sizes, mode="bicubic").view(HEADS, -1).T
    resized = encoding.resize(new)
    assert resized.window == new
    assert resized.table.dtype == dtype
    torch.testing.assert_close(resized.table.detach(), expected, atol=1e-6 if dtype == torch.float32 else 1e-12, rtol=0)


@pytest.mark.usefixtures("wide")
def test_a_resized_table_works_in_the_released_attention() -> None:
    small, large = attention_of("v1", (3, 5)), attention_of("v1", (6, 4))
    resized = swin_encoding(small).resize((6, 4))
    with torch.no_grad():
        large.relative_position_bias.relative_position_bias_table.copy_(resized.table)
    seen = seen_by_swin(large, lambda: large(windows((6, 4))))
    assert_same(seen, resized, positions=Positions.grid(6, 4))


@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize("pretrained", [(0, 0), (2, 6)], ids=str)
def test_a_resized_network_equals_the_released_attention_told_the_window_it_was_trained_with(
    pretrained: tuple[int, int],
) -> None:
    small = attention_of("v2", (3, 5), pretrained)
    large = attention_of("v2", (6, 4), (3, 5) if pretrained == (0, 0) else pretrained)
    large.load_state_dict(small.state_dict())
    seen = seen_by_swin(large, lambda: large(windows((6, 4))))
    assert_same(seen, swin_encoding(small).resize((6, 4)), positions=Positions.grid(6, 4), scale=1.0)


@each_version
@pytest.mark.parametrize("window", [(7, 7), (3, 5), (1, 1), (1, 4)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_resizing_to_the_same_window_changes_nothing(version: Any, window: tuple[int, int], dtype: torch.dtype) -> None:
    encoding = SwinBias(num_heads=HEADS, window=window, version=version, init_std=1.0).to(dtype)
    resized = encoding.resize(window)
    before, after = encoding.state_dict(), resized.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) and after[name].dtype == dtype for name in before)
    grid = Positions.grid(*window)
    assert torch.equal(resized(grid), encoding(grid))


def test_a_resized_table_is_a_copy() -> None:
    encoding = SwinBias(num_heads=HEADS, window=(3, 3))
    resized = encoding.resize((3, 3))
    with torch.no_grad():
        resized.table.zero_()
    assert encoding.table.abs().max() > 0
