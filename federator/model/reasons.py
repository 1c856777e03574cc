"""Why something is as it is, as values: a kind from a closed list, with the ids, numbers and moments that it is about.

Planning and the loops make these, and never a sentence. `planning.wording.told` renders them when somebody looks, so that a turn spends nothing on English, a
program need not read any, and a record of years ago is told in today's words. A kind and the names of its parameters are stable; parameters may be added,
each with a default. Texts are here only where a person or a site has written them. Another job is named as `NAME (ID)`: whoever may not see it has both taken out.
"""

import msgspec

from federator.model.rejections import Brought, Rejected, RejectionKind

# -- what reasons are about -------------------------------------------------------------------------------------------


class Asked(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What a job asks for, per node."""

    nodes: int = 1
    gpus: float = 0.0
    models: tuple[str, ...] = ()
    cpus_milli: int = 0
    memory_mib: int = 0


class FormTaken(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Which form of a job it is: the entry of its list, and within its range of nodes and of GPUs per node."""

    entry: int
    entries: int
    nodes: int
    nodes_low: int
    nodes_high: int
    gpus: float
    gpus_low: float
    gpus_high: float


class Expected(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Where and when a job is expected to start. `offered`: beside the job that the place is rented for."""

    place: str
    start_at: float
    offered: bool = False
    booting: bool = False


# -- why a job starts, and why another stops ---------------------------------------------------------------------------


class Fits(RejectionKind, frozen=True, kw_only=True, tag="fits"):
    """It starts on capacity that is there: the best of so many places that it may use."""

    asked: Asked
    place: str
    places: int
    finish_at: float
    deadline_at: float | None = None
    queue: str = ""
    start_by_at: float | None = None
    """By when its queue is to start it, where that is nearer than its deadline."""
    rented: bool = False
    members: tuple[str, ...] = ()
    """Of a place of several, which; of many, none by name."""
    member_count: int = 0
    form: FormTaken | None = None
    why_form: str = ""
    """`enough`: more would gain less than it costs; `no-more`: no more is free there."""
    price_usd_gpu_h: float = 0.0
    brought: Brought | None = None
    heard_s: float = 0.0
    """How long ago the place was heard, where that counts."""


class Rents(RejectionKind, frozen=True, kw_only=True, tag="rents"):
    """Capacity is rented for it, because of what it may expect at home."""

    place: str
    finish_at: float
    cost_usd: float
    committed_usd: float
    policy: str
    mode: str
    required: bool = False
    machines: int = 1
    warm: int = 0
    """How many of them are rented already."""
    home_finish_at: float | None = None
    home_risk: float = 0.0
    deadline_at: float | None = None
    value_usd: float = 0.0
    in_time: float | None = None
    """The chance that it meets its deadline, where its finish is planned after that."""
    fallback_finish_at: float | None = None
    interruptions_h: float = 0.0
    """How often an hour such a machine is taken back,"""
    rework: float = 1.0
    """and how much longer its run is planned for that."""
    form: FormTaken | None = None
    brought: Brought | None = None
    not_place: str = ""
    """Spot capacity that is not rented, and why not."""
    not_why: "Reason | None" = None


class MakesRoom(RejectionKind, frozen=True, kw_only=True, tag="makes-room"):
    """It stops, because another is entitled to its place."""

    job: str
    why: "Reason"


class Narrows(RejectionKind, frozen=True, kw_only=True, tag="narrows"):
    """It goes on with less, because another gains more by that than it loses."""

    job: str
    nodes: int
    gpus: float
    """In all."""


class Widens(RejectionKind, frozen=True, kw_only=True, tag="widens"):
    """It goes on with more, which idles, and ends so much sooner."""

    nodes: int
    gpus: float
    saves_s: float


class Proposed(RejectionKind, frozen=True, kw_only=True, tag="proposed"):
    """A rental that a policy leaves to people: it only advises, or wants an `approval`."""

    policy: str
    place: str
    cost_usd: float
    committed_usd: float
    finish_at: float
    approval: bool = False
    home_finish_at: float | None = None


class Running(RejectionKind, frozen=True, kw_only=True, tag="running"):
    """It runs, and why it went there."""

    site: str
    why: "Reason"


# -- why a job waits ----------------------------------------------------------------------------------------------------


class NotBefore(RejectionKind, frozen=True, kw_only=True, tag="not-before"):
    """It waits out a pause, for example after a failed start."""

    until_at: float


class OwedGuarantee(RejectionKind, frozen=True, kw_only=True, tag="owed-guarantee"):
    """Its queue is owed its guarantee; so many placements stop for it."""

    queue: str
    gpus: int = 0
    model: str = ""
    cpus_milli: int = 0
    memory_mib: int = 0
    reclaim_s: float = 0.0
    stops: int = 0
    made: bool = False
    """What stops already makes room for it."""


class Displaces(RejectionKind, frozen=True, kw_only=True, tag="displaces"):
    """A policy lets it displace others; so many placements stop for it."""

    policy: str
    stops: int = 0
    made: bool = False


class NoRoom(RejectionKind, frozen=True, kw_only=True, tag="no-room"):
    """Nothing that is free now holds it. `narrowing`: elastic jobs make room for it."""

    asked: Asked
    places: int
    expected: Expected | None = None
    queue: str = ""
    start_by_at: float | None = None
    """By when its queue is to start it, where that is nearer than its deadline."""
    narrowing: bool = False
    elsewhere: bool = False
    """It may use no owned place, and starts on what is rented."""


class ToRent(RejectionKind, frozen=True, kw_only=True, tag="to-rent"):
    """It is rented for later, if nothing frees first. `beside`: why it does not start on what is free."""

    place: str
    rent_at: float
    cost_usd: float
    machines: int = 1
    home_finish_at: float | None = None
    start_by_at: float | None = None
    """By when its queue is to start it: a later deadline changes nothing."""
    beside: "Reason | None" = None


class NoSites(RejectionKind, frozen=True, kw_only=True, tag="no-sites"):
    """There is no capacity at all."""


class Nowhere(RejectionKind, frozen=True, kw_only=True, tag="nowhere"):
    """No place is open to it: why the one is not that came closest."""

    place: str
    why: "Reason"


class LateUnrented(RejectionKind, frozen=True, kw_only=True, tag="late"):
    """It waits, will miss its deadline, and nothing is rented for it: why not, of the offer that came closest."""

    waits: "Reason"
    place: str = ""
    why: "Reason | None" = None


class Held(RejectionKind, frozen=True, kw_only=True, tag="held"):
    """What is free is kept for another."""

    place: str
    job: str
    gpus: float
    until_at: float


class BetterElsewhere(RejectionKind, frozen=True, kw_only=True, tag="better-elsewhere"):
    """Where it fits it would miss its deadline; elsewhere it would not."""

    place: str
    start_at: float


class CheaperElsewhere(RejectionKind, frozen=True, kw_only=True, tag="cheaper-elsewhere"):
    """Waiting for another place costs less, all told."""

    place: str
    start_at: float
    saves_usd: float


class RentalAwaited(RejectionKind, frozen=True, kw_only=True, tag="rental-awaited"):
    """Where it fits it would miss its deadline; what is to be rented would not."""

    place: str
    rent_at: float


class Behind(RejectionKind, frozen=True, kw_only=True, tag="behind"):
    """So many jobs wait before it."""

    jobs: int


class CapReached(RejectionKind, frozen=True, kw_only=True, tag="cap"):
    """A cap of a policy has no room for it. `unit` is that of the cap: `gpus`, `jobs`, `licenses`, `instances`, `usd`, `usd-per-h`."""

    policy: str
    unit: str
    limit: float
    used: float
    adds: float
    period: str = "now"
    share: str = ""
    scope: tuple[str, ...] = ()
    """Whose work counts: owners, then queues."""
    license: str = ""
    """Of a cap on licences: of which."""


# -- why nothing is rented ----------------------------------------------------------------------------------------------


class Uncovered(RejectionKind, frozen=True, kw_only=True, tag="uncovered"):
    """No policy in force lets it rent there."""


class NoDeadline(RejectionKind, frozen=True, kw_only=True, tag="no-deadline"):
    """The policy rents to meet deadlines, and it has none."""

    policy: str


class WaitsLonger(RejectionKind, frozen=True, kw_only=True, tag="waits-longer"):
    """The policy rents for what has waited longer."""

    policy: str
    after_s: float
    waited_s: float


class InTimeAtHome(RejectionKind, frozen=True, kw_only=True, tag="in-time-at-home"):
    """It needs no rental."""

    finish_at: float
    deadline_at: float


class TooLate(RejectionKind, frozen=True, kw_only=True, tag="too-late"):
    """It would be late there, too. `finish_at`: by which it is done even if the machine is taken back at the end, as `again_s` says."""

    late_at: float
    deadline_at: float
    finish_at: float
    probably: bool = False
    again_s: float = 0.0


class SpotTooLate(RejectionKind, frozen=True, kw_only=True, tag="spot-too-late"):
    """Taken back at the very end, it would be late."""

    finish_at: float
    deadline_at: float


class Unapproved(RejectionKind, frozen=True, kw_only=True, tag="unapproved"):
    """A person has to approve it."""

    job: str
    policy: str
    above_usd: float
    committed_usd: float


class GainsLess(RejectionKind, frozen=True, kw_only=True, tag="gains-less"):
    """Renting costs more than it gains. `surer`: by how much likelier the deadline is met; `value_usd`: what that is worth; `enough_usd`: a value that would do."""

    cost_usd: float
    value_usd: float
    deadline: bool = False
    surer: float | None = None
    enough_usd: float | None = None


class SoldOut(RejectionKind, frozen=True, kw_only=True, tag="sold-out"):
    """The provider has too little left of it, or of the stock that it draws on."""

    provider: str
    left: int = 0
    needs: int = 1
    stock: str = ""
    unit: str = ""
    limit: int = 0
    taken: int = 0


class RentLater(RejectionKind, frozen=True, kw_only=True, tag="rent-later"):
    """It would be rented at a later moment."""

    rent_at: float
    cost_usd: float
    policy: str


class Rentable(RejectionKind, frozen=True, kw_only=True, tag="rentable"):
    """Nothing is in the way of renting it."""

    cost_usd: float
    policy: str


# -- why a plan is the one that is carried out ---------------------------------------------------------------------------


class Cheaper(RejectionKind, frozen=True, kw_only=True, tag="cheaper"):
    """It costs so much less than greedy's. `gain`, what makes most of that: `shortfall` (of guarantees) and `policy` (rentals that policies require), or of `job` `deadline` (met, by `finish_at`) and `cost`."""

    saves_usd: float
    gain: str = ""
    job: str = ""
    gains_usd: float = 0.0
    finish_at: float | None = None


class NoneCheaper(RejectionKind, frozen=True, kw_only=True, tag="none-cheaper"):
    """It is greedy's, and these stages found nothing cheaper; without any, no other completed."""

    stages: tuple[str, ...] = ()


class GreedyAlone(RejectionKind, frozen=True, kw_only=True, tag="greedy-alone"):
    """It is greedy's, and no other counts. `situation`: `fast-path`, `solver-failed`, `starts-only` or `nothing-waits`."""

    situation: str


# -- how a place stands to a job ----------------------------------------------------------------------------------------


class Booting(RejectionKind, frozen=True, kw_only=True, tag="booting"):
    """It is rented, and boots."""

    start_at: float


class InUse(RejectionKind, frozen=True, kw_only=True, tag="in-use"):
    """Its hosts are used by what is not expected to end."""

    gpus: float


class Busy(RejectionKind, frozen=True, kw_only=True, tag="busy"):
    """What is free there does not hold it. `lacks`: `hosts`, `rest` (CPUs or memory beside GPUs), or `cpus`."""

    asked: Asked
    start_at: float
    free: float
    """GPUs; of a job without, CPUs."""
    lacks: str
    fits: int = 0
    """How many of its nodes there are hosts for."""


class FitsNow(RejectionKind, frozen=True, kw_only=True, tag="fits-now"):
    """It fits there."""


class InForm(RejectionKind, frozen=True, kw_only=True, tag="in-form"):
    """In one of its forms."""

    form: FormTaken
    why: "Reason"


class WithData(RejectionKind, frozen=True, kw_only=True, tag="with-data"):
    """And what bringing its data there takes, and how long ago the place was heard."""

    why: "Reason"
    brought: Brought | None = None
    heard_s: float = 0.0


Reason = (
    Fits | Rents | MakesRoom | Narrows | Widens | Proposed | Running
    | NotBefore | OwedGuarantee | Displaces | NoRoom | ToRent | NoSites | Nowhere | LateUnrented | Held
    | BetterElsewhere | CheaperElsewhere | RentalAwaited | Behind | CapReached
    | Uncovered | NoDeadline | WaitsLonger | InTimeAtHome | TooLate | SpotTooLate | Unapproved | GainsLess | SoldOut
    | RentLater | Rentable
    | Cheaper | NoneCheaper | GreedyAlone
    | Booting | InUse | Busy | FitsNow | InForm | WithData
    | Rejected
)  # fmt: skip
"""The closed list."""
