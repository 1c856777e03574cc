"""The two connections to the dispatcher, both dialled from here: the control WebSocket, and HTTP for what is large.

A session is opened by proving the agent's key. When it breaks, the next is tried after a pause, for ever; what was not acknowledged
is said again by the core. A thousand agents may lose their dispatcher in one moment, so pauses are drawn anew from all of a growing
range, and that shrinks again only once a session has lasted. Bulk requests wait for a session, use its ticket, and are repeated until they are
answered; only an answer that will stay the same (4xx) is an error.
"""

import asyncio
import contextlib
import hashlib
import logging
import os
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import aiohttp
import msgspec

from federator import __version__
from federator.kernel.errors import FederatorError, Invalid, Transient, Unauthenticated, Unavailable
from federator.kernel.route import Way
from federator.retry import retried
from federator.wire import tunnel
from federator.wire.jsontext import read
from federator.wire.link import (
    GPU_USE,
    LOCAL_JOBS,
    LONGEST_NAME,
    MAX_MESSAGE_BYTES,
    OWNER,
    PATH,
    PROTOCOL,
    SAMPLES,
    TEAM,
    TERMINALS,
    TRACES,
    TUNNELS,
    Adopted,
    Allotments,
    Challenge,
    Desired,
    Dial,
    Heard,
    Hello,
    LogLength,
    OutputArchive,
    PlacementInputs,
    Proof,
    Refusal,
    StatusAck,
    Up,
    Welcome,
    challenge_bytes,
    decode_down,
    encode,
)
from federator.wire.log_times import TIMES_HEADER, LogTime, times_text
from federator_agent.dialer import DIALLING, TRANSFERS, Addresses
from federator_agent.enrollment import change_key, raise_for, reason
from federator_agent.keys import Keys
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

    def __init__(
        self,
        identity: Identity,
        keys: Keys,
        way: Way,
        boot_id: str,
        listener: Listener,
        host: str = "",
        runtime: str = "local",
    ) -> None:
        """`host`: where this is, for people."""
        self._knows = (LOCAL_JOBS,) if runtime == "local" else ()
        self._identity = identity
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
            writer = asyncio.create_task(_write(socket, outbox))
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
                knows=(OWNER, TEAM, TUNNELS, TERMINALS, SAMPLES, TRACES, GPU_USE, *self._knows),
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
        signature = self._keys.present.sign(challenge_bytes(challenge, self._identity.member)).hex()
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


async def _write(socket: aiohttp.ClientWebSocketResponse, outbox: asyncio.Queue[Up]) -> None:
    """Send what is said, in order. A broken connection is noticed by the reader."""
    try:
        while True:
            await socket.send_str(encode(await outbox.get()).decode())
    except (aiohttp.ClientError, ConnectionError):
        await socket.close()


class Bulk:
    """HTTP beside the control session: specs and work directories down, logs and outputs up."""

    def __init__(self, link: Link, http: aiohttp.ClientSession) -> None:
        self._link = link
        self._http = http

    async def spec(self, spec_hash: str) -> bytes:
        """A spec's bytes. Raises `NotFound` and other `Permanent`."""
        return await self._repeat("GET", f"/specs/{spec_hash}")

    async def blob(self, blob_hash: str, into: Path) -> None:
        """Fetch a blob into a file, checked against its name. Raises `Permanent`; a transfer that was cut begins again."""
        await self._fetch(f"/blobs/{blob_hash}", blob_hash, into)

    async def inputs(self, placement: str) -> tuple[tuple[OutputArchive, ...], ...]:
        """Where the outputs of others are that a placement reads. Raises `Permanent`."""
        answer = await self._repeat("GET", f"/inputs/{placement}")
        try:
            return read(answer, PlacementInputs).found
        except msgspec.DecodeError as error:
            raise Unavailable(f"the dispatcher's answer about inputs cannot be read: {error}") from None

    async def input(self, placement: str, job: str, digest: str, into: Path) -> None:
        """Fetch one archive of these, as `blob`."""
        await self._fetch(f"/inputs/{placement}/{job}/{digest}", digest, into)

    async def _fetch(self, path: str, blob_hash: str, into: Path) -> None:
        temporary = into.with_name(f".{into.name}.new")
        digest = await self._repeat("GET", path, into=temporary)
        if digest != blob_hash.encode():
            temporary.unlink(missing_ok=True)
            raise Invalid(f"blob {blob_hash} arrived with the content of {digest.decode()}")
        temporary.rename(into)

    async def put_log(
        self, placement: str, rank: int, offset: int, data: bytes, times: Sequence[LogTime] = ()
    ) -> LogLength:
        """Append to the dispatcher's copy of a log, and say when that was written. Raises `Permanent`."""
        headers = {TIMES_HEADER: times_text(times)} if times else {}
        path = f"/logs/{placement}/{rank}?offset={offset}"
        answer = await self._repeat("PUT", path, data=data, headers=headers)
        try:
            return read(answer, LogLength)
        except msgspec.DecodeError as error:
            raise Unavailable(f"the dispatcher's answer to a log cannot be read: {error}") from None

    async def put_outputs(self, placement: str, archive: Path) -> None:
        """Bring an archive of outputs home. Raises `Permanent`."""
        await self._repeat("PUT", f"/outputs/{placement}", file=archive)

    @asynccontextmanager
    async def tunnel(self, name: str) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Dial out the tunnel of that name. Raises `aiohttp.ClientError`, `TimeoutError`, `OSError`: it is not tried again, since nobody waits for long."""
        url = f"{self._link.addresses.present}{tunnel.PATH}/{name}"
        async with asyncio.timeout(GREETING_S):
            socket = await self._http.ws_connect(
                url,
                headers={"Authorization": f"Bearer {await self._link.ticket()}"},
                timeout=aiohttp.ClientWSTimeout(ws_receive=tunnel.SILENT_S, ws_close=GOODBYE_S),
                max_msg_size=tunnel.MAX_FRAME_BYTES,
                compress=0,
                **self._link.way.options(url),
            )
        async with socket:
            yield socket

    async def _repeat(
        self,
        method: str,
        path: str,
        *,
        data: bytes | None = None,
        file: Path | None = None,
        into: Path | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> bytes:
        """Ask until there is an answer. A ticket that is not good any more is that of a session which is about to be replaced."""

        async def once() -> bytes:
            ticket = await self._link.ticket()
            signed = {"Authorization": f"Bearer {ticket}", "Content-Type": "application/octet-stream"}
            return await self._ask(method, path, _stream(file) if file else data, into, {**signed, **headers})

        def note(error: BaseException) -> None:
            why = self._link.way.fault(error, self._link.addresses.present) or reason(error)
            log.info("%s %s: %s; trying again", method, path.partition("?")[0], why)

        return await retried(once, TRANSFERS, on=(Unauthenticated, Transient, *UNREACHABLE), failed=note)

    async def _ask(
        self,
        method: str,
        path: str,
        data: bytes | AsyncIterator[bytes] | None,
        into: Path | None,
        headers: Mapping[str, str],
    ) -> bytes:
        url = self._link.addresses.present
        options = self._link.way.options(url)
        async with self._http.request(
            method, f"{url}/agent/v1{path}", data=data, headers=headers, **options
        ) as answer:
            if answer.status >= 400 or into is None:
                body = await answer.read()
                raise_for(answer.status, body)
                return body
            digest = hashlib.sha256()
            with into.open("wb") as file:
                async for chunk in answer.content.iter_chunked(CHUNK_BYTES):
                    digest.update(chunk)
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            return digest.hexdigest().encode()


async def _stream(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
