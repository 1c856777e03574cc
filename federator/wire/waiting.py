"""Why jobs wait, added up, and what a person should hear of: for screens, as the HTTP API tells it."""

import msgspec


class WaitReason(msgspec.Struct, frozen=True, kw_only=True):
    """All that waits for one reason."""

    reason: str
    """The kind, as `GET /v1/jobs?reason=` takes it."""
    jobs: int
    gpus: float
    """What they ask for in all."""
    first: str
    """The id of the one that was submitted first,"""
    first_at: float
    """and when that was,"""
    because: str
    """and why it waits, in words."""


class ReservedGpus(msgspec.Struct, frozen=True, kw_only=True):
    """GPUs that are free, or will soon be, and are kept: for a job that needs many at once, or by a policy."""

    site: str
    job: str
    """Its id; empty where it may not be seen, and of what a policy keeps."""
    name: str
    """The job's, or for whom a policy keeps them."""
    gpus: float
    """What the job asks for in all, or what is free of that which a policy keeps."""
    until_at: float
    """When it starts at the latest, as planned, or when the policy lets it go."""
    policy: str = ""
    """The policy that keeps them; empty: the plan does."""


class WaitingNow(msgspec.Struct, frozen=True, kw_only=True):
    """GET /v1/waiting."""

    jobs: int
    """How many jobs wait, of those that one is shown,"""
    gpus: float
    """and the GPUs that they ask for."""
    reasons: tuple[WaitReason, ...] = ()
    """What most wait for comes first."""
    reserved: tuple[ReservedGpus, ...] = ()


class AlertRow(msgspec.Struct, frozen=True, kw_only=True):
    """A line of GET /v1/alerts: something that a person should hear of without looking."""

    kind: str
    """See the kinds of alerts."""
    text: str
    at: float
    job: str = ""
    """The id of the job that it is about, if it is about one."""
    told: bool = True
    """Whether it was sent to whoever is to be told, if anybody is."""
