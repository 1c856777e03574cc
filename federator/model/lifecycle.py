"""The life of jobs, placements, leases and members, as tables: `(status, event) → status`, a sentence per edge.

No other module changes a status. A pair that a table does not list is a bug when it comes from inside and a recorded anomaly
when it comes from outside. The diagrams in `docs/reference/lifecycles.md` are drawn from these tables. Every forward jump is
listed: a short job may be seen ASSIGNED and next SUCCEEDED.
"""

from enum import StrEnum
from typing import NamedTuple, TypeVar

from federator.kernel.errors import BadTransition
from federator.model.capacity import LeaseStatus as L
from federator.model.jobs import JobStatus as J
from federator.model.placements import PlacementStatus as P
from federator.model.sites import SiteStatus as S

Status = TypeVar("Status", J, P, L, S)


class Edge(NamedTuple):
    """Where an event leads, and what a person should know about it."""

    to: StrEnum
    says: str


JOB: dict[tuple[J, str], Edge] = {
    (J.PENDING, "place"): Edge(J.PLACED, "A plan gave it capacity; its site has been told."),
    (J.PENDING, "hold"): Edge(J.HELD, "Held by a person before it started."),
    (J.PENDING, "cancel"): Edge(J.CANCELLED, "Cancelled while it waited: nothing to stop."),
    (J.PENDING, "dependency-failed"): Edge(J.FAILED, "A job it must follow did not succeed."),
    (J.PENDING, "give-up"): Edge(J.FAILED, "Its cost cap leaves no way to run it."),
    (J.HELD, "release"): Edge(J.PENDING, "Released: it waits for its turn again."),
    (J.HELD, "cancel"): Edge(J.CANCELLED, "Cancelled while held: nothing to stop."),
    (J.PLACED, "starting"): Edge(J.STARTING, "The site prepares it: staging and set-up."),
    (J.PLACED, "running"): Edge(J.RUNNING, "All its ranks run."),
    (J.STARTING, "running"): Edge(J.RUNNING, "All its ranks run."),
    (J.RECOVERING, "running"): Edge(J.RUNNING, "The site is back and it never stopped running."),
    (J.RECOVERING, "starting"): Edge(J.STARTING, "The site is back and still prepares it."),
    (J.RECOVERING, "released"): Edge(J.PENDING, "Its old placement is proven over: it may start again."),
    (J.RECOVERING, "suspect"): Edge(J.HELD, "Three distinct nodes were lost under it: a person should look."),
    (J.SUSPENDING, "paused"): Edge(J.PENDING, "It saved itself and ended; it waits for a new place."),
    (J.SUSPENDING, "held"): Edge(J.HELD, "It saved itself and ended; it is held, and keeps its place."),
    (J.SUSPENDING, "released"): Edge(
        J.PENDING, "It was lost while it was being stopped; it waits for a new place."
    ),
    (J.CANCELLING, "cancelled"): Edge(J.CANCELLED, "The site confirms that it has stopped."),
    (J.CANCELLING, "released"): Edge(J.CANCELLED, "Its placement is proven over."),
}
for _status in (J.PLACED, J.STARTING, J.RUNNING):
    JOB[_status, "requeue"] = Edge(
        J.PENDING, "The attempt ended without fault of the job, or a retry is due: it waits again."
    )
    JOB[_status, "lose"] = Edge(
        J.RECOVERING, "The infrastructure failed; it waits for proof that the old placement is over."
    )
    JOB[_status, "suspect"] = Edge(J.HELD, "Three distinct nodes were lost under it: a person should look.")
    JOB[_status, "suspend"] = Edge(
        J.SUSPENDING, "It is asked to save itself and stop: preempted, moved or held."
    )
    JOB[_status, "cancel"] = Edge(J.CANCELLING, "Cancelled; the site has not confirmed yet.")
for _status in (J.PLACED, J.STARTING, J.RUNNING, J.SUSPENDING, J.RECOVERING, J.CANCELLING):
    JOB[_status, "succeed"] = Edge(J.SUCCEEDED, "It ended by itself with exit code 0.")
