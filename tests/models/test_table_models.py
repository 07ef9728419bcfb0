"""Tables at the input: what our encodings add, against what tiny models of transformers add for the same tokens."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from situs import Learned, Positions
from situs.models import read
from situs.models.positions import ModelPositions
from situs.models.readers.table_rows import BOTH, CONVOLVED, PATCHES, RECURRENT, TOKENS, Tokens
from situs.models.readers.tables import READERS
from situs.models.sources.strict import ConfigError
from tests.models.hugging_face import config_of, modeling_of
from tests.models.reading import file_of
from tests.models.test_table_images import MODELS

pytestmark = pytest.mark.once

LENGTH, DIM, HEADS, PAD, PATCH = 40, 32, 4, 3, 4
COUNTS = (73, 16, 50, 45)  # of tokens, of encoders and decoders, of patches, left out
TINY: dict[str, Any] = {
    "vocab_size": 60, "pad_token_id": PAD, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2,
    "src_vocab_size": 60, "tgt_vocab_size": 60, "bos_index": 0, "eos_index": 1, "pad_index": PAD, "unk_index": 4,
    "mask_index": 5, "n_langs": 1, "langs": ["de", "en"], "forced_eos_token_id": None, "begin_suppress_tokens": None,
    "hidden_size": DIM, "d_model": DIM, "dim": DIM, "emb_dim": DIM, "embedding_size": 24, "input_embedding_size": 24,
    "n_embd": DIM, "word_embed_proj_dim": DIM, "intra_bottleneck_size": DIM, "pronunciation_embed_dim": DIM,
    "shape_embed_dim": DIM, "projection_dim": DIM, "output_dim": DIM, "num_image_with_embedding": None,
    "num_hidden_layers": 2, "encoder_layers": 2, "decoder_layers": 2, "n_layers": 2, "n_layer": 2, "num_layers": 2,
    "attention_types": [[["global", "local"], 1]], "num_hidden_groups": 1, "window_size": 8, "attention_window": 8,
    "num_attention_heads": HEADS, "encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS, "n_heads": HEADS,
    "n_head": HEADS, "num_heads": HEADS, "attention_heads": HEADS, "intermediate_size": 48, "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48, "ffn_dim": 48, "hidden_dim": 48, "dff": 48, "n_inner": 48, "encoder_hidden_size": DIM,
    "max_position_embeddings": LENGTH, "n_positions": LENGTH, "n_ctx": LENGTH, "max_source_positions": LENGTH,
    "max_target_positions": LENGTH, "max_encoder_position_embeddings": LENGTH, "q_groups": 1, "k_groups": 1,
    "max_decoder_position_embeddings": LENGTH, "attention_type": "original_full", "num_experts": 2, "expert_ffn_dim": 8,
    "image_size": 16, "patch_size": PATCH, "num_patches": 16, "entity_vocab_size": 8, "bos_token_box": None,
    "head_ratio": 2, "embed_dim": DIM, "layers": 2, "default_language": "en_XX", "languages": ["en_XX"],
    "v_groups": 1, "post_attention_groups": 1, "intermediate_groups": 1, "output_groups": 1,
    "depths": [1, 1, 1], "num_group_tokens": [4, 2, 0], "num_output_groups": [4, 2, 0], "num_mel_bins": 8,
    "xpath_unit_hidden_size": 8, "use_mean_pooling": False, "spatial_merge_size": 1, "num_register_tokens": 2,
}  # fmt: skip

CLASSES = {
    "aimv2_text_model": "Aimv2TextModel",
    "blip_text_model": "BlipTextModel",
    "bert-generation": "BertGenerationEncoder",
    "trocr": "TrOCRDecoder",
    "opt": "OPTModel",
    "musicgen_decoder": "MusicgenModel",
    "musicgen_melody_decoder": "MusicgenMelodyModel",
    "altclip_text_model": "AltRobertaModel",
}
TABLE = re.compile(
    r"(^|\.)(position_embeddings?|embed_positions|wpe|positions_embed|position_embeds_layer|positional_embedding|pos_embed|pos_encoding)$"
)


def tiny(model_type: str, **settings: Any) -> Any:
    held = set(inspect.signature(type(config_of(model_type))).parameters)
    config = config_of(model_type, **{key: value for key, value in TINY.items() if key in held} | settings)
    config._attn_implementation = "eager"
    return config


def model_of(config: Any) -> Any:
    """The smallest model of a configuration, with tables that differ everywhere."""
    module = modeling_of(config)
    if config.model_type in CLASSES:
        made = [getattr(module, CLASSES[config.model_type])]
    else:
        made = [
            each
            for name, each in vars(module).items()
            if inspect.isclass(each) and getattr(each, "config_class", None) is type(config)
            and each.__module__ == module.__name__ and not name.endswith("PreTrainedModel")
        ]  # fmt: skip
    model = min(made, key=lambda each: ("For" in each.__name__, len(each.__name__)))(config).eval()
    for name, module in model.named_modules():
        if TABLE.search(name) and "Sinusoidal" not in type(module).__name__:
            for parameter in module.parameters():
                if parameter.requires_grad:  # not Whisper's, which holds sines
                    nn.init.normal_(parameter.data)
    return model


def tables_of(model: nn.Module) -> dict[str, nn.Module]:
    return {name: module for name, module in model.named_modules() if TABLE.search(name)}


TEXT = {name: row for name, row in TOKENS.items() if "encoder" not in name and "audio" not in name}

NONE = "it has no table: neither attention that needs one, nor a parameter of positions"
OTHERWISE = "no encoding of Situs makes what it adds"
LEFT_OUT = {
    **dict.fromkeys(
        (
            "align_vision_model", "blip_2_qformer", "flava_image_codebook", "flava_multimodal_model", "janus_vqgan",
            "molmo2_adapter", "qwen2_5_omni_bigvgan",
        ),
        NONE,
    ),
    **dict.fromkeys(
        (
            "sam3_detr_decoder", "sam3_detr_encoder", "sam3_geometry_encoder", "sam3_mask_decoder",
            "sam3_lite_text_detr_decoder", "sam3_lite_text_detr_encoder", "sam3_lite_text_geometry_encoder",
            "sam3_lite_text_mask_decoder",
        ),
        "a part of SAM 3 without a model of its own, which is given sines of boxes and of cells",
    ),
    **dict.fromkeys(("granite_speech_plus_encoder", "levit", "speecht5"), "its positions are a bias of scores"),
    "pvt": "each of its stages has a table",
    "sam2_hiera_det_model": f"{OTHERWISE}: a resized table and a window's, as tiles",
    "bros": f"{OTHERWISE}: sines of boxes",
    "canary_decoder": f"{OTHERWISE}: sines through the root of the width",
    "canine": "its characters have a table, and its layers attend to blocks of them",
    "decision_transformer": "each token takes the first row of its table, and the time of a step has another",
    "kosmos_2_5_vision_model": f"{OTHERWISE}: a row's and a column's vector, counted from 1, of one table each",
    "pix2struct_vision_model": f"{OTHERWISE}: a row's and a column's vector, counted from 1, of one table each",
    "lxmert": "its layers are three stacks under names of their own",
    "mllama_vision_model": f"{OTHERWISE}: tables of tiles behind a gate",
    "tapas": f"{OTHERWISE}: positions that start again in each cell of a table of text",
    "vitpose_backbone": f"{OTHERWISE}: the class token's row is added to that of each patch",
    "yolos": f"{OTHERWISE}: rows of detections behind those of patches, and tables within the layers",
    "vilt": "it joins text and image in one stack",
    **dict.fromkeys(
        ("timesformer", "videoprism_vision_model", "vivit", "videomae"), "its grid has time beside both sides"
    ),
    **dict.fromkeys(
        ("autoformer", "informer", "patchtsmixer", "patchtst", "time_series_transformer"),
        "time series, whose length is computed from lags",
    ),
    **dict.fromkeys(
        ("hiera", "radio"),
        "its layers have sizes of their own in each stage, or its table a size that no setting tells",
    ),
    "sam3_lite_text_text_model": "its table is stretched to the length of each text",
    "videoprism_text_model": f"{OTHERWISE}: a token without a position behind the text, and capped scores",
}  # fmt: skip


def tokens(row: Tokens) -> tuple[Tensor, Tensor]:
    """Two rows of tokens, of which one has padding: before its tokens where it is not counted, else behind."""
    ids = torch.randint(6, 60, (2, 11))
    valid = torch.ones(2, 11, dtype=torch.long)
    gap = slice(0, 4) if row.counted == "tokens" else slice(7, 11)
    ids[1, gap], valid[1, gap] = PAD, 0
    return ids, valid


def added(part: ModelPositions, row: Tokens, table: nn.Module, valid: Tensor) -> Tensor:
    """What our encoding adds to tokens, with a model's table."""
    encoding = part.input[0].replace(scale_embeddings=None).build()
    if isinstance(encoding, Learned):
        encoding.load_state_dict({"table": rows_of(table)})
    positions = None if row.counted == "all" else Positions.from_mask(valid.bool())
    found: Tensor = encoding(torch.zeros(*valid.shape, encoding.dim), positions)
    return found.detach()


