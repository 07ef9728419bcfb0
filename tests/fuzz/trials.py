"""Trials: a case run by every kernel that can serve it, and compared with the oracle, output and gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import situs
from situs import Positions
from tests.fuzz import draw_encodings, made_positions
from tests.fuzz.cases import DTYPES, Case, Shard, make_mask
from tests.fuzz.judging import Expected, Report, check, gradients
from tests.fuzz.oracle import Call, attention
from tests.fuzz.oracle_features import features_of
from tests.fuzz.oracle_tokens import Pairs, Tokens, counted, tokens_of
from tests.fuzz.rounding import Rounding


@dataclass(frozen=True)
class Built:
    """A case as objects: what is handed to ``attend``, and what the oracle is asked."""

    case: Case
    encodings: list[Any]
    parameters: dict[str, Tensor]
    tensors: tuple[Tensor, Tensor, Tensor]
    features: dict[str, Tensor]
    call: dict[str, Any]
    pairs: Pairs
    order: Tensor | None
    """Where the keys that ``attend`` is handed lie in the sequence, if not in order."""

    upstream: Tensor

    @property
    def sources(self) -> dict[str, Tensor]:
        """All that gradients are wanted of."""
        sinks = {} if self.call["sinks"] is None else {"sinks": self.call["sinks"]}
        tensors = dict(zip(("query", "key", "value"), self.tensors, strict=True))
        return tensors | self.features | sinks | self.parameters


def build(case: Case) -> Built:
    """Make everything that a case names."""
    generator = torch.Generator().manual_seed(case.seed)
    dtype = DTYPES[case.dtype]
    torch.manual_seed(case.seed)
    encodings = [draw_encodings.make(each).to(DTYPES[case.parameter_dtype]) for each in case.encodings]
    for each in encodings:
        for lent in getattr(each, "borrowed", ()):
            lent.to(DTYPES[case.parameter_dtype])
    draw_encodings.draw_parameters(encodings, generator)
    positions, key_positions, pairs, order = _placed(case)
    shapes = (
        (case.batch, case.heads, case.queries, case.head_dim),
        (case.batch, case.kv_heads, case.keys, case.head_dim),
        (case.batch, case.kv_heads, case.keys, case.value_dim),
    )
    valid = pairs.query.valid, pairs.key.valid, pairs.key.valid
    drawn = [_padded(torch.randn(shape, generator=generator, dtype=torch.float64), real, case.padding, generator)
             for shape, real in zip(shapes, valid, strict=True)]  # fmt: skip
    q, k, v = (each.to(dtype) for each in drawn)
    if order is not None:
        k, v = k[:, :, order], v[:, :, order]
    q, k, v = (_laid_out(each, case.layout) for each in (q, k, v))
    upstream = torch.randn(*shapes[0][:3], case.value_dim, generator=generator, dtype=torch.float64).to(dtype)
    features = _features(case, encodings, pairs, order)
    call = {
        "encoding": encodings[0] if len(encodings) == 1 else encodings or None,
        "causal": case.causal,
        "positions": positions,
        "key_positions": key_positions,
        "mask": make_mask(case),
        "window": case.window,
        "chunk": case.chunk,
        "scale": case.scale,
        "softcap": case.softcap,
        "sinks": _sinks(case),
        "features": features or None,
    }
    learned = draw_encodings.parameters_of(encodings)
    return Built(case, encodings, learned, (q, k, v), features, call, pairs, order, upstream)


def _features(case: Case, encodings: list[Any], pairs: Pairs, order: Tensor | None) -> dict[str, Tensor]:
    """Side inputs of the tokens; of padding, what nobody should read. Some gates are closed, in some cases."""
    generator, found = torch.Generator().manual_seed(case.seed + 2), {}
    for name, (role, width) in features_of(encodings).items():
        tokens = pairs.query if role == "query" else pairs.key
        shape = case.batch, case.heads, tokens.count, width
        drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
        if name == "gate":
            drawn = drawn + (0.0, 2.0, 6.0)[case.seed % 3]
            closed = torch.rand(shape, generator=generator) < (0.0, 0.0, 0.0, 0.03, 0.3)[case.seed % 5]
            drawn = torch.where(closed, torch.tensor((-30.0, -6e4, -math.inf))[case.seed % 3], drawn)
        drawn = _padded(drawn, tokens.valid, case.padding, generator).to(DTYPES[case.feature_dtype or case.dtype])
        found[name] = _laid_out(drawn if order is None or role == "query" else drawn[:, :, order], case.layout)
    return found


def _sinks(case: Case) -> Tensor | None:
    if not case.sinks:
        return None
    drawn = torch.randn(case.heads, generator=torch.Generator().manual_seed(case.seed + 1), dtype=torch.float64)
    return (2 * drawn).to(DTYPES[case.dtype]).requires_grad_()


def _placed(case: Case) -> tuple[Any, Any, Pairs, Tensor | None]:
    """Positions as they are handed over, and as the oracle knows them."""
    given = made_positions.make(case.positions)
    if case.shard is not None:
        size, each = (case.shard.world_size, case.shard.layout), tokens_of(given)
        order = torch.cat([rows_of_rank(rank, case.keys, case.shard) for rank in range(case.shard.world_size)])
        pairs = Pairs(each.at(rows_of_rank(case.shard.rank, case.keys, case.shard)), each)
        shard, gathered = given.shard(case.shard.rank, size[0], layout=size[1]), given.gathered(size[0], layout=size[1])
        return shard, gathered, pairs, order
    keys = given if case.key_positions == case.positions else made_positions.make(case.key_positions)
    of_keys = _told(keys, case.keys) if keys is not None else None
    of_queries = _told(given, case.queries) if given is not None else None
    if of_keys is None:  # keys stand where the queries do, or reach up to them
        of_keys = of_queries if of_queries is not None and case.queries == case.keys else counted(case.keys)
    if of_queries is None:  # queries are the last of the keys
        of_queries = of_keys.last(case.queries) if case.queries < case.keys else of_keys
    return given, keys, Pairs(of_queries, of_keys), None


def _told(given: Any, count: int) -> Tokens:
    if isinstance(given, int):
        return tokens_of(Positions.range(count, start=given))
    return tokens_of(given if isinstance(given, Positions) else Positions.explicit(given))


def rows_of_rank(rank: int, length: int, shard: Shard) -> Tensor:
    """The tokens that a rank holds: one piece, or in zigzag the early one and its mirror image."""
    pieces = shard.world_size if shard.layout == "contiguous" else 2 * shard.world_size
    size = length // pieces
    own = [rank] if shard.layout == "contiguous" else [rank, pieces - 1 - rank]
    return torch.cat([torch.arange(piece * size, (piece + 1) * size) for piece in own])


def _padded(x: Tensor, valid: Tensor | None, kind: str | None, generator: torch.Generator) -> Tensor:
    """Padded tokens hold what nobody should read."""
    if valid is None or kind is None:
        return x
    pool = {"nan": (math.nan,), "inf": (math.inf, -math.inf), "large": (6e4, -6e4)}
    values = torch.tensor(pool.get(kind, (math.nan, math.inf, -math.inf, 6e4, 0.0)), dtype=x.dtype)
    anything = values[torch.randint(len(values), x.shape, generator=generator)]
    return torch.where(valid[:, None, :, None], x, anything)


def _laid_out(x: Tensor, layout: str) -> Tensor:
    """The same numbers, in another order of memory."""
    if layout == "transposed":  # from (batch, sequence, heads, channels)
        laid = x.transpose(1, 2).contiguous().transpose(1, 2)
    elif layout == "sliced":  # part of a wider tensor
        wide = x.new_zeros(*x.shape[:2], x.shape[2] + 3, x.shape[3] + 5)
        wide[:, :, 2:-1, 4:-1] = x
        laid = wide[:, :, 2:-1, 4:-1]
    elif layout == "strided":  # channels are not neighbours
        laid = x.transpose(-2, -1).contiguous().transpose(-2, -1)
    else:
        laid = x.contiguous()
    return laid.detach().requires_grad_()


def ask(built: Built, rounding: Rounding | None) -> tuple[dict[str, Tensor], float]:
    """The oracle's output and gradients; keys in the order in which ``attend`` is handed them."""
    leaves = {name: each.detach().double().requires_grad_() for name, each in built.sources.items()}
    leaves_of = {id(built.sources[name]): each for name, each in leaves.items()}
    query, key, value, mask = leaves["query"], leaves["key"], leaves["value"], built.call["mask"]
    features = {name: leaves[name] for name in built.features}
    if built.order is not None:
        back = built.order.argsort()
        key, value = key[:, :, back], value[:, :, back]
        features |= {name: features[name][:, :, back] for name in ("gate",) if name in features}
        mask = mask[..., back] if mask is not None and mask.ndim and mask.shape[-1] > 1 else mask
    case = built.case
    call = Call(case.causal, case.window, mask, case.scale, case.chunk, case.softcap, leaves.get("sinks"))
    found = attention(
        query, key, value, built.encodings, built.pairs, call, lambda parameter: leaves_of[id(parameter)], rounding,
        features,
    )  # fmt: skip
    upstream = built.upstream.double() if rounding is None else rounding.of(built.upstream.double())
    return {"out": found.out.detach(), **gradients(found.out, upstream, leaves)}, found.margin


