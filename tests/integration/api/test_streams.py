"""Events as they happen: in order, from where a client left off, to the end."""

import asyncio

from tests.integration.api.rig import Rig, lines_of
from tests.support.waiting import PATIENCE_S


async def test_a_jobs_events_come_live_and_the_stream_ends_with_the_job(rig: Rig) -> None:
    job = await rig.submit()
    async with rig.open("GET", f"/v1/jobs/{job}/events") as response:
        assert response.headers["Content-Type"].startswith("text/event-stream")
        assert [event["kind"] for event in await lines_of(response, 1)] == ["submit"]
        await rig.ask("POST", f"/v1/jobs/{job}/hold")
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
    await rig.ask("POST", f"/v1/jobs/{job}/hold")
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
