"""Sites as objects of the cluster: each site has a `FederatedSite`, whose status says how it is, and whose spec may say whether it is drained.

The operator makes an object for each site that has none, with nothing in its spec: such an object says, and asks for nothing. What people do to a site by other means stays
as it is, unless the spec of its object says `drained`: that is kept so, as GitOps keeps what it has applied. An object that the operator has made goes with its site;
one that says something stays, since people want it.
"""

import asyncio
import logging
import math
import re
import time
from collections.abc import Awaitable, Iterable
from typing import Annotated

import msgspec
from msgspec.structs import replace

from federator.client import AsyncClient
from federator.kernel.errors import Conflict, FederatorError, Invalid, NotFound, Permanent
from federator.kube.api import Api
from federator.model.sites import SiteStatus as Health
from federator.operator.cluster import write_status
from federator.operator.objects import API_VERSION, GROUP, ClusterMeta, Condition, Judged, Struct, digest
from federator.operator.settings import Sites
from federator.operator.status import LONGEST, conditioned, in_force, instant
from federator.operator.tenancy import LISTING_PAUSE, REFUSED_AGAIN_S
from federator.wire import fields
from federator.wire.http import MemberRow, SiteRow
from federator_agent.kube.informer import Informer

KIND, PLURAL, SHORT = "FederatedSite", "federatedsites", "fs"
ALL = f"/apis/{API_VERSION}/{PLURAL}"
MADE = f"{GROUP}/made-by-operator"
"""Label of an object that nobody has applied."""
MOST = 5000
"""So many sites have objects, the first by kind and name."""
NOT_JOINED = "NotJoined"
QUIET = ("free", "running", "largest_gang", "link", "last_report", "message")
"""Fields that move while a site works."""
SILENT = frozenset({Health.UNREACHABLE, Health.LOST})
_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
log = logging.getLogger("federator.operator")


class SiteSpec(Struct, frozen=True):
    """What is wanted of the site. With nothing in it the object only says how the site is."""

    name: Annotated[str, msgspec.Meta(max_length=63)] = ""
    """What the site is called, such as `North_2`. Left out: as the object."""
    drained: bool | None = None
    """`true`: nothing new starts there; `false`: it takes work. It is kept so whatever is done by other means. Left out: it stays as people have it."""
    by: Annotated[str, msgspec.Meta(max_length=100)] = ""
    """With `drained: true`: when the last of its work has to be gone, such as `2026-12-01T18:00:00Z`. Left out, or past when the site is drained: what runs there goes on to its end."""
    why: Annotated[str, msgspec.Meta(max_length=500)] = ""
    """With `drained: true`: why; the owners of jobs that have to leave are told."""


class SiteStatus(Judged, frozen=True):
    """What the dispatcher says of the site. A number that is None is not known, so that 0 is written."""

    phase: str = ""
    """`Ready`, `Degraded`, `Unreachable`, `Lost`, `Draining`, `Paused`, `Joining`, `Unrented`; `NotJoined` where the dispatcher has no such site."""
    kind: str = ""
    """`onprem`, `cloud` or `edge`."""
    region: str = ""
    """Where it is."""
    runtime: str = ""
    """What runs the work there, where it is not the agents themselves: `kube`, `slurm`."""
    members: int = 0
    """How many agents it has."""
    version: str = ""
    """The versions of its agents, each once."""
    gpus: float | None = None
    """How many it has."""
    free: float | None = None
    """How many of them are not in use."""
    running: int | None = None
    """How many jobs run there."""
    largest_gang: str = ""
    """The largest gang that fits now."""
    link: str = ""
    """The round trip between an agent and the dispatcher, the longest of its agents', to one figure."""
    last_report: str = ""
    """Of a site that is not heard: when it was heard last."""
    drained: bool | None = None
    """Whether nothing new starts there because people have said so."""
    drained_by: str = ""
    """When the last of its work has to be gone."""
    message: str = ""
    """Why it is so."""


class FederatedSite(Struct, frozen=True):
    """A site, as somebody has applied it, or as the operator has made it."""

    metadata: ClusterMeta
    spec: SiteSpec = SiteSpec()
    status: SiteStatus = SiteStatus()

    @property
    def site(self) -> str:
        """Which site it is of."""
        return self.spec.name or self.metadata.name