def rows_of(table: nn.Module) -> Tensor:
    """The rows of a table, whatever the module calls them."""
    held = [*table.parameters(), *table.buffers()]
    return next(each for each in held if each.ndim == 2 and each.is_floating_point())


def watch(table: nn.Module) -> list[Tensor]:
    found: list[Tensor] = []

    def keep(module: nn.Module, args: Any, output: Any) -> None:
        found.append((output[0] if isinstance(output, tuple) else output).clone())  # some are added to in place

    table.register_forward_hook(keep)
    return found


def compare(part: ModelPositions, row: Tokens, table: nn.Module, seen: list[Tensor], valid: Tensor) -> None:
    if seen:  # the model has asked its table
        ours = added(part, row, table, valid)
        theirs = seen[0][..., : valid.shape[1], :].expand_as(ours)  # Longformer pads to whole windows
    else:  # it adds the rows themselves
        count = LENGTH - 2
        ours = added(part, row, table, torch.ones(1, count, dtype=torch.long))[0]
        theirs = rows_of(table)[part.input[0].option("offset", 0) :][:count].detach()
    torch.testing.assert_close(ours, theirs, rtol=0.0, atol=2e-5)


@pytest.mark.thin(6)
@pytest.mark.parametrize("model_type", TEXT)
@torch.no_grad()
def test_tables_of_text_add_what_a_model_does(model_type: str) -> None:
    row = TEXT[model_type]
    own = {"squeezebert": {"embedding_size": DIM}, "xglm": {"pad_token_id": 1}}.get(model_type, {})
    config = tiny(model_type, **own)
    part = read(file_of(config))
    model = model_of(config)
    if model_type == "ctrl":  # its table is no module
        ours = added(part, row, model, torch.ones(1, LENGTH))
        torch.testing.assert_close(ours[0], model.pos_encoding, rtol=0.0, atol=2e-5)
        return
    (table,) = list(tables_of(model).values())[:1]
    seen = watch(table)
    ids, valid = tokens(row)
    run(model, model_type, ids, valid)
    compare(part, row, table, seen, valid)
    require_scales(part, model)
    assert len(part.layers) == 2


