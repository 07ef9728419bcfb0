"""Where a class of transformers comes from, and what its name tells."""

ROTARY = "RotaryEmbedding"
"""In the name of every class of transformers that makes cosines and sines."""


def folder_of(cls: type) -> str:
    """The folder of transformers' models that a class is from, such as "deberta_v2"; "" for any other class."""
    parts = cls.__module__.split(".")
    return parts[2] if parts[:2] == ["transformers", "models"] and len(parts) > 3 else ""


def ancestor_of(cls: type) -> type:
    """The class of transformers' models that a class is or inherits from; the class itself where there is none."""
    return next((each for each in cls.__mro__ if folder_of(each)), cls)
