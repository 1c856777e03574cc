"""The operator: each object is looked at when it changes, and all that live are mirrored every few seconds from one list per namespace.

Nothing of it is kept: the finalizer and its note are written before the dispatcher is asked, the uid is the client id of the submission and a label of the job.
So an operator that dies anywhere, or a second one beside it, submits nothing twice and leaves no job without its object.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from federator.client import AsyncClient, JobFilter
from federator.kernel.errors import Conflict, FederatorError, Forbidden, NotFound, Permanent, Transient
from federator.kube.api import Api
from federator.model.jobs import TERMINAL, Job, JobStatus
from federator.operator import status as said
from federator.operator.claims import Claims
from federator.operator.cluster import ALL, JobObjects
from federator.operator.events import Events
from federator.operator.objects import (
    NAMESPACE_LABEL,
    UID_LABEL,
    FederatedJob,
    Status,
    without_spec,
)
from federator.operator.policies import PolicyKeeper
from federator.operator.settings import OperatorFile, Tenant
from federator.operator.sites import SiteKeeper
from federator.operator.submissions import Submissions
from federator.operator.tenancy import (
    LISTING_PAUSE,
    REFUSED_AGAIN_S,
    check_queue,
    client_of,
    document_of,
)
from federator.operator.workloads import Workloads
from federator.retry import Backoff
from federator.wire.decoding import decode
from federator.wire.http import JobPatch, JobRow
from federator_agent.kube.informer import Informer

WORKERS = 64
MIRRORS = 8
"""Writes at once of what has become of jobs: what is applied is submitted first."""
AGAIN = Backoff(1.0, 60.0)
FULL_AGAIN_S = 30.0
LIVE = ",".join(each for each in JobStatus if each not in TERMINAL)
log = logging.getLogger("federator.operator")


class Operator:
    """One that works."""

    def __init__(
        self, file: OperatorFile, api: Api, client: Callable[[OperatorFile, Tenant], AsyncClient] = client_of
    ) -> None:
        self._file = file
        self._cluster = JobObjects(api)
        self.events = Events(api)
        self._clients = {name: client(file, tenant) for name, tenant in file.namespaces.items()}
        self._submissions = {name: Submissions(each) for name, each in self._clients.items()}
        self._claims = Claims(file.most, file.namespaces)
        self._workloads = (
            Workloads(file, file.multikueue, api, self._clients, self._submissions, self.events, self._claims)
            if file.multikueue is not None
            else None
        )
        self._keepers: list[PolicyKeeper | SiteKeeper] = []
        if file.policies is not None:
            asking = client(file, Tenant(token_file=file.policies.token_file))
            self._keepers.append(PolicyKeeper(file.policies, api, asking, file.mirror_every))
        if file.sites is not None:
            asking = client(file, Tenant(token_file=file.sites.token_file))
            self._keepers.append(SiteKeeper(file.sites, api, asking, file.mirror_every, file.forecast_every))
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._queued: set[str] = set()
        self._busy: set[str] = set()
        self._failures: dict[str, int] = {}
        self._trouble: dict[str, str] = {}
        """Why the jobs of a namespace cannot be listed: said once, not every few seconds."""
        self._written: dict[str, float] = {}
        """When each object's status was written last, on the monotonic clock."""
        self.jobs: Informer[FederatedJob, FederatedJob] = Informer(
            api, ALL, FederatedJob, lambda job: (job.key, kept(job)), self._changed, skips=True
        )

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.jobs.run())
            for keeper in self._keepers:
                tasks.create_task(keeper.run())
            for name, client in self._clients.items():
                tasks.create_task(self._mirror(name, client))
            tasks.create_task(self.events.run())
            if self._workloads is not None:
                tasks.create_task(self._workloads.run())
            for _ in range(WORKERS):
                tasks.create_task(self._work())

    async def close(self) -> None:
        """Let go of all connections to the dispatcher."""
        for client in self._clients.values():
            await client.close()
        for keeper in self._keepers:
            await keeper.close()

    def _changed(self, key: str, job: FederatedJob | None) -> None:
        claimed = self._claims.objects.get(key.partition("/")[0], set())
        if job is None:
            for known in (self._failures, self._written):
                known.pop(key, None)
            claimed.discard(key)
            return
        (claimed.add if job.claimed else claimed.discard)(key)
        self._put(key)

    def _put(self, key: str) -> None:
        if key not in self._queued:
            self._queued.add(key)
            self._queue.put_nowait(key)

    def _later(self, key: str, after_s: float) -> None:
        asyncio.get_running_loop().call_later(after_s, self._put, key)

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            if key in self._busy:
                self._later(key, 0.1)
                self._queued.discard(key)
                continue
            self._queued.discard(key)
            self._busy.add(key)
            try:
                await self.look_at(key)
            finally:
                self._busy.discard(key)

    async def look_at(self, key: str) -> None:
        """Take one object a step further; what cannot be done now is tried again."""
        job = self.jobs.items.get(key)
        if job is None:
            return
        try:
            await self._step(job)
            self._failures.pop(key, None)
        except Conflict:  # it has changed: the watch brings it anew, and if not, it is looked at again
            self._later(key, 1.0)
        except FederatorError as error:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            asked_s = error.retry_after_s if isinstance(error, Transient) else 0.0
            pause_s = max(asked_s, AGAIN.pause_s(failures))
            log.warning("%s: %s; again in %.0f s", key, error, pause_s)
            self._later(key, pause_s)
        except Exception:
            log.exception("%s: this is a fault of the operator's; the object is looked at again", key)
            self._later(key, AGAIN.longest_s)

    async def _step(self, job: FederatedJob) -> None:
        tenant = self._file.namespaces.get(job.metadata.namespace)
        client = self._clients.get(job.metadata.namespace)
        if tenant is None or client is None:
            await self._unmapped(job)
        elif job.deleted:
            await self._cancel(job, client)
        elif job.status.over:
            await self._cluster.release(job)
        elif not job.status.job:
            await self._submit(job, tenant, client)
        elif job.status.observed_generation != job.metadata.generation:
            await self._change(job, tenant, client)

    async def _unmapped(self, job: FederatedJob) -> None:
        """Nobody has said as whom this namespace submits."""
        message = f"namespace {job.metadata.namespace} is not among those that the operator submits for: ask who runs it to add it"
        if not job.claimed:
            if not job.deleted:
                await self._refuse(job, "NamespaceNotMapped", message)
            return
        if job.deleted:
            message += "; its job cannot be cancelled from here: add the namespace again, or remove the finalizer by hand"
        self.events.tell(job, "NotCancelled", message)

    # Submitting ------------------------------------------------------------------------------------------------------

    async def _submit(self, job: FederatedJob, tenant: Tenant, client: AsyncClient) -> None:
        if self._refused_lately(job):
            return
        ready = job.claimed and job.noted == job.fields
        if job.claimed and not ready and (found := await self._find(job, client)):
            await self._adopt(job, found)
            return
        if not job.claimed and self._claims.full(job.metadata.namespace):
            log.warning("%s waits: as many objects as may be are looked after", job.key)
            self._later(job.key, FULL_AGAIN_S)
            return
        job = await (self._whole(job) if ready else self._cluster.claim(job))
        self.jobs.items[job.key] = without_spec(job)
        try:
            document = document_of(job, tenant)
            name = (await self._submissions[job.metadata.namespace].submit(document)).jobs[0]
            if array := "array" in document:
                name = (await client.job(name)).job.array or name
        except Conflict:
            found = await self._find(job, client)
            if found is None:
                raise
            await self._adopt(job, found)
            return
        except Permanent as error:
            await self._refuse(job, error.code, str(error))
            return
        status = said.submitted(job, name, time.time(), array=array)
        if not await self._write(job, status):
            log.warning("%s is gone; its job %s is cancelled", job.key, name)
            await client.act("cancel", [name])

    async def _whole(self, job: FederatedJob) -> FederatedJob:
        """It with its spec. Raises `Conflict` when the spec is another by now, or it is gone."""
        whole = await self._cluster.look(job)
        if whole is None or whole.fields != job.fields:
            raise Conflict(f"{job.key} has changed")
        return whole

    async def _adopt(self, job: FederatedJob, found: Job) -> None:
        """An operator before this one has submitted it, as it was then, and could not say so any more."""
        status = said.submitted(job, found.array or found.id, time.time(), array=found.array is not None)
        await self._write(job, replace(status, applied=job.noted, observed_generation=0))

    def _refused_lately(self, job: FederatedJob) -> bool:
        if job.status.phase != said.REFUSED or job.status.observed_generation != job.metadata.generation:
            return False
        since_s = self._written.get(job.key)
        return since_s is not None and time.monotonic() - since_s < REFUSED_AGAIN_S - 1.0

    async def _find(self, job: FederatedJob, client: AsyncClient) -> Job | None:
        """Its job at the dispatcher, by its label; None: there is none."""
        page = await client.jobs(JobFilter(mine=True, label=f"{UID_LABEL}={job.metadata.uid}"), limit=1)
        return (await client.job(page.jobs[0].id)).job if page.jobs else None

    async def _refuse(self, job: FederatedJob, reason: str, message: str) -> None:
        """Say so; it is tried again when it changes, and now and then."""
        status = said.refused(job, reason, message, time.time())
        if status != job.status:
            await self._write(job, status)
        else:
            self._written[job.key] = time.monotonic()
        if not job.claimed or not await self._may_be_there(job):
            await self._cluster.release(job)
        self._later(job.key, REFUSED_AGAIN_S)

    async def _may_be_there(self, job: FederatedJob) -> bool:
        client = self._clients.get(job.metadata.namespace)
        return client is not None and await self._find(job, client) is not None

    # Changing and cancelling -----------------------------------------------------------------------------------------

    async def _change(self, job: FederatedJob, tenant: Tenant, client: AsyncClient) -> None:
        """The spec is another: what may be changed in a job is, and of the rest it is said that it is not."""
        job = await self._whole(job)
        names = said.differing(job)
        kept = [name for name in names if name not in said.CHANGEABLE or not _sayable(job, name)]
        wrong = ""
        if kept:
            wrong = f"{', '.join(kept)} cannot be changed after submission: apply it as it was, or delete the object and apply it again"
        wanted = {name: job.spec.get(name) for name in names if name not in kept}
        if "queue" in wanted:
            try:
                check_queue(wanted["queue"], job.metadata.namespace, tenant)
            except Forbidden as error:
                del wanted["queue"]
                wrong = f"{wrong}; {error}".removeprefix("; ")
        applied = dict(job.status.applied)
        if wanted and await self._is_its_own(job, client):
            try:
                (done,) = await client.act("update", [job.status.job], _patch_of(wanted))
            except Permanent as error:
                wrong = f"{wrong}; {error}".removeprefix("; ")
            else:
                if done.changed:
                    now = job.fields
                    applied |= {name: now[name] for name in wanted if name in now}
                    applied = {
                        name: value for name, value in applied.items() if name in now or name not in wanted
                    }
                else:
                    wrong = f"{wrong}; {done.left_because}".removeprefix("; ")
        status = said.in_force(job.status, job.metadata.generation, wrong, time.time())
        await self._write(job, replace(status, applied=applied))
        if wrong:
            self.events.tell(job, "NotChanged", wrong)

    async def _cancel(self, job: FederatedJob, client: AsyncClient) -> None:
        """Somebody deletes the object: its job ends, and the object goes once the dispatcher has noted that."""
        if not job.claimed:
            return
        if not job.status.over:
            name = job.status.job
            if not name or not await self._is_its_own(job, client):
                found = await self._find(job, client)
                name = (found.array or found.id) if found is not None else ""
            if name:
                try:
                    await client.act("cancel", [name])
                    self.events.tell(job, "Cancelled", f"the object was deleted; job {name} is cancelled")
                except NotFound:
                    log.info("%s: its job %s is not on record any more", job.key, name)
        await self._cluster.release(job)

    async def _is_its_own(self, job: FederatedJob, client: AsyncClient) -> bool:
        """Whether the job that the status names is this object's: others may write a status."""
        try:
            if job.status.array:
                labels = (await client.array(job.status.job)).spec.labels
            else:
                labels = (await client.job(job.status.job)).spec.labels
        except NotFound:
            return False
        return labels.get(UID_LABEL) == job.metadata.uid

    # Mirroring -------------------------------------------------------------------------------------------------------

    async def _mirror(self, namespace: str, client: AsyncClient) -> None:
        await self.jobs.synced.wait()
        while True:
            listing_s = await self.mirror_namespace(namespace, client)
            await asyncio.sleep(max(self._file.mirror_every, LISTING_PAUSE * listing_s))

    async def mirror_namespace(self, namespace: str, client: AsyncClient) -> float:
        """Mirror all of them; the seconds that the list of its jobs took."""
        mine = [
            job
            for job in self.jobs.items.values()
            if job.metadata.namespace == namespace
            and job.status.job
            and not job.status.over
            and not job.deleted
        ]
        if not mine:
            return 0.0
        begun_s = time.monotonic()
        try:
            which = JobFilter(mine=True, label=f"{NAMESPACE_LABEL}={namespace}", status=LIVE)
            rows = {row.labels.get(UID_LABEL, ""): row async for row in client.all_jobs(which)}
        except FederatorError as error:
            if self._trouble.get(namespace) != str(error):
                self._trouble[namespace] = str(error)
                log.warning("the jobs of namespace %s cannot be listed: %s", namespace, error)
            return 0.0
        except Exception:
            log.exception(
                "the jobs of namespace %s cannot be listed: this is a fault of the operator's", namespace
            )
            return 0.0
        self._trouble.pop(namespace, None)
        listing_s = time.monotonic() - begun_s
        room = asyncio.Semaphore(MIRRORS)

        async def one(job: FederatedJob) -> None:
            async with room:
                await self._mirror_one(job, rows.get(job.metadata.uid), client)

        await asyncio.gather(*map(one, mine))
        return listing_s

    async def _mirror_one(self, job: FederatedJob, row: JobRow | None, client: AsyncClient) -> None:
        try:
            after = await self._seen(job, row, client)
            now = self.jobs.items.get(job.key)
            if (
                after is None
                or now is None
                or now.metadata.uid != job.metadata.uid
                or now.status != job.status
            ):
                return
            if after == job.status:
                return
            quiet = said.only_forecast_moved(job.status, after)
            if quiet and time.monotonic() - self._written.get(job.key, 0.0) < self._file.forecast_every:
                return
            await self._write(job, after)
        except FederatorError as error:
            log.warning("%s cannot be mirrored: %s", job.key, error)
        except Exception:
            log.exception("%s cannot be mirrored: this is a fault of the operator's", job.key)

    async def _seen(self, job: FederatedJob, row: JobRow | None, client: AsyncClient) -> Status | None:
        """What the dispatcher says of it; None: nothing that could be believed."""
        now = time.time()
        if row is not None and not job.status.array:
            return said.mirrored(job.status, row, now)
        try:
            if job.status.array:
                array = await client.array(job.status.job)
                own = array.spec.labels.get(UID_LABEL) == job.metadata.uid
                return said.mirrored_array(job.status, array, now) if own else None
            detail = await client.job(job.status.job)
        except NotFound:
            return said.forgotten(job.status, now)
        if detail.spec.labels.get(UID_LABEL) != job.metadata.uid:
            log.error("%s names the job %s, which is not its own", job.key, job.status.job)
            return None
        return said.mirrored_whole(job.status, detail, now)

    async def _write(self, job: FederatedJob, status: Status) -> bool:
        """Say it, with an Event where the phase is another. False: the object is gone."""
        now = await self._cluster.say(job, status)
        self._written[job.key] = time.monotonic()
        if now is None:
            return False
        if now.key in self.jobs.items:
            self.jobs.put(now.key, kept(now))
        if status.phase != job.status.phase and status.phase not in said.PASSING:
            where = f" at {status.site}" if status.site else ""
            self.events.tell(
                now,
                status.phase,
                f"job {status.job or 'not submitted'}{where}: {status.message or status.phase}",
            )
        return True


def kept(job: FederatedJob) -> FederatedJob | None:
    """What is remembered of it; None: there is nothing to do for it any more."""
    return None if job.status.over and not job.claimed else without_spec(job)


def _patch_of(wanted: Mapping[str, object]) -> JobPatch:
    """These fields as the dispatcher is told of a change. Raises `Invalid`."""
    words = {
        name: "none" if value is None else value if name == "priority" else str(value)
        for name, value in wanted.items()
    }
    return decode(words, JobPatch, "$")


def _sayable(job: FederatedJob, name: str) -> bool:
    """Whether the job can be told of it: some fields cannot be taken back."""
    return job.spec.get(name) is not None or name in said.REMOVABLE
