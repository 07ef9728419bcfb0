"""The contract holds for every encoding of the registry, and fails for every classic mistake."""

import os

import pytest
import torch
from torch import Tensor

import situs
from situs import check_encoding
from situs.checks import CHECKS, TAGS, EncodingCheckError
from situs.cli.check import SIZES
from tests import broken_encodings, broken_memories, broken_scores
from tests.raising import raises_exactly
from tests.sound_encodings import SOUND

pytestmark = pytest.mark.compiled

CAUGHT_BY = {**broken_encodings.CAUGHT_BY, **broken_memories.CAUGHT_BY, **broken_scores.CAUGHT_BY}

SHORT, LONG = [1.0] * 8, [2.0 + pair for pair in range(8)]

torch.manual_seed(0)  # a number that Kerple draws below its clamp has the gradient of one that is not clamped
VARIANTS: list[situs.Encoding] = [
    situs.Learned(dim=16, max_length=402, offset=2, padding_row=1),
    situs.Learned(dim=8, max_length=64, padding_row=0),
    situs.Learned(dim=4, max_length=1),
    situs.Sinusoidal(dim=33, layout="concatenated", spacing="inclusive", scale_embeddings=True),
    situs.Sinusoidal(dim=40, axes=2),
    situs.Sinusoidal(dim=41, axes=3),
    situs.Sinusoidal(dim=6, axes=3),
    situs.Sinusoidal(dim=3, layout="concatenated"),
    situs.Sinusoidal(dim=8, offset=2, padding="zeros", cosines_first=True),
    situs.Rotary(head_dim=2),
    situs.Rotary(head_dim=16, pairing="interleaved"),
    situs.Rotary(head_dim=16, rotary_dim=8),
    situs.Rotary(head_dim=16, base=(1e4, 5e5)),
    situs.Rotary(head_dim=16, scaling=situs.LinearScaling(factor=4.0)),
    situs.Rotary(head_dim=16, scaling=situs.NTKScaling(factor=4.0)),
    situs.Rotary(head_dim=16, scaling=situs.DynamicNTKScaling(factor=2.0, original_length=8)),
    situs.Rotary(head_dim=16, scaling=situs.NTKByPartsScaling(factor=4.0, original_length=2048)),
    situs.Rotary(head_dim=16, scaling=situs.YaRN(factor=4.0, original_length=2048, dialect="paper")),
    situs.Rotary(
        head_dim=16,
        pairing="interleaved",
        scaling=situs.YaRN(factor=40.0, original_length=4096, mscale=0.707, mscale_all_dim=1.0),
    ),
    situs.Rotary(
        head_dim=16,
        scaling=situs.LongRoPE(factor=4.0, original_length=8, short_factors=tuple(SHORT), long_factors=tuple(LONG)),
    ),
    situs.Rotary(head_dim=16, scaling=situs.Llama3Scaling(factor=8.0, original_length=8192)),
    situs.Rotary(head_dim=16, scaling=situs.ProportionalScaling(fraction=0.5)),
    situs.Rotary(head_dim=16, split=situs.Axial(axes=2)),
    situs.Rotary(head_dim=24, split=situs.Axial(axes=3), pairing="interleaved"),
    situs.Rotary(head_dim=16, split=situs.Axial(axes=2, ladder="shared")),
    situs.Rotary(head_dim=16, split=situs.Sections(sizes=(2, 3, 3))),
    situs.Rotary(head_dim=16, split=situs.Sections(sizes=(4, 2, 2), order="interleaved")),
    situs.Rotary(head_dim=16, split=situs.Sections(sizes=(2, 2, 2, 2))),
    situs.Rotary(head_dim=16, split=situs.Axial(dims=(4, 2, 10), bases=(10.0, 100.0, 1e4), halves="axis")),
    situs.LeRoPE(head_dim=16, pairing="halves", split=situs.Sections(sizes=(2, 3, 3), order="time_last")),
    situs.LeRoPE(head_dim=16, rotary_dim=8, scaling=situs.DynamicNTKScaling(factor=2.0, original_length=8)),
    situs.RoPEMixed(head_dim=8, num_heads=3, pairing="halves"),
    situs.Rotary(head_dim=16, rotary_dim=8, channels="trailing", reverse=True),
    situs.Rotary(
        head_dim=16,
        scaling=situs.LongRoPE(
            factor=4.0,
            original_length=8,
            short_factors=tuple(SHORT),
            long_factors=tuple(LONG),
            short_mscale=1.1,
            long_mscale=1.3,
        ),
    ),
    situs.RotaryValue(head_dim=8, rotary_dim=4, channels="trailing", rotate_back=False),
    situs.Temperature(dialect="ssmax", num_heads=2, original_length=5),
    situs.Temperature(dialect="power", original_length=5),
    situs.XPos(head_dim=2),
    situs.XPos(head_dim=16, scale_base=8.0),
    situs.XPos(head_dim=16, centre="middle", pairing="halves"),
    situs.XPos(head_dim=16, centre=1000.0),
    situs.T5Bias(num_heads=3, bidirectional=False),
    situs.T5Bias(num_heads=2, buckets="clipped", max_distance=9, softmax_scale=None),
    situs.ALiBi(num_heads=4, learned=True, asymmetric=True, first_head=2, all_heads=12),
    situs.ALiBi(num_heads=2, asymmetric=True, slopes_ahead=(1.0, 2.0)),
    situs.Kerple(num_heads=2, kernel="power"),
    situs.Fire(num_heads=2, threshold=6.0),
    situs.MLPBias(num_heads=2, width=6, axes=2, depth=3, norm=True, activation="leaky_relu"),
    situs.GatedBias(num_heads=2, bias="mlp", options={"width": 4, "log_distance": True}),
    situs.GatedBias(num_heads=2, bias="alibi", dim=8),
    situs.SwinBias(num_heads=2, window=(5, 6), version="v2", trained_window=(9, 9)),
    situs.SwinBias(num_heads=2, window=(4, 5), cls=True, signed=False),
    situs.Shaw(num_heads=2, head_dim=8, max_distance=3, per_head=True),
    situs.Shaw(num_heads=2, head_dim=8, keys=False),
    situs.Shaw(num_heads=2, head_dim=8, max_distance=5, max_ahead=2, beyond="nothing", rows="query_minus_key"),
    situs.Shaw(num_heads=2, head_dim=8, values=False),
    situs.TransformerXL(dim=12, num_heads=2, head_dim=8, init_std=0.5),
    situs.TransformerXL(dim=12, num_heads=2, head_dim=8, init_std=0.5, clamp_len=4),
    situs.Tupe(dim=8, num_heads=2, head_dim=8, relative_buckets=32, init_std=0.5),
    situs.Tupe(dim=8, num_heads=2, head_dim=8, untie_cls=False, init_std=0.5),
    situs.Deberta(dim=8, num_heads=2, head_dim=8, init_std=0.5),
    situs.Deberta(
        dim=8,
        num_heads=2,
        head_dim=8,
        max_distance=20,
        buckets=8,
        terms=("p2c", "p2p", "c2p"),
        p2c_row="mirrored",
        key_bias=False,
        layer_norm=True,
        init_std=0.5,
    ),
    situs.CoPE(num_heads=2, head_dim=8, max_position=5, init_std=1.0, per_head=True, scaled=False),
    situs.CoPE(num_heads=2, head_dim=8, init_std=1.0),
]
torch.manual_seed(0)
for variant in VARIANTS:
    for name, parameter in variant.named_parameters():
        if name == "hidden.bias":  # zeros would sit on the kink of a rectifier, where no gradient is defined
            torch.nn.init.uniform_(parameter, 0.1, 0.5)


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", situs.names())
def test_every_registered_encoding_keeps_the_contract(name: str) -> None:
    report = check_encoding(situs.entry(name).build(**SIZES))
    assert report.ok
    assert len(report.passed) >= len(CHECKS)


