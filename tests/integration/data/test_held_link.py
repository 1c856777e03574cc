"""What goes straight to buckets and web servers keeps to the hours and the rate of the site's link, counts, and goes on where it was cut."""

import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiohttp import web

from federator.kernel.clock import ManualClock
from federator_agent.config import parse
from federator_agent.data.checkpoints import Checkpoints
from federator_agent.data.inputs import Inputs
from federator_agent.data.sources import Sources, WebRules
from federator_agent.link_use import BULK, LinkUse
from tests.support.data_rules import ANYWHERE

HERE = WebRules(networks=("127.0.0.0/8",))
DAY_S = 86400.0
LARGE = random.Random(1).randbytes(2_000_000)
SMALL = LARGE[:200_000]
ONE_WINDOW = 120 * 2**13
"""What the hours below let move of a night, at their rate."""
HELD = '{bulk: {rate: 8KiB, hours: "01:00-01:02"}}'
SPARE = 2**19
"""For chunks that are under way when the hours end, or that a store has sent and nobody has read."""


class Leaping(ManualClock):
    """A clock that leaps over every pause."""

    def real_delay_s(self, delay_s: float) -> float:
        """None at all."""
        self.advance(delay_s)
        return 0.0


class Site:
    """What one agent fetches and pushes, with a link that its site file limits."""

    def __init__(self, folder: Path, link: str) -> None:
        self.clock, self.said = Leaping(boot_s=0.0), ""
        self.link = LinkUse(self.clock, parse(f"site: a\nlink: {link}", "site.yaml", {"PATH": "/bin"}).link)
        self.sources = Sources(ANYWHERE, self.link)
        (folder / "inputs").mkdir(parents=True)
        self.inputs = Inputs(folder / "inputs", self.sources, None)
        self.moved: list[tuple[float, int]] = []
        """When how many bytes of bulk went over the link."""
        count = self.link.count

        def noted(kind: str, *, sent: int = 0, received: int = 0) -> None:
            assert kind == BULK
            self.moved.append((self.clock.now(), sent + received))
            count(kind, sent=sent, received=received)

        self.link.count = noted  # type: ignore[method-assign]

    async def bring(self, uri: str) -> Path:
        return await self.inputs.bring(uri, set, self.note, web=HERE)

    def note(self, text: str) -> None:
        """For whoever reads the job's log."""
        self.said += text

    @property
    def bytes_by_night(self) -> list[int]:
        """Of what was large, night by night."""
        nights = dict[int, int]()
        for at, count in self.moved:
            nights[int(at // DAY_S)] = nights.get(int(at // DAY_S), 0) + count
        return [nights[night] for night in sorted(nights)]


class Server(NamedTuple):
    """A web server with a large file and a small one, and what was asked of it."""

    url: str
    ranges: list[str]


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    ranges = list[str]()

    async def answer(request: web.Request) -> web.Response:
        content = LARGE if request.path == "/large" else SMALL
        asked = request.headers.get("Range", "")
        ranges.append(asked)
        tag = {"ETag": '"1"'}
        if not asked or request.headers.get("If-Range", '"1"') != '"1"':
            return web.Response(body=content, headers=tag)
        first, _, last = asked.removeprefix("bytes=").partition("-")
        part = content[int(first) : int(last) + 1 if last else None]
        where = f"bytes {first}-{int(first) + len(part) - 1}/{len(content)}"
        return web.Response(status=206, body=part, headers={**tag, "Content-Range": where})

    application = web.Application()
    application.router.add_get("/{name}", answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    yield Server(f"http://{host}:{port}", ranges)
    await runner.cleanup()


@pytest.fixture(params=["http", "s3"])
def place(request: pytest.FixtureRequest, server: Server) -> str:
    """The address of a folder with both files."""
    if request.param == "http":
        return server.url
    s3 = request.getfixturevalue("s3")
    s3.put_object(Bucket="team", Key="sets/large", Body=LARGE)
    s3.put_object(Bucket="team", Key="sets/small", Body=SMALL)
    return "s3://team/sets"


async def test_an_input_comes_in_its_hours_at_its_rate_and_goes_on_the_next_night(
    place: str, tmp_path: Path
) -> None:
    site = Site(tmp_path, HELD)
    assert (await site.bring(f"{place}/large")).read_bytes() == LARGE
    assert len(site.bytes_by_night) >= len(LARGE) // ONE_WINDOW
    assert max(site.bytes_by_night) <= ONE_WINDOW + SPARE
    assert len(LARGE) <= sum(site.bytes_by_night) <= len(LARGE) + SPARE, "what had come did not come again"
    times = {at % DAY_S // 60 for at, count in site.moved if count > 2**10}
    assert times <= {60, 61, 62}, "minutes of the day"
    assert "waits for the hours" in site.said


async def test_what_is_small_comes_at_once_and_counts(place: str, tmp_path: Path) -> None:
    site = Site(tmp_path, HELD)
    assert (await site.bring(f"{place}/small")).read_bytes() == SMALL
    assert site.clock.now() - Leaping().now() < 60
    (bulk,) = site.link.state().hour
    assert bulk.kind == BULK
    assert len(SMALL) <= bulk.received < len(SMALL) + 2000


async def test_what_lies_at_the_site_is_neither_held_nor_counted(place: str, tmp_path: Path) -> None:
    site = Site(tmp_path, HELD.replace("{bulk: {", f'{{bulk: {{on_site: ["{place}"], '))
    assert (await site.bring(f"{place}/large")).read_bytes() == LARGE
    assert site.moved == []


async def test_without_limits_it_is_counted_all_the_same(place: str, tmp_path: Path) -> None:
    site = Site(tmp_path, "{}")
    assert (await site.bring(f"{place}/large")).read_bytes() == LARGE
    assert len(LARGE) <= sum(site.bytes_by_night) < len(LARGE) + 2000


async def test_a_file_that_has_changed_begins_anew(server: Server, tmp_path: Path) -> None:
    (item,) = await Sources(ANYWHERE).of(f"{server.url}/small", HERE).items(f"{server.url}/small")
    old = item.__class__(item.name, item.size, '"0"')
    (tmp_path / "part").write_bytes(b"old")
    source = Sources(ANYWHERE).of(f"{server.url}/small", HERE)
    await source.fetch(f"{server.url}/small", old, tmp_path / "part", lambda _: None)
    assert (tmp_path / "part").read_bytes() == SMALL
    assert server.ranges[-1] == "bytes=3-"


async def test_a_checkpoint_is_pushed_and_brought_in_its_hours(s3: Any, tmp_path: Path) -> None:
    del s3
    site = Site(tmp_path / "a", HELD)
    saved, folder = tmp_path / "saved", tmp_path / "checkpoints"
    for each in (saved, folder):
        each.mkdir()
    (folder / "step").write_bytes(LARGE)
    here = Checkpoints(saved, site.sources)
    kept = here.of("s3://team/kept", "job", 0)
    await here.until_it_may_move(kept, "job", folder, site.note)
    assert site.clock.now() % DAY_S // 60 == 60
    assert await here.push(kept, "job", 1, folder, last=True)
    assert len(site.bytes_by_night) >= len(LARGE) // ONE_WINDOW
    assert max(site.bytes_by_night) <= ONE_WINDOW + SPARE
    assert len(LARGE) <= sum(site.bytes_by_night) <= len(LARGE) + SPARE
    night = site.clock.now() // DAY_S
    await here.until_it_may_move(kept, "job", folder, site.note)
    assert site.clock.now() // DAY_S == night, "nothing has changed: there is nothing to wait for"

    other = Site(tmp_path / "b", HELD)
    (tmp_path / "b" / "saved").mkdir()
    there = Checkpoints(tmp_path / "b" / "saved", other.sources)
    kept = there.of("s3://team/kept", "job", 0)
    await there.bring(kept, "job", 2, tmp_path / "b" / "checkpoints", other.note)
    assert (tmp_path / "b" / "checkpoints" / "step").read_bytes() == LARGE
    assert len(other.bytes_by_night) >= len(LARGE) // ONE_WINDOW
    assert sum(other.bytes_by_night) <= len(LARGE) + SPARE
