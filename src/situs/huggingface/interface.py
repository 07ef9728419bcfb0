"""Attention by the name "situs" in transformers' public interface.

    model = AutoModel.from_pretrained(folder, attn_implementation="situs")

Attention and mask are registered together: transformers leaves the causal mask and padding out, without a word, for a
name that has no mask function. Models whose layers do not ask the interface need ``accelerate``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.utils import output_capturing

from situs.attention import attend
from situs.encodings.base import Encoding
from situs.functional.heads import share_heads
from situs.huggingface.at_once import at_once
from situs.huggingface.seeing import Rules, Sight, named_mask, situs_mask

NAME = "situs"
"""What transformers calls Situs' attention."""
TAKEN = "situs_accelerated"
"""What it calls that of accelerated models, whose layers all take what Situs' mask function gives."""


class PlacedBias(NamedTuple):
    """An encoding in the place of a dense bias; None in the place of one that is 0 everywhere."""

    encoding: Encoding | None
    first_query: int | Tensor = 0
    """The position of the first query; keys begin at 0. Masks that are rules know it better."""
    features: Mapping[str, Tensor] | None = None
    """Side inputs that the encoding declares."""


def situs_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Sight | Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: PlacedBias | Tensor | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend for a layer of transformers; give the output, (batch, query, heads, head_dim), and no weights."""
    if kwargs.get("cache") is not None:
        raise NotImplementedError(
            'attn_implementation must not be "situs" in continuous batching, since pages of its cache lie apart; got '
            'a paged cache. Set attn_implementation="sdpa" for it.'
        )
    refuse_weights(kwargs.get("output_attentions"), asking=module)
    if is_causal is None:
        is_causal = bool(getattr(module, "is_causal", True))
    out = attended(
        query, key, value, attention_mask, bias=position_bias, causal=is_causal, scale=scaling, dropout=dropout,
        softcap=softcap, sinks=s_aux,
    )  # fmt: skip
    return out.contiguous(), None  # as transformers' own is, which some models view


def attended(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Sight | Tensor | None,
    *,
    bias: PlacedBias | Tensor | None = None,
    causal: bool = False,
    every_query: bool = False,
    source: object = None,
    rounded: bool = False,
    **options: Any,
) -> Tensor:
    """Attend as a layer's own code would; give (batch, query, heads, value_dim).

    ``mask`` is what the mask function gave: rules, a mask of pairs that says it all, or nothing, where ``causal`` alone
    hides. ``bias`` may be an encoding, a bias of pairs, or a row that all queries share; ``source`` is what layers that
    have the same one make it of, if not its encoding. ``every_query`` attends for padding too: convolutions read what
    it gets. ``rounded`` says that own code rounds scores to the dtype of queries.
    """
    placed = None if bias is None or isinstance(bias, Tensor) else bias
    encoding = None if placed is None else placed.encoding
    told: dict[str, Any]
    if isinstance(mask, Sight):
        mask = mask.over(key.shape[2])
        if options.get("softcap") is None and options.get("sinks") is None:
            row = bias if isinstance(bias, Tensor) else None
            found = at_once(
                query, key, value, mask, encoding=encoding, row=row, source=source, scale=options.get("scale"),
                dropout=options.get("dropout", 0.0), rounded=rounded,
            )  # fmt: skip
            if found is not None:
                return (found if placed is None else _with_means(found, value, mask)).transpose(1, 2)
        told = mask.arguments(by_row=encoding is None, every_query=every_query)
    else:
        told = {"mask": mask, "causal": causal and mask is None and query.shape[2] > 1}
        if told["causal"]:  # counted from the first key, as torch does
            told |= {"positions": 0, "key_positions": 0}
        elif placed is not None and encoding is not None:
            told |= {"positions": int(placed.first_query), "key_positions": 0}
    if isinstance(bias, Tensor):
        told["mask"] = _sum(bias, told["mask"])
    if encoding is None and _adds_to_pairs_alone(mask, told, query, key, options):
        chosen = {"scale": options.get("scale"), "dropout_p": options.get("dropout", 0.0)}
        return scaled_dot_product_attention(query, key, value, told["mask"].to(query.dtype), **chosen).transpose(1, 2)
    if placed is not None:
        told["features"] = placed.features
    out: Tensor = attend(query, key, value, encoding=encoding, **told, **options)
    if placed is not None and isinstance(mask, Sight):
        out = _with_means(out, value, mask)
    return out.transpose(1, 2)


def _with_means(
    out: Float[Tensor, "batch heads query value_dim"], value: Float[Tensor, "batch kv_heads key value_dim"], mask: Sight
) -> Float[Tensor, "batch heads query value_dim"]:
    """Let texts that are padding alone get the mean of all values: where transformers adds a bias, even one of zeros,
    what is hidden has the lowest number, and all keys of such a text have the same."""
    real = mask.real
    if real is None or mask.rules != Rules():
        return out

    def make() -> tuple[Tensor | None]:
        found = ~real.any(-1)[:, None, None, None]
        return (found if torch.compiler.is_compiling() or bool(found.any()) else None,)  # else a graph would break

    (alone,) = make() if torch.compiler.is_compiling() else mask.shared("padding alone", None, make)
    if alone is None:
        return out
    return torch.where(alone, share_heads(value.mean(2, keepdim=True), out.shape[1]), out)


def _sum(bias: Tensor, mask: Tensor | None) -> Tensor:
    """A bias with a mask, one that says what is seen or one to add."""
    if mask is None:
        return bias
    hidden = -torch.inf if bias.shape[-2] == 1 else torch.finfo(bias.dtype).min  # as transformers hides pairs
    return torch.where(mask, bias, hidden) if mask.dtype == torch.bool else bias + mask


def _adds_to_pairs_alone(
    mask: Sight | Tensor | None, told: Mapping[str, Any], query: Tensor, key: Tensor, options: Mapping[str, Any]
) -> bool:
    """Whether a number for each pair is all there is, which torch's own attention takes as it is."""
    added = told["mask"]
    return (
        isinstance(added, Tensor)
        and added.is_floating_point()
        and added.dim() == 4
        and added.shape[-2] == query.shape[2] > 1
        and query.shape[1] == key.shape[1]
        and not (isinstance(mask, Sight) and mask.rules != Rules())
        and options.get("softcap") is None
        and options.get("sinks") is None
    )


