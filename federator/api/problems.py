"""Errors as clients see them: one table from error class to HTTP status, and problem+json (RFC 9457) as the body.

Context is added here, once. What is our own fault is logged with its trace and answered without.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from http import HTTPStatus

import msgspec
from aiohttp import web

from federator.api.listener import connection_of
from federator.kernel import errors
from federator.telemetry import METRICS, get_logger
from federator.wire.http import Problem

CONTENT_TYPE = "application/problem+json"
STARTED = web.RequestKey("started", web.StreamResponse)
"""Set once a stream has begun: from then on no other answer can be given."""

log = get_logger("api")


class WrongContentType(errors.Permanent):
    """The body is of a kind that the route does not take."""

    code = "content-type"


class TooSlow(errors.Permanent):
    """The body has stopped coming."""

    code = "too-slow"


STATUS: dict[type[errors.FederatorError], HTTPStatus] = {
    errors.Permanent: HTTPStatus.BAD_REQUEST,
    errors.Invalid: HTTPStatus.BAD_REQUEST,
    errors.NotSupported: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.NotFound: HTTPStatus.NOT_FOUND,
    errors.Unauthenticated: HTTPStatus.UNAUTHORIZED,
    errors.Forbidden: HTTPStatus.FORBIDDEN,
    errors.TooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    TooSlow: HTTPStatus.REQUEST_TIMEOUT,
    WrongContentType: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    errors.Damaged: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.Transient: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.NoRoom: HTTPStatus.INSUFFICIENT_STORAGE,
    errors.TooMany: HTTPStatus.TOO_MANY_REQUESTS,
    errors.Conflict: HTTPStatus.CONFLICT,
    errors.Bug: HTTPStatus.INTERNAL_SERVER_ERROR,
    errors.FederatorError: HTTPStatus.INTERNAL_SERVER_ERROR,
}
"""By the nearest class: a situation that is not listed has its family's status."""


def problem_of(error: Exception) -> Problem:
    """What a client is told of an error. Of what is our fault: only that it is."""
    if isinstance(error, web.HTTPException):
        return _plain(error.status, error.reason)
    if not isinstance(error, errors.FederatorError) or isinstance(error, errors.Bug):
        return _plain(500, "the dispatcher failed to handle this; its log has the details")
    status = next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)
    return Problem(
        type="about:blank",
        title=status.phrase,
        status=status,
        detail=error.message,
        code=error.code,
        field=error.field,
        remedy=error.remedy,
        retry_after_s=error.retry_after_s if isinstance(error, errors.Transient) else None,
    )


def _plain(status: int, detail: str) -> Problem:
    title = HTTPStatus(status).phrase
    return Problem("about:blank", title, status, detail, code=title.lower().replace(" ", "-"))


def problem_response(problem: Problem, headers: dict[str, str] | None = None) -> web.Response:
    """The problem as an answer, with the headers that its status asks for."""
    headers = dict(headers or {})
    if problem.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if problem.retry_after_s is not None:
        headers["Retry-After"] = str(math.ceil(problem.retry_after_s))
    body = msgspec.json.encode(problem)
    return web.Response(status=problem.status, body=body, content_type=CONTENT_TYPE, headers=headers)


@web.middleware
async def answer_problems(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """The outermost layer: every answer is counted, every error becomes a problem."""
    resource = request.match_info.route.resource
    route = resource.canonical if resource else "unknown"
    method = request.method if resource else "ANY"
    clock = asyncio.get_running_loop().time
    begun = clock()
    try:
        response = await handler(request)
    except web.HTTPException as error:
        allow = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else None
        response = problem_response(problem_of(error), allow)
    except ConnectionError:
        # The client went away; there is nobody to answer.
        gone: web.StreamResponse | None = request.get(STARTED)
        response = gone or web.Response(status=499, reason="Client Closed Request")
    except Exception as error:  # noqa: BLE001 - this is where everything ends
        if isinstance(error, errors.Unauthenticated):
            note_refusal(request, _by(request, route))
        response = _answer(request, error)
    METRICS.observe("federator_http_request_seconds", clock() - begun, method=method, route=route)
    METRICS.count("federator_http_requests_total", method=method, route=route, status=str(response.status))
    return response


def note_refusal(request: web.Request, by: str) -> None:
    """Count a sign-in that has failed; the log has one line a minute for each address, and never what was shown."""
    METRICS.count("federator_sign_ins_failed_total", by=by)
    connection = connection_of(request)
    if connection is not None:
        connections = connection.connections
        address = connections.origin(
            connection.address, ",".join(request.headers.getall("X-Forwarded-For", ()))
        )
        connections.refused.note(address, connections.now())


def _by(request: web.Request, route: str) -> str:
    if "Authorization" not in request.headers and not route.startswith("/v1/session"):
        return "nobody"
    if route.startswith("/agent/"):
        return "join" if route.endswith(("/join", "/key")) else "agent"
    return "person"


def _answer(request: web.Request, error: Exception) -> web.StreamResponse:
    problem = problem_of(error)
    if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(error, errors.Transient):
        log.error("a request failed", method=request.method, path=request.path, exc_info=error)
    started: web.StreamResponse | None = request.get(STARTED)
    if started is None:
        return problem_response(problem)
    # Half an answer is out: cutting the connection is the only way to say that it is not whole.
    if request.transport is not None:
        request.transport.abort()
    return started
