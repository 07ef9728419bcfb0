"""How a process that was a rank of a process group ends."""

from __future__ import annotations

import os
from typing import NoReturn

import torch.distributed as dist


def leave() -> NoReturn:
    """End this process, whose work is done, without freeing its process group. torch frees one while it holds Python's
    lock, and waits for a thread that may want that lock to free what it sent last: now and then, forever."""
    dist.barrier()
    os._exit(0)
