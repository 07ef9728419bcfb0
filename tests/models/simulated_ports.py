"""Programs that do everything right in one dtype, written from a golden file's inputs alone: nobody may accuse them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from situs.models import Golden


def right_port(golden: Golden, dtype: torch.dtype, *, float32_angles: bool = False) -> dict[str, Tensor]:
    """All outputs of a port that computes in ``dtype``, with angles of float64 or, as most programs do, of float32."""
    found: dict[str, Tensor] = {}
    for name, said in golden.groups():
        given = {
            key.removeprefix(f"{name}."): each for key, each in golden.arrays.items() if key.startswith(f"{name}.")
        }
        made = _group(given, said, dtype, float32_angles)
        found |= {f"{name}.{key}": each for key, each in made.items() if f"{name}.{key}" in golden.outputs}
    for name, each in golden.outputs.items():
        if name not in found:  # whole numbers, and what a program looks up
            found[name] = each.to(dtype) if each.is_floating_point() and not name.endswith("slopes") else each
    return found


def _group(given: dict[str, Tensor], said: dict[str, Any], dtype: torch.dtype, float32: bool) -> dict[str, Tensor]:
    made: dict[str, Tensor] = {}
    q, k = given["q"].to(dtype), given["k"].to(dtype)
    heat = given.get("temperature", torch.ones(len(q))).float()
    if "rotation" in said:
        ids = given["positions"].double()
        made |= _tables(given, said["rotation"], ids if ids.ndim == 2 else ids[:, None], dtype, float32)
        q, k = (rotated(each, made["cos"], made["sin"], said["rotation"]) for each in (q, k))
        if "batch_rotated_q" in given and said["rotation"]["axes"] == 1:
            return made | {"rotated_q": q, "rotated_k": k, "temperature": heat.to(dtype)} | _scores(given, q, k, heat)
    return made | {"rotated_q": q, "rotated_k": k, "temperature": heat.to(dtype)} | _scores(given, q, k, heat)


def _tables(
    given: dict[str, Tensor], rotation: dict[str, Any], ids: Tensor, dtype: torch.dtype, float32: bool
) -> dict[str, Tensor]:
    if "axis_of_pair" in given:
        chosen = ids[:, given["axis_of_pair"]]
        angles = chosen * given["frequencies"]
    elif rotation["axes"] == 2:  # mixed
        chosen, angles = ids, ids @ given["frequencies"]
    else:
        chosen, angles = ids, ids * given["frequencies"]
    if float32:
        angles = (chosen.float() * given["frequencies"].float()).double()
    cos, sin = ((each * rotation["factor"]).float().to(dtype) for each in (angles.cos(), angles.sin()))
    return {"frequencies": given["frequencies"].float(), "cos": cos, "sin": sin}


def rotated(x: Tensor, cos: Tensor, sin: Tensor, rotation: dict[str, Any]) -> Tensor:
    """Vectors rotated in their own dtype, every operation rounded."""
    pairs, blocks = cos.shape[-1], rotation["blocks"]
    start = x.shape[-1] - 2 * pairs if rotation["channels"] == "trailing" else 0
    if len(blocks) > 1:
        first = torch.cat([torch.arange(size // 2) + sum(blocks[:index]) for index, size in enumerate(blocks)])
        second = torch.cat([torch.arange(size // 2, size) + sum(blocks[:index]) for index, size in enumerate(blocks)])
    elif rotation["pairing"] == "interleaved":
        first = start + 2 * torch.arange(pairs)
        second = first + 1
    else:
        first = start + torch.arange(pairs)
        second = first + pairs
    sin = -sin if rotation["reverse"] else sin
    found = x.clone()
    found[..., first] = x[..., first] * cos - x[..., second] * sin
    found[..., second] = x[..., first] * sin + x[..., second] * cos
    return found


def _scores(given: dict[str, Tensor], q: Tensor, k: Tensor, heat: Tensor) -> dict[str, Tensor]:
    """Products of a dtype's vectors, summed in float32 as kernels do, and rounded."""
    dtype = q.dtype
    scale = given["scale"].float()
    heated = (q * heat.to(dtype)[:, None]).float()
    scores = (heated @ k.float().T) * scale
    for key in ("term",):
        scores = scores + given[key].to(dtype).float() if key in given else scores
    if "bias" in given:
        whole = given["scores"] - given["scale"] * (given["q"] @ given["k"].T)  # the bias of each pair, exactly
        scores = scores + whole.to(dtype).float()
    return {"scores": scores.to(dtype), "scale": scale.to(dtype)}
