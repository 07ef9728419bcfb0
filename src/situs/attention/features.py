"""Features in attention: side inputs of tokens, checked by name, shape, dtype and device before any work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from situs.arguments import refuse, require_floating, require_same_device, told
from situs.encodings.base import Encoding, Feature, Role, computing_dtype
from situs.encodings.features import feature_of
from situs.encodings.temperature import Temperature
from situs.positions import Positions
from situs.registry import did_you_mean


def features_of(encodings: Sequence[Encoding], role: Role | None = None) -> dict[str, Feature]:
    """List the features that encodings declare, of queries, of keys, or all; raise where two declare one name."""
    found: dict[str, Feature] = {}
    for each in encodings:
        for name, feature in each.features.items():
            if name in found:
                raise ValueError(
                    f"encodings must declare features of different names, since features are handed over by name; got "
                    f"{name!r} twice."
                )
            found[name] = feature
    return {name: each for name, each in found.items() if role is None or each.role == role}


def require_features(encodings: Sequence[Encoding], features: Any, query: Tensor, keys: int) -> dict[str, Tensor]:
    """Raise unless every feature that encodings declare is given, and no other, for these queries and so many keys."""
    declared = features_of(encodings)
    if features is None and not declared:
        return {}
    if features is not None and not isinstance(features, Mapping):
        refuse(TypeError, "features", "be a mapping of names to tensors", "encodings take them by name", told(features))
    for name in features or ():
        if name not in declared:
            listed = ", ".join(map(repr, declared))
            rule = f"be among {listed}" if declared else "be left out"
            reason = "these encodings declare no other" if declared else "these encodings declare none"
            cure = did_you_mean(name, declared) if isinstance(name, str) else ""
            refuse(ValueError, "features", rule, reason, repr(name), cure.strip())
    lengths = {"query": query.shape[2], "key": keys}
    return {
        name: feature_of(each, features, lengths[feature.role], query, name)
        for each in encodings
        for name, feature in each.features.items()
    }


def require_key_features(features: Any, held: Mapping[str, Tensor] | None, keys: Tensor) -> dict[str, Tensor]:
    """Raise unless features of new keys have one number or more for each, and are such as a cache holds, if it does."""
    if features is not None and not isinstance(features, Mapping):
        refuse(TypeError, "features", "be a mapping of names to tensors", "encodings take them by name", told(features))
    found: dict[str, Tensor] = dict(features or {})
    require_held_features(found, held)
    for name, given in found.items():
        called = f"features[{name!r}]"
        require_floating(called, given, "the cache holds fractions")
        sizes = given.shape[1::2] if held is None or name not in held else held[name].shape[1::2]
        wanted = (keys.shape[0], sizes[0], keys.shape[2], sizes[1]) if given.ndim == 4 else ()
        if tuple(given.shape) != wanted:
            batch, _, count, _ = keys.shape
            shown = wanted or f"({batch}, query heads, {count}, width)"
            refuse(ValueError, called, f"have shape {shown}", "each key has its own", f"shape {tuple(given.shape)}")
        require_same_device(called, given, "keys", keys)
    return found


def require_held_features(features: Mapping[str, Tensor], held: Mapping[str, Tensor] | None) -> None:
    """Raise if features of new keys are others than those of the keys in a cache, where it holds some keys."""
    if held is not None and set(features) != set(held):
        known, given = (", ".join(map(repr, each)) or "none" for each in (held, features))
        raise ValueError(
            f"features of new keys must be those of the keys in the cache, {known}, since attention needs them of all; "
            f"got {given}. Use a cache for each layer, or reset()."
        )


def of_real_tokens(
    features: Mapping[str, Tensor], encodings: Sequence[Encoding], query_positions: Positions, key_positions: Positions
) -> dict[str, Tensor]:
    """Put zeros for padding, which may hold anything."""
    found = dict(features)
    for name, feature in features_of(encodings).items():
        valid = (query_positions if feature.role == "query" else key_positions).valid
        if valid is not None:
            found[name] = found[name].masked_fill(~valid[:, None, :, None], 0)
    return found


def tempered(
    features: Mapping[str, Tensor], encodings: Sequence[Encoding], query_positions: Positions, dtype: torch.dtype
) -> dict[str, Tensor]:
    """Multiply features that ask for it by what temperatures multiply queries by, in the queries' dtype if that is the
    wider one."""
    found = dict(features)
    names = [name for name, feature in features_of(encodings, "query").items() if feature.tempered]
    for each in encodings if names else ():
        if isinstance(each, Temperature):
            for name in names:
                wide = computing_dtype(torch.promote_types(found[name].dtype, dtype))
                found[name] = found[name].to(wide) * each.factors(query_positions, dtype=wide)
    return found
