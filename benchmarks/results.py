"""All records of one run, as they are written to ``results.json``."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks import (
    accuracy,
    apply,
    attention,
    attention_decode,
    attention_long,
    compiled,
    decode,
    judgement,
    startup,
    tables,
)


@dataclass(frozen=True)
class Results:
    """What was measured, where and for how long."""

    machine: dict[str, object]
    mode: str
    seconds: dict[str, float]
    apply: list[apply.Row]
    tables: list[tables.Row]
    decode: list[decode.Row]
    accuracy: list[accuracy.Row]
    angle_errors: dict[str, float]
    compilations: list[compiled.Count]
    compiled: list[compiled.Row]
    imports: startup.Imports
    first_fused_call: dict[str, float]
    contracts: list[startup.Contract]
    attention: list[attention.Row]
    attention_decode: list[attention_decode.Row]
    attention_growth: list[attention_long.Growth]
    attention_long: list[attention_long.Long]
    targets: list[judgement.Target] = field(default_factory=list)

    def write(self, path: Path) -> None:
        """Everything, as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n")
