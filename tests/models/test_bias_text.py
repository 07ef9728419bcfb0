"""Models of text with relative biases: what their configurations are read as, and transformers' own layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.inkling import modeling_inkling as inkling

from situs import Positions
from tests.models.bias_layers import assert_attends, lively, made, read_config
from tests.models.hugging_face import modeling_of
from tests.parity.attention_probe import FusedProjection, Projections, as_heads
from tests.parity.attention_probe import SeenAttention as Seen
from tests.parity.score_models import seen_by_xlnet
from tests.parity.test_inkling_parity import caught
from tests.parity.wide_transformers import in_float64

pytestmark = pytest.mark.once

HEADS, DIM, LENGTH = 3, 16, 40
WIDTH = HEADS * DIM
T5: dict[str, Any] = {
    "d_model": WIDTH, "d_kv": DIM, "d_ff": 16, "num_layers": 2, "num_decoder_layers": 2, "num_heads": HEADS,
    "relative_attention_num_buckets": 8, "relative_attention_max_distance": 20, "vocab_size": 30, "pad_token_id": 0,
}  # fmt: skip
BERT: dict[str, Any] = {
    "hidden_size": WIDTH, "num_attention_heads": HEADS, "num_hidden_layers": 2, "intermediate_size": 16,
    "vocab_size": 30,
}  # fmt: skip


def tokens(rows: int = 2) -> torch.Tensor:
    return torch.randint(3, 30, (rows, LENGTH))


def build(model_type: str, cls: str, **options: Any) -> tuple[Any, Any]:
    """A configuration and its model; the caller computes in float64."""
    config = CONFIG_MAPPING[model_type](**options)
    config._attn_implementation = "sdpa" if model_type == "falcon" else "eager"
    config.initializer_range = 0.02  # which Pix2Struct's text does not have by itself
    return config, lively(getattr(modeling_of(config), cls)(config))


T5_MODELS = {
    "t5": ("T5Model", {}),
    "mt5": ("MT5Model", {}),
    "umt5": ("UMT5Model", {}),
    "switch_transformers": (
        "SwitchTransformersModel",
        {"num_experts": 2, "num_sparse_encoder_layers": 0, "num_sparse_decoder_layers": 0},
    ),
    "longt5": ("LongT5Model", {"local_radius": 6}),
    "pop2piano": ("Pop2PianoForConditionalGeneration", {}),
    "udop": ("UdopModel", {"max_2d_position_embeddings": 64}),
}  # fmt: skip


@pytest.mark.thin(6)
@pytest.mark.parametrize("model_type", T5_MODELS)
def test_t5s_kind(model_type: str) -> None:
    cls, options = T5_MODELS[model_type]
    with in_float64(modeling_of(CONFIG_MAPPING[model_type]()).__dict__[cls]):
        config, model = build(model_type, cls, **T5, **options)
        found = read_config(config)
        inputs: dict[str, Any] = {"input_ids": tokens(), "decoder_input_ids": tokens()}
        positions = None
        if model_type == "pop2piano":
            inputs = {"inputs_embeds": torch.randn(2, LENGTH, WIDTH), "decoder_input_ids": tokens()}
        if model_type == "udop":
            corners = torch.rand(2, LENGTH, 2) * 0.9
            inputs["bbox"] = torch.cat((corners, corners + 0.05), -1).float().double()
        for name in ("encoder", "decoder"):
            layers = found.submodels[name].layers
            assert len(layers) == 2
            for index, layer in enumerate(layers):
                kind = "LocalSelfAttention" if model_type == "longt5" and name == "encoder" else "SelfAttention"
                path = f"{name}.block.{index}.layer.0.{kind}"
                owner = model.get_submodule(path if model_type == "umt5" else path.replace(f".{index}.", ".0.", 1))
                probe = Projections(path, DIM, query="q", key="k", value="v", output="o")
                seen = probe(model, lambda: model(**inputs))
                if model_type == "udop" and name == "encoder":
                    biases = model.encoder.relative_bias.biases
                    state = {"table": torch.cat([each.relative_attention_bias.weight for each in biases])}
                    (encoding,) = made(layer, state)
                    positions = encoding.positions(inputs["bbox"].float(), anchor="centre")  # type: ignore[operator]
                    assert_attends(seen, layer, [encoding], positions=positions)
                    continue
                if kind == "LocalSelfAttention":
                    seen = type(seen)(*(each[:, :, :LENGTH] for each in vars(seen).values()))
                assert_attends(seen, layer, made(layer, {"table": owner.relative_attention_bias.weight}))


def test_pix2structs_text() -> None:
    options = {**T5, "hidden_size": WIDTH, "is_decoder": True}
    del options["d_model"], options["num_decoder_layers"]
    with in_float64(transformers.Pix2StructTextModel):
        config, model = build("pix2struct_text_model", "Pix2StructTextModel", **options)
        table = model.layer[0].self_attention.attention.relative_attention_bias.weight
        for index, layer in enumerate(read_config(config).layers):
            probe = Projections(
                f"layer.{index}.self_attention.attention", DIM, "query", "key", "value", output="output"
            )
            assert_attends(probe(model, lambda: model(input_ids=tokens())), layer, made(layer, {"table": table}))


@pytest.mark.parametrize("rows", [32, 40])
def test_mpnet(rows: int) -> None:
    with in_float64(transformers.MPNetModel):
        config, model = build(
            "mpnet", "MPNetModel", **BERT, max_position_embeddings=210, relative_attention_num_buckets=rows
        )
        found = read_config(config)
        ids = torch.randint(3, 30, (1, 200))
        probe = Projections("encoder.layer.1.attention.attn", DIM, query="q", key="k", value="v", output="o")
        seen = probe(model, lambda: model(ids))
        (layer, _) = found.layers
        assert_attends(seen, layer, made(layer, {"table": model.encoder.relative_attention_bias.weight[:32]}))
        assert_table(found.input[0], model.embeddings.position_embeddings.weight, 2, 1)


def assert_table(call: Any, weight: torch.Tensor, offset: int, padding: int | None) -> None:
    encoding = call.build()
    assert encoding.table.shape == weight.shape
    assert (encoding.offset, encoding.padding_row) == (offset, padding)


ALIBI: dict[str, tuple[str, dict[str, Any], Any]] = {
    "bloom": ("BloomModel", {"hidden_size": WIDTH, "n_layer": 1, "n_head": HEADS},
              FusedProjection("h.0.self_attention", DIM, "query_key_value", "dense")),
    "mpt": ("MptModel", {"d_model": WIDTH, "n_layers": 1, "n_heads": HEADS, "max_seq_len": 60},
            FusedProjection("blocks.0.attn", DIM, "Wqkv", "out_proj", HEADS)),
    "falcon": ("FalconModel", {"hidden_size": WIDTH, "num_hidden_layers": 1, "num_attention_heads": HEADS,
                               "alibi": True, "multi_query": True},
               FusedProjection("h.0.self_attention", DIM, "query_key_value", "dense", 1)),
}  # fmt: skip


@pytest.mark.thin(6)
@pytest.mark.parametrize("model_type", ALIBI)
def test_alibi(model_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cls, options, probe = ALIBI[model_type]
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.double)
    with in_float64(getattr(transformers, cls)):
        config, model = build(model_type, cls, **options, vocab_size=30)
        found = read_config(config)
        (layer,) = found.layers
        seen = probe(model, lambda: model(tokens(), use_cache=False))
        assert_attends(seen, layer, made(layer, None))
        if model_type == "falcon":  # whose other implementation has the bias in the mask, and adds it once more
            model.config._attn_implementation = "eager"
            twice = replace(layer, calls=(layer.calls[0].replace(factor=2 * DIM**-0.5),))
            assert_attends(probe(model, lambda: model(tokens(), use_cache=False)), twice, made(twice, None))


DEBERTA: dict[str, tuple[str, dict[str, Any]]] = {
    "deberta": ("DebertaModel", {"relative_attention": True, "pos_att_type": "c2p|p2c", "max_relative_positions": 16}),
    "deberta-v2": ("DebertaV2Model", {"relative_attention": True, "pos_att_type": ["p2c", "c2p"],
                                      "position_buckets": 8, "max_relative_positions": 24, "norm_rel_ebd": "layer_norm",
                                      "share_att_key": True, "position_biased_input": False}),
    "sew-d": ("SEWDTransformerEncoder", {"max_position_embeddings": 24, "position_buckets": 8, "pos_att_type": ["c2p"],
                                         "share_att_key": False}),
}  # fmt: skip


@pytest.mark.thin(6)
@pytest.mark.parametrize("model_type", DEBERTA)
def test_deberta(model_type: str) -> None:
    cls, options = DEBERTA[model_type]
    dim = 12 if model_type != "sew-d" else 8  # transformers takes a root of dim x terms in float32, exact for squares
    options = {**BERT, "hidden_size": HEADS * dim, **options}
    with in_float64(modeling_of(CONFIG_MAPPING[model_type]()).__dict__[cls]):
        config, model = build(model_type, cls, **options)
        found = read_config(config)
        encoder = getattr(model, "encoder", model)
        caught: list[Any] = []
        attention = encoder.layer[1].attention.self
        attention.register_forward_hook(lambda module, given, made: caught.append((given[0], made[0])))
        with torch.no_grad():
            if model_type == "sew-d":
                model(torch.randn(2, LENGTH, HEADS * dim), torch.ones(2, LENGTH))
            else:
                model(tokens())
            ((hidden, out),) = caught
            if model_type == "deberta":
                query, key, value = as_heads(attention.in_proj(hidden), 3 * dim).chunk(3, -1)
                query, value = (each + bias.view(1, HEADS, 1, dim) for each, bias in
                                ((query, attention.q_bias), (value, attention.v_bias)))  # fmt: skip
            else:
                query, key, value = (as_heads(getattr(attention, f"{name}_proj")(hidden), dim)
                                     for name in ("query", "key", "value"))  # fmt: skip
        layer = found.layers[1]
        encodings = made(layer, None)
        assert_attends(
            Seen(query, key, value, as_heads(out, dim)), layer, [load_deberta(encodings[0], encoder, attention)]
        )
        if model_type == "deberta":
            assert_table(found.input[0], model.embeddings.position_embeddings.weight, 0, None)
        else:
            assert not found.input


def load_deberta(encoding: Any, encoder: Any, attention: Any) -> Any:
    with torch.no_grad():
        encoding.table.copy_(encoder.rel_embeddings.weight)
    if encoding.norm is not None:
        encoding.norm.load_state_dict(encoder.LayerNorm.state_dict())
    if encoding.share_att_key:
        return encoding.tie(query=attention.query_proj, key=attention.key_proj)
    names = (("query_projection", ("pos_q_proj", "pos_query_proj")), ("key_projection", ("pos_proj", "pos_key_proj")))
    for ours, theirs in names:
        if getattr(encoding, ours) is not None:
            source = next(getattr(attention, name) for name in theirs if hasattr(attention, name))
            getattr(encoding, ours).load_state_dict(source.state_dict())
    return encoding


@pytest.mark.parametrize(("kind", "bound"), [("bi", -1), ("uni", 7)])
def test_xlnet(kind: str, bound: int) -> None:
    with in_float64(transformers.XLNetModel):
        config, model = build("xlnet", "XLNetModel", vocab_size=30, d_model=WIDTH, n_layer=2, n_head=HEADS, d_inner=16,
                              attn_type=kind, clamp_len=bound)  # fmt: skip
        layer = read_config(config).layers[1]
        (seen,) = seen_by_xlnet(model, lambda: model(tokens()))
        attention = model.layer[1].rel_attn
        assert_attends(seen, layer, made(layer, projected(attention.r.reshape(WIDTH, -1).T, attention)))


def projected(projection: torch.Tensor, attention: Any) -> dict[str, torch.Tensor]:
    return {"projection": projection, "content_bias": attention.r_w_bias, "position_bias": attention.r_r_bias}


@pytest.mark.parametrize("kind", ["relative_shift", "factorized"])
@torch.no_grad()
def test_funnel(kind: str) -> None:
    with in_float64(transformers.FunnelModel):
        config, model = build("funnel", "FunnelModel", vocab_size=30, d_model=WIDTH, n_head=HEADS, d_head=DIM,
                              d_inner=16, block_sizes=[1, 2], num_decoder_layers=1, attention_type=kind)  # fmt: skip
        found = read_config(config)
        assert [len(found.submodels[name].layers) for name in ("encoder", "decoder")] == [3, 1]
        attention, kept = model.encoder.blocks[0][0].attention, []
        attention.seg_embed.zero_()  # what token types add
        attention.register_forward_hook(lambda module, given, out: kept.append(given))
        attention.post_proj.register_forward_pre_hook(lambda module, given: kept.append(given[0]))
        model(tokens())
        out, (query, key, value, *_) = kept
        heads = [as_heads(each, DIM) for each in (attention.q_head(query), attention.k_head(key),
                                                  attention.v_head(value), out)]  # fmt: skip
        positions = Positions.explicit(torch.arange(LENGTH), placed=torch.arange(LENGTH) > 0)
        layer = found.submodels["encoder"].layers[0]
        encodings = made(layer, projected(attention.r_kernel.flatten(1).T, attention))
        assert_attends(Seen(*heads), layer, encodings, positions=positions)


INKLING: dict[str, Any] = {
    "vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 8, "swa_num_attention_heads": 4, "swa_num_key_value_heads": 1, "swa_head_dim": 6,
    "sliding_window_size": 12, "d_rel": 6, "rel_extent": 20, "log_scaling_n_floor": 16, "local_layer_ids": [0, 2],
    "intermediate_size": 32, "moe_intermediate_size": 16, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "n_shared_experts": 1, "pad_token_id": 0, "mlp_layer_types": ["dense"] * 3,
}  # fmt: skip


@pytest.mark.parametrize("floor", [16, None])
@torch.no_grad()
def test_inkling(floor: int | None) -> None:
    with in_float64(inkling.InklingTextModel):
        config, model = build("inkling_text", "InklingTextModel", **{**INKLING, "log_scaling_n_floor": floor})
        found = read_config(config)
        assert [each.kind for each in found.layers] == ["sliding", "full", "sliding"]
        with caught(model) as seen:
            seen[2] = {}
            model(input_ids=tokens())
        for index, layer in enumerate(found.layers):
            kept = seen[index]
            module = kept["module"]
            states = [{"profiles": module.rel_logits_proj.proj}, *[None] * (len(layer.calls) - 1)]
            relative = kept["relative"].unflatten(-1, (4, -1)).transpose(1, 2)
            own = Seen(kept["query"].transpose(1, 2), kept["key"], kept["value"], kept["out"])
            assert_attends(own, layer, made(layer, *states), features={"relative": relative})
