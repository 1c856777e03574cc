"""Inputs by HTTP: a job names an address, and the agent fetches it from where the site's own services stand. It reaches none of them by that."""

import asyncio
import ipaddress
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.resolver import ThreadedResolver

from federator.kernel.errors import Forbidden, Invalid
from federator_agent.data import inputs, patience
from federator_agent.data.inputs import Inputs, NoRoom
from federator_agent.data.reach import Reach
from federator_agent.data.sources import ANY_PUBLIC, Sources, WebRules
from tests.support.data_rules import ANYWHERE

LOOPBACK = ("127.0.0.0/8",)
MIB = 2**20


class Server:
    """A web server on loopback that counts who asks, and what it sends."""

    def __init__(self) -> None:
        self.url, self.asked, self.sent = "", list[str](), 0
        self.sends_to, self.small = "", False

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        if request.path.startswith("/moved"):
            raise web.HTTPFound(self.sends_to)
        if request.path.startswith("/endless"):
            return await self._endless(request)
        return web.Response(body=b"the site's secret")

    async def _endless(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        if "Range" in request.headers:
            return response
        while self.sent == 0 or not self.small:
            try:
                await response.write(bytes(MIB))
            except ConnectionError:
                return response
            self.sent += MIB
        return response


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server, application = Server(), web.Application()
    application.router.add_get("/{path:.*}", server.answer)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield server
    await runner.cleanup()


async def bring(folder: Path, uri: str, rules: WebRules = ANY_PUBLIC, limit_bytes: int | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    return await Inputs(folder, Sources(ANYWHERE), limit_bytes).bring(uri, set, lambda _: None, web=rules)


async def test_the_hosts_own_servers_are_not_asked(server: Server, tmp_path: Path) -> None:
    port = server.url.rpartition(":")[2]
    for host in ("127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "127.1", "0x7f000001", "0177.0.0.1", "0"):  # fmt: skip
        with pytest.raises(Forbidden) as refused:
            await bring(tmp_path, f"http://{host}:{port}/latest/meta-data")
        assert refused.value.remedy, host
    with pytest.raises(Forbidden, match=r"fetches nothing from 127\.0\.0\.1: it is not public") as refused:
        await bring(tmp_path, f"{server.url}/x")
    assert "data_networks" in (refused.value.remedy or "")
    assert server.asked == []
    assert (await bring(tmp_path, f"{server.url}/x", WebRules(LOOPBACK))).read_bytes()


@pytest.mark.parametrize(
    "number",
    [
        "169.254.169.254", "10.0.0.1", "172.16.3.4", "192.168.1.1", "100.64.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255",
        "::1", "::", "fe80::1", "fd00:ec2::254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "ff02::1",
    ],
)  # fmt: skip
def test_numbers_that_are_not_public_are_refused_however_they_are_written(number: str) -> None:
    with pytest.raises(Forbidden, match="not public"):
        Reach().check("name.example", number)
    network = str(ipaddress.ip_network(number))
    with pytest.raises(Forbidden):
        Reach(["10.77.0.0/16"]).check("name.example", number)
    if not ("ffff" in number or number.startswith(("64:", "2002:"))):
        Reach([network]).check("name.example", number)


def test_public_numbers_are_asked() -> None:
    for number in ("93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946"):
        Reach().check("example.org", number)


async def test_a_name_that_stands_for_a_private_number_too_is_refused(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection goes to what was looked at: the name is looked up once for each request, and never again by the connection."""
    lookups = []

    async def resolve(self: ThreadedResolver, host: str, port: int = 0, family: Any = None) -> list[Any]:
        lookups.append(host)
        both = ("93.184.216.34", "127.0.0.1") if host == "both.example" else ("127.0.0.1",)
        return [
            {"hostname": host, "host": each, "port": port, "family": socket.AF_INET, "proto": 0, "flags": 0}
            for each in both
        ]

    monkeypatch.setattr(ThreadedResolver, "resolve", resolve)
    port = server.url.rpartition(":")[2]
    with pytest.raises(Forbidden, match=r"both\.example, which is 127\.0\.0\.1"):
        await bring(tmp_path, f"http://both.example:{port}/x")
    assert (server.asked, lookups) == ([], ["both.example"])
    await bring(tmp_path, f"http://one.example:{port}/x", WebRules(LOOPBACK))
    assert lookups == ["both.example", "one.example", "one.example"], "once to list, once to fetch"


async def test_a_server_sends_on_only_to_what_the_job_could_have_named(
    server: Server, tmp_path: Path
) -> None:
    for to in ("http://169.254.169.254/latest/meta-data", "http://10.0.0.1/"):
        server.sends_to = to
        with pytest.raises(Forbidden, match="not public"):
            await bring(tmp_path, f"{server.url}/moved", WebRules(LOOPBACK))
    allowed = WebRules(LOOPBACK, (f"{server.url}/moved", f"{server.url}/data"))
    server.sends_to = f"{server.url}/private/x"
    with pytest.raises(Forbidden, match="from which this site fetches no data") as refused:
        await bring(tmp_path, f"{server.url}/moved", allowed)
    assert "data_addresses" in (refused.value.remedy or "")
    server.sends_to = f"{server.url}/data/%2e%2e/private"
    with pytest.raises(Forbidden, match="fetches no data"):
        await bring(tmp_path, f"{server.url}/moved", allowed)
    server.sends_to = "file:///etc/passwd"
    with pytest.raises(Forbidden, match="not followed"):
        await bring(tmp_path, f"{server.url}/moved", WebRules(LOOPBACK))
    assert set(server.asked) == {"/moved"}
    server.sends_to = "/data/x"
    assert (await bring(tmp_path, f"{server.url}/moved", allowed)).read_bytes() == b"the site's secret"


async def test_servers_that_send_on_for_ever_are_left(server: Server, tmp_path: Path) -> None:
    server.sends_to = "/moved"
    with pytest.raises(Invalid, match="5 redirects"):
        await bring(tmp_path, f"{server.url}/moved", WebRules(LOOPBACK))
    assert len(server.asked) == 5


async def test_what_announces_no_length_ends_where_the_room_does(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "PATIENCE_S", 0.0)
    monkeypatch.setattr(inputs, "SPARE_BYTES", 0)
    limit = 4 * MIB
    with pytest.raises(NoRoom, match="does not say how long it is") as refused:
        await bring(tmp_path / "inputs", f"{server.url}/endless", WebRules(LOOPBACK), limit)
    assert "inputs_cache" in (refused.value.remedy or "")
    assert [path for path in (tmp_path / "inputs").rglob("*") if path.is_dir()] == [], "nothing of it stays"
    # What the kernel's buffers hold has been sent, and was not read.
    assert server.sent < limit + 32 * MIB


async def test_two_of_them_at_once_do_not_both_take_the_room(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "SPARE_BYTES", 0)
    (tmp_path / "inputs").mkdir()
    kept = Inputs(tmp_path / "inputs", Sources(ANYWHERE), 4 * MIB)
    tries = (
        kept.bring(f"{server.url}/endless/{number}", set, lambda _: None, web=WebRules(LOOPBACK))
        for number in range(2)
    )
    found = await asyncio.gather(*tries, return_exceptions=True)
    assert [type(each) for each in found] == [NoRoom, NoRoom]


async def test_room_is_made_for_what_announces_no_length(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache that is full of what nobody reads does not turn it away."""
    monkeypatch.setattr(inputs, "SPARE_BYTES", 0)
    old = tmp_path / "inputs" / "old"
    old.mkdir(parents=True)
    (old / "file").write_bytes(bytes(4 * MIB))
    server.small = True
    found = await bring(tmp_path / "inputs", f"{server.url}/endless", WebRules(LOOPBACK), 4 * MIB)
    assert (found.stat().st_size, old.exists()) == (MIB, False)
