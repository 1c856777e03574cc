"""Who may pass: the gate of every route, by bearer token, session ticket, or how one stands to the job."""

import re
from collections.abc import Callable

from aiohttp import web

from federator.api.browser_session import token_of
from federator.api.exchange import Call, read_query, refuse_coding, refuse_repeated
from federator.api.feeds import Feeds
from federator.api.listener import connection_of
from federator.api.scopes import scope_of
from federator.api.table import Gate, Route
from federator.assembly import Core
from federator.control.record.archived_jobs import ASKING
from federator.kernel.errors import Conflict, Forbidden, Invalid, TooMany, Unauthenticated, Unavailable
from federator.model.identity import Caller
from federator.model.jobs import Job
from federator.model.rights import Relation

_PARTS = {
    "id": re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}(\[[0-9,:-]{1,200}\])?"),
    "hash": re.compile(r"[0-9a-f]{64}"),
    "rank": re.compile(r"\d{1,6}"),
    "placement": re.compile(r"[a-z0-9-]{1,64}"),
    "tunnel": re.compile(r"[A-Za-z0-9_-]{1,64}"),
}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}")


def admit(core: Core, feeds: Feeds, route: Route, request: web.Request) -> Call:
    """Check everything that can be checked before anything is looked for. Raises the named refusal."""
    refuse_repeated(request)
    call = Call(core, feeds, request)
    if route.gate is not Gate.OPEN and not core.serving:
        core.reign.require()
        raise Unavailable("the dispatcher is starting or stopping", retry_after_s=1.0)
    if route.gate in (Gate.PERSON, Gate.JOB):
        token = token_of(request) or bearer(request)
        call.who = core.sign_in.authenticate(token)
        _signed_in(request, f"user {call.caller.name}", lambda: _opens(core, token))
        call.caller.require_scope(scope_of(route))
    elif route.gate is Gate.SESSION:
        call.of_session = core.hub.session_of(bearer(request))
        _signed_in(request, f"member {call.session.member}", lambda: not call.session.ended.done())
    refuse_coding(request)
    _check_path(request)
    call.given = read_query(request, route.query)
    if route.gate is Gate.PERSON and route.roles:
        call.caller.require(*route.roles)
    return call


async def find(call: Call, route: Route, request: web.Request) -> None:
    """Find the job that the path names, in the archive too, and check how the caller stands to it. Raises the named refusal."""
    if route.path.startswith("/v1/jobs/{id}"):
        call.about = await call.core.views.find_any(call.caller, call.path("id"))
        call.relations = _relations(call)
        if route.method != "GET":
            require_no_series(call.about, call.path("id"))
    if route.gate is Gate.JOB:
        if not call.relations & route.allows:
            raise not_yours(call.job, only_owner=route.allows == {Relation.OWNER})
        _only_while(request, lambda: bool(_relations(call) & route.allows))


def _only_while(request: web.Request, related: Callable[[], bool]) -> None:
    """What follows a job ends when the caller stands to it in no such way any more: who leaves a team reads no more of its logs."""
    connection = connection_of(request)
    if connection is not None:
        signed_in = connection.still
        connection.still = lambda: signed_in() and related()


def _signed_in(request: web.Request, caller: str, still: Callable[[], bool]) -> None:
    """The connection is the caller's now, for as long as the credential is good, and what is asked meanwhile is on their behalf. Raises `TooMany`."""
    ASKING.set(caller)
    connection = connection_of(request)
    if connection is not None and not connection.signed_in(caller, still):
        raise TooMany(
            f"{caller} has {connection.connections.places.each_caller} connections, all of them busy",
            retry_after_s=5.0,
            remedy="close some, or have connections.each raised",
        )


def _opens(core: Core, token: str) -> bool:
    """Whether a token is still good."""
    try:
        core.sign_in.authenticate(token)
    except (Unauthenticated, Forbidden):
        return False
    except Unavailable:
        return True  # its provider cannot be asked just now
    return True


def require_no_series(run: Job, name: str) -> None:
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


def _relations(call: Call) -> frozenset[Relation]:
    """How the caller stands to the job, wherever it is placed now."""
    return relations(call.core, call.caller, call.job)


def relations(core: Core, caller: Caller, job: Job) -> frozenset[Relation]:
    """How somebody stands to a job, wherever it is placed now."""
    job = core.records.jobs.get(job.id, job)
    placement = core.records.known_placement(job.placement)
    site = placement.site if placement is not None else ""
    return core.authority.now.relations(caller, job, site)


def not_yours(job: Job, *, only_owner: bool = False) -> Forbidden:
    """The refusal: all others only see that it is there. `only_owner`: no administrator may either."""
    if only_owner:
        return Forbidden(
            f"{job.name} belongs to {job.owner}, and only its owner may do this", remedy="ask them"
        )
    return Forbidden(
        f"{job.name} belongs to {job.owner}",
        remedy=f"ask them, an administrator of queue {job.queue}, or a user with the role platform",
    )


def _check_path(request: web.Request) -> None:
    for name, value in request.match_info.items():
        if not _PARTS.get(name, _NAME).fullmatch(value):
            raise Invalid(f"{value[:80]!r} is not {'an' if name[0] in 'aeiou' else 'a'} {name}", field=name)
