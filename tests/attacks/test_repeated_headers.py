"""A header that is given twice: of a proxy and a dispatcher one may go by the first, and one by the last, so neither counts."""

import asyncio

import pytest
from aiohttp import ClientSession
from multidict import CIMultiDict

from federator.api.exchange import SINGLE_HEADERS
from tests.attacks.test_connections import port
from tests.integration.api.rig import Rig
from tests.support.waiting import PATIENCE_S

ROUTES = ["GET /v1/whoami", "POST /v1/jobs", "POST /agent/v1/join", "GET /agent/v1/link", "GET /healthz"]


async def asked(rig: Rig, line: str, headers: list[tuple[str, str]]) -> tuple[int, str]:
    """The status, and what is said."""
    head = "".join(f"{name}: {value}\r\n" for name, value in headers)
    async with port(rig) as served:
        reader = await served.say(f"{line} HTTP/1.1\r\n{head}\r\n{{}}".encode())
        async with asyncio.timeout(PATIENCE_S):
            status = int((await reader.readline()).split()[1])
            rest = await reader.readuntil(b"\r\n\r\n")
            length = next(
                (int(each[15:]) for each in rest.split(b"\r\n") if each.startswith(b"Content-Length:")), 0
            )
            return status, (await reader.readexactly(length)).decode()


def usual(rig: Rig) -> list[tuple[str, str]]:
    return [
        ("Host", "x"),
        ("Authorization", f"Bearer {rig.secrets['ada']}"),
        ("Content-Type", "application/json"),
        ("Content-Length", "2"),
    ]


@pytest.mark.parametrize("line", ROUTES)
@pytest.mark.parametrize("first", ["ada", "nobody"])
async def test_two_credentials_are_none(rig: Rig, line: str, first: str) -> None:
    """The first counted silently, whatever somebody in front had looked at."""
    others = ("authorization", "Bearer never-made")
    headers = [*usual(rig), others] if first == "ada" else [others, *usual(rig)]
    status, said = await asked(rig, line, headers)
    assert status == 400
    assert "Authorization: the header is given more than once" in said or '"field":"Authorization"' in said
    assert "send it once" in said
    assert "never-made" not in said


@pytest.mark.parametrize("name", SINGLE_HEADERS)
async def test_what_there_is_one_of_is_given_once(rig: Rig, name: str) -> None:
    known = dict(usual(rig))
    value = known.get(name, "1")
    headers = [*usual(rig), (name, value), *([] if name in known else [(name, value)])]
    status, said = await asked(rig, "POST /v1/jobs", headers)
    assert status == 400
    assert "more than once" in said or "Duplicate" in said, "some of them the parser itself refuses"
    status, said = await asked(rig, "POST /v1/jobs", usual(rig))
    assert "more than once" not in said
    assert "run" in said, "once it is read"


async def test_the_last_proxy_is_believed_however_it_says_it(rig: Rig) -> None:
    """A proxy that adds a header of its own, and does not append to the one that came, let callers choose their address."""
    async with port(rig, proxies=("127.0.0.1/32",)) as served:
        headers = CIMultiDict([("X-Forwarded-For", "6.6.6.6"), ("X-Forwarded-For", "10.0.0.7")])
        headers["Authorization"] = "Bearer never-made"
        noted: list[str] = []
        served.connections.refused.note = lambda address, _now: noted.append(address)  # type: ignore[method-assign, assignment]
        async with ClientSession(served.url) as mine, mine.get("/v1/whoami", headers=headers) as answer:
            assert answer.status == 401
    assert noted == ["10.0.0.7"]
