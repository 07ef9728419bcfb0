"""Engines: ways to run many trials at once. All give the same numbers, and are called alike:

    run(trials, source, *, timeout, tell, done, claim, ...)

``local`` uses the cores or GPUs of this machine, ``ray`` those of a cluster. ``complete`` runs trials by either and
stores their records. `Team` holds the processes of this machine, which do other jobs, too.
"""

from situs.lab.comparing.engines.completion import Engine, complete
from situs.lab.comparing.engines.team import TIMEOUT, Team
from situs.lab.comparing.engines.worker import CorpusSource, EngineError

__all__ = ["TIMEOUT", "CorpusSource", "Engine", "EngineError", "Team", "complete"]
