"""The application: the route table behind its gates."""

import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext

from aiohttp import web

from federator.api.access import admit, find
from federator.api.connections import Connections
from federator.api.console import add_console
from federator.api.exchange import json_response
from federator.api.feeds import Feeds
from federator.api.listener import attend
from federator.api.live import LIVE, LiveRows
from federator.api.problems import answer_problems
from federator.api.rates import PLAIN, RATES, Rates
from federator.api.routes import ROUTES
from federator.api.table import Route
from federator.api.transfers import TRANSFERS, Transfers
from federator.api.tunnels import TUNNELS, Tunnels
from federator.assembly import Core
from federator.control.record.records import Changes
from federator.model.identity import Token

TIME_HEADER = "X-Federator-Time"
"""The dispatcher's time in every answer: demonstrations run on a scaled clock, and people's clocks are wrong."""


def build_app(core: Core, connections: Connections | None = None) -> web.Application:
    """The HTTP API of a dispatcher. The caller serves it, over these connections if it is known, and starts and stops the core."""
    feeds = Feeds(core.records)
    app = web.Application(middlewares=[attend, answer_problems])
    limits = core.settings.limits
    app[RATES] = Rates(limits, time.monotonic)
    app[TRANSFERS] = Transfers(limits.transfers, limits.transfers_each)
    app[TUNNELS] = Tunnels(limits)
    app[LIVE] = LiveRows(core, time.monotonic)
    if connections is not None:
        _end_with_credentials(core, connections, app)
    for route in ROUTES:
        app.router.add_route(route.method, route.path, _serve(core, feeds, route))

    add_console(app)

    async def tell_time(_request: web.Request, response: web.StreamResponse) -> None:
        response.headers[TIME_HEADER] = f"{core.clock.now():.3f}"

    async def let_go(_app: web.Application) -> None:
        """Streams and links would otherwise keep the server from stopping."""
        feeds.close()
        app[LIVE].close()
        app[TUNNELS].close()
        await core.tunnels.close()
        await core.hub.close()

    app.on_response_prepare.append(tell_time)
    app.on_shutdown.append(let_go)
    return app


def _end_with_credentials(core: Core, connections: Connections, app: web.Application) -> None:
    """What is open by a token ends when the token does, and not with the next look at all connections."""

    def on_change(changes: Changes) -> None:
        if any(isinstance(row, Token) for row in changes.rows.values()):
            connections.check_credentials()

    unsubscribe = core.records.subscribe(on_change)

    async def let_go(_app: web.Application) -> None:
        unsubscribe()

    app.on_shutdown.append(let_go)


def _adds_a_line(route: Route) -> bool:
    """Whether it is a person's act that the ledger tells of, and that ends nothing. Submissions are looked at one by one, and what is only repeated is let through. Uploads have no line."""
    changes = route.cost == PLAIN and route.method in ("POST", "PATCH", "PUT")
    return changes and route.path not in ("/v1/jobs", "/v1/blobs/{hash}")


def _serve(core: Core, feeds: Feeds, route: Route) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(request: web.Request) -> web.StreamResponse:
        call = admit(core, feeds, route, request)
        if call.who and _adds_a_line(route):
            core.sweeper.retention.refuse_line(call.who.name)
        with request.app[RATES].spend(call.who.name, route.cost) if call.who else nullcontext():
            await find(call, route, request)
            answer = await route.handler(call)
        if isinstance(answer, web.StreamResponse):
            return answer
        # Whom a role lets in is told what the role is there for: an administrator's ledger and statement of a site have all that was used there.
        seen_by = call.sight if call.who is not None and not route.roles else None
        return json_response(answer, route.status, seen_by)

    return handle
