"""Load a released model from its folder: safetensors only, without a network, and no code that stands beside them."""

from __future__ import annotations

import hashlib
import inspect
import json
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from situs import models
from situs.lab.comparing.budget import memory, size_in_words
from situs.lab.evaluating.records import FOLDER, ModelFacts, Trial
from situs.models.positions import ModelPositions
from situs.models.training import training_of

DTYPES = ("auto", "float32", "bfloat16", "float16")
HASHED_AT_ONCE = 1 << 24
PROBED = 8
"""Tokens of the text whose last one is changed, to see whether those before it notice."""


@dataclass(frozen=True)
class Loaded:
    """Hold a model that can be run."""

    folder: Path
    model: Any
    positions: ModelPositions
    facts: ModelFacts
    dtype: str
    device: str
    bytes: int
    """Of its weights."""
    unused: tuple[str, ...] = ()
    """Weights of the folder that the model has no place for."""

    def serves(self, trial: Trial) -> bool:
        """Tell whether this is the model of a trial, where and as the trial asks for it."""
        found = (self.facts.hash, self.dtype, self.device)
        return found == (trial.model, trial.setup.dtype, trial.setup.device)

    @property
    def vocabulary(self) -> int:
        """Ids that the model has rows for."""
        return int(self.model.get_input_embeddings().weight.shape[0])

    @property
    def chooses(self) -> bool:
        """Whether it can be asked for the logits of some tokens only."""
        return "logits_to_keep" in inspect.signature(self.model.forward).parameters

    def logits(self, tokens: Tensor, at: Tensor) -> Tensor:
        """Run one text, (length,), and give the logits that follow some of its tokens, (tokens, vocabulary)."""
        ids, at = tokens[None].to(self.model.device), at.to(self.model.device)
        given = {"logits_to_keep": at} if self.chooses else {}
        found: Tensor = self.model(input_ids=ids, use_cache=False, **given).logits[0]
        return (found if self.chooses else found[at]).float()


def read_positions(folder: Path) -> ModelPositions:
    """Read the configuration of a folder that holds a checkpoint, before anything large is loaded."""
    from situs.huggingface.checkpoint_files import require_weights

    require_weights(folder, FOLDER)
    if not (folder / "config.json").is_file():
        raise ValueError(f"{FOLDER} must have a config.json, since it says what the model is; got {str(folder)!r}.")
    found = models.read(folder)
    _require_own_pairing(folder, found)
    return found


def _require_own_pairing(folder: Path, positions: ModelPositions) -> None:
    """Raise for a checkpoint that was converted to a pairing which transformers does not have for its model type."""
    from situs.huggingface.pairing_settings import PAIRING_KEY

    marked = positions.main.config.get(PAIRING_KEY)
    if marked is not None:
        raise ValueError(
            f"{FOLDER} must have the pairing that transformers rotates by, since the model runs there; got "
            f"{str(folder)!r}, which was converted to {marked!r}. Evaluate the checkpoint that it was made from, whose "
            f"positions are the same, or convert it back with situs convert."
        )


def trained_length(positions: ModelPositions, original: int | None) -> int:
    """Tell how many tokens a model was trained on: what is given, or else what its configuration says."""
    if original is not None:
        return original
    training = training_of(positions.main)
    if training is None:
        raise ValueError(
            f"--original must be given for {positions.main.model_type}, since its configuration names no length that "
            f"it was trained on; got none."
        )
    return training.length


def load(folder: Path, *, positions: ModelPositions, dtype: str = "auto", device: str = "cpu") -> Loaded:
    """Load a model for causal language modelling; raises in a sentence where the folder holds none."""
    import transformers

    logging: Any = import_module("transformers.utils.logging")  # which has no types
    logging.disable_progress_bar()
    config = _config(folder)
    known = transformers.MODEL_FOR_CAUSAL_LM_MAPPING
    if type(config) not in known:
        raise ValueError(
            f"{FOLDER} must hold a model that predicts the next token, since its loss is measured; got "
            f"{config.model_type}, for which transformers has no such class."
        )
    if getattr(config, "is_encoder_decoder", False):
        raise ValueError(
            f"{FOLDER} must hold a model that predicts the next token from those before it alone, since its loss is "
            f"measured so; got {config.model_type} with an encoder."
        )
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # what matters of its report on weights is said below, in a sentence
    _require_room(folder, device)
    auto: Any = transformers.AutoModelForCausalLM
    try:
        model, info = auto.from_pretrained(
            folder, config=config, dtype=dtype, use_safetensors=True, local_files_only=True, trust_remote_code=False,
            output_loading_info=True,
        )  # fmt: skip
    except (OSError, RuntimeError, ImportError) as problem:
        reason = _misfit(auto, config, folder) or str(problem).strip().partition("\n")[0]
        raise ValueError(
            f"{FOLDER} must hold weights that fit its configuration; got {str(folder)!r}: {reason}"
        ) from None
    except (ValueError, TypeError) as problem:
        raise ValueError(f"{FOLDER} must load in transformers; got {str(folder)!r}: {problem}") from None
    finally:
        logging.set_verbosity(verbosity)
    _require_all(sorted(info["missing_keys"]), folder)
    model = model.to(device).eval()
    count = sum(parameter.numel() for parameter in model.parameters())
    size = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    facts = ModelFacts(
        folder.resolve().name, hash_of(folder), config.model_type, count, positions.main.lengths.limit
    )  # fmt: skip
    loaded = Loaded(
        folder, model, positions, facts, str(model.dtype).removeprefix("torch."), device, size,
        tuple(sorted(info["unexpected_keys"])),
    )  # fmt: skip
    _require_causal(loaded)
    return loaded


