"""The list schedule and its prices as a compiled kernel: what a turn spends its time on.

The only package that knows numba. Nothing waits for it: where it is missing, or nothing has been compiled yet, `schedule` and `objective` do the
same in plain Python, some thirty times slower, and come to the same numbers; a property test holds the two together. Compiling takes a
quarter of a minute, once for each version of these sources and each kind of processor; who has the time calls `prepare`.
"""

from collections.abc import Callable
from typing import Any

from federator.planning.kernels import shelf

Kernel = Callable[[Any], None]
"""Carries out what a `tables.Sheet` says."""

_known: list[Kernel] = []


def at_hand() -> Kernel | None:
    """The kernel, if it need not be compiled first; loading it takes a quarter of a second, once."""
    if not _known and shelf.done():
        prepare()
    return _known[0] if _known else None


def prepare() -> bool:
    """Load the kernel, or compile it; whether there is one now."""
    if not _known:
        try:
            from federator.planning.kernels import deciding, tables  # noqa: PLC0415 - nor numba nor numpy before they are wanted

            decide: Kernel = deciding.decide
            decide(tables.nothing())
        except (ImportError, OSError):  # no numba, or the disk is full: plain Python it is
            return False
        shelf.finish()
        _known.append(decide)
    return True
