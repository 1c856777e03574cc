"""The network between agents, users and dispatchers: sessions and requests, which are late, lost, told twice, cut off, or broken.

One end of each way is a dispatcher. What one program sends is heard by the other as an event of the world, so nothing of it can be undone by the sender's
death. A session that is cut holds back what is said, as TCP does, until it is healed or until one side gives it up: the other then goes on believing in it.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from federator.kernel.errors import FederatorError, Unavailable
from tests.lab.faults.fault_profile import FaultProfile, Trouble
from tests.lab.faults.processes import FaultLoop, Process

T = TypeVar("T")
HEARTBEAT_S = (10.0, 40.0)
"""Within that time a side notices that the other does not answer."""
ANSWER_S = 30.0
"""A request that is not answered in this time has failed."""
WAY_S = (0.001, 0.05)
DELAYED_S = 20.0
IN_ORDER_S = 1e-5
"""Timers that are due at the very same time come in any order."""


class Server(Protocol):
    """A dispatcher as the network sees it."""

    name: str

    @property
    def process(self) -> Process | None:
        """Its present life."""
        ...


class Network:
    """Who reaches whom, and how long that takes."""

    def __init__(self, loop: FaultLoop, profile: FaultProfile, chance: random.Random) -> None:
        self.loop = loop
        self.profile = profile
        self.chance = chance
        self._cut: dict[tuple[str, str], int] = {}
        self._connections: list[Connection] = []

    def cut(self, sender: str, receiver: str) -> None:
        """Nothing gets through from one to the other; an empty name is everybody."""
        self._cut[sender, receiver] = self._cut.get((sender, receiver), 0) + 1
        for connection in self._connections:
            connection.listen_in_vain()

    def heal(self, sender: str, receiver: str) -> None:
        """It gets through again, as far as no other cut holds it back."""
        self._cut[sender, receiver] = max(0, self._cut.get((sender, receiver), 0) - 1)
        self._let_through()

    def heal_all(self) -> None:
        """Everything gets through."""
        self._cut.clear()
        self._let_through()

    def reaches(self, sender: str, receiver: str) -> bool:
        """Whether anything gets through from one to the other now."""
        cuts = ((sender, receiver), (sender, ""), ("", receiver))
        return not any(self._cut.get(each) for each in cuts)

    def way_s(self, *who: str) -> float:
        """How long a message takes now."""
        delay_s = self.chance.uniform(*WAY_S)
        if self.profile.strikes(self.chance, Trouble.DELAY, *who):
            delay_s += self.chance.uniform(0.0, DELAYED_S)
        return delay_s

    def lost(self, *who: str) -> bool:
        """Whether a message of these gets lost now."""
        return self.profile.strikes(self.chance, Trouble.LOSE, *who)

    def connect(self, connection: "Connection") -> None:
        """It is there from now on."""
        self._connections.append(connection)

    def drop(self, client: str) -> None:
        """All sessions of that client break, for both sides."""
        for connection in list(self._connections):
            if connection.client == client:
                connection.break_up()

    def forget(self, connection: "Connection") -> None:
        """Both sides have closed it."""
        if connection in self._connections:
            self._connections.remove(connection)

    def _let_through(self) -> None:
        for connection in list(self._connections):
            connection.let_through()

    async def ask(
        self, client: str, server: Server, doing: Callable[[], Awaitable[T]], *, within_s: float = ANSWER_S
    ) -> T:
        """A request and its answer; `doing` runs in the server's process. Raises `Unavailable` where it gets no answer, and what `doing` raises."""
        request = _Request(self, client, server, doing)
        self.loop.later(self.way_s(client, server.name), request.arrive)
        if self.profile.strikes(self.chance, Trouble.REPEAT, client, server.name):
            # Asked twice, as by a proxy that tries again: the second may come much later, and its answer is nobody's.
            self.loop.later(self.chance.uniform(0.0, DELAYED_S), request.arrive)
        try:
            async with asyncio.timeout(within_s):
                return await request.answered
        except TimeoutError:
            raise Unavailable(f"{server.name} does not answer {client}") from None


