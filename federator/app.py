"""The composition root of the server: the one place that names the concrete adapters.

`serve` is the whole life of a dispatcher process: settings in, loops running, a signal, everything closed. A kill at any moment is fine: what was acknowledged
is in the store, and the next start goes on from there.

With a store that several dispatchers share it stands by, leads, and stands by again, always on one port. Everything is built anew for each reign: what a
former leader knew may be wrong in ways that it cannot know. Records are read again and agents open new sessions, so nothing of an older reign can
act in a newer one.
"""

import asyncio
import gc
import logging
import math
import os
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from aiohttp import web

from federator.api.certificate import Certificate
from federator.api.listener import make_connections, serving
from federator.api.server import build_app
from federator.api.standby import build_standby
from federator.assembly import Core, assemble
from federator.config import adapter_of, changed_keys
from federator.control.administration.policy_service import Compiled
from federator.control.administration.user_data import user_data
from federator.control.record.leadership import LedProvider, Reign
from federator.control.record.signer import Signer
from federator.couriers import courier_of_alerts, courier_to
from federator.exporting.address import Address, read_address
from federator.exporting.files import FileTarget
from federator.exporting.syslog import SyslogTarget
from federator.kernel import systemd
from federator.kernel.clock import SystemClock, parse_clock
from federator.kernel.errors import Invalid, Transient
from federator.kernel.quantities import cents_up, parse_instant
from federator.kernel.tasks import cancel_and_wait
from federator.ports import (
    Archive,
    Blobs,
    IdentityProvider,
    LedgerTarget,
    Provider,
    SpanTarget,
    Store,
)
from federator.retry import Backoff, retried
from federator.settings import ReservedSettings, Settings
from federator.solving.child import ChildSolver
from federator.solving.policy_trials import ChildTrials
from federator.store.blobs import FileBlobs
from federator.store.shared import open_bucket, open_shared
from federator.store.sqlite import SqliteStore
from federator.telemetry import configure_logging
from federator_policies.documents import compile_set, load
from federator_providers.limits import LimitedProvider
from federator_providers.reserved import Reservation, ReservedProvider

log = logging.getLogger(__name__)

T = TypeVar("T")
STORE_BACKOFF = Backoff(1.0, 2.0)
"""Between attempts to reach a store that does not answer, in real seconds."""
LOOKOUT_NICENESS = 15
"""Turns go before plans of the whole line."""
GC_THRESHOLD = (20_000, 20, 20)
"""Python's own makes a dispatcher spend a sixth of a large submission on looking for cycles, of which there are next to none."""
THREADS = 64
"""For what blocks on a disk or, with a bucket, on its server."""
SCRATCH = "on-its-way"
"""Folder for blobs that come from or go to a bucket."""
ADDRESS_FILE = "address"
CA_FILE = "ca.pem"
ADMIN_TOKEN_FILE = "admin.token"  # noqa: S105 - the name of a file


async def serve(
    settings: Settings,
    *,
    started: Callable[[str], None] = print,
    read: Callable[[], Settings] | None = None,
) -> None:
    """Run a dispatcher until SIGINT or SIGTERM. `started` is called with the address once it answers for the first time.

    At SIGHUP it reads its certificate again, and by `read` its settings, of which it says what a restart would change.
    """
    configure_logging(level=settings.log_level, as_json=settings.log_format == "json")
    gc.set_threshold(*GC_THRESHOLD)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS, "blocking"))
    stopped = _stop_signals()
    tls = settings.server.tls
    certificate = None if tls is None else Certificate(tls)
    tasks = [asyncio.ensure_future(systemd.beat())]
    if certificate:
        tasks.append(asyncio.ensure_future(certificate.watch()))

    def reload() -> None:
        if certificate:
            certificate.look(asked=True)
        if read:
            _tell_changes(settings, read)

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)
    host = settings.server.host
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, settings.server.port), family=family, backlog=1024)
    process = Dispatcher(settings, listener, stopped, started, certificate)
    try:
        while not stopped.is_set():
            await process.live()
    finally:
        for task in tasks:
            task.cancel()
        listener.close()


