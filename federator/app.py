"""The composition root of the server: the one place that names the concrete adapters.

`serve` is the whole life of a dispatcher process: settings in, loops running, a signal, everything closed. A kill at any moment is fine: what was acknowledged
is in the store, and the next start goes on from there.
"""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import msgspec
from aiohttp import web

from federator.api.server import build_app
from federator.assembly import Core, assemble
from federator.control.admission import Admission
from federator.control.desk import Compiled
from federator.control.executor import UserData
from federator.control.observation import RENTED_POOL
from federator.kernel.clock import Clock, SystemClock, parse_clock
from federator.kernel.errors import Invalid
from federator.kernel.quantities import format_mib
from federator.model.capacity import Lease
from federator.model.sites import SiteKind
from federator.ports import Provider
from federator.settings import Settings
from federator.solving.child import ChildSolver
from federator.store.blobs import FileBlobs
from federator.store.sqlite import SqliteStore
from federator.telemetry import configure_logging
from federator_policies.documents import compile_set, load
from federator_providers.limits import LimitedProvider

log = logging.getLogger(__name__)

ADDRESS_FILE = "address"
ADMIN_TOKEN_FILE = "admin.token"  # noqa: S105 - the name of a file


async def serve(settings: Settings, *, started: Callable[[str], None] = print) -> None:
    """Run a dispatcher until SIGINT or SIGTERM. `started` is called with the address once it answers."""
    configure_logging(level=settings.log_level)
    state_dir = _prepare_state_dir(settings)
    clock = parse_clock(settings.clock)
    listener = socket.create_server((settings.server.host, settings.server.port), backlog=1024)
    address = f"http://{settings.server.host}:{listener.getsockname()[1]}"
    core = assemble(
        settings=settings,
        clock=clock,
        store=SqliteStore.open(state_dir / "store.db", SystemClock()),
        blobs=FileBlobs(state_dir / "blobs"),
        solver=ChildSolver(),
        providers={name: _provider(name, settings, clock) for name in settings.providers},
        compile_policies=_compile,
        user_data=lambda admission: _user_data(admission, settings, address),
    )
    await core.start()
    runner = web.AppRunner(build_app(core), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    await web.SockSite(runner, listener).start()
    await _introduce(core, state_dir, address)
    started(address)
    try:
        await _stopped()
    finally:
        log.info("stopping: work at sites goes on")
        await runner.cleanup()
        await core.stop()


def _prepare_state_dir(settings: Settings) -> Path:
    state_dir = Path(settings.state_dir).expanduser()
    state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    return state_dir


async def _stopped() -> None:
    """Wait for a signal that asks us to end."""
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked.set)
    await asked.wait()


async def _introduce(core: Core, state_dir: Path, address: str) -> None:
    """Leave what a user of this machine needs to reach us: on the first start the admin's token, then the address.

    The token is on disk before it counts, so that a crash in between locks nobody out; the address comes last: who finds it finds a token
    that is valid.
    """
    if not core.admission.bootstrapped:
        await core.admission.bootstrap_admin(
            lambda secret: _keep_secret(state_dir / ADMIN_TOKEN_FILE, secret)
        )
    draft = state_dir / f"{ADDRESS_FILE}.draft"
    draft.write_text(address + "\n")
    draft.rename(state_dir / ADDRESS_FILE)


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


def _provider(name: str, settings: Settings, clock: Clock) -> Provider:
    """The adapter that an entry point of group `federator.providers` names."""
    given = settings.providers[name]
    found = {point.name: point for point in entry_points(group="federator.providers")}
    if given.type not in found:
        raise Invalid(
            f"no provider type {given.type!r}",
            field=f"$.providers.{name}.type",
            remedy=f"types are: {', '.join(sorted(found))}",
        )
    return LimitedProvider(found[given.type].load()(name, given.settings, clock), clock)


def _user_data(admission: Admission, settings: Settings, address: str) -> UserData:
    """What a rented instance is started with: where to dial, what it is, and a one-time token. A secret."""

    async def make(lease: Lease) -> str:
        given = settings.providers[lease.provider]
        offer = lease.offer
        secret = await admission.make_join_token(
            given.site,
            SiteKind.CLOUD,
            region=offer.region,
            provider=lease.provider,
            lease=lease.id,
            member=lease.member,
            expires_in_s=offer.delay_s + settings.leases.join_within_s,
        )
        pool = {
            "name": RENTED_POOL,
            "model": offer.model,
            "gpu_memory": format_mib(offer.gpu_memory_mib),
            "nodes": 1,
            "gpus_per_node": offer.gpus,
            "cpus_per_node": offer.cpus_milli // 1000,
            "memory_per_node": format_mib(offer.memory_mib),
        }
        return _yaml(
            {
                "dispatcher": address,
                "join_token": secret,
                "clock": settings.clock,
                "site": given.site,
                "member": lease.member,
                "kind": str(SiteKind.CLOUD),
                "region": offer.region,
                "labels": given.labels,
                "report_every": f"{settings.link.report_every_s:g}s",
                "pools": [pool],
            }
        )

    return make


def _yaml(document: dict[str, object]) -> str:
    """JSON is YAML."""
    return msgspec.json.encode(document).decode() + "\n"
