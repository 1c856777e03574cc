"""Those who mean harm, and those who are merely broken: refused at the door, nothing changed, everybody else served."""

import asyncio
import contextlib
import gzip
import io
import tarfile

import msgspec
import pytest

from federator.api.routes import ROUTES
from federator.api.table import Gate, Route
from federator.control.record.leadership import LEADER_KEY
from federator.model.identity import Role
from federator.model.rights import MAY_EXEC
from federator.ports import Put, Transaction
from federator.settings import ConnectionSettings, LimitSettings
from federator.wire import link
from federator.wire.http import TokenRequest
from tests.integration.api.rig import PEOPLE, ROOT, Answer, HttpAgent, Rig, archive
from tests.integration.api.test_agents import placed
from tests.support.waiting import PATIENCE_S, until

ROLES = {name: Role(request.role) for name, request in PEOPLE.items()} | {"root": Role.ADMIN}
STRANGERS = ("nobody", "nonsense", "not-ascii", "expired", "revoked", "ticket", "join")
"""Credentials that open no door of people's."""
CALLERS = (*ROLES, *STRANGERS)


def name_of(route: Route) -> str:
    return f"{route.method} {route.path}"


def let_in(route: Route, who: str) -> bool:
    """Whether the table says that the gate opens; the job that is asked about is ada's, the site is sam's."""
    if route.gate in (Gate.OPEN, Gate.AGENT):
        return True
    if route.gate is Gate.SESSION:
        return who == "ticket"
    if who in STRANGERS:
        return False
    role = ROLES[who]
    if route.gate is Gate.JOB:
        others = role in (Role.PLATFORM, Role.ADMIN) and route.allows != MAY_EXEC
        return who == "ada" or others
    return not route.roles or role is Role.ADMIN or role in route.roles


class Doors:
    """A dispatcher with one of every kind of credential, a job of ada's and a site of sam's."""

    def __init__(self, rig: Rig, agent: HttpAgent, job: str) -> None:
        self.rig = rig
        self.agent = agent
        self.job = job
        self.secrets: dict[str, str] = {}

    async def ask(self, route: Route, who: str) -> Answer:
        """The route, with a body that no handler accepts: what the gate lets in goes no further than its handler's first check."""
        values = {"{tunnel}": "none", "{hash}": "0" * 64, "{rank}": "0", "{placement}": "plc-none", "{job}": "job-none", "{id}": self.job, "{name}": "north", "{member}": "nobody"}  # fmt: skip
        path = route.path
        for part, value in values.items():
            path = path.replace(part, value)
        if route.path == "/v1/tokens/{name}":
            path = "/v1/tokens/nobody-of-that-name"
        headers = {} if who == "nobody" else {"Authorization": f"Bearer {self.secrets[who]}"}
        query = {"follow": "false"} if path.endswith("/events") and "/jobs/" in path else None
        return await self.rig.ask(route.method, path, None, headers=headers, params=query, data=b"\x00")


@pytest.fixture
async def doors(rig: Rig) -> Doors:
    agent = await rig.agent("north")
    assert agent.welcome is not None
    doors = Doors(rig, agent, await rig.submit("ada"))
    admission = rig.world.core.admission
    short = TokenRequest(name="short", role="admin", expires_in="1h")
    join = TokenRequest(site="north", kind="onprem")
    doors.secrets = {
        **rig.secrets,
        "nonsense": "fed_" + "x" * 43,
        "not-ascii": "fed_\xe9\u20ac",
        "expired": (await admission.create_token(ROOT, short)).secret,
        "revoked": (await admission.create_token(ROOT, TokenRequest(name="out", role="admin"))).secret,
        "ticket": agent.welcome.ticket,
        "join": (await admission.create_token(ROOT, join)).secret,
    }
    await admission.revoke(ROOT, "out")
    rig.world.clock.advance(3601)
    return doors


# ------------------------------------------------------------------------------------------------------------- who may

ASKED_OTHERWISE = {
    ("GET", "/v1/events"),
    ("GET", "/v1/changes"),
    ("GET", link.PATH),
    ("POST", "/v1/session"),
    ("POST", "/v1/session/start"),
    ("DELETE", "/v1/session"),
}
"""Streams, which do not end, and a browser's session, which opens to the console's own page only: see `test_browser_session`."""


