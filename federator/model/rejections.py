"""Why a place is not for a job, as values: what the filters of `planning.rules` answer. See `model.reasons`."""

import msgspec


class RejectionKind(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag_field="kind"
):
    """What all reasons have: the name of their kind, written as `kind`."""


class Brought(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What bringing a job's data to a place takes. `unknown`: the first input of which nobody knows, and how many there are."""

    moved_bytes: int = 0
    sources: str = ""
    seconds: float = 0.0
    usd: float = 0.0
    unknown: str = ""
    unknown_count: int = 0


class Closed(RejectionKind, frozen=True, kw_only=True, tag="closed"):
    """The place takes nothing new. `said`: what is known of why."""

    site: str
    said: str = ""
    members: int = 1
    member: str = ""


class OutsideHours(RejectionKind, frozen=True, kw_only=True, tag="outside-hours"):
    """A calendar has it closed."""

    policy: str
    until_at: float | None = None


class ClosesSoon(RejectionKind, frozen=True, kw_only=True, tag="closes-soon"):
    """A calendar closes it before the job would be done."""

    policy: str
    closes_at: float
    late_s: float | None = None
    """By how much; None: it is too soon to begin at all."""


class RentingPaused(RejectionKind, frozen=True, kw_only=True, tag="renting-paused"):
    """An operator has paused it."""


class HomeAway(RejectionKind, frozen=True, kw_only=True, tag="home-away"):
    """A site of its own may be back in a moment."""

    sites: tuple[str, ...]


class OfferAvoided(RejectionKind, frozen=True, kw_only=True, tag="offer-avoided"):
    """The offer has failed lately."""

    until_at: float
    said: str = ""


class SavedAt(RejectionKind, frozen=True, kw_only=True, tag="saved-at"):
    """What it has saved is at another site."""

    site: str


class OtherSites(RejectionKind, frozen=True, kw_only=True, tag="other-sites"):
    """It names the sites it may run at."""

    sites: tuple[str, ...]
    site: str


class SiteExcluded(RejectionKind, frozen=True, kw_only=True, tag="site-excluded"):
    """It excludes the site."""

    site: str


class SiteRefused(RejectionKind, frozen=True, kw_only=True, tag="site-refused"):
    """The site has refused or evicted it."""

    site: str
    until_at: float


class OtherKinds(RejectionKind, frozen=True, kw_only=True, tag="other-kinds"):
    """It names the kinds of site it may run at."""

    kinds: tuple[str, ...]
    site_kind: str


class LabelsMissing(RejectionKind, frozen=True, kw_only=True, tag="labels-missing"):
    """It asks for labels, written `key=value`, that the site has not."""

    labels: tuple[str, ...]
    site: str


class LendsToOthers(RejectionKind, frozen=True, kw_only=True, tag="lends-to-others"):
    """The site lends to others. `usable`: a queue of these that its owner may use."""

    site: str
    lends_to: tuple[str, ...]
    queue: str
    owner: str = ""
    team: str = ""
    usable: str = ""


class Untrusted(RejectionKind, frozen=True, kw_only=True, tag="untrusted"):
    """Nothing keeps jobs apart at the site, and it trusts others."""

    site: str
    trusts: tuple[str, ...]
    owner: str


class AbilityMissing(RejectionKind, frozen=True, kw_only=True, tag="ability-missing"):
    """The place lacks what the job needs: `images`, `data`, a runtime's or agent's ability."""

    ability: str
    site: str
    offered: bool = False


class Unfenced(RejectionKind, frozen=True, kw_only=True, tag="unfenced"):
    """Nothing there ends work that is cut off. `unknown`: nothing is known of that yet."""

    unknown: bool = False


class RunTooLong(RejectionKind, frozen=True, kw_only=True, tag="run-too-long"):
    """The site ends it too soon. `forecast`: by its forecast, for it has no max_duration."""

    longest_s: float
    run_s: float
    forecast: bool = False


class OtherModels(RejectionKind, frozen=True, kw_only=True, tag="other-models"):
    """It asks for other GPUs. `has` is empty where there are none."""

    models: tuple[str, ...]
    has: str = ""


class GpuMemory(RejectionKind, frozen=True, kw_only=True, tag="gpu-memory"):
    """Its GPUs have less memory."""

    asks_mib: int
    has_mib: int


class OtherParts(RejectionKind, frozen=True, kw_only=True, tag="other-parts"):
    """Its GPUs are cut into other parts."""

    part: float
    asks: float


class GpusShared(RejectionKind, frozen=True, kw_only=True, tag="gpus-shared"):
    """Its GPUs are shared, and whole ones are asked for. `part`: the job could ask for a part."""

    part: bool = False


class GpusWhole(RejectionKind, frozen=True, kw_only=True, tag="gpus-whole"):
    """None of its GPUs is shared."""

    gpus: bool = True


class NotOnOneHost(RejectionKind, frozen=True, kw_only=True, tag="not-on-one-host"):
    """No host there holds all its nodes."""

    nodes: int
    gpus: float
    cpus_milli: int
    memory_mib: int


class NotLabelled(RejectionKind, frozen=True, kw_only=True, tag="not-labelled"):
    """No label says what its hosts share."""

    label: str


class NoLicense(RejectionKind, frozen=True, kw_only=True, tag="no-license"):
    """No policy has licences of that name for work there, or not so many."""

    license: str
    asks: int
    most: int
    """So many there are for work there; 0: none."""


class GpusPerNode(RejectionKind, frozen=True, kw_only=True, tag="gpus-per-node"):
    """No host there has so many."""

    asks: float
    has: float = 0.0


class CpusPerNode(RejectionKind, frozen=True, kw_only=True, tag="cpus-per-node"):
    """No host there has so many."""

    asks_milli: int
    has_milli: int


class MemoryPerNode(RejectionKind, frozen=True, kw_only=True, tag="memory-per-node"):
    """No host there has so much."""

    asks_mib: int
    has_mib: int


class GangTooLarge(RejectionKind, frozen=True, kw_only=True, tag="gang-too-large"):
    """Even empty the place does not hold it. `leased`: it is rented already; `shut`: so many members that take nothing new would help, the first by name."""

    holds: int
    nodes: int
    site: str = ""
    leased: bool = False
    shut: int = 0
    member: str = ""
    said: str = ""
    apart: bool = False
    host_gpus: float = 0.0
    host_cpus_milli: int = 0


class OtherMarket(RejectionKind, frozen=True, kw_only=True, tag="other-market"):
    """The job asks for the other market."""

    market: str


class Denied(RejectionKind, frozen=True, kw_only=True, tag="denied"):
    """A policy forbids it."""

    policy: str
    said: str = ""


class NoRightToRent(RejectionKind, frozen=True, kw_only=True, tag="no-right-to-rent"):
    """Its owner may not rent in its queue."""

    queue: str


class OnlyAdvises(RejectionKind, frozen=True, kw_only=True, tag="only-advises"):
    """The policy rents nothing."""

    policy: str


class DataKept(RejectionKind, frozen=True, kw_only=True, tag="data-kept"):
    """The policy does not let its data leave."""

    policy: str


class NoBurstPolicy(RejectionKind, frozen=True, kw_only=True, tag="no-burst-policy"):
    """No policy lets its queue rent there."""

    queue: str


class PolicyOff(RejectionKind, frozen=True, kw_only=True, tag="policy-off"):
    """The policy is switched off."""

    policy: str


class PolicyHours(RejectionKind, frozen=True, kw_only=True, tag="policy-hours"):
    """The policy is outside its hours."""

    policy: str


class PriceLimit(RejectionKind, frozen=True, kw_only=True, tag="price-limit"):
    """It is dearer by the hour than policies admit."""

    policy: str
    price_usd_h: float
    limit_usd_h: float


class NoMaxDuration(RejectionKind, frozen=True, kw_only=True, tag="no-max-duration"):
    """Nothing bounds what it would cost."""

    enough_s: float


class MaxCost(RejectionKind, frozen=True, kw_only=True, tag="max-cost"):
    """It could cost more than it may. `policy`: whose limit that is; empty: the job's own."""

    worst_usd: float
    left_usd: float
    rent_s: float | None = None
    machines: int = 1
    brought: Brought | None = None
    policy: str = ""


Rejected = (
    Closed | OutsideHours | ClosesSoon | RentingPaused | HomeAway | OfferAvoided | SavedAt | OtherSites
    | SiteExcluded | SiteRefused | OtherKinds | LabelsMissing | LendsToOthers | Untrusted | AbilityMissing
    | Unfenced | RunTooLong | OtherModels | GpuMemory | OtherParts | GpusShared | GpusWhole | NotOnOneHost
    | NotLabelled | NoLicense | GpusPerNode | CpusPerNode | MemoryPerNode | GangTooLarge | OtherMarket | Denied
    | NoRightToRent | OnlyAdvises | DataKept | NoBurstPolicy | PolicyOff | PolicyHours | PriceLimit
    | NoMaxDuration | MaxCost
)  # fmt: skip
"""What a filter may answer."""