def dropout_of(module: nn.Module, dropout: Any) -> float:
    """The dropout of weights that is in force in a module: a number, torch's module, or SEW-D's own."""
    if not module.training:
        return 0.0
    return float(getattr(dropout, "p", getattr(dropout, "drop_prob", dropout)))


def _is_named(module: nn.Module) -> bool:
    """Whether a layer asks for Situs by its name, without having been accelerated."""
    return getattr(getattr(module, "config", None), "_attn_implementation", None) == NAME


def refuse_weights(output_attentions: object, *, asking: nn.Module | None = None) -> None:
    """Raise if weights are asked for, of this layer or, where layers are not told, of the model."""
    if not (output_attentions or _are_recorded()):
        return
    if asking is not None and _is_named(asking):
        raise ValueError(
            'output_attentions must be False while attn_implementation is "situs", since no weights are formed; got '
            'True. Call model.set_attn_implementation("eager") first.'
        )
    raise ValueError(
        "output_attentions must be False while a model is accelerated, since no weights are formed; got True. Call "
        "situs.huggingface.restore(model) first."
    )


def _are_recorded() -> bool:
    """Whether transformers records what layers give as their weights; not told inside a compiled graph."""
    if torch.compiler.is_compiling():
        return False
    recorded = getattr(output_capturing, "_active_collector", None)
    names = None if recorded is None else recorded.get()
    return any(name.endswith("attentions") for name in names or ())


def register() -> None:
    """Make the names known to transformers, with their masks."""
    for name, mask in ((NAME, named_mask), (TAKEN, situs_mask)):
        AttentionInterface.register(name, situs_attention)
        AttentionMaskInterface.register(name, mask)
