"""What the tests of series do with one: ada's `nightly`."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from federator.kernel.quantities import parse_instant
from federator.model.events import Event, LedgerEntry
from federator.model.jobs import Job, JobStatus
from federator.model.series import Series
from tests.support.dispatch import ADA, SharedClock, World, make_world

HOUR = 3600.0
MIDNIGHT = parse_instant("2026-03-01T00:00:00Z")


async def a_world(**fields: Any) -> World:
    """Midnight, at a site with four GPUs."""
    world = await make_world(clock=SharedClock(at=MIDNIGHT), **fields)
    await world.add_site("lab")
    return world


async def again_and_again(world: World, **fields: Any) -> Series:
    """Submit ada's series `nightly`."""
    given = {"name": "nightly", "every": "6h", "estimate": "1h", "resources": {"gpus": 1}, **fields}
    answer = await world.submit_all(ADA, **given)
    assert (answer.jobs, answer.series) == ((), "nightly")
    return series(world)


def series(world: World) -> Series:
    return world.core.records.series["ada/nightly"]


def runs(world: World) -> list[Job]:
    """Its jobs, oldest first."""
    found = world.core.records.runs.get("ada/nightly", {})
    return [found[name] for name in sorted(found)]


def names(world: World) -> list[str]:
    return [job.name for job in runs(world)]


def notes(world: World) -> list[str]:
    return [note.text for note in series(world).notes]


def because(world: World) -> str:
    return world.core.series.row(series(world)).because


async def pass_time(world: World, hours: float, *, ends: bool = True) -> None:
    """Let so many hours pass, one look after each; `ends`: runs are over before the next look."""
    for _ in range(round(hours)):
        world.clock.advance(HOUR)
        await world.core.series_runs.look()
        if ends:
            await end_runs(world)


async def end_runs(world: World) -> None:
    await world.turn()
    for job in runs(world):
        if job.status is JobStatus.RUNNING:
            await world.sites["lab"].finish(job.id)


async def timeline(world: World, job_id: str) -> list[Event]:
    return await world.core.views.events(job_id, None)


async def ledger(world: World) -> AsyncIterator[LedgerEntry]:
    page = await world.core.records.store.range("ledger/", limit=100)
    for item in page.items:
        yield msgspec.json.decode(item.value, type=LedgerEntry)
