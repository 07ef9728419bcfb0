"""Wrong calls of everything public, made from signatures: each must be answered by a sentence of the library's own.

public.py     which callables there are, and what each argument is annotated with
values.py     wrong values for an annotation; bounds.py has those that no annotation tells
examples.py   a right call of every callable, of which one argument at a time is then made wrong
calling.py    the wrong calls
judging.py    what counts as an answer
"""
