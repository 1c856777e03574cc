"""Who may pass: the gate of every route, by bearer token, session ticket, or being the job's owner."""

import re

from aiohttp import web

from federator.api.exchange import Call, read_query
from federator.api.feeds import Feeds
from federator.api.scopes import scope_of
from federator.api.table import Gate, Route
from federator.assembly import Core
from federator.kernel.errors import Conflict, Forbidden, Invalid, Unauthenticated, Unavailable
from federator.model.identity import Role
from federator.model.jobs import Job

_PARTS = {
    "hash": re.compile(r"[0-9a-f]{64}"),
    "rank": re.compile(r"\d{1,6}"),
    "placement": re.compile(r"[a-z0-9-]{1,64}"),
}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}")


def admit(core: Core, feeds: Feeds, route: Route, request: web.Request) -> Call:
    """Check everything that can be checked before the handler runs. Raises the named refusal."""
    call = Call(core, feeds, request)
    if route.gate is not Gate.OPEN and not core.serving:
        core.reign.require()
        raise Unavailable("the dispatcher is starting or stopping", retry_after_s=1.0)
    if route.gate in (Gate.PERSON, Gate.OWNER):
        call.who = core.sign_in.authenticate(bearer(request))
        call.caller.require_scope(scope_of(route))
    elif route.gate is Gate.SESSION:
        call.of_session = core.hub.session_of(bearer(request))
    _check_path(request)
    call.given = read_query(request, route.query)
    if route.gate is Gate.PERSON and route.roles:
        call.caller.require(*route.roles)
    if route.path.startswith("/v1/jobs/{id}"):
        call.about = core.views.find_job(call.caller, call.path("id"))
        if route.method != "GET":
            _require_no_series(call.about, call.path("id"))
    if route.gate is Gate.OWNER:
        _require_owner(call)
    return call


def _require_no_series(run: Job, name: str) -> None:
    """Who changes a job by the name of its series may have meant either."""
    if run.series == name != run.name:
        raise Conflict(
            f"{name} is a series, of which {run.name} is the newest run",
            remedy=f"name the run, or write federator series pause, resume or cancel {name}",
        )


def bearer(request: web.Request) -> str:
    """The token of the Authorization header. Raises `Unauthenticated`."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    # Tokens of ours are ASCII; what is not could not even be hashed.
    if scheme.lower() != "bearer" or not token.strip() or not token.isascii():
        raise Unauthenticated(
            "no bearer token is given", remedy="send the header Authorization: Bearer TOKEN"
        )
    return token.strip()


def _require_owner(call: Call) -> None:
    """A job's owner and the platform's people may change it and read what it wrote; all others only see that it is there."""
    caller = call.caller
    if caller.role not in (Role.PLATFORM, Role.ADMIN) and caller.name != call.job.owner:
        raise Forbidden(
            f"{call.job.name} belongs to {call.job.owner}",
            remedy="ask them, or somebody with the role platform",
        )


def _check_path(request: web.Request) -> None:
    for name, value in request.match_info.items():
        if not _PARTS.get(name, _NAME).fullmatch(value):
            raise Invalid(f"{value[:80]!r} is not {'an' if name[0] in 'aeiou' else 'a'} {name}", field=name)
