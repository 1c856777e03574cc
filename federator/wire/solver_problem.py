"""The problem file: all that a decision is given, as any program may write it and `federator solver run` reads it.

Format 1 is its own set of records, so that it stays readable when planning changes; rules are those of the model. New fields have defaults; what cannot be
said so becomes format 2. Times are seconds since the epoch, UTC (`_at`), durations seconds (`_s`), money USD (`_usd`), CPUs thousandths (`_milli`).
"""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from federator.model.capacity import Market
from federator.model.rules import Rule
from federator.wire.solver_parts import (
    MOST_FORMS,
    Amount,
    Count,
    FreeHosts,
    Hosts,
    InputData,
    Moment,
    Name,
    ProblemForm,
    ProblemLead,
    ProblemOutside,
    ProblemSpend,
    ProblemStock,
    Ranks,
    Rate,
    Ratio,
    RefusedSite,
    Seconds,
)

FORMAT: Final = "federator-problem/1"


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What all parts of the file have in common: unknown fields are refused, and what has its default is not written."""


class ProblemJob(_Part, frozen=True, kw_only=True):
    """A job that waits. A gang's nodes all start together, or none; its figures per node are those of one rank."""

    id: Name
    """Unique in the file."""
    revision: int = 0
    """Of its record: a plan is void for a job that has changed since."""
    name: str = ""
    """For people."""
    queue: str = "default"
    """Path in the quota tree, such as `research/vision`."""
    owner: str = ""
    """Who submitted it."""
    team: str = ""
    """The team under which it was admitted; empty: under none."""
    submitted_at: Moment
    """When."""
    waits_since_at: Moment | None = None
    """When it began to wait, where that is later: it had to make room, or followed other jobs."""
    priority: int = 50
    """0 to 100; ten points are a band of the order."""
    nodes: Ranks = 1
    """Ranks of the gang."""
    gpus_per_node: Count = 0
    """GPUs of each rank; of a job that is `shared` thousandths of one."""
    shared: bool = False
    """It asks for part of a GPU per rank, on GPUs that their site shares."""
    cpus_milli_per_node: Count = 0
    """CPUs of each rank, in thousandths of a core."""
    memory_mib_per_node: Count = 0
    """Memory of each rank."""
    models: tuple[str, ...] = ()
    """GPU models that will do; empty: any."""
    gpu_memory_mib: Count = 0
    """Memory that each GPU must have at least."""
    max_duration_s: Seconds | None = None
    """Killed after so long; nothing is rented for a job without it."""
    grace_s: Seconds = 0.0
    """For how long it may go on after it is asked to end."""
    deadline_at: Moment | None = None
    """By when it is to be done."""
    start_by_at: Moment | None = None
    """Set where `deadline_at` is not its own but stands for the longest wait of its queue: by when it is to start."""
    value_usd: Amount | None = None
    """What meeting the deadline is worth; left out: its queue's price."""
    must: bool = False
    """The deadline is worth whatever it takes."""
    max_cost_usd: Amount | None = None
    """What it may cost in all."""
    spent_usd: Amount = 0.0
    """What it has cost so far."""
    spot_policy: Literal["auto", "spot", "on-demand"] = "auto"
    """Whether it may run on capacity that can be taken back."""
    kinds: tuple[str, ...] = ()
    """Kinds of sites that will do (`onprem`, `cloud`, `edge`); empty: any."""
    sites: tuple[str, ...] = ()
    """Sites that will do; empty: any."""
    resumes_at_site: str = ""
    """The one of `sites` that has its checkpoint."""
    not_sites: tuple[str, ...] = ()
    """Sites that will not do."""
    site_labels: dict[str, str] = {}
    """Labels that a pool must have."""
    labels: dict[str, str] = {}
    """The job's own, for rules."""
    interactive: bool = False
    """Somebody sits before it."""
    patience_s: Seconds = 0.0
    """It may let free owned GPUs that fit it go by, for a cheaper place that is free so long after it was submitted."""
    not_before_at: Moment | None = None
    """It may not start earlier."""
    avoid_nodes: tuple[str, ...] = ()
    """Hosts (`member/node`) that it was lost on."""
    refused_sites: tuple[RefusedSite, ...] = ()
    """Sites that refused it again and again."""
    needs: tuple[str, ...] = ()
    """What its site must have beside hardware: `images`, `data`, `secret:NAME`."""
    needs_fencing: bool = False
    """It has to end where its site is cut off: only where something enforces that."""
    licenses: dict[str, Count] = {}
    """Licences that it holds while it runs, and how many of each."""
    inputs: tuple[InputData, ...] = ()
    """What it reads."""
    saves: bool = False
    """It saves itself when told to, and goes on from there."""
    priced_gpus: Amount = 0.0
    """Of an elastic job that goes on in one form: its GPUs as it was asked for, by which its deadline and its waiting are priced; 0: its own,"""
    priced_run_s: Seconds = 0.0
    """and how long it would run then."""
    repeats_s: Seconds | None = None
    """What the loss of a machine costs it of its work at most; left out: all of it."""
    cost_policy: str = ""
    """The policy that `max_cost_usd` is by; empty: its own."""
    approved_usd: Amount = 0.0
    """A person has approved a rental for it that costs up to so much in the worst case."""
    may_rent: bool = True
    """It may use rented capacity, as far as the rules permit."""
    usable_queues: tuple[Name, ...] | None = None
    """The queues that its owner may submit to, for advice; left out: all."""
    forms: Annotated[tuple[ProblemForm, ...], Meta(max_length=MOST_FORMS)] = ()
    """Other ways in which it may run, numbered from 1."""
    elastic: bool = False
    """It may be told to change its form while it runs."""
    ordered: bool = False
    """An earlier entry of its list is taken where both could start now."""
    together: str = ""
    """How the gang's nodes lie: `host`, all on one; `spread`, each on a host of its own; else the name of a label that their pool must have."""
    ranks_in_one: Count = 0
    """With `host`: the one node written here stands for so many nodes, and asks for all of them."""


