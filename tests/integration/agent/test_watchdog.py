"""The watchdog beside a rank: with nobody else left, cut-off work is asked, then killed, in time; and it leaves nothing of itself behind."""

import json
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from federator.kernel.clock import SystemClock
from federator_agent.local import traces
from federator_agent.local.confinement import Launch
from federator_agent.local.ranks import LocalRanks
from federator_agent.local.watchdog import Fence
from tests.support.waiting import until

WITHIN_S, GRACE_S = 34.0, 1.0
AGE_S = 30.0
"""Of the renewal that a rank starts with: four seconds are left, three of them to start in, and who counts from the start is late by half a minute."""
SLACK_S = 10.0
"""How late a loaded machine may be."""
PATH = {"PATH": os.environ["PATH"]}
STUBBORN = "trap 'date +%s.%N >asked' TERM; while :; do sleep 0.05; done"


def boot_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Rank:
    """A rank that nobody looks after: whoever started it has let go of it."""

    def __init__(self, folder: Path) -> None:
        self.directory = folder / "rank-0"
        self.work = folder / "work"
        self.renewals = folder / "renewed"
        self.work.mkdir()

    def renew(self, age_s: float = AGE_S, boot_id: str = "") -> float:
        at_boot_s = boot_s() - age_s
        new = self.renewals.with_name("new")
        new.write_text(json.dumps({"boot_id": boot_id or traces.boot_id(), "boot_s": at_boot_s}))
        new.rename(self.renewals)
        return at_boot_s

    def start(self, script: str, within_s: float = WITHIN_S, grace_s: float = GRACE_S) -> None:
        ranks = LocalRanks(SystemClock())
        fence = Fence(str(self.renewals), within_s, grace_s, "TERM")
        launch = Launch(["/bin/sh", "-c", script], PATH)
        ranks.start(self.directory, self.work, launch, lambda *_: None, fence)
        ranks.close()

    def watchdogs(self) -> list[int]:
        """Processes of the watchdog, which do not carry the rank's mark."""
        words = ["federator_agent.local.watchdog", str(self.directory)]
        found = []
        for pid in traces.process_ids():
            try:
                line = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            except OSError:
                continue
            if all(word in line for word in words):
                found.append(pid)
        return found

    async def until(self, holds: Callable[[], object]) -> float:
        """When it came true, by the boot clock."""
        await until(holds)
        return boot_s()

    async def gone(self) -> float:
        """When nothing of the rank ran any more."""
        at_s = await self.until(lambda: not traces.processes(self.directory))
        await self.until(lambda: not self.watchdogs())
        return at_s


@pytest.fixture
async def rank(tmp_path: Path) -> AsyncIterator[Rank]:
    rank = Rank(tmp_path)
    yield rank
    traces.kill_all(rank.directory, spare=None)
    await rank.gone()


async def test_it_asks_a_grace_before_the_time_and_kills_when_it_is_over(rank: Rank) -> None:
    renewed_s = rank.renew()
    rank.start(STUBBORN)
    asked_s = await rank.until((rank.work / "asked").exists)
    assert renewed_s + WITHIN_S - GRACE_S <= asked_s <= renewed_s + WITHIN_S - GRACE_S + SLACK_S
    gone_s = await rank.gone()
    assert renewed_s + WITHIN_S <= gone_s <= renewed_s + WITHIN_S + SLACK_S
    assert traces.read_exit(rank.directory) is not None, "the shim has noted the end"


async def test_a_renewal_gives_it_more_time(rank: Rank) -> None:
    rank.renew(AGE_S - 4.0)
    rank.start(STUBBORN)
    await rank.until((rank.directory / "shim").exists)
    renewed_s = rank.renew(AGE_S - 6.0)
    assert await rank.gone() >= renewed_s + WITHIN_S


async def test_a_renewal_that_comes_when_it_is_being_ended_takes_nothing_back(rank: Rank) -> None:
    renewed_s = rank.renew()
    rank.start(STUBBORN)
    await rank.until((rank.work / "asked").exists)
    rank.renew(0.0)
    assert await rank.gone() <= renewed_s + WITHIN_S + SLACK_S


async def test_what_the_agent_has_asked_already_is_not_asked_again(rank: Rank) -> None:
    renewed_s = rank.renew()
    rank.start(STUBBORN)
    await rank.until((rank.directory / "shim").exists)
    (rank.directory / "asked").touch()
    assert await rank.gone() >= renewed_s + WITHIN_S
    assert not (rank.work / "asked").exists()


@pytest.mark.parametrize("what", ["too old", "another boot", "none"])
async def test_without_a_renewal_that_counts_nothing_starts(rank: Rank, what: str) -> None:
    if what == "too old":
        rank.renew(WITHIN_S)
    elif what == "another boot":
        rank.renew(boot_id="0000")
    rank.start("touch started")
    await rank.until(lambda: traces.read_exit(rank.directory))
    assert not (rank.work / "started").exists()
    written = traces.read_exit(rank.directory)
    assert written is not None
    assert written[0] == 143


async def test_it_does_its_duty_though_the_shim_is_killed_and_finds_what_hides_in_sessions_of_its_own(
    rank: Rank,
) -> None:
    renewed_s = rank.renew()
    hide = f"setsid sleep 600 & {STUBBORN}"
    rank.start(hide)
    await rank.until(lambda: len(traces.processes(rank.directory)) >= 3)
    shim = traces.read_shim(rank.directory)
    assert shim is not None
    os.kill(shim.pid, signal.SIGKILL)
    assert renewed_s + WITHIN_S - GRACE_S <= await rank.gone() <= renewed_s + WITHIN_S + SLACK_S


async def test_it_leaves_with_the_rank(rank: Rank) -> None:
    rank.renew(0.0)
    rank.start("sleep 0.3", within_s=600.0)
    await rank.until(lambda: traces.read_exit(rank.directory))
    await rank.until(lambda: not rank.watchdogs())
