"""Where a class of transformers comes from, and what its name tells."""

ROTARY = "RotaryEmbedding"
"""In the name of every class of transformers that makes cosines and sines."""


def folder_of(cls: type) -> str:
    """The folder of transformers' models that a class is from, such as "deberta_v2"; "" for any other class."""
    parts = cls.__module__.split(".")
    return parts[2] if parts[:2] == ["transformers", "models"] and len(parts) > 3 else ""
