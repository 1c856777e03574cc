"""Whoever sends very much is served in short steps: others have their turn on the event loop in between."""

import asyncio
import json
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from federator.api import jobs
from federator.api.connections import Connections
from federator.api.listener import serving
from federator.control.record.records import Records
from federator.control.submission.acceptance import Acceptance
from federator.ports import Transaction
from federator.settings import ConnectionSettings
from federator.wire.jobfile import read_job
from tests.integration.api.rig import Rig
from tests.support.waiting import PATIENCE_S

LINES = 1000
MOST_LINES = 40
"""In one turn: two steps of 20, for one chunk is read and accepted while the one before it may still be."""
MOST_COMMITS = 6
"""Two groups of each of two chunks, a turn, and what is written beside."""
FLOOD = 200
MOST_CONNECTIONS = 4


class Turns:
    """Counts what is done in each turn of the loop."""

    def __init__(self) -> None:
        self.number = 0
        self.done: Counter[int] = Counter()

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same, counted."""

        def call(*args: Any, **options: Any) -> Any:
            self.done[self.number] += 1
            return function(*args, **options)

        return call

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """As long as this lasts, each turn of the loop has a number."""
        loop, going = asyncio.get_running_loop(), True

        def tick() -> None:
            self.number += 1
            if going:
                loop.call_soon(tick)

        tick()
        try:
            yield
        finally:
            going = False


async def test_thousands_of_lines_are_read_and_accepted_a_few_in_each_turn(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, accepted = Turns(), Turns()
    monkeypatch.setattr(jobs, "read_job", read.counted(read_job))
    monkeypatch.setattr(Acceptance, "accept", accepted.counted(Acceptance.accept))
    # Each has a spec of its own: else the first few race for writing it, and are accepted again.
    body = b"".join(json.dumps({"run": f"echo {number}"}).encode() + b"\n" for number in range(LINES))
    headers = {"Content-Type": "application/x-ndjson"}
    async with read.watched(), accepted.watched():
        answer = await rig.ask("POST", "/v1/jobs", data=body, headers=headers)
    assert len(answer.data.splitlines()) == len(rig.world.core.records.jobs) == LINES
    assert read.done.total() == accepted.done.total() == LINES
    assert max(read.done.values()) <= MOST_LINES
    assert max(accepted.done.values()) <= MOST_LINES


async def test_few_groups_of_one_request_are_on_their_way_to_the_store(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit of somebody else waits for those before it."""
    body = b"".join(json.dumps({"run": f"echo {number}"}).encode() + b"\n" for number in range(LINES))
    on_the_way: list[int] = [0]

    async def commit(records: Records, transaction: Transaction) -> int:
        on_the_way.append(on_the_way[-1] + 1)
        try:
            for _ in range(100):
                await asyncio.sleep(0)
            return await committed(records, transaction)
        finally:
            on_the_way.append(on_the_way[-1] - 1)

    committed = Records.commit
    monkeypatch.setattr(Records, "commit", commit)
    answer = await rig.ask("POST", "/v1/jobs", data=body, headers={"Content-Type": "application/x-ndjson"})
    assert len(answer.data.splitlines()) == len(rig.world.core.records.jobs) == LINES
    assert 2 <= max(on_the_way) <= MOST_COMMITS


async def test_a_flood_of_connections_is_taken_a_few_in_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns()
    monkeypatch.setattr(Connections, "arrived", turns.counted(Connections.arrived))
    listener = socket.create_server(("127.0.0.1", 0), backlog=FLOOD)
    connections = Connections(ConnectionSettings(), 4 * FLOOD, asyncio.get_running_loop().time)
    # All of them are in the port's queue before the first is taken.
    flood = [socket.create_connection(listener.getsockname()) for _ in range(FLOOD)]
    try:
        async with (
            asyncio.timeout(PATIENCE_S),
            serving(web.Application(), listener, connections),
            turns.watched(),
        ):
            while turns.done.total() < FLOOD:
                await asyncio.sleep(0)
    finally:
        for each in flood:
            each.close()
        listener.close()
    assert max(turns.done.values()) <= MOST_CONNECTIONS
