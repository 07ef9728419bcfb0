"""The plan of an evaluation: what was asked, checked as a whole before anything is measured, and its trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from situs.lab.comparing.plan import require_device
from situs.lab.evaluating import loading
from situs.lab.evaluating.budget import MOST, Budget, Speed, budget_of, duration, speed_of
from situs.lab.evaluating.loading import DTYPES, Loaded
from situs.lab.evaluating.passkey import ask, hash_of_pieces, needle_of
from situs.lab.evaluating.records import TASKS, Chosen, Evaluation, Needle, Setup, Task, Trial
from situs.lab.evaluating.scalings import DEFAULT, Named, applied, names_in
from situs.lab.evaluating.tokens import Reader, Tokens, no_tokens, read_tokens, reader_of, require_windows
from situs.lab.evaluating.trial import Bench
from situs.registry.origins import words_of
from situs.registry.spelling import did_you_mean

MULTIPLES = (1, 2, 4)
FEWEST = 64
"""Numbers below it are multiples of the trained length; others are tokens."""
WINDOWS, FEWER = 16, (8, 4)
TAIL = 128


@dataclass(frozen=True)
class Plan:
    """Hold an evaluation that can be run."""

    bench: Bench
    setup: Setup
    lengths: list[int]
    tasks: list[Task]
    scalings: list[Named]
    refused: dict[str, str]
    """By scalings, why the model cannot have them."""
    chosen: dict[str, Chosen]
    needles: list[Needle]
    budget: Budget
    remarks: list[str]

    @property
    def trials(self) -> list[Trial]:
        """All trials, short texts first, so that a first picture comes early."""
        facts = self.bench.loaded.facts
        tokens = {"text": self.bench.tokens.facts.hash, "passkey": hash_of_pieces(self.bench.reader)}
        return [
            Trial(facts.hash, scaling.text, task, length, self.setup, tokens[task])
            for length in self.lengths
            for task in self.tasks
            for scaling in self.scalings
            if scaling.text not in self.refused
        ]

    @property
    def asked(self) -> Evaluation:
        """What was asked, and all trials that it takes, none of them done."""
        return Evaluation(
            transformers=metadata.version("transformers"),
            model=self.bench.loaded.facts,
            config=(self.bench.loaded.folder / "config.json").read_text(encoding="utf-8-sig"),
            setup=self.setup,
            lengths=self.lengths,
            tasks=self.tasks,
            scalings=[scaling.text for scaling in self.scalings],
            refused=self.refused,
            chosen=self.chosen,
            text=self.bench.tokens.facts,
            needles=self.needles,
            remarks=self.remarks,
            trials=[],
            planned={trial.key: trial for trial in self.trials},
        )


def make_plan(
    folder: Path,
    *,
    text: str | None = None,
    lengths: Sequence[int] | None = None,
    scalings: str | None = None,
    tasks: str | None = None,
    windows: int | None = None,
    original: int | None = None,
    dtype: str = "auto",
    device: str = "cpu",
) -> Plan:
    """Check all that was asked, and raise for the first thing that cannot be, before anything is measured.

    lengths: multiples of the trained length, or tokens; what suits this machine if left out.
    windows: texts at each length; what suits this machine if left out.
    original: tokens that the model was trained on; what its configuration says if left out.
    """
    wanted = names_in(",".join(DEFAULT) if scalings is None else scalings)
    names = _tasks(tasks)
    _require_numbers(windows, original, dtype)
    if text is not None and "text" not in names:
        raise ValueError(f"--text must go with the task text, since no other reads it; got --tasks {tasks}.")
    require_device(device)
    positions = loading.read_positions(folder)
    trained = loading.trained_length(positions, original)
    chosen_lengths = in_tokens(MULTIPLES if lengths is None else lengths, trained)
    _require_beyond(chosen_lengths, trained, wanted)
    loaded = loading.load(folder, positions=positions, dtype=dtype, device=device)
    reader = reader_of(folder, loaded.vocabulary)
    speed = speed_of(loaded, device, chosen_lengths[0])
    remarks = [_tokenizer(reader, folder), *_unused(loaded)]

    chosen_lengths, count, said = _within_bounds(
        loaded, speed, chosen_lengths, windows, tasks=len(names), scalings=len(wanted), free=lengths is None
    )
    remarks += said
    tokens = no_tokens(reader)
    if "text" in names:
        tokens, chosen_lengths, said = _read(reader, text, chosen_lengths, count, free=lengths is None)
        remarks += said
    names, needles, said = _needles(reader, names, chosen_lengths, count, trained, asked=tasks is not None)
    remarks += said
    setup = Setup(trained, chosen_lengths[-1], count, min(TAIL, chosen_lengths[0] // 2), device, loaded.dtype, original)
    refused, settings = try_out(loaded, wanted, setup)
    served = len(wanted) - len(refused)
    budget = budget_of(
        loaded, speed, lengths=chosen_lengths, windows=count, tail=setup.tail, scalings=served, tasks=len(names)
    )
    budget.require_room(device)
    remarks.append(str(budget))
    bench = Bench(loaded, reader, tokens)
    return Plan(bench, setup, chosen_lengths, names, wanted, refused, settings, needles, budget, remarks)


def in_tokens(lengths: Sequence[int], trained: int) -> list[int]:
    """Turn multiples of the trained length, or tokens, into tokens; the trained length is added where none is within
    it, since changes are counted from there."""
    if not lengths or min(lengths) < 1:
        raise ValueError(
            f"lengths must be whole numbers, 1 or more, such as 1,2,4 or 4096,8192; got "
            f"{','.join(map(str, lengths)) or 'none'}."
        )
    multiples = [number for number in lengths if number < FEWEST]
    if multiples and len(multiples) < len(lengths):
        raise ValueError(
            f"lengths must all be multiples of the trained length, below {FEWEST}, or all tokens, {FEWEST} or more, "
            f"since both at once are ambiguous; got {','.join(map(str, lengths))}."
        )
    found = sorted({number * trained if multiples else number for number in lengths})
    found = found if found[0] <= trained else [trained, *found]
    if found[0] < 2:
        raise ValueError(
            f"lengths must be 2 tokens or more, since a token is predicted from those before it; got {found[0]}."
        )
    return found


def try_out(loaded: Loaded, scalings: Sequence[Named], setup: Setup) -> tuple[dict[str, str], dict[str, Chosen]]:
    """Set every scaling once: tells why some cannot be, and what the others set."""
    refused: dict[str, str] = {}
    settings: dict[str, Chosen] = {}
    for scaling in scalings:
        try:
            with applied(loaded.model, scaling, setup) as chosen:
                settings[scaling.text] = chosen
        except (ValueError, TypeError, RuntimeError, NotImplementedError) as problem:
            refused[scaling.text] = words_of(problem)
    return refused, settings


def _tasks(text: str | None) -> list[Task]:
    names = [name.strip() for name in (",".join(TASKS) if text is None else text).split(",") if name.strip()]
    if not names:
        raise ValueError(f"tasks must be names separated by commas, such as text,passkey; got {text!r}.")
    for name in names:
        if name not in TASKS:
            raise ValueError(f"tasks must be among {', '.join(TASKS)}; got {name!r}.{did_you_mean(name, TASKS)}")
    return [task for task in TASKS if task in names]


def _require_numbers(windows: int | None, original: int | None, dtype: str) -> None:
    if windows is not None and windows < 2:
        raise ValueError(f"--windows must be 2 or more, since intervals tell how texts differ; got {windows}.")
    if original is not None and original < 2:
        raise ValueError(f"--original must be 2 or more, since it counts the tokens of a text; got {original}.")
    if dtype not in DTYPES:
        raise ValueError(f"--dtype must be one of {', '.join(DTYPES)}; got {dtype!r}.{did_you_mean(dtype, DTYPES)}")


def _require_beyond(lengths: Sequence[int], trained: int, scalings: Sequence[Named]) -> None:
    if lengths[-1] <= trained and len(scalings) > 1:
        raise ValueError(
            f"lengths must go beyond {trained:,}, the tokens that the model was trained on, since scalings are for "
            f"longer texts; got {lengths[-1]:,} at most. Give longer ones, --original, or --scalings none."
        )


def _tokenizer(reader: Reader, folder: Path) -> str:
    if reader.unit == "byte":
        return f"{folder} has no tokenizer: every byte of a text is a token."
    count = len(reader.prefix)
    begins = f", with {count} token{'s' * (count > 1)} before every text" if count else ""
    return f"Texts are tokenised by {reader.name}{begins}."


def _unused(loaded: Loaded) -> list[str]:
    names = loaded.unused
    if not names:
        return []
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return [
        f"Weights that the model has no place for are left out: {', '.join(names[:3])}{more}. If it should have one, "
        f"its configuration is of another model."
    ]


def _within_bounds(
    loaded: Loaded, speed: Speed, lengths: list[int], windows: int | None, *, tasks: int, scalings: int, free: bool
) -> tuple[list[int], int, list[str]]:
    """Choose fewer windows, then fewer lengths, until the estimate is within bounds; what was given stays."""

    def seconds(some: Sequence[int], count: int) -> float:
        tail = min(TAIL, some[0] // 2)
        return budget_of(
            loaded, speed, lengths=some, windows=count, tail=tail, scalings=scalings, tasks=tasks
        ).seconds  # fmt: skip

    counts = [WINDOWS, *FEWER] if windows is None else [windows]
    ends = [lengths[:end] for end in range(len(lengths), 1, -1)] if free else [lengths]
    choices = [(some, count) for some in ends for count in counts]
    best = next((each for each in choices if seconds(*each) <= MOST), None)
    if best is None and free and windows is None:
        some, count = choices[-1]
        raise ValueError(
            f"the evaluation must take at most {duration(MOST)} by the estimate, since neither lengths nor windows "
            f"were given; got {duration(seconds(some, count))} for {count} texts of up to {some[-1]:,} tokens. Give "
            f"--lengths or --windows to run it as long as it takes, or fewer --scalings."
        )
    some, count = best or choices[-1]
    said = []
    if (some, count) != (lengths, counts[0]):
        whole = duration(seconds(lengths, counts[0]))
        said.append(
            f"{count} texts of up to {some[-1]:,} tokens are read, since {counts[0]} of up to {lengths[-1]:,} would "
            f"take about {whole}. Give --lengths and --windows for more."
        )
    return some, count, said


def _read(
    reader: Reader, text: str | None, lengths: list[int], windows: int, *, free: bool
) -> tuple[Tokens, list[int], list[str]]:
    """Read the text of the longest length; of lengths that were not given, those that its files have room for."""
    tokens = read_tokens(reader, text=text, longest=lengths[-1], windows=windows)
    said = []
    kept = [length for length in lengths if length <= tokens.longest]
    if free and 1 < len(kept) < len(lengths):
        said.append(
            f"Lengths end at {kept[-1]:,}, since the longest file of {tokens.facts.name} has {tokens.longest:,} "
            f"{reader.unit}s. Give longer files with --text."
        )
        lengths = kept
        tokens = read_tokens(reader, text=text, longest=lengths[-1], windows=windows)
    require_windows(tokens, lengths=lengths, windows=windows)
    return tokens, lengths, [*said, *tokens.remarks, *_overlap(tokens, lengths[-1], windows)]


def _overlap(tokens: Tokens, longest: int, windows: int) -> list[str]:
    if tokens.facts.tokens >= windows * longest:
        return []
    return [
        f"Texts overlap: {windows} of {longest:,} {tokens.facts.unit}s are taken from {tokens.facts.tokens:,}, so that "
        f"intervals are narrower than they should be. Give more text with --text."
    ]


def _needles(
    reader: Reader, tasks: list[Task], lengths: Sequence[int], windows: int, trained: int, *, asked: bool
) -> tuple[list[Task], list[Needle], list[str]]:
    """Make the texts of passkey at every length, and tell where the needles lie; a task that was not asked for is left
    out, with a word, where its texts do not fit."""
    if "passkey" not in tasks:
        return tasks, [], []
    try:
        needles = [needle_of(reader, ask(reader, length, windows), trained) for length in lengths]
    except ValueError as problem:
        others: list[Task] = [task for task in tasks if task != "passkey"]
        if asked or not others:
            raise
        return others, [], [f"Passkey is left out: {problem}"]
    return tasks, needles, [_where(each, windows, trained) for each in needles]


def _where(needle: Needle, windows: int, trained: int) -> str:
    beyond = (
        f"{needle.beyond} of {windows} farther than the {trained:,} tokens of training"
        if needle.beyond
        else f"all within the {trained:,} tokens of training"
    )
    return (
        f"Passkey at {needle.length:,}: {sum(needle.parts.values())} tokens besides filler; the number lies "
        f"{needle.nearest:,} to {needle.farthest:,} tokens before its answer, {beyond}."
    )
