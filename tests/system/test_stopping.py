"""A dispatcher that is told to stop, or to read its settings again, while it is busy."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path

import pytest

from federator.cli.demo.federation import DemoFederation
from federator.kernel.systemd import GRACE_S
from tests.support.waiting import until

pytestmark = pytest.mark.system

FOLLOWERS = 25
"""Each of logs, of changes, and of uploads that never end."""
LEFT_S = 20.0
"""What the units and the chart leave before they kill."""


@pytest.fixture
async def federation(tmp_path: Path) -> AsyncIterator[DemoFederation]:
    made = DemoFederation(tmp_path, 1.0)
    try:
        await made.start_dispatcher()
        yield made
    finally:
        await made.end()


async def test_it_ends_in_time_with_fifty_followers_uploads_and_a_solver_that_hangs(
    federation: DemoFederation,
) -> None:
    admin, process = federation.admin, federation.processes.started["dispatcher"]
    (job,) = (await admin.submit({"run": "true", "resources": {"gpus": 1}})).jobs
    host, port = federation.server.removeprefix("http://").split(":")
    token = (federation.folder / "dispatcher" / "admin.token").read_text().strip()
    opened = []
    asks = [
        f"GET /v1/jobs/{job}/logs?follow=true",
        "GET /v1/changes",
        f"PUT /v1/blobs/{sha256().hexdigest()}",
    ]
    for number in range(3 * FOLLOWERS):
        reader, writer = await asyncio.open_connection(host, int(port))
        ask = asks[number % 3]
        writer.write(
            f"{ask} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nContent-Length: {1000 if ask.startswith('PUT') else 0}\r\n\r\n".encode()
        )
        await writer.drain()
        if ask.endswith("changes"):
            assert b"200 OK" in await reader.readline()
        opened.append((reader, writer))
    solvers = _children(process.pid)
    assert solvers
    for solver in solvers:
        os.kill(solver, signal.SIGSTOP)
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(LEFT_S):
        await until(lambda: process.poll() is not None, "the end")
    assert GRACE_S < LEFT_S
    assert process.returncode == 0, federation.processes.log_file("dispatcher").read_text()
    for _, writer in opened:
        writer.close()


async def test_it_says_which_changed_settings_want_a_restart(federation: DemoFederation) -> None:
    process = federation.processes.started["dispatcher"]
    log = federation.processes.log_file("dispatcher")
    path = federation.folder / "dispatcher.yaml"
    settings = json.loads(path.read_text())
    path.write_text(json.dumps(settings | {"log_level": 7}))
    process.send_signal(signal.SIGHUP)
    await until(lambda: "all goes on as before" in log.read_text(), "the mistake")
    path.write_text(json.dumps(settings | {"log_level": "debug"}))
    process.send_signal(signal.SIGHUP)
    await until(lambda: "$.log_level" in log.read_text(), "the changed key")
    assert "$.state_dir" not in log.read_text()


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
