"""What the link is used for: counted by kind, and kept to what the site file allows, on a clock of the test's own."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest
from aiohttp import ClientSession

from federator.hub.report_validation import MAX_TEXT
from federator.kernel.clock import ManualClock
from federator.kernel.errors import Invalid
from federator.model.sites import LinkState, LinkTraffic
from federator.wire.link import ZIPPED_LOGS
from federator_agent.bulk import Bulk
from federator_agent.config import parse
from federator_agent.link import Link
from federator_agent.link_limits import LinkLimits
from federator_agent.link_use import (
    BULK,
    HOUR_S,
    LOGS,
    RENEW_WITHIN_S,
    REPORTS,
    SMALL_BYTES,
    HoursOver,
    LinkUse,
)

LARGE_BYTES = SMALL_BYTES + 1


def limits(text: str) -> LinkLimits:
    """As a site file has it under `link`."""
    return parse(f"site: a\nlink: {text}", "site.yaml", {"PATH": "/bin"}).link


class Sleepable(ManualClock):
    """A clock by which one can sleep."""

    def real_delay_s(self, delay_s: float) -> float:
        """As long as it says."""
        return delay_s


@pytest.fixture
def passing(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """A clock that sleeping moves."""
    clock = Sleepable(boot_s=0.0)

    async def sleep(seconds: float) -> None:
        clock.advance(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return clock


def test_bytes_of_the_last_hour_are_told_by_kind() -> None:
    clock = ManualClock()
    use = LinkUse(clock)
    use.count(REPORTS, sent=100, received=10)
    clock.advance(HOUR_S / 2)
    use.count(REPORTS, sent=1)
    use.count(BULK, received=7)
    assert use.state().hour == (LinkTraffic(REPORTS, 101, 10), LinkTraffic(BULK, 0, 7))
    clock.advance(HOUR_S / 2 + 1)
    assert use.state().hour == (LinkTraffic(REPORTS, 1, 0), LinkTraffic(BULK, 0, 7))
    clock.advance(HOUR_S)
    assert use.state().hour == ()


def test_reports_come_seldomer_when_their_half_is_used_but_never_too_late_for_promises() -> None:
    clock = ManualClock()
    use = LinkUse(clock, limits("{budget: 2MiB}"))
    clock.advance(HOUR_S)
    assert (use.pace_s(5.0), use.may_tell) == (5.0, True)
    use.count(REPORTS, sent=2**20 // 12)  # of five minutes
    use.count(REPORTS, sent=2**20 // 450)
    assert 7.0 < use.pace_s(5.0) < 9.0
    assert not use.may_tell
    use.count(REPORTS, sent=2**20)
    assert use.pace_s(5.0) == RENEW_WITHIN_S
    assert use.pace_s(60.0) == 60.0, "as the site file says"
    clock.advance(HOUR_S + 10)
    assert (use.pace_s(5.0), use.may_tell) == (5.0, True)


async def test_an_hour_of_logs_is_half_of_the_budget_and_a_burst(passing: ManualClock) -> None:
    use = LinkUse(passing, limits("{budget: 2MiB}"))
    assert use.log_bytes == 2**18
    sent = 0
    while passing.boot() < HOUR_S:
        await use.until_logs_may_move()
        use.count(LOGS, sent=2**14)
        sent += 2**14
    assert 2**20 <= sent <= 2**20 + 2**20 // 12 + 2**14
    assert use.may_tell, "reports have the other half"


async def test_bulk_keeps_to_its_rate(passing: ManualClock) -> None:
    use = LinkUse(passing, limits("{bulk: {rate: 64KiB}}"))
    for _ in range(160):
        await use.bulk_moved(LARGE_BYTES, sent=2**14)
    assert passing.boot() == pytest.approx(40.0, abs=1.5)


async def test_what_is_large_moves_in_its_hours_and_what_is_small_at_any(passing: ManualClock) -> None:
    use = LinkUse(passing, limits('{bulk: {hours: "01:00-05:00"}}'))
    began = passing.now()
    await use.until_bulk_may_move(SMALL_BYTES)
    assert passing.now() == began
    await use.until_bulk_may_move(LARGE_BYTES)
    assert 60 <= passing.now() // 60 % 1440 < 61
    await use.bulk_moved(LARGE_BYTES, sent=1)
    passing.advance(4 * HOUR_S)
    with pytest.raises(HoursOver):
        await use.bulk_moved(LARGE_BYTES, sent=1)
    await use.bulk_moved(SMALL_BYTES, sent=1)


def test_the_limits_of_bulk_are_told_to_who_understands_them() -> None:
    written = '{bulk: {rate: 64KiB, hours: ["1:00-5:00", "sat-sun 00:00-24:00", "wed 23:00-1:30"], timezone: Europe/Oslo}}'
    use = LinkUse(ManualClock(), limits(written))
    state = use.state()
    assert state.rate == 2**16
    assert state.hours == "01:00-05:00, sat-sun 00:00-24:00, wed 23:00-01:30 Europe/Oslo"
    assert use.state(limits=False) == LinkState()
    assert LinkUse(ManualClock(), limits("{}")).state().hours == ""
    many = ", ".join('"mon-fri 01:00-05:00"' for _ in range(100))
    assert len(LinkUse(ManualClock(), limits(f"{{bulk: {{hours: [{many}]}}}}")).state().hours) < MAX_TEXT


async def test_without_limits_nothing_waits(passing: ManualClock) -> None:
    use = LinkUse(passing)
    for kind in (REPORTS, LOGS, BULK):
        use.count(kind, sent=2**40)
    await use.until_logs_may_move()
    await use.until_bulk_may_move(2**40)
    await use.bulk_moved(2**40, sent=2**40)
    assert (use.pace_s(5.0), use.may_tell, use.log_bytes, passing.boot()) == (5.0, True, None, 0.0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{budget: 10KiB}", "$.link.budget"),
        ("{bulk: {rate: 0B}}", "$.link.bulk.rate"),
        ("{bulk: {hours: at night}}", "18:00-08:00"),
        ("{budgett: 20MiB}", "did you mean budget"),
    ],
)
def test_what_is_wrong_is_told_with_field_and_remedy(text: str, words: str) -> None:
    with pytest.raises(Invalid) as caught:
        limits(text)
    assert words in str(caught.value)


class LostAnswers:
    """A dispatcher and a session with it. Of each two requests the first is not answered; how many bytes have come, and when, is noted."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.came: list[tuple[float, int]] = []
        self.addresses = self.way = self
        self.present = ""
        self.takes: tuple[str, ...] = ()

    async def ticket(self) -> str:
        """Of the session."""
        return "ticket"

    def options(self, url: str) -> dict[str, object]:
        """None."""
        del url
        return {}

    def fault(self, error: BaseException, url: str) -> str:
        """Nothing more is known of it."""
        del error, url
        return ""

    @asynccontextmanager
    async def request(
        self, method: str, url: str, *, data: bytes, headers: dict[str, str]
    ) -> AsyncIterator["LostAnswers"]:
        """Note it, and answer the second time."""
        del method, url, headers
        self.came.append((self.clock.boot(), len(data)))
        lost = len(self.came) % 2
        others = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(others.set_result, None)
        await others
        if lost:
            raise ConnectionResetError
        yield self

    status = 200

    async def read(self) -> bytes:
        """What a log's length is told in."""
        return b'{"length": 0}'


@pytest.mark.parametrize("takes", [(), (ZIPPED_LOGS,)])
@pytest.mark.parametrize("at_once", [1, 10])
async def test_what_gets_no_answer_counts_and_logs_go_one_by_one(
    passing: ManualClock, at_once: int, takes: tuple[str, ...]
) -> None:
    there = LostAnswers(passing)
    there.takes, data = takes, random.Random(0).randbytes(2**16)
    bulk = Bulk(cast("Link", there), cast("ClientSession", there), LinkUse(passing, limits("{budget: 2MiB}")))
    passing.advance(HOUR_S)
    sending = [bulk.put_log("p", rank, 0, data) for rank in range(at_once) for _ in range(20 // at_once)]
    for number in range(0, len(sending), at_once):
        await asyncio.gather(*sending[number : number + at_once])
    assert len(there.came) > 30
    for begins, within_s in [(at, within_s) for at, _ in there.came for within_s in (60.0, HOUR_S)]:
        sent = sum(count for at, count in there.came if begins <= at < begins + within_s)
        assert sent <= 2**20 * within_s / HOUR_S + 2**20 / 12 + 2 * 2**16
