"""Where compiled kernels lie: a folder named after all that they depend on, so that nothing stale is ever run and no change is missed.

Beside these sources, so that all who share an installation share it: what is finished need only be read. Where nothing is finished and that cannot be
written, in the user's own cache; where there is neither, nowhere. `NUMBA_CACHE_DIR` in the environment says otherwise. This module asks without
importing numba.
"""

import fcntl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

HERE = Path(__file__).parent
DONE = "compiled"
"""A file of this name in the folder says that all kernels are there."""


@cache
def folder() -> Path | None:
    """The folder, if it can be written or has been; None without numba."""
    name = build_name()
    if name is None:
        return None
    places = [above / f"kernels-{name}" for above in _above()]
    finished = (place for place in places if _finished(place))
    return next(finished, None) or next(filter(_can_be_written, places), None)


def done() -> bool:
    """Whether everything has been compiled."""
    place = folder()
    return place is not None and _finished(place)


@contextmanager
def alone() -> Iterator[None]:
    """One process compiles at a time, where they can tell each other: the others wait here, and then find it done."""
    with ExitStack() as held:
        place = folder()
        if place is not None and not done():
            with suppress(OSError):
                lock = held.enter_context((place / "compiling").open("w"))
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def finish() -> None:
    """Everything has been compiled, and lies there. Where that cannot be noted, the next process compiles again."""
    place = folder()
    if place is not None and not done():
        with suppress(OSError):
            (place / DONE).touch()


def build_name() -> str | None:
    """Of the sources, of the programs that compile them, and of the processor that they are compiled for."""
    try:
        from llvmlite.binding import get_host_cpu_features, get_host_cpu_name  # noqa: PLC0415 - may be missing

        known = [version("numba"), version("numpy"), get_host_cpu_name(), get_host_cpu_features().flatten()]
    except (ImportError, PackageNotFoundError, RuntimeError, OSError):
        return None
    known.append(str(HERE))  # numba looks by it, too: a copy elsewhere would find nothing
    for path in sorted(HERE.glob("*.py")):
        known += [path.name, str(path.stat().st_mtime_ns), path.read_text()]
    return sha256("\0".join(known).encode()).hexdigest()[:16]


def _above() -> list[Path]:
    try:
        return [HERE / "__pycache__", Path("~/.cache/federator").expanduser()]
    except RuntimeError:  # nobody's home
        return [HERE / "__pycache__"]


def _finished(place: Path) -> bool:
    """Whether everything is there, and may be read by us: another user may have compiled it for himself alone."""
    try:
        (place / DONE).open("rb").close()
        for path in place.glob("*/*.nb[ic]"):
            path.open("rb").close()
    except OSError:
        return False
    return True


def _can_be_written(place: Path) -> bool:
    try:
        place.mkdir(parents=True, exist_ok=True)
        (place / "probe").touch()
        (place / "probe").unlink(missing_ok=True)
    except (OSError, RuntimeError):
        return False
    return True
