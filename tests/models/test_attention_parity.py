"""What else a layer does: scale, window, sinks and causality are those of transformers' own attention modules."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

from situs.models.positions import Layer
from situs.models.reading import read
from tests.models.hugging_face import config_of, modeling_of
from tests.models.test_rotary_parity import ROTARY, SETTINGS

pytestmark = pytest.mark.once

UNLIKE = {
    # modules that do not say by themselves what they do
    "deepseek_v4": {"window"},  # beside the window, all layers see compressed tokens
    "dia_decoder": {"causal"},  # told by the decoder
    "exaone4": {"window"},  # held by full layers too, whose mask has none
    "exaone_moe": {"window"},
    "kolibri1": {"window"},
    "t5_gemma_module": {"causal"},  # of the encoder or of the decoder
}


def attention_of(config: Any, index: int) -> Any:
    """The attention module of a layer, without memory for its weights; None where none can be made from these alone."""
    module = modeling_of(config)
    found: list[Any] = []
    for name, each in vars(module).items():
        if inspect.isclass(each) and name.endswith("Attention") and each.__module__ == module.__name__:
            takes = inspect.signature(each.__init__).parameters
            own = type(config).__name__ in str(takes["config"].annotation) if "config" in takes else False
            if own and "layer_idx" in takes and "Cross" not in name:
                found.append(each)
    for each in found:
        try:
            with torch.device("meta"):
                return each(config, layer_idx=index)
        except Exception:  # whose arguments are others
            continue
    return None


@pytest.mark.thin(10)
@pytest.mark.parametrize("model_type", ROTARY)
def test_layers_attend_as_those_of_transformers(model_type: str) -> None:
    config = config_of(model_type, **SETTINGS.get(model_type, {}))
    for numbers, layer in read(config).groups():
        if layer.kind in ("linear", "none"):
            continue
        attention = attention_of(config, numbers[0])
        if attention is not None:
            told = [each for each in compared(attention, layer) if each.split()[0] not in UNLIKE.get(model_type, ())]
            assert told == [], f"{type(attention).__name__}, layer {numbers[0]}: {told}"


def compared(attention: Any, layer: Layer) -> list[str]:
    """Where a module and what was read of it differ."""
    found = []
    scale = getattr(attention, "scaling", None)
    if isinstance(scale, float) and layer.scale != pytest.approx(scale, rel=1e-9):
        found.append(f"scale {layer.scale} instead of {scale}")
    window = getattr(attention, "sliding_window", "unknown")
    if window != "unknown" and (window or None) != layer.window:
        found.append(f"window {layer.window} instead of {window}")
    causal = getattr(attention, "is_causal", None)
    if isinstance(causal, bool) and causal != layer.causal:
        found.append(f"causal {layer.causal} instead of {causal}")
    if (getattr(attention, "sinks", None) is not None) != layer.sinks:
        found.append(f"sinks {layer.sinks}")
    return found