def mirrored(status: SiteStatus, row: SiteRow | None, now: float) -> SiteStatus:
    """What the dispatcher says of a site. `row`: None where there is no such site."""
    if row is None:
        remedy = "federator token create --site admits its agent"
        said = SiteStatus(phase=NOT_JOINED, message=f"the dispatcher has no site of that name: {remedy}")
    else:
        heard_at = now - row.age_s if row.age_s is not None and row.status in SILENT else None
        said = SiteStatus(
            phase=row.status.title(),
            kind=row.kind,
            region=row.region,
            runtime=row.runtime,
            members=row.members,
            version=", ".join(sorted({each.version for each in row.hosts} - {""}))[:LONGEST],
            gpus=row.gpus,
            free=max(0, row.gpus - row.busy),
            running=row.running,
            largest_gang=row.largest_gang,
            link=_link(row.hosts),
            last_report=instant(heard_at),
            drained=row.draining,
            drained_by=instant(row.drain_by_at),
            message=(row.drain_because or row.because)[:LONGEST],
        )
    ready = said.phase == Health.READY.title()
    condition = Condition(type="Ready", status=str(ready), reason=said.phase, message=said.message)
    said = replace(said, conditions=status.conditions, observed_generation=status.observed_generation)
    return conditioned(said, now, condition)


def _link(hosts: Iterable[MemberRow]) -> str:
    trips_s = [host.link.round_trip_s for host in hosts if host.link and host.link.round_trip_s is not None]
    return f"{float(f'{max(trips_s) * 1000:.1g}'):.0f} ms" if trips_s else ""


def by_at(spec: SiteSpec) -> float | None:
    """When the last of its work has to be gone. Raises `Invalid` where that is no instant."""
    return fields.instant(spec.by, "$.spec.by") if spec.by else None


def is_past(spec: SiteSpec, now: float) -> bool:
    """Whether that moment has passed: the dispatcher refuses such ones."""
    return now >= (math.inf if (until := by_at(spec)) is None else until)


def is_as_wanted(spec: SiteSpec, row: SiteRow, now: float) -> bool:
    """Whether the site is drained, or is not, as the spec says. Raises `Invalid` where `by` is no instant."""
    until = by_at(spec)
    if spec.drained is None:
        return True
    if not spec.drained or not row.draining:
        return spec.drained == row.draining
    in_time = row.drain_by_at == until or (row.drain_by_at is None and is_past(spec, now))
    return in_time and row.drain_because.endswith(f": {spec.why}" if spec.why else "")


def only_use_moved(before: SiteStatus, after: SiteStatus) -> bool:
    """Whether what has changed can wait for a while."""
    kept = {name: getattr(before, name) for name in QUIET}
    told = {each.type: (each.status, each.reason) for each in before.conditions}
    tells = {each.type: (each.status, each.reason) for each in after.conditions}
    return replace(after, **kept, conditions=before.conditions) == before and told == tells


def object_of(row: SiteRow, taken: Iterable[str]) -> dict[str, object]:
    """The object of a site that has none: by the site's name, if Kubernetes takes it and no object has it."""
    plain = bool(_OBJECT_NAME.fullmatch(row.name)) and row.name not in taken
    words = re.sub(r"[^a-z0-9]+", "-", row.name.lower()).strip("-")
    name = row.name if plain else f"{words}-{digest(row.name)}"
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name, "labels": {MADE: "true"}},
        "spec": {} if plain else {"name": row.name},
    }


