"""One pass over memory: the rotation as a compiled loop.

Rotating pairs is bound by memory, so the fastest program reads each vector once and writes it once, which no chain of
tensor operations does. LLVM (``pip install situs[fast]``) compiles such a loop when it is first needed; without it, or
for tensors it cannot reach, ``situs.rotation`` works with tensor operations instead.
"""

from situs.rotation.fused.planning import Plan, available, plan

__all__ = ["Plan", "available", "plan"]
