"""What GET /v1/changes sends: rows of what there is, and what has changed of them since."""

from typing import Any, Literal

import msgspec

Topic = Literal["sites", "queues", "leases", "budgets", "rent", "jobs", "plan", "policies", "alerts"]
"""What can be followed. The last four have one row, which changes when there is something to read anew."""


class SiteLine(msgspec.Struct, frozen=True, kw_only=True):
    """A site among many: as a line of GET /v1/sites, its pools and hosts added up."""

    name: str
    kind: str
    status: str
    region: str = ""
    labels: dict[str, str] = {}
    models: tuple[str, ...] = ()
    gpus: int | float = 0
    busy: int | float = 0
    sick: int = 0
    """GPUs that take no new work."""
    running: int = 0
    largest_gang: str = ""
    reported_at: float | None = None
    """When it was last heard, in whole seconds; None: never."""
    draining: bool = False
    drain_because: str = ""
    paused: bool = False
    members: int = 0
    because: str = ""


class RentLine(msgspec.Struct, frozen=True):
    """What is rented, in all: machines now, their price, and the money of all leases on record."""

    machines: int
    price_usd_h: float
    billed_usd: float
    committed_usd: float


class Mark(msgspec.Struct, frozen=True):
    """How far something is: another value says that there is something new."""

    at: str


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One message. `rows` by topic and key: of a row that is known the fields that have changed, of another all, and null for one that is gone."""

    reset: bool = False
    """These are all rows: forget what was known before."""
    rows: dict[Topic, dict[str, dict[str, Any] | None]] = {}
