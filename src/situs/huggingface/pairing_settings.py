"""Read how a checkpoint pairs channels, and write it into the configuration of a converted one.

    rope_interleave ...    a setting that the model type has, which transformers reads
    situs_pairing          in config.json where the model type has none, and in adapter_config.json; only Situs reads it

An adapter has no configuration of positions: that is its base model's, whose pairing it has unless it is marked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from situs.functional.rotation import PAIRINGS, Pairing
from situs.huggingface.checkpoint_files import ADAPTER, CONFIG, Checkpoint
from situs.huggingface.query_key_weights import rotated_layers
from situs.models.extending import main_settings
from situs.models.positions import ModelPositions
from situs.models.readers.families import family_of
from situs.models.reading import read
from situs.models.sources.strict import parse
from situs.registry.spelling import did_you_mean

PAIRING_KEY = "situs_pairing"
"""The setting that says a pairing which the model type does not have; Situs reads it, other programs do not."""


@dataclass(frozen=True)
class Converted:
    """Hold the settings of a converted checkpoint."""

    settings: Mapping[str, Any]
    own: bool
    """Whether transformers runs its model with that pairing."""
    marked: bool
    """Whether the settings have the mark that only Situs reads."""


@dataclass(frozen=True)
class PairedModel:
    """Hold the positions of a checkpoint's model, and an adapter's own settings."""

    positions: ModelPositions
    adapter: Mapping[str, Any] | None = None

    @property
    def marked(self) -> Pairing | None:
        """The pairing that an adapter's settings say; a model's is read with its positions."""
        mark: Pairing | None = None if self.adapter is None else self.adapter.get(PAIRING_KEY)
        if mark is not None:
            require_pairing(f"{PAIRING_KEY} of {ADAPTER}", mark)
        return mark

    def converted(self, pairing: Pairing) -> Converted:
        """Make the settings of the same checkpoint with another pairing."""
        settings, own = _paired(self.positions, pairing)
        if self.adapter is None:
            return Converted(settings, own=own, marked=not own)
        adapted = {key: each for key, each in self.adapter.items() if key != PAIRING_KEY}
        if own and _pairings(self.positions) == {pairing}:
            return Converted(adapted, own=True, marked=False)
        return Converted({**adapted, PAIRING_KEY: pairing}, own=own, marked=True)


def require_pairing(name: str, value: object) -> None:
    """Raise unless a value is a pairing."""
    if value not in PAIRINGS:
        raise ValueError(
            f"{name} must be {' or '.join(map(repr, PAIRINGS))}, since channels are paired one way or the other; got "
            f"{value!r}.{did_you_mean(str(value), PAIRINGS)}"
        )


def read_model(checkpoint: Checkpoint, config: object) -> PairedModel:
    """Read the configuration of a checkpoint's model; ``config`` is what is given in place of the folder's."""
    file = checkpoint.folder / checkpoint.config
    if checkpoint.adapter:
        settings = parse(file.read_bytes(), str(file))
        if settings.get("fan_in_fan_out"):
            raise ValueError(f"fan_in_fan_out of {file} must be false, since rows are reordered; got true.")
        return PairedModel(read(_base(settings) if config is None else config), settings)
    if config is None and not file.is_file():
        raise ValueError(
            f"source must have {CONFIG}, since it says the number and width of heads; got "
            f"{str(checkpoint.folder)!r} without it. Give the file as config (--config) where it is elsewhere."
        )
    return PairedModel(read(file if config is None else config))


def _base(adapter: Mapping[str, Any]) -> Path:
    """The configuration of the model that an adapter belongs to."""
    base = adapter.get("base_model_name_or_path")
    if isinstance(base, str) and (Path(base) / CONFIG).is_file():
        return Path(base) / CONFIG
    raise ValueError(
        f"config must be given for an adapter, since its heads stand in the base model's configuration; got none, and "
        f"{base!r} is no folder here."
    )


def _paired(model: ModelPositions, pairing: Pairing) -> tuple[dict[str, Any], bool]:
    """A model's configuration with another pairing, and whether transformers runs it so."""
    config: dict[str, Any] = json.loads(json.dumps(model.config, default=dict))
    part = main_settings(config, model)
    part.pop(PAIRING_KEY, None)
    flag = family_of(model.main.model_type).interleaved
    if isinstance(flag, str):
        part[flag] = pairing == "interleaved"
    if _pairings(read(config)) == {pairing}:
        return config, True
    part[PAIRING_KEY] = pairing
    return config, False


def _pairings(model: ModelPositions) -> set[Pairing]:
    return {each.pairing for each in rotated_layers(model, source=None).values()}
