"""Rotation of a loaded model by Situs, for scalings that go by bands of distance (SelfExtend, ReRoPE, DualChunk).

Such a scaling rotates a query otherwise for near keys than for far ones, so that no cosines and sines given to a model
express it. Within a block the model's rotary modules give cosines of 1 and sines of 0, which leave queries and
keys as they are, and its layers ask for attention by a name whose function rotates them in ``situs.attend``.

    with rotated_in_bands(model, situs.SelfExtend(window=1024, group=8)):
        model(ids)

Before the bands come in, the model is run so with the rotation that it has: what differs from its own code is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel

from situs import models
from situs.encodings.bands import Bands
from situs.encodings.base import Encoding
from situs.huggingface.checking import tolerance
from situs.huggingface.families.borrowing import HELD
from situs.huggingface.interface import PlacedBias, situs_attention
from situs.huggingface.planning import plan
from situs.huggingface.planning_rotation import has_cosines, rotary_modules
from situs.huggingface.seeing import situs_mask
from situs.models.extendable import far_layers, full_rotation, why_not
from situs.models.extending import main_path
from situs.models.numbers import rotation_call
from situs.models.positions import Layer, ModelPositions

NAME = "situs_rotating"
BANDED = "situs_rotated_in_bands"
"""The attribute by which a module that rotates refuses to be copied."""
TOKENS = 24  # of the self-test


class Uncopied:
    """Refuse copies and pickles of a model, and of parts that rotate: they would keep the bands beyond the block."""

    def __init__(self, model: str) -> None:
        self._model = model

    def __reduce__(self) -> NoReturn:
        raise ValueError(
            f"model must be copied or pickled outside of rotated_in_bands(), since a copy would keep the bands beyond "
            f"the block; got a {self._model} within such a block."
        )


def rotating_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **options: Any
) -> tuple[Tensor, None]:
    """Attend for a layer of transformers whose queries and keys are not rotated yet."""
    encoding: Encoding | None = vars(module).get(HELD)
    bias = None if encoding is None else PlacedBias(encoding)
    return situs_attention(module, query, key, value, attention_mask, position_bias=bias, **options)


@contextmanager
def rotated_in_bands(model: nn.Module, scaling: Bands) -> Iterator[nn.Module]:
    """Rotate the queries and keys of a loaded model by bands of distance, for the length of a ``with`` block.

    Layers that see a window within the trained length stay as they are. Whole texts only: a cache would hold keys
    that are not rotated. Within the block, the model cannot be copied or pickled.
    """
    if not isinstance(model, PreTrainedModel):
        raise TypeError(
            f"model must be a model of transformers, since its rotary modules and its attention are replaced; got "
            f"{type(model).__name__}."
        )
    refuse_within_bands(model, "rotated by other bands", since="one block alone takes its rotation over")
    positions = models.read(model.config)
    main = positions.main
    _require_plain(main)
    part: Any = model.config
    for key in main_path(positions.config, positions):
        part = getattr(part, key)
    served = _attention(model, part, main)
    rotary = rotary_modules(model, part.model_type, since="cosines are set to 1")
    _require_alone(served)
    far = {layer for _, layer in far_layers(main)}
    device = next(model.parameters()).device
    before = _answer(model)
    with ExitStack() as stack:
        stack.enter_context(_asking_for_rotation(model))
        for module in (*rotary, *served):
            vars(module)[BANDED] = Uncopied(type(model).__name__)
            stack.callback(vars(module).pop, BANDED)
        for module in rotary:
            stack.enter_context(_still(module))
        for module in served:
            stack.callback(vars(module).pop, HELD, None)
        _hold(served, main, lambda layer: _encoding(layer, None), device)
        _require_same(model, before)
        _hold(served, main, lambda layer: _encoding(layer, scaling if layer in far else None), device)
        yield model


def refuse_within_bands(model: nn.Module, done: str, *, since: str) -> None:
    """Raise within a block of ``rotated_in_bands``, where something may not be done."""
    configs = [each.config for each in model.modules() if isinstance(each, PreTrainedModel)]
    if any(each._attn_implementation == NAME for each in configs):
        raise ValueError(
            f"model must be {done} outside of rotated_in_bands(), since {since}; got a {type(model).__name__} within "
            f"such a block."
        )


def _require_plain(main: ModelPositions) -> None:
    """Raise unless layers rotate queries and keys by plain frequencies, and by nothing after that."""
    call = full_rotation(main)
    if call is None:
        raise ValueError(
            f"model must have layers of full attention that rotate, since bands change the distances that they rotate "
            f"by; got {main.model_type}: {why_not(main)}"
        )
    if call.option("scaling") is not None:
        raise ValueError(
            f"model must rotate without a scaling, since bands leave the frequencies that a model was trained with; "
            f"got {call.option('scaling').cls}."
        )
    if any(layer.norm == "after" for layer in main.layers):
        raise ValueError(
            f"model must rotate queries and keys last, since situs.attend does it then; {main.model_type} normalises "
            f"them after that."
        )


def _attention(model: nn.Module, part: Any, main: ModelPositions) -> list[nn.Module]:
    """Find the attention of a model's layers, which must ask transformers' interface."""
    found = [each for each in plan(model).asking if getattr(each, "layer_idx", None) is not None]
    own = [each for each in found if getattr(getattr(each, "config", None), "model_type", "") == part.model_type]
    rotating = {number for number, layer in enumerate(main.layers) if rotation_call(layer) is not None}
    if not rotating <= {each.layer_idx for each in own}:
        raise ValueError(
            f"model must ask transformers' interface for the attention of every layer that rotates, since it is "
            f"replaced there; {type(model).__name__} has its own."
        )
    return own


def _require_alone(served: list[nn.Module]) -> None:
    """Raise where a part of an attention layer takes cosines as well, such as one that chooses keys by scores of its
    own: whether its choice changes shows in long texts alone."""
    inner: list[Any] = [type(each) for layer in served for each in layer.modules() if each is not layer]
    other = next((cls.__name__ for cls in inner if has_cosines(cls)), None)
    if other is not None:
        raise ValueError(
            f"model must rotate nothing but queries and keys of its attention, since bands are for those; {other} "
            f"rotates vectors of its own."
        )


def _encoding(layer: Layer, scaling: Bands | None) -> Encoding | None:
    call = rotation_call(layer)
    if call is None:
        return None
    made: Encoding = (call if scaling is None else call.replace(scaling=scaling)).build()
    return made


def _hold(
    served: list[nn.Module], main: ModelPositions, made: Callable[[Layer], Encoding | None], device: torch.device
) -> None:
    """Give each layer its encoding, which equal layers share."""
    encodings = {layer: made(layer) for _, layer in main.groups()}
    for module in served:
        encoding = encodings[main.layers[int(module.layer_idx)]]  # type: ignore[arg-type]
        vars(module)[HELD] = None if encoding is None else encoding.to(device)


@contextmanager
def _asking_for_rotation(model: nn.Module) -> Iterator[None]:
    """Let a model's configurations name the attention that rotates."""
    AttentionInterface.register(NAME, rotating_attention)
    AttentionMaskInterface.register(NAME, situs_mask)
    held = [(config, config._attn_implementation) for config in plan(model).configurations]
    try:
        for config, _ in held:
            config._attn_implementation_internal = NAME
        yield
    finally:
        for config, implementation in held:
            config._attn_implementation_internal = implementation


