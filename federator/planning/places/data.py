"""What bringing a job's inputs to a place takes, in time and money: from where each of them is brought, over which link.

Of the replicas of an input, the one that costs least is taken, and of those that cost the same, the one that is here soonest. Inputs come
one after another, before the job starts, while its hosts are kept for it: so their time is part of the run, and their price part of its
cost, wherever the planner adds up. What nobody has registered costs nothing here; `Transfer.unknown` names it, so that people are told.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from federator.model.datasets import (
    DatasetRule,
    LinkRule,
    Moves,
    Spot,
    dataset_of,
    link_between,
    seconds,
    usd,
)
from federator.model.jobs import Input
from federator.model.rejections import Brought
from federator.model.rules import Rule
from federator.model.snapshot import JobView, Snapshot


class InputMove(NamedTuple):
    """One input that is moved: from where, over what."""

    uri: str
    moved_bytes: int
    source: str
    seconds: float
    usd: float


class Transfer(NamedTuple):
    """All of a job's inputs on their way to one place. `unknown`: those of which not enough is known to say."""

    seconds: float = 0.0
    usd: float = 0.0
    moved_bytes: int = 0
    carried: tuple[InputMove, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def sources(self) -> str:
        """From where it comes."""
        return ", ".join(dict.fromkeys(each.source for each in self.carried))

    @property
    def moves(self) -> Moves | None:
        """As an action of a plan has it; None where nothing is moved."""
        if not self.moved_bytes:
            return None
        return Moves(self.moved_bytes, round(self.seconds, 3), round(self.usd, 6), self.sources)

    @property
    def brought(self) -> Brought | None:
        """As reasons have it; None where nothing is moved and nothing unknown."""
        if not (self.moved_bytes or self.unknown):
            return None
        unknown = self.unknown[0] if self.unknown else ""
        sources = self.sources if self.moved_bytes else ""
        seconds, usd = float(self.seconds), float(self.usd)
        return Brought(self.moved_bytes, sources, seconds, usd, unknown, len(self.unknown))


NOTHING = Transfer()


class DataBook:
    """What rules say of data and links, for the sites of one snapshot."""

    def __init__(self, rules: Iterable[Rule], regions: Mapping[str, str]) -> None:
        """`regions`: of each site, its region."""
        rules = tuple(rules)
        self.datasets = tuple(rule for rule in rules if isinstance(rule, DatasetRule))
        self.links = tuple(rule for rule in rules if isinstance(rule, LinkRule))
        self._regions = regions
        self._registered: dict[str, DatasetRule | None] = {}
        self._known: dict[tuple[tuple[Input, ...], str, str], Transfer] = {}

    def transfer(self, job: JobView, site: str, region: str) -> Transfer:
        """What bringing the job's inputs to a site in a region takes."""
        if not job.inputs:
            return NOTHING
        index = (job.inputs, site, region)
        if index not in self._known:
            self._known[index] = self._transfer(job.inputs, Spot(site, region))
        return self._known[index]

    def to_site(self, inputs: tuple[Input, ...], site: str) -> Transfer:
        """What bringing all of them to a site takes whose region is known."""
        return self._transfer(inputs, Spot(site, self._regions.get(site, "")))

    def _transfer(self, inputs: Iterable[Input], to: Spot) -> Transfer:
        carried, unknown = [], []
        for each in inputs:
            found = self._cheapest(each, to)
            if found is None:
                unknown.append(each.uri)
            elif found.moved_bytes:
                carried.append(found)
        return Transfer(
            seconds=sum(each.seconds for each in carried),
            usd=sum(each.usd for each in carried),
            moved_bytes=sum(each.moved_bytes for each in carried),
            carried=tuple(carried),
            unknown=tuple(unknown),
        )

    def _cheapest(self, each: Input, to: Spot) -> InputMove | None:
        """The best of its replicas; None where nobody knows where it is, how much it is, or how it would get there."""
        if each.uri not in self._registered:
            self._registered[each.uri] = dataset_of(self.datasets, each.uri)
        dataset = self._registered[each.uri]
        if dataset is None:
            return None
        if to.site in (dataset.kept_at or ()):
            return InputMove(each.uri, 0, to.site, 0.0, 0.0)
        size = each.size_bytes if each.size_bytes is not None else dataset.size_bytes
        ways = []
        for replica in dataset.replicas:
            source = self._placed(replica)
            if source.site and source.site == to.site:
                return InputMove(each.uri, 0, source.shown, 0.0, 0.0)
            link = link_between(self.links, source, to)
            if link is not None and size is not None:
                ways.append(InputMove(each.uri, size, source.shown, seconds(link, size), usd(link, size)))
        return min(ways, key=lambda way: (way.usd, way.seconds, way.source), default=None)

    def _placed(self, replica: Spot) -> Spot:
        """A replica that names its site only is in that site's region."""
        if replica.region or not replica.site:
            return replica
        return Spot(replica.site, self._regions.get(replica.site, ""))


def data_book(snapshot: Snapshot) -> DataBook:
    """The book of a snapshot: its rules, and where its sites are."""
    regions = {view.site: view.offer.region for view in snapshot.offers}
    return DataBook(snapshot.rules, regions | {pool.site: pool.region for pool in snapshot.pools})
