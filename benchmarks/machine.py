"""The machine and the versions that a result belongs to."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from time import perf_counter

import psutil
import torch

PACKAGES = ("situs", "torch", "transformers", "rotary-embedding-torch", "x-transformers", "llvmlite", "numpy")
PARTS = ("functional", "rotation", "positions", "encodings", "attention", "huggingface")
SETTINGS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "SITUS_FUSED", "MALLOC_TRIM_THRESHOLD_", "LD_PRELOAD")


class Bystanders:
    """How much of the processors others took meanwhile: what makes a run's figures doubtful."""

    def __init__(self) -> None:
        self._began, self._before = perf_counter(), self._busy()

    def share(self) -> float:
        """Cores' worth of time that other processes were running since this was made, over all cores."""
        return max(0.0, self._busy() - self._before) / (perf_counter() - self._began) / (os.cpu_count() or 1)

    @staticmethod
    def _busy() -> float:
        machine, own = psutil.cpu_times(), os.times()
        taken = sum(machine) - machine.idle - getattr(machine, "iowait", 0.0) - getattr(machine, "guest", 0.0)
        return float(taken - own.user - own.system - own.children_user - own.children_system)


def description() -> dict[str, object]:
    """Everything that a figure may depend on."""
    return {
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "cores_allowed": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "default_threads": torch.get_num_threads(),
        "vector_instructions": torch.backends.cpu.get_cpu_capability(),
        "load_before": os.getloadavg()[0],
        "system": platform.platform(),
        "libc": " ".join(platform.libc_ver()),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES},
        "settings": {name: os.environ[name] for name in SETTINGS if name in os.environ},
        "commit": _git("rev-parse", "--short", "HEAD"),
        "uncommitted_files": len(_git("status", "--porcelain", "--", "src").splitlines()),
        "code": code(),
    }


def code() -> str:
    """A hash of all that is measured, and of what measures it."""
    here = Path(__file__).parent
    files = [path for package in PARTS for path in (here.parent / "src" / "situs" / package).rglob("*.py")]
    digest = hashlib.sha256()
    for path in sorted([*files, *here.glob("*.py")]):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def _git(*arguments: str) -> str:
    here = Path(__file__).parent.parent
    return subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True, check=False).stdout.strip()