@pytest.mark.thin(6)
@pytest.mark.parametrize("model_type", [name for name in TOKENS if name not in TEXT])
@torch.no_grad()
def test_tables_of_sound_add_what_a_model_does(model_type: str) -> None:
    config = tiny(model_type)
    part = read(file_of(config))
    model = model_of(config)
    (table,) = list(tables_of(model).values())[:1]
    compare(part, TOKENS[model_type], table, [], torch.ones(1, 1))
    require_scales(part, model)


@pytest.mark.thin(6)
@pytest.mark.parametrize("model_type", BOTH)
@torch.no_grad()
def test_tables_of_encoders_and_decoders_add_what_a_model_does(model_type: str) -> None:
    config = tiny(model_type)
    parts = read(file_of(config)).submodels
    model = model_of(config)
    rows = {"encoder": BOTH[model_type].encoder, "decoder": BOTH[model_type].decoder}
    ids, valid = tokens(rows["encoder"])
    tables = {side: next(each for name, each in tables_of(model).items() if name.startswith(side)) for side in rows}
    seen = {side: watch(table) for side, table in tables.items()}
    if "max_source_positions" not in rows["encoder"].length:
        model(input_ids=ids, attention_mask=valid, decoder_input_ids=ids, decoder_attention_mask=valid)
    for side, row in rows.items():
        compare(parts[side], row, tables[side], seen[side], valid)
        require_scales(parts[side], model)
        assert (len(parts[side].layers), parts[side].layer(0).causal) == (2, side == "decoder")


