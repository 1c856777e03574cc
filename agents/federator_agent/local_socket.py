"""The agent's own socket, for people at its host while the site is cut off: submit, list, read logs, cancel.

The kernel says who is at the other end (SO_PEERCRED), and the site file which person that is: nobody else is answered, and nobody acts for another. A
connection carries one request and one answer and is over within seconds; each user has few of them at a time, all together a bounded number.
"""

import asyncio
import logging
import pwd
import socket
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec

from federator.kernel.clock import Clock
from federator.kernel.errors import FederatorError, Forbidden, Invalid, NotFound, TooMany
from federator.kernel.ids import IdSource
from federator.model.allotments import MOST_SPEC_BYTES
from federator.model.jobs import JobSpec, PlacementConstraints
from federator.model.placements import PlacementStatus
from federator.wire import local_submit as wire
from federator.wire.credentials import refuse_credentials
from federator.wire.jobfile import JobRequest, encode_spec, read_job
from federator.wire.jsontext import Reader, decode_json
from federator_agent.core import local_jobs
from federator_agent.core.events import Event, LocalCancelled, LocalSubmitted
from federator_agent.core.state import AdmittedJob, Phase, PlacementRecord, State
from federator_agent.local_submit import LocalSubmit
from federator_agent.safe_open import opened

REQUEST_S = 10.0
"""Real seconds that a connection may last."""
MOST_OF_ONE = 8
MOST_AT_ONCE = 64
"""Connections at a time, of one user and of all."""
NOT_HERE = (
    ("workdir", "the dispatcher keeps work directories: name files of this host in the command"),
    ("inputs", "name files of this host in the command"),
    ("inputs_from", "the dispatcher keeps outputs: name files of this host in the command"),
    ("licenses", "the dispatcher counts licences"),
    ("forms", "a site that is cut off runs a job in one form"),
    ("stop_within_s", "leave on_disconnect out: the site is cut off already"),
)
"""Of a spec, what needs the dispatcher."""
_PEER = struct.Struct("3i")
_requests: Reader[wire.Request] = Reader(wire.Request)
_specs: Reader[JobSpec] = Reader(JobSpec)
log = logging.getLogger("federator_agent.local_socket")


