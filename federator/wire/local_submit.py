"""What is said at an agent's own socket, while its site is cut off: one request and one answer to a connection, a line of JSON each.

Not HTTP: both ends are of one version on one host, and the fewer ways there are in, the less there is to guard.
"""

from typing import Annotated

import msgspec

from federator.model.allotments import MOST_SPEC_BYTES

MAX_REQUEST_BYTES = 2 * MOST_SPEC_BYTES
LOG_BYTES = 65_536
"""Most of a log in one answer."""
MAX_ANSWER_BYTES = 2**20
DEFAULT_SOCKET = "/run/federator-agent/local.sock"
_Name = Annotated[str, msgspec.Meta(max_length=200)]


class Submit(msgspec.Struct, frozen=True, tag="submit", forbid_unknown_fields=True):
    """A job file, as JSON."""

    file: Annotated[str, msgspec.Meta(max_length=MAX_REQUEST_BYTES)]


class List(msgspec.Struct, frozen=True, tag="list", forbid_unknown_fields=True):
    """The caller's own jobs, and what of the allotments is left."""


class Log(msgspec.Struct, frozen=True, tag="log", forbid_unknown_fields=True):
    """A piece of what a rank has written."""

    job: _Name
    rank: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 0
    offset: Annotated[int, msgspec.Meta(ge=0, le=2**53)] = 0


class Cancel(msgspec.Struct, frozen=True, tag="cancel", forbid_unknown_fields=True):
    """End a job."""

    job: _Name


class LocalRow(msgspec.Struct, frozen=True, kw_only=True):
    """One of the caller's jobs. Times are seconds since the epoch."""

    job: str
    name: str
    queue: str
    status: str
    submitted_at: float
    gpus: float = 0.0
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    detail: str = ""
    adopted: bool = False
    """The dispatcher has it."""
    over: bool = False


class LeftRow(msgspec.Struct, frozen=True, kw_only=True):
    """What of an allotment of the caller's is left in these 24 hours."""

    policy: str
    queue: str
    jobs: int
    gpu_h: float


class Jobs(msgspec.Struct, frozen=True, tag="jobs"):
    """The newest job last."""

    jobs: tuple[LocalRow, ...]
    left: tuple[LeftRow, ...]
    connected: bool
    person: str


class Piece(msgspec.Struct, frozen=True, tag="piece"):
    """Bytes of a log from the offset that was asked for; none: there is no more now."""

    data: bytes
    over: bool
    """Nothing more will come."""


class Done(msgspec.Struct, frozen=True, tag="done"):
    """It is durable."""

    job: str


class Refused(msgspec.Struct, frozen=True, tag="refused", omit_defaults=True):
    """Nothing was done."""

    message: str
    field: str = ""
    remedy: str = ""


Request = Submit | List | Log | Cancel
Answer = Jobs | Piece | Done | Refused
