"""The schedule: one row for each attempt of a job, and one for each lease. From these two tables anybody can compute every figure again.

Times are seconds since the start of the trace. `price_usd` of an attempt is what its GPUs cost while it held them, at the marginal price of
owned and the rent of rented capacity; what a rented machine costs beyond that (boot, idle, teardown, minimum) is in the table of leases, whose
sum is all the money that is paid for rent.
"""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

DONE = "succeeded"
"""Outcome of an attempt that did its job."""
NO_ATTEMPT = "waiting"
"""Outcome of the one row of a job that was never placed."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One attempt, in the order of the columns. `start_s` None: it never ran; `end_s` None: it runs on when the simulation ends."""

    job: str
    attempt: int
    site: str = ""
    pool: str = ""
    market: str = ""
    nodes: int
    gpus: int
    """Over all nodes."""
    submit_s: float
    start_s: float | None = None
    end_s: float | None = None
    outcome: str
    deadline_s: float | None = None
    price_usd: float = 0.0
    egress_usd: float = 0.0
    """For the data that was moved to it before it began; `moved_gb` is how much."""
    moved_gb: float = 0.0

    @property
    def gpu_h(self) -> float:
        """GPU-hours that it held, as far as it ran."""
        if self.start_s is None or self.end_s is None:
            return 0.0
        return self.gpus * (self.end_s - self.start_s) / 3600.0


class LeaseRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One lease. `start_s` is when its machine was launched (None: never), `end_s` when it was gone (None: it is still there)."""

    lease: str
    site: str
    offer: str
    market: str
    gpus: int
    requested_s: float
    start_s: float | None = None
    end_s: float | None = None
    usd_per_h: float = 0.0
    minimum_billing_s: float = 0.0
    cost_usd: float = 0.0
    outcome: str = ""
    job: str = ""
    """For which it was rented."""


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """What happened. `end_s` is when the simulation ended."""

    attempts: tuple[Attempt, ...]
    leases: tuple[LeaseRow, ...]
    end_s: float
    ledger_moved_usd: float | None = None
    """What the dispatcher's ledger says that moving data has cost, where it was heard."""


def attempts_csv(rows: Iterable[Attempt]) -> str:
    """The table of attempts, in the order of submission."""
    return _table(Attempt.__struct_fields__, rows)


def leases_csv(rows: Iterable[LeaseRow]) -> str:
    """The table of leases, in the order of their requests."""
    return _table(LeaseRow.__struct_fields__, rows)


def _table(columns: Sequence[str], rows: Iterable[Any]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(getattr(row, name)) for name in columns] for row in rows)
    return out.getvalue()


def _cell(value: object) -> object:
    """Times to the millisecond and money to a hundredth of a cent; nothing is an empty cell."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4f}".rstrip("0").rstrip(".")
    return value