@pytest.mark.thin(32)
@pytest.mark.parametrize("encoding", VARIANTS, ids=lambda each: f"{type(each).__name__}({each.extra_repr()})")
def test_every_variant_keeps_the_contract(encoding: situs.Encoding) -> None:
    report = check_encoding(encoding, raise_on_failure=False)
    assert report.failures == {}


@pytest.mark.parametrize("broken", CAUGHT_BY, ids=lambda broken: broken.__name__)
def test_a_broken_encoding_is_caught_by_the_check_named_for_it(
    broken: type[situs.Encoding], monkeypatch: pytest.MonkeyPatch
) -> None:
    named = [check for check in (*CHECKS, *TAGS.values()) if check.__name__ == CAUGHT_BY[broken]]
    if os.environ.get("SITUS_SLOW") != "1":  # the other checks take seconds for each of so many
        monkeypatch.setattr("situs.checks.CHECKS", [check for check in CHECKS if check in named])
        monkeypatch.setattr(broken, "tags", frozenset(tag for tag in broken.tags if TAGS.get(tag) in named))
    report = check_encoding(broken(), raise_on_failure=False)
    assert CAUGHT_BY[broken] in report.failures, str(report)


def test_a_sound_encoding_of_twenty_lines_keeps_the_contract() -> None:
    assert check_encoding(broken_encodings.Sound()).ok


