"""Recorded decisions, as the HTTP API tells them."""

import msgspec

from federator.model.outlook import Proof
from federator.model.plans import Plan
from federator.model.reasons import Reason
from federator.model.snapshot import Problem


class DecisionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded decision."""

    id: str
    at: float
    winner: str
    objective_usd: float
    actions: int
    jobs: int
    stages: str
    size_bytes: int
    winner_because: str = ""
    winner_reason: Reason | None = None
    waiting: int = 0
    """So many jobs it lets wait."""
    stale: int = 0
    """So many of its actions were not done, because what they were planned on had changed by then. `actions` are those that were."""
    checkpoint: str = ""
    """The decision with whose record the run of records begins that this one is part of; empty: it stands alone."""
    proof: Proof | None = None
    """Where it was certified: see `turn.certify_every`."""


class RecordedDecision(msgspec.Struct, frozen=True):
    """What one turn saw, and what it decided."""

    problem: Problem
    plan: Plan
    """As it was recorded, which a replay has to come to byte for byte: so its actions and what waits have a `reason`, and no sentence. `federator decisions show` tells them."""
    proof: Proof | None = None
    """Where it was certified: see `turn.certify_every`."""


class ToldDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The same for people: the plan in words, at most a thousand actions and a thousand jobs that wait, and of what was seen only how much it was."""

    row: DecisionRow
    plan: Plan
    names: dict[str, str]
    """Of the jobs that the plan names, by id."""
    pools: int
    offers: int
    policy_version: int


class ReplayResult(msgspec.Struct, frozen=True):
    """Whether deciding again came out the same; else where it did not, a line each."""

    identical: bool
    differences: tuple[str, ...] = ()
