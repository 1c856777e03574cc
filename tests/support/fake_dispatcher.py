"""A dispatcher that says what a test tells it to say: for the client and the command, whose faults are in the conversation.

It runs in a thread of its own, because the command makes its own event loop.
"""

import asyncio
import threading
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import msgspec
from aiohttp import web

from tests.support.waiting import PATIENCE_S

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Heard(NamedTuple):
    """A request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


class FakeDispatcher:
    """Answers by method and path; the last answer given for a route stays."""

    def __init__(self) -> None:
        self.url = ""
        self.heard: list[Heard] = []
        self.drops = 0
        """So many requests are cut off before anything is answered."""
        self._answers: dict[tuple[str, str], deque[Handler]] = defaultdict(deque)

    def answer(
        self, route: str, body: object = None, status: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        """Answer `GET /path` with a record as JSON, with bytes, or with nothing. Several answers are given in turn."""
        data = body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)

        async def handle(_request: web.Request) -> web.StreamResponse:
            return web.Response(
                body=data, status=status, headers={"Content-Type": "application/json", **(headers or {})}
            )

        self.handle(route, handle)

    def handle(self, route: str, handler: Handler) -> None:
        """Answer with a handler."""
        method, path = route.split(" ")
        self._answers[method, path].append(handler)

    def handle_any(self, method: str, handler: Handler) -> None:
        """Answer a method with a handler wherever nothing else is told."""
        self._answers[method, ""].append(handler)

    def of(self, route: str) -> list[Heard]:
        """What arrived for a route."""
        method, path = route.split(" ")
        return [heard for heard in self.heard if (heard.method, heard.path) == (method, path)]

    async def serve(self, request: web.Request) -> web.StreamResponse:
        if self.drops:
            self.drops -= 1
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        body = await request.read()
        self.heard.append(
            Heard(request.method, request.path, dict(request.query), dict(request.headers), body)
        )
        answers = self._answers.get((request.method, request.path)) or self._answers.get((request.method, ""))
        if not answers:
            problem = {
                "type": "about:blank",
                "title": "Not Found",
                "status": 404,
                "detail": f"no {request.path}",
                "code": "not-found",
            }
            return web.json_response(problem, status=404)
        handler = answers.popleft() if len(answers) > 1 else answers[0]
        return await handler(request)


@contextmanager
def fake_dispatcher() -> Iterator[FakeDispatcher]:
    """A running one; gone at the end."""
    fake = FakeDispatcher()
    loop = asyncio.new_event_loop()
    started, stop = threading.Event(), asyncio.Event()

    async def live() -> None:
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", fake.serve)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        started.set()
        await stop.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: loop.run_until_complete(live()), daemon=True)
    thread.start()
    assert started.wait(PATIENCE_S)
    try:
        yield fake
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(PATIENCE_S)
        loop.close()
