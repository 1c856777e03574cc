"""Alerts: each is told once, by event, ledger, metric and courier, whatever fails in between."""

from typing import Any

import msgspec
import pytest

from federator.control.messages.alerts import Alerts
from federator.control.reports.measurements import Measurements
from federator.kernel.errors import Unavailable
from federator.model.capacity import LeaseStatus
from federator.model.events import Alert, AlertKind, LedgerKind
from federator.settings import AlertSettings
from federator.telemetry import METRICS
from tests.support.dispatch import ADMIN, OFFER, World, make_world

POLICIES = """
apiVersion: federator/v1
kind: Queue
metadata: {name: default}
spec: {max_duration: 2h}
---
apiVersion: federator/v1
kind: BurstPolicy
metadata: {name: any-time}
spec: {when: {mode: always%s}}
---
apiVersion: federator/v1
kind: Budget
metadata: {name: lease_budget}
spec: {usd: {per_day: 100}, alerts: [25%%, 50%%, 90%%]}
"""
JOB: dict[str, Any] = {"resources": {"gpus": 8}, "estimate": "1h"}


class Box:
    """A courier that keeps what it takes, and fails when told to."""

    def __init__(self) -> None:
        self.taken: list[Alert] = []
        self.broken = False

    async def deliver(self, alert: Alert) -> None:
        """Keep it."""
        if self.broken:
            raise Unavailable("nobody there")
        self.taken.append(alert)


async def a_world(more: str = "") -> tuple[World, Alerts, Box]:
    world, box = await make_world(), Box()
    await world.policies(POLICIES % more)
    await world.core.executor.poll()
    return world, alerts_of(world, box), box


def alerts_of(world: World, box: Box) -> Alerts:
    core = world.core
    return Alerts(
        records=core.records,
        event_writer=core.turn.event_writer,
        turn=core.turn,
        settings=AlertSettings(),
        chain=core.chain,
        measurements=Measurements(core.records),
        exports=core.exports,
        courier=box,
    )


async def test_a_budget_that_crosses_a_level_is_told_once() -> None:
    world, alerts, box = await a_world()
    await alerts.look()
    assert not box.taken
    await world.submit(**JOB)
    await world.core.turn.once()
    before = METRICS.value("federator_alerts_total", kind="budget") or 0.0
    for _ in range(3):
        await alerts.look()
    (alert,) = box.taken
    assert (alert.kind, alert.policy) == (AlertKind.BUDGET, "Budget/lease_budget")
    assert alert.text.startswith(
        "Budget/lease_budget: 53% of the 100.00 USD of this day are used (0.00 spent, "
    )
    assert METRICS.value("federator_alerts_total", kind="budget") == before + 1
    assert METRICS.value(
        "federator_budget_used_ratio", policy="Budget/lease_budget", period="day", share=""
    ) == (pytest.approx(0.53, abs=0.01))
    lines = [e.what for e in await world.core.views.ledger() if e.kind is LedgerKind.ACT]
    assert [line for line in lines if line.startswith("alert: ")] == [f"alert: {alert.text}"]


async def test_the_next_period_tells_anew() -> None:
    world, alerts, box = await a_world()
    await world.submit(**JOB)
    await world.core.turn.once()
    await alerts.look()
    world.clock.advance(86400)
    await alerts.look()
    assert len(box.taken) == 2


async def test_a_deadline_at_risk_is_on_the_jobs_timeline() -> None:
    world, alerts, box = await a_world()
    await world.core.policy_service.pause_burst(ADMIN, on=True)
    job = await world.submit(**JOB, finish_within="2h")
    await world.core.turn.once()
    await alerts.look()
    (alert,) = box.taken
    assert (alert.kind, alert.job, alert.owner) == (AlertKind.DEADLINE, job, "ada")
    events = await world.core.views.events(job, None)
    assert [event.text for event in events if event.kind == "deadline"] == [alert.text]
    await world.core.intake.cancel(ADMIN, job)
    await alerts.look()
    assert not [name for name in world.core.records.flags if name.startswith("alert/")], (
        "nothing is kept of it"
    )


async def test_a_machine_that_never_joined_is_told() -> None:
    world, alerts, box = await a_world()
    await world.submit(**JOB)
    await world.core.turn.once()
    await world.core.executor.step()
    world.clock.advance(OFFER.delay_s + 1801)
    await world.core.executor.poll()
    await world.core.executor.step()
    assert world.leases()[0].status in (LeaseStatus.FAILED, LeaseStatus.TERMINATING)
    for _ in range(3):
        await world.core.executor.step()
        await world.core.executor.poll()
    await alerts.look()
    assert AlertKind.LEASE in [alert.kind for alert in box.taken]


async def test_a_rental_that_waits_for_approval_is_told() -> None:
    world, alerts, box = await a_world(", approval_above: 10")
    job = await world.submit(**JOB)
    await world.core.turn.once()
    await alerts.look()
    (alert,) = box.taken
    assert alert.kind is AlertKind.APPROVAL
    assert f"federator burst approve {job}" in alert.text


async def test_what_was_written_down_and_not_told_is_told_by_the_next_leader() -> None:
    world, alerts, _ = await a_world()
    await world.submit(**JOB)
    await world.core.turn.once()
    (name, alert), *_ = alerts.raised()
    await alerts.write({name: alert})  # and then it dies
    again = await make_world(store=world.core.records.store, clock=world.clock)  # type: ignore[arg-type]
    box = Box()
    successor = alerts_of(again, box)
    await successor.look()
    await successor.look()
    assert [each.text for each in box.taken] == [alert.text]
    assert len([e for e in await again.core.views.ledger() if e.what.startswith("alert: ")]) == 1


async def test_what_nobody_takes_is_given_up_and_counted() -> None:
    world, alerts, box = await a_world()
    box.broken = True
    await world.submit(**JOB)
    await world.core.turn.once()
    before = METRICS.value("federator_alerts_undelivered_total") or 0.0
    await alerts.look()
    box.broken = False
    await alerts.look()
    assert not box.taken
    assert METRICS.value("federator_alerts_undelivered_total") == before + 1


def test_an_alert_is_a_small_object_for_programs() -> None:
    alert = Alert(kind=AlertKind.LEASE, text="it never joined", at=1.0, lease="lease-1")
    assert msgspec.json.decode(msgspec.json.encode(alert)) == {
        "kind": "lease", "text": "it never joined", "at": 1.0, "lease": "lease-1",
    }  # fmt: skip
