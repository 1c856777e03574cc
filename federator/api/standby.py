"""What a dispatcher answers that does not lead: who does.

Why no forwarding and no redirect: clients and agents know several addresses and try the next, a bearer token is then only ever sent where its owner
sent it, and a dispatcher that stands by needs nothing of the leader's to do so.
"""

from collections.abc import Callable

from aiohttp import web

from federator.api.console import add_console
from federator.api.exchange import json_response
from federator.api.listener import attend
from federator.api.problems import answer_problems
from federator.control.record.leadership import Term
from federator.kernel.errors import NotLeading
from federator.telemetry import CONTENT_TYPE, METRICS

LEADER_HEADER = "X-Federator-Leader"


def build_standby(leader: Callable[[], Term | None], trouble: Callable[[], str]) -> web.Application:
    """The API of a dispatcher that stands by. `leader`: who led when it last looked; `trouble`: why it cannot take over itself, if so."""
    app = web.Application(middlewares=[attend, answer_problems])

    def name() -> str:
        term = leader()
        return term.address if term else ""

    async def alive(_request: web.Request) -> web.StreamResponse:
        return json_response({"status": "ok"})

    async def ready(_request: web.Request) -> web.StreamResponse:
        return json_response({"status": "standby", "leader": name()}, status=503)

    async def metrics(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=METRICS.render(), headers={"Content-Type": CONTENT_TYPE})

    async def refuse(_request: web.Request) -> web.StreamResponse:
        said = f"{name()} leads" if name() else "no dispatcher leads yet"
        raise NotLeading(
            f"this dispatcher stands by: {trouble() or said}",
            remedy="give clients and agents the addresses of all dispatchers, with commas in between",
        )

    async def name_leader(_request: web.Request, response: web.StreamResponse) -> None:
        if name():
            response.headers[LEADER_HEADER] = name()

    app.router.add_get("/healthz", alive)
    app.router.add_get("/readyz", ready)
    app.router.add_get("/metrics", metrics)
    add_console(app)
    app.router.add_route("*", "/{path:.*}", refuse)
    app.on_response_prepare.append(name_leader)
    return app
