"""What a seed stands for: a small federation, its users and their jobs, and everything that is to go wrong, all of it known beforehand.

A plan is values only. Worlds are small on purpose: what breaks a promise is mostly an unlucky order of a few events, and small worlds are many.
"""

import math
import random
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from federator.model.capacity import Market, Offer
from tests.lab.faults.fault_profile import Spell, Trouble
from tests.lab.faults.policies import Policies, PolicyChange, draw_changes

HOUR_S = 3600.0
SETTLED_S = 120.0
"""Before that nothing goes wrong: the agents connect."""
GPUS = ("A100", "L4")
DISPATCHERS = ("d1", "d2")
PROVIDER = "cloud"
COMMIT, LAUNCH, TERMINATE = "commit", "launch", "terminate"
DEEDS_OF_DISPATCHERS = ("", "", COMMIT, COMMIT, LAUNCH, TERMINATE)
DEEDS_OF_AGENTS = ("", "", "Persist", "StartRanks", "StartRanks", "SignalRanks", "Collect", "SendStatuses")
"""Names of the machine's instructions."""
SERIES_SHARE, MOST_RUNS = 0.25, 30
LOCAL, SLURM, KUBE = "local", "slurm", "kube"
CLUSTERS_SHARE = 0.4
"""Of all worlds: in these, of the sites with one member each second one is a cluster."""


class FaultKind(StrEnum):
    """What goes wrong once, at a time."""

    KILL = "kill"
    STOP = "stop"
    REBOOT = "reboot"
    WIPE = "reboot with an empty disk"
    JUMP = "clock set"
    CUT = "cut"
    CUT_UP = "cut one way, to the dispatcher"
    CUT_DOWN = "cut one way, from the dispatcher"
    DROP = "session dropped"
    INTERRUPT = "machine taken back"
    VANISH = "machine vanishes"
    NONSENSE = "nonsense said to the dispatcher"
    EVICT = "its cluster evicts a job"
    REQUEUE = "its cluster puts a job back into its queue, or deletes it"
    FORGET = "its cluster loses a job"


CLUSTER_FAULTS = (FaultKind.EVICT, FaultKind.REQUEUE, FaultKind.FORGET)
CLUSTER_TROUBLES = (Trouble.CLUSTER_BUSY, Trouble.CLUSTER_REFUSES, Trouble.CLUSTER_SILENT)


class InjectedFault(msgspec.Struct, frozen=True):
    """One of these: when, to whom, and how long, how far or after how many steps, whichever it needs."""

    at_s: float
    kind: FaultKind
    who: str
    lasts_s: float = 0.0
    steps: int = 0
    deed: str = ""
    """Of a kill: the steps count from when it next comes to this; empty: at once."""


class HostPlan(msgspec.Struct, frozen=True):
    """One member: its hosts, all alike, and how its clocks run."""

    member: str
    site: str
    model: str
    nodes: int
    gpus: int
    rate: float
    ahead_s: float
    staging_s: float
    runtime: str = LOCAL
    """What runs its work: this one's own processes, or a cluster."""


class Deed(msgspec.Struct, frozen=True):
    """What a user does to a job, so long after it was accepted: cancel, hold, release, requeue, or a new priority."""

    after_s: float
    verb: str


class JobPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a user asks for, and what only the world knows of it."""

    name: str
    submit_s: float
    run_s: float
    nodes: int = 1
    gpus: int = 1
    tasks: int = 0
    """Of an array; 0: it is none."""
    queue: str = "default"
    priority: int = 50
    stop_within_s: float | None = None
    grace_s: float = 30.0
    deadline_s: float | None = None
    """After its submission."""
    max_duration_s: float = 8 * HOUR_S
    estimate_s: float | None = None
    checkpoints: bool = False
    stubborn: bool = False
    """It does not end when it is asked to."""
    fails: int = 0
    """So many attempts end with exit code 1 first."""
    retries: int = 0
    deeds: tuple[Deed, ...] = ()


class SeriesPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is submitted again and again, and what each run is like. Its name is that of the series."""

    job: JobPlan
    every_s: float
    times: int
    """So often it is due, before it ends."""
    overlap: str = "skip"
    deeds: tuple[Deed, ...] = ()
    """Its user pauses, resumes or ends it, or submits the same file again."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    seed: int
    faults_s: float
    """So long things go wrong."""
    hosts: tuple[HostPlan, ...]
    offers: tuple[Offer, ...]
    dispatchers: tuple[str, ...]
    rates: dict[str, float]
    """Of the dispatchers' boot clocks."""
    jobs: tuple[JobPlan, ...]
    spells: tuple[Spell, ...]
    faults: tuple[InjectedFault, ...]
    policies: Policies
    """The first set."""
    solver: bool
    """Whether the solver plans, or greedy alone."""
    series: tuple[SeriesPlan, ...] = ()
    changes: tuple[PolicyChange, ...] = ()

    def works(self) -> dict[str, JobPlan]:
        """What every job is like, also the runs of series."""
        runs = {
            f"{each.job.name}-{number}": each.job
            for each in self.series
            for number in range(1, each.times + 1)
        }
        return {job.name: job for job in self.jobs} | runs

    @property
    def policy_sets(self) -> tuple[Policies, ...]:
        """All that are ever applied, in their order."""
        return (self.policies, *(each.policies for each in self.changes))

    @property
    def members(self) -> tuple[str, ...]:
        """Those that are there from the start."""
        return tuple(host.member for host in self.hosts)


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
    return _with_clusters(replace(plan, changes=draw_changes(seed, plan.policies, sites, faults_s)))


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