@contextmanager
def _still(module: nn.Module) -> Iterator[None]:
    """Let a rotary module give cosines of 1 and sines of 0."""
    own = module.forward

    def still(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        given = own(*args, **kwargs)
        if not isinstance(given, tuple):
            raise ValueError(
                f"model must make cosines and sines, since they are set to 1 and 0; {type(module).__name__} makes one "
                f"{type(given).__name__} of both."
            )
        cos, sin = given
        return torch.ones_like(cos), torch.zeros_like(sin)

    module.forward = still
    try:
        yield
    finally:
        del module.forward


def _answer(model: Any) -> Tensor:
    """What a model gives for a few tokens."""
    words = min(100, model.get_input_embeddings().weight.shape[0])
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, words, (1, TOKENS), generator=generator).to(next(model.parameters()).device)
    with torch.no_grad():
        found: Tensor = model(input_ids=ids, use_cache=False)[0]
    return found


def _require_same(model: nn.Module, before: Tensor) -> None:
    """Raise unless a model gives what it gave before."""
    now = _answer(model)
    largest, apart = float(before.abs().max()), float((now - before).abs().max())
    if not apart <= tolerance(model, before.dtype) * max(largest, 1e-3):
        raise ValueError(
            f"model must give the same when situs.attend rotates its queries and keys, since only then can bands be "
            f"measured; the outputs of {type(model).__name__} differ by up to {apart:.2g}, of up to {largest:.2g}."
        )
