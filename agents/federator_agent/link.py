"""The control connection to the dispatcher, a WebSocket that is dialled from here. Beside it goes `bulk`.

A session is opened by proving the agent's key. When it breaks, the next is tried after a pause, for ever; what was not acknowledged
is said again by the core. A thousand agents may lose their dispatcher in one moment, so pauses are drawn anew from all of a growing
range, and that shrinks again only once a session has lasted.
"""

import asyncio
import contextlib
import logging
import secrets
from typing import Protocol

import aiohttp
import msgspec

from federator import __version__
from federator.kernel.errors import FederatorError, Transient, Unauthenticated
from federator.kernel.route import Way
from federator.wire.link import (
    GPU_USE,
    LINK_LIMITS,
    LINK_STATE,
    LOCAL_JOBS,
    LONGEST_NAME,
    MAX_MESSAGE_BYTES,
    OWNER,
    PATH,
    PROTOCOL,
    RESUMING,
    SAMPLES,
    TEAM,
    TERMINALS,
    TRACES,
    TUNNELS,
    UNCHANGED,
    ZIPPED_LOGS,
    Adopted,
    Allotments,
    Challenge,
    Desired,
    Dial,
    Heard,
    Hello,
    Proof,
    Refusal,
    StatusAck,
    Up,
    Welcome,
    challenge_bytes,
    decode_down,
    encode,
)
from federator_agent.dialer import DIALLING, Addresses
from federator_agent.enrollment import change_key, reason
from federator_agent.keys import Keys
from federator_agent.link_use import REPORTS, LinkUse
from federator_agent.spool import Identity

LASTED_S = 5.0
"""A session that has stood for so long shows that the dispatcher is well."""
REFUSED_PAUSE_S = 300.0
"""Pause (real seconds) after a refusal that asks for a person's help: the work here goes on meanwhile."""
LOOK_S = 1.0
HEARTBEAT_S = 15.0
GREETING_S = 20.0
CHUNK_BYTES = 2**18
GOODBYE_S = 2.0
UNREACHABLE = (aiohttp.ClientError, TimeoutError, ConnectionError)
log = logging.getLogger("federator_agent.link")


KNOWS = (
    *(OWNER, TEAM, TUNNELS, TERMINALS, SAMPLES, TRACES, GPU_USE),
    *(RESUMING, LINK_STATE, LINK_LIMITS, UNCHANGED, ZIPPED_LOGS),
)
Said = Desired | StatusAck | Heard | Allotments | Adopted | Dial
"""What is said within a session."""


class Listener(Protocol):
    """Who is told what happens on the link."""

    def link_up(self, welcome: Welcome, asked_boot_s: float) -> None:
        """A session stands; what it answers was sent after `asked_boot_s`."""
        ...

    def boot_s(self) -> float:
        """The boot clock now."""
        ...

    def link_down(self) -> None:
        """It is over."""
        ...

    def said(self, message: Said) -> None:
        """The dispatcher said something."""
        ...

    def acceptable(self, incarnation: str, term: int | None) -> bool:
        """Whether this store and leader may be obeyed; the term is not known before the session stands."""
        ...


