"""An agent's link: a session with whoever leads, opened again and again, and requests beside it with the session's ticket."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from federator.kernel.errors import FederatorError, Permanent, Transient
from federator.wire import link
from federator_agent.core import events as ev
from federator_agent.dialer import DIALLING
from tests.lab.faults.dispatchers import Dispatcher
from tests.lab.faults.greeting import greet, hello_of
from tests.lab.faults.hosts import Host
from tests.lab.faults.network import Connection
from tests.lab.faults.plan import LOCAL
from tests.lab.faults.processes import Process
from tests.lab.faults.scene import Scene

GREETING_S = 20.0
REFUSED_PAUSE_S = 300.0
OLD_TERM_PAUSE_S = 15.0
LASTED_S = 5.0
AGAIN_S = (0.5, 5.0)


class Listener(Protocol):
    """Who is told what the dispatcher says."""

    def tell(self, *events: ev.Event) -> None:
        """It happened."""
        ...

    def acceptable(self, incarnation: str, term: int) -> bool:
        """Whether this store and leader may be obeyed."""
        ...


class Link:
    """One process's."""

    def __init__(
        self,
        host: Host,
        process: Process,
        scene: Scene,
        dispatchers: Sequence[Dispatcher],
        listener: Listener,
    ) -> None:
        self._host = host
        self._network = scene.network
        self._journal = scene.journal
        self._chance = scene.chance(f"link of {process.name}")
        self._dispatchers = list(dispatchers)
        self._instance = f"life-of-{process.name}"
        self._listener = listener
        self._connection: Connection | None = None
        self._up = asyncio.Event()
        self._ticket = ""
        self._server = self._dispatchers[0]
        admits = bool(scene.plan.policies.allotments) and host.plan.runtime == LOCAL
        self._knows = (link.LOCAL_JOBS,) if admits else ()

    def say(self, message: link.Up) -> None:
        """Send it, if there is a session."""
        self.say_text(link.encode(message).decode())

    def say_text(self, text: str) -> None:
        """Send a frame, whatever it says."""
        if self._connection is not None and self._up.is_set():
            self._connection.up.say(text)

    def hang_up(self) -> None:
        """Close the session."""
        if self._connection is not None:
            self._connection.abandoned_by(self._host.member)

    async def ticket(self) -> str:
        """Of the session, once there is one."""
        await self._up.wait()
        return self._ticket

    def server(self) -> Dispatcher:
        """Whom the session is with, or was."""
        return self._server

    async def ask(self, ask: Callable[["Bulk"], object]) -> bytes:
        """A request beside the session, with its ticket; again until it is answered. Raises `Permanent`."""
        while True:
            await self._up.wait()
            assert self._connection is not None
            name = self._connection.server
            server = next(each for each in self._dispatchers if each.name == name)
            bulk = Bulk(server, self._ticket)
            try:
                return await self._network.ask(self._host.member, server, partial(bulk.answer, ask))
            except (Transient, Permanent) as error:
                if isinstance(error, Permanent) and error.code != "unauthenticated":
                    raise
            await asyncio.sleep(self._chance.uniform(*AGAIN_S))

    async def run(self) -> None:
        """Hold a session for ever."""
        failures = 0
        clock = asyncio.get_running_loop().time
        while True:
            since_s = clock()
            asked_s = await self._session(self._dispatchers[0])
            self._connection = None
            if self._up.is_set():
                self._up.clear()
                self._listener.tell(ev.LinkDown())
                if clock() - since_s > LASTED_S:
                    failures = 0
            self._dispatchers.append(self._dispatchers.pop(0))
            failures += 1
            await asyncio.sleep(DIALLING.pause_s(failures, asked_s=asked_s, draw=self._chance.uniform))

    async def _session(self, server: Dispatcher) -> float:
        """One session, until it ends; the pause that the dispatcher asks for."""
        heard: asyncio.Queue[str | None] = asyncio.Queue()
        greeted: link.Welcome | link.Refusal | None
        try:
            async with asyncio.timeout(GREETING_S):
                self._connection = await server.accept(self._host.member, heard.put_nowait)
                asked_boot_s = self._host.clock.boot()
                hello = hello_of(
                    self._host.member,
                    self._host.boot_id,
                    self._host.plan.runtime,
                    self._instance,
                    self._knows,
                )
                greeted = await greet(self._connection, heard, hello)
        except (TimeoutError, FederatorError):
            self.hang_up()
            return 0.0
        if isinstance(greeted, link.Welcome):
            greeted = self._welcomed(self._connection, greeted, asked_boot_s)
        if greeted is not None:
            self.hang_up()
            self._journal.note(self._host.member, f"is refused: {greeted.code}: {greeted.detail[:80]}")
            return REFUSED_PAUSE_S if greeted.retry_after_s is None else greeted.retry_after_s
        return await self._listen(heard)

    async def _listen(self, heard: "asyncio.Queue[str | None]") -> float:
        """What the dispatcher says, until the end; the pause that it asks for."""
        while (text := await heard.get()) is not None:
            match link.decode_down(text):
                case link.Desired() as desired:
                    self._listener.tell(ev.DesiredChanged(desired))
                case link.StatusAck(seq):
                    self._listener.tell(ev.Acknowledged(seq))
                case link.Allotments(allotments):
                    self._listener.tell(ev.Allotted(allotments))
                case link.Adopted(placements):
                    self._listener.tell(ev.Adopted(placements))
                case link.Heard(sent_boot_s):
                    self._listener.tell(ev.Renewed(sent_boot_s))
                case link.Refusal(code, detail, retry_after_s):
                    self.hang_up()
                    self._journal.note(self._host.member, f"is sent away: {code}: {detail[:80]}")
                    return REFUSED_PAUSE_S if retry_after_s is None else retry_after_s
        self.hang_up()
        return 0.0

    def _welcomed(
        self, connection: Connection, welcome: link.Welcome, asked_boot_s: float
    ) -> link.Refusal | None:
        """A session stands, unless it is with a store that was left, or with a leader of before."""
        if not self._listener.acceptable(welcome.incarnation, welcome.term):
            return link.Refusal("old-term", f"term {welcome.term} is one of before", OLD_TERM_PAUSE_S)
        self._ticket = welcome.ticket
        self._server = next(each for each in self._dispatchers if each.name == connection.server)
        self._up.set()
        self._journal.note(self._host.member, f"has a session with {connection.server}, term {welcome.term}")
        self._listener.tell(ev.LinkUp(welcome.incarnation, welcome.term, asked_boot_s, self._host.member))
        return None


class Bulk:
    """What a dispatcher answers beside the session, to whoever has its ticket."""

    def __init__(self, server: Dispatcher, ticket: str) -> None:
        self._server = server
        self._ticket = ticket

    async def answer(self, ask: Callable[["Bulk"], object]) -> bytes:
        """The answer. Raises `Unauthenticated` for a ticket that is not good any more."""
        self._server.serving().hub.session_of(self._ticket)
        answer = ask(self)
        assert isinstance(answer, bytes)
        return answer

    def take(self) -> bytes:
        """Logs and outputs are taken."""
        return b""

    def spec(self, spec_hash: str) -> bytes:
        """A spec's bytes."""
        return self._server.serving().records.spec_bytes(spec_hash)
