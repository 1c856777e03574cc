"""Agents of many hosts are exchanged a few at a time: the first alone, and no more once one has failed."""

from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from federator.cli.exit_codes import CONFLICT, NOT_FOUND, USAGE
from federator.wire.http import MemberRow, SiteRow
from tests.support.fake_dispatcher import FakeDispatcher
from tests.unit.cli.conftest import Command

OLD, NEW = "0.1.0", "0.2.0"
STORES = ("store-1", "store-2", "store-3", "store-4")


@pytest.fixture
def done(fake: FakeDispatcher, tmp_path: Path) -> Path:
    """Where the command notes each host that it upgrades. The dispatcher sees those in the new version."""
    done = tmp_path / "done"
    done.touch()

    def host(name: str, status: str = "READY", lease: str = "") -> SiteRow:
        version = NEW if name in done.read_text().split() else OLD
        member = MemberRow(name=name, status=status, version=version, lease=lease)
        return SiteRow(name=name, kind="edge", status=status, hosts=(member,))

    async def sites(_request: web.Request) -> web.Response:
        rows = [
            *map(host, STORES),
            host("basel"),
            host("store-9", "UNREACHABLE"),
            host("store-x", lease="le-1"),
        ]
        return web.Response(body=msgspec.json.encode(rows), content_type="application/json")

    fake.handle("GET /v1/sites", sites)
    return done


def test_all_that_are_meant_and_connected_and_none_twice(federator: Command, done: Path) -> None:
    words = ("site", "upgrade", NEW, "--site", "store-*", "--at-once", "2", "--", "sh", "-c")
    ran = federator(*words, f"echo {{host}} >>{done}")
    assert ran.code == 0, ran.err
    assert sorted(done.read_text().split()) == list(STORES)
    assert done.read_text().split()[0] == "store-1"
    assert "store-9 is UNREACHABLE: left out" in ran.out
    assert "4 hosts upgraded to 0.2.0" in ran.out
    again = federator(*words, f"echo {{host}} >>{done}")
    assert "4 had it already" in again.out
    assert len(done.read_text().split()) == len(STORES)


def test_it_stops_where_one_fails_and_goes_on_with_the_rest_when_run_again(
    federator: Command, done: Path
) -> None:
    words = ("site", "upgrade", NEW, "--site", "store-*", "--at-once", "1", "--", "sh", "-c")
    ran = federator(
        *words, f"test {{host}} != store-2 || {{ echo no room; exit 3; }}; echo {{host}} >>{done}"
    )
    assert ran.code == CONFLICT
    assert done.read_text().split() == ["store-1"]
    assert "store-2: exit code 3: no room" in ran.out
    assert "1 of 4 are done" in ran.err
    assert federator(*words, f"echo {{host}} >>{done}").code == 0
    assert sorted(done.read_text().split()) == list(STORES)


def test_a_host_that_does_not_come_back_in_that_version_has_failed(federator: Command, done: Path) -> None:
    ran = federator("site", "upgrade", NEW, "--within", "10ms", "--site", "store-1")
    assert ran.code == CONFLICT
    assert "store-1: is not connected in version 0.2.0 after 0.01 s: it is READY, in version 0.1.0" in ran.out
    assert federator("site", "upgrade", OLD, "--site", "store-1").code == 0, "nobody to wait for"
    assert done.read_text() == ""


def test_a_command_that_fails_without_a_word_is_told_by_its_exit_code(federator: Command, done: Path) -> None:
    ran = federator("site", "upgrade", NEW, "--site", "store-1", "--", "false")
    assert "store-1: exit code 1\n" in ran.out
    assert done.read_text() == ""


def test_what_cannot_be_meant_is_refused(federator: Command, done: Path) -> None:
    assert federator("site", "upgrade", NEW, "--site", "depot-*").code == NOT_FOUND
    assert federator("site", "upgrade", NEW, "--at-once", "0").code == USAGE
    forgotten = federator("site", "upgrade", "--site", "store-1", "--", "sh", "-c", f"echo {{host}} >>{done}")
    assert forgotten.code == USAGE
    assert "'sh' is not a version" in forgotten.err
    assert done.read_text() == ""


@pytest.mark.parametrize("name", ["-oProxyCommand=id", "a;id", "$(id)", ""])
def test_no_dispatcher_puts_words_of_its_own_into_the_command(
    federator: Command, fake: FakeDispatcher, tmp_path: Path, name: str
) -> None:
    done = tmp_path / "done"
    hosts = tuple(MemberRow(name=each, status="READY", version=OLD) for each in ("store-1", name))
    row = SiteRow(name="store-1", kind="edge", status="READY", hosts=hosts)

    async def sites(_request: web.Request) -> web.Response:
        return web.Response(body=msgspec.json.encode([row]), content_type="application/json")

    fake.handle("GET /v1/sites", sites)
    ran = federator("site", "upgrade", NEW, "--within", "10ms", "--", "sh", "-c", f"echo {{host}} >>{done}")
    assert ran.code == USAGE
    assert "names a host" in ran.err
    assert not done.exists()
