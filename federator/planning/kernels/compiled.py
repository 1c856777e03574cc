"""The one door to numba: functions of this package are compiled through it."""

from collections.abc import Callable
from typing import Any, TypeVar

import numba

from federator.planning.kernels import shelf

F = TypeVar("F", bound=Callable[..., Any])

OPTIONS: dict[str, Any] = {"error_model": "numpy", "nogil": True, "_nrt": False}
"""No kernel makes an array, so none is counted: that is quicker to compile and to run."""
PART = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
njit: Any = numba.njit  # its hints know neither of these options
config: Any = numba.config


def compiled(function: F) -> F:
    """A part of a kernel: compiled with the kernel that calls it."""
    made: F = njit(**OPTIONS, **PART)(function)
    return made


def kernel(function: F) -> F:
    """A function that Python calls. What was compiled is kept on disk where there is a place for it."""
    where = shelf.folder()
    if where is not None and not config.CACHE_DIR:
        config.CACHE_DIR = str(where)
    made: F = njit(**OPTIONS, cache=where is not None)(function)
    return made
