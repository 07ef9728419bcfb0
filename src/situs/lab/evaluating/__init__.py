"""Evaluating: which scaling carries a released model to longer texts, measured without training."""
