"""The lab: encodings by name, what they do and cost, and how far small models carry with them.

naming <- model <- probing <- running <- comparing <- evaluating
"""
