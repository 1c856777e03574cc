"""Calendars: places open and close by the hour, what runs is told in time to save itself, and prices move work."""

from datetime import UTC, datetime

import pytest

from federator.control.turns.closings import LOOK_S, next_stop_at
from federator.kernel.clock import ManualClock
from federator.model.jobs import JobStatus
from federator.model.placements import Order
from federator_agent import config
from tests.support.dispatch import World, make_world

MIDDAY = datetime(2026, 3, 2, 12, tzinfo=UTC).timestamp()
"""A Monday."""
HOUR = 3600.0
GRACE_S = 60.0
CHECKPOINT = {"signal": "TERM", "grace": f"{GRACE_S:.0f}s"}


def calendar(spec: str) -> str:
    return f"apiVersion: federator/v1\nkind: Calendar\nmetadata: {{name: nights}}\nspec: {spec}\n"


async def a_world(spec: str) -> World:
    world = await make_world(clock=ManualClock(MIDDAY))
    await world.add_site("lab", gpus=4)
    await world.policies(calendar(spec))
    return world


async def go_to(world: World, at: float) -> None:
    world.clock.advance(at - world.clock.now())
    world.report()
    await world.turn()


async def why(world: World, job: str) -> str:
    return " ".join(site.text for site in (await world.core.views.explain(world.job(job))).sites)


async def test_a_lab_that_is_lent_at_night_takes_work_at_night() -> None:
    world = await a_world('{where: {sites: [lab]}, open: [{from: "22:00", to: "06:00"}]}')
    job = await world.submit(resources={"gpus": 4}, estimate="10h")
    await world.turn()
    assert world.job(job).status is JobStatus.PENDING
    assert "policy Calendar/nights has it closed until 22:00" in await why(world, job)
    assert (await world.core.views.explain(world.job(job))).policies == ("Calendar/nights",)
    await go_to(world, MIDDAY + 10 * HOUR)
    assert world.job(job).status is JobStatus.RUNNING
    await go_to(world, MIDDAY + 19 * HOUR)
    assert world.job(job).status is JobStatus.RUNNING, "it goes on to its end"


async def test_where_work_is_stopped_at_the_close_it_saves_itself_in_time_and_goes_on_the_next_night() -> (
    None
):
    world = await a_world('{where: {sites: [lab]}, open: [{from: "22:00", to: "06:00"}], at_close: stop}')
    closes_at = MIDDAY + 18 * HOUR
    job = await world.submit(resources={"gpus": 4}, estimate="20h", checkpoint=CHECKPOINT)
    await go_to(world, MIDDAY + 11 * HOUR)
    assert world.job(job).status is JobStatus.RUNNING
    await go_to(world, closes_at - 3 * GRACE_S)
    assert world.job(job).status is JobStatus.RUNNING
    world.clock.advance(2 * GRACE_S)
    await world.core.turn.once()
    assert world.placement(job).order is Order.STOP
    assert "policy Calendar/nights closes lab" in world.job(job).because
    await world.obey()
    await world.turn()
    assert world.job(job).status is JobStatus.PENDING, "and does not come back for the last minute"
    await go_to(world, closes_at + 17 * HOUR)
    assert world.job(job).status is JobStatus.RUNNING


async def test_what_cannot_save_itself_starts_only_where_it_is_done_before_the_close() -> None:
    world = await a_world('{where: {sites: [lab]}, closed: [{from: "18:00", to: "22:00"}], at_close: stop}')
    long = await world.submit(resources={"gpus": 2}, estimate="5h")
    short = await world.submit(resources={"gpus": 2}, estimate="4h")
    await world.turn()
    assert [world.job(job).status for job in (long, short)] == [JobStatus.PENDING, JobStatus.RUNNING]
    assert "which cannot save itself" in await why(world, long)