def run(case: Case) -> Report:
    """Run a case by every kernel that can serve it; the one that is chosen, now and then without gradients too."""
    report = Report()
    built = build(case)
    dtypes = {name: each.dtype for name, each in built.sources.items()}
    truth = Expected(lambda rounding: ask(built, rounding), DTYPES[case.dtype], dtypes, built.upstream)
    try:
        explained = situs.explain(*built.tensors, **built.call)
    except Exception as error:
        report.fail(case, f"explain raises {type(error).__name__}: {error}")
        return report
    named = [name for name, why in explained.others.items() if why.startswith("could") and name != "flex"]
    for impl in ["auto", *named]:
        label = f"auto ({explained.impl})" if impl == "auto" else impl
        try:
            _compare(built, truth, impl, label, report)
        except Exception as error:
            report.fail(case, f"{label} raises {type(error).__name__}: {str(error)[:300]}")
    return report


def run_flex(case: Case) -> Report:
    """Run a case by FlexAttention, where it can serve: compiled anew for each, so only a few."""
    report = Report()
    built = build(case)
    truth = Expected(lambda rounding: ask(built, rounding), DTYPES[case.dtype], {}, built.upstream)
    with torch.no_grad():
        if situs.explain(*built.tensors, **built.call).others["flex"].startswith("could"):
            try:
                out = situs.attend(*built.tensors, **built.call, impl="flex")
                check(case, "out", out, truth, "flex", report)
            except Exception as error:
                report.fail(case, f"flex raises {type(error).__name__}: {str(error)[:300]}")
    return report


