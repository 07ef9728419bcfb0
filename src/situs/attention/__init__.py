"""Attention with any encoding; ``reference`` defines what is right."""

from situs.attention.attend import Explanation, attend, explain
from situs.attention.reference import reference
from situs.attention.visibility import visibility

__all__ = ["Explanation", "attend", "explain", "reference", "visibility"]
