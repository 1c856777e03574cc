"""Followers hear what is durable, in order, and one that does not read is cut off instead of buffered for."""

import pytest

from federator.api import feeds
from federator.api.feeds import Feeds
from federator.planning.wording import told
from tests.support.dispatch import ADA, make_world


async def test_a_follower_hears_its_job_only() -> None:
    world = await make_world()
    hub = Feeds(world.core.records)
    first = await world.submit()
    with hub.follow(first) as one, hub.follow() as all_of_them:
        await world.submit()
        await world.core.intake.act_on_one(ADA, "hold", first)
        assert [event.kind for event in await one.take(1)] == ["hold"]
        assert [event.kind for event in await all_of_them.take(1)] == ["submit", "hold"]


async def test_nothing_is_put_into_words_while_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    world = await make_world()
    await world.add_site("north")
    hub, job = Feeds(world.core.records), await world.submit()
    monkeypatch.setattr(told, "words", None)
    await world.turn()
    assert world.job(job).placement
    placed = next(event for event in hub.recent if event.kind == "place")
    assert placed.reason is not None
    assert not placed.text


async def test_a_follower_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "BACKLOG", 2)
    world = await make_world()
    hub = Feeds(world.core.records)
    with hub.follow() as follower:
        for _ in range(3):
            await world.submit()
        assert follower.cut_off


async def test_a_bell_rings_for_its_job_and_is_taken_down() -> None:
    world = await make_world()
    hub = Feeds(world.core.records)
    first, second = await world.submit(), await world.submit()
    with hub.listen(first) as bell:
        await world.core.intake.act_on_one(ADA, "hold", second)
        assert not bell.is_set()
        await world.core.intake.act_on_one(ADA, "hold", first)
        assert bell.is_set()
    assert hub.bells == {}


async def test_closing_lets_everyone_go() -> None:
    world = await make_world()
    hub = Feeds(world.core.records)
    with hub.follow() as follower, hub.listen("job") as bell:
        hub.close()
        assert await follower.take(60) == []
        assert bell.is_set()
    with hub.follow() as late:
        assert late.cut_off