class ElasticWork(_Part, frozen=True, kw_only=True):
    """Running work that may be told to go on in another of its forms, as it would wait if it were stopped now."""

    job: ProblemJob
    """It, with all its forms."""
    forecast: "Forecast"
    """What is left of its run, in form 0."""


class RunningWork(_Part, frozen=True, kw_only=True):
    """Work that holds part of a pool. `placement` and all below are written for work of the federation only."""

    nodes: Hosts
    """Ranks here."""
    gpus_per_node: Count
    """GPUs of each rank; in a pool that is `shared` thousandths of one."""
    shared: bool = False
    """It has parts of GPUs."""
    cpus_milli_per_node: Count = 0
    """CPUs of each rank, in thousandths of a core."""
    memory_mib_per_node: Count = 0
    """Memory of each rank."""
    ends_at: Moment
    """When it is expected to end."""
    overdue: bool = False
    """It should have ended already, and nobody knows when it will. So is what has an end in the past."""
    placement: str | None = None
    """Its placement's id."""
    leads: bool = True
    """Whether its first rank is here: that part counts as the job."""
    job: str | None = None
    """Whose it is."""
    revision: int = 0
    """Of that job's record."""
    queue: str = ""
    """The job's queue."""
    owner: str = ""
    """The job's owner."""
    labels: dict[str, str] = {}
    """The job's labels."""
    licenses: dict[str, Count] = {}
    """Licences that the job holds, counted where its first rank is."""
    priority: int = 0
    """The job's priority."""
    form: Count = 0
    """Which of its job's forms it runs in."""
    waits_as: ElasticWork | None = None
    """Of elastic work: what it could go on as. Left out: it keeps its form."""
    started_at: Moment = 0.0
    """When it started; 0: not known."""
    usd_per_h: Amount = 0.0
    """What it costs by the hour."""
    saves: bool = False
    """It saves itself when it is told to stop."""
    saves_every_s: Seconds | None = None
    """It saves itself so often while it runs."""
    startup_s: Seconds = 0.0
    """What starting it took, and would take again."""
    grace_s: Seconds = 0.0
    """How long it may go on after it is told to stop."""
    stopping: bool = False
    """It has been told to."""
    displaced_at: Moment | None = None
    """When it had to make room for another job last."""


