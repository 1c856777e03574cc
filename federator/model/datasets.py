"""Policy rules about data: datasets with their replicas, links between places, and the time and price of moving bytes over them.

What a record means is said here once, for planning and for the checker that does not trust planning: which dataset an address belongs
to, which link leads from one place to another, and whether data is of a certain kind. What follows for a job is computed by each itself.
"""

from collections.abc import Iterable, Sequence

import msgspec

from federator.model.jobs import Input

BYTES_PER_GB = 1e9
"""Data is counted in decimal units, as it is sold and moved."""


OUTPUTS = "outputs"
"""What a job reads of the outputs of others, as planning sees it; below it stands the site that keeps them. It is no data that policies are about."""
LEAST_OUTPUTS_BYTES = 1_000_000
"""Outputs of less are moved in no time, and not kept where they were made."""


class Spot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Somewhere that data is, or is brought to. A replica without a site is of the whole region, as an object store is."""

    site: str = ""
    """The site's name."""
    region: str = ""
    """The region's name, where it lies beside sites."""

    @property
    def shown(self) -> str:
        """Its name for people."""
        return self.site or self.region


class DatasetRule(msgspec.Struct, frozen=True, tag="dataset", forbid_unknown_fields=True):
    """Data that lies at `replicas`: what `uri` names, and all below it. `size_bytes` is of the whole, for inputs that do not say."""

    policy: str
    """Name of the policy that registers it."""
    uri: str
    """Its address; what lies below it belongs to it."""
    size_bytes: int | None = None
    """How large it is, in bytes; left out: not known."""
    replicas: tuple[Spot, ...] = ()
    """Where it lies."""
    labels: dict[str, str] = {}
    """By which other policies select it."""
    kept_at: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    """Sites that have all of it for themselves alone: others bring it from one of `replicas`. Unset: none."""


class Link(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A way for data. `gbit_s` in 10^9 bits per second, None: nothing is known of its speed, and plans take it for instant."""

    gbit_s: float | None = None
    """Gigabits a second; left out: not known, so it takes no time."""
    usd_per_gb: float = 0.0
    """USD for each gigabyte (10^9 bytes)."""


class LinkRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The link from one place to another; each is the name of a site or of a region."""

    src: str
    """Site or region that data comes from."""
    dst: str
    """Site or region that it goes to."""
    link: Link
    """How fast, and for how much."""


class LinkRule(msgspec.Struct, frozen=True, tag="links", forbid_unknown_fields=True):
    """What is known of links: single ones, and what holds where no row does."""

    policy: str
    """Name of the policy that it is from."""
    within_region: Link | None = None
    """Between sites of one region."""
    between_regions: Link | None = None
    """Between sites of different regions."""
    rows: tuple[LinkRow, ...] = ()
    """Between two that are named: before the other two."""


class Moves(msgspec.Struct, frozen=True, gc=False):
    """Data that is moved for one attempt of a job, before it starts: how much, how long that is expected to take, and its price."""

    moved_bytes: int
    seconds: float
    usd: float
    source: str = ""
    """From where, for people."""


class DataSelector(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which data a rule is about: what lies at or below one of `uris`, and is registered with all of `labels`; empty fields admit all."""

    uris: tuple[str, ...] = ()
    """At or below one of these addresses."""
    labels: dict[str, str] = {}
    """Registered with all of these labels."""
    none: bool = False
    """No data at all."""


STAYS = Link()
"""From a place to itself: nothing is moved."""


def is_below(uri: str, above: str) -> bool:
    """Whether an address is another one or lies below it."""
    return uri == above or uri.startswith(above.rstrip("/") + "/")


def dataset_of(datasets: Iterable[DatasetRule], uri: str) -> DatasetRule | None:
    """The dataset that the address belongs to: of several, the one with the longest address."""
    found = [dataset for dataset in datasets if is_below(uri, dataset.uri)]
    return max(found, key=lambda dataset: len(dataset.uri), default=None)


def link_between(tables: Sequence[LinkRule], src: Spot, dst: Spot) -> Link | None:
    """The link from one place to another, None where nothing is known of it.

    Of rows that apply, one that names a site goes before one that names its region, and then the first one.
    """
    if src.site and src.site == dst.site:
        return STAYS
    rows = [
        (_fit(row.src, src) + _fit(row.dst, dst), row.link)
        for table in tables
        for row in table.rows
        if _fit(row.src, src) and _fit(row.dst, dst)
    ]
    if rows:
        return max(rows, key=lambda row: row[0])[1]
    near = bool(src.region) and src.region == dst.region
    usual = (table.within_region if near else table.between_regions for table in tables)
    return next((link for link in usual if link is not None), None)


def _fit(name: str, spot: Spot) -> int:
    return 2 if name == spot.site else int(name == spot.region)


def is_selected(which: DataSelector, datasets: Sequence[DatasetRule], uri: str) -> bool:
    """Whether the rule is about that data."""
    if which.none or (which.uris and not any(is_below(uri, above) for above in which.uris)):
        return False
    dataset = dataset_of(datasets, uri) if which.labels else None
    labels = dataset.labels if dataset else {}
    return all(labels.get(key) == value for key, value in which.labels.items())


def concerns_data(
    which: DataSelector | None, datasets: Sequence[DatasetRule], inputs: Sequence[Input], *, every: bool
) -> bool:
    """Whether a rule that is about certain data (None: about jobs, whatever they read) is about a job with these inputs.

    `every`: it is for jobs that read nothing else; otherwise for those that read any of it.
    """
    if which is None:
        return True
    asked = (is_selected(which, datasets, each.uri) for each in inputs if not is_below(each.uri, OUTPUTS))
    return all(asked) if every else any(asked)


def seconds(link: Link, count: int) -> float:
    """How long so many bytes take over the link."""
    return 0.0 if link.gbit_s is None else count * 8 / BYTES_PER_GB / link.gbit_s


def usd(link: Link, count: int) -> float:
    """What it costs to move so many bytes over the link."""
    return count / BYTES_PER_GB * link.usd_per_gb
