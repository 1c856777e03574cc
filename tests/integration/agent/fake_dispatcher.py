"""A dispatcher of some hundred lines that speaks the agent's protocol and remembers what it is told."""

import asyncio
import contextlib
import gzip
import hashlib
from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import WSMsgType, web
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from federator.model.jobs import JobSpec
from federator.model.placements import PLACEMENT_ENDED, DesiredEntry, Order, PlacementReport, Used
from federator.model.sites import GpuUse, SiteReport
from federator.wire.link import (
    GPU_USE,
    PATH,
    SAMPLES,
    ZIPPED_LOGS,
    Challenge,
    Desired,
    DesiredAck,
    Down,
    Hello,
    JoinAnswer,
    JoinRequest,
    OutputArchive,
    PlacementInputs,
    Proof,
    Refusal,
    Report,
    Samples,
    StatusAck,
    Statuses,
    Welcome,
    challenge_bytes,
    decode_up,
    desired_digest,
    encode,
)
from tests.support.waiting import PATIENCE_S

TOKEN = "join-me"


class FakeDispatcher:
    """Holds what an agent said. `changed` is set after every message."""

    def __init__(self) -> None:
        self.keys: dict[str, str] = {}
        self.specs: dict[str, bytes] = {}
        self.blobs: dict[str, bytes] = {}
        self.outputs_of_others: tuple[tuple[OutputArchive, ...], ...] = ()
        """What every placement reads; their archives are among the blobs."""
        self.logs: dict[tuple[str, int], bytearray] = {}
        self.outputs: dict[str, bytes] = {}
        self.statuses: dict[str, list[PlacementReport]] = {}
        self.reports: list[SiteReport] = []
        self.samples: dict[str, Used] = {}
        self.gpu_use: tuple[GpuUse, ...] = ()
        """What was told last of each placement."""
        self.acks: list[DesiredAck] = []
        self.desired: dict[str, DesiredEntry] = {}
        self.generation = 0
        self.sessions = 0
        self.incarnation = "inc-1"
        self.term = 1
        self.acknowledge = True
        self.refuse: Refusal | None = None
        self.blob_gets = 0
        self.blobs_come = asyncio.Event()
        """Cleared: whoever asks for a blob waits."""
        self.blobs_come.set()
        self.takes: tuple[str, ...] = (SAMPLES, GPU_USE)
        self.log_bytes = 0
        """Of all bodies with parts of logs, as they came."""
        self.fail_logs = 0
        """So many log uploads are answered 503 after half of them is stored."""
        self.port = 0
        self.changed = asyncio.Event()
        self.sockets: set[web.WebSocketResponse] = set()
        self.close_codes: list[int | None] = []
        """How agents have ended their sessions."""
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        app = web.Application(client_max_size=2**28)
        app.router.add_post("/agent/v1/join", self._join)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get(PATH, self._link)
        app.router.add_get("/agent/v1/specs/{hash}", self._spec)
        app.router.add_get("/agent/v1/blobs/{hash}", self._blob)
        app.router.add_get("/agent/v1/inputs/{placement}", self._inputs)
        app.router.add_get("/agent/v1/inputs/{placement}/{job}/{hash}", self._blob)
        app.router.add_put("/agent/v1/logs/{placement}/{rank}", self._log)
        app.router.add_put("/agent/v1/outputs/{placement}", self._outputs)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Go away, as a crashed dispatcher does; `start` brings it back on the same port."""
        await self.cut()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def cut(self) -> None:
        """Break all sessions."""
        for socket in list(self.sockets):
            await socket.close()

    # What a test says ----------------------------------------------------------------------------------------------

    def spec(self, **fields: Any) -> str:
        data = msgspec.json.encode(JobSpec(**({"name": "job"} | fields)))
        name = hashlib.sha256(data).hexdigest()
        self.specs[name] = data
        return name

    def blob(self, data: bytes) -> str:
        name = hashlib.sha256(data).hexdigest()
        self.blobs[name] = data
        return name

    async def want(self, *entries: DesiredEntry, forget: tuple[str, ...] = ()) -> None:
        self.generation += 1
        for entry in entries:
            self.desired[entry.placement] = entry
        for placement in forget:
            del self.desired[placement]
        await self._send(
            Desired(self.generation, entries, desired_digest(self.desired.values()), forget, term=self.term)
        )

    async def stop_placement(self, placement: str, **changes: Any) -> None:
        entry = self.desired[placement]
        await self.want(msgspec.structs.replace(entry, order=Order.STOP, reason="test", **changes))

    async def _send(self, message: Down) -> None:
        for socket in list(self.sockets):
            with contextlib.suppress(
                ConnectionError
            ):  # of an agent that was killed a moment ago: its next session hears it
                await socket.send_str(encode(message).decode())

    async def until(self, condition: Callable[[], Any], timeout_s: float = PATIENCE_S) -> Any:
        """Wait until the agent has made the condition true; its value."""

        async def wait() -> Any:
            while not (value := condition()):
                self.changed.clear()
                await self.changed.wait()
            return value

        try:
            return await asyncio.wait_for(wait(), timeout_s)
        except TimeoutError:
            raise AssertionError(f"it did not come; statuses so far: {self.statuses}") from None

    async def ended(self, placement: str, timeout_s: float = PATIENCE_S) -> PlacementReport:
        """The terminal status of a placement."""
        await self.until(
            lambda: self.last(placement) and self.last(placement).status in PLACEMENT_ENDED,  # type: ignore[union-attr]
            timeout_s,
        )
        report = self.last(placement)
        assert report is not None
        return report

    def last(self, placement: str) -> PlacementReport | None:
        return self.statuses[placement][-1] if placement in self.statuses else None

    def log(self, placement: str, rank: int = 0) -> str:
        return self.logs.get((placement, rank), bytearray()).decode()

    # What an agent asks --------------------------------------------------------------------------------------------

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _join(self, request: web.Request) -> web.Response:
        if request.headers["Authorization"] != f"Bearer {TOKEN}":
            return web.json_response({"detail": "the join token is not known"}, status=401)
        body = msgspec.json.decode(await request.read(), type=JoinRequest)
        member = body.member or "here"
        self.keys[member] = body.public_key
        return web.Response(body=msgspec.json.encode(JoinAnswer(member, "here", self.incarnation)))

    async def _link(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(max_msg_size=2**23)
        await socket.prepare(request)
        hello = decode_up(await socket.receive_str())
        assert isinstance(hello, Hello)
        challenge = Challenge(nonce="n", incarnation=self.incarnation)
        await socket.send_str(encode(challenge).decode())
        frame = await socket.receive()
        if frame.type is not WSMsgType.TEXT:
            return socket
        proof = decode_up(frame.data)
        assert isinstance(proof, Proof)
        if self.refuse or not self._proven(hello.member, challenge, proof):
            refusal = self.refuse or Refusal("bad-proof", "the key is not this member's")
            await socket.send_str(encode(refusal).decode())
            await socket.close()
            return socket
        self.sessions += 1
        welcome = Welcome(
            f"s{self.sessions}",
            f"t{self.sessions}",
            self.incarnation,
            self.term,
            5.0,
            takes=self.takes,
        )
        await socket.send_str(encode(welcome).decode())
        whole = Desired(
            self.generation,
            tuple(self.desired.values()),
            desired_digest(self.desired.values()),
            whole=True,
            term=self.term,
        )
        self.sockets.add(socket)
        await socket.send_str(encode(whole).decode())
        self.changed.set()
        try:
            async for frame in socket:
                if frame.type is WSMsgType.TEXT:
                    await self._hear(socket, frame.data)
        finally:
            self.sockets.discard(socket)
            self.close_codes.append(socket.close_code)
            self.changed.set()
        return socket

    def _proven(self, member: str, challenge: Challenge, proof: Proof) -> bool:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(self.keys[member]))
        try:
            key.verify(bytes.fromhex(proof.signature), challenge_bytes(challenge, member))
        except InvalidSignature:
            return False
        return True

    async def _hear(self, socket: web.WebSocketResponse, data: str) -> None:
        message = decode_up(data)
        if isinstance(message, Report):
            self.reports.append(message.report)
        elif isinstance(message, DesiredAck):
            self.acks.append(message)
        elif isinstance(message, Samples):
            self.samples.update({each.placement: each.used for each in message.samples})
            self.gpu_use = message.gpus or self.gpu_use
        elif isinstance(message, Statuses):
            for report in message.reports:
                self.statuses.setdefault(report.placement, []).append(report)
            if self.acknowledge:
                await socket.send_str(encode(StatusAck(message.reports[-1].seq)).decode())
        self.changed.set()

    def _allowed(self, request: web.Request) -> bool:
        return request.headers["Authorization"] == f"Bearer t{self.sessions}"

    async def _spec(self, request: web.Request) -> web.Response:
        data = self.specs.get(request.match_info["hash"])
        if not self._allowed(request) or data is None:
            return web.json_response({"detail": "no such spec"}, status=404)
        return web.Response(body=data)

    async def _blob(self, request: web.Request) -> web.Response:
        self.blob_gets += 1
        await self.blobs_come.wait()
        data = self.blobs.get(request.match_info["hash"])
        if not self._allowed(request) or data is None:
            return web.json_response({"detail": "no such blob"}, status=404)
        return web.Response(body=data)

    async def _inputs(self, request: web.Request) -> web.Response:
        if not self._allowed(request):
            return web.json_response({"detail": "an old ticket"}, status=401)
        return web.Response(body=msgspec.json.encode(PlacementInputs(self.outputs_of_others)))

    async def _log(self, request: web.Request) -> web.Response:
        if not self._allowed(request):
            return web.json_response({"detail": "an old ticket"}, status=401)
        kept = self.logs.setdefault(
            (request.match_info["placement"], int(request.match_info["rank"])), bytearray()
        )
        data = await request.read()
        self.log_bytes += len(data)
        if request.query.get("zipped") == "true":
            if ZIPPED_LOGS not in self.takes:
                return web.json_response({"detail": "there is no ?zipped"}, status=400)
            data = gzip.decompress(data)
        if int(request.query["offset"]) == len(kept):
            kept.extend(data[: len(data) // 2] if self.fail_logs else data)
        self.changed.set()
        if self.fail_logs:
            self.fail_logs -= 1
            return web.Response(status=503)
        return web.json_response({"length": len(kept)})

    async def _outputs(self, request: web.Request) -> web.Response:
        if not self._allowed(request):
            return web.json_response({"detail": "an old ticket"}, status=401)
        self.outputs[request.match_info["placement"]] = await request.read()
        self.changed.set()
        return web.Response(status=204)
