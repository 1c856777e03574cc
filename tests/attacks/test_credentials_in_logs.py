"""No log line holds a credential, whatever is sent; and sign-ins that fail are counted without filling the disk."""

import asyncio
import io
import logging
from collections.abc import Iterator

import pytest

from federator.telemetry import METRICS, configure_logging
from federator.wire import link
from tests.attacks.test_connections import port
from tests.integration.api.rig import Rig
from tests.support.waiting import PATIENCE_S

SECRET = "fed_Secret0fSomebody"
MALFORMED = (
    f"GET /v1/jobs HTTP/1.1\r\nAuthorization Bearer {SECRET}\r\n\r\n",
    f"GET /v1/jobs HTTP/1.1\r\nAuthoriz\x00ation: Bearer {SECRET}\r\n\r\n",
    f"GET /v1/jobs HTTP/1.1\r\n Authorization: Bearer {SECRET}\r\n\r\n",
    f"GET /v1/jobs HTTP/1.1\r\nAuthorization: Bearer {SECRET}\x00\r\n\r\n",
    f"GET /v1/jobs HTTP/1.1\r\nAuthorization: Bearer {SECRET}{'x' * 10_000}\r\n\r\n",
    f"GET /v1/jobs HTTP/1.1\r\nAuthorization: Bearer {SECRET}\r\nContent-Length: -1\r\n\r\n",
    f"POST /v1/jobs HTTP/1.1\r\nAuthorization: Bearer {SECRET}\r\nTransfer-Encoding: chunked\r\n\r\n{SECRET}\r\n",
    f"POST /v1/jobs HTTP/1.1\r\nAuthorization: Bearer {SECRET}\r\nTransfer-Encoding: gzip, chunked\r\nContent-Length: 3\r\n\r\n",
    f"Bearer {SECRET}\r\n\r\n",
    f"GET http://[{SECRET} HTTP/1.1\r\n\r\n",
    f"GET /{SECRET} HTTP/9.{SECRET}\r\n\r\n",
    f"CONNECT {SECRET}@x:y HTTP/1.1\r\nHost: {SECRET}@:\r\n\r\n",
    f"GET /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SECRET}\r\n\r\n",
    f"GET /v1/jobs?token={SECRET} HTTP/1.1\r\nHost: x\r\n\r\n",
)


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """All that is logged, in full."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    stream = io.StringIO()
    configure_logging(level="debug", stream=stream)
    yield stream
    root.handlers[:] = before
    root.setLevel(level)


async def test_requests_that_cannot_be_read_leave_no_secret_in_any_log(rig: Rig, lines: io.StringIO) -> None:
    async with port(rig) as served:
        for text in MALFORMED:
            reader = await served.say(text.encode("latin-1"))
            answer = await asyncio.wait_for(reader.readline(), PATIENCE_S)
            assert b" 4" in answer, (text, answer)
        logged = lines.getvalue()
        assert SECRET not in logged
        assert "Traceback" not in logged
        assert logged.count("requests could not be read") == 1, "once a minute for an address"


async def test_failed_sign_ins_are_counted_and_told_once_a_minute(rig: Rig, lines: io.StringIO) -> None:
    def failed(by: str) -> float:
        return METRICS.value("federator_sign_ins_failed_total", by=by) or 0.0

    before = {by: failed(by) for by in ("person", "nobody", "join", "agent")}
    async with port(rig) as served:
        for _ in range(50):
            await ask(served.say, "GET /v1/jobs", SECRET)
        await ask(served.say, "GET /v1/jobs", "")
        await ask(served.say, "POST /agent/v1/join", SECRET)
        await ask(served.say, "GET /agent/v1/specs/" + "0" * 64, SECRET)
        agent = await rig.agent()
        assert agent.joined is not None
        async with rig.client.ws_connect("/agent/v1/link") as socket:
            hello = link.Hello(link.PROTOCOL, agent.joined.member, "boot", "test", "local")
            await socket.send_str(link.encode(hello).decode())
            await socket.receive_str()
            await socket.send_str(link.encode(link.Proof("00" * 64)).decode())
            await socket.receive_str(timeout=PATIENCE_S)
            await socket.receive(timeout=PATIENCE_S)
        assert {by: failed(by) - count for by, count in before.items()} == {
            "person": 50, "nobody": 1, "join": 1, "agent": 2,
        }  # fmt: skip
        logged = lines.getvalue()
        assert logged.count("sign-ins failed") == 1
        assert SECRET not in logged
        served.connections.refused.look(served.connections.now() + 61.0)
        assert "count=52" in lines.getvalue()


async def ask(say: object, line: str, token: str) -> None:
    head = f"{line} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n"
    head += f"Authorization: Bearer {token}\r\n\r\n" if token else "\r\n"
    assert callable(say)
    reader = await say(head.encode())
    assert b" 401 " in await asyncio.wait_for(reader.readline(), PATIENCE_S)