for _status in (J.PLACED, J.STARTING, J.RUNNING, J.SUSPENDING, J.RECOVERING):
    JOB[_status, "fail"] = Edge(J.FAILED, "It ended by its own fault, and no retry is left.")
JOB[J.PENDING, "succeed"] = Edge(
    J.SUCCEEDED, "An older attempt, given up for lost, turns out to have succeeded."
)
JOB[J.HELD, "succeed"] = Edge(
    J.SUCCEEDED, "An older attempt, given up for lost, turns out to have succeeded."
)
JOB[J.RECOVERING, "cancel"] = Edge(J.CANCELLING, "Cancelled; the old placement is not proven over yet.")
JOB[J.SUSPENDING, "cancel"] = Edge(J.CANCELLING, "Cancelled while it was being stopped.")
JOB[J.SUSPENDING, "lose"] = Edge(J.RECOVERING, "The infrastructure failed while it was being stopped.")

PLACEMENT: dict[tuple[P, str], Edge] = {
    (P.ASSIGNED, "accept"): Edge(P.ACCEPTED, "The site has it on disk and holds the capacity."),
    (P.ASSIGNED, "refuse"): Edge(
        P.REFUSED, "The site cannot after all: an ordinary answer that corrects the shapes."
    ),
    (P.ACCEPTED, "refuse"): Edge(
        P.REFUSED, "The site cannot after all: an ordinary answer that corrects the shapes."
    ),
    (P.STARTING, "refuse"): Edge(
        P.REFUSED, "One member of a gang cannot after all; what the others had begun is over."
    ),
}
for _from in (P.ASSIGNED, P.ACCEPTED):
    PLACEMENT[_from, "start"] = Edge(P.STARTING, "Staging and set-up have begun.")
for _from in (P.ASSIGNED, P.ACCEPTED, P.STARTING):
    PLACEMENT[_from, "run"] = Edge(P.RUNNING, "All ranks run.")
for _from in (P.ASSIGNED, P.ACCEPTED, P.STARTING, P.RUNNING):
    PLACEMENT[_from, "succeed"] = Edge(P.SUCCEEDED, "Every rank ended with exit code 0.")
    PLACEMENT[_from, "fail"] = Edge(P.FAILED, "A rank failed, set-up failed, or a limit was reached.")
    PLACEMENT[_from, "stop"] = Edge(P.STOPPED, "It ended because it was told to.")
    PLACEMENT[_from, "lose"] = Edge(
        P.LOST, "It is proven over without a result: the machine is gone, or rebooted."
    )
    PLACEMENT[_from, "revoke"] = Edge(P.REVOKED, "Another attempt won, or it was never sent.")
PLACEMENT[P.LOST, "succeed"] = Edge(
    P.SUCCEEDED, "Declared dead, but it had succeeded: its late report is accepted."
)
PLACEMENT[P.LOST, "fail"] = Edge(P.FAILED, "Declared dead, but it had ended: accounting only.")
PLACEMENT[P.LOST, "stop"] = Edge(P.STOPPED, "Declared dead, but it had stopped: accounting only.")

TOLD: dict[P, str] = {
    P.ACCEPTED: "accept",
    P.STARTING: "start",
    P.RUNNING: "run",
    P.SUCCEEDED: "succeed",
    P.FAILED: "fail",
    P.STOPPED: "stop",
    P.LOST: "lose",
    P.REFUSED: "refuse",
}
"""What has happened to a placement of which a site tells this status. The others are not for a site to tell."""

