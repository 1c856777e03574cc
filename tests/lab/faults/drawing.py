"""How a seed draws its plan. What is drawn by a chance of its own leaves the worlds of other seeds as they were."""

import math
import random

import msgspec
from msgspec.structs import replace

from federator.model.capacity import Market, Offer
from federator_agent.core.lent_capacity import Hours
from federator_agent.link_limits import Bulk as BulkLimits
from federator_agent.link_limits import LinkLimits
from tests.lab.faults.fault_profile import Spell, Trouble
from tests.lab.faults.plan import (
    COMMIT,
    KUBE,
    LAUNCH,
    LOCAL,
    PROVIDER,
    SETTLED_S,
    SLURM,
    TERMINATE,
    Deed,
    FaultKind,
    HostPlan,
    InjectedFault,
    JobPlan,
    LinkPlan,
    Plan,
    SeriesPlan,
)
from tests.lab.faults.policies import AllotmentPlan, Policies, draw_changes

HOUR_S = 3600.0
GPUS = ("A100", "L4")
DISPATCHERS = ("d1", "d2")
DEEDS_OF_DISPATCHERS = ("", "", COMMIT, COMMIT, LAUNCH, TERMINATE)
DEEDS_OF_AGENTS = ("", "", "Persist", "StartRanks", "StartRanks", "SignalRanks", "Collect", "SendStatuses")
"""Names of the machine's instructions."""
SERIES_SHARE, MOST_RUNS = 0.25, 30
DATA_SHARE, CLUSTER_DATA_SHARE = 0.5, 0.4
"""Of the worlds without clusters, and of those with any."""
OUTAGES_SHARE = 0.2
"""Of all worlds: in these, some hosts are cut off for long, and people there submit to the agent."""
CLUSTERS_SHARE = 0.4
"""Of all worlds: in these, of the sites with one member each second one is a cluster."""
CLUSTER_FAULTS = (FaultKind.EVICT, FaultKind.REQUEUE, FaultKind.FORGET)
CLUSTER_TROUBLES = (Trouble.CLUSTER_BUSY, Trouble.CLUSTER_REFUSES, Trouble.CLUSTER_SILENT)


class Size(msgspec.Struct, frozen=True):
    """How many sites and submissions there are: between the first and the second of each."""

    sites: tuple[int, int]
    jobs: tuple[int, int]


SMALL, LARGE = Size((2, 4), (10, 40)), Size((10, 10), (500, 500))


def draw(seed: int, size: Size = SMALL) -> Plan:
    """The plan of a seed."""
    chance = random.Random(f"plan/{seed}")
    faults_s = chance.uniform(2.0, 8.0) * HOUR_S
    renting = chance.random() < 0.5
    hosts = _hosts(chance, size, renting=renting)
    dispatchers = DISPATCHERS if chance.random() < 0.5 else DISPATCHERS[:1]
    members = tuple(host.member for host in hosts)
    severity = chance.choice((0.3, 1.0, 1.0, 2.0, 4.0))
    plan = Plan(
        seed=seed,
        faults_s=faults_s,
        hosts=hosts,
        offers=_offers(chance) if renting else (),
        dispatchers=dispatchers,
        rates={name: chance.uniform(0.9955, 1.0045) for name in dispatchers},
        jobs=tuple(
            _job(chance, number, hosts, faults_s, renting=renting)
            for number in range(chance.randint(*size.jobs))
        ),
        spells=_spells(chance, (*members, *dispatchers), dispatchers, faults_s, severity, renting=renting),
        faults=_faults(chance, members, dispatchers, faults_s, severity, renting=renting),
        policies=_first_policies(chance, seed, renting=renting),
        solver=chance.random() < 0.08,
        series=_series(seed, faults_s),
    )
    sites = tuple(dict.fromkeys(host.site for host in hosts))
    plan = replace(plan, changes=draw_changes(seed, plan.policies, sites, faults_s))
    return _with_outages(_with_data(_with_clusters(plan)))


