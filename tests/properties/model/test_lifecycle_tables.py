"""The lifecycle tables as graphs: nothing unreachable, nothing that traps, and no way out of an end but those that are meant."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.kernel.errors import BadTransition
from federator.model.capacity import LEASE_ENDED, LeaseStatus
from federator.model.jobs import TERMINAL, JobStatus
from federator.model.lifecycle import JOB, LEASE, MEMBER, PLACEMENT, Edge, advance, allows
from federator.model.placements import PLACEMENT_ENDED, PlacementStatus
from federator.model.sites import SiteStatus

TABLES: list[Any] = [
    pytest.param(JOB, JobStatus, JobStatus.PENDING, TERMINAL, set(), id="job"),
    pytest.param(
        PLACEMENT,
        PlacementStatus,
        PlacementStatus.ASSIGNED,
        PLACEMENT_ENDED,
        {(PlacementStatus.LOST, "succeed"), (PlacementStatus.LOST, "fail"), (PlacementStatus.LOST, "stop")},
        id="placement",
    ),
    pytest.param(LEASE, LeaseStatus, LeaseStatus.REQUESTED, LEASE_ENDED, set(), id="lease"),
    pytest.param(MEMBER, SiteStatus, SiteStatus.JOINING, {SiteStatus.GONE}, set(), id="member"),
]
EVENTS = sorted({event for table in (JOB, PLACEMENT, LEASE, MEMBER) for _, event in table})
Table = Mapping[tuple[Any, str], Edge]


def _reachable(table: Table, start: StrEnum) -> set[StrEnum]:
    seen, ahead = {start}, [start]
    while ahead:
        status = ahead.pop()
        found = {edge.to for (origin, _), edge in table.items() if origin == status} - seen
        seen |= found
        ahead += found
    return seen


@pytest.mark.parametrize(("table", "kind", "first", "ends", "late"), TABLES)
def test_every_status_can_be_reached(table: Table, kind: Any, first: StrEnum, ends: Any, late: Any) -> None:
    if kind is SiteStatus:
        # A member is never DRAINING by an event of its own: draining is a flag of its site, and a status only in what is shown.
        assert set(kind) - _reachable(table, first) <= {SiteStatus.DRAINING}
    else:
        assert set(kind) - _reachable(table, first) == set()


@pytest.mark.parametrize(("table", "kind", "first", "ends", "late"), TABLES)
def test_an_end_can_be_reached_from_everywhere(
    table: Table, kind: Any, first: StrEnum, ends: Any, late: Any
) -> None:
    for status in kind:
        assert _reachable(table, status) & set(ends), f"{status} is a trap"


@pytest.mark.parametrize(("table", "kind", "first", "ends", "late"), TABLES)
def test_only_the_meant_edges_leave_an_end(
    table: Table, kind: Any, first: StrEnum, ends: Any, late: Any
) -> None:
    assert {pair for pair in table if pair[0] in ends} == late
    assert all(table[pair].to in ends for pair in late)


@pytest.mark.parametrize(("table", "kind", "first", "ends", "late"), TABLES)
def test_every_edge_says_what_it_means(table: Table, kind: Any, first: StrEnum, ends: Any, late: Any) -> None:
    for (status, event), edge in table.items():
        assert edge.to in kind
        assert edge.to != status, f"{event} changes nothing"
        assert edge.says.endswith("."), f"{status} {event}"


def test_infrastructure_alone_never_fails_a_job() -> None:
    for event in ("lose", "released", "requeue", "suspect"):
        assert {edge.to for (_, name), edge in JOB.items() if name == event} & {JobStatus.FAILED} == set()


def test_whatever_a_job_does_a_success_of_any_attempt_completes_it() -> None:
    assert {status for status in JobStatus if allows(status, "succeed")} == set(JobStatus) - TERMINAL


def test_a_job_that_is_not_over_can_always_be_cancelled_unless_it_is_being() -> None:
    assert {status for status in JobStatus if allows(status, "cancel")} == set(JobStatus) - TERMINAL - {
        JobStatus.CANCELLING
    }


STATUSES: list[Any] = [*JobStatus, *PlacementStatus, *LeaseStatus, *SiteStatus]


@given(st.sampled_from(STATUSES), st.sampled_from([*EVENTS, "no such event"]))
def test_a_pair_advances_exactly_when_it_is_allowed(status: Any, event: str) -> None:
    if allows(status, event):
        assert type(advance(status, event)) is type(status)
    else:
        with pytest.raises(BadTransition, match=event):
            advance(status, event)


@given(st.lists(st.sampled_from(sorted({event for _, event in JOB})), max_size=30))
def test_no_sequence_of_events_brings_a_job_back_from_its_end(events: list[str]) -> None:
    status = JobStatus.PENDING
    for event in events:
        ended = status in TERMINAL
        if allows(status, event):
            assert not ended
            status = advance(status, event)
