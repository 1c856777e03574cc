"""The one door to numba: functions of this package are compiled through it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.extending import register_jitable

from federator.planning.kernels import cache

F = TypeVar("F", bound=Callable[..., Any])

OPTIONS: dict[str, Any] = {"error_model": "numpy", "nogil": True, "_nrt": False}
"""No kernel makes an array, so none is counted: that is quicker to compile and to run."""
PART = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
njit: Any = numba.njit  # its hints know neither of these options
config: Any = numba.config


class Locator:
    """Where numba keeps what it compiles: in the cache's folder and nowhere else, and what is finished need only be read. The interface is that of numba's own locators."""

    def __init__(self, folder: Path, line: int, source: str) -> None:
        """Of a function that begins on that line of a source file."""
        self._folder = folder
        self._line = line
        self._py_file = source  # numba names it in warnings

    @classmethod
    def from_function(cls, function: Any, source: str) -> "Locator | None":
        """None: it cannot be kept."""
        folder = cache.folder()
        if folder is None:
            return None
        found = cls(folder, function.__code__.co_firstlineno, source)
        try:
            found.ensure_cache_path()
        except OSError:
            return None
        return found

    def ensure_cache_path(self) -> None:
        """Raises `OSError` where something would have to be written and cannot."""
        if not Path(self.get_cache_path()).is_dir():
            Path(self.get_cache_path()).mkdir(parents=True, exist_ok=True)

    def get_cache_path(self) -> str:
        """Where `cache.done` looks, unless NUMBA_CACHE_DIR says otherwise."""
        return str(Path(config.CACHE_DIR or self._folder) / "kernels")

    def get_source_stamp(self) -> str:
        """The folder's name, which is made of all sources."""
        return self._folder.name

    def get_disambiguator(self) -> str:
        """Tells functions of one name apart."""
        return str(self._line)


unsaved: list[OSError] = []
"""Why what was compiled could not be kept."""


def call_first(function: Callable[..., Any], *arguments: Any) -> None:
    """Load or compile it by a first call. A full disk costs the next start its compiling, and this one nothing."""
    try:
        function(*arguments)
    except OSError as error:
        unsaved.append(error)
        function(*arguments)  # it is compiled by now, and only its file is missing


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
    config.CACHE_LOCATOR_CLASSES = f"{Locator.__module__}.{Locator.__qualname__}"
    made: F = njit(cache=cache.folder() is not None, **OPTIONS)(function)
    return made
