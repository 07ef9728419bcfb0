"""One pass over memory: the rotation as a compiled loop.

Turning pairs is bound by memory, so the fastest program reads each vector once and writes it once, which no chain of
tensor operations does. LLVM (``pip install situs[fast]``) compiles such a loop when it is first needed; without it, or
for tensors it cannot reach, ``rotation`` works with tensor operations instead.
"""

from situs.functional.fused.planning import Plan, available, plan

__all__ = ["Plan", "available", "plan"]