LEASE: dict[tuple[L, str], Edge] = {
    (L.REQUESTED, "launch"): Edge(L.LAUNCHING, "The provider is being asked, under the lease's own name."),
    (L.REQUESTED, "drop"): Edge(
        L.GONE, "No longer needed, paused, or beyond a budget before the provider was asked."
    ),
    (L.LAUNCHING, "launched"): Edge(L.BOOTING, "The provider has started the instance."),
    (L.LAUNCHING, "fail"): Edge(L.FAILED, "The provider could not; the offer is avoided for a while."),
    (L.LAUNCHING, "give-up"): Edge(
        L.TERMINATING, "The provider has not answered for too long; it is ended in case it was started."
    ),
    (L.BOOTING, "fail"): Edge(L.TERMINATING, "It never joined; it is ended and its offer avoided."),
    (L.BOOTING, "joined"): Edge(L.READY, "Its agent has joined."),
    (L.LAUNCHING, "joined"): Edge(L.READY, "Its agent has joined before the provider's answer arrived."),
    (L.READY, "drain"): Edge(L.DRAINING, "Idle, or no longer paying: nothing new starts there."),
    (L.BOOTING, "drain"): Edge(L.DRAINING, "Nothing needs it any more."),
    (L.INTERRUPTED, "drain"): Edge(L.DRAINING, "Its work has been told to save itself."),
    (L.INTERRUPTED, "terminate"): Edge(
        L.TERMINATING, "Its agent has not joined: nothing runs there to save."
    ),
    (L.DRAINING, "terminate"): Edge(
        L.TERMINATING, "All results are home, or the wait for them is recorded as a loss."
    ),
}
for _lease in (L.BOOTING, L.READY):
    LEASE[_lease, "interrupt"] = Edge(L.INTERRUPTED, "The provider takes the machine back shortly.")
for _lease in (L.LAUNCHING, L.BOOTING, L.READY, L.INTERRUPTED, L.DRAINING, L.TERMINATING):
    LEASE[_lease, "ended"] = Edge(L.GONE, "The provider's listing shows it ended.")

MEMBER: dict[tuple[S, str], Edge] = {}
for _seen in (S.JOINING, S.READY, S.DEGRADED, S.UNREACHABLE, S.LOST, S.DRAINING):
    MEMBER[_seen, "leave"] = Edge(S.GONE, "It left, or its lease ended.")
for _seen in (S.JOINING, S.DEGRADED, S.UNREACHABLE, S.LOST):
    MEMBER[_seen, "report"] = Edge(S.READY, "A fresh report.")
for _seen in (S.JOINING, S.READY, S.UNREACHABLE):
    MEMBER[_seen, "ail"] = Edge(S.DEGRADED, "It reports that something is wrong, or is late.")
for _seen in (S.READY, S.DEGRADED):
    MEMBER[_seen, "silent"] = Edge(S.UNREACHABLE, "Nothing heard for longer than reports may take.")
    MEMBER[_seen, "goodbye"] = Edge(S.UNREACHABLE, "Its agent has stopped, and said so.")
MEMBER[S.JOINING, "drain"] = Edge(
    S.DRAINING, "An operator lets nothing new start at the site; what runs goes on."
)
MEMBER[S.DRAINING, "undrain"] = Edge(S.JOINING, "It takes work again; how it is, its members say.")
MEMBER[S.UNREACHABLE, "declare-dead"] = Edge(S.LOST, "An operator, or the provider, says that it is gone.")
MEMBER[S.READY, "declare-dead"] = Edge(S.LOST, "An operator, or the provider, says that it is gone.")
MEMBER[S.DEGRADED, "declare-dead"] = Edge(S.LOST, "An operator, or the provider, says that it is gone.")


def advance(status: Status, event: str) -> Status:
    """The status after `event`. Raises `BadTransition` for a pair that the tables do not list."""
    edge = _TABLES[type(status)].get((status, event))
    if edge is None:
        raise BadTransition(f"a {type(status).__name__} of {status} knows no event {event!r}")
    return edge.to  # type: ignore[no-any-return]


def allows(status: Status, event: str) -> bool:
    """Whether the tables list the pair."""
    return (status, event) in _TABLES[type(status)]


_TABLES: dict[type, dict] = {J: JOB, P: PLACEMENT, L: LEASE, S: MEMBER}  # type: ignore[type-arg]
