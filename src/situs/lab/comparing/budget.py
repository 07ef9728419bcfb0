"""The budget of a comparison: the tokens it reads and the memory of its longest window, told before it starts."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from situs.lab.comparing.trial import TOKENS_AT_ONCE
from situs.lab.settings import Settings

GIB = 1 << 30
TOKEN_BYTES = 9  # of an example: its id and whether it is scored
VECTORS = 9
"""Vectors of the model's width that are held for each token at once: 7.0 were measured without positions, 8.9 with
rotary."""
LOGITS = 3  # as many numbers as the vocabulary has, held for each token when a whole text is scored


@dataclass(frozen=True)
class Budget:
    """Hold what a comparison takes.

    trained: tokens of the longest training.
    tested: tokens of the tests of one method.
    longest: tokens of the longest window.
    bytes: memory of a worker at the longest window, about, without what torch itself takes and what an encoding adds.
    """

    trials: int
    trained: int
    tested: int
    longest: int
    bytes: int

    @staticmethod
    def of(settings: Settings, *, trials: int, trained: int, vocabulary: int) -> Budget:
        """Work out what trials with these settings take."""
        longest = settings.lengths[-1]
        examples = settings.windows * longest * TOKEN_BYTES
        width = max(VECTORS * settings.size.dim, settings.size.dim + LOGITS * vocabulary)
        at_once = max(longest, min(TOKENS_AT_ONCE, settings.windows * longest))
        return Budget(
            trials, trained, settings.windows * sum(settings.lengths), longest, examples + 4 * width * at_once
        )

    def __str__(self) -> str:
        trainings = f"{self.trials} training{'s' * (self.trials != 1)}"
        return (
            f"{trainings} of {self.trained:,} tokens at most, each tested on {self.tested:,} tokens; a window of "
            f"{self.longest:,} tokens takes about {size_in_words(self.bytes)} of memory in each worker."
        )

    def require_room(self) -> None:
        """Raise if the longest window does not fit this machine."""
        room = memory()
        if room is not None and self.bytes > room:
            raise ValueError(
                f"the longest window must fit in memory; got {self.longest:,} tokens, which take about "
                f"{size_in_words(self.bytes)} of {size_in_words(room)}. Test shorter lengths, or use a smaller model."
            )


def memory() -> int | None:
    """Tell how many bytes of memory this process may use; None where the system does not say."""
    found = []
    with contextlib.suppress(AttributeError, OSError, ValueError):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):  # no such limit
            found.append(int(Path(file).read_text(encoding="utf-8")))
    return min(found, default=None)


def size_in_words(number: int) -> str:
    """Write a number of bytes in GiB, or in MiB where it is small."""
    return f"{number / GIB:.1f} GiB" if number >= GIB / 10 else f"{max(1, round(number / (1 << 20)))} MiB"
