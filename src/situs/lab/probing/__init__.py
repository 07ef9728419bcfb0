"""Probing: properties, costs and portraits of encodings, as numbers."""
