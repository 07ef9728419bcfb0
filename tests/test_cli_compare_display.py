"""Who is told of every step of a comparison, and what is shown of it."""

from io import StringIO

from rich.console import Console

from situs.cli.compare_display import Live_, Watcher
from situs.lab.compare import Follower
from situs.lab.trial import Progress, Settings, Trial


def test_a_terminal_follows_every_worker_and_lines_do_not() -> None:
    console = Console(file=StringIO(), force_terminal=True, width=100)
    live = Live_(console)
    assert isinstance(live, Follower)
    assert not isinstance(Watcher(console), Follower)
    trial = Trial("alibi", ("alibi",), "copy", 0, 6, Settings())
    live.going(1, trial, Progress("training", 3, 6, 1.5))
    live.going(0, trial, Progress("testing", 1, 2, None))
    console.print(live._picture())
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "0  alibi on copy, seed 0  testing 1/2" in shown
    assert "1  alibi on copy, seed 0  training 3/6  loss 1.500" in shown
    live.measuring("alibi")
    console.print(live._picture())
    assert "measuring the cost and the properties of alibi" in console.file.getvalue()  # type: ignore[attr-defined]