class Dispatcher:
    """One process: what all its reigns have in common."""

    def __init__(
        self,
        settings: Settings,
        listener: socket.socket,
        stopped: asyncio.Event,
        started: Callable[[str], None],
        certificate: Certificate | None = None,
    ) -> None:
        self._settings = settings
        self._listener = listener
        self._stopped = stopped
        self._started: Callable[[str], None] | None = started
        self._state_dir = _prepare_state_dir(settings)
        self._clock = parse_clock(settings.clock)
        self._tls = certificate.context if certificate else None
        self._connections = make_connections(settings.connections)
        port = listener.getsockname()[1]
        host = f"[{settings.server.host}]" if ":" in settings.server.host else settings.server.host
        self.address = (
            settings.server.advertise.rstrip("/") or f"http{'s' if certificate else ''}://{host}:{port}"
        )
        self._trouble = ""

    async def live(self) -> None:
        """Live once; with a store that may come back, a failure of it is no end."""
        try:
            await self._live_once()
        except Transient as error:
            if self._settings.store.etcd is None:
                raise
            self._in_trouble(error)
            await asyncio.sleep(STORE_BACKOFF.pause_s(1))

    async def _live_once(self) -> None:
        """Stand by until this dispatcher leads, and lead until its term is lost or it is told to stop."""
        reign: Reign | None = None
        standby = build_standby(lambda: reign.other if reign else None, lambda: self._trouble)
        shared = self._settings.store.etcd is not None
        async with self._answering(standby if shared else None):
            if shared:
                self._say_started()
            opened = await self._until_stopped(self._open())
            if opened is None:
                return
            store, blobs = opened
            reign = self._reign(store)
            if await self._until_stopped(self._take_over(reign)) is None:
                await store.close()
                await asyncio.to_thread(blobs.close)
                return
            solver = ChildSolver(spare=True)
            core = self._assemble(store, blobs, reign, solver)
            try:
                if self._settings.turn.solver:
                    await solver.launch()  # the first job that comes does not wait for its imports
                await self._until_stopped(_start(core), or_lost=reign)
            except BaseException:
                await core.stop()
                raise
        await self._lead(core)

    async def _lead(self, core: Core) -> None:
        # What was read at the start lives for as long as this reign: collections need not go over it again and again.
        gc.freeze()
        try:
            # Before anything is answered: who is told that we are ready finds a token that is valid.
            if core.serving:
                await _introduce(core, self._state_dir, self.address, self._settings.server.ca)
            async with self._answering(build_app(core, self._connections)):
                if core.serving:
                    self._say_started()
                await self._until_stopped(core.reign.lost())
                log.info("stopping: work at sites goes on")
        finally:
            await core.stop()
            gc.unfreeze()

    @asynccontextmanager
    async def _answering(self, app: web.Application | None) -> AsyncIterator[None]:
        """Answer on our port by this application; between two of them connections wait in the port's queue."""
        if app is None:
            yield
            return
        async with serving(app, self._listener, self._connections, self._tls):
            yield

    async def _until_stopped(
        self, doing: Coroutine[None, None, T], *, or_lost: Reign | None = None
    ) -> T | None:
        """Do it, unless a signal, or the end of the term, comes first: None then."""
        task = asyncio.ensure_future(doing)
        ends: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._stopped.wait())]
        if or_lost is not None:
            ends.append(asyncio.ensure_future(or_lost.lost()))
        await asyncio.wait((task, *ends), return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        if task.done():
            return task.result()
        await cancel_and_wait(task)
        return None

    async def _open(self) -> tuple[Store, Blobs]:
        """The store, and what is too large for it. A cluster that does not answer is asked again."""
        etcd, s3, scratch = self._settings.store.etcd, self._settings.store.s3, self._state_dir / SCRATCH
        if etcd is None:
            store = SqliteStore.open(self._state_dir / "store.db", SystemClock())
            if s3 is None:
                return store, FileBlobs(self._state_dir / "blobs")
            try:
                return store, await open_bucket(store, s3, scratch)
            except BaseException:
                await store.close()
                raise
        shared = partial(open_shared, etcd, s3, scratch)
        return await retried(shared, STORE_BACKOFF, on=Transient, failed=self._in_trouble)

    def _reign(self, store: Store) -> Reign:
        etcd = self._settings.store.etcd
        leader = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        if etcd is None:
            return Reign(store, SystemClock(), leader=leader, address=self.address)
        terms = {"term_s": etcd.term_s, "margin_s": etcd.margin_s}
        return Reign(store, SystemClock(), leader=leader, address=self.address, **terms)

    async def _take_over(self, reign: Reign) -> Reign:
        attempts = 1 if self._settings.store.etcd is None else math.inf
        await retried(reign.begin, STORE_BACKOFF, on=Transient, attempts=attempts, failed=self._in_trouble)
        self._trouble = ""
        return reign

    def _in_trouble(self, error: BaseException) -> None:
        if str(error) != self._trouble:
            log.warning("standing by: %s", error)
        self._trouble = str(error)

    def _assemble(self, store: Store, blobs: Blobs, reign: Reign, solver: ChildSolver) -> Core:
        settings = self._settings
        core = assemble(
            settings=settings,
            clock=self._clock,
            store=store,
            blobs=blobs,
            solver=solver,
            lookout=ChildSolver(LOOKOUT_NICENESS, "windows are chosen by the published order"),
            providers={name: self._provider(name, reign) for name in settings.providers},
            compile_policies=_compile,
            user_data=lambda admission: user_data(
                admission, settings, ",".join((self.address, *settings.server.others))
            ),
            reign=reign,
            courier=courier_of_alerts(settings),
            reach=partial(courier_to, settings),
            identity=_identity(settings),
            signer=Signer(self._state_dir),
            trials=ChildTrials(settings.limits),
            archive=_archive(settings, blobs, self._state_dir),
            targets={text: _target(read_address(text)) for text in settings.ledger.export},
        )
        core.spans = _span_target(settings)
        return core

    def _provider(self, name: str, reign: Reign) -> Provider:
        """It acts for the leader only, and not too often; what is reserved there is offered by itself."""
        adapter = adapter_of(name, self._settings, self._clock)
        limited = LimitedProvider(LedProvider(adapter, reign), self._clock)
        reserved = self._settings.providers[name].reserved
        return ReservedProvider(
            limited, self._clock, {offer: terms for each in reserved for offer, terms in _paid(each).items()}
        )

    def _say_started(self) -> None:
        if self._started is not None:
            self._started(self.address)
            systemd.tell(systemd.READY)
            self._started = None


def _prepare_state_dir(settings: Settings) -> Path:
    state_dir = Path(settings.state_dir).expanduser()
    state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    return state_dir


def _stop_signals() -> asyncio.Event:
    """Set by a signal that asks us to end."""
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        asked.set()
        systemd.end_soon()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    return asked


def _tell_changes(settings: Settings, read: Callable[[], Settings]) -> None:
    """Say of the settings as they are written now what this process does not go by."""
    try:
        changed = changed_keys(settings, read())
    except (Invalid, ExceptionGroup) as error:
        faults = error.exceptions if isinstance(error, ExceptionGroup) else (error,)
        for fault in faults:
            log.error("the settings have a mistake, and all goes on as before: %s", fault)  # noqa: TRY400 - told, with the key
        return
    if changed:
        log.warning(
            "changed settings hold after a restart, through which work at sites goes on: %s",
            ", ".join(changed),
        )
    else:
        log.info("the settings are those in force")


async def _start(core: Core) -> None:
    """What this reign writes sorts after what was written before it."""
    await core.reign.order(core.ids)
    await core.start()


async def _introduce(core: Core, state_dir: Path, address: str, ca: str) -> None:
    """Leave what a user of this machine needs to reach us: on the first start the admin's token, then the address.

    The token is on disk before it counts, so that a crash in between locks nobody out; the address comes last: who finds it finds a token
    that is valid.
    """
    if not core.admission.bootstrapped:
        await core.admission.bootstrap_admin(
            lambda secret: _keep_secret(state_dir / ADMIN_TOKEN_FILE, secret)
        )
    _leave_way(state_dir, address, ca)


def _leave_way(state_dir: Path, address: str, ca: str) -> None:
    (state_dir / CA_FILE).unlink(missing_ok=True)
    left = {CA_FILE: Path(ca).read_text()} if ca else {}
    for name, text in (left | {ADDRESS_FILE: address + "\n"}).items():
        draft = state_dir / f"{name}.draft"
        draft.write_text(text)
        draft.rename(state_dir / name)


def _keep_secret(path: Path, secret: str) -> None:
    """Write it for this user's eyes only; whoever looks sees all of it or nothing."""
    draft = path.with_suffix(".draft")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secret + "\n")
    draft.rename(path)


