"""HTTP bodies of policies and bursting: how two sets differ, what may be rented, and what waits for a person; and where people are told of their jobs."""

from typing import Annotated, Literal

import msgspec

from federator.wire.http import Problem


class MyAddress(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where somebody is told of their own jobs. All empty: as the dispatcher's settings say."""

    mail: Annotated[str, msgspec.Meta(max_length=320)] = ""
    """Their own, in one of the domains that the settings allow (`notifications.own_mail_domains`): their name before the `@`, or the verified address of their sign-in."""
    webhook: Annotated[str, msgspec.Meta(max_length=2000)] = ""
    """At one of the hosts that the settings allow (`notifications.own_webhook_hosts`). Answers have its host only: it is a secret."""
    format: Literal["json", "slack", "teams"] = "json"
    """What is posted there."""


class MyNotifications(msgspec.Struct, frozen=True, kw_only=True):
    """GET /v1/notifications: how whoever asks is told of their jobs."""

    reachable: bool
    """Whether there is any way; without one `notify` in a job file is refused."""
    own: MyAddress = MyAddress()
    """What they have said themselves."""
    mail_domains: tuple[str, ...] = ()
    """In which they may name an address,"""
    webhook_hosts: tuple[str, ...] = ()
    """and at which a webhook."""


class PolicyRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """POST /v1/policies and /v1/policies/validate: YAML text of the whole new set, and why."""

    text: str
    reason: str = ""
    instead_of: int | None = None
    """It is applied only while this version is in force: who has changed the set that he read changes no other."""


class PolicyVerdict(msgspec.Struct, frozen=True):
    """What a set would be, or has become. `problems` empty: it is valid."""

    version: int | None
    documents: tuple[str, ...] = ()
    rules: int = 0
    problems: tuple[Problem, ...] = ()
    access: str = ""
    """Who may submit where by this set, in one line."""


class DocumentChange(msgspec.Struct, frozen=True):
    """One document that differs: `added`, `removed` or `changed`, with its lines as a unified diff."""

    document: str
    change: str
    lines: tuple[str, ...] = ()


class PolicyDiff(msgspec.Struct, frozen=True):
    """How a set differs from the one in force, by document and by effect. With `problems`, nothing is compared."""

    version: int
    """Of the set in force."""
    documents: tuple[DocumentChange, ...] = ()
    added: tuple[str, ...] = ()
    """What will hold, in words."""
    removed: tuple[str, ...] = ()
    """What will no longer hold, in words."""
    problems: tuple[Problem, ...] = ()


class PolicyRollback(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST /v1/policies/rollback: which former version is to be in force again, and why."""

    version: int
    reason: str


class BurstPolicyRow(msgspec.Struct, frozen=True, kw_only=True):
    """What one burst policy does."""

    policy: str
    mode: str
    who: str
    where: str
    open: bool
    """Whether its hours hold now."""
    advisory: bool = False
    approval_above_usd: float | None = None
    leases: int = 0
    """That it let be rented, and are not over."""


class ProposalRow(msgspec.Struct, frozen=True, kw_only=True):
    """A rental that a policy only advises, or that waits to be approved."""

    kind: str
    job: str
    name: str
    owner: str
    queue: str
    policy: str
    offer: str
    cost_usd: float
    worst_usd: float
    because: str


class BurstStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Whether anything may be rented, by which policies, and what waits for a person."""

    paused: bool
    paused_by: str = ""
    paused_at: float | None = None
    policies: tuple[BurstPolicyRow, ...] = ()
    proposals: tuple[ProposalRow, ...] = ()


class Approval(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST /v1/burst/approve: one rental for this job may cost so much in the worst case; without `usd`, what was proposed."""

    job: str
    usd: Annotated[float, msgspec.Meta(ge=0, le=1_000_000_000)] | None = None
    reason: str = ""