class LocalSocket:
    """Serves one socket. `tell` hands an event to the core, whose answer comes by `answered`."""

    def __init__(
        self,
        settings: LocalSubmit,
        clock: Clock,
        state: Callable[[], State],
        tell: Callable[[Event], None],
        placements: Path,
    ) -> None:
        """`placements`: where the logs are."""
        self._settings = settings
        self._clock = clock
        self._ids = IdSource(clock)
        self._state = state
        self._tell = tell
        self._placements = placements
        self._open: Counter[int] = Counter()
        self._asked: dict[str, asyncio.Future[str]] = {}

    async def serve(self) -> None:
        """Until cancelled. What cannot be opened is logged: the agent's other work goes on."""
        path = self._settings.socket
        assert path is not None, "reading the site file names it"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            server = await asyncio.start_unix_server(self._connected, path, limit=wire.MAX_REQUEST_BYTES)
            path.chmod(0o666)  # who is at the other end is asked of the kernel
        except OSError as error:
            log.error("no jobs are taken at %s: %s", path, error)  # noqa: TRY400 - the system says what it is
            return
        log.info("jobs of this host are taken at %s while the site is cut off", path)
        async with server:
            await server.serve_forever()

    def answered(self, placement: str, refusal: str) -> None:
        """The core has decided."""
        asked = self._asked.get(placement)
        if asked is not None and not asked.done():
            asked.set_result(refusal)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        uid = _peer(writer)
        try:
            if self._open[uid] >= MOST_OF_ONE or self._open.total() >= MOST_AT_ONCE:
                return
            self._open[uid] += 1
            try:
                async with asyncio.timeout(REQUEST_S):
                    answer = await self._answer(uid, reader)
                    writer.write(msgspec.json.encode(answer) + b"\n")
                    await writer.drain()
            finally:
                self._open[uid] -= 1
                self._open += Counter()  # without those that have none
        except (TimeoutError, OSError):
            pass
        finally:
            writer.close()

    async def _answer(self, uid: int, reader: asyncio.StreamReader) -> wire.Answer:
        try:
            line = await reader.readline()  # before anything is refused: else who asks might not hear why
            return await self._do(self._person(uid), _requests.decode(line))
        except ValueError as error:  # a line that is too long, and what is no request
            return wire.Refused(f"the request cannot be read: {error}")
        except FederatorError as error:
            return wire.Refused(error.message, error.field or "", error.remedy or "")
        except ExceptionGroup as faults:
            first = next((each for each in faults.exceptions if isinstance(each, FederatorError)), None)
            if first is None:
                raise
            return wire.Refused(first.message, first.field or "", first.remedy or "")

    def _person(self, uid: int) -> str:
        try:
            user = pwd.getpwuid(uid).pw_name
        except KeyError:
            user = str(uid)
        person = self._settings.users.get(user)
        if person is None:
            raise Forbidden(
                f"user {user} of this host is nobody whom this site knows",
                remedy="the site's owner names you in local_submit.users of the site file",
            )
        return person

    async def _do(self, person: str, request: wire.Request) -> wire.Answer:
        match request:
            case wire.Submit(file):
                return await self._submit(person, file)
            case wire.List():
                return self._list(person)
            case wire.Log(job, rank, offset):
                return await asyncio.to_thread(self._log, self._own(person, job), rank, offset)
            case wire.Cancel(job):
                work = self._own(person, job)
                await self._ask(work.job.placement, LocalCancelled(work.job.placement, person))
                return wire.Done(work.job.job)

    async def _submit(self, person: str, file: str) -> wire.Done:
        request = read_job(decode_json(file.encode()), now=self._clock.now())
        spec = admissible(request)
        submitted = LocalSubmitted(
            job=self._ids.new("job"),
            placement=self._ids.new("pl"),
            owner=person,
            spec=spec,
            text=_text(spec),
            at=self._clock.now(),
            queue=request.queue or "",
            priority=request.priority,
            max_duration_s=request.max_duration_s,
        )
        await self._ask(submitted.placement, submitted)
        return wire.Done(submitted.job)

    async def _ask(self, placement: str, event: Event) -> None:
        """Have the core decide. Raises `Forbidden` with its refusal."""
        if placement in self._asked:
            raise TooMany("this job is being cancelled already", retry_after_s=1.0)
        asked = self._asked[placement] = asyncio.get_running_loop().create_future()
        try:
            self._tell(event)
            refusal = await asked
        finally:
            del self._asked[placement]
        if refusal:
            raise Forbidden(refusal)

    def _own(self, person: str, name: str) -> AdmittedJob:
        """A job of the caller's own, by its id or else the newest of that name."""
        mine = [work for work in self._state().local.values() if work.job.owner == person]
        for work in sorted(mine, key=lambda work: work.job.job, reverse=True):
            if name in (work.job.job, _name(work)):
                return work
        raise NotFound(
            f"you have no job {name!r} here", remedy="federator local list shows those that there are"
        )

    def _list(self, person: str) -> wire.Jobs:
        state, now = self._state(), self._clock.now()
        mine = sorted(
            (work for work in state.local.values() if work.job.owner == person), key=lambda work: work.job.job
        )
        left = []
        for each in state.allotments:
            if person in each.users:
                jobs, gpu_h = local_jobs.used(state, state.records, each.policy, now)
                left.append(
                    wire.LeftRow(
                        policy=each.policy,
                        queue=each.queue,
                        jobs=max(0, each.jobs - jobs),
                        gpu_h=max(0.0, each.gpu_h - gpu_h),
                    )
                )
        rows = tuple(_row(work, _record(state, work)) for work in mine)
        return wire.Jobs(rows, tuple(left), state.linked, person)

    def _log(self, work: AdmittedJob, rank: int, offset: int) -> wire.Piece:
        record = _record(self._state(), work)
        over = record is None or record.phase in local_jobs.OVER
        path = self._placements / work.job.placement
        try:
            with opened(path, path / f"rank-{rank}" / "log") as file:
                file.seek(offset)
                data = file.read(wire.LOG_BYTES)
        except FileNotFoundError:
            if over and work.adopted:
                raise NotFound(
                    "its log is at the dispatcher", remedy=f"federator logs {work.job.job}"
                ) from None
            data = b""
        return wire.Piece(data, over and len(data) < wire.LOG_BYTES)