def _first_policies(chance: random.Random, seed: int, *, renting: bool) -> Policies:
    budget_usd = min(chance.choice((25.0, 60.0, 200.0)), _tight_usd(seed))
    limits = {"small": chance.choice((2, 3, 4))}
    return Policies(budget_usd=budget_usd if renting else None, limits=limits)


def _with_clusters(plan: Plan) -> Plan:
    """Some sites are clusters, with faults and troubles of theirs. By a chance of its own. Jobs that must not outlive their connection are not for clusters: what fits nowhere else may outlive it."""
    chance = random.Random(f"clusters/{plan.seed}")
    alone = [host for host in plan.hosts if len([each for each in plan.hosts if each.site == host.site]) == 1]
    if chance.random() >= CLUSTERS_SHARE or not alone:
        return plan
    runtimes = {host.member: chance.choice((SLURM, KUBE)) for host in alone if chance.random() < 0.5}
    runtimes = runtimes or {alone[0].member: chance.choice((SLURM, KUBE))}
    hosts = tuple(replace(host, runtime=runtimes.get(host.member, LOCAL)) for host in plan.hosts)
    own = tuple(host for host in hosts if host.runtime == LOCAL)
    jobs = [
        job
        if any(_room(own, host.site, job.gpus) >= job.nodes for host in own)
        else replace(job, stop_within_s=None)
        for job in plan.jobs
    ]
    faults, spells = list(plan.faults), list(plan.spells)
    for member in runtimes:
        for _ in range(chance.randint(1, 6)):
            at_s = SETTLED_S + chance.uniform(0.0, 0.97) * plan.faults_s
            faults.append(
                InjectedFault(at_s, chance.choice(CLUSTER_FAULTS), member, steps=chance.randint(0, 9))
            )
        for _ in range(chance.randint(0, 3)):
            begins_s = SETTLED_S + chance.uniform(0.0, plan.faults_s)
            ends_s = min(SETTLED_S + plan.faults_s, begins_s + chance.choice((600.0, 3000.0)))
            share = chance.choice((0.1, 0.4, 0.9))
            spells.append(Spell(chance.choice(CLUSTER_TROUBLES), member, begins_s, ends_s, share))
    return replace(
        plan,
        hosts=hosts,
        jobs=tuple(jobs),
        spells=tuple(spells),
        faults=tuple(sorted(faults, key=lambda fault: fault.at_s)),
    )


def _with_data(plan: Plan) -> Plan:
    """In some worlds jobs leave outputs that others read, over links that are thin or metered. By a chance of its own, and by another where there are clusters."""
    clusters = any(host.runtime != LOCAL for host in plan.hosts)
    chance = random.Random(f"cluster data/{plan.seed}" if clusters else f"data/{plan.seed}")
    if chance.random() >= (CLUSTER_DATA_SHARE if clusters else DATA_SHARE):
        return plan
    jobs = [
        replace(
            job, log_bytes=chance.choice((1000, 200_000, 200_000)), output_bytes=_output_bytes(chance, job)
        )
        for job in plan.jobs
    ]
    sources = [job for job in jobs if job.output_bytes]
    for number in range(chance.randint(2, 8) if sources else 0):
        source, run_s = chance.choice(sources), chance.uniform(60.0, 1200.0)
        submit_s = source.submit_s + chance.uniform(1.0, 600.0)
        reader = JobPlan(
            name=f"reader{number}",
            submit_s=submit_s,
            run_s=run_s,
            max_duration_s=4 * run_s,
            reads=source.name,
        )
        jobs.append(replace(reader, output_bytes=_output_bytes(chance, reader)))
    spells, faults = list(plan.spells), list(plan.faults)
    for member in plan.members:
        for _ in range(chance.randint(0, 3)):
            begins_s = SETTLED_S + chance.uniform(0.0, 0.5) * plan.faults_s
            ends_s = min(SETTLED_S + plan.faults_s, begins_s + chance.choice((3000.0, plan.faults_s)))
            trouble = chance.choice((Trouble.TEAR, Trouble.DAMAGE))
            spells.append(Spell(trouble, member, begins_s, ends_s, chance.choice((0.03, 0.2))))
        at_s = SETTLED_S + chance.uniform(0.0, 0.97) * plan.faults_s
        faults.append(InjectedFault(at_s, FaultKind.TIDY, member))
    return replace(
        plan,
        hosts=tuple(replace(host, link=_link(chance, plan.faults_s)) for host in plan.hosts),
        jobs=tuple(jobs),
        spells=tuple(spells),
        faults=tuple(sorted(faults, key=lambda fault: fault.at_s)),
    )