class SiteKeeper:
    """Keeps the objects as the sites are, and the sites drained as the objects say."""

    def __init__(
        self, settings: Sites, api: Api, client: AsyncClient, every_s: float, quiet_s: float
    ) -> None:
        """`every_s`: so often the sites are looked at; `quiet_s`: so often at most an object is written because use has moved, and nothing else."""
        self._settings, self._api, self._client = settings, api, client
        self._every_s, self._quiet_s = every_s, quiet_s
        self._written: dict[str, float] = {}
        """By object, when its status was written last, on the monotonic clock."""
        self._refused: dict[str, tuple[int, float, str]] = {}
        """By object, of which generation the dispatcher refused what it says, when, and why."""
        self._trouble = ""
        """Why the sites cannot be looked at: said once, not every few seconds."""
        self.objects: Informer[FederatedSite, FederatedSite] = Informer(
            api, ALL, FederatedSite, lambda each: (each.metadata.name, each), self._seen, skips=True
        )

    def _seen(self, name: str, kept: FederatedSite | None) -> None:
        if kept is None:
            self._written.pop(name, None)
            self._refused.pop(name, None)

    async def run(self) -> None:
        """Keep them, for ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.objects.run())
            await self.objects.synced.wait()
            while True:
                listing_s = await self.look()
                await asyncio.sleep(max(self._every_s, LISTING_PAUSE * listing_s))

    async def close(self) -> None:
        """Let go of the connections to the dispatcher."""
        await self._client.close()

    async def look(self) -> float:
        """Look at all sites and all objects once; the seconds that the list of sites took."""
        begun_s = time.monotonic()
        try:
            rows = await self._client.sites()
        except FederatorError as error:
            self._tell(f"the sites cannot be listed: {error}")
            return 0.0
        listing_s = time.monotonic() - begun_s
        left_out = f"{len(rows) - MOST} sites have no object: {MOST} have one" if len(rows) > MOST else ""
        self._tell(self.objects.trouble or left_out)
        if self.objects.trouble:
            return listing_s
        by_name = {row.name: row for row in rows[:MOST]}
        spoken_for: dict[str, str] = {}
        for name, each in sorted(self.objects.items.items()):
            first = spoken_for.setdefault(each.site, name)
            await self._attempt(name, self._keep(each, by_name.get(each.site), first))
        for row in by_name.values():
            if row.name not in spoken_for:
                body = object_of(row, self.objects.items)
                await self._attempt(row.name, self._make(body))
        return listing_s

    def _tell(self, trouble: str) -> None:
        if trouble and trouble != self._trouble:
            log.warning("the sites of the cluster: %s", trouble)
        self._trouble = trouble

    async def _attempt(self, name: str, work: Awaitable[None]) -> None:
        """What cannot be done for one is tried again in the next round, and holds up no other."""
        try:
            await work
        except (Conflict, NotFound, Invalid) as error:  # it has changed: the watch brings it anew
            log.info("%s: %s", name, error)
        except FederatorError as error:
            log.warning("%s: %s", name, error)
        except Exception:
            log.exception("%s: this is a fault of the operator's; the object is looked at again", name)

    async def _make(self, body: dict[str, object]) -> None:
        await self._api.ask("POST", ALL, body=body)

    async def _keep(self, each: FederatedSite, row: SiteRow | None, first: str) -> None:
        """Take one object a step further. `first`: which object speaks for the site."""
        meta, now = each.metadata, time.time()
        if meta.deletion_timestamp:
            return
        if row is None and MADE in meta.labels and each.spec.drained is None:
            await self._remove(meta)
            return
        if first != meta.name:
            wrong = f"object {first} is of the same site: delete one of them"
        elif row is None:
            wrong = "there is no such site"
        else:
            wrong, row = await self._carry_out(each, row)
        status = in_force(mirrored(each.status, row, now), meta.generation, wrong, now)
        lately = time.monotonic() - self._written.get(meta.name, -math.inf) < self._quiet_s
        if status == each.status or (lately and only_use_moved(each.status, status)):
            return
        await write_status(self._api, f"{ALL}/{meta.name}", meta.uid, status)
        self._written[meta.name] = time.monotonic()

    async def _carry_out(self, each: FederatedSite, row: SiteRow) -> tuple[str, SiteRow]:
        """Drain the site or take it back, if its object says so and that is to be applied. Why it is not so (empty: it is), and how the site is then."""
        meta, spec = each.metadata, each.spec
        try:
            now = time.time()
            if is_as_wanted(spec, row, now):
                self._refused.pop(meta.name, None)
                return "", row
            if not self._settings.apply:
                return "it is only compared: the site is drained otherwise", row
            generation, at_s, why = self._refused.get(meta.name, (0, 0.0, ""))
            if generation == meta.generation and time.monotonic() - at_s < REFUSED_AGAIN_S:
                return why, row
            if spec.drained:
                by = "" if is_past(spec, now) else spec.by
                await self._client.drain(row.name, by=by, why=spec.why)
            else:
                await self._client.undrain(row.name)
        except Permanent as error:
            self._refused[meta.name] = (meta.generation, time.monotonic(), str(error))
            return str(error), row
        log.info("%s is %s, as its object says", row.name, "drained" if spec.drained else "taken back")
        return "", await self._client.site(row.name)

    async def _remove(self, meta: ClusterMeta) -> None:
        """Its site is gone, and nobody has applied it: unless somebody edits it meanwhile."""
        same = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": same}
        await self._api.ask("DELETE", f"{ALL}/{meta.name}", body=body)