@pytest.mark.parametrize(
    "route",
    [route for route in ROUTES if (route.method, route.path) not in ASKED_OTHERWISE],
    ids=name_of,
)  # fmt: skip
async def test_the_gate_opens_to_whom_the_table_names_and_to_nobody_else(doors: Doors, route: Route) -> None:
    for who in CALLERS:
        revision = doors.rig.world.core.records.revision
        answer = await doors.ask(route, who)
        inside = answer.status not in (401, 403)
        if route.gate is Gate.AGENT:
            assert answer.status in (400, 401, 415), who
            continue
        assert inside is let_in(route, who), f"{who}: {answer.status}"
        assert answer.status < 500, f"{who}: {answer.data!r}"
        if not inside:
            assert route.method == "HEAD" or answer.problem["detail"]
            assert answer.status == (403 if who in ROLES and route.gate is not Gate.SESSION else 401), who
            assert doors.rig.world.core.records.revision == revision, f"{who} changed something"


async def test_every_kind_of_gate_and_caller_is_in_the_matrix() -> None:
    assert {route.gate for route in ROUTES} == set(Gate)
    assert set(ROLES.values()) == set(Role)


async def test_a_ticket_dies_with_its_session(doors: Doors) -> None:
    log = "/agent/v1/logs/plc-none/0?offset=0"
    assert (await doors.agent.ask("PUT", log, data=b"x")).status == 404
    assert doors.agent.socket is not None
    await doors.agent.socket.close()

    async def refused() -> bool:
        return (await doors.agent.ask("PUT", log, data=b"x")).status == 401

    await until(refused, "the ticket to end with its session")


async def test_a_token_is_taken_from_its_header_alone(rig: Rig) -> None:
    """In an address it would be in everybody's logs."""
    assert (await rig.ask("GET", f"/v1/queues?token={rig.secrets['root']}", None)).status == 401
    assert (await rig.ask("GET", "/v1/queues", None, cookies={"token": rig.secrets["root"]})).status == 401


# -------------------------------------------------------------------------------------------------------- what is sent