class Link:
    """The control session: keeps one up, and says what it is given while there is one."""

    def __init__(  # noqa: PLR0913, PLR0917 - what it joins
        self,
        identity: Identity,
        keys: Keys,
        way: Way,
        boot_id: str,
        listener: Listener,
        use: LinkUse,
        host: str = "",
        runtime: str = "local",
    ) -> None:
        """`host`: where this is, for people."""
        self._knows = (LOCAL_JOBS,) if runtime == "local" else ()
        self._identity = identity
        self._use = use
        self.addresses = Addresses(identity.dispatcher)
        self._keys = keys
        self.way = way
        self._boot_id = boot_id
        self._host = host[:LONGEST_NAME]
        self._runtime = runtime
        self._instance = secrets.token_hex(8)
        self._plain = False
        """The dispatcher is older than the fields of `Hello` that have defaults."""
        self._listener = listener
        self._leaving = False
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        """Of the session that stands."""
        self.takes: tuple[str, ...] = ()
        """What the dispatcher understands beyond the first version of the protocol."""
        self._outbox: asyncio.Queue[Up] | None = None
        self._ticket = ""
        self._up = asyncio.Event()
        self._stood_since_s: float | None = None
        """By the loop's clock: since when the session stands, or stood last."""
        self.local_address = ""
        """This host's address on the way to the dispatcher, as of the newest session."""

    @property
    def stands(self) -> bool:
        """Whether there is a session."""
        return self._up.is_set()

    async def ticket(self) -> str:
        """The present session's ticket for bulk requests; waits for a session."""
        await self._up.wait()
        return self._ticket

    def say(self, message: Up) -> None:
        """Send a message in the present session; without one it is dropped, since the core repeats what matters."""
        if self._outbox is not None:
            self._outbox.put_nowait(message)

    async def say_goodbye(self) -> None:
        """End the session, and let the dispatcher know that no other follows for now: else it would wait for us. None begins any more."""
        self._leaving, socket = True, self._socket
        if socket is not None:
            await _part(socket)

    async def run(self, session: aiohttp.ClientSession) -> None:
        """Hold a session until the goodbye."""
        failures = 0
        clock = asyncio.get_running_loop().time
        longest_asked_s = 0.0
        while not self._leaving:
            asked_pause_s: float | None = None
            self._not_standing()
            try:
                asked_pause_s = await self._session(session)
            except (aiohttp.ClientError, aiohttp.WSMessageTypeError, TimeoutError, OSError) as error:
                fault = self.way.fault(error, self.addresses.present)
                level = logging.ERROR if fault else logging.INFO
                log.log(level, "no session with %s: %s", self.addresses.present, fault or reason(error))
            except (msgspec.MsgspecError, Unauthenticated) as error:
                log.warning("session with %s ended: %s", self.addresses.present, error)
            if self._up.is_set():
                self._close()
            if self._stood_since_s is not None and clock() - self._stood_since_s >= LASTED_S:
                failures = 0
            longest_asked_s = max(longest_asked_s, asked_pause_s or 0.0)
            if not self.addresses.failed():
                continue  # of several dispatchers one leads: no pause before all were asked
            failures += 1
            await self._rest(DIALLING.pause_s(failures, asked_s=longest_asked_s))
            longest_asked_s = 0.0

    async def _rest(self, pause_s: float) -> None:
        """A pause; over as soon as another process has changed our key, because then we may be let in."""
        until_s = asyncio.get_running_loop().time() + pause_s
        before = self._keys.stamp
        while (left_s := until_s - asyncio.get_running_loop().time()) > 0 and self._keys.stamp == before:  # noqa: ASYNC110 - a file
            await asyncio.sleep(min(LOOK_S, left_s))

    def _not_standing(self) -> None:
        self._stood_since_s = None

    def _close(self) -> None:
        self._up.clear()
        self._outbox = None
        self._listener.link_down()

    async def _session(self, http: aiohttp.ClientSession) -> float | None:
        """One session, until it ends. A pause that the dispatcher asked for, if any."""
        url = f"{self.addresses.present}{PATH}"
        async with asyncio.timeout(GREETING_S):
            socket = await http.ws_connect(
                url,
                heartbeat=HEARTBEAT_S,
                max_msg_size=MAX_MESSAGE_BYTES,
                compress=0,
                **self.way.options(url),
            )
        async with socket:
            async with asyncio.timeout(GREETING_S):
                asked_boot_s = self._listener.boot_s()
                greeted = await self._greet(socket)
            if isinstance(greeted, Refusal):
                if greeted.code == "invalid" and not self._plain:
                    log.info("the dispatcher may be older than this agent: next time in its words")
                    self._plain = True
                    return 0.0
                if greeted.code == "unauthenticated" and await self._led_to_our_key():
                    return 0.0
                return self._refused(greeted)
            outbox: asyncio.Queue[Up] = asyncio.Queue()
            self._outbox, self._ticket, self.takes = outbox, greeted.ticket, greeted.takes
            self._up.set()
            self._stood_since_s = asyncio.get_running_loop().time()
            self.addresses.worked()
            self.local_address = str((socket.get_extra_info("sockname") or ("",))[0])
            self._listener.link_up(greeted, asked_boot_s)
            log.info("session %s with %s stands", greeted.session, self.addresses.present)
            writer = asyncio.create_task(_write(socket, outbox, self._use))
            self._socket = socket
            try:
                return await self._read(socket)
            finally:
                self._socket = None
                writer.cancel()
                if self._leaving:
                    await _part(socket)

    async def _greet(self, socket: aiohttp.ClientWebSocketResponse) -> Welcome | Refusal:
        """Say who calls, and prove it; only then does anything count."""
        hello = Hello(PROTOCOL, self._identity.member, self._boot_id, __version__, self._runtime)
        if not self._plain:
            hello = msgspec.structs.replace(
                hello,
                instance=self._instance,
                host=self._host,
                knows=(*KNOWS, *self._knows),
            )
        await socket.send_str(encode(hello).decode())
        challenge = decode_down(await socket.receive_str())
        if isinstance(challenge, Refusal):
            return challenge
        if not isinstance(challenge, Challenge):
            raise Unauthenticated("the dispatcher did not ask for a proof")
        if not self._listener.acceptable(challenge.incarnation, None):
            return Refusal(
                "left", f"the dispatcher's store {challenge.incarnation} is one that was given up for another"
            )
        signature = await self._keys.proof(challenge_bytes(challenge, self._identity.member))
        await socket.send_str(encode(Proof(signature)).decode())
        welcome = decode_down(await socket.receive_str())
        if isinstance(welcome, Refusal):
            return welcome
        if not isinstance(welcome, Welcome) or welcome.incarnation != challenge.incarnation:
            raise Unauthenticated("the dispatcher did not welcome the proof")
        if not self._listener.acceptable(welcome.incarnation, welcome.term):
            return Refusal(
                "old-term", f"term {welcome.term} is older than one already seen", DIALLING.longest_s
            )
        return welcome

    async def _led_to_our_key(self) -> bool:
        """Whether the dispatcher now knows our key. It may have taken the next one, or be of a store from before the last."""
        request = self._keys.request(self._identity.member)
        if request is None:
            return False
        try:
            await change_key(self.addresses.present, request, self.way)
        except FederatorError as error:
            log.warning("the dispatcher does not take our key: %s", error)
            return isinstance(error, Transient)
        self._keys.finish()
        log.info("the dispatcher knows our newest key")
        return True

    async def _read(self, socket: aiohttp.ClientWebSocketResponse) -> float | None:
        async for frame in socket:
            if frame.type is not aiohttp.WSMsgType.TEXT:
                continue
            self._use.count(REPORTS, received=len(frame.data))
            message = decode_down(frame.data)
            if isinstance(message, Refusal):
                return self._refused(message)
            if isinstance(message, Said):
                self._listener.said(message)
        return None

    def _refused(self, refusal: Refusal) -> float:
        level = logging.ERROR if refusal.retry_after_s is None else logging.WARNING
        log.log(level, "refused (%s): %s", refusal.code, refusal.detail)
        if refusal.code == "unauthenticated":
            # It is not cut off, but let in no more: nothing is agreed on with it.
            self._listener.said(Allotments(()))
        return REFUSED_PAUSE_S if refusal.retry_after_s is None else refusal.retry_after_s


async def _part(socket: aiohttp.ClientWebSocketResponse) -> None:
    """Close it with the word that no other session follows. Whoever waits in it hears of that at once, and may close it first."""
    with contextlib.suppress(TimeoutError, aiohttp.ClientError, OSError):
        async with asyncio.timeout(GOODBYE_S):
            await socket.close(code=aiohttp.WSCloseCode.GOING_AWAY)


async def _write(socket: aiohttp.ClientWebSocketResponse, outbox: asyncio.Queue[Up], use: LinkUse) -> None:
    """Send what is said, in order. A broken connection is noticed by the reader."""
    try:
        while True:
            message = encode(await outbox.get())
            await socket.send_str(message.decode())
            use.count(REPORTS, sent=len(message))
    except (aiohttp.ClientError, ConnectionError):
        await socket.close()
