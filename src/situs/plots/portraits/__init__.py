"""What an encoding does: one figure a kind, drawn from the objects that run in models."""
