"""Where model and text of an evaluation are, so that any process can get what a trial runs on.

A trial names its model and its tokens by their hashes: what is got elsewhere or later must be the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from situs.lab.evaluating import loading
from situs.lab.evaluating.passkey import hash_of_pieces
from situs.lab.evaluating.records import FOLDER, Setup, Trial
from situs.lab.evaluating.tokens import Reader, Tokens, no_tokens, read_tokens, reader_of
from situs.lab.evaluating.trial import Bench


@dataclass(frozen=True)
class Source:
    """Name the folder of a model, and the text.

    text: a file or a folder; None for the sources of Python.
    tokens: of the text where it was read already, for machines that do not have it.
    """

    folder: str
    text: str | None = None
    tokens: Tokens | None = None

    def bench(self, trial: Trial, held: Bench | None = None) -> Bench:
        """Load what a trial runs on, but for what is held already; raises if it is not what was planned with."""
        if held is None or not held.loaded.serves(trial):
            held = self._loaded(trial)
        if trial.task == "text" and held.tokens.facts.hash != trial.tokens:
            held = replace(held, tokens=self._tokens(held.reader, trial.setup, trial.tokens))
        if trial.task == "passkey" and hash_of_pieces(held.reader) != trial.tokens:
            raise ValueError(
                f"{FOLDER} must keep its tokenizer while it is measured, since trials are compared with each other; "
                f"got another in {self.folder!r}. Run again."
            )
        return held

    def with_tokens(self, trial: Trial) -> Source:
        """Read the text here, for machines that do not have it."""
        return replace(self, tokens=self._tokens(reader_of(Path(self.folder)), trial.setup, trial.tokens))

    def _loaded(self, trial: Trial) -> Bench:
        folder, setup = Path(self.folder), trial.setup
        positions = loading.read_positions(folder)
        loaded = loading.load(folder, positions=positions, dtype=setup.dtype, device=setup.device)
        if not loaded.serves(trial):
            raise ValueError(
                f"{FOLDER} must hold the same model in every process, since trials are compared with each other; got "
                f"another in {self.folder!r}. Run again."
            )
        reader = reader_of(folder, loaded.vocabulary)
        return Bench(loaded, reader, no_tokens(reader))

    def _tokens(self, reader: Reader, setup: Setup, wanted: str) -> Tokens:
        found = self.tokens
        if found is None:
            found = read_tokens(reader, text=self.text, longest=setup.target, windows=setup.windows)
        if found.facts.hash != wanted:
            raise ValueError(
                f"text must stay as it was when the evaluation began, since trials are compared with each other; got "
                f"hash {found.facts.hash} instead of {wanted} from {self.text or 'the standard library'}. Run again."
            )
        return found
