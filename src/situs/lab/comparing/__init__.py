"""Comparing: train small models at a short length, test them at longer ones, and store records of it."""
