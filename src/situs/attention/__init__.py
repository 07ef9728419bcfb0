"""Attention with any encoding; ``reference`` defines what is right."""

from situs.attention.reference import reference
from situs.attention.visibility import visibility

__all__ = ["reference", "visibility"]
