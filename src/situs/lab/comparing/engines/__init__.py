"""Engines: ways to run many trials at once. All give the same numbers, and are called alike:

    run(trials, source, *, tell, done, claim, ...)

``local`` uses the cores or GPUs of this machine, ``ray`` those of a cluster. ``complete`` runs trials by either and
stores their records.
"""

from situs.lab.comparing.engines.completion import Engine, complete
from situs.lab.comparing.engines.worker import CorpusSource, EngineError

__all__ = ["CorpusSource", "Engine", "EngineError", "complete"]