@pytest.mark.thin(6)
@pytest.mark.parametrize("model_type", [name for name in PATCHES if name not in MODELS])
@torch.no_grad()
def test_tables_of_patches_add_what_a_model_does(model_type: str) -> None:
    own: dict[str, dict[str, Any]] = {"mgp-str": {"image_size": (16, 16)}, "vit_mae": {"mask_ratio": 0.0}}
    config = tiny(model_type, **own.get(model_type, {}))
    part = read(file_of(config))
    model = model_of(config)
    parameter = next(
        each for name, each in model.named_parameters()
        if re.search(r"(position_embeddings?|pos_embed|positional_embedding)(.weight)?$", name)
    )  # fmt: skip
    (call,) = part.input
    encoding = call.build()
    rows = parameter.data.normal_().reshape(-1, DIM).clone()
    encoding.load_state_dict({"table": rows})
    whole = embedded(model, config)
    parameter.data.zero_()
    found = whole - embedded(model, config)  # what the table has added
    ours = encoding(torch.zeros(1, len(rows), DIM)).detach()
    registers = found.shape[1] - len(rows)  # behind the class token, or with it, without a row
    if registers:
        first = 1 if encoding.prefix else 0
        found = torch.cat((found[:, :first], found[:, first + registers :]), 1)
    torch.testing.assert_close(found, ours, rtol=0.0, atol=1e-5)
    require_scales(part, model)


def embedded(model: Any, config: Any) -> Tensor:
    """What a model makes of an image before its first layer."""
    module = next(each for name, each in model.named_modules() if name.endswith("embeddings"))
    torch.manual_seed(0)
    image = torch.randn(1, 3, 16, 16)
    if config.model_type == "siglip2_vision_model":
        found = module(image.reshape(1, 16, 48), torch.tensor([[4, 4]]))
    elif config.model_type == "vit_mae":
        found = module(image, torch.arange(16)[None].float())
    elif config.model_type == "cosmos3_edge_vision":
        found = module(image.reshape(16, 48), torch.tensor([[1, 4, 4]]))
    elif "minicpm" in config.model_type:
        found = module(image, torch.tensor([[4, 4]]))
    elif any(word in config.model_type for word in ("idefics", "smolvlm", "phi4")):
        found = module(image, torch.ones(1, 4, 4, dtype=torch.bool))
    else:
        found = module(image)
    first: Tensor = found[0] if isinstance(found, tuple) else found
    return first.reshape(1, -1, DIM)


def run(model: Any, model_type: str, ids: Tensor, valid: Tensor) -> None:
    if model_type in ("instructblip_qformer", "instructblipvideo_qformer"):
        seen = torch.ones(2, 4 + ids.shape[1], dtype=torch.long)
        model(ids, seen, query_embeds=torch.zeros(2, 4, DIM), encoder_hidden_states=torch.zeros(2, 3, DIM))
    elif model_type.startswith("musicgen"):
        model(ids.repeat_interleave(model.config.num_codebooks, 0))
    elif model_type == "luke":
        model(input_ids=ids, attention_mask=valid)
    else:
        model(input_ids=ids, attention_mask=valid)


