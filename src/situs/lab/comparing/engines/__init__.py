"""Engines: ways to run many trials at once. All give the same numbers, and are called alike:

    run(trials, source, *, timeout, tell, done, claim, ...)

``local`` uses the cores or GPUs of this machine, ``ray`` those of a cluster.
"""
