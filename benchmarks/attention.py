"""Attention with an encoding beside attention without: time and extra memory, forward, and forward with backward.

plain          scaled_dot_product_attention, no positions
situs          situs.attend
materialised   the same encoding as a dense term, handed to scaled_dot_product_attention
gather         content-based terms from a vector for every pair of places, as they are often written
transformers   DeBERTa's own attention, its projections of contents left out on both sides
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import situs
from benchmarks.memory import peak_beyond_result
from benchmarks.timing import Contender, Effort, race

HEADS, HEAD_DIM = 8, 64
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
PLAIN, ATTEND, MATERIALISED, GATHER, TRANSFORMERS = "plain", "situs", "materialised", "gather", "transformers"
SDPA = torch.nn.functional.scaled_dot_product_attention


@dataclass(frozen=True)
class Row:
    """One case, what everyone took for it, and what they held beyond their results."""

    encoding: str
    work: str
    length: int
    causal: bool
    dtype: str
    threads: int
    milliseconds: dict[str, float]
    extra_mib: dict[str, float] = field(default_factory=dict)

    @property
    def case(self) -> str:
        """The case in words."""
        seen = "causal" if self.causal else "full"
        return f"{self.length}, {seen}, {self.dtype}, {self.threads} thread{'s' * (self.threads > 1)}"

    def over_plain(self, name: str = ATTEND) -> float:
        """Times the time of plain attention."""
        return self.milliseconds[name] / self.milliseconds[PLAIN]


def encodings() -> dict[str, situs.Encoding]:
    """The encodings that are measured, at the usual sizes."""
    sizes: dict[str, Any] = {"num_heads": HEADS, "head_dim": HEAD_DIM}
    dim = HEADS * HEAD_DIM
    return {
        "t5": situs.T5Bias(num_heads=HEADS),
        "alibi": situs.ALiBi(num_heads=HEADS),
        "shaw keys": situs.Shaw(**sizes, values=False),
        "transformer_xl": situs.TransformerXL(dim=dim, **sizes),
        "tupe": situs.Tupe(dim=dim, **sizes, max_length=4096),
        "deberta": situs.Deberta(dim=dim, **sizes),
        "cope": situs.CoPE(**sizes),
        "fire": situs.Fire(num_heads=HEADS),
    }


def measure(effort: Effort, threads: tuple[int, ...], quick: bool) -> Iterator[Row]:
    """Every case; "quick" has the shortest of each."""
    made = encodings()
    for count in threads:
        torch.set_num_threads(count)
        for dtype in DTYPES:
            for length in (1024,) if quick else (1024, 2048, 4096, 8192):
                for causal in (False, True):
                    if causal or length > 1024 or quick:
                        yield _forward(made, "t5", length, causal, dtype, count, effort, ())
        for name in ("alibi", "shaw keys", "transformer_xl", "tupe", "deberta", "cope", "fire"):
            for length in (512,) if quick else (2048, 4096) if name not in ("cope", "fire") else (2048,):
                rivals = (MATERIALISED, GATHER, TRANSFORMERS) if length <= 2048 and count == 1 else ()
                yield _forward(made, name, length, False, "float32", count, effort, rivals)
        for name in ("t5", "shaw keys", "transformer_xl", "tupe", "deberta"):
            for length in (512,) if quick else (2048, 4096) if name == "t5" else (2048,):
                for causal in (False, True) if name == "t5" else (False,):
                    yield _backward(made, name, length, causal, count, effort)


def _forward(
    made: dict[str, situs.Encoding], name: str, length: int, causal: bool, dtype: str, threads: int, effort: Effort,
    rivals: tuple[str, ...],
) -> Row:  # fmt: skip
    encoding = made[name]
    query, key, value = _vectors(length, DTYPES[dtype])
    runs: dict[str, Callable[[], object]] = {
        PLAIN: lambda: SDPA(query, key, value, is_causal=causal),
        ATTEND: lambda: situs.attend(query, key, value, encoding=encoding, causal=causal),
    }
    if MATERIALISED in rivals:
        runs[MATERIALISED] = lambda: materialised(query, key, value, encoding)
    if GATHER in rivals and isinstance(encoding, situs.OffsetScore):
        runs[GATHER] = lambda: gathered(query, key, value, encoding)
    if TRANSFORMERS in rivals and name == "deberta":
        runs[TRANSFORMERS] = _transformers_deberta(length, query, key, value)
    with torch.no_grad():
        return _row(name, "forward", length, causal, dtype, threads, runs, effort)


def _backward(
    made: dict[str, situs.Encoding], name: str, length: int, causal: bool, threads: int, effort: Effort
) -> Row:
    encoding = made[name]
    query, key, value = (tensor.requires_grad_() for tensor in _vectors(length, torch.float32))
    gradient = torch.randn_like(query)
    leaves = [query, key, value, *encoding.parameters()]

    def both(forward: Callable[[], Tensor]) -> Callable[[], object]:
        return lambda: torch.autograd.grad(forward(), leaves, gradient, allow_unused=True)

    runs = {
        PLAIN: both(lambda: SDPA(query, key, value, is_causal=causal)),
        ATTEND: both(lambda: situs.attend(query, key, value, encoding=encoding, causal=causal)),
    }
    if length <= 2048 and threads == 1 and not causal:
        runs[MATERIALISED] = both(lambda: materialised(query, key, value, encoding))
    return _row(name, "forward and backward", length, causal, "float32", threads, runs, effort)


def _row(
    name: str, work: str, length: int, causal: bool, dtype: str, threads: int, runs: dict[str, Callable[[], object]],
    effort: Effort,
) -> Row:  # fmt: skip
    for run in runs.values():
        run()
    raced = race([Contender(each, run) for each, run in runs.items()], effort)
    extra = {each: peak_beyond_result(run) / 2**20 for each, run in runs.items()} if threads == 1 else {}
    times = {each: 1000 * seconds for each, seconds in raced.medians.items()}
    return Row(name, work, length, causal, dtype, threads, times, extra)


def _vectors(length: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    made = torch.randn(3, 1, HEADS, length, HEAD_DIM, generator=generator).to(dtype)
    return made[0].clone(), made[1].clone(), made[2].clone()


def materialised(query: Tensor, key: Tensor, value: Tensor, encoding: situs.Encoding) -> Tensor:
    """A term for every score, as a mask."""
    if isinstance(encoding, situs.BiasEncoding):
        term = encoding(situs.Positions.range(query.shape[2]))
    else:
        term = encoding(query, key)
    return SDPA(query, key, value, attn_mask=term, scale=encoding.scale_for(HEAD_DIM))


def gathered(query: Tensor, key: Tensor, value: Tensor, encoding: situs.OffsetScore) -> Tensor:
    """Vectors for every pair of places, once where heads share them, else one head after another lest they fill the
    memory."""
    places = torch.arange(query.shape[2])
    offsets = places - places[:, None]
    lowest = int(offsets.min())
    vectors = encoding.vectors(torch.arange(lowest, -lowest + 1), query.dtype)
    scores = query @ key.transpose(-2, -1)
    for table, against in ((vectors.for_query, query), (vectors.for_key, key)):
        subscripts = "hid,ijd->hij" if against is query else "hjd,ijd->hij"
        for number, rows in enumerate(() if table is None else table):
            heads = slice(None) if table is not None and len(table) == 1 else slice(number, number + 1)
            scores[0, heads] += torch.einsum(subscripts, against[0, heads], rows[offsets - lowest])
    if vectors.alone is not None:
        scores = scores + vectors.alone[:, offsets - lowest]
    if vectors.for_every_key is not None:
        scores = scores + (key @ vectors.for_every_key.unsqueeze(-1)).transpose(-2, -1)
    return (scores * encoding.scale_for(HEAD_DIM)).softmax(-1) @ value


def _transformers_deberta(length: int, query: Tensor, key: Tensor, value: Tensor) -> Callable[[], object]:
    """transformers' DeBERTa v2 attention on the same vectors, handed to it by projections that do nothing else."""
    from transformers import DebertaV2Config
    from transformers.models.deberta_v2.modeling_deberta_v2 import DisentangledSelfAttention

    dim = HEADS * HEAD_DIM
    config = DebertaV2Config(
        hidden_size=dim, num_attention_heads=HEADS, relative_attention=True, pos_att_type=["c2p", "p2c"],
        max_relative_positions=512, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    layer = DisentangledSelfAttention(config).eval()
    given = [each.transpose(1, 2).reshape(1, length, dim) for each in (query, key, value)]
    for name, tensor in zip(("query_proj", "key_proj", "value_proj"), given, strict=True):
        setattr(layer, name, _Given(tensor))
    table, mask = torch.randn(1024, dim), torch.ones(1, 1, length, length)
    return lambda: layer(given[0], mask, rel_embeddings=table)


class _Given(torch.nn.Module):
    """A projection whose result is known."""

    def __init__(self, result: Tensor) -> None:
        super().__init__()
        self.result = result

    def forward(self, hidden: Tensor) -> Tensor:
        return self.result