def _with_outages(plan: Plan) -> Plan:
    """In some worlds hosts of our own are cut off for long, and people submit there meanwhile, under allotments that may be gone, or be others, when the link is back. By a chance of its own."""
    chance = random.Random(f"alone/{plan.seed}")
    own = [host for host in plan.hosts if host.runtime == LOCAL]
    if chance.random() >= OUTAGES_SHARE or not own:
        return plan
    allotments = tuple(_allotment(chance, site) for site in dict.fromkeys(host.site for host in own))
    changes = tuple(
        replace(each, policies=replace(each.policies, allotments=_others(chance, allotments)))
        for each in plan.changes
    )
    jobs, faults = list(plan.jobs), list(plan.faults)
    for _ in range(chance.randint(1, 4)):
        host, lasts_s = chance.choice(own), chance.choice((400.0, 1500.0, 5000.0)) * chance.uniform(0.5, 1.5)
        begins_s = chance.uniform(0.0, 0.9) * plan.faults_s
        kind = chance.choice((FaultKind.CUT, FaultKind.CUT, FaultKind.CUT_UP, FaultKind.CUT_DOWN))
        faults.append(InjectedFault(SETTLED_S + begins_s, kind, host.member, lasts_s))
        for _ in range(chance.randint(1, 5)):
            submit_s = begins_s + chance.uniform(0.0, 0.9) * lasts_s
            jobs.append(_admitted(chance, f"alone{len(jobs)}", host, submit_s))
    return replace(
        plan,
        policies=replace(plan.policies, allotments=allotments),
        changes=changes,
        jobs=tuple(jobs),
        faults=tuple(sorted(faults, key=lambda fault: fault.at_s)),
    )


def _allotment(chance: random.Random, site: str) -> AllotmentPlan:
    return AllotmentPlan(
        site=site,
        jobs=chance.choice((2, 5, 20)),
        gpu_h=chance.choice((2.0, 8.0, 50.0)),
        after_s=chance.choice((30.0, 60.0)),
    )


def _others(chance: random.Random, first: tuple[AllotmentPlan, ...]) -> tuple[AllotmentPlan, ...]:
    """What another set of policies says: the same, for fewer sites, or for nobody who is there."""
    kept = tuple(each for each in first if chance.random() < 0.7)
    return tuple(replace(each, user="root") if chance.random() < 0.2 else each for each in kept)


def _admitted(chance: random.Random, name: str, host: HostPlan, submit_s: float) -> JobPlan:
    run_s = chance.choice((60.0, 600.0, 1800.0)) * chance.uniform(0.7, 1.3)
    fails = chance.choice((0, 0, 0, 1))
    job = JobPlan(
        name=name,
        submit_s=submit_s,
        run_s=run_s,
        nodes=chance.choice((1, 1, min(2, host.nodes))),
        gpus=chance.choice((1, 1, 2)),
        max_duration_s=run_s * chance.choice((0.6, 1.5, 4.0, 4.0)),
        grace_s=chance.choice((10.0, 30.0)),
        stubborn=chance.random() < 0.2,
        checkpoints=chance.random() < 0.4,
        fails=fails,
        retries=fails if chance.random() < 0.7 else 0,
        log_bytes=0 if host.link is None else chance.choice((1000, 200_000)),
        admitted_by=host.member,
        deeds=(Deed(chance.expovariate(1 / 600.0), "cancel"),) if chance.random() < 0.3 else (),
    )
    return job if host.link is None else replace(job, output_bytes=_output_bytes(chance, job))


