"""A job that writes without end: the disk of its site holds the beginning and the end of what it says, and so does the dispatcher."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import cast

import pytest

from federator.kernel.clock import SystemClock
from federator.wire.link import LogLength
from federator.wire.log_times import LogTime
from federator_agent import excerpts, logs
from federator_agent.bulk import Bulk
from federator_agent.link_use import LinkUse
from federator_agent.logs import LogUploads
from tests.contract.runtimes import factories_local, factories_local_sandbox, factories_local_users
from tests.contract.runtimes.world import RuntimeWorld
from tests.support.waiting import until
from tests.testbeds.required import need

MODES: dict[str, ModuleType] = {
    "local": factories_local,
    "local-users": factories_local_users,
    "local-sandbox": factories_local_sandbox,
}
MIB = 2**20
KEPT = MIB
SLACK = MIB // 2
PART = 16 * MIB
FLOOD = f"""
echo first
yes line | head -c {PART}; touch written; until [ -e on ]; do sleep 0.05; done
yes line | head -c {PART} >>/dev/stdout; echo last
"""


class Copy:
    """The dispatcher's copy of a log."""

    def __init__(self) -> None:
        self.data = b""
        self.bytes_sent = 0

    async def put_log(
        self, placement: str, rank: int, offset: int, data: bytes, times: Sequence[LogTime] = ()
    ) -> LogLength:
        self.bytes_sent += len(data)
        self.data = self.data[:offset] + data
        return LogLength(len(self.data), KEPT)


@pytest.mark.parametrize("mode", MODES)
async def test_endless_output_does_not_fill_the_disk_of_its_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    need(MODES[mode].lacking())
    monkeypatch.setattr(excerpts, "SLACK_BYTES", SLACK)
    monkeypatch.setattr(logs, "SHORTEN_EVERY_S", 0.01)
    world = RuntimeWorld(tmp_path, MODES[mode].site())
    world.begin()
    record = await world.run(world.spec(FLOOD))
    placement = tmp_path / "state/placements" / record.entry.placement
    log, copy = placement / "rank-0/log", Copy()
    uploads = LogUploads(cast(Bulk, copy), LinkUse(SystemClock()))
    uploads.follow(record.entry.placement, 0, log, fresh=True)
    loops = [asyncio.create_task(each()) for each in (uploads.run, uploads.bound)]

    def bounded() -> bool:
        return log.stat().st_blocks * 512 <= KEPT + SLACK + 4 * log.stat().st_blksize

    await until((placement / "work/written").exists, "the first part is written")
    await until(bounded, "the disk has the middle back while the job runs")
    assert log.stat().st_size > PART
    (placement / "work/on").touch()
    await world.over(record)
    assert await uploads.finish(record.entry.placement) == ""
    assert bounded()
    for loop in loops:
        loop.cancel()
    assert copy.data.startswith(b"first\nline\n")
    assert b"MiB of this log left out" in copy.data
    assert copy.data.endswith(b"last\n")
    assert b"\0" not in copy.data
    assert copy.bytes_sent <= KEPT
    await world.close()
