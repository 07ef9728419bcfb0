"""Spelling: names as people write them, and what they may have meant.

Case, dashes, spaces and underscores do not matter: ``Transformer-XL`` is ``transformer_xl``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

SYNONYMS: dict[str, tuple[str, ...]] = {
    "absolute": ("learned", "sinusoidal"),
    "bert": ("learned",),
    "bias": ("alibi", "t5"),
    "bloom": ("alibi",),
    "buckets": ("t5",),
    "contextual": ("cope",),
    "cosine": ("sinusoidal",),
    "disentangled": ("deberta",),
    "dynamic": ("rotary+dynamic_ntk",),
    "embedding": ("learned",),
    "fourier": ("sinusoidal",),
    "gpt2": ("learned",),
    "interpolation": ("rotary+linear", "fire"),
    "latentattention": ("rotary",),
    "learnedrotary": ("lerope",),
    "linearbias": ("alibi",),
    "linearbiases": ("alibi",),
    "llama": ("rotary", "rotary+llama3"),
    "mixed": ("rope_mixed",),
    "mla": ("rotary",),
    "mpt": ("alibi",),
    "ntkaware": ("rotary+ntk",),
    "off": ("none",),
    "phi3": ("rotary+longrope",),
    "pi": ("rotary+linear",),
    "positional": ("sinusoidal", "learned"),
    "positionalencoding": ("sinusoidal", "learned"),
    "positionembedding": ("learned",),
    "positioninterpolation": ("rotary+linear",),
    "relative": ("shaw", "t5"),
    "relativebias": ("t5",),
    "relativepositionbias": ("t5",),
    "ropevit": ("rope_mixed",),
    "rotaryembedding": ("rotary",),
    "rotarypositionembedding": ("rotary",),
    "sine": ("sinusoidal",),
    "sincos": ("sinusoidal",),
    "untied": ("tupe",),
    "vanilla": ("sinusoidal",),
    "vit": ("learned_grid",),
    "xlnet": ("transformer_xl",),
}
"""What people may mean by a word that several methods, or none of ours, go by: folded word -> names."""


def fold(name: str) -> str:
    """Reduce a name to what tells it from others: lower case, without dashes, underscores and spaces.

    >>> fold("Transformer-XL") == fold("transformer_xl")
    True
    """
    return "".join(name.casefold().replace("-", " ").replace("_", " ").split())


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """End an error message about an unknown name with the nearest known one, if one is near."""
    return _nearest(name, {fold(each): each for each in known})


def did_you_mean_encoding(name: str, spellings: Mapping[str, str]) -> str:
    """End an error message about an unknown encoding with what may have been meant: by a synonym, or by spelling.

    spellings: what encodings may be called, folded, and the name that each stands for.
    """
    synonyms = SYNONYMS.get(fold(name), ())
    if synonyms:
        return f" Did you mean {' or '.join(map(repr, synonyms))}?"
    return _nearest(name, spellings)


def did_you_mean_added(name: str, known: Iterable[str]) -> str:
    """End an error message about what rotary cannot be given by + with what may have been meant, as
    ``did_you_mean_encoding`` does."""
    known = list(known)
    synonyms = [each.removeprefix("rotary+") for each in SYNONYMS.get(fold(name), ()) if "+" in each]
    meant = [each for each in synonyms if each in known]
    return f" Did you mean {' or '.join(map(repr, meant))}?" if meant else did_you_mean(name, known)


def _nearest(name: str, spellings: Mapping[str, str]) -> str:
    close = difflib.get_close_matches(fold(name), spellings, n=1)
    return f" Did you mean {spellings[close[0]]!r}?" if close else ""


def require_options(name: str, known: Iterable[str], options: Iterable[str]) -> None:
    """Raise if ``name`` does not take one of the options."""
    known = list(known)
    for option in options:
        if option not in known:
            cure = did_you_mean(option, known)
            raise TypeError(f"{name} takes {', '.join(known) or 'no options'}; got {option!r}.{cure}")