@pytest.mark.parametrize(
    "data",
    [b"[" * 100_000, b'{"a":' * 100_000, b"[" * 3000 + b"]" * 3000, b"\xff\xfe", b'{"run": "\xff"}', b"\x00", b"1" * 10_000, b'"' + b"\\" * 9999],
    ids=["open lists", "open objects", "deep", "no text", "no UTF-8", "nul", "a long number", "escapes"],
)  # fmt: skip
async def test_bytes_that_only_look_like_json(rig: Rig, data: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    for path in ("/v1/jobs", "/v1/preview", "/v1/policies/validate"):
        answer = await rig.ask("POST", path, data=data, headers=headers)
        assert answer.status == 400, answer.data
        assert answer.problem["field"] == "$"
    lines = await rig.ask("POST", "/v1/jobs", data=data, headers={"Content-Type": "application/x-ndjson"})
    assert msgspec.json.decode(lines.data)["problem"]["status"] == 400
    assert rig.world.core.records.jobs == {}


async def test_lines_that_are_broken_are_answered_by_number_and_the_good_ones_among_them_accepted(
    rig: Rig,
) -> None:
    lines = [
        b'{"run":"true","name":"one"}',
        b'{"run":"true","name":',
        b"",
        b'{"run":"\xff"}',
        b"[" * 50_000,
        b'{"run":"true","name":"two"}',
        b'{"run":"true","nodes":-1}',
        b'{"run":"true","name":"three"}{"run":"true"}',
        b'{"run":"true","name":"four"}\r',
    ]
    answer = await rig.ask(
        "POST", "/v1/jobs", data=b"\n".join(lines), headers={"Content-Type": "application/x-ndjson"}
    )
    results = [msgspec.json.decode(line) for line in answer.data.splitlines()]
    assert [result["line"] for result in results] == [1, 2, 4, 5, 6, 7, 8, 9]
    assert [result["line"] for result in results if result["submitted"]] == [1, 6, 9]
    assert all(result["problem"]["status"] == 400 for result in results if not result["submitted"])
    assert {job.name for job in rig.world.core.records.jobs.values()} == {"one", "two", "four"}


@pytest.mark.parametrize("header", ["Last-Event-ID", "Idempotency-Key"])
async def test_headers_of_nonsense(rig: Rig, header: str) -> None:
    job = await rig.submit()
    for value in ("\xff", "a b", "x" * 500, "../.."):
        events = await rig.ask("GET", f"/v1/jobs/{job}/events?follow=false", headers={header: value})
        again = await rig.ask("POST", "/v1/jobs", json={"run": "true"}, headers={header: value})
        refused = events if header == "Last-Event-ID" else again
        assert refused.status == 400
        assert refused.problem["field"] == header


@pytest.mark.parametrize("after", ["%C3%BC", "%F3%B4%8A%84", "x" * 200, "a%00b", ""])
async def test_pages_from_nowhere(rig: Rig, after: str) -> None:
    for path in ("/v1/ledger", "/v1/jobs"):
        assert (await rig.ask("GET", f"{path}?after={after}", "root")).status == 400


# ------------------------------------------------------------------------------------------------ slow, and half-hearted


async def raw(rig: Rig, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection on which only this was said."""
    assert rig.client.port is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", rig.client.port)
    writer.write(data)
    await writer.drain()
    return reader, writer


def post(rig: Rig, length: int, kind: str = "application/json") -> bytes:
    """The head of a submission of so many bytes."""
    return (
        f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {rig.secrets['ada']}\r\n"
        f"Content-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


async def test_hundreds_who_never_finish_their_request_keep_nobody_waiting(rig: Rig) -> None:
    halves = [await raw(rig, b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\nX-Slow: ") for _ in range(150)]
    halves += [await raw(rig, post(rig, 1000) + b'{"run":') for _ in range(150)]
    async with asyncio.timeout(PATIENCE_S):
        for _ in range(20):
            assert (await rig.ask("GET", "/v1/queues")).status == 200
            await rig.submit()
    for _, writer in halves:
        writer.close()
    assert len(rig.world.core.records.jobs) == 20


@pytest.mark.parametrize("kind", ["application/json", "application/x-ndjson"])
async def test_a_body_that_does_not_come_is_not_waited_for_for_ever(rig: Rig, kind: str) -> None:
    settings = rig.world.core.settings
    rig.world.core.settings = msgspec.structs.replace(settings, connections=ConnectionSettings(body_s=0.1))
    reader, writer = await raw(rig, post(rig, 1000, kind) + b'{"run":')
    answer = b""
    async with asyncio.timeout(PATIENCE_S):
        while b'"status":408' not in answer:
            part = await reader.read(4096)
            assert part, answer
            answer += part
    writer.close()
    assert rig.world.core.records.jobs == {}


async def test_a_client_that_hangs_up_half_way_submits_nothing(rig: Rig) -> None:
    _, writer = await raw(rig, post(rig, 1000) + b'{"run":"true"}')
    writer.close()
    await writer.wait_closed()
    assert (await rig.ask("GET", "/v1/queues")).status == 200
    assert rig.world.core.records.jobs == {}


# ------------------------------------------------------------------------------------------------------- agents' side


async def test_a_message_over_the_limit_ends_that_session_alone(rig: Rig) -> None:
    honest, liar = await rig.agent("south"), await rig.agent("north")
    first = await honest.hear()
    assert isinstance(first, link.Desired)
    await honest.say(link.DesiredAck(first.generation, first.digest))
    assert liar.socket is not None
    with contextlib.suppress(ConnectionError):  # cut off before all of it is sent
        await liar.socket.send_str('{"type":"report","x":"' + "x" * link.MAX_MESSAGE_BYTES + '"}')
    await until(lambda: not rig.world.core.inventory.members["north"].session, "the liar's end")
    row = await placed(rig, "south")
    told = await honest.hear()
    assert isinstance(told, link.Desired)
    assert [entry.placement for entry in told.entries] == [row.id]


@pytest.mark.parametrize("protocol", [0, 2, -1, 10**9])
async def test_another_protocol_is_told_which_one_is_spoken_here(rig: Rig, protocol: int) -> None:
    agent = HttpAgent(rig)
    secret = (
        await rig.world.core.admission.create_token(ROOT, TokenRequest(site="north", kind="onprem"))
    ).secret
    await agent.join(secret)
    agent.socket = await rig.client.ws_connect(link.PATH)
    await agent.say(link.Hello(protocol, "north", "boot", "9.9", "local"))
    refusal = await agent.hear()
    assert isinstance(refusal, link.Refusal)
    assert refusal.code == "protocol"
    assert refusal.detail == f"this dispatcher speaks protocol {link.PROTOCOL}, not {protocol}"
    assert refusal.retry_after_s is None


def a_tar(*members: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(bytes(member.size)))
    return buffer.getvalue()


@pytest.mark.parametrize(
    "damaged",
    [b"\x1f\x8b", b"\x1f\x8bgarbage", archive(a="x" * 5000)[:-30], gzip.compress(b"not a tar" * 200)],
    ids=["two bytes", "garbage", "cut short", "no tar"],
)
async def test_outputs_that_an_agent_sent_damaged_are_told_of_and_are_no_fault_of_ours(
    rig: Rig, damaged: bytes
) -> None:
    north, south = await rig.agent("north"), await rig.agent("south")
    row = await placed(rig, "north", "south", outputs=["**"])
    await north.ask("PUT", f"/agent/v1/outputs/{row.id}", data=archive(a="1"))
    await south.ask("PUT", f"/agent/v1/outputs/{row.id}", data=damaged)
    answer = await rig.ask("GET", f"/v1/jobs/{row.job}/outputs")
    assert answer.status == 404
    assert "south" in answer.problem["detail"]


@pytest.mark.parametrize("name", ["../escape", "/etc/passwd", "a/../../escape", "..\\up"])
async def test_outputs_that_lead_elsewhere_are_left_out_when_they_are_put_together(
    rig: Rig, name: str
) -> None:
    north, south = await rig.agent("north"), await rig.agent("south")
    row = await placed(rig, "north", "south", outputs=["**"])
    link_out = tarfile.TarInfo("link")
    link_out.type, link_out.linkname = tarfile.SYMTYPE, "/etc"
    await north.ask("PUT", f"/agent/v1/outputs/{row.id}", data=archive(good="1"))
    await south.ask("PUT", f"/agent/v1/outputs/{row.id}", data=a_tar(tarfile.TarInfo(name), link_out))
    answer = await rig.ask("GET", f"/v1/jobs/{row.job}/outputs")
    with tarfile.open(fileobj=io.BytesIO(answer.data), mode="r:gz") as tar:
        assert tar.getnames() == ["good"]


@pytest.mark.parametrize(
    "path",
    ["/agent/v1/logs/..%2f..%2fx/0?offset=0", "/agent/v1/logs/%2e%2e/0?offset=0", "/agent/v1/logs/a%00/0?offset=0", "/agent/v1/logs/x/..?offset=0",
     "/agent/v1/logs/x/0?offset=-1", "/agent/v1/logs/x/0?offset=9999999999999999999999", "/agent/v1/outputs/..%2f..%2fx", "/v1/blobs/..%2f..%2fetc%2fpasswd"],
)  # fmt: skip
async def test_names_that_lead_elsewhere(rig: Rig, path: str) -> None:
    agent = await rig.agent()
    if path.startswith("/v1"):
        answer = await rig.ask("PUT", path, data=archive(a="b"))
    else:
        answer = await agent.ask("PUT", path, data=archive(a="b"))
    assert answer.status in (400, 404), answer.data
    assert rig.world.core.blobs.usage().blobs_bytes == 0
    assert rig.world.core.blobs.usage().logs_bytes == 0


async def test_a_log_is_cut_at_its_limit_wherever_an_agent_says_it_goes_on(rig: Rig) -> None:
    """A gap costs no room on disk, but its end would be the length that everybody reads."""
    limits = msgspec.structs.replace(LimitSettings(), log_mib=1)
    rig.world.core.settings = msgspec.structs.replace(rig.world.core.settings, limits=limits)
    agent = await rig.agent()
    row = await placed(rig, "north")
    for offset in (2**40, 2**62):
        answer = await agent.ask("PUT", f"/agent/v1/logs/{row.id}/0?offset={offset}", data=b"x")
        assert answer.status == 200
    assert rig.world.core.blobs.log_length(f"{row.id}/0") <= 2**20 + 100


async def test_a_dispatcher_that_no_longer_leads_accepts_nothing(rig: Rig) -> None:
    """Another has taken over behind its back: every write of the old one is refused by the store itself."""
    usurper = Put(LEADER_KEY, b'{"number":9,"leader":"other","since_at":0.0}')
    await rig.world.core.records.store.commit(Transaction(puts=(usurper,)))
    answer = await rig.ask("POST", "/v1/jobs", json={"run": "true"})
    assert answer.status == 503
    assert answer.problem["code"] == "not-leading"
    assert "no longer leads" in answer.problem["detail"]
    assert rig.world.core.records.jobs == {}
