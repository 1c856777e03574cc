"""A plain agent at the end of a pipe in memory, and a dispatcher for it to talk to."""

import asyncio
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from federator.control.record.records import Spec
from federator.hub import Hub
from federator.model.capacity import Market
from federator.model.jobs import Checkpoint, Job, JobSpec, JobStatus
from federator.model.placements import DesiredEntry, Order, Placement, PlacementStatus
from federator.model.sites import Member, Site, SiteKind, SiteReport
from federator.wire import link
from federator.wire.jobfile import encode_spec, spec_hash
from tests.support.dispatch import World, make_world
from tests.support.waiting import PATIENCE_S

SPEC = JobSpec(name="train", run="true", checkpoint=Checkpoint(signal="USR1", grace_s=7.0))


class MemoryPipe:
    """Both ends of a connection. `stuck`: the other side takes nothing."""

    def __init__(self) -> None:
        self.up: asyncio.Queue[str | None] = asyncio.Queue()
        self.down: asyncio.Queue[str | None] = asyncio.Queue()
        self.stuck = False

    async def receive(self) -> str | None:
        return await self.up.get()

    async def send(self, text: str) -> None:
        if self.stuck:
            await asyncio.Event().wait()
        self.down.put_nowait(text)

    async def close(self) -> None:
        self.down.put_nowait(None)
        self.up.put_nowait(None)


@dataclass
class Agent:
    """Speaks the protocol by hand; keeps what it was told as an agent would."""

    hub: Hub
    member: str
    key: Ed25519PrivateKey
    boot_id: str = "boot-1"
    instance: str = ""
    host: str = ""
    runtime: str = "local"
    pipe: MemoryPipe = field(default_factory=MemoryPipe)
    held: dict[str, DesiredEntry] = field(default_factory=dict)
    welcome: link.Welcome | None = None
    served: asyncio.Task[None] | None = None

    def dial(self) -> None:
        """Connect."""
        self.served = asyncio.create_task(self.hub.serve(self.pipe))

    def say(self, message: link.Up) -> None:
        """Send."""
        self.pipe.up.put_nowait(link.encode(message).decode())

    async def hear(self) -> link.Down | None:
        """The next message; None when the connection is over."""
        text = await asyncio.wait_for(self.pipe.down.get(), PATIENCE_S)
        return None if text is None else link.decode_down(text)

    async def open(self) -> link.Down | None:
        """The handshake; returns its last answer."""
        self.dial()
        self.say(
            link.Hello(
                link.PROTOCOL, self.member, self.boot_id, "test", self.runtime, self.instance, self.host
            )
        )
        challenge = await self.hear()
        if not isinstance(challenge, link.Challenge):
            return challenge
        self.say(link.Proof(self.key.sign(link.challenge_bytes(challenge, self.member)).hex()))
        answer = await self.hear()
        if isinstance(answer, link.Welcome):
            self.welcome = answer
        return answer

    async def told(self, *, acknowledge: bool = True) -> link.Desired:
        """The next desired set, taken in and acknowledged."""
        message = await self.hear()
        assert isinstance(message, link.Desired), message
        if message.whole:
            self.held.clear()
        self.held.update({entry.placement: entry for entry in message.entries})
        for placement in message.forget:
            self.held.pop(placement, None)
        if acknowledge:
            self.acknowledge(message)
        return message

    def acknowledge(self, message: link.Desired) -> None:
        """Say what is held after that message."""
        self.say(link.DesiredAck(message.generation, link.desired_digest(self.held.values())))

    async def silent(self) -> bool:
        """Whether nothing is being said, once the loop has had every chance."""
        for _ in range(50):
            await asyncio.sleep(0)
        return self.pipe.down.empty()


async def a_world(*members: str) -> tuple[World, dict[str, Agent]]:
    """A dispatcher that leads, with one site of these members, none of them connected."""
    world = await make_world()
    await world.put(Site(name="north", kind=SiteKind.ONPREM), Spec(spec_hash(SPEC), encode_spec(SPEC)))
    agents = {}
    for member in members:
        key = Ed25519PrivateKey.generate()
        public_key = key.public_key().public_bytes_raw().hex()
        await world.put(Member(id=member, site="north", public_key=public_key))
        agents[member] = Agent(world.core.hub, member, key)
    world.core.hub.start(term=3)
    return world, agents


def placement(placement_id: str, *members: str, **fields: object) -> Placement:
    """A placement with a rank at each of these members."""
    given: dict[str, object] = {
        "id": placement_id,
        "job": f"job-of-{placement_id}",
        "epoch": 1,
        "site": "north",
        "pool": "main",
        "members": members,
        "market": Market.OWNED,
        "status": PlacementStatus.ASSIGNED,
        "order": Order.RUN,
        "spec_hash": spec_hash(SPEC),
        "nodes": len(members),
    }
    return Placement(**{**given, **fields})  # type: ignore[arg-type]


def job_of(row: Placement, **fields: object) -> Job:
    """The job of that placement."""
    given: dict[str, object] = {
        "id": row.job,
        "name": "train",
        "owner": "ada",
        "queue": "default",
        "status": JobStatus.PLACED,
        "spec_hash": row.spec_hash,
        "submitted_at": 1.0,
        "placement": row.id,
        "epoch": row.epoch,
    }
    return Job(**{**given, **fields})  # type: ignore[arg-type]


def report(*counted: str, at: float = 1.0) -> link.Report:
    return link.Report(SiteReport(taken_at=at, pools=(), counted=counted))


async def seated(agent: Agent, *counted: str) -> None:
    """It has its session, its desired set, and has reported."""
    assert isinstance(await agent.open(), link.Welcome)
    await agent.told()
    agent.say(report(*counted))
    await agent.silent()