def require_scales(part: ModelPositions, model: nn.Module) -> None:
    """The factors of scores that attention modules have are those that are read."""
    found = {
        round(float(value), 6)
        for module in model.modules()
        if "Attention" in type(module).__name__
        for name in ("scaling", "scale")
        if isinstance(value := getattr(module, name, None), (int, float)) and not isinstance(value, bool)
    }
    ours = {round(layer.scale, 6) for layer in part.layers if layer.scale is not None}
    assert not found or ours <= found, (found, ours)


@pytest.mark.thin(6)
@pytest.mark.parametrize("model_type", [*RECURRENT, *CONVOLVED])
def test_models_without_a_table_have_none(model_type: str) -> None:
    part = read(file_of(config_of(model_type)))
    assert not part.input
    assert {layer.kind for layer in part.layers} == {"linear" if model_type in RECURRENT else "full"}
    assert not any(layer.calls for layer in part.layers)
    assert bool(part.notes) == (model_type in CONVOLVED)


def test_every_table_is_compared_or_left_out() -> None:
    compared = {*TOKENS, *BOTH, *PATCHES}
    assert set(READERS) == compared | {*RECURRENT, *CONVOLVED}
    assert not set(LEFT_OUT) & set(READERS)
    assert (len(TOKENS), len(BOTH), len(PATCHES), len(LEFT_OUT)) == COUNTS


def test_files_that_leave_sizes_out_have_those_of_transformers() -> None:
    for model_type in READERS:
        assert read({"model_type": model_type}) == read(file_of(config_of(model_type))), model_type


def test_gpt2_divides_scores_by_the_number_of_the_layer() -> None:
    sizes = {"model_type": "gpt2", "n_layer": 3, "scale_attn_by_inverse_layer_idx": True}
    assert [layer.scale for layer in read(sizes).layers] == [0.125, 0.125 / 2, 0.125 / 3]
    assert read(sizes | {"scale_attn_weights": False}).layer(0).scale == 1.0


def test_gpt_neo_and_longformer_have_windows() -> None:
    neo = read({"model_type": "gpt_neo", "num_layers": 3, "attention_layers": ["global", "local", "local"]})
    assert [(layer.kind, layer.window) for layer in neo.layers] == [("full", None), ("sliding", 256), ("sliding", 256)]
    longformer = read({"model_type": "longformer", "num_hidden_layers": 2, "attention_window": [8, 16]})
    assert [layer.window for layer in longformer.layers] == [5, 9]


@pytest.mark.parametrize(
    ("model_type", "settings", "message"),
    [
        ("bert", {"position_embedding_type": "relative_key"}, "position_embedding_type must be absolute, since "
         "transformers has bert in no other way and would ignore it; got 'relative_key'."),
        ("roberta", {"max_position_embeddings": 2}, "max_position_embeddings must be more than 2, since the first 2 "
         "rows of the table are for no position; got 2."),
        ("xglm", {"pad_token_id": 5}, "pad_token_id must be below 2, since the row of that number is zeros and would "
         "be that of a position; got 5."),
        ("trocr", {"use_learned_position_embeddings": False}, "use_learned_position_embeddings must be true, since "
         "trocr is read with a learned table alone; got false."),
        ("gpt_neo", {"attention_types": [[["globe"], 24]]}, "attention_types must name 24 layers, global or local, "
         "since the model has that many; got a list of 24."),
        ("longformer", {"attention_window": 7}, "attention_window must be an even number, or 12, one for each layer, "
         "since half of it lies on each side; got 7."),
        ("vit", {"hidden_size": 770}, "hidden_size must be a multiple of 12, since so many heads share its channels; "
         "got 770."),
        ("siglip2_vision_model", {"num_patches": 15}, "num_patches must be a square, since it is read as one; got 15."),
    ],
)  # fmt: skip
def test_wrong_settings_are_refused(model_type: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read({"model_type": model_type, **settings})
    assert str(raised.value) == message
