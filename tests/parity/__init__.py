"""Parity with released implementations: tiny models of transformers with random weights, judged layer by layer."""
