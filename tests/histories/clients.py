"""Clients of a history: they submit, cancel, read and list by plain HTTP, at any dispatcher, and write down when each request began and ended, and its answer."""

import asyncio
import json
import random
import time
from collections.abc import Callable
from typing import Any

import aiohttp

from tests.histories.record import MISSING, Operation

ANSWER_S = 2.0
"""Who is not answered in this time does not know whether it was done."""
LABEL = "history"
PAUSE_S = (0.02, 0.25)
"""Between two requests of one client."""
KINDS = {"submit": 3, "again": 1, "read": 6, "list": 2, "cancel": 1}
"""What a client does next, by weight. `again`: somebody else's submission once more."""
NOTHING_DONE = (409, 429)
NOT_LEADING = "not-leading"
"""The code of a refusal. Of any other answer of a dispatcher in trouble one does not know whether it was done."""


def now_s() -> float:
    """Seconds since boot, the clock that jobs write by as well."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Clients:
    """Those of one history, which share what they know. `command`: of a job that takes so many seconds."""

    def __init__(
        self, seed: int, addresses: dict[str, str], token: str, command: Callable[[float], list[str]]
    ) -> None:
        self.random = random.Random(seed)
        self.seed = seed
        self.operations: list[Operation] = []
        self.jobs: dict[str, str] = {}
        """Of each client id that was answered, its job."""
        self.bodies: dict[str, bytes] = {}
        self.refused = 0
        self._addresses = addresses
        self._command = command
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._last = self.random.choice(list(addresses))

    async def play(self, until_s: float) -> None:
        """One client, until that time."""
        async with self._session() as http:
            while now_s() < until_s:
                await self._act(http)
                await asyncio.sleep(self.random.uniform(*PAUSE_S))

    async def settle(self) -> None:
        """Send again what was never answered, until it is; nothing may be left open."""
        async with self._session() as http:
            while missing := sorted(self.bodies.keys() - self.jobs.keys()):
                await self._submit(http, missing[0])
                await asyncio.sleep(0.05)

    async def fetch(self, path: str) -> Any:
        """What the leader answers, in the end. Text where it is no JSON."""
        async with self._session() as http:
            while True:
                status, body = await self._ask(http, self._any(), "GET", path)
                if status == 200:
                    return json.loads(body) if body[:1] in (b"{", b"[") else body.decode()
                await asyncio.sleep(0.1)

    def _session(self) -> aiohttp.ClientSession:
        timeout = aiohttp.ClientTimeout(total=ANSWER_S)
        return aiohttp.ClientSession(headers=self._headers, timeout=timeout)

    async def _act(self, http: aiohttp.ClientSession) -> None:
        kind = self.random.choices(list(KINDS), list(KINDS.values()))[0]
        if kind == "submit" or not self.bodies:
            await self._submit(http, self._new())
        elif kind == "again":
            await self._submit(http, self.random.choice(sorted(self.bodies)))
        elif kind == "list":
            await self._list(http)
        elif self.jobs:
            job = self.random.choice(sorted(self.jobs.values()))
            await (self._cancel(http, job) if kind == "cancel" else self._read(http, job))

    def _new(self) -> str:
        client_id = f"history-{self.seed}-{len(self.bodies)}"
        job = {
            "name": f"h{self.seed}",
            "command": self._command(self.random.uniform(0.0, 1.0)),
            "resources": {"gpus": 1},
            "labels": {LABEL: str(self.seed)},
            "client_id": client_id,
        }
        self.bodies[client_id] = json.dumps(job).encode()
        return client_id

    async def _submit(self, http: aiohttp.ClientSession, client_id: str) -> None:
        begun_s, where = now_s(), self._any()
        status, body = await self._ask(http, where, "POST", "/v1/jobs", self.bodies[client_id])
        if status in (200, 201):
            (job,) = json.loads(body)["jobs"]
            self.jobs.setdefault(client_id, job)
            self._note("submit", client_id, begun_s, job=job)
        else:
            self._not_done(status, "submit", client_id, begun_s, body)

    async def _cancel(self, http: aiohttp.ClientSession, job: str) -> None:
        begun_s = now_s()
        status, body = await self._ask(http, self._any(), "DELETE", f"/v1/jobs/{job}")
        if status == 202:
            self._note("cancel", job, begun_s)
        else:
            self._not_done(status, "cancel", job, begun_s, body)

    async def _read(self, http: aiohttp.ClientSession, job: str) -> None:
        begun_s = now_s()
        status, body = await self._ask(http, self._any(), "GET", f"/v1/jobs/{job}")
        if status in (200, 404):
            missing: dict[str, Any] = {"job": {"status": MISSING}, "attempts": []}
            found = json.loads(body) if status == 200 else missing
            attempts = tuple((each["attempt"], each.get("exit_code")) for each in found["attempts"])
            read = Operation("read", job, begun_s, now_s(), seen=((job, found["job"]["status"]),))
            self.operations.append(read._replace(attempts=attempts))

    async def _list(self, http: aiohttp.ClientSession) -> None:
        begun_s = now_s()
        path = f"/v1/jobs?limit=1000&label={LABEL}={self.seed}"
        status, body = await self._ask(http, self._any(), "GET", path)
        if status == 200:
            seen = tuple((row["id"], row["status"]) for row in json.loads(body)["jobs"])
            self._note("list", "", begun_s, seen=seen)

    def _note(
        self, kind: str, key: str, begun_s: float, *, job: str = "", seen: tuple[tuple[str, str], ...] = ()
    ) -> None:
        self.operations.append(Operation(kind, key, begun_s, now_s(), job, seen))

    def _not_done(self, status: int, kind: str, key: str, begun_s: float, body: bytes) -> None:
        """A refusal did nothing. What was not answered may have been done: so may what the dispatcher itself does not know of."""
        code = json.loads(body).get("code", "") if body[:1] == b"{" else ""
        assert not 400 <= status < 500 or status in NOTHING_DONE, f"{kind} was refused: {body.decode()}"
        if status in NOTHING_DONE or code == NOT_LEADING:
            self.refused += 1
        else:
            self.operations.append(Operation(kind, key, begun_s))

    def _any(self) -> str:
        """Half of the time who answered last, else anybody."""
        return self._last if self.random.random() < 0.5 else self.random.choice(list(self._addresses))

    async def _ask(
        self, http: aiohttp.ClientSession, where: str, method: str, path: str, body: bytes | None = None
    ) -> tuple[int, bytes]:
        """The status and the body; 0 where there was no answer."""
        try:
            async with http.request(method, self._addresses[where] + path, data=body) as answer:
                content = await answer.read()
        except (aiohttp.ClientError, OSError, TimeoutError):
            return 0, b""
        if answer.status < 500:
            self._last = where
        return answer.status, content
