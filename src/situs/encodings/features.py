"""Features of tokens: the projection that computes them from hidden states, and which of them an encoding was handed.

An encoding that is made with the model's width, ``dim``, owns that projection, so that attention computes features by
``encoding.project(x)``. Without a width it has none, and takes features from the caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from jaxtyping import Float
from torch import Tensor, nn

from situs.arguments import refuse, require_floating, require_same_device, told
from situs.encodings.base import Encoding, is_autocast


def computed_features(
    encoding: Encoding, x: Float[Tensor, "batch sequence dim"]
) -> Mapping[str, Float[Tensor, "batch heads sequence width"]]:
    """Compute the features of tokens by the encoding's own projection; raise where it has none."""
    project = getattr(encoding, "project", None)
    if project is None:
        name = type(encoding).__name__
        raise TypeError(
            f"encoding must have a method project(x), since {name} declares features and they are computed from hidden "
            f"states; got {name} without it. Write it, or use attend(..., features=...)."
        )
    found: Mapping[str, Tensor] = project(x)
    return found


def projected_heads(
    encoding: Encoding, projection: nn.Linear | None, x: Float[Tensor, "batch sequence dim"]
) -> Float[Tensor, "batch heads sequence width"]:
    """Project hidden states to numbers for each head; raise where it has no projection, or they do not fit."""
    if projection is None:
        refuse_projection(encoding)
    require_hidden_states(encoding, x, projection.weight.shape[1], projection.weight)
    numbers: Tensor = projection(x)
    # a view, since dynamo does not follow unflatten under a default device
    return numbers.view(*numbers.shape[:2], encoding.num_heads or 1, -1).transpose(1, 2)


def refuse_projection(encoding: Encoding) -> NoReturn:
    """Raise since an encoding was made without the width of hidden states."""
    name = type(encoding).__name__
    raise ValueError(
        f"dim must be given when {name} is made, since features are projected from hidden states of that width; "
        f"got dim=None. Use {name}(dim=...), or compute features yourself."
    )


def require_hidden_states(encoding: Encoding, x: Tensor, dim: int, weight: Tensor) -> None:
    """Raise unless these are hidden states of ``dim`` channels that an encoding's weights can meet."""
    name = type(encoding).__name__
    require_floating("x", x, "features are projected from it")
    if x.ndim != 3 or x.shape[-1] != dim:
        raise ValueError(
            f"x must have shape (batch, sequence, {dim}), since {name} was made with dim={dim};"
            f" got shape {tuple(x.shape)}."
        )
    require_same_device("x", x, "the encoding", weight)
    if x.dtype != weight.dtype and not is_autocast(x.device.type):
        raise TypeError(
            f"x must have the dtype of the encoding's weights, {weight.dtype}, since it meets them; got {x.dtype}. Use "
            f"x.to({weight.dtype}), or torch.autocast."
        )


def feature_of(
    encoding: Encoding, features: Any, sequence: int, query: Tensor, name: str | None = None
) -> Float[Tensor, "batch heads sequence width"]:
    """Take one feature out of those that an encoding was handed, the only one if no name is told; raise unless it is
    there, and has a number for each of the ``sequence`` queries or keys."""
    ((only, _),) = encoding.features.items() if name is None else ((name, None),)
    feature, called = encoding.features[only], f"features[{only!r}]"
    if features is not None and not isinstance(features, Mapping):
        refuse(TypeError, "features", "be a mapping of names to tensors", "each has its own", told(features))
    if features is None or only not in features:
        listed = ", ".join(map(repr, features)) if features else "none"
        raise ValueError(
            f"features must hold {only!r}, since {type(encoding).__name__} computes with it; got {listed}. Use "
            f"features=encoding.project(x)."
        )
    given = require_floating(called, features[only], f"{type(encoding).__name__} computes with it")
    wanted = query.shape[0], query.shape[1], sequence, feature.width
    if tuple(given.shape) != wanted:
        raise ValueError(
            f"{called} must have shape (batch, heads, {feature.role}, width) = {wanted}, since each {feature.role} of "
            f"each query head has its own; got shape {tuple(given.shape)}."
        )
    require_same_device(called, given, "query", query)
    return given