def _compile(text: str) -> Compiled:
    """Policy text into rules, and each document as it was written."""
    documents = load(text)
    return Compiled(tuple(each.stored() for each in documents), compile_set(documents))


def _span_target(settings: Settings) -> SpanTarget | None:
    """Where traces of jobs go, if anywhere."""
    if settings.traces is None:
        return None
    try:
        from federator.exporting.otlp import OtlpSpans  # noqa: PLC0415 - an extra that many dispatchers go without
    except ImportError as error:
        raise Invalid(
            f"{error.name} is not installed", field="$.traces", remedy="pip install federator[traces]"
        ) from error
    return OtlpSpans(settings.traces, settings.federation, version("federator"))


def _target(address: Address) -> LedgerTarget:
    """What keeps the ledger at that address."""
    match address.scheme:
        case "file":
            return FileTarget(Path(address.path))
        case "s3":
            try:
                from federator.exporting.s3 import S3Target  # noqa: PLC0415 - an extra that many dispatchers go without
            except ImportError as error:
                raise Invalid(
                    f"{error.name} is not installed",
                    field="$.ledger.export",
                    remedy="pip install federator[aws]",
                ) from error
            return S3Target(address)
        case _:
            return SyslogTarget(address)


def _paid(reserved: ReservedSettings) -> dict[str, Reservation]:
    """By offer. Cents are rounded so that no more is taken as paid than is."""
    until_at = parse_instant(reserved.until) if reserved.until else None
    takes = {offer: round(100 * cents_up(usd_h)) for offer, usd_h in reserved.offers.items()}
    limit = int(100 * reserved.committed_usd_h + 1e-6) if takes else reserved.machines
    terms = Reservation(limit, reserved.price_usd_h, until_at, takes)
    return dict.fromkeys(takes or [reserved.offer], terms)


def _archive(settings: Settings, blobs: Blobs, state_dir: Path) -> Archive | None:
    """Where jobs that have ended go from memory; None: they stay there until they are dropped."""
    if not settings.retention.recent_jobs:
        return None
    try:
        from federator.archive import ParquetArchive  # noqa: PLC0415 - an extra that small dispatchers go without
    except ImportError:
        log.warning("DuckDB is not installed, so there is no archive: pip install federator[archive]")
        return None
    return ParquetArchive(blobs, state_dir)


def _identity(settings: Settings) -> IdentityProvider | None:
    """The OpenID Connect provider of the settings, if there is one."""
    if settings.oidc is None:
        return None
    try:
        from federator.oidc import OidcKeys  # noqa: PLC0415 - an extra that many dispatchers go without
    except ImportError as error:
        raise Invalid(
            f"{error.name} is not installed", field="$.oidc", remedy="pip install federator[oidc]"
        ) from error
    return OidcKeys(settings.oidc, SystemClock())
