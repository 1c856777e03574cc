"""The one door to numba: functions of this package are compiled through it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numba
from numba.core import caching, event
from numba.extending import register_jitable

from federator.planning.kernels import cache

F = TypeVar("F", bound=Callable[..., Any])

OPTIONS: dict[str, Any] = {"error_model": "numpy", "nogil": True, "_nrt": False}
"""No kernel makes an array, so none is counted: that is quicker to compile and to run."""
PART = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
njit: Any = numba.njit  # its hints know neither of these options
config: Any = numba.config


class _Place(caching.UserProvidedCacheLocator):
    """The cache's folder. numba opens only what it can write; what is finished need only be read."""

    def ensure_cache_path(self) -> None:
        """Raises `OSError`."""
        try:
            super().ensure_cache_path()  # type: ignore[no-untyped-call]
        except OSError:
            if not cache.done():
                raise


class _Files(caching.CompileResultCacheImpl):
    """No other place: what is compiled must lie where `cache.done` looks."""

    _locator_classes = [_Place]  # noqa: RUF012 - as numba has it


unsaved: list[OSError] = []
"""Why what was compiled could not be kept."""


class _Cache(caching.FunctionCache):
    _impl_class = _Files

    def save_overload(self, sig: Any, data: Any) -> None:
        """A full disk costs the next start its compiling, and this one nothing."""
        try:
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]
        except OSError as error:
            unsaved.append(error)


cache_of: Any = _Cache  # numba's are without hints


class _Refusal(event.Listener):
    """Stops the compiler before it begins; what is read from disk is no matter of it."""

    def on_start(self, event: Any) -> None:  # noqa: ARG002 - numba's signature
        """Raises `RuntimeError`."""
        raise RuntimeError("it is not there as compiled for these sources and this processor")

    def on_end(self, event: Any) -> None:
        """It has not begun."""


@contextmanager
def refused() -> Iterator[None]:
    """Nothing is compiled meanwhile: what would have to be raises `RuntimeError`."""
    with event.install_listener("numba:compile", _Refusal()):
        yield


def compiled(function: F) -> F:
    """A part of a kernel: compiled with the kernel that calls it."""
    made: F = njit(**OPTIONS, **PART)(function)
    return made


def shared(*functions: Callable[..., Any]) -> None:
    """Plain functions of numbers that compiled code may call, too: compiled with what calls them. Python goes on calling them as they stand."""
    for function in functions:
        register_jitable(**OPTIONS)(function)


def kernel(function: F) -> F:
    """A function that Python calls. What was compiled is kept on disk where there is a place for it."""
    where = cache.folder()
    if where is not None and not config.CACHE_DIR:
        config.CACHE_DIR = str(where)
    made: Any = njit(**OPTIONS)(function)
    if where is not None:
        made._cache = cache_of(function)  # noqa: SLF001 - `cache=True` would take numba's own places
    kept: F = made
    return kept
