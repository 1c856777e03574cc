"""Users: they submit until they are answered, under one client id, and then change their minds as the plan says."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from federator.kernel.errors import Conflict, FederatorError, Invalid, NotFound, Transient
from federator.model.arrays import Indices
from federator.model.identity import Caller, Role
from federator.model.jobs import Accelerators, Checkpoint, InputFrom, JobSpec, JobStatus, Resources, Retry
from federator.model.series import Overlap, Recurrence
from federator.simulation.virtual_time import ORIGIN_AT
from federator.wire.every import Repeated
from federator.wire.http import JobPatch
from federator.wire.jobfile import JobRequest, read_job, read_job_document
from federator.wire.yamltext import read_document
from tests.lab.faults.data import INPUT, OUTPUT
from tests.lab.faults.dispatchers import Dispatcher
from tests.lab.faults.plan import Deed, JobPlan, SeriesPlan
from tests.lab.faults.scene import Scene

T = TypeVar("T")
AGAIN_S = (1.0, 10.0)
SOON_S = 60.0
"""The first run of a series is due so long after its user thought of it."""
NONSENSE = (
    "",
    "run: [",
    "name: nonsense",
    "run: x\nnodes: -1",
    "run: x\nnodes: 1e99",
    "run: x\nresources: {gpus: 'A100:-3'}",
    "run: x\npriority: 1000",
    "run: x\nqueue: ../../etc",
    "run: x\nafter: [nobody]",
    "run: x\narray: 0-99999999",
    "run: x\nmax_duration: -5s",
    "run: x\non_disconnect: {stop_within: 1s}",
    "run: x\nworkdir: sha256:" + "0" * 64,
    "run: x\nno_such_field: 1",
)
"""Job files that must be refused, and leave nothing."""
USER = Caller(name="user", role=Role.USER)


class Users:
    """All of them, outside of every process that can die."""

    def __init__(
        self,
        scene: Scene,
        dispatchers: Sequence[Dispatcher],
    ) -> None:
        self._network = scene.network
        self._dispatchers = list(dispatchers)
        self._truth = scene.truth
        self._journal = scene.journal
        self._chance = scene.chance("users")
        self.patient = 0
        """Submissions that have not been answered yet."""

    async def submit(self, job: JobPlan) -> None:
        """Submit a job at its time, and see to it afterwards."""
        await asyncio.sleep(job.submit_s)
        self.patient += 1
        request = request_of(job, ORIGIN_AT + asyncio.get_running_loop().time())
        if job.reads:
            request = _reading(request, await self._id_of(job.reads))

        async def ask(server: Dispatcher) -> tuple[str, ...]:
            core = server.serving()
            answer = await core.intake.submit(USER, request, client_id=job.name, body_hash=job.name)
            return answer.jobs

        try:
            ids = await self.ask(ask)
        except Invalid as error:  # it came when the one that it reads had ended, and left nothing
            if not job.reads:
                raise
            self._journal.note("user", f"{job.name} is refused: {error.message[:60]}")
            return
        finally:
            self.patient -= 1
        self._journal.note("user", f"{job.name} is accepted: {', '.join(each[-6:] for each in ids)}")
        for job_id in ids:
            self._truth.accepted[job_id] = job
        for deed in job.deeds:
            self._network.loop.create_task(self._do(self._chance.choice(ids), deed))

    async def _id_of(self, name: str) -> str:
        """Of a job, once it is accepted."""
        while True:
            for job_id, plan in self._truth.accepted.items():
                if plan.name == name:
                    return job_id
            await asyncio.sleep(SOON_S)

    async def submit_series(self, series: SeriesPlan) -> None:
        """Submit a job that comes again and again, and see to it afterwards."""
        await asyncio.sleep(series.job.submit_s)
        request = _repeated(series, ORIGIN_AT + asyncio.get_running_loop().time() + SOON_S)
        self.patient += 1
        try:
            await self._give_series(series.job.name, request)
        finally:
            self.patient -= 1
        for deed in series.deeds:
            self._network.loop.create_task(self._do_to_series(series.job.name, deed, request))

    async def _give_series(self, name: str, request: JobRequest) -> None:
        try:
            await self.ask(partial(_submit_series, request))
            self._journal.note("user", f"series {name} is accepted")
        except Invalid as error:  # it took so long that no time is left for a run
            self._journal.note("user", f"series {name} is refused: {error.message[:60]}")

    async def _do_to_series(self, name: str, deed: Deed, request: JobRequest) -> None:
        await asyncio.sleep(deed.after_s)
        if deed.verb == "again":
            await self._give_series(name, request)
        else:
            await self._change_series(name, deed.verb)

    async def _change_series(self, name: str, verb: str) -> None:
        async def ask(server: Dispatcher) -> str:
            desk = server.serving().series
            change = {"pause": desk.pause, "resume": desk.resume, "end": desk.end}[verb]
            return (await change(USER, desk.find(USER, name))).series.status

        try:
            self._journal.note("user", f"{verb} series {name}: {await self.ask(ask)}")
        except (Conflict, NotFound) as error:
            self._journal.note("user", f"{verb} series {name}: {error.message[:60]}")

    async def ask(self, ask: Callable[[Dispatcher], Awaitable[T]]) -> T:
        """Of whoever leads, again and again until there is an answer. Raises what the answer is."""
        number = 0
        while True:
            server = self._dispatchers[number % len(self._dispatchers)]
            try:
                return await self._network.ask("user", server, partial(ask, server))
            except Transient:
                number += 1
            await asyncio.sleep(self._chance.uniform(*AGAIN_S))

    async def submit_nonsense(self) -> None:
        """Something that no dispatcher may take, as text or as a request that asks for too much."""
        text = self._chance.choice(NONSENSE)
        refused: list[bool] = []

        async def ask(server: Dispatcher) -> None:
            core = server.serving()
            try:
                request = read_job_document(read_document(text), now=core.clock.now())
                await core.intake.submit(USER, request, client_id=None, body_hash="nonsense")
            except Transient:
                raise
            except FederatorError:
                refused.append(True)

        await self.ask(ask)
        if not refused:
            self._truth.find(12, f"this was accepted: {text[:80]!r}")

    async def release_all(self) -> None:
        """Nothing is to stay held or paused: see what is, and release it."""
        held = [name for name, job in self._truth.rows.jobs.items() if job.status is JobStatus.HELD]
        for name in held:
            await self.change(name, "release")
        paused = [each.name for each in self._truth.rows.series.values() if each.paused_by]
        for name in paused:
            await self._change_series(name, "resume")

    async def _do(self, job_id: str, deed: Deed) -> None:
        await asyncio.sleep(deed.after_s)
        await self.change(job_id, deed.verb)

    async def change(self, job_id: str, verb: str) -> None:
        """Do that to a job, whatever the answer is."""

        async def ask(server: Dispatcher) -> str:
            core = server.serving()
            intake = core.intake
            match verb:
                case "cancel":
                    job = await intake.cancel(USER, job_id)
                case "hold" | "release" | "requeue":
                    job = await intake.act_on_one(USER, verb, job_id)
                case _:
                    job = await intake.update(USER, job_id, JobPatch(priority=self._chance.randint(0, 100)))
            return str(job.status)

        try:
            status = await self.ask(ask)
        except (Conflict, NotFound) as error:
            self._journal.note("user", f"{verb} {job_id[-6:]}: {error.message[:60]}")
        except FederatorError as error:
            self._truth.find(12, f"{verb} {job_id} is answered with {error!r}")
        else:
            self._journal.note("user", f"{verb} {job_id[-6:]}: {status}")


async def _submit_series(request: JobRequest, server: Dispatcher) -> None:
    await server.serving().intake.submit(USER, request, client_id=None, body_hash="")


def _repeated(series: SeriesPlan, start_at: float) -> JobRequest:
    every = Recurrence(
        interval_s=series.every_s,
        start_at=start_at,
        end_at=start_at + series.times * series.every_s,
        overlap=Overlap(series.overlap),
    )
    job = series.job
    file = {
        "name": job.name,
        "run": "true",
        "resources": {"gpus": job.gpus},
        "max_duration": f"{job.max_duration_s:.0f}s",
    }
    request = read_job(file, now=start_at)
    return replace(request, repeated=Repeated(every, msgspec.json.encode(file).decode()))


def _reading(request: JobRequest, source: str) -> JobRequest:
    spec = replace(request.spec, inputs_from=(InputFrom(job=source, name=INPUT),))
    return replace(request, spec=spec, after=(source,))


def request_of(job: JobPlan, now_at: float) -> JobRequest:
    """What a user writes for it."""
    spec = JobSpec(
        name=job.name,
        run="true",
        nodes=job.nodes,
        resources=Resources(gpus=Accelerators(count=job.gpus), cpus_milli=1000, memory_mib=1000),
        estimate_s=job.estimate_s,
        checkpoint=Checkpoint(grace_s=job.grace_s) if job.checkpoints or job.grace_s != 30.0 else None,
        retry=Retry(on=("preemption", "error"), max=job.retries, backoff_s=30.0) if job.retries else Retry(),
    )
    if job.output_bytes:
        spec = replace(spec, outputs=(OUTPUT,))
    if job.stop_within_s is not None:
        spec = replace(spec, stop_within_s=job.stop_within_s)
    return JobRequest(
        spec=spec,
        queue=job.queue,
        priority=job.priority,
        deadline_at=None if job.deadline_s is None else now_at + job.deadline_s,
        max_duration_s=job.max_duration_s,
        array=Indices.of(range(job.tasks)),
    )
