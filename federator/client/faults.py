"""From an answer that is not a success back to the named situation that the server raised."""

import msgspec

from federator.kernel.errors import (
    Bug,
    ClientIdReused,
    Conflict,
    FederatorError,
    Forbidden,
    Invalid,
    NoRoom,
    NotFound,
    NotLeading,
    NotSupported,
    Permanent,
    TooLarge,
    TooMany,
    Transient,
    Unauthenticated,
    Unavailable,
)
from federator.wire.http import Problem
from federator.wire.jsontext import read

BY_CODE: dict[str, type[FederatorError]] = {
    kind.code: kind
    for kind in (
        Invalid,
        NotSupported,
        NotFound,
        Unauthenticated,
        Forbidden,
        TooLarge,
        TooMany,
        Unavailable,
        NoRoom,
        NotLeading,
        Conflict,
        ClientIdReused,
        Bug,
    )
}
BY_STATUS: dict[int, type[FederatorError]] = {
    401: Unauthenticated, 403: Forbidden, 404: NotFound, 409: Conflict, 413: TooLarge, 429: TooMany,
    502: Unavailable, 503: Unavailable, 504: Unavailable, 507: NoRoom,
}  # fmt: skip


def error_of(problem: Problem) -> FederatorError:
    """The error that a problem tells of; an unknown code is told by its status."""
    family = Permanent if problem.status < 500 else Bug
    kind = BY_CODE.get(problem.code) or BY_STATUS.get(problem.status, family)
    if issubclass(kind, Transient):
        after_s = 1.0 if problem.retry_after_s is None else problem.retry_after_s
        return kind(problem.detail, retry_after_s=after_s, field=problem.field, remedy=problem.remedy)
    return kind(problem.detail, field=problem.field, remedy=problem.remedy)


def error_in(status: int, body: bytes, what: str) -> FederatorError:
    """The error in an answer: a problem, or whatever a proxy in between may have written."""
    try:
        return error_of(read(body, Problem))
    except msgspec.DecodeError:
        said = body[:200].decode(errors="replace").strip()
        kind = BY_STATUS.get(status, Permanent if status < 500 else Bug)
        return kind(f"{what} was answered with {status}{': ' if said else ''}{said}")
