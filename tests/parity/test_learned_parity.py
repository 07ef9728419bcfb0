"""Learned tables: what enters a released model's first layer is our encoding of its token embeddings, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    BartConfig,
    BartModel,
    BertConfig,
    BertModel,
    CLIPTextConfig,
    CLIPTextModel,
    GPT2Config,
    GPT2Model,
    OPTConfig,
    OPTModel,
    RobertaConfig,
    RobertaModel,
)

from situs import Learned, Positions
from tests.parity.attention_probe import enliven

DIM, ROWS, VOCABULARY, PADDING = 32, 70, 50, 1
BERT_SIZES: dict[str, Any] = {
    "hidden_size": DIM,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 32,
    "vocab_size": VOCABULARY,
}
BART_SIZES: dict[str, Any] = {
    "d_model": DIM,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
}
MASK = (torch.arange(40) >= torch.tensor([[0], [13]])).long()


@dataclass(frozen=True)
class Embedder:
    """A model, where its tokens and positions are embedded, and where their sum arrives."""

    name: str
    build: Callable[[], Any]
    tokens: str
    table: str
    arrival: str
    offset: int = 0
    padding_row: int | None = None
    token_types: str | None = None

    def __str__(self) -> str:
        return self.name

    def ours(self, model: nn.Module) -> Learned:
        """Ours with the model's table."""
        table = model.get_submodule(self.table).get_parameter("weight")
        ours = Learned(dim=DIM, max_length=len(table), offset=self.offset, padding_row=self.padding_row)
        ours.load_state_dict({"table": table})
        return ours

    def embedded(self, model: nn.Module, ids: Tensor) -> Tensor:
        """Tokens without positions."""
        embedded: Tensor = model.get_submodule(self.tokens)(ids)
        if self.token_types is not None:
            embedded = embedded + model.get_submodule(self.token_types)(torch.zeros_like(ids))
        return embedded

    def arrived(self, model: nn.Module, *arguments: Tensor, **options: Tensor) -> Tensor:
        """What the model made of the tokens and their positions."""
        arrivals: list[Tensor] = []
        handle = model.get_submodule(self.arrival).register_forward_pre_hook(
            lambda module, given, named: arrivals.append(given[0] if given else named["hidden_states"]),
            with_kwargs=True,
        )
        model(*arguments, **options)
        handle.remove()
        return arrivals[0]


EMBEDDERS = [
    Embedder(
        "bert",
        lambda: BertModel(BertConfig(**BERT_SIZES, max_position_embeddings=ROWS)),
        "embeddings.word_embeddings",
        "embeddings.position_embeddings",
        "embeddings.LayerNorm",
        token_types="embeddings.token_type_embeddings",
    ),
    Embedder(
        "roberta",
        lambda: RobertaModel(RobertaConfig(**BERT_SIZES, max_position_embeddings=ROWS, pad_token_id=PADDING)),
        "embeddings.word_embeddings",
        "embeddings.position_embeddings",
        "embeddings.LayerNorm",
        offset=2,
        padding_row=PADDING,
        token_types="embeddings.token_type_embeddings",
    ),
    Embedder(
        "gpt-2",
        lambda: GPT2Model(GPT2Config(n_embd=DIM, n_layer=1, n_head=4, n_positions=ROWS, vocab_size=VOCABULARY)),
        "wte",
        "wpe",
        "h.0",
    ),
    Embedder(
        "opt",
        lambda: OPTModel(
            OPTConfig(
                hidden_size=DIM,
                word_embed_proj_dim=DIM,
                num_hidden_layers=1,
                num_attention_heads=4,
                ffn_dim=32,
                vocab_size=VOCABULARY,
                max_position_embeddings=ROWS - 2,
            )
        ),
        "decoder.embed_tokens",
        "decoder.embed_positions",
        "decoder.layers.0",
        offset=2,
    ),
    Embedder(
        "bart",
        lambda: BartModel(BartConfig(**BART_SIZES, vocab_size=VOCABULARY, max_position_embeddings=ROWS - 2)),
        "encoder.embed_tokens",
        "encoder.embed_positions",
        "encoder.layernorm_embedding",
        offset=2,
    ),
    Embedder(
        "clip",
        lambda: CLIPTextModel(
            CLIPTextConfig(**BERT_SIZES, max_position_embeddings=ROWS, bos_token_id=0, eos_token_id=2)
        ),
        "embeddings.token_embedding",
        "embeddings.position_embedding",
        "encoder.layers.0",
    ),
]


