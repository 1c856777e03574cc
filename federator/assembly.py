"""Wires the control loops from ports. Imports no adapter: production and the simulator both build their dispatcher here.

Read it to see what a dispatcher consists of; the order of construction is the order of dependence.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from federator.control.administration.admission import Admission
from federator.control.administration.archive_search import ArchiveSearch
from federator.control.administration.authority import AuthorityInForce
from federator.control.administration.policy_service import Compile, PolicyService
from federator.control.administration.sign_in import SignIn
from federator.control.administration.sites import Sites
from federator.control.administration.tunnels import TunnelService
from federator.control.administration.visibility import Visibility
from federator.control.leases.executor import Executor, UserData
from federator.control.leases.rented_sites import check_rented_sites, rented_sites
from federator.control.maintenance.archive_writer import ArchiveWriter
from federator.control.maintenance.ledger_export import LedgerExport
from federator.control.maintenance.reconciliation import Reconciliation
from federator.control.maintenance.retention import Retention
from federator.control.maintenance.sweeper import Sweeper
from federator.control.messages.alerts import Alerts
from federator.control.messages.job_traces import JobTraces
from federator.control.messages.notifications import Notifications, Reach
from federator.control.messages.platform_alerts import PlatformAlerts
from federator.control.queries.expectations import Expectations
from federator.control.queries.explanations import Explainer
from federator.control.queries.policy_replays import PolicyReplays
from federator.control.queries.recorded_load import Recorded
from federator.control.queries.timetables import Timetables
from federator.control.queries.views import Views
from federator.control.record.archived_jobs import ArchivedJobs
from federator.control.record.chain import Chain
from federator.control.record.decisions import DecisionLog
from federator.control.record.event_writer import EventWriter
from federator.control.record.leadership import Reign
from federator.control.record.records import Records
from federator.control.record.shares import Shares
from federator.control.record.signer import Signer
from federator.control.reports.fencing import Fences
from federator.control.reports.history import KEPT, History
from federator.control.reports.inventory import Inventory
from federator.control.reports.statuses import StatusHandler
from federator.control.submission.acceptance import Acceptance
from federator.control.submission.intake import Intake
from federator.control.submission.local_jobs import LocalJobIntake
from federator.control.submission.past_work import PastWork
from federator.control.submission.replicas import Replicas
from federator.control.submission.series import SeriesService
from federator.control.submission.series_runs import SeriesRuns
from federator.control.submission.services import Services
from federator.control.turns.committer import Committer
from federator.control.turns.lookouts import Certificates, Lookouts
from federator.control.turns.observation import Observer
from federator.control.turns.set_aside import SetAside
from federator.control.turns.turn import Turn
from federator.hub import Hub
from federator.kernel.clock import Clock
from federator.kernel.errors import Damaged, NotFound, Unavailable
from federator.kernel.ids import IdSource
from federator.kernel.tasks import cancel_and_wait
from federator.ports import (
    Archive,
    Blobs,
    Courier,
    IdentityProvider,
    LedgerTarget,
    Lookout,
    PolicyTrials,
    Provider,
    Solver,
    SpanTarget,
    Store,
)
from federator.retry import supervise
from federator.settings import Settings

log = logging.getLogger(__name__)

OLDER_RUNS, PORTION = 5_000, 100
"""Most jobs of the archive that run times are learned from at start, and so many at once."""


@dataclass
class Core:
    """A dispatcher without its faces: what the API and the hub talk to."""

    settings: Settings
    clock: Clock
    ids: IdSource
    records: Records
    reign: Reign
    blobs: Blobs
    chain: Chain
    inventory: Inventory
    intake: Intake
    series: SeriesService
    series_runs: SeriesRuns
    replicas: Replicas
    progress: StatusHandler
    sites: Sites
    views: Views
    policy_service: PolicyService
    policy_replays: PolicyReplays
    tunnels: TunnelService
    admission: Admission
    authority: AuthorityInForce
    visibility: Visibility
    decisions: DecisionLog
    hub: Hub
    turn: Turn
    executor: Executor
    fences: Fences
    reconciliation: Reconciliation
    sweeper: Sweeper
    alerts: Alerts
    notifications: Notifications
    solver: Solver
    lookouts: Lookouts
    certificates: Certificates
    providers: dict[str, Provider]
    history: History
    recorded: Recorded
    timetables: Timetables
    sign_in: SignIn
    exports: tuple[LedgerExport, ...] = ()
    spans: SpanTarget | None = None
    """Where traces of jobs go; None: nowhere."""
    ready: bool = False
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def services(self) -> Services:
        """Services, as people and gateways see and change them."""
        return self.replicas.services

    @property
    def serving(self) -> bool:
        """Whether people and agents are answered: everything is read, and the term holds at this moment."""
        return self.ready and self.reign.holds

    async def start(self) -> None:
        """Take over, unless that is done, read everything, and let the loops run."""
        if not self.reign.holds:
            await self.reign.begin()
        self._tasks.append(asyncio.create_task(self.reign.keep(), name="reign"))
        if self.sign_in.identity is not None:
            keys = supervise("sign-in keys", self.sign_in.identity.run)
            self._tasks.append(asyncio.create_task(keys, name="sign-in keys"))
        self.records.lead(self.reign)
        await self.records.load()
        check_rented_sites(self.records, self.settings.providers)
        await self.sweeper.retention.archive.begin()
        await self.chain.begin()
        self._tasks.append(asyncio.create_task(supervise("ledger", self.chain.run), name="ledger"))
        for export in self.exports:
            name = f"export of the ledger to {export.name}"
            self._tasks.append(asyncio.create_task(supervise(name, export.run), name=name))
        await self.decisions.load_index()
        self.history.load(self.records)
        self._tasks.append(asyncio.create_task(self.learn_older(), name="history"))
        log.info(
            "term %d: %d jobs, %d of them open",
            self.reign.number,
            len(self.records.jobs),
            len(self.records.open_jobs),
        )
        self.fences.begin()
        self.hub.start(term=self.reign.number)
        self.records.subscribe(self.turn.occasion.note)
        self.records.subscribe(self.notifications.note)
        if self.spans is not None and self.settings.traces is not None:
            traces = JobTraces(self.records, self.clock, self.spans, share=self.settings.traces.share)
            self.records.subscribe(traces.note)
        self.alerts.subscribe(self.notifications.note_alert)
        self.inventory.subscribe(self.turn.occasion.hear)
        for subscribe in (self.records.subscribe, self.inventory.subscribe):
            subscribe(self.executor.wake)
        if self.reconciliation.on:
            self.hub.quiet = True
            first = supervise("reconciling", self._reconcile)
            self._tasks.append(asyncio.create_task(first, name="reconciling"))
        else:
            self._act()
        self.ready = True

    def _act(self) -> None:
        for name, loop in (
            ("turn", self.turn.run),
            ("lookouts", self.lookouts.run),
            ("certificates", self.certificates.run),
            ("executor", self.executor.run),
            ("fences", self.fences.run),
            ("sweeper", self.sweeper.run),
            ("alerts", self.alerts.run),
            ("notifications", self.notifications.run),
            ("series", self.series_runs.run),
            ("services", self.replicas.run),
            ("expansion of arrays", self.intake.expansion.run),
            ("last use of tokens", self.sign_in.run),
        ):
            self._tasks.append(asyncio.create_task(supervise(name, loop), name=name))

    async def learn_older(self) -> None:
        """Learn from the archive as it is now: what ends from here on is learned as it ends."""
        archived = self.views.search.archived
        try:
            jobs = await archived.runs(archived.parts(), KEPT, OLDER_RUNS)
        except (NotFound, Damaged, Unavailable) as error:
            log.warning("run times of jobs in the archive are not learned from: %s", error)
            return
        for start in range(0, len(jobs), PORTION):
            self.history.learn_older(jobs[start : start + PORTION], self.records)
            await asyncio.sleep(0)

    async def _reconcile(self) -> None:
        """Hear everybody; only then tell anybody what to do, and do anything."""
        await self.reconciliation.finish()
        self.fences.begin()
        self.hub.quiet = False
        self._act()

    async def stop(self) -> None:
        """End the loops, then the term, and release what they hold. Work at sites goes on."""
        self.ready = False
        await cancel_and_wait(*self._tasks)
        await self.hub.close()
        await self.solver.close()
        await self.lookouts.close()
        for provider in self.providers.values():
            await provider.close()
        if self.views.search.archived.archive is not None:
            await asyncio.to_thread(self.views.search.archived.archive.close)
        await self.reign.resign()
        await self.records.store.close()
        if self.spans is not None:
            await self.spans.close()
        await asyncio.to_thread(self.blobs.close)


def assemble(  # noqa: PLR0913 - the parts of a dispatcher, by name
    *,
    settings: Settings,
    clock: Clock,
    store: Store,
    blobs: Blobs,
    solver: Solver,
    providers: dict[str, Provider],
    compile_policies: Compile,
    user_data: Callable[[Admission], UserData],
    ids: IdSource | None = None,
    reign: Reign | None = None,
    courier: Courier | None = None,
    reach: Reach = lambda _person, _own: None,
    lookout: Lookout | None = None,
    signer: Signer | None = None,
    identity: IdentityProvider | None = None,
    targets: Mapping[str, LedgerTarget] = MappingProxyType({}),
    trials: PolicyTrials | None = None,
    archive: Archive | None = None,
) -> Core:
    """A dispatcher from its parts, not yet started. Without a `lookout`, windows of long lines are chosen by the published order."""
    ids, records = ids or IdSource(clock), Records(store)
    writer, history = EventWriter(clock, ids), History(corrects=settings.turn.learn)
    shares, chain = Shares(records.held_counts, settings.limits), Chain(records, clock, signer or Signer())
    inventory = Inventory(clock, settings.link, settings.limits, records)
    observer = _observer(settings, records, inventory, history, clock, SetAside(records, writer))
    progress = StatusHandler(records, blobs, writer, history, inventory.measurements)
    decisions = DecisionLog(records, settings.retention, solver)
    exports = tuple(LedgerExport(records, chain, clock, name, target) for name, target in targets.items())
    search = ArchiveSearch(ArchivedJobs(records, archive if settings.retention.recent_jobs else None))
    older = ArchiveWriter(records, search.archived, blobs, ids)
    retention = Retention(records, blobs, decisions, clock, settings.retention, chain, shares, older)
    visibility = Visibility(records, AuthorityInForce(records), by_team=settings.visibility.jobs == "team")
    notifications = Notifications(records, writer, settings.notifications, reach)
    acceptance = Acceptance(
        records, writer, blobs, settings.limits, retention, shares, visibility, notifications.reachable
    )
    admission = Admission(records, clock, ids, settings.tokens.lifetime_s, rented_sites(settings.providers))
    absent_s = settings.oidc.absent_s if settings.oidc is not None else None
    turn = _turn(settings, records, observer, writer, solver, decisions, ids)
    series = SeriesService(records, writer, acceptance, settings.limits, shares, visibility, absent_s)
    services = Services(records, writer, acceptance, settings.limits, shares, visibility, inventory.gpu_uses)
    intake = Intake(records, writer, acceptance, series, PastWork(records, search, visibility))
    expectations, most = Expectations(records, observer.jobs, clock), settings.limits.policy_replay_jobs
    explainer = Explainer(records, observer, turn, acceptance, decisions, inventory, expectations)
    reconciliation = Reconciliation(records, writer, inventory, progress, providers, settings.federation)
    recorded = Recorded(records, inventory, history, settings.providers, search.archived)
    policies = PolicyService(records, writer, compile_policies)
    return Core(
        settings=settings,
        clock=clock,
        ids=ids,
        records=records,
        reign=reign or Reign(store, clock, leader=settings.federation),
        blobs=blobs,
        chain=chain,
        inventory=inventory,
        intake=intake,
        series=series,
        series_runs=SeriesRuns(records, writer, acceptance, intake, absent_s),
        replicas=Replicas(records, writer, acceptance, intake, services, absent_s),
        progress=progress,
        sites=Sites(records, writer, inventory, progress),
        views=_views(records, inventory, observer, turn, explainer, writer, series, visibility, search),
        policy_service=policies,
        policy_replays=PolicyReplays(recorded, policies, trials, clock, most_jobs=most),
        tunnels=TunnelService(records, writer),
        admission=admission,
        authority=visibility.authority,
        visibility=visibility,
        decisions=decisions,
        hub=_hub(settings, records, writer, admission, inventory, reconciliation, visibility, ids),
        turn=turn,
        executor=_executor(settings, records, writer, inventory, progress, providers, user_data(admission)),
        fences=Fences(records, inventory, progress, clock, look_s=settings.link.look_s),
        reconciliation=reconciliation,
        sweeper=_sweeper(settings, records, writer, inventory, providers, retention),
        alerts=_alerts(settings, records, writer, turn, chain, exports, courier, inventory, observer),
        notifications=notifications,
        solver=solver,
        lookouts=Lookouts(observer, lookout),
        certificates=Certificates(turn, decisions, lookout, settings.turn.certify_every),
        providers=providers,
        history=history,
        timetables=Timetables(records, turn, decisions),
        recorded=recorded,
        sign_in=SignIn(admission, settings.oidc, identity),
        exports=exports,
    )


def _turn(
    settings: Settings,
    records: Records,
    observer: Observer,
    event_writer: EventWriter,
    solver: Solver,
    decisions: DecisionLog,
    ids: IdSource,
) -> Turn:
    return Turn(
        records=records,
        observer=observer,
        committer=Committer(records, observer, event_writer),
        event_writer=event_writer,
        solver=solver,
        decisions=decisions,
        clock=event_writer.clock,
        ids=ids,
        settings=settings.turn,
    )


def _alerts(  # noqa: PLR0913, PLR0917 - what it joins
    settings: Settings,
    records: Records,
    event_writer: EventWriter,
    turn: Turn,
    chain: Chain,
    exports: tuple[LedgerExport, ...],
    courier: Courier | None,
    inventory: Inventory,
    observer: Observer,
) -> Alerts:
    return Alerts(
        records=records,
        event_writer=event_writer,
        turn=turn,
        settings=settings.alerts,
        chain=chain,
        exports=exports,
        courier=courier,
        measurements=inventory.measurements,
        platform=PlatformAlerts(records, inventory, settings.alerts, observer.jobs.eligible),
    )


def _hub(  # noqa: PLR0913, PLR0917 - what it joins
    settings: Settings,
    records: Records,
    event_writer: EventWriter,
    admission: Admission,
    inventory: Inventory,
    reconciliation: Reconciliation,
    visibility: Visibility,
    ids: IdSource,
) -> Hub:
    return Hub(
        records=records,
        admission=admission,
        inventory=inventory,
        progress=reconciliation,
        local_jobs=LocalJobIntake(records, event_writer, inventory, lambda: visibility.authority.now),
        settings=settings.link,
        ids=ids,
        trace_share=settings.traces.share if settings.traces is not None else 0.0,
    )


def _observer(
    settings: Settings,
    records: Records,
    inventory: Inventory,
    history: History,
    clock: Clock,
    aside: SetAside,
) -> Observer:
    return Observer(
        records,
        inventory,
        history,
        clock,
        settings.providers,
        aside,
        reconnect_s=settings.link.unreachable_after_s,
        slack_s=settings.leases.slack_s,
        window=settings.turn.window,
    )


def _views(  # noqa: PLR0913, PLR0917 - what it joins
    records: Records,
    inventory: Inventory,
    observer: Observer,
    turn: Turn,
    explainer: Explainer,
    event_writer: EventWriter,
    series: SeriesService,
    visibility: Visibility,
    search: ArchiveSearch,
) -> Views:
    views = Views(
        records=records,
        inventory=inventory,
        observer=observer,
        turn=turn,
        explainer=explainer,
        expectations=explainer.expectations,
        event_writer=event_writer,
        series=series,
        visibility=visibility,
        search=search,
    )
    search.archived.summary = views.summary
    return views


def _executor(
    settings: Settings,
    records: Records,
    event_writer: EventWriter,
    inventory: Inventory,
    progress: StatusHandler,
    providers: dict[str, Provider],
    user_data: UserData,
) -> Executor:
    return Executor(
        records=records,
        event_writer=event_writer,
        inventory=inventory,
        progress=progress,
        providers=providers,
        user_data=user_data,
        federation=settings.federation,
        settings=settings.leases,
    )


def _sweeper(
    settings: Settings,
    records: Records,
    event_writer: EventWriter,
    inventory: Inventory,
    providers: dict[str, Provider],
    retention: Retention,
) -> Sweeper:
    return Sweeper(
        records=records,
        event_writer=event_writer,
        inventory=inventory,
        providers=providers,
        federation=settings.federation,
        retention=retention,
        sweep_s=settings.retention.sweep_s,
    )
