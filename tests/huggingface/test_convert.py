"""Checkpoints converted between pairings: the same scores, the same bytes there and back, nothing lost on the way."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch import Tensor

from situs import models
from situs.functional.rotation import Pairing
from situs.huggingface import convert

SIZES = {
    "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 32, "vocab_size": 50,
    "max_position_embeddings": 128,
}  # fmt: skip
GROUPED = {**SIZES, "num_key_value_heads": 2}
LATENT = {
    **SIZES, "q_lora_rank": 24, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16,
    "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "moe_intermediate_size": 16,
}  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {**GROUPED, "attention_bias": True},
    "qwen2": GROUPED,
    "qwen3": {**GROUPED, "head_dim": 24},
    "olmo2": GROUPED,
    "stablelm": {**GROUPED, "qk_layernorm": True, "use_qkv_bias": True},
    "phi3": {**GROUPED, "pad_token_id": 0},
    "gpt_neox": {**SIZES, "rotary_pct": 0.25},
    "gptj": {"n_embd": 64, "n_head": 4, "n_layer": 2, "rotary_dim": 8, "vocab_size": 50, "n_positions": 128},
    "codegen": {"n_embd": 64, "n_head": 4, "n_layer": 2, "rotary_dim": 8, "vocab_size": 50, "n_positions": 128},
    "falcon": {**SIZES, "alibi": False, "new_decoder_architecture": True, "num_kv_heads": 2},
    "cohere": {**GROUPED, "use_qk_norm": True},
    "cohere2": {**GROUPED, "num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2},
    "deepseek_v3": {**LATENT, "num_key_value_heads": 4},
    "modernbert": {**SIZES, "pad_token_id": 0},
}
IDS = torch.arange(2, 42).reshape(2, 20)


def saved(model_type: str, folder: Path) -> Any:
    """A model with random weights, saved; norms and biases too are random."""
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(model_type, **FAMILIES[model_type])
    model = transformers.AutoModel.from_config(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight) * 0.2 + (weight.ndim == 1))
    model.save_pretrained(folder)
    return model


def weights(folder: Path) -> dict[str, Tensor]:
    return {name: each for file in sorted(folder.glob("*.safetensors")) for name, each in load_file(file).items()}


@pytest.mark.parametrize("model_type", FAMILIES)
def test_there_and_back_gives_the_same_bytes(model_type: str, tmp_path: Path) -> None:
    saved(model_type, tmp_path / "a")
    back = models.read(tmp_path / "a").main.layers[0].pairing
    there: Pairing = "halves" if back == "interleaved" else "interleaved"
    made = convert(tmp_path / "a", tmp_path / "b", pairing=there)
    assert made.reordered
    assert models.read(tmp_path / "b").main.layers[0].pairing == there
    convert(tmp_path / "b", tmp_path / "c", pairing=back)
    for file in (tmp_path / "a").glob("*.safetensors"):
        assert file.read_bytes() == (tmp_path / "c" / file.name).read_bytes()
        assert file.read_bytes() != (tmp_path / "b" / file.name).read_bytes()
    assert models.read(tmp_path / "c") == models.read(tmp_path / "a")
    assert "situs_pairing" not in (tmp_path / "c" / "config.json").read_text()


def rotated_otherwise(x: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool) -> Tensor:
    """Rotate halves for a model that rotates neighbours, and the other way round."""
    rotated, rest = x[..., : 2 * cos.shape[-1]], x[..., 2 * cos.shape[-1] :]
    first, second = rotated.chunk(2, -1) if interleaved else (rotated[..., 0::2], rotated[..., 1::2])
    pair = first * cos - second * sin, second * cos + first * sin
    return torch.cat([torch.cat(pair, -1) if interleaved else torch.stack(pair, -1).flatten(-2), rest], -1)


def run_with_other_pairs(model: Any, *, interleaved: bool, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """Run a model whose code pairs channels the other way than transformers has it; ``interleaved`` is how it has."""

    def both(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1, **_: Any) -> tuple[Tensor, Tensor]:
        half = cos.shape[-1] // 2
        cos, sin = (each[..., ::2] if interleaved else each[..., :half] for each in (cos, sin))
        angles = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
        return rotated_otherwise(q, *angles, interleaved=interleaved), rotated_otherwise(
            k, *angles, interleaved=interleaved
        )

    def one(tensor: Tensor, sin: Tensor, cos: Tensor) -> Tensor:
        return rotated_otherwise(tensor, cos[:, :, None], sin[:, :, None], interleaved=interleaved)

    older = model.config.model_type in ("gptj", "codegen")
    with monkeypatch.context() as patch, torch.no_grad():
        patch.setattr(sys.modules[type(model).__module__], "apply_rotary_pos_emb", one if older else both)
        out: Tensor = model(IDS)[0]
    return out


@pytest.mark.parametrize("model_type", [each for each in FAMILIES if each != "deepseek_v3"])
def test_the_converted_model_gives_the_same_where_channels_are_paired_so(
    model_type: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = saved(model_type, tmp_path / "a")
    interleaved = models.read(tmp_path / "a").main.layers[0].pairing == "interleaved"
    made = convert(tmp_path / "a", tmp_path / "b", pairing="halves" if interleaved else "interleaved")
    assert not made.own_pairing
    other = transformers.AutoModel.from_pretrained(tmp_path / "b").eval()
    with torch.no_grad():
        expected, unpatched = model(IDS)[0], other(IDS)[0]
    found = run_with_other_pairs(other, interleaved=interleaved, monkeypatch=monkeypatch)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert (unpatched - expected).abs().max() > 1e-3  # the pairs matter at these lengths


def test_a_setting_that_says_the_pairing_goes_along(tmp_path: Path) -> None:
    model = saved("deepseek_v3", tmp_path / "a")
    made = convert(tmp_path / "a", tmp_path / "b", pairing="halves")
    assert made.own_pairing
    assert json.loads((tmp_path / "b" / "config.json").read_text())["rope_interleave"] is False
    other = transformers.AutoModel.from_pretrained(tmp_path / "b").eval()
    with torch.no_grad():
        torch.testing.assert_close(other(IDS)[0], model(IDS)[0], atol=1e-5, rtol=1e-5)


def test_layers_without_positions_stay_as_they_are(tmp_path: Path) -> None:
    saved("cohere2", tmp_path / "a")
    made = convert(tmp_path / "a", tmp_path / "b", pairing="halves")
    assert made.layers == (0, 2)
    before, after = weights(tmp_path / "a"), weights(tmp_path / "b")
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {f"layers.{layer}.self_attn.{part}_proj.weight" for layer in (0, 2) for part in "qk"}


def test_shards_and_their_index_go_along(tmp_path: Path) -> None:
    model = saved("llama", tmp_path / "whole")
    model.to(torch.bfloat16).save_pretrained(tmp_path / "a", max_shard_size="20KB")
    (tmp_path / "a" / "tokenizer.json").write_text("{}")
    (tmp_path / "a" / "pytorch_model.bin").write_bytes(b"")
    (tmp_path / "a" / "original").mkdir()
    (tmp_path / "a" / "original" / "consolidated.00.pth").write_bytes(b"")
    seen: list[tuple[str, int, int]] = []
    made = convert(tmp_path / "a", tmp_path / "b", pairing="interleaved", progress=lambda *each: seen.append(each))
    files = sorted(each.name for each in (tmp_path / "a").glob("*.safetensors"))
    assert len(files) > 3
    assert seen == [(name, number, len(files)) for number, name in enumerate(files)]
    assert made.left_out == ("original/", "pytorch_model.bin")
    assert {each.name for each in (tmp_path / "b").iterdir()} == {
        each.name for each in (tmp_path / "a").iterdir() if each.name not in ("original", "pytorch_model.bin")
    }
    convert(tmp_path / "b", tmp_path / "c", pairing="halves")
    before, after = weights(tmp_path / "a"), weights(tmp_path / "c")
    assert all(torch.equal(before[name], after[name]) for name in before)


KILLED = """
import os, signal, sys
from situs.functional.rotation import Pairing
from situs.huggingface import convert
convert(sys.argv[1], sys.argv[2], pairing="interleaved", progress=lambda *_: os.kill(os.getpid(), signal.SIGKILL))
"""


def test_a_conversion_that_is_killed_leaves_no_target_and_is_cleared_by_the_next(tmp_path: Path) -> None:
    saved("llama", tmp_path / "a")
    done = subprocess.run([sys.executable, "-c", KILLED, tmp_path / "a", tmp_path / "b"], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not (tmp_path / "b").exists()
    assert [each.name for each in tmp_path.iterdir() if "partial" in each.name]
    convert(tmp_path / "a", tmp_path / "b", pairing="interleaved")
    assert {each.name for each in tmp_path.iterdir()} == {"a", "b"}


def test_an_error_on_the_way_leaves_nothing(tmp_path: Path) -> None:
    saved("llama", tmp_path / "a")

    def full(*_: object) -> None:
        raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space left"):
        convert(tmp_path / "a", tmp_path / "b", pairing="interleaved", progress=full)
    assert [each.name for each in tmp_path.iterdir()] == ["a"]
