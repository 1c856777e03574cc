"""The list schedule and its prices as a compiled kernel: the one list scheduler, and what a turn spends its time on.

The only package that knows numba, which the dispatcher requires. Compiling takes a quarter of a minute, once for each version of these sources and each kind of processor;
who has the time calls `prepare`, and who has not done so compiles with the first decision. The tests hold a small oracle in plain Python against it
(`tests/support/plain_schedule.py`).
"""

from collections.abc import Callable
from typing import Any

from federator.kernel.errors import Unavailable
from federator.planning.kernels import cache

Kernel = Callable[[Any], None]
"""Carries out what a `tables.KernelState` says."""

_known: list[Kernel] = []
_failed: list[str] = []
"""Why there is none."""


def prepare() -> bool:
    """Load the kernel, or compile it; whether there is one now. Raises nothing."""
    if not _known:
        _load()
    return bool(_known)


def kernel() -> Kernel:
    """The kernel, loaded or compiled if need be. Raises `Unavailable`, with the remedy, where it cannot be."""
    if not _known and not prepare():
        raise Unavailable(trouble(), remedy="pip install 'federator[dispatcher]'")
    return _known[0]


def late_shares(*numbers: Any) -> Any:
    """`chances.late_share` of whole arrays: an array of what they are broadcast to. Raises `Unavailable`."""
    kernel()
    import numpy as np  # noqa: PLC0415 - see `_load`

    from federator.planning.kernels import decision  # noqa: PLC0415

    arrays = np.broadcast_arrays(*(np.asarray(each, dtype=np.float64) for each in numbers))
    shares = np.empty(arrays[0].size)
    fill: Any = decision.late_shares
    fill(*(np.ascontiguousarray(each).ravel() for each in arrays), shares)
    return shares.reshape(arrays[0].shape)


def put_off_s(now: float, *arrays: Any) -> Any:
    """`optimal_stopping.all_put_off_s` of whole arrays, all of one length. Raises `Unavailable`."""
    kernel()
    import numpy as np  # noqa: PLC0415 - see `_load`

    from federator.planning.kernels import optimal_stopping  # noqa: PLC0415

    waits_s = np.empty(len(arrays[0]))
    fill: Any = optimal_stopping.all_put_off_s
    fill(now, *(np.ascontiguousarray(each) for each in arrays), waits_s)
    return waits_s


def trouble() -> str:
    """Why nothing can be planned, for people; empty: it can, or nobody has tried to load the kernel."""
    return _failed[-1] if _failed and not _known else ""


def _load() -> None:
    """Whatever goes wrong – no numba, a full disk, a folder that nobody may open – is kept in words."""
    try:
        from federator.planning.kernels import compiled, decision, optimal_stopping, tables  # noqa: PLC0415 - nor numba nor numpy before they are wanted

        decide: Kernel = decision.decide
        late_shares: Any = decision.late_shares
        put_off: Any = optimal_stopping.all_put_off_s
        with cache.alone():
            compiled.call_first(decide, tables.nothing())
            compiled.call_first(late_shares, *[tables.NONE] * 7)
            compiled.call_first(put_off, 0.0, *[tables.NONE] * 11)
        if not compiled.unsaved:
            cache.finish()
    except Exception as error:  # noqa: BLE001 - numba raises what it likes
        place = cache.folder()
        where = "" if place is None else f" from {place}, which can be removed if it is damaged"
        _failed.append(f"the compiled planner could not be loaded{where} ({type(error).__name__}: {error})")
        return
    _known.append(decide)