@pytest.mark.thin(2)
@pytest.mark.parametrize("sound", SOUND, ids=lambda sound: sound.__name__)
def test_an_encoding_that_only_looks_wrong_keeps_the_contract(sound: type[situs.Encoding]) -> None:
    report = check_encoding(sound(), raise_on_failure=False)
    assert report.failures == {}


def test_every_check_is_shown_to_fail() -> None:
    shown = set(CAUGHT_BY.values())
    others = {"copied_equals_plain", "exported_equals_plain"}
    assert {check.__name__ for check in (*CHECKS, *TAGS.values())} == shown | others
    for name in others:  # these need a broken environment rather than one broken formula
        assert name in {failure for broken in (Unpicklable, UnderAutocast) for failure in failures_of(broken)}


class Unpicklable(broken_encodings.Broken):
    """Holds a lambda, and branches on values, so that it can neither be pickled nor exported."""

    def __init__(self, *, base: float = 10000.0) -> None:
        super().__init__(base=base)
        self.make = lambda: base

    def forward(self, x: Tensor, positions: object = None, *, role: str = "query") -> Tensor:
        return super().forward(x, positions, role=role) if bool(x.any()) else x


class UnderAutocast(broken_encodings.Broken):
    """Forms its angles by a matrix product, which autocast does in bfloat16."""

    def forward(self, x: Tensor, positions: object = None, *, role: str = "query") -> Tensor:
        ids = self.ids(x, positions).float()
        angles = ids @ self.ladder().float()[None]
        return broken_encodings.rotate(x, angles)


def failures_of(broken: type[situs.Encoding]) -> set[str]:
    return set(check_encoding(broken(), raise_on_failure=False).failures)


def test_the_error_lists_every_failure_in_words() -> None:
    with pytest.raises(EncodingCheckError) as caught:
        check_encoding(broken_encodings.LengthCentred())
    text = str(caught.value)
    assert text.startswith("LengthCentred(base=10000.0) breaks the contract in ")
    assert "cached_equals_full: Token by token, and in chunks of any size, decoding gives the rows of the full" in text
    assert "But decoding in chunks of 12 then 1: outputs differ by" in text


def test_checking_leaves_the_encoding_as_it_was() -> None:
    encoding = situs.Learned(dim=8, max_length=320, dropout=0.1).train()
    before = encoding.table.detach().clone()
    check_encoding(encoding)
    assert encoding.training
    assert torch.equal(encoding.table, before)
    assert encoding.table.grad is None


def test_only_encodings_and_known_tags_are_taken() -> None:
    with raises_exactly(
        TypeError,
        "encoding must be a situs.Encoding, since its place tells how to run it; got Linear(in_features=2, "
        "out_features=2, bias=True).",
    ):
        check_encoding(torch.nn.Linear(2, 2))  # type: ignore[arg-type]
    encoding = broken_encodings.Sound()
    encoding.tags = frozenset({"fast"})
    with pytest.raises(ValueError, match=r"^tags must be among bounded, fading, .*; got fast.$"):
        check_encoding(encoding)