async def test_days_of_the_year_close_a_place() -> None:
    world = await a_world(
        "{where: {kinds: [onprem]}, closed: [{first_day: 2026-03-03, last_day: 2026-03-04}]}"
    )
    before = await world.submit(resources={"gpus": 1}, estimate="1h")
    await world.turn()
    assert world.job(before).status is JobStatus.RUNNING
    await go_to(world, MIDDAY + 24 * HOUR)
    during = await world.submit(resources={"gpus": 1}, estimate="1h")
    await world.turn()
    assert world.job(during).status is JobStatus.PENDING
    await go_to(world, MIDDAY + 60 * HOUR)
    assert world.job(during).status is JobStatus.RUNNING


@pytest.mark.parametrize(("hour", "site"), [(13.0, "old"), (20.0, "lab")])
async def test_a_price_by_the_hour_moves_work(hour: float, site: str) -> None:
    """Both would do; the first by name is taken where nothing speaks against it."""
    spec = '{where: {sites: [lab]}, prices: [{add_usd_per_gpu_hour: 3, hours: {from: "08:00", to: "18:00"}}]}'
    world = await a_world(spec)
    await world.add_site("old", gpus=4)
    await go_to(world, MIDDAY + (hour - 12) * HOUR)
    job = await world.submit(resources={"gpus": 4}, estimate="1h")
    await world.turn()
    assert world.placement(job).site == site


@pytest.mark.parametrize(("usd_per_kg_co2", "site"), [(0.0, "lab"), (1.0, "old")])
async def test_a_price_of_carbon_moves_work_to_the_cleaner_site(usd_per_kg_co2: float, site: str) -> None:
    """Both sell energy at one price, and the second emits a tenth."""
    world = await make_world()
    for name, grams in (("lab", 400), ("old", 40)):
        told = f"usd_per_kwh: 0.2, gco2_per_kwh: {grams}, gpu_watts: 700, usd_per_kg_co2: {usd_per_kg_co2}"
        its = config.parse(f"site: {name}\nelectricity: {{{told}}}", "site.yaml", {}).site
        (await world.add_site(name, gpus=4)).report(price_usd_gpu_h=its.price_at(world.clock.now()))
    job = await world.submit(resources={"gpus": 4}, estimate="1h")
    await world.core.turn.once()
    placement = world.placement(job)
    assert placement.site == site
    energy_usd = 0.7 * (0.2 + (0.04 if site == "old" else 0.4) * usd_per_kg_co2)
    assert placement.price_usd_gpu_h == pytest.approx(energy_usd)


async def test_a_close_that_nobody_looked_at_in_time_stops_work_all_the_same() -> None:
    """The closed hours are shorter than the grace, so that at no look the place is closed just when the grace would end."""
    world = await a_world('{where: {sites: [lab]}, closed: [{from: "18:00", to: "18:30"}], at_close: stop}')
    job = await world.submit(
        resources={"gpus": 4}, estimate="20h", checkpoint={"signal": "TERM", "grace": "30m"}
    )
    await world.turn()
    assert world.job(job).status is JobStatus.RUNNING
    world.clock.advance(6 * HOUR + 60)  # another leader takes over at 18:01
    await world.core.turn.once()
    assert world.placement(job).order is Order.STOP


async def test_the_next_close_wakes_a_turn_when_nothing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    world = await a_world('{where: {sites: [lab]}, closed: [{from: "18:00", to: "22:00"}], at_close: stop}')
    records, now = world.core.records, world.clock.now
    assert next_stop_at(records, now()) is None
    job = await world.submit(resources={"gpus": 4}, estimate="20h", checkpoint=CHECKPOINT)
    await world.turn()
    at = next_stop_at(records, now())
    assert at is not None
    assert at == MIDDAY + 6 * HOUR - GRACE_S - LOOK_S
    world.clock.advance(at - 1 - now())
    await world.core.turn.once()
    assert world.job(job).status is JobStatus.RUNNING
    slept: list[float] = []

    def sleep(_: ManualClock, delay_s: float) -> float:
        slept.append(delay_s)
        return 0.0

    monkeypatch.setattr(ManualClock, "real_delay_s", sleep)
    await world.core.turn.wait(None)
    assert slept == [1.0]
    world.clock.advance(1)
    await world.core.turn.once()
    assert world.placement(job).order is Order.STOP
    assert next_stop_at(records, now()) is None
