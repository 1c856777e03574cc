"""The replicas of services: submitted, drained and cancelled, so that there are as many as their load needs.

A replica's job and its service's row are one transaction, so that no replica is submitted twice and none is forgotten. What is to be done is decided by `federator.model.services`.
"""

import asyncio
import contextlib
import logging
from functools import partial

import msgspec
from msgspec.structs import replace

from federator.control.record.blob_owners import folder_of
from federator.control.record.event_writer import EventWriter
from federator.control.record.records import Changes, Records
from federator.control.submission.acceptance import Acceptance, Submission
from federator.control.submission.intake import Intake
from federator.control.submission.series_owners import SeriesOwners, series_owners
from federator.control.submission.service_loads import Booked
from federator.control.submission.services import Services
from federator.kernel.errors import FederatorError, Forbidden
from federator.kernel.ids import content_hash
from federator.model.jobs import Job
from federator.model.services import Health, Replica, Revision, Service, ended, fault, rolled_back, steps
from federator.telemetry import METRICS
from federator.wire.http import JobAction
from federator.wire.jobfile import JobRequest, read_job

log = logging.getLogger(__name__)

LOOK_S = 2.0
AGAIN_S = 30.0
"""After so long a replica is tried again that was refused."""
AT_ONCE = 10
"""Replicas of one service that one transaction submits."""


class Replicas:
    """Sees to it that every service has the replicas that it wants."""

    def __init__(
        self,
        records: Records,
        event_writer: EventWriter,
        acceptance: Acceptance,
        intake: Intake,
        services: Services,
        absent_s: float | None = None,
    ) -> None:
        """`absent_s`: so long after its owner's last sign-in replicas are submitted; None: nobody signs in but with tokens."""
        self._records = records
        self._event_writer = event_writer
        self._acceptance = acceptance
        self._intake = intake
        self.services = services
        self._absent_s = absent_s
        self._news = asyncio.Event()
        records.subscribe(self._hear)

    def _hear(self, changes: Changes) -> None:
        known = self._records.services
        if any(isinstance(row, Service) for row in changes.rows.values()) or (
            known and any(isinstance(row, Job) for row in changes.rows.values())
        ):
            self._news.set()

    async def run(self) -> None:
        """Look after look: now and then while there are services, and when one or a job has changed."""
        clock = self._event_writer.clock
        while True:
            self._news.clear()
            await self.look()
            wait_s = max(0.01, clock.real_delay_s(LOOK_S)) if self._records.services else None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._news.wait()
                await asyncio.sleep(clock.real_delay_s(LOOK_S / 10))  # what comes together is looked at once

    async def look(self) -> None:
        """See to all services. What is wrong with one holds up no other."""
        now = self._event_writer.clock.now()
        owners = series_owners(self._records, now, self._absent_s)
        for key in tuple(self._records.services):
            try:
                await self._tend(key, owners)
            except FederatorError as error:
                log.warning("service %s: %s", key, error)
            except Exception:
                log.exception("service %s: it is tried again", key)
                METRICS.count("federator_service_faults_total")

    async def _tend(self, key: str, owners: SeriesOwners) -> None:
        service = self._records.services[key]
        folders = await self._acceptance.folders(
            *{folder_of(each.file) for each in (service.revision, service.former) if each is not None}
        )
        cancels: list[str] = []
        booked: list[Booked] = []
        await self._records.transact(partial(self._step, key, owners, folders, cancels, booked))
        for new in booked:
            self.services.load(key).book(new)
        if cancels:
            caller = owners.caller(service)
            await self._intake.verbs.act(caller, JobAction("cancel", tuple(cancels)), cancels)

    def _step(
        self,
        key: str,
        owners: SeriesOwners,
        folders: frozenset[str],
        cancels: list[str],
        booked: list[Booked],
    ) -> Changes:
        """The service as it is now; the jobs of replicas that are started; in `cancels` those that are to be cancelled, in `booked` what the ledger is told of answers."""
        changes, now = Changes(), self._event_writer.clock.now()
        former = service = self._records.services[key]
        standings = self.services.standings(service)
        if wrong := fault(service, standings):
            what = f"roll back service {service.name}: {wrong}"
            self._event_writer.act(changes, "federator", what, queue=service.queue, owner=service.owner)
            service = rolled_back(service, now, wrong)
            standings = self.services.standings(service)
        wanted, because = self.services.scaled(service, standings, now)
        if wanted != service.wanted:
            service = replace(service, wanted=wanted, because=because)
        todo = steps(service, standings, now)
        cancels[:] = todo.cancels
        gone, drains = set(todo.gone), set(todo.drains)
        replicas = tuple(
            replace(each, drained_at=now) if each.job in drains else each
            for each in service.replicas
            if each.job not in gone
        )
        service = replace(service, replicas=replicas)
        for each in standings:
            if each.health is Health.GONE and each.ended:
                service = ended(service, now)
        last = service.deleted and not replicas
        new = self.services.load(key).unbooked(now, last=last)
        booked[:] = [] if new is None else [new]
        if new is not None:
            self._event_writer.act(
                changes,
                "dispatcher",
                f"service {service.name} answered {new.answered} requests, {new.met} of them as its target says",
                queue=service.queue,
                owner=service.owner,
                team=service.team,
                answered=new.answered,
                met=new.met,
            )
        if last:
            changes.deletes.append(f"service/{key}")
            return changes
        if now >= service.again_at:
            service = self._start(changes, service, todo.starts[:AT_ONCE], owners, folders)
        if service != former:
            changes.put(service)
        return changes

    def _start(
        self,
        changes: Changes,
        service: Service,
        starts: tuple[int, ...],
        owners: SeriesOwners,
        folders: frozenset[str],
    ) -> Service:
        """With these replicas submitted, or with what stands in their way."""
        now = self._event_writer.clock.now()
        try:
            for number in starts:
                if shut_out := owners.shut_out(service):
                    raise Forbidden(shut_out)
                revision = service.numbered(number)
                entry = self._acceptance.entry(owners.caller(service), folders)
                request = _request(service, revision, now)
                asked = Submission(
                    request, f"{service.id}:{service.started + 1}", content_hash(revision.file.encode())
                )
                accepted = self._acceptance.accept(changes, entry, asked)
                self._acceptance.write(changes, accepted)
                replica = Replica(accepted.answer.jobs[0], number, service.next_port(revision))
                service = replace(
                    service, replicas=(*service.replicas, replica), started=service.started + 1, said=""
                )
        except FederatorError as error:
            return replace(
                service, said=f"no replica can be submitted: {error.describe()}", again_at=now + AGAIN_S
            )
        return service


def _request(service: Service, revision: Revision, now: float) -> JobRequest:
    """What the next replica asks for."""
    file = msgspec.json.decode(revision.file)
    env = {"PORT": service.next_port(revision), **file.get("env", {})}
    return read_job({**file, "env": env, "name": f"{service.name}-{service.started + 1}"}, now=now)
