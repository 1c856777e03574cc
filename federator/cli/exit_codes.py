"""Exit codes: a closed list, so that scripts can act on them. `docs/reference/exit-codes.md` is written from here.

`run` and `wait` end as the job did, so that `federator run -- make test` can stand where `make test` stood.
"""

from typing import TYPE_CHECKING

from federator.kernel.errors import (
    Conflict,
    FederatorError,
    Forbidden,
    NotFound,
    Permanent,
    Transient,
    Unauthenticated,
)

if TYPE_CHECKING:
    from federator.model.jobs import Job

OK = 0
FAILED = 1
USAGE = 2
NOT_FOUND = 3
UNREACHABLE = 4
FORBIDDEN = 5
CONFLICT = 6
TIMED_OUT = 124
NO_CODE = 125
INTERRUPTED = 130

EXITS: dict[type[FederatorError], int] = {
    NotFound: NOT_FOUND,
    Unauthenticated: FORBIDDEN,
    Forbidden: FORBIDDEN,
    Permanent: USAGE,
    Transient: UNREACHABLE,
    Conflict: CONFLICT,
    FederatorError: FAILED,
}
"""By the nearest class above an error's own."""

MEANINGS = {
    OK: "It worked; for `run` and `wait`: the job succeeded; for `exec`: so did the command, whose own exit code it ends with.",
    FAILED: "A fault of Federator itself; `policy validate`, `diff`, `apply`, `rollback` and `replay`: the set was read and is refused, and nothing has changed; `decisions replay`: the plan differs; `decisions certify`: a decision breaks a promise.",
    USAGE: "Something in what was written is wrong: an option, a job file, a file that cannot be read or is no YAML.",
    NOT_FOUND: "No job, site or decision of that name.",
    UNREACHABLE: "The dispatcher cannot be reached, or asks to come back later; `exec`, `port-forward`: the connection to the job was lost.",
    FORBIDDEN: "No valid token, or one whose role does not allow this.",
    CONFLICT: "The state does not allow this any more, or a client id was used for another job.",
    TIMED_OUT: "`wait --timeout` ran out, or the job reached its max_duration.",
    NO_CODE: "The job ended without an exit code of its own: cancelled, staging failed, a dependency failed, its cost cap reached.",
    INTERRUPTED: "Interrupted from the keyboard; `run` has cancelled the job.",
}


def exit_of(job: "Job") -> int:
    """The exit code that stands for how a job ended."""
    from federator.model.jobs import JobStatus, TerminalReason

    if job.status is JobStatus.SUCCEEDED:
        return OK
    if job.outcome is not None and job.outcome.reason is TerminalReason.MAX_DURATION:
        return TIMED_OUT
    code = 0 if job.outcome is None or job.outcome.exit_code is None else job.outcome.exit_code
    # A process that a signal ended has a negative code; shells show it above 128.
    return (code if code >= 0 else 128 - code) & 0xFF or NO_CODE
