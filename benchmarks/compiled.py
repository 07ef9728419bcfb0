"""Under ``torch.compile(fullgraph=True)``: time, and how often lengths that grow make it compile again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from benchmarks.apply import DTYPES, vectors
from benchmarks.peers import BASE, Both, llama_apply, llama_embedding
from benchmarks.timing import CLONE, SITUS, TORCH_ONLY, TRANSFORMERS, Contender, Effort, race
from situs import Positions, Rotary
from situs.functional.rotation import PAIRINGS, Pairing
from situs.rotation import RotationTable, rotate

LENGTH, HEADS, HEAD_DIM = 2048, 16, 64
GROWING = tuple(range(64, 2049, 64))
STATIC, DYNAMIC = f"{SITUS}, compiled static", f"{SITUS}, compiled dynamic"
TRANSFORMERS_COMPILED = f"{TRANSFORMERS}, compiled static"


@dataclass(frozen=True)
class Row:
    """2048 tokens of 16 x 64, "transposed", a thread a core; ``work`` says whether the table was given."""

    work: str
    pairing: Pairing
    dtype: str
    rounds: int
    milliseconds: dict[str, float]


@dataclass(frozen=True)
class Count:
    """How many graphs were compiled for 32 values that grow from 64 to 2048."""

    growing: str
    pairing: Pairing
    dynamic: str
    compilations: int


def measure(effort: Effort, dtypes: tuple[str, ...], pairings: tuple[Pairing, ...] = PAIRINGS) -> Iterator[Row]:
    """Time of compiled code next to eager code and to a copy."""
    for dtype in dtypes:
        query, key = (vectors(LENGTH, HEADS, HEAD_DIM, DTYPES[dtype], "transposed", seed) for seed in (0, 1))
        for pairing in pairings:
            for work, contenders in _works(query, key, pairing).items():
                print(f"  compiled: {work}, {pairing} {dtype}", file=sys.stderr, flush=True)
                torch._dynamo.reset()
                for contender in contenders:
                    with contender.in_force():
                        contender.run()
                result = race(contenders, effort)
                milliseconds = {name: 1e3 * seconds for name, seconds in result.medians.items()}
                yield Row(work, pairing, dtype, result.rounds, milliseconds)
    torch._dynamo.reset()


def _works(query: Tensor, key: Tensor, pairing: Pairing) -> dict[str, list[Contender]]:
    rotary = Rotary(head_dim=HEAD_DIM, base=BASE, pairing=pairing)
    made = rotary.table(Positions.range(LENGTH))

    def with_table(query: Tensor, key: Tensor) -> Both:
        return rotary.both(query, key)

    def given(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor) -> Both:
        table = RotationTable(cos, sin)
        return rotate(query, table, pairing), rotate(key, table, pairing)

    works = {
        "with table": _contenders(with_table, (query, key)),
        "table given": _contenders(given, (query, key, made.cos, made.sin)),
    }
    if pairing == "halves":
        embedding, ids = llama_embedding(HEAD_DIM), torch.arange(LENGTH).unsqueeze(0)

        def llama(query: Tensor, key: Tensor) -> Both:
            return llama_apply(query, key, *embedding(query, ids))

        cos, sin = embedding(query, ids)
        works["with table"] += _rival(llama, (query, key))
        works["table given"] += _rival(llama_apply, (query, key, cos, sin))
    return works


def _contenders(function: Callable[..., Both], arguments: tuple[Tensor, ...]) -> list[Contender]:
    static = torch.compile(function, fullgraph=True, dynamic=False)
    dynamic = torch.compile(function, fullgraph=True, dynamic=True)
    return [
        Contender(CLONE, lambda: (arguments[0].clone(), arguments[1].clone())),
        Contender(SITUS, lambda: function(*arguments)),
        Contender(TORCH_ONLY, lambda: function(*arguments), fused=False),
        Contender(STATIC, lambda: static(*arguments)),
        Contender(DYNAMIC, lambda: dynamic(*arguments)),
    ]


def _rival(function: Callable[..., Both], arguments: tuple[Tensor, ...]) -> list[Contender]:
    compiled = torch.compile(function, fullgraph=True, dynamic=False)
    return [
        Contender(TRANSFORMERS, lambda: function(*arguments)),
        Contender(TRANSFORMERS_COMPILED, lambda: compiled(*arguments)),
    ]


def count(pairings: tuple[Pairing, ...] = PAIRINGS) -> Iterator[Count]:
    """Compilations over growing lengths, with torch's default of ``dynamic`` and with ``dynamic=True``."""
    for pairing in pairings:
        rotary = Rotary(head_dim=HEAD_DIM, base=BASE, pairing=pairing)

        def by_length(size: int, rotary: Rotary = rotary) -> tuple[Callable[..., Both], tuple[Any, ...]]:
            return rotary.both, (_short(size), _short(size))

        def by_ids(size: int, rotary: Rotary = rotary) -> tuple[Callable[..., Both], tuple[Any, ...]]:
            return rotary.both, (_short(size), _short(size), torch.arange(size).unsqueeze(0))

        def by_start(size: int, rotary: Rotary = rotary) -> tuple[Callable[..., Both], tuple[Any, ...]]:
            return rotary.both, (_short(1), _short(1), size)

        growing = {"length": by_length, "length, with ids": by_ids, "position of one token": by_start}
        for words, call_of in growing.items():
            for dynamic in (None, True):
                name = "default" if dynamic is None else "True"
                yield Count(words, pairing, name, _compilations(call_of, dynamic))


def _compilations(call_of: Callable[[int], tuple[Callable[..., Both], tuple[Any, ...]]], dynamic: bool | None) -> int:
    graphs = 0

    def backend(graph: GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        nonlocal graphs
        graphs += 1
        return graph.forward

    torch._dynamo.reset()
    function, _ = call_of(GROWING[0])
    compiled = torch.compile(lambda *arguments: function(*arguments), backend=backend, fullgraph=True, dynamic=dynamic)
    for size in GROWING:
        _, arguments = call_of(size)
        compiled(*arguments)
    torch._dynamo.reset()
    return graphs


def _short(length: int) -> Tensor:
    return torch.zeros(1, 2, length, HEAD_DIM)