class ProblemPool(_Part, frozen=True, kw_only=True):
    """Hosts of one make at one member of a site."""

    site: Name
    """The site."""
    pool: Name
    """The pool's name there."""
    member: Name
    """The member whose hosts they are; a site with one agent has one member."""
    kind: str = "onprem"
    """`onprem`, `cloud` or `edge`."""
    session: str = ""
    """The agent's connection that this is known from."""
    region: str = ""
    """Where it is."""
    provider: str | None = None
    """For a lease: who rents it out."""
    labels: dict[str, str] = {}
    """What jobs may ask for."""
    market: Market = Market.OWNED
    """How it is paid for."""
    price_usd_gpu_h: Amount = 0.0
    """Per GPU and hour."""
    undeclared: bool = False
    """Its site declared no price: this one only weighs it against others."""
    model: str = ""
    """GPU model; empty for hosts without."""
    gpu_memory_mib: Count = 0
    """Memory of each GPU."""
    nodes: Hosts = 1
    """Hosts, busy or free."""
    gpus_per_node: Count = 0
    """GPUs of each host; where they are `shared` thousandths of one, 1000 unless it is a part that is a host."""
    shared: bool = False
    """Its GPUs are shared: each is a host of its own with a share of CPUs and memory, and GPUs, free and busy, are counted in thousandths."""
    cut_milli: Count = 0
    """Its shared GPUs are cut into parts of so many thousandths, and a job gets whole ones of these. 0: any part."""
    longest_s: Seconds | None = None
    """What runs there is ended after this by the site's own scheduler; left out: it is not."""
    cpus_milli_per_node: Count = 0
    """CPUs of each host, in thousandths of a core."""
    memory_mib_per_node: Count = 0
    """Memory of each host."""
    free: tuple[FreeHosts, ...] = ()
    """What is free now, as a histogram of hosts; hosts that are not in it have nothing free."""
    busy: tuple[RunningWork, ...] = ()
    """What runs, and when it ends."""
    lends_to_queues: tuple[str, ...] = ()
    """Whose jobs may use it: a queue with all below it, `owner:NAME`, `team:NAME`; empty: everybody's."""
    abilities: tuple[str, ...] = ()
    """What jobs that need it find there: `images`, `data`, `secret:NAME`."""
    self_fencing: bool = False
    """Whether it ends work that is cut off for too long by itself."""
    trusts: tuple[str, ...] | None = None
    """Jobs are not kept apart there, and it takes only those of `owner:NAME`, `team:NAME`, `queue:PATH` and below, or all (`*`); left out: it takes everybody's."""
    age_s: Seconds = 0.0
    """How old this knowledge is."""
    open: bool = True
    """Whether anything new may start here."""
    closed_because: str = ""
    """Why not."""
    lease: str | None = None
    """The lease that it belongs to, where it is rented."""
    ready_at: Moment | None = None
    """For a lease that still boots: when it is expected."""
    rented_for_job: str = ""
    """For a lease: whose need it was rented for."""
    rented_queue: str = ""
    """For a lease: whose caps it counts against; empty: all that select it."""
    paid_until_at: Moment | None = None
    """For a lease: until when its rent is committed in the worst case, `tail_s` taken off."""
    tail_s: Seconds = 0.0
    """For a lease: for how long it may be paid beyond the end of its last work."""
    interruptions_h: Rate = 0.0
    """For a lease: how often an hour such a machine is taken back; 0: never."""


