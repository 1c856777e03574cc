"""Sites that are cut off: what is kept goes on and is never started elsewhere; what is to stop is gone in time, replaced later, and never runs twice."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from federator.model.jobs import JobStatus
from federator_agent.link import HEARTBEAT_S
from tests.kills.judge import overlaps
from tests.partitions.world import (
    GRACE_S,
    MARGIN_S,
    SLACK_S,
    STOP_WITHIN_S,
    World,
    boot_s,
)
from tests.support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.system

LONG_S = 600.0
"""Longer than any test."""


def _gone_in_time(world: World, site: str) -> None:
    """The first attempt outlived neither its stop_within nor ended much before it had to; the second began only after the margin."""
    first, second = world.traces(site)[:2]
    renewed_s = world.renewed_s(site)
    assert first.last_s <= renewed_s + STOP_WITHIN_S + SLACK_S, "it was not gone by stop_within"
    assert first.last_s >= renewed_s + STOP_WITHIN_S - GRACE_S - SLACK_S, "it was stopped too early"
    assert second.first_s >= renewed_s + STOP_WITHIN_S + MARGIN_S, "replaced before the margin was over"


async def _replaced(world: World, *sites: str, after_s: float = 0.0) -> None:
    limit_s = after_s + PATIENCE_S
    await until(lambda: all(len(world.traces(site)) > 1 for site in sites), "replacements", limit_s)


async def test_a_site_that_is_cut_off(tmp_path: Path) -> None:
    """Both ways, one way only, slow, and flapping, all at once."""
    async with World(tmp_path / "world") as world:
        sites = ("both", "up", "down", "slow", "flap", "kept")
        await asyncio.gather(*(world.add_site(site) for site in sites))
        for site in sites:
            keep: dict[str, Any] = {"on_disconnect": "keep"} if site == "kept" else {}
            await world.submit(site, LONG_S, **keep)
        await world.settled(*sites)
        await world.add_site("spare")

        world.proxies["both"].cut()
        world.proxies["kept"].cut()
        world.proxies["up"].cut(down=False)
        world.proxies["down"].cut(up=False)
        world.proxies["slow"].delay_s = 0.4
        flapping = asyncio.create_task(_flap(world))
        await _replaced(world, "both", "up")
        # It hears the agent of "down" and answers in vain, until that agent has given the connection up for dead.
        await _replaced(world, "down", after_s=1.5 * HEARTBEAT_S)
        flapping.cancel()
        for site in ("both", "up", "down"):
            _gone_in_time(world, site)
        await _goes_on(world, "slow", "flap", "kept")

        for proxy in world.proxies.values():
            proxy.delay_s = 0.0
            proxy.open()
        await until(lambda: _found_again(world, sites), "all sites to be found again")
        await _goes_on(world, "slow", "flap", "kept")
        for site in ("both", "up", "down"):
            assert len(world.traces(site)) == 2
        assert overlaps(world.attempts()) == []


async def _goes_on(world: World, *sites: str) -> None:
    """The first attempt at each site still lives: it writes again; and there has been no other."""
    now_s = boot_s()

    def wrote() -> bool:
        return all(trace.last_s > now_s for site in sites for trace in world.traces(site)[:1])

    await until(wrote, f"the work at {', '.join(sites)} to go on")
    assert {site: len(world.traces(site)) for site in sites} == dict.fromkeys(sites, 1)


async def _flap(world: World) -> None:
    """Cut for most of the time, but never for as long as the work may be without an answer."""
    while True:
        world.proxies["flap"].cut()
        await asyncio.sleep(1.0)
        world.proxies["flap"].open()
        await asyncio.sleep(0.7)


async def _found_again(world: World, sites: tuple[str, ...]) -> bool:
    """All sites report again, and all jobs run where they should."""
    rows = {row.name: row for row in await world.federation.admin.sites()}
    if any(rows[site].status != "READY" for site in sites):
        return False
    jobs = [await world.row(site) for site in sites]
    return all(job.status == JobStatus.RUNNING for job in jobs) and all(
        (job.site == "spare") == (site in ("both", "up", "down"))
        for site, job in zip(sites, jobs, strict=True)
    )


async def _ready(world: World, *sites: str) -> bool:
    rows = {row.name: row for row in await world.federation.admin.sites()}
    return all(rows[site].status == "READY" for site in sites)


async def _ended(world: World, site: str) -> str:
    """How the first attempt of the job that was started there came to its end, by the job's own history."""
    kinds = [event.kind for event in await world.federation.admin.history(world.jobs[site])]
    return next(kind for kind in kinds[kinds.index("running") :] if kind in ("requeue", "lose"))


async def test_work_ends_in_time_although_its_agent_is_dead_or_stopped(tmp_path: Path) -> None:
    async with World(tmp_path / "world") as world:
        sites = ("dead", "frozen", "stubborn")
        await asyncio.gather(*(world.add_site(site) for site in sites))
        for site in sites:
            await world.submit(site, LONG_S, stubborn=site == "stubborn")
        await world.settled(*sites)
        await world.add_site("spare")

        agents = world.federation.processes.started
        agents["dead"].kill()
        for site in ("frozen", "stubborn"):
            agents[site].send_signal(signal.SIGSTOP)
        await _replaced(world, *sites)
        for site in sites:
            _gone_in_time(world, site)
            first = world.traces(site)[0]
            assert first.asked_s is not None, "it was killed without having been asked to save itself"
            assert first.asked_s <= world.renewed_s(site) + STOP_WITHIN_S - GRACE_S + SLACK_S
        stubborn = world.traces("stubborn")[0]
        assert stubborn.asked_s is not None
        assert stubborn.last_s > stubborn.asked_s, "it had no grace"

        for site in ("frozen", "stubborn"):
            agents[site].send_signal(signal.SIGCONT)
        await until(lambda: _ready(world, "frozen", "stubborn"), "the agents to be heard again")
        for site in sites:
            assert len(world.traces(site)) == 2, "an agent that came back started it again"
            assert (await world.row(site)).site == "spare"
        assert overlaps(world.attempts()) == []


async def test_a_dispatcher_that_was_away_for_longer_than_stop_within(tmp_path: Path) -> None:
    """It counts from its take-over, so it waits for a site that is still cut off, and believes one that is back at once."""
    async with World(tmp_path / "world") as world:
        await asyncio.gather(world.add_site("back"), world.add_site("cut"))
        await world.submit("back", LONG_S)
        await world.submit("cut", LONG_S)
        await world.settled("back", "cut")
        await world.add_site("spare")

        world.federation.kill_dispatcher()
        world.proxies["cut"].cut()
        await until(lambda: not world.federation.processes.ranks(), "all work to end")
        for site in ("back", "cut"):
            (trace,) = world.traces(site)
            assert trace.last_s <= world.renewed_s(site) + STOP_WITHIN_S + SLACK_S
        back_s = boot_s()
        await world.federation.start_dispatcher()
        # A key that is written again ends the pause between two attempts, which may be longer than what the other site is waited for.
        (world.federation.folder / "agents" / "back" / "key").touch()
        await _replaced(world, "back", "cut")
        assert await _ended(world, "back") == "requeue", "it was not believed, but waited for"
        assert await _ended(world, "cut") == "lose"
        assert world.traces("cut")[1].first_s >= back_s + STOP_WITHIN_S + MARGIN_S
        assert overlaps(world.attempts()) == []
