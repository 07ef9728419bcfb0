"""Plots: records in, matplotlib figures and one page out. Only this layer needs matplotlib."""
