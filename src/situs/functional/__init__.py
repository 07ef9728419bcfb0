"""Pure functions of tensors, one idea a file: no state, no cache, no default device."""

from situs.functional.angles import range_unit_circle, reduced_angles, unit_circle
from situs.functional.frequencies import (
    contiguous_axis_map,
    interleaved_axis_map,
    rotary_frequencies,
    sinusoidal_frequencies,
    time_last_axis_map,
)
from situs.functional.grids import Vision, grid_coordinates, multimodal_coordinates, normalised_coordinates
from situs.functional.pairing import convert_pairing, pairing_permutation
from situs.functional.rotation import (
    as_complex,
    from_complex,
    rotate_complex,
    rotate_matrix,
    rotate_real,
    rotation_matrix,
)
from situs.functional.sampling import randomised, skips, stretches
from situs.functional.sinusoids import shift_matrix, sinusoids
from situs.functional.tables import resize_grid, stretch

__all__ = [
    "Vision",
    "as_complex",
    "contiguous_axis_map",
    "convert_pairing",
    "from_complex",
    "grid_coordinates",
    "interleaved_axis_map",
    "multimodal_coordinates",
    "normalised_coordinates",
    "pairing_permutation",
    "randomised",
    "range_unit_circle",
    "reduced_angles",
    "resize_grid",
    "rotary_frequencies",
    "rotate_complex",
    "rotate_matrix",
    "rotate_real",
    "rotation_matrix",
    "shift_matrix",
    "sinusoidal_frequencies",
    "sinusoids",
    "skips",
    "stretch",
    "stretches",
    "time_last_axis_map",
    "unit_circle",
]
