"""Attention of some queries over some keys by compiled loops: output and log-sum-exp, and the gradients.

On processors with AVX-512 they take about half the time of torch's own kernel, which forms its products by a library
that leaves half of such a register unused where the processor is AMD's, and goes over scores several times. They serve
float32, bfloat16 and float16, and add a mask of any strides, so that a bias over offsets stays a view.
"""

from situs.compiled.attending.calling import attend, attend_backward, serves
from situs.compiled.attending.tensors import CAUSAL, EVERYTHING, Added, Band, Gradients

__all__ = ["CAUSAL", "EVERYTHING", "Added", "Band", "Gradients", "attend", "attend_backward", "serves"]
