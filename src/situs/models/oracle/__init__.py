"""Exact numbers of a model's positions, for programs in any language; private, `situs.models.golden` makes them.

parts.py       what is computed: parts of a model, groups of equal layers, tables of the input
places.py      where tokens stand: positions, coordinates, offsets, a padded and packed batch
rules.py       how vectors are rotated, as tensors
rotated.py     numbers of a group that rotates; scored.py of biases and terms; tabled.py of tables and batches
arrays.py      all arrays of a part by name, inputs and outputs
probes.py      the recipe of probe numbers
making.py      golden(); record.py its result; files.py JSON, npz and safetensors
"""
