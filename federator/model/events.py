"""What happened: events for users, and the append-only ledger of acts, use and money.

Both are written in the transaction that changes the state they tell of, so neither can disagree with it.
"""

from enum import StrEnum

import msgspec

from federator.model.reasons import Reason


class Event(msgspec.Struct, frozen=True, gc=False):
    """One thing that happened to a job, for its timeline and for server-sent events."""

    id: str
    """In the order in which they happened: `Last-Event-ID` resumes after it."""
    job: str
    """Empty where it is about no job."""
    at: float
    """When, in seconds since the epoch."""
    kind: str
    """Name of the lifecycle event, for example `place`, or one beside it."""
    status: str
    """Of the job, after it."""
    text: str
    """What happened, in words. Empty in the store where `reason` says it."""
    site: str = ""
    """Where, if it was at a site."""
    placement: str = ""
    """The placement that it is about, by id."""
    reason: Reason | None = None
    """Why, for programs."""


class AlertKind(StrEnum):
    """What an alert is about."""

    BUDGET = "budget"
    """A budget has crossed one of its levels."""
    DEADLINE = "deadline"
    """A job is expected to miss its deadline."""
    LEASE = "lease"
    """A rented machine never joined."""
    APPROVAL = "approval"
    """A rental waits for a person."""
    IDENTITY = "identity"
    """A host's key was changed, or two agents have shown one key."""
    SET_ASIDE = "set-aside"
    """A job cannot be planned or its start cannot be written, and waits for a person or a change."""
    TURN = "turn"
    """The dispatcher cannot plan at all: nothing starts."""
    LEDGER = "ledger"
    """The ledger was rolled back or lost its end, or a place that it is exported to does not take it."""
    IDLE = "idle-gpus"
    """A job runs, and its GPUs do nothing."""
    SITE = "lost-site"
    """A site, or a host of it, is not heard."""
    GPU = "sick-gpu"
    """A GPU takes no new work until it is well."""
    QUEUE = "stuck-queue"
    """Nothing of a queue runs, though jobs of it wait."""
    JOB = "job"
    """To a job's owner, who asked for it with `notify`: jobs have started, ended or failed, or may miss their deadline."""


class Alert(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a person should hear of. `text` says all; the other fields are for programs, empty where they do not apply."""

    kind: AlertKind
    """One of the kinds above."""
    text: str
    """All of it, in words."""
    at: float
    """When, in seconds since the epoch."""
    policy: str = ""
    """The policy that it is about, as `Kind/name`."""
    share: str = ""
    """Of a budget: the queue or owner that it is for."""
    job: str = ""
    """The job that it is about, by id."""
    owner: str = ""
    """Whose job."""
    queue: str = ""
    """The queue of the job."""
    lease: str = ""
    """The rented capacity that it is about, by id."""
    site: str = ""
    """The site that it is about."""


class LedgerKind(StrEnum):
    """What a ledger line accounts for."""

    ACT = "act"
    USAGE = "usage"
    MONEY = "money"
    LOSS = "loss"


class LedgerEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One fact that is never changed or removed within retention. `who` is an identity, for example `user:ada` or `dispatcher`."""

    id: str
    at: float
    kind: LedgerKind
    who: str
    what: str
    job: str = ""
    queue: str = ""
    owner: str = ""
    site: str = ""
    lease: str = ""
    market: str = ""
    model: str = ""
    gpu_s: float = 0.0
    usd: float = 0.0
    egress_gib: float = 0.0
    team: str = ""
    """Under which the job was admitted. Lines from before it was written say none."""
    energy_kwh: float = 0.0
    """Of its GPUs, where their power is known,"""
    power_usd: float = 0.0
    """what that cost, as its site says of electricity; no part of `usd`,"""
    co2_kg: float = 0.0
    """and what it emitted."""
    reason: Reason | None = None
    """Why, where it is known as a value; `what` says it too once it is told."""
    answered: int = 0
    """Requests to a service since the line before, once an hour,"""
    met: int = 0
    """and those of them that were answered as its target says."""
