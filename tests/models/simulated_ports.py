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
    heat = given.get("temperature", torch.ones(len(q), dtype=torch.float64))
    heat = heat if dtype == torch.float64 else heat.float()
    if "rotation" in said:
        ids = given["positions"].double()
        made |= _tables(given, said["rotation"], ids if ids.ndim == 2 else ids[:, None], dtype, float32)
        q, k = (rotated(each, made["cos"], made["sin"], said["rotation"]) for each in (q, k))
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
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    cos, sin = ((each * rotation["factor"]).to(wide).to(dtype) for each in (angles.cos(), angles.sin()))
    return {"frequencies": given["frequencies"].to(wide), "cos": cos, "sin": sin}


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
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    scale = given["scale"].to(wide)
    scores = ((q * heat.to(dtype)[:, None]).to(wide) @ k.to(wide).T) * scale
    if "term" in given:
        scores = scores + given["term"].to(dtype)
    if "bias" in given:
        whole = given["scores"] - given["scale"] * (given["q"] @ given["k"].T)  # the bias of each pair, exactly
        scores = scores + whole.to(dtype)
    return {"scores": scores.to(dtype), "scale": scale.to(dtype)}
