"""What people and gateways do with services: apply a file, look, promote, roll back, delete; and tell of the load.

Of an owner there is one service of a name. Its row says what is wanted; the loop in `replicas` sees to it.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from statistics import fmean

import msgspec
from msgspec.structs import replace

from federator.control.administration.visibility import Visibility
from federator.control.record.event_writer import EventWriter
from federator.control.record.holders import Held, holders_of
from federator.control.record.records import Changes, Records
from federator.control.record.shares import Limit, Shares
from federator.control.reports.gpu_use import GpuUses
from federator.control.submission.acceptance import Acceptance
from federator.control.submission.series_owners import listed, named, relations, require_right, signed_in
from federator.control.submission.service_loads import Answers, ServiceLoad
from federator.kernel.errors import Conflict, NotFound, TooMany
from federator.model.identity import Caller
from federator.model.jobs import Job, JobStatus, TerminalReason
from federator.model.rights import MAY_READ
from federator.model.services import (
    STALE_S,
    Health,
    Replica,
    Scaled,
    Service,
    Standing,
    rolled_back,
    scaled,
    scaled_by_use,
    service_key,
    weights,
)
from federator.settings import LimitSettings
from federator.wire.servicefile import ServiceRequest
from federator.wire.services import (
    GatewayReport,
    ReplicaRow,
    Routed,
    RoutedReplica,
    RoutedService,
    ServiceDetail,
    ServiceRow,
)


class Services:
    """Services, as people see and change them, and as gateways do."""

    def __init__(
        self,
        records: Records,
        event_writer: EventWriter,
        acceptance: Acceptance,
        limits: LimitSettings,
        shares: Shares,
        visibility: Visibility,
        gpu_uses: GpuUses,
    ) -> None:
        self._records = records
        self._event_writer = event_writer
        self._acceptance = acceptance
        self.limits = limits
        self._shares = shares
        self._visibility = visibility
        self._gpu_uses = gpu_uses
        self._loads: dict[str, ServiceLoad] = {}

    async def apply(self, caller: Caller, asked: ServiceRequest, *, canary: int = 0) -> ServiceDetail:
        """Begin a service, or give the one of that name another file. What its replicas run is a new revision where it differs; the rest holds at once.

        Raises what is wrong with the file as that of a job, `TooMany`, and `Conflict` where a canary is under way or there is nothing to compare one with.
        """
        key = service_key(caller.name, asked.name)
        folders = await self._acceptance.folders(asked.request.spec.workdir)

        def compute() -> Changes:
            changes = Changes()
            former = self._records.services.get(key)
            job = self._acceptance.prepare(self._acceptance.entry(caller, folders), asked.request)
            # The queue is named, since what the default is may change meanwhile.
            file = {**msgspec.json.decode(asked.revision.file), "queue": job.queue}
            text = msgspec.json.encode(file, order="deterministic").decode()
            asked_for = asked._replace(revision=replace(asked.revision, file=text))
            service = self._applied(caller, former, asked_for, canary, job)
            if service != former:
                changes.put(service)
                self._act(changes, caller, service, f"apply service {service.name}")
            return changes

        await self._records.transact(compute)
        return self.detail(caller, self._records.services[key])

    def _applied(
        self, caller: Caller, former: Service | None, asked: ServiceRequest, canary: int, job: Job
    ) -> Service:
        now = self._event_writer.clock.now()
        if former is None:
            if canary:
                raise Conflict(
                    f"there is no service {asked.name} yet", remedy="apply it without a canary first"
                )
            self._room_for_one(caller.name, job.team)
            self._loads.pop(service_key(caller.name, asked.name), None)
            return Service(
                id=self._event_writer.ids.new("svc"),
                name=asked.name,
                owner=caller.name,
                queue=job.queue,
                team=job.team,
                **signed_in(caller, now),
                scale=asked.scale,
                revision=replace(asked.revision, number=1),
                wanted=asked.scale.least,
                because="it was applied",
                created_at=now,
                changed_at=now,
            )
        if former.deleted:
            raise Conflict(f"service {former.name} is being deleted", remedy="apply it once it is gone")
        submitter = signed_in(caller, former.signed_in_at or now)
        same = replace(former, scale=asked.scale, queue=job.queue, team=job.team, **submitter)
        if replace(asked.revision, number=former.revision.number) == former.revision:
            return same if same != former else former
        if former.canary:
            raise Conflict(
                f"revision {former.revision.number} of {former.name} is a canary",
                remedy=f"federator service promote {former.name}, or rollback, first",
            )
        newest = max(former.revision.number, former.former.number if former.former else 0)
        return replace(
            same,
            revision=replace(asked.revision, number=newest + 1),
            former=former.revision,
            canary=canary,
            fault="",
            failures=0,
            again_at=0.0,
            changed_at=now,
        )

    def _room_for_one(self, owner: str, team: str) -> None:
        most = self.limits.services
        if len(self._records.services) >= most:
            raise TooMany(f"there are {most} services already", retry_after_s=60.0)
        self._shares.refuse_over(
            Limit(Held.SERVICES, most, "limits.services", "delete some"), holders_of(owner, team)
        )

    async def promote(self, caller: Caller, service: Service) -> ServiceDetail:
        """Let the canary take the place of the former revision."""

        def promoted(present: Service, now: float) -> Service:
            if not present.canary:
                raise Conflict(f"{present.name} has no canary", remedy="apply a changed file with --canary")
            return replace(present, canary=0, changed_at=now)

        return await self._change(caller, service, "promote", promoted)

    async def rollback(self, caller: Caller, service: Service) -> ServiceDetail:
        """Return to the former revision."""

        def returned(present: Service, now: float) -> Service:
            if present.former is None:
                raise Conflict(
                    f"{present.name} has no former revision", remedy="apply the file that is wanted"
                )
            return rolled_back(present, now)

        return await self._change(caller, service, "roll back", returned)

    async def delete(self, caller: Caller, service: Service) -> ServiceDetail:
        """End it: its replicas finish what they work on, and are cancelled."""
        return await self._change(
            caller, service, "delete", lambda present, now: replace(present, deleted=True, changed_at=now)
        )

    async def _change(
        self, caller: Caller, about: Service, verb: str, changed: Callable[[Service, float], Service]
    ) -> ServiceDetail:
        require_right(self._acceptance.authority, caller, about)
        key, service = service_key(about.owner, about.name), about

        def compute() -> Changes:
            nonlocal service
            changes, present = Changes(), self._records.services.get(key)
            if present is None:  # its last replica was gone meanwhile
                raise NotFound(f"service {about.name} is gone", remedy="apply its file again")
            service = changed(present, self._event_writer.clock.now())
            if not present.deleted:
                changes.put(service)
                self._act(changes, caller, service, f"{verb} service {service.name}")
            return changes

        await self._records.transact(compute)
        return self.detail(caller, service)

    def _act(self, changes: Changes, caller: Caller, service: Service, what: str) -> None:
        self._event_writer.act(changes, f"user:{caller.name}", what, queue=service.queue, owner=service.owner)

    # -- gateways --------------------------------------------------------------------------------------------------------

    def tell(self, caller: Caller, report: GatewayReport) -> Routed:
        """What a gateway has seen of the caller's services; where it is to send requests from now on. Others' services are not its: only an owner reaches the ports of a job."""
        now = self._event_writer.clock.now()
        own = {each.name: each for each in self._records.services.values() if each.owner == caller.name}
        for seen in report.loads:
            service = own.get(seen.service)
            if service is not None:
                self.load(service_key(service.owner, service.name)).tell(
                    report.gateway, seen, service.scale, now
                )
        return Routed(tuple(self._routed(own[name]) for name in sorted(own)))

    def _routed(self, service: Service) -> RoutedService:
        standings = self.standings(service)
        running = [each for each in standings if each.health not in (Health.WAITING, Health.GONE)]
        active = [each.replica.revision for each in running if each.replica.drained_at is None]
        weight = weights(service, Counter(active))
        scale = service.scale
        return RoutedService(
            name=service.name,
            ready_path=service.revision.ready_path,
            resend=service.revision.resend,
            most=2 * scale.most + scale.surge,
            at_once_each=max(1, round(2 * scale.requests_per_replica)),
            p95_latency_s=scale.p95_latency_s,
            replicas=tuple(
                RoutedReplica(
                    each.replica.job,
                    each.replica.port,
                    weight[each.replica.revision] if each.replica.drained_at is None else 0,
                )
                for each in running
            ),
        )

    def load(self, key: str) -> ServiceLoad:
        """What is known of a service's load."""
        if len(self._loads) > 2 * len(self._records.services) + 10:
            self._loads = {each: load for each, load in self._loads.items() if each in self._records.services}
        return self._loads.setdefault(key, ServiceLoad())

    def scaled(self, service: Service, standings: Sequence[Standing], now: float) -> Scaled:
        """How many replicas are wanted now, and why: the most that requests or the use of GPUs ask for, of what is known."""
        load, scale = self.load(service_key(service.owner, service.name)), service.scale
        by_load = scaled(scale, load.loads, service.wanted, now)
        if scale.gpu_utilisation_percent is None:
            return by_load
        ready = sum(each.health is Health.READY for each in standings)
        if ready and (percent := self._gpu_use(standings)) is not None:
            load.use(percent, ready, scale, now)
        by_use = scaled_by_use(scale, load.uses, service.wanted, now)
        if load.stale(now):
            return by_use
        known = bool(load.uses) and now - load.uses[-1].at <= STALE_S
        return max(by_load, by_use, key=lambda each: each.replicas) if known else by_load

    def _gpu_use(self, standings: Sequence[Standing]) -> float | None:
        """How busy the GPUs of ready replicas are on average, in percent; None: their sites do not say."""
        percents = list[int]()
        for each in standings:
            job = self._records.jobs.get(each.replica.job)
            placement = self._records.placements.get(job.placement or "") if job is not None else None
            if each.health is Health.READY and placement is not None:
                percents += self._gpu_uses.busy(placement)
        return fmean(percents) if percents else None

    def standings(self, service: Service) -> list[Standing]:
        """Its replicas, as they are."""
        return [self._standing(service, each) for each in service.replicas]

    def _standing(self, service: Service, replica: Replica) -> Standing:
        now, job = self._event_writer.clock.now(), self._records.jobs.get(replica.job)
        if job is None or job.terminal:
            reason = job.outcome.reason if job is not None and job.outcome is not None else None
            by_itself = reason not in (None, TerminalReason.CANCELLED, TerminalReason.MAX_DURATION)
            return Standing(replica, Health.GONE, ended=by_itself and replica.drained_at is None)
        placement = self._records.placements.get(job.placement or "")
        if job.status is not JobStatus.RUNNING or placement is None:
            return Standing(replica, Health.WAITING)
        load = self.load(service_key(service.owner, service.name))
        answers = load.answers.get(replica.job, Answers())
        return Standing(
            replica,
            load.health(replica.job, now),
            placement.site,
            placement.price_usd_gpu_h * placement.gpus_per_node * placement.nodes,
            idle=not load.stale(now) and not load.at_once.get(replica.job),
            answered=answers.answered,
            errors=answers.errors,
        )

    # -- what people are shown -------------------------------------------------------------------------------------------

    def find(self, caller: Caller, name: str, owner: str = "") -> Service:
        """A service by its name: the caller's own first. Raises `NotFound`."""
        found = named(self._records.services, self._visibility.of(caller), caller, name, owner)
        if not found:
            raise NotFound(
                f"no service {name!r}", remedy="'federator service list' shows those that there are"
            )
        return found[0]

    def rows(self, caller: Caller, *, mine: bool = False) -> list[ServiceRow]:
        """All services that they are shown, by name."""
        shown = listed(self._records.services, self._visibility.of(caller), caller.name if mine else "")
        return [self.row(each, self.standings(each)) for each in shown]

    def row(self, service: Service, standings: list[Standing]) -> ServiceRow:
        """A line of the list."""
        load = self.load(service_key(service.owner, service.name))
        told = not load.stale(self._event_writer.clock.now())
        because = "deleted: its last replicas finish" if service.deleted else service.said or service.because
        return ServiceRow(
            name=service.name,
            owner=service.owner,
            queue=service.queue,
            revision=service.revision.number,
            canary=service.canary,
            least=service.scale.least,
            most=service.scale.most,
            wanted=0 if service.deleted else service.wanted,
            ready=sum(each.health is Health.READY and each.replica.drained_at is None for each in standings),
            rate=load.rate if told else None,
            p95_s=load.p95_s if told else None,
            gpu_use_percent=self._gpu_use(standings),
            attained=load.attained,
            price_usd_h=sum(each.price_usd_h for each in standings),
            because=because,
        )

    def detail(self, caller: Caller, service: Service) -> ServiceDetail:
        """Everything about one; its file only for those who may read its jobs' logs."""
        standings = self.standings(service)
        may_read = bool(relations(self._acceptance.authority, caller, service) & MAY_READ)
        return ServiceDetail(
            service=self.row(service, standings),
            scale=service.scale,
            port=service.revision.port,
            ready_path=service.revision.ready_path,
            former=None if service.former is None else service.former.number,
            fault=service.fault,
            replicas=tuple(self._replica(each) for each in standings if each.health is not Health.GONE),
            created_at=service.created_at,
            changed_at=service.changed_at,
            file=msgspec.json.decode(service.revision.file) if may_read else None,
        )

    def _replica(self, standing: Standing) -> ReplicaRow:
        job = self._records.jobs[standing.replica.job]
        return ReplicaRow(
            job=job.id,
            name=job.name,
            revision=standing.replica.revision,
            status=str(job.status),
            health=str(standing.health),
            draining=standing.replica.drained_at is not None,
            site=standing.site,
            price_usd_h=standing.price_usd_h,
        )