class _Request(Generic[T]):
    """One request on its way."""

    def __init__(
        self, network: Network, client: str, server: Server, doing: Callable[[], Awaitable[T]]
    ) -> None:
        self.answered: asyncio.Future[T] = network.loop.create_future()
        self._network = network
        self._client = client
        self._server = server
        self._doing = doing

    def arrive(self) -> None:
        """It is there, unless it is lost on its way or nobody listens."""
        client, name, network = self._client, self._server.name, self._network
        if not network.reaches(client, name) or network.lost(client, name):
            return
        process = self._server.process
        if process is None or not process.alive:
            error = Unavailable(f"nobody listens at {name}")
            network.loop.later(network.way_s(client), _fail, self.answered, error)
        else:
            process.spawn(self._handle(), f"request of {client}")

    async def _handle(self) -> None:
        try:
            answer = await self._doing()
        except FederatorError as error:
            self._back(_fail, error)
        else:
            self._back(_answer, answer)

    def _back(self, tell: Callable[..., None], what: object) -> None:
        client, name, network = self._client, self._server.name, self._network
        if network.reaches(name, client) and not network.lost(client, name):
            network.loop.later(network.way_s(client, name), tell, self.answered, what)


class Connection:
    """A session's two directions. Each side knows for itself whether it is still open; `hear` takes a text, or None at the end."""

    def __init__(
        self, network: Network, client: str, server: str, hear: Callable[[str | None], None]
    ) -> None:
        self.client = client
        self.server = server
        self.network = network
        self.up = _Direction(self, client, server)
        self.down = _Direction(self, server, client)
        self.down.hear = hear
        network.connect(self)

    def break_up(self) -> None:
        """Both sides notice that it is broken."""
        self.up.end()
        self.down.end()

    def listen_in_vain(self) -> None:
        """A side that hears nothing, not even heartbeats, gives up after a while."""
        for direction in (self.up, self.down):
            if not self.network.reaches(direction.sender, direction.receiver):
                direction.give_up_later()

    def let_through(self) -> None:
        """What was held back arrives, if it may."""
        self.up.let_through()
        self.down.let_through()

    def abandoned_by(self, side: str) -> None:
        """That side is gone. The other notices it soon, or by its own heartbeat if it cannot be told."""
        other = self.up if side == self.client else self.down
        mine = self.down if side == self.client else self.up
        mine.end()
        if self.network.reaches(other.sender, other.receiver):
            self.network.loop.later(self.network.way_s(), other.end)
        else:
            self.network.loop.later(self.network.chance.uniform(*HEARTBEAT_S), other.end)


class _Direction:
    """From one side to the other, in order."""

    def __init__(self, connection: Connection, sender: str, receiver: str) -> None:
        self._network = connection.network
        self._connection = connection
        self.sender = sender
        self.receiver = receiver
        self._arrives_s = 0.0
        self._held: list[str] = []
        self._waiting = False
        self._torn = False
        self.open = True
        self.hear: Callable[[str | None], None] | None = None

    def say(self, text: str) -> None:
        """Send it. As on TCP, nothing comes through after something that was lost: the session is dead, and that is noticed after a while."""
        network = self._network
        if not self.open or self._torn:
            return
        if network.lost(self.sender, self.receiver):
            self._torn = True
            network.loop.later(
                network.chance.uniform(*HEARTBEAT_S), self._connection.abandoned_by, self.receiver
            )
            return
        self._send(text)
        if network.profile.strikes(network.chance, Trouble.REPEAT, self.sender, self.receiver):
            self._send(text)

    def _send(self, text: str) -> None:
        network, now_s = self._network, self._network.loop.time()
        arrives_s = now_s + network.way_s(self.sender, self.receiver)
        self._arrives_s = max(arrives_s, self._arrives_s + IN_ORDER_S)
        network.loop.later(self._arrives_s - now_s, self._arrive, text)

    def _arrive(self, text: str) -> None:
        if not self.open:
            return
        if self._held or not self._network.reaches(self.sender, self.receiver):
            self._held.append(text)
            self.give_up_later()
            return
        if self.hear is not None:
            self.hear(text)

    def let_through(self) -> None:
        """What was held back arrives."""
        if self._held and self._network.reaches(self.sender, self.receiver):
            held, self._held = self._held, []
            for text in held:
                self._arrive(text)

    def give_up_later(self) -> None:
        """Unless it is healed soon, the receiver closes its side, and the other notices that when it can."""
        if not self._waiting:
            self._waiting = True
            self._network.loop.later(self._network.chance.uniform(*HEARTBEAT_S), self._give_up)

    def _give_up(self) -> None:
        self._waiting = False
        if self.open and not self._network.reaches(self.sender, self.receiver):
            self._connection.abandoned_by(self.receiver)

    def end(self) -> None:
        """The receiver hears nothing any more."""
        if self.open:
            self.open = False
            self._held.clear()
            if self.hear is not None:
                self.hear(None)
            if not self._connection.up.open and not self._connection.down.open:
                self._network.forget(self._connection)


def _answer(future: "asyncio.Future[T]", answer: T) -> None:
    if not future.done():
        future.set_result(answer)


def _fail(future: "asyncio.Future[T]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
