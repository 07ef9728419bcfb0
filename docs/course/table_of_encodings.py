"""The table of chapter 10: every text encoding, from the registry and from one comparison.

``python docs/make.py course`` writes it into the page, between two marks. The numbers are those of ``choosing.json``,
which is made from the folder of a comparison:

python docs/course/table_of_encodings.py FOLDER
"""

from __future__ import annotations

import json
import shlex
import sys
import textwrap
from pathlib import Path
from typing import Any

import situs
from situs.cli.check import SIZES
from situs.encodings.bias import PairBias
from situs.lab.comparing.records import Comparison
from situs.lab.comparing.summary import Row, summarise
from situs.lab.naming import parse
from situs.lab.running.store import read_record
from situs.lab.scores import farthest

FOLDER = Path(__file__).parent
RECORD, PAGE = FOLDER / "choosing.json", FOLDER / "10-choosing.md"
BEGIN, END = "<!-- written by make docs: begin -->", "<!-- written by make docs: end -->"
TASKS = ("text", "passkey")

MODELS = {
    "none": "some layers of Llama 4, SmolLM3, Command A",
    "learned": "BERT, RoBERTa, GPT-2, OPT, BART",
    "sinusoidal": "the first Transformer, Marian, Whisper's encoder",
    "rotary": "GPT-J, GPT-NeoX, Llama, Mistral, Qwen, Gemma, DeepSeek",
    "rotary+linear": "Gemma 3, in its global layers",
    "rotary+ntk": "Hunyuan",
    "rotary+yarn": "gpt-oss, Ministral 3, DeepSeek-V3",
    "alibi": "BLOOM, MPT, Falcon-RW",
    "t5": "T5, mT5, UMT5, LongT5, MPNet",
    "shaw": "VITS, Granite Speech, Wav2Vec2-BERT",
    "transformer_xl": "Transformer-XL, XLNet, Parakeet",
    "deberta": "DeBERTa, SEW-D",
}
"""Released models, by the name of the method; the others are in none that the library transformers knows."""


def page() -> str:
    """Give the page, with the table written anew."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise ValueError(
            f"{PAGE.name} must have the marks {BEGIN} and {END}, since the table stands between; got none."
        )
    return f"{before}{BEGIN}\n{table(json.loads(RECORD.read_text(encoding='utf-8')))}\n{END}{after}"


def table(record: dict[str, Any]) -> str:
    """Write the table, and below it how it was measured."""
    short, long = record["lengths"][0], record["lengths"][-1]
    heads = [
        "encoding", "applied to", "encodes", "parameters", f"loss at {short}", f"change at {2 * short}",
        f"change at {long}", "loss holds", f"passkey at {long}", "time", "used in",
    ]  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    lines += [f"| {' | '.join(_cells(row, short, long))} |" for row in record["rows"]]
    model = record["model"]
    said = (
        f"The loss is in nats per byte; its change is on the same bytes, with more text before them. The loss holds up "
        f"to a length if it changes by less than 0.05 there and at all shorter lengths; {long // short}× is the "
        f"longest that was tested. The passkey column is the share of passkeys that were found. Time is that of a "
        f"forward pass through attention at {record['cost_length']} tokens, divided by that without positions. "
        f"Parameters are those of this model: {model['layers']} layers, {model['heads']} heads, width {model['dim']}. "
        f"Means of {record['seeds']} seeds, measured on {record['date']} with torch {record['torch']} and Python "
        f"{record['python']} by"
    )
    return "\n".join([*lines, "", *textwrap.wrap(said, 120), "", f"    {record['command']}", ""])


def _cells(row: dict[str, Any], short: int, long: int) -> list[str]:
    name, entry = row["name"], situs.entry(row["name"].partition("+")[0])
    ends = row["ends"]
    return [
        name,
        entry.place,
        _encodes(name),
        f"{row['parameters']:,}",
        f"{row['loss']:.2f}",
        "table ends" if ends else _signed(row["changes"][str(2 * short)]),
        "" if ends else _signed(row["changes"][str(long)]),
        f"{row['holds'] // short}×",
        "" if row["passkey"] is None else f"{100 * row['passkey']:.0f} %{' (one seed)' * (row['passkey_seeds'] == 1)}",
        "" if row["time"] is None else f"{row['time']:.1f}×",
        MODELS.get(name, ""),
    ]


def _encodes(name: str) -> str:
    """Say what an encoding tells attention, by what its class and tags claim."""
    entry = situs.entry(name.partition("+")[0])
    encoding = entry.build(**SIZES)
    if entry.place == "nowhere":
        return "nothing"
    if isinstance(encoding, PairBias):
        return "distance over position"
    if getattr(encoding, "by_order", False):
        return "a count by content"
    return "distance" if "relative" in encoding.tags else "position"


def _signed(number: float) -> str:
    """Write a change as the README does: +.005."""
    return f"{number:+.3f}".replace("0.", ".", 1)


def trimmed(comparison: Comparison) -> dict[str, Any]:
    """Take what the table needs from a comparison."""
    lengths, where = comparison.settings.lengths, comparison.where
    assert where is not None
    longest = max(length for costs in comparison.costs.values() for length in costs.lengths)
    size = comparison.settings.size
    return {
        "command": _without_folder(comparison.command),
        "date": comparison.made[:10],
        "torch": where.torch,
        "python": where.python,
        "seeds": len(comparison.seeds),
        "model": {"layers": size.layers, "heads": size.heads, "dim": size.dim},
        "lengths": list(lengths),
        "cost_length": longest,
        "rows": [_trimmed_row(row, lengths[-1], longest) for row in summarise(comparison)],
    }


def _without_folder(command: str) -> str:
    """Leave out where the comparison was written and how it was printed: neither changes a number."""
    words = shlex.split(command)
    out = words.index("--out") if "--out" in words else len(words)
    return shlex.join(word for word in words[:out] + words[out + 2 :] if word != "--json")


def _trimmed_row(row: Row, long: int, cost_length: int) -> dict[str, Any]:
    text, passkey = (row.scores[task] for task in TASKS)
    found = passkey.levels[long]
    return {
        "name": parse(row.name).name,
        "parameters": row.parameters,
        "loss": round(next(iter(text.levels.values())).mean, 6),
        "changes": {str(length): round(each.mean, 6) for length, each in text.changes.items() if each.exists},
        "holds": farthest(text),
        "ends": any(not each.exists for each in text.levels.values()),
        "passkey": round(found.mean, 6) if found.exists else None,
        "passkey_seeds": len(found.seeds),
        "time": None if row.cost is None else row.cost.lengths[cost_length].time,
    }


if __name__ == "__main__":
    read = read_record(Comparison, Path(sys.argv[1]) / "records.json")
    RECORD.write_text(json.dumps(trimmed(read), indent=1) + "\n", encoding="utf-8")
