"""How many cores this process may use."""

import os


def num_cores() -> int:
    """Where Python cannot tell, all that the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
