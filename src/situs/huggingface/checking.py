"""The self-test of ``accelerate``: a small input through a model before and after."""

from __future__ import annotations

import inspect
import sys
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from situs.huggingface.classes import family_of, original
from situs.huggingface.short import as_long

TOKENS, SEEN, PADDING, SAMPLES, FRAMES, PIXELS = 9, 6, 3, 8000, 96, 512
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""Of the largest output: what sums in another order may change, and wrong positions exceed."""
OF_WHOLE_TEXTS = ("ForSequenceClassification", "ForMultipleChoice", "ForNextSentencePrediction")
"""How classes of transformers are named that give numbers for a whole text."""


class AccelerationError(RuntimeError):
    """Tell that an accelerated model does not give what it gave before."""


def answers(model: nn.Module) -> dict[str, Tensor]:
    """What a model gives for a text alone, padded on either side, and behind a cache, for sounds or for images, and
    what layers give that are tested by themselves; none of it is random."""
    modes, device = [(each, each.training) for each in model.modules()], next(model.parameters()).device
    model.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            of_layers = _of_layers(model)
            if of_layers and model.main_input_name == "pixel_values":
                return of_layers
            return _answers(model, device) | of_layers
    finally:
        for module, training in modes:  # some may be frozen in a model that trains
            module.training = training


def answers_before(model: nn.Module) -> dict[str, Tensor]:
    """What a model gives before it is accelerated; raise where it does not take what the self-test makes."""
    try:
        return answers(model)
    except Exception as problem:
        raise ValueError(
            f"check must be False for {type(model).__name__}, since it does not take the texts, sounds, features of "
            f"sounds or images that the self-test makes ({type(problem).__name__}: {problem}); got True."
        ) from problem


def _answers(model: Any, device: torch.device) -> dict[str, Tensor]:
    match model.main_input_name:
        case "input_ids":
            return _of_texts(model, device)
        case "input_values":
            return _of_sounds(model, device, (SAMPLES,))
        case "input_features":
            if model.config.model_type == "whisper":
                return _of_thirty_seconds(model, device)
            return _of_sounds(model, device, (FRAMES, _width(model.config)))
        case "pixel_values":
            return _of_images(model, device)
        case other:
            raise ValueError(f"its main input is {other}")


def _of_texts(model: Any, device: torch.device) -> dict[str, Tensor]:
    words = min(100, model.get_input_embeddings().weight.shape[0])
    ids = torch.randint(4 if words > 8 else 0, words, (2, TOKENS), device=device)
    real = torch.ones_like(ids)
    real[1, -PADDING:] = 0
    model, alone = _giving_tokens(model, ids)
    found = {
        "a text alone": alone,
        "a text padded on the right": _run(model, ids, attention_mask=real)[real.bool()],
        "a text padded on the left": _run(model, ids, attention_mask=real.flip(1))[real.flip(1).bool()],
    }
    if getattr(model.config, "use_cache", False) and not model.config.is_encoder_decoder:
        cache = getattr(model(input_ids=ids[:, :SEEN], use_cache=True), "past_key_values", None)
        if cache is not None:
            found["a text behind a cache"] = _first(model(input_ids=ids[:, SEEN:], past_key_values=cache))
    return found


def _giving_tokens(model: Any, ids: Tensor) -> tuple[Any, Tensor]:
    """The model, or the one beneath a head that gives numbers for a whole text, and what it gives for each token.

    Such a head may read a token that is padding, and may ask for choices, an end of the text, or a token that pads.
    """
    beneath = getattr(model, "base_model", model)
    if not any(each.__name__.endswith(OF_WHOLE_TEXTS) for each in type(model).__mro__):
        found = _run(model, ids)
        if found.shape[:2] == ids.shape:
            return model, found
    return beneath, _run(beneath, ids)


def _of_sounds(model: Any, device: torch.device, shape: tuple[int, ...]) -> dict[str, Tensor]:
    """Of waves, or of features of frames."""
    sounds = torch.randn(2, *shape, device=device).to(next(model.parameters()).dtype)
    real = torch.ones(2, shape[0], dtype=torch.long, device=device)
    real[1, shape[0] // 2 :] = 0
    given = {model.main_input_name: sounds}
    if "decoder_input_ids" in inspect.signature(model.forward).parameters:
        given["decoder_input_ids"] = torch.randint(4, 8, (2, TOKENS), device=device)
    padded = _first(model(**given, attention_mask=real))
    return {
        "a sound alone": _first(model(**given)),
        "a sound beside a shorter one": padded[0],
        "a shorter sound": padded[1, : padded.shape[1] // 3] if padded.dim() > 2 else padded[1],
    }


def _of_thirty_seconds(model: Any, device: torch.device) -> dict[str, Tensor]:
    """Of a sound as long as Whisper takes them, without a mask: it has none for sounds."""
    shape = (1, _width(model.config), 2 * model.config.max_source_positions)
    given = {"input_features": torch.randn(shape, device=device).to(next(model.parameters()).dtype)}
    if "decoder_input_ids" in inspect.signature(model.forward).parameters:
        given["decoder_input_ids"] = torch.randint(4, 8, (1, TOKENS), device=device)
    return {"a sound": _first(model(**given))}


def _of_images(model: Any, device: torch.device) -> dict[str, Tensor]:
    """Of images as large as the model takes them."""
    size = getattr(model.config, "image_size", None)
    if size is None:
        raise ValueError("its configuration does not tell how large its images are")
    height, width = size if isinstance(size, (tuple, list)) else (size, size)
    if max(height, width) > PIXELS:
        raise ValueError(f"its images are of {height} x {width} pixels")
    images = torch.randn(2, getattr(model.config, "num_channels", 3), height, width, device=device)
    return {"images": _first(model(pixel_values=images.to(next(model.parameters()).dtype)))}


def _of_layers(model: nn.Module) -> dict[str, Tensor]:
    """Of layers that are tested by themselves, one of each size."""
    found: dict[str, Tensor] = {}
    known = set()
    for name, module in model.named_modules():
        family = family_of(module)
        states = None if family is None else family.sample(module)
        sizes = (type(module), *(each.shape for each in module.parameters()))
        if states is not None and sizes not in known:
            known.add(sizes)
            found[f"states of {name}"] = _first(module(states))
    return found


def _width(config: Any) -> int:
    """Features of a frame."""
    for each in (config, getattr(config, "encoder_config", None)):
        for name in ("feature_projection_input_dim", "num_mel_bins"):
            if hasattr(each, name):
                return int(getattr(each, name))
    raise ValueError("its configuration does not tell how many features a frame has")


def _run(model: Any, ids: Tensor, **given: Tensor) -> Tensor:
    if model.config.is_encoder_decoder:
        given["decoder_input_ids"] = ids
    if "bbox" in inspect.signature(model.forward).parameters:
        corners = torch.arange(4 * ids.numel(), device=ids.device).view(*ids.shape, 4)
        given["bbox"] = corners / corners.numel() if model.config.model_type == "udop" else corners
    return _first(model(input_ids=ids, **given))


def _first(output: Any) -> Tensor:
    """The logits or hidden states of an output, a copy of them."""
    first: Tensor = output[0]
    return first.detach().clone()


def require_same(model: nn.Module, before: dict[str, Tensor]) -> None:
    """Raise unless a model gives what it gave before, where that was a number: float64 models that
    hide by the least float64 and take a softmax in float32 give none for padding. Inputs that are short for a layer are
    run as long ones too."""
    with as_long() as short:
        _require_same(model, before, answers(model))
    if short:
        _require_same(model, before, answers(model))


def _require_same(model: nn.Module, before: dict[str, Tensor], after: dict[str, Tensor]) -> None:
    known = {words: then.isfinite() for words, then in before.items()}
    some = any(bool(each.any()) for each in known.values())
    for words, now in after.items():
        then = before[words]
        if some:
            now, then = now[known[words]], then[known[words]]
            if not len(then):
                continue
        largest, apart = float(then.abs().max()), float((now - then).abs().max())
        if not apart <= tolerance(model, then.dtype) * max(largest, 1e-3):
            raise AccelerationError(
                f"{type(model).__name__} must give the same accelerated, since only its attention runs elsewhere; for "
                f"{words} it gave outputs up to {apart:.2g} apart, of up to {largest:.2g}. The model was restored. "
                "Please report its configuration."
            )


def tolerance(model: nn.Module, dtype: torch.dtype) -> float:
    """What outputs of a dtype may differ by, of the largest. A model of float64 whose own code computes something in
    float32, such as a softmax or cosines, is no more exact than that."""
    files = {(original(each) or type(each)).__module__ for each in model.modules()}
    if dtype == torch.float64 and any(_computes_in_float32(each) for each in files):
        dtype = torch.float32
    return TOLERANCE[dtype]


@cache
def _computes_in_float32(file: str) -> bool:
    """Whether code of a module of transformers' models casts to float32."""
    if not file.startswith("transformers.models."):
        return False
    source = inspect.getsource(sys.modules[file])
    return "torch.float32" in source or ".float()" in source
