"""Events as they happen: in order, from where a client left off, to the end."""

import asyncio
from itertools import combinations

import pytest

from federator.api import live
from federator.api.rates import RATES
from tests.integration.api.rig import Rig, lines_of
from tests.support.waiting import PATIENCE_S


async def test_a_jobs_events_come_live_and_the_stream_ends_with_the_job(rig: Rig) -> None:
    job = await rig.submit()
    async with rig.open("GET", f"/v1/jobs/{job}/events") as response:
        assert response.headers["Content-Type"].startswith("text/event-stream")
        assert [event["kind"] for event in await lines_of(response, 1)] == ["submit"]
        await rig.ask("POST", "/v1/jobs/actions", json={"verb": "hold", "jobs": [job]})
        assert [event["kind"] for event in await lines_of(response, 1)] == ["hold"]
        await rig.ask("DELETE", f"/v1/jobs/{job}")
        assert [event["kind"] for event in await lines_of(response, 1)] == ["cancel"]
        rest = await asyncio.wait_for(response.content.read(), PATIENCE_S)
        assert b"data:" not in rest


async def test_a_start_is_told_with_its_reason_as_a_value_and_in_words(rig: Rig) -> None:
    await rig.world.add_site("north")
    job = await rig.submit()
    async with rig.open("GET", f"/v1/jobs/{job}/events") as live, rig.open("GET", "/v1/events") as of_all:
        await lines_of(live, 1)
        await rig.world.turn()
        (placed,) = await lines_of(live, 1)
        assert placed["reason"]["kind"] == "fits"
        assert "north" in placed["text"]
        assert await lines_of(of_all, 1) == [placed]


async def test_a_client_that_comes_back_gets_what_it_missed_and_nothing_twice(rig: Rig) -> None:
    job = await rig.submit()
    await rig.ask("POST", "/v1/jobs/actions", json={"verb": "hold", "jobs": [job]})
    async with rig.open("GET", f"/v1/jobs/{job}/events") as response:
        seen = await lines_of(response, 1)
    await rig.ask("DELETE", f"/v1/jobs/{job}")
    headers = {"Last-Event-ID": seen[0]["id"]}
    async with rig.open("GET", f"/v1/jobs/{job}/events", headers=headers) as response:
        assert [event["kind"] for event in await lines_of(response, 2)] == ["hold", "cancel"]
    listed = (await rig.ask("GET", f"/v1/jobs/{job}/events?follow=false")).json()
    assert [event["kind"] for event in listed] == ["submit", "hold", "cancel"]


async def test_all_events_or_only_ones_own(rig: Rig) -> None:
    async with rig.open("GET", "/v1/events?mine=true") as own, rig.open("GET", "/v1/events") as everyones:
        bobs = await rig.submit("bob")
        adas = await rig.submit()
        assert [event["job"] for event in await lines_of(everyones, 2)] == [bobs, adas]
        assert [event["job"] for event in await lines_of(own, 1)] == [adas]


async def test_streams_end_when_the_server_stops(rig: Rig) -> None:
    job = await rig.submit()
    async with (
        rig.open("GET", "/v1/events") as events,
        rig.open("GET", f"/v1/jobs/{job}/logs?follow=true") as logs,
    ):
        closing = asyncio.create_task(rig.client.server.close())
        assert b"data:" not in await asyncio.wait_for(events.content.read(), PATIENCE_S)
        assert await asyncio.wait_for(logs.content.read(), PATIENCE_S) == b""
        await asyncio.wait_for(closing, PATIENCE_S)


async def test_rows_come_once_and_then_what_changes_of_them(rig: Rig) -> None:
    await rig.world.add_site("north")
    async with rig.open("GET", "/v1/changes?topics=sites,jobs") as response:
        (first,) = await lines_of(response, 1)
        assert first["reset"]
        assert first["rows"]["sites"]["north"]["status"] == "READY"
        await rig.ask("POST", "/v1/sites/north/drain", "root", json={"why": "cleaning"})
        (change,) = await lines_of(response, 1)
        assert not change["reset"]
        patch = change["rows"]["sites"]["north"]
        assert (patch["status"], patch["draining"]) == ("DRAINING", True)
        assert "labels" not in patch, "what is as it was is not sent again"
        await rig.submit("ada")
        (change,) = await lines_of(response, 1)
        assert "jobs" in change["rows"]


async def test_who_comes_back_is_sent_what_is_new(rig: Rig) -> None:
    await rig.world.add_site("north")
    rows = rig.client.app[live.LIVE]
    async with rig.open("GET", "/v1/changes?topics=sites") as response:
        await lines_of(response, 1)
    seen, looks = f"{rows.token}-{rows.number}", rows.looks
    await rig.ask("POST", "/v1/sites/north/drain", "root", json={})
    assert rows.looks == looks, "nobody follows: nothing is made"
    async with rig.open("GET", f"/v1/changes?topics=sites&after={seen}") as response:
        (change,) = await lines_of(response, 1)
        assert not change["reset"]
        assert change["rows"]["sites"]["north"]["draining"]
    for unknown in ("0-1", f"{rows.token}-999999", "nonsense"):
        async with rig.open("GET", f"/v1/changes?topics=sites&after={unknown}") as response:
            (change,) = await lines_of(response, 1)
            assert change["reset"]


async def test_one_person_follows_only_so_often(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "EACH", 1)
    async with rig.open("GET", "/v1/changes?topics=queues") as response:
        await lines_of(response, 1)
        refused = await rig.ask("GET", "/v1/changes?topics=queues")
        assert refused.status == 429
        assert "close" in refused.json()["remedy"]
        async with rig.open("GET", "/v1/changes?topics=queues", "bob") as other:
            (change,) = await lines_of(other, 1)
            assert "yours" not in next(iter(change["rows"]["queues"].values()), {})
    unknown = await rig.ask("GET", "/v1/changes?topics=sites,moons")
    assert (unknown.status, unknown.json()["field"]) == (400, "?topics")


async def test_nobody_has_more_kept_by_asking_for_ever_other_rows(rig: Rig) -> None:
    await rig.world.add_site("north")
    rows = rig.client.app[live.LIVE]
    rows.look(live.TOPICS)
    for topics in combinations(live.TOPICS, 3):
        assert rows.news(topics, "north", None)
    assert rows.told.cache_info().currsize <= live.TOLD
    rows.told.cache_clear()
    for site in ("north", "south", ""):
        assert rows.news(("queues",), site, None)
    assert rows.told.cache_info().currsize == 1, "a site means something among sites only"
    refused = await rig.ask("GET", "/v1/changes?topics=sites&site=nort")
    assert (refused.status, refused.json()["field"]) == (400, "?site")
    assert "north" in refused.json()["remedy"]


async def test_following_costs_as_much_as_another_look_that_is_worked_out(rig: Rig) -> None:
    rates = rig.client.app[RATES]
    async with rig.open("GET", "/v1/changes?topics=queues") as response:
        await lines_of(response, 1)
        assert rates.left["ada"][0] < rates.limits.person_burst
