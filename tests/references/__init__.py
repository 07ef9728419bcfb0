"""The papers' formulas in float64 NumPy, written independently of the library they judge."""
