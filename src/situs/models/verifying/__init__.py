"""What is wrong with a port: its numbers compared, and the mistakes that would have made them; private,
`situs.models.verify` is the way in.

verify.py      verify(): compare, search, judge; verdict.py its result
ports.py       what a port is: a file, a mapping, a function; arrays checked, their dtypes found
comparing.py   numbers within rounding, and where they first are not
searching.py   mistakes tried alone and in pairs; fitting.py the base that a port's own frequencies tell
mattering.py   from which position, distance or layer on a mistake matters
mistake.py     what a mistake is; frequencies.py, layouts.py, orders.py, layers.py, scores.py the catalogue
"""
