"""How much memory this process has, from /proc; 0 where there is none."""

from __future__ import annotations

import os
from pathlib import Path

STATM = Path("/proc/self/statm")


def resident_bytes() -> float:
    """The second number of statm counts pages (proc_pid_statm(5))."""
    try:
        return float(int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
    except OSError:
        return 0.0