def _output_bytes(chance: random.Random, job: JobPlan) -> int:
    return chance.choice((0, 100_000, 400_000, 400_000)) if job.nodes == 1 and not job.tasks else 0


def _link(chance: random.Random, faults_s: float) -> LinkPlan:
    """Thin, metered, both or neither. Its hours leave out one or two of the first day."""
    hours: tuple[Hours, ...] = ()
    if chance.random() < 0.4:
        opens_min = int(chance.uniform(0.1, 1.0) * faults_s // 60.0)
        hours = (Hours(opens_min, (opens_min - chance.choice((60, 120))) % 1440),)
    limits = LinkLimits(
        budget=chance.choice((None, 2**18, 2**20)),
        bulk=BulkLimits(rate=chance.choice((None, 16_384)), hours=hours),
    )
    return LinkPlan(chance.choice((8_000.0, 64_000.0, 1e7)), limits)


def _tight_usd(seed: int) -> float:
    """In half of all worlds there is money for one machine at a time, or two, so that it is the budget that says no; else there is no such bound. By a chance of its own."""
    chance = random.Random(f"budget/{seed}")
    return chance.choice((6.0, 8.0, 12.0)) if chance.random() < 0.5 else math.inf


def _series(seed: int, faults_s: float) -> tuple[SeriesPlan, ...]:
    """In one world of four a job or two come again and again. By a chance of its own, so that the other worlds are what they were before there were any."""
    chance = random.Random(f"series/{seed}")
    many = chance.choice((1, 1, 2)) if chance.random() < SERIES_SHARE else 0
    return tuple(_one_series(chance, f"again{number}", faults_s) for number in range(many))


def _one_series(chance: random.Random, name: str, faults_s: float) -> SeriesPlan:
    every_s = chance.choice((300.0, 900.0, 1800.0))
    run_s = every_s * chance.uniform(0.1, 1.6)
    job = JobPlan(
        name=name,
        submit_s=chance.uniform(0.0, 0.5) * faults_s,
        run_s=run_s,
        max_duration_s=run_s * chance.choice((0.6, 2.0, 4.0, 4.0)),
        stubborn=chance.random() < 0.2,
        fails=chance.choice((0, 0, 0, 1)),
    )
    verbs = [chance.choice(("pause", "again", "end")) for _ in range(chance.choice((0, 0, 1, 2)))]
    deeds = [Deed(chance.uniform(0.0, 0.4) * faults_s, verb) for verb in verbs]
    deeds += [
        Deed(deed.after_s + chance.uniform(5.0, 3000.0), "resume") for deed in deeds if deed.verb == "pause"
    ]
    return SeriesPlan(
        job=job,
        every_s=every_s,
        times=min(MOST_RUNS, round(chance.uniform(0.4, 1.0) * faults_s / every_s)),
        overlap=chance.choice(("skip", "queue", "replace")),
        deeds=tuple(sorted(deeds, key=lambda deed: deed.after_s)),
    )


def _hosts(chance: random.Random, size: Size, *, renting: bool) -> tuple[HostPlan, ...]:
    hosts = []
    for number in range(chance.randint(*size.sites) if size is LARGE or not renting else 2):
        site, model = f"site{number}", chance.choice(GPUS)
        several = chance.random() < 0.5
        nodes, gpus = (1 if several else chance.randint(1, 3)), chance.choice((2, 4))
        staging_s = chance.choice((0.0, 5.0, 60.0))
        for letter in "abc"[: chance.randint(2, 3)] if several else "a":
            rate, ahead_s = chance.uniform(0.9955, 1.0045), chance.uniform(-2.0, 2.0)
            hosts.append(HostPlan(f"{site}-{letter}", site, model, nodes, gpus, rate, ahead_s, staging_s))
    return tuple(hosts)


def _offers(chance: random.Random) -> tuple[Offer, ...]:
    return tuple(
        Offer(
            name=f"{PROVIDER}/{model}x{gpus}/{market}",
            provider=PROVIDER,
            region="cloud",
            instance_type=f"{model}x{gpus}",
            market=market,
            model=model,
            gpu_memory_mib=81_920,
            gpus=gpus,
            cpus_milli=64_000,
            memory_mib=500_000,
            price_usd_h=price * gpus,
            delay_s=chance.choice((60.0, 240.0)),
            teardown_s=60.0,
            available=3,
        )
        for market, price in ((Market.ON_DEMAND, 2.0), (Market.SPOT, 0.8))
        for model, gpus in ((chance.choice(GPUS), 2), (chance.choice(GPUS), 4))
    )


def _job(
    chance: random.Random, number: int, hosts: tuple[HostPlan, ...], faults_s: float, *, renting: bool
) -> JobPlan:
    lengths = (600.0, 1800.0, 5400.0) if renting else (20.0, 120.0, 600.0, 1800.0, 5400.0)
    run_s = chance.choice(lengths) * chance.uniform(0.7, 1.3)
    kind = chance.random()
    nodes, tasks = 1, 0
    gpus = chance.choice((1, 1, 1, 2))
    if kind < 0.25:
        nodes = chance.choice((2, 2, 3))
    elif kind < 0.33:
        tasks = chance.randint(2, 6)
    wave_s = chance.choice((0.2, 0.5, 0.8)) * faults_s
    wanted = [host for host in hosts if host.gpus >= gpus]
    if nodes > 1 and not any(_room(hosts, host.site, gpus) >= nodes for host in wanted):
        nodes = 1
    fails = chance.choice((0, 0, 0, 0, 1))
    return JobPlan(
        name=f"job{number}",
        submit_s=wave_s + chance.uniform(0.0, 600.0) if renting else chance.uniform(0.0, 0.9) * faults_s,
        run_s=run_s,
        nodes=nodes,
        gpus=gpus,
        tasks=tasks,
        queue=chance.choice(("default", "default", "small")) if nodes == 1 else "default",
        priority=chance.choice((20, 50, 50, 80)),
        stop_within_s=chance.choice((600.0, 1500.0)) if chance.random() < 0.35 else None,
        grace_s=chance.choice((10.0, 30.0, 90.0)),
        deadline_s=run_s * chance.uniform(1.05, 2.5) + 400.0 if renting and chance.random() < 0.6 else None,
        max_duration_s=run_s * chance.choice((1.5, 2.0, 4.0, 4.0, 4.0, 4.0, 0.6)),
        estimate_s=run_s * chance.uniform(0.5, 1.5) if chance.random() < 0.8 else None,
        checkpoints=chance.random() < 0.4,
        stubborn=chance.random() < 0.2,
        fails=fails,
        retries=fails if chance.random() < 0.7 else 0,
        deeds=_deeds(chance),
    )


def _deeds(chance: random.Random) -> tuple[Deed, ...]:
    """What its user does to a job. What is held is released again."""
    often = chance.choice((0, 0, 0, 1, 2))
    verbs = [chance.choice(("cancel", "hold", "requeue", "priority", "cancel")) for _ in range(often)]
    deeds = [Deed(chance.expovariate(1 / 600.0), verb) for verb in verbs]
    held = [deed for deed in deeds if deed.verb == "hold"]
    deeds += [Deed(deed.after_s + chance.uniform(5.0, 900.0), "release") for deed in held]
    return tuple(sorted(deeds, key=lambda deed: deed.after_s))


def _room(hosts: tuple[HostPlan, ...], site: str, gpus: int) -> int:
    """How many ranks of that size a site holds when it is empty."""
    return sum(host.nodes * (host.gpus // gpus) for host in hosts if host.site == site)


def _spells(
    chance: random.Random,
    links: tuple[str, ...],
    dispatchers: tuple[str, ...],
    faults_s: float,
    severity: float,
    *,
    renting: bool,
) -> tuple[Spell, ...]:
    stores = (Trouble.STORE_SLOW, Trouble.STORE_REFUSES, Trouble.STORE_DOUBTS, Trouble.STORE_CONFLICTS)
    kinds = [(each, links) for each in (Trouble.LOSE, Trouble.REPEAT, Trouble.DELAY)]
    kinds += [(each, dispatchers) for each in stores]
    kinds += [(Trouble.STAGING_FAILS, links), (Trouble.LIES, links)]
    if renting:
        clouds = (Trouble.THROTTLE, Trouble.REPLY_LOST, Trouble.STALE, Trouble.SOLD_OUT)
        kinds += [(each, (PROVIDER,)) for each in clouds]
    spells = []
    for _ in range(round(chance.uniform(2, 8) * severity)):
        trouble, whom = chance.choice(kinds)
        begins_s = SETTLED_S + chance.uniform(0.0, faults_s)
        lasts_s = chance.choice((60.0, 600.0, 3000.0)) * chance.uniform(0.5, 1.5)
        share = chance.choice((0.02, 0.1, 0.4))
        if trouble is Trouble.STORE_DOUBTS:
            share = min(share, 0.05)  # each of them costs a reign
        ends_s = min(SETTLED_S + faults_s, begins_s + lasts_s)
        spells.append(Spell(trouble, chance.choice(whom), begins_s, ends_s, share))
    return tuple(spells)


def _faults(
    chance: random.Random,
    members: tuple[str, ...],
    dispatchers: tuple[str, ...],
    faults_s: float,
    severity: float,
    *,
    renting: bool,
) -> tuple[InjectedFault, ...]:
    whom: dict[FaultKind, tuple[str, ...]] = {
        FaultKind.KILL: (*members, *dispatchers * 3),
        FaultKind.STOP: (*members, *dispatchers * 2),
        FaultKind.REBOOT: members,
        FaultKind.WIPE: members,
        FaultKind.JUMP: (*members, *dispatchers),
        FaultKind.CUT: (*members, *dispatchers),
        FaultKind.CUT_UP: members,
        FaultKind.CUT_DOWN: members,
        FaultKind.DROP: members,
        FaultKind.NONSENSE: (*members, "user"),
    }
    often = [*whom, FaultKind.KILL, FaultKind.KILL, FaultKind.CUT, FaultKind.STOP, FaultKind.DROP]
    often += [FaultKind.INTERRUPT, FaultKind.VANISH] if renting else []
    faults = []
    for _ in range(round(chance.uniform(4, 16) * severity)):
        kind = chance.choice(often)
        lasts_s = chance.choice((1.0, 15.0, 90.0, 700.0, 2500.0)) * chance.uniform(0.5, 1.5)
        if kind is FaultKind.JUMP:
            lasts_s = chance.choice((-1, 1)) * chance.choice((0.5, 5.0, 30.0))
        at_s = SETTLED_S + chance.uniform(0.0, 0.97) * faults_s
        who = chance.choice(whom.get(kind, (PROVIDER,)))
        steps = chance.choice((0, 1, 3, 10, 40, 150))
        deed = chance.choice(DEEDS_OF_DISPATCHERS if who in dispatchers else DEEDS_OF_AGENTS)
        if kind is FaultKind.KILL and deed:
            steps = chance.choice((0, 1, 1, 2, 3, 5, 12))
        faults.append(InjectedFault(at_s, kind, who, lasts_s, steps, deed))
    return tuple(sorted(faults, key=lambda fault: fault.at_s))
