"""Reservations: what is kept for a queue is free for it when its time comes, and others make room and come back."""

from datetime import UTC, datetime

from federator.control.administration.visibility import Visibility
from federator.kernel.clock import ManualClock
from federator.model.jobs import JobStatus
from federator.model.placements import Order
from federator.model.timetable import BarState, Timetable
from federator.planning.explanations.timetable import timetable
from tests.support.dispatch import ADMIN, World, make_world

MIDDAY = datetime(2026, 3, 2, 12, tzinfo=UTC).timestamp()
HOUR = 3600.0
CHECKPOINT = {"signal": "TERM", "grace": "60s"}
WHOLE = {"gpus": 4}


def reservation(who: str = "who: {queues: [demo]}, ", **fields: str) -> str:
    """From 18:00 to 22:00."""
    more = "".join(f", {name}: {value}" for name, value in fields.items())
    return (
        "apiVersion: federator/v1\nkind: Reservation\nmetadata: {name: show}\n"
        f'spec: {{where: {{sites: [lab]}}, {who}from: "2026-03-02T18:00Z", until: "2026-03-02T22:00Z"{more}}}\n'
    )


async def a_world(text: str) -> World:
    world = await make_world(clock=ManualClock(MIDDAY))
    await world.add_site("lab", gpus=4)
    queues = "".join(
        f"---\napiVersion: federator/v1\nkind: Queue\nmetadata: {{name: {name}}}\nspec: {{}}\n"
        for name in ("demo", "default")
    )
    await world.policies(text + queues)
    return world


async def test_the_plan_and_what_is_kept_say_for_whom() -> None:
    world = await a_world(reservation())
    job = await world.submit(resources=WHOLE, estimate="1h")
    await world.turn()
    drawn = drawn_of(world)
    (kept,) = [bar for bar in drawn.bars if bar.state is BarState.KEPT]
    assert (kept.start_at, kept.end_at, kept.gpus) == (MIDDAY + 6 * HOUR, MIDDAY + 10 * HOUR, 4.0)
    assert (kept.name, kept.because) == ("reserved for queue demo", "policy Reservation/show")
    assert kept.lane in {lane.key for lane in drawn.lanes}
    sight = Visibility(world.core.records, world.core.authority, by_team=False).of(ADMIN)
    assert (await world.core.views.waits.now(sight)).reserved == (), "it has not begun"
    await world.sites["lab"].finish(job)
    await go_to(world, MIDDAY + 7 * HOUR)
    (row,) = (await world.core.views.waits.now(sight)).reserved
    assert (row.site, row.name, row.gpus, row.policy) == ("lab", "queue demo", 4.0, "Reservation/show")
    assert row.until_at == MIDDAY + 10 * HOUR
    await world.submit(resources={"gpus": 3}, queue="demo", estimate="1h")
    await go_to(world, MIDDAY + 7 * HOUR + 60)
    assert [each.gpus for each in (await world.core.views.waits.now(sight)).reserved] == [1.0]
    await go_to(world, MIDDAY + 11 * HOUR)
    assert (await world.core.views.waits.now(sight)).reserved == ()
    drawn = drawn_of(world)
    assert not [bar for bar in drawn.bars if bar.state is BarState.KEPT]


async def test_what_nobody_may_use_is_kept_for_nobody() -> None:
    world = await a_world(reservation(who=""))
    await world.turn()
    bars = drawn_of(world).bars
    assert [bar.name for bar in bars] == ["reserved for nobody"]


async def go_to(world: World, at: float) -> None:
    world.clock.advance(at - world.clock.now())
    world.report()
    await world.turn()


def drawn_of(world: World) -> Timetable:
    """The newest plan, drawn."""
    assert world.core.turn.last is not None
    return timetable(*world.core.turn.last)


async def statuses(world: World, *jobs: str) -> list[JobStatus]:
    return [world.job(job).status for job in jobs]


async def test_what_is_reserved_is_free_for_its_queue_when_its_time_comes_and_others_come_back() -> None:
    world = await a_world(reservation())
    saves = await world.submit(resources=WHOLE, estimate="20h", checkpoint=CHECKPOINT)
    await world.turn()
    assert await statuses(world, saves) == [JobStatus.RUNNING]
    world.clock.advance(6 * HOUR - 80)
    await world.core.turn.once()
    assert world.placement(saves).order is Order.STOP
    assert "policy Reservation/show closes lab" in world.job(saves).because
    await world.obey()
    await go_to(world, MIDDAY + 6 * HOUR)
    demo = await world.submit(resources=WHOLE, queue="demo", estimate="1h")
    await world.turn()
    assert await statuses(world, saves, demo) == [JobStatus.PENDING, JobStatus.RUNNING]
    site = (await world.core.views.explain(world.job(saves))).sites[0]
    assert "policy Reservation/show has it closed until 22:00" in site.text
    await world.sites["lab"].finish(demo)
    await go_to(world, MIDDAY + 10 * HOUR)
    assert await statuses(world, saves) == [JobStatus.RUNNING]


async def test_what_cannot_save_itself_starts_before_only_where_it_is_done_by_then() -> None:
    world = await a_world(reservation())
    long = await world.submit(resources={"gpus": 2}, estimate="5h")
    short = await world.submit(resources={"gpus": 1}, estimate="4h")
    demo = await world.submit(resources={"gpus": 1}, estimate="5h", queue="demo")
    await world.turn()
    assert await statuses(world, long, short, demo) == [
        JobStatus.PENDING,
        JobStatus.RUNNING,
        JobStatus.RUNNING,
    ]
    await go_to(world, MIDDAY + 6 * HOUR + 60)
    assert world.placement(demo).order is not Order.STOP, "it is kept for its queue"


async def test_for_nobody_is_maintenance_and_with_finish_what_runs_goes_on() -> None:
    world = await a_world(reservation(who="", at_start="finish"))
    running = await world.submit(resources={"gpus": 2}, estimate="20h")
    await world.turn()
    await go_to(world, MIDDAY + 6 * HOUR + 60)
    demo = await world.submit(resources={"gpus": 1}, estimate="1h", queue="demo")
    await world.turn()
    assert await statuses(world, running, demo) == [JobStatus.RUNNING, JobStatus.PENDING]
    assert world.placement(running).order is not Order.STOP
