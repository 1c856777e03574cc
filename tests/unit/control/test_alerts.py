"""Alerts: each is told once, by event, ledger, metric and courier, whatever fails in between."""

from typing import Any

import msgspec
import pytest

from federator.control.messages.alerts import Alerts
from federator.control.messages.platform_alerts import PlatformAlerts
from federator.control.reports.measurements import Measurements
from federator.kernel.errors import Unavailable
from federator.model.capacity import LeaseStatus
from federator.model.events import Alert, AlertKind, LedgerKind
from federator.model.jobs import JobStatus
from federator.model.sites import AilingGpu
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
    core, settings = world.core, AlertSettings()
    return Alerts(
        records=core.records,
        event_writer=core.turn.event_writer,
        turn=core.turn,
        settings=settings,
        chain=core.chain,
        measurements=Measurements(core.records),
        exports=core.exports,
        courier=box,
        platform=PlatformAlerts(core.records, core.inventory, settings, core.turn.observer.jobs.eligible),
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


async def test_a_site_that_stays_away_and_a_gpu_that_stays_sick_are_told_once_a_day() -> None:
    world, box = await make_world(), Box()
    site = await world.add_site("lab", nodes=1, gpus=4)
    await world.add_site("north", nodes=1, gpus=4)
    alerts = alerts_of(world, box)
    inventory = world.core.inventory
    inventory.closed("north", inventory.members["north"].session)

    async def look(later_s: float) -> None:
        world.clock.advance(later_s)
        site.report(ailing=(AilingGpu(site.pool.name, "host-3", 2, "it is lost from the bus"),))
        await alerts.look()

    await look(0.0)
    await look(590.0)
    assert not box.taken, "agents restart, and GPUs are busy for a moment"
    await look(20.0)
    await look(20.0)
    kinds = {alert.kind: alert for alert in box.taken}
    assert sorted(kinds) == [AlertKind.SITE, AlertKind.GPU]
    assert len(box.taken) == 2
    assert kinds[AlertKind.SITE].text == "site north: not heard for 10m10s"
    assert kinds[AlertKind.GPU].text.startswith("GPU 2 of host-3 at lab")
    assert kinds[AlertKind.GPU].text.endswith("takes no new work: it is lost from the bus")
    await look(86_400.0)
    assert len(box.taken) == 4


async def test_a_queue_in_which_nothing_moves_is_told_and_one_that_only_follows_is_not() -> None:
    world, box = await make_world(), Box()
    await world.add_site("lab", nodes=1, gpus=4)
    await world.policies(
        "".join(
            f"---\napiVersion: federator/v1\nkind: Queue\nmetadata: {{name: {name}}}\nspec: {{}}\n"
            for name in ("a", "b", "c")
        )
    )
    runs = await world.submit(queue="a", name="runs", resources={"gpus": 4})
    await world.submit(queue="a", name="next", resources={"gpus": 4})
    first = await world.submit(queue="b", name="big", resources={"gpus": 8})
    await world.submit(queue="c", name="after", after=["runs"])
    alerts = alerts_of(world, box)
    await world.turn()
    assert world.job(runs).status is JobStatus.RUNNING
    await alerts.look()
    world.clock.advance(4 * 3600.0 + 1)
    await world.core.turn.once()
    await alerts.look()
    (alert,) = (each for each in box.taken if each.kind is AlertKind.QUEUE)
    assert (alert.queue, alert.job) == ("b", "")
    assert alert.text == (
        f"queue b: nothing of it runs, and 1 job waits, for up to 4h1s; federator explain {first}"
    )
