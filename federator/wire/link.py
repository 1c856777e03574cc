"""The control messages between an agent and the dispatcher, one WebSocket, JSON text frames.

The agent always dials out. A session goes: `Hello` up, `Challenge` down, `Proof` up, `Welcome` down, then reports and statuses
up, desired sets down. Bulk (specs, blobs, logs, outputs) goes over plain HTTP beside it, under the session's ticket. Every
message is a tagged record, unknown fields are refused, and the protocol's number is in the first message of each side.

Agents and dispatcher may be one version apart. So a field that is added has a default, and what has its default is not said: an older
peer then understands everything but the new thing itself. Anything else needs another PROTOCOL; `tests/contract/wire` holds this.

Within a protocol's number, messages and fields are only added, and the dispatcher is upgraded before its agents: it says nothing new to an
agent that has not said something new first (`Heard` answers only a `Report` that carries a time).
"""

import hashlib
from collections.abc import Iterable
from typing import Annotated

import msgspec

from federator.model.allotments import Allotment, LocalJob
from federator.model.placements import DesiredEntry, PlacementReport, Used
from federator.model.sites import GpuUse, LinkState, SiteReport
from federator.wire.jsontext import Reader
from federator.wire.tunnel import Request

PROTOCOL = 1
MAX_MESSAGE_BYTES = 4 * 2**20
MAX_STATUSES = 500
MAX_GPUS = 1024
PATH = "/agent/v1/link"

OWNER, TEAM, TUNNELS, TERMINALS, SAMPLES = "owner", "team", "tunnels", "terminals", "samples"
TRACES, GPU_USE, LOCAL_JOBS, RESUMING, LINK_STATE, LINK_LIMITS, UNCHANGED, ZIPPED_LOGS = (
    "traces", "gpu-use", "local-jobs", "resuming", "link-state", "link-limits", "unchanged", "zipped-logs",
)  # fmt: skip
"""Words of `Hello.knows`; all but the first ones, `TRACES` and what is about tunnels also of `Welcome.takes`."""
MAX_LOCAL_JOBS = 20
MAX_ALLOTMENTS = 1000
LONGEST_NAME = 200
Text = Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)]
"""A name: what is longer is none."""


class Hello(msgspec.Struct, frozen=True, tag="hello", forbid_unknown_fields=True, omit_defaults=True):
    """Who calls. `boot_id` is the host's; a new one proves that local processes of the old are gone.

    An agent whose Hello is refused as `invalid` says it again without the fields that have defaults: an older dispatcher does not know them.
    """

    protocol: int
    member: Text
    boot_id: Text
    version: Text
    runtime: Text
    instance: Text = ""
    """Random for each process of an agent: tells one that comes back from a copy of it."""
    host: Text = ""
    """Where it runs, for people: host name and state directory."""
    knows: Annotated[tuple[Text, ...], msgspec.Meta(max_length=50)] = ()
    """What older agents refuse and this one reads: the fields `owner` and `team` of a desired entry, and, as `traces`, its `traced`, and, as `tunnels`, the message `Dial`, as `terminals`, `Exec.keep` and `Attach` in it; and `samples` and `gpu-use`, if it would say what its work uses, and how busy each GPU is; and `local-jobs`, if it admits jobs by itself while it is cut off; and `resuming`, `link-state`, `link-limits`, `unchanged` and `zipped-logs`, if it would go on with uploads of outputs where they were cut, say how its link is, and what of it bulk may use, say shortly that a report still holds, and send logs compressed."""


class Challenge(msgspec.Struct, frozen=True, tag="challenge", forbid_unknown_fields=True):
    """Random text to sign together with the incarnation, so that a signature is worth nothing elsewhere."""

    nonce: str
    incarnation: str


class Proof(msgspec.Struct, frozen=True, tag="proof", forbid_unknown_fields=True):
    """Ed25519 signature (hex) over `challenge_bytes`."""

    signature: str


class Welcome(msgspec.Struct, frozen=True, tag="welcome", forbid_unknown_fields=True, omit_defaults=True):
    """The session stands. `ticket` is the bearer token for bulk requests of this session."""

    session: str
    ticket: str
    incarnation: str
    term: int
    report_every_s: float
    takes: tuple[Text, ...] = ()
    """Of the words of `Hello.knows`, the messages that this dispatcher understands."""


class Report(msgspec.Struct, frozen=True, tag="report", forbid_unknown_fields=True, omit_defaults=True):
    """Telemetry: the newest replaces all older ones. `sent_boot_s`: what the agent's boot clock said before it was sent."""

    report: SiteReport
    sent_boot_s: float | None = None


