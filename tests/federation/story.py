"""What happens in the federation test, once, and what is known of it in the end.

Gangs fill every site, and at two of them a job is entered by command. A job with a deadline comes which its site would make too late: a machine is rented for it. Then some sites are cut off until their
gangs have ended, agents are killed with `kill -9`, and so is a member of etcd. When all of that is mended, the agents that come back are of an older version; one site is drained, the dispatcher is killed
as well and comes back as the next version and then, under jobs that run, as the present one, at some sites newer agents take the place of the older ones under running jobs, and the site is taken back. All the while small jobs come, and in the end more of them at once than there are GPUs. Nothing here judges: `Evidence` has what the tests look at.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from federator.cli.demo.federation import FEDERATION
from federator.cli.demo.world import CLOUD_SITE, PROVIDER, provider_settings
from federator.model.capacity import LEASE_ENDED, Instance
from federator.model.events import Event
from federator.wire.http import JobRow, LeaseRow
from federator.wire.usage import UsageReport
from federator_providers.local import provider as local_provider
from tests.federation.inside import CLUSTERS, NAME, Inside, enter
from tests.federation.world import Submitted, World, federated
from tests.kills.judge import Attempt

CUT = ("duo", "slurm-a")
"""Cut off; at the first an agent is killed meanwhile, and started again when its rank has ended."""
KILLED = ("slurm-b", "kube")
"""Whose agents are killed and started again under running gangs."""
EXCHANGED = ("duo", "slurm-a", "slurm-b", "kube")
"""Whose agents are exchanged for newer ones under running jobs: of each runtime, some that were of an older version until then."""
DRAINED = "slurm-b"
WAVE = 8
"""Small jobs at a time, a third of them gangs of two."""
ENDLESS = 5000


class Away(NamedTuple):
    """What the dispatcher said of a site that was cut off, once its gang had ended there."""

    site: str
    gang: str


@dataclass
class Evidence:
    """All that is known in the end."""

    submitted: dict[str, Submitted] = field(default_factory=dict)
    gangs: dict[str, str] = field(default_factory=dict)
    """By site, the gang that filled it while things went wrong."""
    due: str = ""
    price: str = ""
    undue: str = ""
    """The same job with and without a deadline; the site of both was full. The one without may not use the cloud."""
    inside: dict[str, Inside] = field(default_factory=dict)
    away: dict[str, Away] = field(default_factory=dict)
    drained: str = ""
    probe: str = ""
    probe_because: str = ""
    """A job that may only use the drained site, and why it waited."""
    flood: tuple[str, ...] = ()
    """Jobs that came at once, more than there are GPUs at all sites."""
    versions: list[dict[str, str]] = field(default_factory=list)
    """Of the agents by site, before and after they were exchanged under running jobs."""
    dispatchers: list[str] = field(default_factory=list)
    """The versions of those that took the place of the first."""
    across: dict[str, str] = field(default_factory=dict)
    """By site, a job that began under the newer one and ended under the present one."""
    meanwhile: tuple[str, ...] = ()
    """Jobs that came while that site was drained."""
    rows: dict[str, JobRow] = field(default_factory=dict)
    history: dict[str, list[Event]] = field(default_factory=dict)
    attempts: list[Attempt] = field(default_factory=list)
    where: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    leases: list[LeaseRow] = field(default_factory=list)
    bill: list[Instance] = field(default_factory=list)
    usage: UsageReport | None = None
    ledger_usd: float = 0.0
    left: list[str] = field(default_factory=list)

    def at(self, job: str) -> set[str]:
        """The sites at which it ever lived."""
        placements = {attempt.placement for attempt in self.attempts if attempt.job == job}
        return {site for placement in placements for site, _ in self.where[placement]}


async def tell(folder: Path, say: Callable[[str], None]) -> Evidence:
    """All of it, in a folder that is not there yet."""
    async with federated(folder) as world:
        told = Evidence(submitted=world.submitted)
        say(f"ready: {', '.join(world.sites)}")
        await asyncio.gather(_fill(world, told), _enter(world, told))
        say("full of gangs, and entered")
        await _break(world, told, say)
        await world.over([*told.gangs.values(), told.due, told.undue])
        say("mended, and all gangs over")
        await _drain(world, told, say)
        gpus = sum(site.ground.nodes * site.ground.gpus for site in world.sites.values())
        told.flood = await world.submit_all(20, array=f"0-{gpus + 3}")
        await world.over(list(world.submitted))
        say("all over")
        await _gather(world, told)
        return told


async def _fill(world: World, told: Evidence) -> None:
    """A gang over all of each site, and two jobs that want one of them none the less: one can wait, the other cannot."""
    for name, site in world.sites.items():
        resources = {"gpus": f"A100:{site.ground.gpus}", "cpus": 0.2}
        gate = "end-of-cut" if name in CUT else "end-of-killed"
        told.gangs[name] = await world.submit(
            ENDLESS, gate=gate, sites=[name], nodes=site.ground.nodes, resources=resources, estimate="10m"
        )
    await world.living({job: world.submitted[job].nodes for job in told.gangs.values()})
    told.undue = await world.submit(10, sites=["duo"])
    # Later than a machine takes, but no later than that: nothing is gained by waiting any longer before one is rented.
    told.due, told.price = await world.buy(10, "75s", sites=["duo", CLOUD_SITE])

    async def rented() -> bool:
        return bool(await world.admin.leases())

    await world.until(rented, "a machine for the deadline")


async def _enter(world: World, told: Evidence) -> None:
    """A job at each cluster is entered by command, beside the gangs: it needs no GPU."""
    sites = [site for site in CLUSTERS if site in world.sites]
    entered = (asyncio.to_thread(enter, world.folder / f"home-{site}", world.environ, site) for site in sites)
    told.inside = dict(zip(sites, await asyncio.gather(*entered), strict=True))


async def _break(world: World, told: Evidence, say: Callable[[str], None]) -> None:
    cut = [site for name, site in world.sites.items() if name in CUT]
    killed = [site for name, site in world.sites.items() if name in KILLED]
    world.federation.cluster.kill(0)
    for site in cut:
        site.cut()
    for site in killed:
        for agent in site.agents:
            site.kill(agent)
    lonely = cut[0].agents[0]
    cut[0].kill(lonely)
    await _wave(world)
    say("broken")
    await world.living({told.due: 1})
    say("the deadline's machine works")
    world.open_gate("end-of-cut")
    gangs = [told.gangs[site.name] for site in cut]
    await world.until(lambda: _ended(world, gangs), "the ends of the gangs that are cut off")

    async def missed() -> bool:
        rows = {row.name: row.status for row in await world.admin.sites()}
        return all(rows[site.name] == "UNREACHABLE" for site in cut)

    await world.until(missed, "sites that are missed")
    rows = await world.rows()
    for site in cut:
        told.away[site.name] = Away("UNREACHABLE", rows[told.gangs[site.name]].status)
        site.heal()
    cut[0].start_again(lonely)
    for site in killed:
        for agent in site.agents:
            site.start_again(agent, "older")
    world.federation.cluster.start(0)
    say("mended")
    await world.until(lambda: _heard(world), "sites that are heard again")
    world.open_gate("end-of-killed")


async def _drain(world: World, told: Evidence, say: Callable[[str], None]) -> None:
    """One site takes nothing new for a while; what waits for it says so; and the dispatcher is killed in the middle of it."""
    told.drained = DRAINED if DRAINED in world.sites else next(iter(world.sites))
    await world.admin.drain(told.drained)
    before = set(world.submitted)
    told.probe = await world.submit(5, sites=[told.drained])
    await _wave(world)
    told.dispatchers.append(await world.federation.exchange_dispatcher("tests.support.newer_dispatcher"))
    say("the dispatcher is back, of the next version")
    await world.until(lambda: _are(world, ""), "agents that are connected again")
    told.across = await _across(world, told.drained)
    told.dispatchers.append(await world.federation.exchange_dispatcher())
    say("the dispatcher is of the present version again")
    await world.until(lambda: _are(world, ""), "agents that are connected to it")
    world.open_gate("end-of-newer")
    await world.over(list(told.across.values()))
    await _wave(world)
    told.versions.append(await _versions(world))
    for name in EXCHANGED:
        if name in world.sites:
            world.sites[name].exchange("newer")
    await world.until(lambda: _are(world, "newer"), "the agents of a newer version")
    told.versions.append(await _versions(world))
    told.meanwhile = tuple(world.submitted.keys() - before - {told.probe})
    if len(world.sites) > 1:
        await world.over(told.meanwhile)

    async def refused() -> bool:
        told.probe_because = (await world.admin.explain(told.probe)).because
        return "drain" in told.probe_because

    await world.until(refused, "the reason for which the job at the drained site waits")
    await world.admin.undrain(told.drained)


async def _across(world: World, drained: str) -> dict[str, str]:
    """A job at each site that takes work, which the newer dispatcher has sent there, and which lives as it goes."""
    jobs = {
        name: await world.submit(ENDLESS, gate="end-of-newer", sites=[name], resources={"cpus": 0.1})
        for name in world.sites
        if name != drained
    }
    await world.living(dict.fromkeys(jobs.values(), 1))
    return jobs


async def _versions(world: World) -> dict[str, str]:
    rows = await world.admin.sites()
    return {row.name: row.hosts[0].version for row in rows if row.name in world.sites}


async def _are(world: World, version: str) -> bool:
    """Whether all that are exchanged are connected, in a version of that ending."""
    rows = [row for row in await world.admin.sites() if row.name in EXCHANGED]
    return all(
        host.status == "READY" and host.version.endswith(version) for row in rows for host in row.hosts
    )


async def _wave(world: World) -> None:
    """Small jobs that may go to any site."""
    for number in range(WAVE):
        gang = number % 3 == 0  # which lasts until its second rank has begun, however busy the machine is
        await world.submit(number + (25 if gang else 5), nodes=2 if gang else 1)


async def _gather(world: World, told: Evidence) -> None:
    async def given_back() -> bool:
        told.leases = await world.admin.leases()
        return all(lease.status in LEASE_ENDED for lease in told.leases)

    await world.until(given_back, "the ends of all leases")
    left: list[str] = []

    async def nothing_left() -> bool:
        left[:] = [f"a process of {rank.job}" for rank in world.federation.processes.ranks()]
        for site in world.sites.values():
            left.extend(await site.ground.left())
        return not left

    try:
        await world.until(nothing_left, "the ends of all processes, pods and Slurm jobs")
    except AssertionError:
        told.left = left
    settings = provider_settings(world.federation.machines, ("none",))["settings"]
    provider = local_provider(PROVIDER, settings, world.federation.clock)
    told.usage = await world.admin.usage(by=("site", "month"), everybody=True)
    lines = await world.admin.ledger()
    while more := await world.admin.ledger(after=lines[-1].id):
        lines += more
    told.ledger_usd = sum(line.usd for line in lines)
    told.bill = list(await provider.instances(FEDERATION))
    told.rows = {job: row for job, row in (await world.rows()).items() if not row.name.startswith(NAME)}
    told.history = {job: await world.admin.history(job) for job in told.submitted}
    told.attempts = world.attempts()
    told.where = world.where()


def _ended(world: World, jobs: list[str]) -> bool:
    ended = {(attempt.job, attempt.rank) for attempt in world.attempts() if attempt.ended}
    return all((job, rank) in ended for job in jobs for rank in range(world.submitted[job].nodes))


async def _heard(world: World) -> bool:
    return all(row.status == "READY" for row in await world.admin.sites() if row.name in world.sites)