def admissible(request: JobRequest) -> JobSpec:
    """The spec of a job file that a site can run without the dispatcher. Raises `Invalid` for another, naming the field."""
    spec = request.spec
    beyond = {
        "array": bool(request.array),
        "every": request.repeated is not None,
        "after": bool(request.after),
        "deadline": request.deadline_at is not None,
        "max_cost": request.max_cost_usd is not None,
        "team": bool(request.team),
        "notify": bool(request.notify),
        "value": request.value_usd is not None or request.must,
        "placement": msgspec.structs.replace(spec.placement, together=msgspec.UNSET)
        != PlacementConstraints(),
        "checkpoint.uri": spec.checkpoint is not None and bool(spec.checkpoint.uri),
    }
    for field, given in beyond.items():
        if given:
            raise Invalid(
                "is for the dispatcher, which this site cannot reach",
                field=f"$.{field}",
                remedy="leave it out",
            )
    for field, remedy in NOT_HERE:
        if getattr(spec, field):
            raise Invalid("is not admitted by a site that is cut off", field=f"$.{field}", remedy=remedy)
    try:
        refuse_credentials(spec.env)
    except Invalid as found:
        remedy = "leave it out and write it under `secrets`, whose values stay at the site"
        raise Invalid(found.message, field=found.field, remedy=remedy) from None
    if len(_text(spec)) > MOST_SPEC_BYTES:
        raise Invalid(
            f"the job is larger than {MOST_SPEC_BYTES} bytes", field="$", remedy="keep scripts in files"
        )
    return spec


def _text(spec: JobSpec) -> str:
    return encode_spec(spec).decode()


def _name(work: AdmittedJob) -> str:
    return _specs.decode(work.job.spec).name


def _peer(writer: asyncio.StreamWriter) -> int:
    given = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    uid: int = _PEER.unpack(given)[1]
    return uid


def _record(state: State, work: AdmittedJob) -> PlacementRecord | None:
    """What is known of its placement, also of one that is over and that the dispatcher has forgotten."""
    return state.records.get(work.job.placement) or state.over.get(work.job.placement)


def _row(work: AdmittedJob, record: PlacementRecord | None) -> wire.LocalRow:
    verdict = record.verdict if record is not None else None
    over = record is None or record.phase in local_jobs.OVER
    return wire.LocalRow(
        job=work.job.job,
        name=_name(work),
        queue=work.job.queue,
        status=_status(record),
        submitted_at=work.job.submitted_at,
        gpus=work.gpus,
        started_at=record.started_at if record is not None else None,
        ended_at=verdict.ended_at if verdict is not None else None,
        exit_code=verdict.exit_code if verdict is not None else None,
        detail=verdict.detail if verdict is not None else "",
        adopted=work.adopted,
        over=over,
    )


def _status(record: PlacementRecord | None) -> str:
    if record is None:
        return "ENDED"
    if record.verdict is not None and record.phase in local_jobs.OVER:
        return str(record.verdict.status)
    if record.phase is Phase.RUNNING:
        return str(PlacementStatus.RUNNING)
    return "STOPPING" if record.phase in (Phase.STOPPING, Phase.UNSTAGING) else str(PlacementStatus.STARTING)