def _config(folder: Path) -> Any:
    import transformers

    named = json.loads((folder / "config.json").read_text(encoding="utf-8-sig")).get("model_type")
    if named not in transformers.CONFIG_MAPPING:
        raise ValueError(
            f"model_type must be one that transformers {transformers.__version__} has, since code that a folder brings "
            f"along is not run; got {named!r}."
        )
    try:
        return transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as problem:  # of many kinds, from checks of single settings
        said = " ".join(str(problem).split())
        raise ValueError(
            f"{FOLDER} must have a config.json that transformers can read; got {str(folder)!r}: {said}"
        ) from problem


def _misfit(auto: Any, config: Any, folder: Path) -> str:
    """Name a weight of another shape than the configuration says; "" where none is found."""
    from situs.huggingface.checkpoint_files import read_header

    try:
        with torch.device("meta"):
            wanted = {name: tuple(each.shape) for name, each in auto.from_config(config).state_dict().items()}
        headers = [read_header(path) for path in sorted(folder.glob("*.safetensors"))]
    except Exception:  # which is another problem than that of shapes
        return ""
    for name, each in ((name, each) for header in headers for name, each in header.weights.items()):
        found = tuple(each["shape"])
        if wanted.get(name, found) != found:
            return f"{name} is {found} there, and {wanted[name]} by the configuration."
    return ""


def _require_room(folder: Path, device: str) -> None:
    """Raise where the weights do not fit in memory, before they are loaded."""
    stored = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    room = memory() if device == "cpu" else None
    if room is not None and stored > room:
        raise ValueError(
            f"{FOLDER} must fit in memory; got {str(folder)!r} with {size_in_words(stored)} of weights, of "
            f"{size_in_words(room)}. Use a machine with more, or another --device."
        )


def _require_all(missing: list[str], folder: Path) -> None:
    """Raise where weights are missing, which transformers would fill with random numbers."""
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise ValueError(
            f"{FOLDER} must have all weights, since missing ones would be random numbers; got {str(folder)!r} without "
            f"{', '.join(missing[:3])}{more}."
        )


def _require_causal(loaded: Loaded) -> None:
    """Raise where tokens see those after them, as in BERT and its kin, which transformers loads for this task too."""
    if not loaded.vocabulary or not (loaded.positions.main.lengths.limit or PROBED) >= PROBED:
        return
    ids = torch.arange(1, PROBED + 1) % loaded.vocabulary
    other = torch.cat((ids[:-1], (ids[-1:] + 1) % loaded.vocabulary))
    with torch.no_grad():
        first, second = (loaded.logits(each, torch.arange(PROBED - 1)) for each in (ids, other))
    changed = float((first - second).abs().max())
    if changed > max(1e-4, 8 * torch.finfo(loaded.model.dtype).eps) * float(first.abs().max()):
        raise ValueError(
            f"{FOLDER} must hold a model that predicts the next token from those before it alone, since its loss is "
            f"measured so; got {loaded.facts.model_type}, whose tokens see those after them."
        )


def hash_of(folder: Path) -> str:
    """Give the hash of a folder's configuration and weights."""
    digest = hashlib.blake2b(digest_size=16)
    for path in (folder / "config.json", *sorted(folder.glob("*.safetensors"))):
        digest.update(path.name.encode())
        with path.open("rb") as file:
            while part := file.read(HASHED_AT_ONCE):
                digest.update(part)
    return digest.hexdigest()


def synchronise(device: str) -> None:
    """Wait until a device has done what it was given."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
