"""Which keys each query sees: what Situs' mask function hands to the layers of a model instead of a mask of pairs.

transformers composes masks of small functions (causal, window, documents). Those that are known are told as rules, from
which kernels skip what is hidden; any other is evaluated to a mask of all pairs, as transformers' own attention does.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from transformers import masking_utils

from situs.attention.visibility import visibility
from situs.huggingface.origin import folder_of
from situs.positions import Positions

Made = TypeVar("Made")

TOUCHED = frozenset({
    "axk2", "beit", "data2vec", "decision_transformer", "deepseek_v32", "deepseek_v4", "doge", "glm_moe_dsa",
    "granite_speech5", "hy_v4", "mistral_large4", "nemotron_asr_streaming", "parakeet", "qwen4_exp", "sam3",
    "sam3_lite_text",
})  # fmt: skip
"""Models whose layers do arithmetic on their masks, or look into them: they get the masks that they expect."""
HIDING = "mpt"
"""The model whose layers hide where a mask is true: it casts masks to add, of which 0 is seen."""

COMPOSED = "and_masks.<locals>.and_mask"
WINDOW = "sliding_window_overlay.<locals>.inner_mask"
WINDOW_BOTH_WAYS = "sliding_window_bidirectional_overlay.<locals>.inner_mask"
DOCUMENTS = "packed_sequence_mask_function.<locals>.inner_mask"


@dataclass(frozen=True)
class Rules:
    """What functions of transformers that are known let queries see."""

    causal: bool = False
    window: int | None = None
    """Keys that are nearer than this, ahead too unless causal."""
    documents: Tensor | None = None


def rules_of(function: Callable[..., Any]) -> Rules | None:
    """The rules of a mask function; None where they are not known."""
    if function is masking_utils.causal_mask_function:
        return Rules(causal=True)
    if function is masking_utils.bidirectional_mask_function:
        return Rules()
    if getattr(function, "__module__", None) != masking_utils.__name__:
        return None
    held, name = inspect.getclosurevars(function).nonlocals, function.__qualname__
    if name == COMPOSED:
        parts = [rules_of(each) for each in held["mask_functions"]]
        return _all_of([each for each in parts if each is not None]) if None not in parts else None
    if name == WINDOW:
        return Rules(window=held["sliding_window"])
    if name == WINDOW_BOTH_WAYS:
        return Rules(window=held["sliding_window"] + 1)
    return Rules(documents=held["packed_sequence_mask"]) if name == DOCUMENTS else None


def _all_of(parts: list[Rules]) -> Rules | None:
    whole = Rules()
    for each in parts:
        if None not in (whole.window, each.window) or None not in (whole.documents, each.documents):
            return None
        whole = Rules(
            whole.causal or each.causal,
            each.window if whole.window is None else whole.window,
            each.documents if whole.documents is None else whole.documents,
        )
    return whole


@dataclass(frozen=True)
class Sight:
    """Tell which keys queries see, by rules and by which keys are real."""

    rules: Rules
    queries: int
    keys: int
    first_query: int
    first_key: int
    real: Bool[Tensor, "batch key"] | None
    """None where all keys are."""
    made: dict[object, Any] = field(default_factory=dict, compare=False)
    """What layers share that see alike."""

    ndim = 2
    """That of a mask of keys: models that do arithmetic on masks of pairs leave this alone."""

    def to(self, *args: object, **kwargs: object) -> Sight:
        """Stay as it is: models that cast their masks may cast this."""
        return self

    def contiguous(self) -> Sight:
        """Stay as it is: ``generate`` lays out masks that it makes ahead."""
        return self

    def view(self, *sizes: int) -> Sight:
        """Stay as it is: GPT-2 lays out masks of keys, which those made ahead look like."""
        return self

    @property
    def row(self) -> Bool[Tensor, "batch 1 1 key"] | None:
        """Which keys are real, as a mask."""
        return None if self.real is None else self.real[:, None, None]

    @property
    def is_open(self) -> bool:
        """Whether every query sees every key, as a decode step does."""
        if self.real is not None or self.rules.documents is not None:
            return False
        last = self.queries == 1 and self.first_query == self.first_key + self.keys - 1
        near = self.rules.window is None or (last and self.keys <= self.rules.window)
        return near and (last or not self.rules.causal)

    @property
    def is_causal_square(self) -> bool:
        """Whether the causal rule alone hides, between queries and keys that begin together."""
        alike = self.first_query == self.first_key and self.queries == self.keys
        return alike and self.real is None and self.rules == Rules(causal=True)

    @property
    def pairs(self) -> int:
        """How many numbers say for all pairs what is seen."""
        told = [len(each) for each in (self.real, self.rules.documents) if each is not None]
        return max([1, *told]) * self.queries * self.keys

    def added_to(self, bias: Float[Tensor, "#batch heads #query key"]) -> Float[Tensor, "#batch heads #query key"]:
        """Hide pairs in a bias, by its lowest number: queries that see nothing, such as padding, stay finite."""
        if self.is_open:
            return bias

        def make() -> tuple[Tensor | None]:
            told = self.arguments(every_query=True)
            both = (told[each].to(bias.device) for each in ("positions", "key_positions"))  # ranges have no device
            return (visibility(*both, causal=told["causal"], window=told["window"]),)

        (seen,) = make() if torch.compiler.is_compiling() else self.shared(("seen", bias.device), None, make)
        return bias if seen is None else torch.where(seen[:, None], bias, torch.finfo(bias.dtype).min)

    def shared(self, name: object, source: object, make: Callable[[], Made]) -> Made:
        """Make something once for all layers of a forward pass that have it from the same source."""
        held = self.made.get((name, id(source)))
        if held is None:
            held = self.made[name, id(source)] = source, make()  # the source is held, lest another get its id
        made: Made = held[1]
        return made

    def over(self, keys: int) -> Sight:
        """Tell the same of all keys where one was told of and there are more, as masks of pairs are broadcast: that of
        an encoder is cut like the text where ``generate`` reads that in chunks."""
        if self.keys == keys or self.keys != 1 or self.rules != Rules():
            return self
        return replace(self, keys=keys, real=None if self.real is None else self.real.expand(-1, keys), made={})

    def arguments(self, *, by_row: bool = False, every_query: bool = False) -> dict[str, Any]:
        """What ``attend`` takes. ``by_row`` tells real keys by a mask of one row, which costs nothing where nothing
        else is added; else positions tell them, which leaves padding out: that of keys alone with ``every_query``, and
        where nothing else hides, as in encoders: decoders may read what padding gets (``over``)."""
        key, first = self._keys(by_row=by_row), self.first_query - self.first_key
        inside = first >= 0 and first + self.queries <= self.keys
        # queries of another sequence, as those of a decoder over its encoder, may be more than there are keys
        every_query = every_query or self.rules == Rules()
        alike = inside and not (every_query and self.rules.documents is None)
        query = key[first : first + self.queries] if alike else Positions.range(self.queries, start=self.first_query)
        last = self.queries == 1 and self.first_query == self.first_key + self.keys - 1
        return {
            "causal": self.rules.causal and not (last and self.rules.window is None),
            "window": self.rules.window,
            "positions": query,
            "key_positions": key,
            "mask": self.row if by_row else None,
        }

    def _keys(self, *, by_row: bool) -> Positions:
        """Slots of keys as positions, made once for all layers."""
        name = "keys", by_row
        if name not in self.made:
            documents, real = self.rules.documents, None if by_row else self.real
            known = [each for each in (documents, real) if each is not None]
            if known:
                ids = torch.arange(self.first_key, self.first_key + self.keys, device=known[0].device)
                ids = ids.expand(max(map(len, known)), -1)
                self.made[name] = replace(Positions.explicit(ids, documents=documents, valid=real), given_slots=ids)
            else:
                self.made[name] = Positions.range(self.keys, start=self.first_key)
        keys: Positions = self.made[name]
        return keys


def situs_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: Any = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] = masking_utils.causal_mask_function,
    attention_mask: Tensor | Sight | None = None,
    **kwargs: Any,
) -> Sight | Tensor | None:
    """Tell which keys queries see, for attention by the name "situs"."""
    if isinstance(attention_mask, Sight):  # made ahead by ``generate``
        return attention_mask
    folder = folder_of(type(kwargs.get("config")))
    touched = folder in TOUCHED
    # a static cache counts in tensors, and its masks are made ahead, as tensors, and handed to the model
    fixed = touched or torch.compiler.is_compiling() or isinstance(q_offset, Tensor)
    rules = None if fixed else rules_of(mask_function)
    if rules is None:
        if not touched:
            kwargs.update(allow_is_causal_skip=False, allow_is_bidirectional_skip=False)
        made = masking_utils.eager_mask if folder == HIDING else masking_utils.sdpa_mask
        return made(batch_size, q_length, kv_length, q_offset, kv_offset, mask_function, attention_mask, **kwargs)
    real = masking_utils.prepare_padding_mask(attention_mask, kv_length, kv_offset)
    real = None if real is None else real[:, kv_offset : kv_offset + kv_length].bool()
    if real is not None and bool(real.all()):
        real = None
    return Sight(rules, q_length, kv_length, q_offset, kv_offset, real)


def named_mask(*args: Any, **kwargs: Any) -> Sight | Tensor | None:
    """Tell which keys queries see where a model was loaded by the name "situs"; layers that do not ask for attention by
    it get the masks that they expect, with a warning."""
    folder = folder_of(type(kwargs.get("config")))
    if not folder or _asks_for_attention(folder):
        return situs_mask(*args, **kwargs)
    if not torch.compiler.is_compiling():
        warnings.warn(
            f'attn_implementation="situs" changes nothing for models of {folder}, since their layers do not ask '
            "transformers' interface for attention. Call situs.huggingface.accelerate(model) instead.",
            stacklevel=2,
        )
    return masking_utils.eager_mask(*args, **kwargs)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
@cache
def _asks_for_attention(folder: str) -> bool:
    """Whether any layer of a model's files, which are imported where it runs, asks transformers' interface."""
    start = f"transformers.models.{folder}.modeling_"
    files = [module for name, module in sys.modules.items() if name.startswith(start)]
    return not files or any("ALL_ATTENTION_FUNCTIONS" in inspect.getsource(each) for each in files)