class Unchanged(msgspec.Struct, frozen=True, tag="unchanged", forbid_unknown_fields=True):
    """The last `Report` of this session still holds, but for its time; answered as one. Said only to a dispatcher that takes `unchanged`."""

    sent_boot_s: float


class Heard(msgspec.Struct, frozen=True, tag="heard", forbid_unknown_fields=True):
    """The answer to a `Report`, with its `sent_boot_s`: the renewal that `stop_within` counts from; several reports may share one.

    The agent counts from the `sent_boot_s` that comes back (and from its `Proof`, which `Welcome` answers), the dispatcher from when it
    answers, so that the agent's time is over first however slow the way is. No other message renews anything.
    """

    sent_boot_s: float


class Statuses(msgspec.Struct, frozen=True, tag="statuses", forbid_unknown_fields=True):
    """Placement statuses, oldest first; repeated until `StatusAck` covers their numbers. At most MAX_STATUSES."""

    reports: tuple[PlacementReport, ...]


class Sample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What this member's ranks of a placement have used so far, since this process of the agent began."""

    placement: Text
    used: Used


class Samples(msgspec.Struct, frozen=True, tag="samples", forbid_unknown_fields=True, omit_defaults=True):
    """Telemetry: the newest replaces all older ones, and nothing is answered. At most MAX_STATUSES."""

    samples: Annotated[tuple[Sample, ...], msgspec.Meta(max_length=MAX_STATUSES)]
    gpus: Annotated[tuple[GpuUse, ...], msgspec.Meta(max_length=MAX_GPUS)] = ()
    """All GPUs of the host that are watched, when anything of them has changed; said only to a dispatcher that takes `gpu-use`."""
    link: LinkState | None = None
    """How the agent's link is; said only to a dispatcher that takes `link-state`, and its rate and hours only to one that takes `link-limits`."""


class LocalJobs(msgspec.Struct, frozen=True, tag="local-jobs", forbid_unknown_fields=True):
    """Jobs that the agent has admitted by itself; repeated until `Adopted` names them. Of their placements nothing is said before that."""

    jobs: Annotated[tuple[LocalJob, ...], msgspec.Meta(max_length=MAX_LOCAL_JOBS)]


class DesiredAck(msgspec.Struct, frozen=True, tag="desired-ack", forbid_unknown_fields=True):
    """The desired set of that generation is on the agent's disk; `digest` is that of the set it now holds."""

    generation: Annotated[int, msgspec.Meta(ge=0, le=2**60)]
    digest: str


class Desired(msgspec.Struct, frozen=True, tag="desired", forbid_unknown_fields=True, omit_defaults=True):
    """A change of the member's desired set: `entries` are new or changed, `forget` are placements to drop from the set.

    `whole` means that `entries` is the entire set. `digest` is that of the set after the change; on a mismatch the agent
    answers with its own digest and is sent the whole set. **A placement stops only on an explicit `stop` entry**; a
    forgotten one is by then ended and acknowledged.
    """

    generation: int
    entries: tuple[DesiredEntry, ...]
    digest: str
    forget: tuple[str, ...] = ()
    whole: bool = False
    term: int = 0


class StatusAck(msgspec.Struct, frozen=True, tag="status-ack", forbid_unknown_fields=True):
    """All statuses up to `seq` are durable at the dispatcher."""

    seq: int


class Allotments(msgspec.Struct, frozen=True, tag="allotments", forbid_unknown_fields=True):
    """What the agent may admit by itself from now on while it is cut off: all of it. Sent only to agents that know it."""

    allotments: Annotated[tuple[Allotment, ...], msgspec.Meta(max_length=MAX_ALLOTMENTS)]


class Adopted(msgspec.Struct, frozen=True, tag="adopted", forbid_unknown_fields=True):
    """These placements of `LocalJobs` are durable at the dispatcher, and so are their jobs: they are as all others from now on."""

    placements: tuple[str, ...]


class Dial(msgspec.Struct, frozen=True, tag="dial", forbid_unknown_fields=True):
    """Somebody who may wants a tunnel into a job: dial out a WebSocket for it, at `/agent/v1/tunnels/{tunnel}` under the session's ticket.

    `tunnel` is random, and good once and for seconds. Sent only to agents that know it.
    """

    tunnel: Text
    placement: str
    rank: int
    request: Request


class Refusal(msgspec.Struct, frozen=True, tag="refusal", forbid_unknown_fields=True, omit_defaults=True):
    """The session ends. `code` says why; `retry_after_s` None: do not come back without a person's help."""

    code: str
    detail: str
    retry_after_s: float | None = None


Up = Hello | Proof | Report | Unchanged | Statuses | Samples | DesiredAck | LocalJobs
Down = Challenge | Welcome | Heard | Desired | StatusAck | Allotments | Adopted | Dial | Refusal

