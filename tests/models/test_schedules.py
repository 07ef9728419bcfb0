"""Which layer attends how: as transformers' own configurations list it, at any number of layers."""

from __future__ import annotations

from typing import Any

import pytest

from situs.models.readers.families import FAMILIES
from situs.models.readers.schedule import KINDS
from situs.models.reading import READERS, read
from situs.models.sources.strict import ConfigError
from tests.models.hugging_face import config_of
from tests.models.test_rotary_parity import ROTARY, SETTINGS

WITH_LISTS = [name for name in ROTARY if name in FAMILIES and name not in SETTINGS]


@pytest.mark.thin(10)
@pytest.mark.parametrize("model_type", WITH_LISTS)
def test_layers_are_of_the_kinds_that_transformers_lists(model_type: str) -> None:
    for layers in (4, 13):
        try:
            config = config_of(model_type, num_hidden_layers=layers)
        except Exception:  # those whose default lists have another length
            config = config_of(model_type)
        types = getattr(config, "layer_types", None)
        if types is None:
            continue
        plain = {
            name: each for name, each in config.to_dict().items() if name not in ("layer_types", "layers_block_type")
        }
        expected = tuple(KINDS[each] for each in types)
        listed = read(config)
        assert listed.schedule() == expected
        if model_type not in ("zamba2", "zamba"):  # which list them always
            by_rule = read({**plain, "num_hidden_layers": len(types)})
            assert by_rule.schedule() == expected
            assert by_rule.layers == listed.layers


def kinds(**settings: Any) -> str:
    """The kinds of layers, each by its first letter."""
    return "".join(kind[0] for kind in read(settings).schedule())


def test_older_spellings_say_the_same() -> None:
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 6, "rope_theta": 1e4}
    qwen = {"model_type": "qwen2", "sliding_window": 32, "max_window_layers": 4, **sizes}
    assert kinds(**qwen) == "ffffff"
    assert kinds(use_sliding_window=True, **qwen) == "ffffss"
    assert kinds(model_type="gemma3_text", sliding_window_pattern=3, head_dim=16, **sizes) == "ssfssf"
    assert kinds(model_type="cohere2", sliding_window_pattern=2, **sizes) == "sfsfsf"
    assert kinds(model_type="mistral", sliding_window=8, **sizes) == "ssssss"
    assert kinds(model_type="mistral", sliding_window=None, **sizes) == "ffffff"
    assert kinds(model_type="modernbert", global_attn_every_n_layers=2, **sizes) == "fsfsfs"


def test_layers_that_are_not_understood_are_refused() -> None:
    sizes = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}
    with pytest.raises(ConfigError) as refused:
        read({**sizes, "layer_types": ["full_attention", "sliding_atention"]})
    assert str(refused.value).endswith("got 'sliding_atention'. Did you mean 'sliding_attention'?")
    with pytest.raises(ConfigError) as refused:
        read({**sizes, "layer_types": ["full_attention"]})
    assert str(refused.value) == "layer_types must name 2 layers, since the model has that many; got 1."
    with pytest.raises(ConfigError) as refused:
        read({"model_type": "recurrent_gemma", "block_types": [["attention"]]})
    assert str(refused.value) == "block_types must be a list of recurrent and attention; got [['attention']]."


def test_no_reader_is_named_twice() -> None:
    assert not set(READERS) & set(FAMILIES)
