"""What keeps jobs that run as the agent's own user out of its memory."""

import ctypes

PR_SET_DUMPABLE = 4


def be_untraceable() -> None:
    """From now on no other process of this user can trace this one, or read its memory, environment and descriptors. What it starts is not held to that."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
