"""What one decision may see: an immutable value, small enough to send to a child process and to record.

Commands, environment and secrets never enter it. Everything that planning reads is a number or a short word; records of
jobs and sites are reduced to views of exactly that.
"""

from typing import Any

import msgspec

from federator.model.capacity import Market, Offer, Shape
from federator.model.jobs import APART, ON_ONE_HOST, Form, Input, Resources, in_gpus, longest_s
from federator.model.rules import Rule
from federator.model.whose import Whose


class JobView(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job that waits, as planning sees it. Durations are run times at the forecast's quantile on the reference model (speed 1)."""

    id: str
    revision: int
    name: str
    queue: str
    owner: str
    team: str = ""
    """The team under which it was admitted; empty: under none."""
    submitted_at: float
    waits_since_at: float | None = None
    """When it began to wait, where that is later: it had to make room, or followed other jobs."""
    priority: int = 50
    nodes: int = 1
    gpus: int = 0
    """Per node; of a job that asks for parts (`shared`) thousandths of one."""
    models: tuple[str, ...] = ()
    gpu_memory_mib: int = 0
    cpus_milli: int = 0
    memory_mib: int = 0
    run_s: float = 3600.0
    """Expected run time with the planning margin: the quantile that plans use."""
    run_low_s: float = 3600.0
    run_high_s: float = 3600.0
    speed: dict[str, float] = {}
    max_duration_s: float | None = None
    grace_s: float = 0.0
    """How long it may go on after it is asked to end, at its limit too."""
    deadline_at: float | None = None
    start_by_at: float | None = None
    """Set where `deadline_at` is not its own but stands for the longest wait of its queue: by when it is to start."""
    value_usd: float | None = None
    must: bool = False
    max_cost_usd: float | None = None
    spent_usd: float = 0.0
    spot_policy: str = "auto"
    kinds: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    resumes_at: str = ""
    """The one of `sites` that has its checkpoint, which is why it is the only one."""
    not_sites: tuple[str, ...] = ()
    site_labels: dict[str, str] = {}
    labels: dict[str, str] = {}
    interactive: bool = False
    patience_s: float = 0.0
    """It may let free owned GPUs that fit it go by, for a cheaper place that is free so long after it was submitted."""
    not_before_at: float | None = None
    avoid_nodes: tuple[str, ...] = ()
    refused: tuple[tuple[str, float], ...] = ()
    """Sites that refused its gang again and again, or have evicted it, each with the time until which it is left alone."""
    needs: tuple[str, ...] = ()
    """What its site must have beside hardware: `images`, `data`, `secret:NAME`."""
    needs_fencing: bool = False
    """It is to stop where its site is cut off (`on_disconnect: {stop_within: …}`): only where something enforces that."""
    inputs: tuple[Input, ...] = ()
    """Data that is to be where it runs before it starts."""
    licenses: dict[str, int] = {}
    """Licences that it holds while it runs, and how many of each."""

    saves: bool = False
    """Whether it saves itself when it is told to stop, and goes on from there."""
    repeats_s: float | None = None
    """What the loss of a machine costs it of its work at most: what lies after the last checkpoint that is kept elsewhere. None: all of it."""
    cost_policy: str = ""
    """The policy that `max_cost_usd` is by; empty: the job's own."""
    approved_usd: float = 0.0
    """A person has approved a rental for it that costs up to so much in the worst case."""
    may_rent: bool = True
    """Whether the right by which it was admitted lets capacity be rented for it."""
    usable_queues: tuple[str, ...] | None = None
    """The queues that its owner may submit to, for advice; None: all."""
    behind_s: float = 0.0
    """For how long waiting work that is before it, and that the snapshot leaves out, is expected to keep it."""
    shared: bool = False
    """It asks for part of a GPU per node, on GPUs that their site shares."""
    forms: tuple[Form, ...] = ()
    """The other ways in which it may run, numbered from 1; what stands above is form 0, with throughput 1."""
    elastic: bool = False
    """It may be told to change its form while it runs."""
    ordered: bool = False
    """An earlier `Form.option` is taken where both could start now."""
    throughput: float = 1.0
    """Of a view that `as_form` has made: relative to form 0. `run_s` is that much shorter already."""
    of: "JobView | None" = None
    """Of a view that `as_form` has made: the job as it is in form 0, which says what its deadline and its waiting are worth."""

    priced_gpus: float = 0.0
    """Of one that goes on in a certain form: its size in form 0, by which its deadline and its waiting are priced; 0: its own,"""
    priced_run_s: float = 0.0
    """and how long it would run then."""

    def as_form(self, form: int) -> "JobView":
        """The job as it runs in this form, as if it had no other. 0: itself. Raises `IndexError`."""
        if form == 0:
            return self
        chosen = self.forms[form - 1]
        return msgspec.structs.replace(
            self,
            **asked(chosen.nodes, chosen.resources, self.together),
            run_s=self.run_s / chosen.throughput,
            run_low_s=self.run_low_s / chosen.throughput,
            run_high_s=self.run_high_s / chosen.throughput,
            max_duration_s=longest_s(self.max_duration_s, chosen.throughput),
            forms=(),
            throughput=chosen.throughput,
            of=self,
        )

    def throughput_in(self, form: int) -> float:
        """How much work it does in this form, against the first. Raises `IndexError`."""
        return self.forms[form - 1].throughput if form else self.throughput

    together: str = ""
    """How its nodes lie (`placement.together`): `host`, `spread`, or a label's name; empty: as it comes."""
    ranks_in_one: int = 0
    """Of one whose nodes are all to be on one host: so many. It is planned as one node that asks for all of them."""

    @property
    def waits_since(self) -> float:
        """When it began to wait."""
        return self.submitted_at if self.waits_since_at is None else self.waits_since_at

    @property
    def whose(self) -> Whose:
        """Whose work it is, as sites name it."""
        return Whose(self.queue, self.owner, self.team)

    @property
    def gpu_models(self) -> tuple[str, ...]:
        """The models of GPUs that it may run on; empty: any, or it asks for no GPU."""
        return self.models if self.gpus else ()

    @property
    def bounded(self) -> bool:
        """Whether it is ended after some time, so that the worst that it costs is known."""
        return self.max_duration_s is not None

    @property
    def apart(self) -> bool:
        """Whether each node is to be on a host of its own."""
        return self.together == APART and self.nodes > 1

    @property
    def gpus_total(self) -> float:
        """GPUs over all nodes, for money and limits; a whole number unless it asks for parts."""
        return in_gpus(self.nodes * self.gpus, shared=self.shared)


def asked(nodes: int, resources: Resources, together: str = "") -> dict[str, Any]:
    """The fields of a view that say what so many nodes of that size ask for."""
    in_one = nodes if together == ON_ONE_HOST else 1
    return {
        "nodes": nodes // in_one,
        "gpus": resources.gpus.each * in_one,
        "shared": bool(resources.gpus.share_milli),
        "models": resources.gpus.models,
        "gpu_memory_mib": resources.gpus.memory_mib,
        "cpus_milli": resources.cpus_milli * in_one,
        "memory_mib": (resources.memory_mib + resources.shm_mib) * in_one,
        "ranks_in_one": in_one if in_one > 1 else 0,
    }


class BusyView(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Work that holds part of a pool until about `ends_at`. `job` and the rest are set for placements of ours, for quotas and preemption.

    A gang over several members is one such part at each of them, with the ranks that are there.
    """

    nodes: int
    gpus: int
    """Per node; in a pool that is `shared` thousandths of one."""
    cpus_milli: int = 0
    memory_mib: int = 0
    ends_at: float
    overdue: bool = False
    """It should have ended already; `ends_at` moves on with the clock."""
    placement: str | None = None
    leads: bool = True
    """Whether its first rank is among these: that part is counted as the job, where jobs are counted."""
    job: str | None = None
    revision: int = 0
    """Of the job's record: a preemption names what it saw."""
    queue: str = ""
    owner: str = ""
    labels: dict[str, str] = {}
    licenses: dict[str, int] = {}
    priority: int = 0
    started_at: float = 0.0
    usd_per_h: float = 0.0
    saves: bool = False
    """Whether it saves itself when it is told to stop."""
    saves_every_s: float | None = None
    """It saves itself so often while it runs."""
    startup_s: float = 0.0
    """What starting it took, and would take again."""
    grace_s: float = 0.0
    """How long it may go on after it is told to stop."""
    stopping: bool = False
    """It has been told to."""
    displaced_at: float | None = None
    """When it had to make room for another job last."""
    shared: bool = False
    """It has parts of GPUs."""
    form: int = 0
    """Which of its job's forms it runs in."""
    waits_as: JobView | None = None
    """An elastic job as it would wait if it were stopped now: `run_s` is what is left of its work, in form 0. None: it keeps its form."""

    @property
    def gpus_total(self) -> float:
        """GPUs over its ranks here, for money and limits."""
        return in_gpus(self.nodes * self.gpus, shared=self.shared)


class PoolView(msgspec.Struct, frozen=True, kw_only=True):
    """Capacity that exists: hosts of one make at one member. `session` is the agent connection that the view was taken from.

    `free` has in-flight placements already taken off. `open` false: nothing new may start there, `closed_because` says why.
    """

    site: str
    kind: str
    pool: str
    member: str
    session: str
    region: str = ""
    provider: str | None = None
    labels: dict[str, str] = {}
    market: Market = Market.OWNED
    price_usd_gpu_h: float = 0.0
    undeclared: bool = False
    """Nobody declared that price: it is what such a GPU is taken to cost (`model.owned_prices`), and nobody is billed by it."""
    model: str = ""
    gpu_memory_mib: int = 0
    nodes: int = 1
    gpus_per_node: int = 0
    cpus_milli_per_node: int = 0
    memory_mib_per_node: int = 0
    free: tuple[Shape, ...] = ()
    busy: tuple[BusyView, ...] = ()
    lends_to: tuple[str, ...] = ()
    """It takes only work of these, as `model.whose` reads them; empty: everybody's."""
    abilities: tuple[str, ...] = ()
    """What jobs that need it find there beside hardware."""
    self_fencing: bool = False
    """Its site ends work that is cut off for too long even if its agent is dead."""
    trusts: tuple[str, ...] | None = None
    """Nothing stands between jobs there, and it takes only work of these, likewise. None: it takes everybody's."""
    age_s: float = 0.0
    open: bool = True
    closed_because: str = ""
    lease: str | None = None
    ready_at: float | None = None
    """For a lease that still boots: when it is expected."""
    rented_for: str = ""
    """For a lease: the job whose need it was rented for; it may use the lease without a new justification."""
    rented_queue: str = ""
    """For a lease: the queue whose caps it counts against; empty: it counts against every cap that selects it."""
    paid_until_at: float | None = None
    """For a lease: until when its rent is already committed in the worst case, `tail_s` taken off; what must end by then adds nothing to budgets."""
    tail_s: float = 0.0
    """For a lease: for how long it may be paid beyond the last end of its work: slack and teardown."""
    shared: bool = False
    """Its GPUs are shared: each is a host of its own, and all counts of GPUs here, in `free` and in `busy` are thousandths of one."""
    cut_milli: int = 0
    """Its shared GPUs are cut into parts of so many thousandths, and a job gets whole ones of these. 0: any part."""
    longest_s: float | None = None
    """What runs there is ended after this by the site's own scheduler. None: it is not."""
    interruptions_h: float = 0.0
    """For a lease: how often an hour such a machine is taken back, by what has been seen; 0: never."""

    @property
    def billed_usd_gpu_h(self) -> float:
        """What reports and the ledger count a GPU-hour there at."""
        return 0.0 if self.undeclared else self.price_usd_gpu_h

    @property
    def key(self) -> str:
        """Names the pool within one snapshot: `site/member/pool`."""
        return f"{self.site}/{self.member}/{self.pool}"


class OfferView(msgspec.Struct, frozen=True, kw_only=True):
    """Capacity that could be rented, and the cloud site that it would join."""

    offer: Offer
    site: str
    labels: dict[str, str] = {}
    avoid_until_at: float | None = None
    """Set after a failed launch or an interruption: not before then."""
    avoid_because: str = ""
    slack_s: float = 0.0
    """Rent that the worst case holds for what is late: boot, staging, results on their way home, our own looking."""
    interruptions_h: float = 0.0
    """How often an hour one machine of it is taken back, by what has been seen; 0: never."""

    @property
    def key(self) -> str:
        """Names the offer within one snapshot: `provider/offer`."""
        return f"{self.offer.provider}/{self.offer.name}"


class SpendView(msgspec.Struct, frozen=True):
    """Money under one capped policy in its present period: what is paid and what is committed in the worst case."""

    policy: str
    period: str
    spent_usd: float
    committed_usd: float
    share: str = ""
    """Of which of the policy's caps: the queue or owner that it is for."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The world at `taken_at`. `incarnation` and `revision` say which store state it was folded from."""

    taken_at: float
    incarnation: str
    revision: int
    jobs: tuple[JobView, ...] = ()
    pools: tuple[PoolView, ...] = ()
    offers: tuple[OfferView, ...] = ()
    rules: tuple[Rule, ...] = ()
    policy_version: int = 0
    spend: tuple[SpendView, ...] = ()
    burst_paused: bool = False
    recent_gpus: dict[str, float] = {}
    """Of queues whose past use counts: owned GPUs that they have had on average, of late more than long ago. Those below a queue are counted by themselves."""
    away: tuple[str, ...] = ()
    """Home sites that have been away for a moment only, or that have not come back yet after a start: nothing is rented for want of them."""


class Outside(msgspec.Struct, frozen=True):
    """What jobs that a problem leaves out are expected to use of a row of the model, and what one unit less of it would cost them."""

    used: float
    usd: float


class Lead(msgspec.Struct, frozen=True):
    """What a plan of the whole line rents now for one class, in one form."""

    job: str
    """The first of its class in the problem."""
    place: str
    """The key of an offer."""
    jobs: float
    """For so many, and parts of them."""
    form: int = 0


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """All that `decide` is given: with the seed and the stages it determines the plan, byte for byte."""

    snapshot: Snapshot
    warm_prices: dict[str, float] = {}
    outside: dict[str, Outside] = {}
    """By the row's name, where a plan of the whole line is known: see `planning.world.outlook`."""
    leads: tuple[Lead, ...] = ()
    """What that plan rents now for jobs of the problem: see `planning.linear.whole_line_rentals`. `warm_prices` are its own then."""
    decision: str = ""