_encoder = msgspec.json.Encoder()
_up: Reader[Up] = Reader(Up)
_down: Reader[Down] = Reader(Down)


def encode(message: Up | Down) -> bytes:
    """A message as one text frame."""
    return _encoder.encode(message)


def decode_up(data: bytes | str) -> Up:
    """What an agent said. Raises `msgspec.DecodeError` with the path of the fault."""
    return _up.decode(data)


def decode_down(data: bytes | str) -> Down:
    """What the dispatcher said. Raises `msgspec.DecodeError` with the path of the fault."""
    return _down.decode(data)


def challenge_bytes(challenge: Challenge, member: str) -> bytes:
    """What the agent signs."""
    return f"federator-link-v{PROTOCOL}\n{challenge.incarnation}\n{member}\n{challenge.nonce}".encode()


def desired_digest(entries: Iterable[DesiredEntry]) -> str:
    """Digest of a desired set, whatever the order of its entries."""
    # Joined, not formatted: an enumeration that is formatted takes most of the time, and both ends do this at every change.
    lines = sorted([" ".join((e.placement, str(e.epoch), e.spec_hash, e.order)) for e in entries])
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


SITE_HEADER = "X-Federator-Site"
"""Of a `JoinRequest`: the site that the agent's own file names; a token of another site is refused. A header, which dispatchers
that do not know it pass over; an unknown field they would refuse."""


class LogLength(msgspec.Struct, frozen=True):
    """How much of a rank's log the dispatcher has: the offset to go on from."""

    length: int
    most: int = 0
    """How many bytes of it are kept: of a longer one the agent sends the beginning, and its end when it is over. 0: it is not said."""


class OutputLength(msgspec.Struct, frozen=True):
    """How much of an archive the dispatcher has: the offset to go on from. All of it: it is kept. Less than before: what had come was damaged."""

    length: int


class JoinRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """POST /agent/v1/join with the join token as bearer: binds this public key (Ed25519, hex) to the site."""

    public_key: str
    member: str = ""
    """A wish for the member's name; empty: the site's."""
    labels: dict[str, str] = {}
    host_key: Text = ""
    """Public half of the host's second key, which must sign for each change of the first; empty: of an older agent."""


class JoinAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The name under which the agent's sessions are opened."""

    member: str
    site: str
    incarnation: str


MAX_KEY_STEPS = 50


class KeyStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A key gives way to this one (Ed25519, hex): `signature` over `key_bytes` is the former key's."""

    public_key: Text
    signature: Text


class KeyRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """POST /agent/v1/key: the steps that the agent's key has gone, oldest first. `proof` over `key_bytes` is the last key's own signature,
    `host_proof` over the same that of the host's second key: who has stolen the first alone cannot change it.

    Idempotent: steps that the dispatcher has taken already change nothing, and one that has forgotten them takes them again.
    """

    member: Text
    steps: Annotated[tuple[KeyStep, ...], msgspec.Meta(min_length=1, max_length=MAX_KEY_STEPS)]
    proof: Text
    host_proof: Text = ""


class KeyAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The last key is the member's."""

    member: str


class OutputArchive(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What one host has collected of a job that another reads: a gzipped tar, by its hash."""

    job: str
    label: str
    """What people call it."""
    digest: str
    size_bytes: int
    below: str = ""
    """The folder that it belongs in: of a task of an array that is read as a whole, its index."""


class PlacementInputs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of each of a placement's `inputs_from` the archives; of a gang's that of rank 0 is the first."""

    found: tuple[tuple[OutputArchive, ...], ...]


def key_bytes(member: str, public_key: str) -> bytes:
    """What is signed when a member's key gives way to another."""
    return f"federator-key-v{PROTOCOL}\n{member}\n{public_key}".encode()


# Bulk, by the agent over HTTP with `Authorization: Bearer TICKET`:
#   GET  /agent/v1/specs/{hash}                               a JobSpec as JSON (federator.model.jobs)
#   GET  /agent/v1/blobs/{hash}                               a work directory: gzipped tar
#   GET  /agent/v1/inputs/{placement}                         what it reads of the outputs of others (PlacementInputs)
#   GET  /agent/v1/inputs/{placement}/{job}/{hash}            one archive of these: gzipped tar
#   PUT  /agent/v1/logs/{placement}/{rank}?offset=N           bytes of a rank's log; answers {"length": N}
#   PUT  /agent/v1/outputs/{placement}                        gzipped tar of what `outputs` matched, before the terminal status
#        ?digest=SHA256&size=N&offset=N                       the same from an offset on, to dispatchers that take `resuming`; answers {"length": N}
