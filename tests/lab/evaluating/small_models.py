"""Small models in folders, as `save_pretrained` leaves them: one that was trained for seconds, others at random."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from situs.lab.comparing.corpus import Corpus

hf: Any = import_module("transformers")  # whose configurations take more than their signatures say
TRAINED = 64
SIZES: dict[str, Any] = {
    "vocab_size": 256, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2,
    "intermediate_size": 128, "max_position_embeddings": TRAINED, "tie_word_embeddings": True,
    "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
STEPS, BATCH = 300, 24


def llama(**changed: Any) -> Any:
    """A Llama with random weights."""
    torch.manual_seed(0)
    return hf.LlamaForCausalLM(hf.LlamaConfig(**{**SIZES, **changed})).eval()


def saved(model: Any, folder: Path) -> Path:
    """The folder of a model."""
    model.save_pretrained(folder)
    return folder


def trained(folder: Path) -> Path:
    """A Llama that predicts bytes of Python's sources, trained on texts of 64."""
    model, corpus = llama(), Corpus.standard_library()
    generator = torch.Generator().manual_seed(0)
    optimiser = torch.optim.AdamW(model.parameters(), lr=6e-3, betas=(0.9, 0.95), fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 6e-3, STEPS, pct_start=0.1)
    model.train()
    for _ in range(STEPS):
        ids = corpus.train_windows(generator, BATCH, TRAINED)
        loss = model(input_ids=ids, labels=ids).loss
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
    return saved(model.eval(), folder)


def with_tokenizer(folder: Path, *, words: int = 400) -> Path:
    """Give a folder a byte-level tokenizer with a token that begins every text."""
    tokenizers: Any = import_module("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=words, special_tokens=["<s>"], initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )  # fmt: skip
    made.train_from_iterator(["the secret number is a river that ran down", "def import return class"], trainer)
    made.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    hf.PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>").save_pretrained(folder)
    return folder
