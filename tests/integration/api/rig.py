"""What the API's tests do over and over: ask as somebody, look at the answer, be an agent."""

import io
import tarfile
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import ClientResponse, ClientWebSocketResponse, web
from aiohttp.test_utils import TestClient
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from federator.model.identity import Caller, Role
from federator.model.placements import Placement, PlacementReport, PlacementStatus
from federator.wire import link
from federator.wire.http import TokenRequest
from tests.support.dispatch import World
from tests.support.waiting import PATIENCE_S

ROOT = Caller("root", Role.ADMIN)
PEOPLE = {
    "ada": TokenRequest(name="ada", role="user"),
    "bob": TokenRequest(name="bob", role="user"),
    "sam": TokenRequest(name="sam", role="site-admin", site="north"),
    "pat": TokenRequest(name="pat", role="platform"),
}


@dataclass
class Answer:
    """A whole answer."""

    status: int
    headers: Any
    data: bytes

    def json(self) -> Any:
        """The body, decoded."""
        return msgspec.json.decode(self.data)

    @property
    def problem(self) -> dict[str, Any]:
        """The body as a problem; fails for anything else."""
        assert self.headers["Content-Type"].startswith("application/problem+json"), (self.status, self.data)
        problem: dict[str, Any] = self.json()
        assert problem["status"] == self.status
        return problem


@dataclass
class Rig:
    """A dispatcher, a client, and everybody's tokens."""

    world: World
    client: TestClient[web.Request, web.Application]
    secrets: dict[str, str] = field(default_factory=dict)

    async def make_tokens(self) -> None:
        """One for each of PEOPLE, and the admin's."""
        admission = self.world.core.admission
        await admission.bootstrap_admin(lambda secret: self.secrets.update(root=secret))
        for name, request in PEOPLE.items():
            self.secrets[name] = (await admission.create_token(ROOT, request)).secret

    def headers(self, who: str | None, **more: str) -> dict[str, str]:
        """Of a request by that person."""
        return more if who is None else {"Authorization": f"Bearer {self.secrets[who]}", **more}

    async def ask(self, method: str, path: str, who: str | None = "ada", **options: Any) -> Answer:
        """One request, its answer read to the end. `json` is a body, `text` one of another `kind`."""
        async with self.open(method, path, who, **options) as response:
            return Answer(response.status, response.headers, await response.read())

    def open(self, method: str, path: str, who: str | None = "ada", **options: Any) -> Any:
        """One request; the answer is read by the caller."""
        headers = self.headers(who, **options.pop("headers", {}))
        return self.client.request(method, path, headers=headers, **options)

    async def submit(self, who: str = "ada", **fields: object) -> str:
        """Submit a job over HTTP; its id."""
        answer = await self.ask("POST", "/v1/jobs", who, json={"run": "true", **fields})
        assert answer.status == 201, answer.data
        job: str = answer.json()["jobs"][0]
        return job

    async def agent(self, site: str = "north", *, knows: tuple[str, ...] = ()) -> "HttpAgent":
        """An agent that has joined the site and holds a session."""
        secret = (
            await self.world.core.admission.create_token(ROOT, TokenRequest(site=site, kind="onprem"))
        ).secret
        agent = HttpAgent(self)
        await agent.join(secret)
        await agent.connect(*knows)
        return agent


@dataclass
class HttpAgent:
    """An agent by hand, over real connections."""

    rig: Rig
    key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)
    joined: link.JoinAnswer | None = None
    welcome: link.Welcome | None = None
    socket: ClientWebSocketResponse | None = None

    @property
    def public_key(self) -> str:
        """In hex."""
        return self.key.public_key().public_bytes_raw().hex()

    async def join(self, secret: str) -> None:
        """Show the join token."""
        answer = await self.rig.ask(
            "POST",
            "/agent/v1/join",
            None,
            json={"public_key": self.public_key},
            headers={"Authorization": f"Bearer {secret}"},
        )
        assert answer.status == 200, answer.data
        self.joined = msgspec.json.decode(answer.data, type=link.JoinAnswer)

    async def connect(self, *knows: str) -> None:
        """Open the link, as an agent that knows this."""
        assert self.joined is not None
        self.socket = await self.rig.client.ws_connect("/agent/v1/link")
        member = self.joined.member
        await self.say(link.Hello(link.PROTOCOL, member, "boot", "test", "local", knows=knows))
        challenge = await self.hear()
        assert isinstance(challenge, link.Challenge)
        signature = self.key.sign(link.challenge_bytes(challenge, self.joined.member)).hex()
        await self.say(link.Proof(signature))
        welcome = await self.hear()
        assert isinstance(welcome, link.Welcome), welcome
        self.welcome = welcome

    async def say(self, message: link.Up) -> None:
        """Send."""
        assert self.socket is not None
        await self.socket.send_str(link.encode(message).decode())

    async def hear(self) -> link.Down:
        """The next message."""
        assert self.socket is not None
        return link.decode_down(await self.socket.receive_str(timeout=PATIENCE_S))

    async def report(self, placement: Placement, status: PlacementStatus, seq: int, **fields: Any) -> None:
        """Send one status, and wait for its acknowledgement."""
        report = PlacementReport(placement=placement.id, epoch=1, seq=seq, status=status, at=1.0, **fields)
        await self.say(link.Statuses((report,)))
        while await self.hear() != link.StatusAck(seq):
            pass

    async def ask(self, method: str, path: str, **options: Any) -> Answer:
        """A bulk request by the session's ticket."""
        assert self.welcome is not None
        headers = {"Authorization": f"Bearer {self.welcome.ticket}"}
        return await self.rig.ask(method, path, None, headers=headers, **options)


async def lines_of(response: ClientResponse, count: int) -> list[dict[str, Any]]:
    """The first `count` events of a stream of server-sent events."""
    found: list[dict[str, Any]] = []
    while len(found) < count:
        line = await response.content.readline()
        assert line, "the stream ended early"
        if line.startswith(b"data: "):
            found.append(msgspec.json.decode(line.removeprefix(b"data: ")))
    return found


def archive(**files: str) -> bytes:
    """A gzipped tar of these files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    return buffer.getvalue()


def names_in(data: bytes) -> list[str]:
    """The files of a gzipped tar."""
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as tar:
        return sorted(tar.getnames())
