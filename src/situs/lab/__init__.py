"""The lab: train small models at a short length, test them at longer ones, and keep records."""