def named(name: str) -> Embedder:
    return next(each for each in EMBEDDERS if each.name == name)


each_embedder = pytest.mark.parametrize("embedder", EMBEDDERS, ids=str)


def built(embedder: Embedder) -> Any:
    return enliven(embedder.build().eval())


def random_tokens(length: int) -> Tensor:
    return torch.randint(3, VOCABULARY, (2, length))


@each_embedder
@pytest.mark.parametrize("whole", [False, True], ids=["part of the table", "all of it"])
@torch.no_grad()
def test_embeddings_from_position_zero_equal_ours_bit_for_bit(embedder: Embedder, whole: bool) -> None:
    model = built(embedder)
    ours = embedder.ours(model)
    assert ours.usable_length == ROWS - embedder.offset
    ids = random_tokens(ours.usable_length if whole else 40)
    assert torch.equal(ours(embedder.embedded(model, ids)), embedder.arrived(model, ids))


@pytest.mark.parametrize("embedder", [named("bert"), named("gpt-2"), named("clip")], ids=str)
@torch.no_grad()
def test_embeddings_at_given_positions_equal_ours_bit_for_bit(embedder: Embedder) -> None:
    model = built(embedder)
    ids, positions = random_tokens(40), torch.randint(ROWS, (2, 40))
    arrived = embedder.arrived(model, ids, position_ids=positions)
    assert torch.equal(embedder.ours(model)(embedder.embedded(model, ids), positions), arrived)


@torch.no_grad()
def test_roberta_with_padding_on_either_side_equals_ours_at_padded_places_too() -> None:
    embedder = named("roberta")
    model = built(embedder)
    assert model.embeddings.position_embeddings.weight[PADDING].any()  # enlivened, so that padded places show it
    for mask in (MASK, MASK.flip(1)):
        ids = torch.where(mask.bool(), random_tokens(40), PADDING)
        arrived = embedder.arrived(model, ids, attention_mask=mask)
        assert torch.equal(embedder.ours(model)(embedder.embedded(model, ids), Positions.from_mask(mask)), arrived)


@torch.no_grad()
def test_opt_with_left_padding_equals_ours_at_real_tokens() -> None:
    embedder = named("opt")
    model = built(embedder)
    ids = random_tokens(40)
    arrived = embedder.arrived(model, ids, attention_mask=MASK)
    ours = embedder.ours(model)(embedder.embedded(model, ids), Positions.from_mask(MASK, side="left"))
    assert torch.equal(ours[MASK.bool()], arrived[MASK.bool()])


@torch.no_grad()
def test_gpt2_decoding_after_a_cached_prompt_equals_ours() -> None:
    embedder = named("gpt-2")
    model = built(embedder)
    ids = random_tokens(60)
    cache = model(ids[:, :51], use_cache=True).past_key_values
    arrived = embedder.arrived(model, ids[:, 51:], past_key_values=cache)
    assert torch.equal(embedder.ours(model)(embedder.embedded(model, ids[:, 51:]), 51), arrived)


@each_embedder
@torch.no_grad()
def test_one_token_past_the_table_fails_in_both(embedder: Embedder) -> None:
    model = built(embedder)
    ours = embedder.ours(model)
    ids = random_tokens(ours.usable_length + 1)
    with pytest.raises((IndexError, ValueError, RuntimeError)):
        model(ids)
    with pytest.raises(ValueError, match=f"^positions must lie in 0 .. {ours.usable_length - 1}"):
        ours(embedder.embedded(model, ids))