def _compare(built: Built, truth: Expected, impl: Any, label: str, report: Report) -> None:
    case = built.case
    if case.seed % 3 != 1 and impl == "auto":
        with torch.no_grad():
            plain = situs.attend(*built.tensors, **built.call)
        check(case, "out", plain, truth, f"{label} without gradients", report)
    out = situs.attend(*built.tensors, **built.call, impl=impl)
    if out.dtype != built.tensors[0].dtype:
        report.fail(case, f"{label}: out has dtype {out.dtype}")
    if not out.requires_grad:
        report.fail(case, f"{label}: out has no gradient, so that backward raises")
    check(case, "out", out, truth, label, report)
    padded = _padding_of(built)
    if "query" in padded and bool(out.detach()[padded["query"]].ne(0).any()):
        report.fail(case, f"{label}: padded queries do not give zeros")
    for name, gradient in gradients(out, built.upstream, built.sources).items():
        if name in padded and not bool(gradient[padded[name]].isfinite().all()):
            report.fail(case, f"{label}: the gradient of a padded {name} is not finite")
            gradient = torch.where(padded[name].unsqueeze(-1), 0.0, gradient)
        if truth.jumps and name != "value":
            report.left_out += 1
        else:
            check(case, name, gradient, truth, f"{label}, gradient", report)


def _padding_of(built: Built) -> dict[str, Tensor]:
    """Where queries, keys, values and features are padding. Shapes: (b, h, n)."""
    of_keys = built.pairs.key.valid
    of_keys = of_keys[:, built.order] if of_keys is not None and built.order is not None else of_keys
    of_queries = built.pairs.query.valid
    valid = {"query": of_queries, "key": of_keys, "value": of_keys}
    valid |= {"relative": of_queries, "bias_gate": of_queries, "gate": of_keys}
    return {
        name: ~each[:, None].expand(built.sources[name].shape[:3])
        for name, each in valid.items()
        if each is not None and name in built.sources
    }