class ProblemOffer(_Part, frozen=True, kw_only=True):
    """Instances that could be rented."""

    provider: Name
    """Who offers it."""
    name: Name
    """Unique at the provider."""
    site: Name
    """The cloud site that it would join."""
    region: str = ""
    """Where it is."""
    instance_type: str = ""
    """The provider's name for it."""
    shared: bool = False
    """Its one GPU is to be shared: jobs get parts of it."""
    market: Market
    """`on-demand` or `spot`."""
    model: str
    """GPU model."""
    gpu_memory_mib: Count = 0
    """Memory of each GPU."""
    gpus: Count
    """GPUs of one instance."""
    cpus_milli: Count = 0
    """CPUs of one instance, in thousandths of a core."""
    memory_mib: Count = 0
    """Memory of one instance."""
    price_usd_h: Amount
    """Of one instance."""
    delay_s: Seconds
    """From asking for it until work runs there."""
    teardown_s: Seconds = 60.0
    """Paid after its last work."""
    minimum_billing_s: Seconds = 60.0
    """Paid at least."""
    available: Count = 1
    """How many could be had; of a `stock` there may be fewer left."""
    stock: ProblemStock | None = None
    """What it draws on together with other offers; left out: nothing."""
    egress_usd_per_gib: Amount = 0.0
    """What it costs to get data out."""
    price_source: str = ""
    """Where the price is from."""
    labels: dict[str, str] = {}
    """Those that its pool would have."""
    avoid_until_at: Moment | None = None
    """Not before then, after a failed launch."""
    avoid_because: str = ""
    """Why."""
    slack_s: Seconds = 0.0
    """Rent that the worst case holds for what may be late."""
    interruptions_h: Rate = 0.0
    """How often an hour one machine of it is taken back; 0: never."""


class ProblemSnapshot(_Part, frozen=True, kw_only=True):
    """The world at one moment."""

    taken_at: Moment
    """That moment."""
    jobs: tuple[ProblemJob, ...] = ()
    """All that wait."""
    pools: tuple[ProblemPool, ...] = ()
    """Capacity that exists, or boots."""
    offers: tuple[ProblemOffer, ...] = ()
    """Capacity that could be rented."""
    spend: tuple[ProblemSpend, ...] = ()
    """What capped policies have cost so far."""
    recent_gpus: dict[str, Amount] = {}
    """Of queues whose past use counts: owned GPUs that they have had on average, of late more than long ago."""
    burst_paused: bool = False
    """Nothing may be rented."""
    away_sites: tuple[str, ...] = ()
    """Sites that have been away for a moment only: nothing is rented for want of them."""
    policy_version: int = 0
    """Of the rules."""
    incarnation: str = ""
    """Of the store that it was read from."""
    revision: int = 0
    """Of that store."""


class Forecast(_Part, frozen=True, kw_only=True):
    """How long a job is expected to run."""

    run_s: Seconds
    """What plans count on, the margin included, at speed 1."""
    run_low_s: Seconds | None = None
    """If it goes well; left out: as `run_s`."""
    run_high_s: Seconds | None = None
    """If it does not; left out: as `run_s`."""
    speed_by_model: dict[str, Ratio] = {}
    """Relative speed by GPU model; a model that is not named has 1."""
    behind_s: Seconds = 0.0
    """For how long waiting work that is before it, and that the file leaves out, is expected to keep it."""


class ProblemFile(_Part, frozen=True, kw_only=True):
    """One problem. With a seed and the stages it determines the plan, byte for byte but for the stages' wall time."""

    format: Literal["federator-problem/1"]
    """The version of this format."""
    decision: str = ""
    """The id of the decision that it was, or is to be."""
    snapshot: ProblemSnapshot
    """The world at one moment."""
    rules: tuple[Rule, ...] = ()
    """What policies have compiled into; `type` says which kind."""
    forecasts: dict[str, Forecast]
    """One for every job, by its id."""
    prices: dict[str, float] = {}
    """Prices of the model's rows, in USD, that the last plan ended with: a hint, never a rule."""
    outside: dict[str, ProblemOutside] = {}
    """By the row's name: `hours/PLACE/BUCKETh`, the bucket by its beginning. Where it is there, plans are charged for what they take of it."""
    leads: tuple[ProblemLead, ...] = ()
    """What a plan of the whole line rents now for jobs of the problem: where any is there, it is decided so. `prices` are that plan's then."""
    recorded: dict[str, Any] | None = None
    """The plan that was made of it, where this was a recorded decision: `federator decisions replay FILE` compares with it. The solver does not read it."""
