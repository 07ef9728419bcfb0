"""Sinusoidal tables of released models against ours, in one and two dimensions, as released and in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import MarianConfig, MarianModel, WhisperConfig
from transformers.models.detr.modeling_detr import DetrSinePositionEmbedding
from transformers.models.distilbert.modeling_distilbert import _create_sinusoidal_embeddings as distilbert_table
from transformers.models.fsmt.modeling_fsmt import SinusoidalPositionalEmbedding as FSMTTable
from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding
from transformers.models.musicgen.modeling_musicgen import MusicgenSinusoidalPositionalEmbedding
from transformers.models.roformer.modeling_roformer import RoFormerSinusoidalPositionalEmbedding
from transformers.models.speech_to_text.modeling_speech_to_text import Speech2TextSinusoidalPositionalEmbedding
from transformers.models.whisper.modeling_whisper import WhisperEncoder, sinusoids
from transformers.models.xglm.modeling_xglm import XGLMSinusoidalPositionalEmbedding
from transformers.models.xlm.modeling_xlm import create_sinusoidal_embeddings as xlm_table

from situs import Positions, Sinusoidal
from tests.parity.wide_transformers import WIDE_TOLERANCE, in_float64

FAR = 70_000


@dataclass(frozen=True)
class Table:
    """A released table of (length, dim), and the options of ours that should match it."""

    name: str
    make: Callable[[int, int], Tensor]
    source: Any
    options: dict[str, Any]
    length: int = FAR

    def __str__(self) -> str:
        return self.name


def by_method(table: Any) -> Callable[[int, int], Tensor]:
    return lambda length, dim: table(length, dim).create_weight()


PAPER: dict[str, Any] = {"layout": "interleaved", "spacing": "exclusive"}
FAIRSEQ: dict[str, Any] = {"layout": "concatenated", "spacing": "inclusive"}
HALVES: dict[str, Any] = {"layout": "concatenated", "spacing": "exclusive"}

# fairseq's, which keeps a row for padding (none here), and whose odd widths end in zeros
FAIRSEQ_TABLES = [
    Table("fsmt", lambda length, dim: FSMTTable.get_embedding(length, dim, None), FSMTTable, FAIRSEQ),
    *(
        Table(name, table.get_embedding, table, FAIRSEQ)
        for name, table in (
            ("m2m100", M2M100SinusoidalPositionalEmbedding),
            ("speech2text", Speech2TextSinusoidalPositionalEmbedding),
            ("xglm", XGLMSinusoidalPositionalEmbedding),
        )
    ),
]
FAIRSEQ_MODULES = [FSMTTable, M2M100SinusoidalPositionalEmbedding, Speech2TextSinusoidalPositionalEmbedding]
# these are made number by number in Python, so only to a length that takes a moment
PAPER_TABLES = [
    Table("xlm", lambda *size: _filled(xlm_table, *size), xlm_table, PAPER, length=2000),
    Table("distilbert", lambda *size: _filled(distilbert_table, *size), distilbert_table, PAPER, length=2000),
]
TABLES = [
    *FAIRSEQ_TABLES,
    *PAPER_TABLES,
    Table("whisper", sinusoids, sinusoids, FAIRSEQ),
    Table(
        "marian",
        by_method(MarianSinusoidalPositionalEmbedding),
        MarianSinusoidalPositionalEmbedding,
        HALVES,
        length=2000,
    ),
    Table(
        "roformer",
        by_method(RoFormerSinusoidalPositionalEmbedding),
        RoFormerSinusoidalPositionalEmbedding,
        HALVES,
        length=2000,
    ),
]


def _filled(fill: Callable[..., Any], length: int, dim: int) -> Tensor:
    out = torch.empty(length, dim)
    fill(length, dim, out)
    return out


def rounding_of(ours: Sinusoidal, length: int) -> Tensor:
    """How far float32 may put a sine at position p of a wave of frequency w, (length, pairs).

    The exponent, ln(base) at most, is a product of rounded numbers, so a frequency's relative error is up to
    ln(base) 2^-23, and its own rounding and that of the angle add two more; then the sine is rounded.
    """
    angles = torch.arange(length)[:, None] * ours.frequencies()
    return (angles * (math.log(ours.base) + 2) + 2) * 2**-23


@pytest.mark.thin(2)
@pytest.mark.parametrize("table", TABLES, ids=str)
@pytest.mark.parametrize("dim", [16, 50])
@pytest.mark.parametrize("wide", [False, True], ids=["as released", "in float64"])
def test_table_equals_ours(table: Table, dim: int, wide: bool) -> None:
    with in_float64(table.source) if wide else nullcontext():
        theirs = table.make(table.length, dim)
    ours = Sinusoidal(dim=dim, **table.options)
    encoded = ours.encode(Positions.range(table.length), theirs.dtype)[0]
    by_pair = (-1, 2) if ours.layout == "interleaved" else (2, -1)
    difference = (encoded - theirs).abs().unflatten(-1, by_pair).amax(-1 if ours.layout == "interleaved" else -2)
    assert (difference <= (WIDE_TOLERANCE if wide else rounding_of(ours, table.length))).all()


@pytest.mark.parametrize("table", [*FAIRSEQ_TABLES, *PAPER_TABLES], ids=str)
def test_table_of_an_odd_width_equals_ours(table: Table) -> None:
    with in_float64(table.source):
        theirs = table.make(2000, 33)
    ours = Sinusoidal(dim=33, **table.options).encode(Positions.range(2000), torch.float64)[0]
    torch.testing.assert_close(ours, theirs, rtol=0.0, atol=WIDE_TOLERANCE)


@pytest.mark.parametrize("length", [60, 2500], ids=["short", "beyond the table"])
@pytest.mark.parametrize("table", FAIRSEQ_MODULES, ids=lambda table: table.__name__)
def test_fairseqs_tokens_begin_at_two_and_padding_gets_zeros(table: Any, length: int) -> None:
    padding = 1
    ids = torch.randint(2, 50, (2, length))
    ids[1, :17] = padding
    with in_float64(table):
        module = table(1024, 32, padding)
        if table is FSMTTable:
            module.make_weight(1024, 32, padding)
        theirs = module(ids)
    positions = Positions.from_mask(ids != padding, side="left")
    ours = Sinusoidal(dim=32, offset=padding + 1, padding="zeros", **FAIRSEQ)
    torch.testing.assert_close(ours.encode(positions, torch.float64), theirs, rtol=0.0, atol=WIDE_TOLERANCE)


def test_xglms_positions_begin_at_two_where_padding_is_or_not() -> None:
    ids = torch.tensor([[0, 1, 2, 1500], [0, 0, 1, 2]])
    with in_float64(XGLMSinusoidalPositionalEmbedding):
        theirs = XGLMSinusoidalPositionalEmbedding(2048, 32, 1)(ids)
    ours = Sinusoidal(dim=32, offset=2, **FAIRSEQ).encode(Positions.explicit(ids), torch.float64)
    torch.testing.assert_close(ours, theirs, rtol=0.0, atol=WIDE_TOLERANCE)


@pytest.mark.parametrize("dim", [32, 33])
def test_musicgens_cosines_stand_first(dim: int) -> None:
    with in_float64(MusicgenSinusoidalPositionalEmbedding):
        theirs = MusicgenSinusoidalPositionalEmbedding(64, dim)(torch.zeros(1, 4, 300), 5000)
    ours = Sinusoidal(dim=dim, cosines_first=True, **FAIRSEQ)
    encoded = ours.encode(Positions.range(300, start=5000), torch.float64)[0]
    torch.testing.assert_close(encoded, theirs, rtol=0.0, atol=WIDE_TOLERANCE)


@torch.no_grad()
def test_marians_scaled_embeddings_with_positions_equal_ours() -> None:
    config = MarianConfig(
        d_model=64,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        vocab_size=50,
        pad_token_id=0,
        decoder_start_token_id=0,
        scale_embedding=True,
    )
    encoder = MarianModel(config).eval().encoder
    arrived: list[Tensor] = []
    encoder.layers[0].register_forward_pre_hook(lambda module, given: arrived.append(given[0]))
    ids = torch.randint(1, 50, (2, 90))
    encoder(ids)
    ours = Sinusoidal(dim=64, scale_embeddings=True, **HALVES)(encoder.embed_tokens(ids))
    torch.testing.assert_close(ours, arrived[0], rtol=0.0, atol=2**-22)


def test_whispers_encoder_holds_our_table() -> None:
    config = WhisperConfig(d_model=64, encoder_layers=1, encoder_attention_heads=4, encoder_ffn_dim=32)
    held = WhisperEncoder(config).embed_positions.weight
    ours = Sinusoidal(dim=64, **FAIRSEQ)
    difference = (ours.encode(Positions.range(1500))[0] - held).abs().unflatten(-1, (2, -1)).amax(-2)
    assert (difference <= rounding_of(ours, 1500)).all()


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(("height", "width"), [(7, 11), (40, 25)])
def test_detrs_sines_of_a_masked_image_equal_ours(normalize: bool, height: int, width: int) -> None:
    """DETR counts rows and columns from 1 and, normalised, measures them in parts of a turn: real positions."""
    features = 32
    mask = torch.ones(2, height, width)
    mask[1, :, width - 4 :] = 0
    mask[1, height - 2 :] = 0
    with in_float64(DetrSinePositionEmbedding):
        module = DetrSinePositionEmbedding(features, normalize=normalize)
        theirs = module(torch.Size((2, 3, height, width)), "cpu", torch.float64, mask)
    for image in range(2):
        rows, columns = int(mask[image, :, 0].sum()), int(mask[image, 0].sum())
        ids = Positions.grid(rows, columns).ids.double() + 1
        if normalize:
            ids = ids / (torch.tensor([rows, columns], dtype=torch.float64) + 1e-6) * 2 * math.pi
        ours = Sinusoidal(dim=2 * features, axes=2).encode(Positions.explicit(ids), torch.float64)
        real = theirs[image, :, :rows, :columns].flatten(1).T
        torch.testing.assert_close(ours[0], real, rtol=0.0, atol=WIDE_TOLERANCE)


def test_detrs_sines_as_released_equal_ours() -> None:
    theirs = DetrSinePositionEmbedding(32)(torch.Size((1, 3, 30, 45)), "cpu", torch.float32)
    ours = Sinusoidal(dim=64, axes=2).encode(Positions.explicit(Positions.grid(30, 45).ids + 1))
    allowed = 45 * (math.log(10000) + 2) * 2**-23  # as in rounding_of, at the farthest position
    torch.testing.assert_close(ours[0], theirs[0].flatten(1).T, rtol=0.0, atol=allowed)
