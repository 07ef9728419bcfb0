"""What a configuration's positions do at a length; `situs.models.inspect` is the way in.

report.py   inspect(), and the Report that it gives; plain.py the same as data, words.py as text
pairs.py    each pair of a rotation: turns in training, and whether it meets new angles
others.py   biases, temperatures and tables
memory.py   bytes of caches and tables
advice.py   what to set, with reasons, for each engine
"""
