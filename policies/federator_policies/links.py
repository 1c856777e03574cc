"""The kind `Links`: how fast data moves between sites and regions, and what it costs.

Inputs of jobs are brought over these links before they start, and plans count the time and the money. What no document says counts as
nothing. From a site to itself nothing is moved.
"""

from collections.abc import Iterator
from typing import Annotated

import msgspec

from federator.kernel.errors import Invalid
from federator.model.datasets import Link, LinkRow, LinkRule
from federator.model.rules import Rule
from federator.wire import fields
from federator.wire.decoding import decode

MAX_ROWS = 20_000
Gbit = Annotated[float, msgspec.Meta(gt=0, le=1_000_000)]
Place = Annotated[str, fields.short(100)]


class Usual(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A link."""

    gbit_per_s: Gbit | None = None
    """What a job's data may count on, in 10⁹ bits per second; as if instant when it is not said."""
    usd_per_gb: fields.Money = 0.0
    """USD for 10⁹ bytes."""


class Between(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"from_": "from"}):
    """The link from one site or region to another. What names a site goes before what names its region, then the first row."""

    from_: Place
    """A site, a region, or `dispatcher`, from where outputs of other jobs come."""
    to: Place
    """A site, or a region."""
    gbit_per_s: Gbit | None = None
    """What a job's data may count on, in 10⁹ bits per second; as if instant when it is not said."""
    usd_per_gb: fields.Money = 0.0
    """USD for 10⁹ bytes."""


class LinksSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`spec` of `Links`."""

    within_region: Usual | None = None
    """From one site, or an object store, to another site of the same region."""
    between_regions: Usual | None = None
    """From one region to another, where no row says more."""
    rows: tuple[Between, ...] = ()
    """Single links."""
    symmetric: bool = False
    """Rows hold for the way back as well, where no row of its own does."""


class LinksKind:
    """Checks and compiles `Links` documents; see `federator.ports.PolicyKind`."""

    kind = "Links"
    spec = LinksSpec

    def compile(self, name: str, spec: object) -> tuple[Rule, ...]:
        """One table of links."""
        given = decode(spec, LinksSpec, "$.spec")
        if len(given.rows) > MAX_ROWS:
            raise Invalid(f"has {len(given.rows)} rows; at most {MAX_ROWS} are taken", field="$.spec.rows")
        rows = tuple(_rows(given))
        if not rows and given.within_region is None and given.between_regions is None:
            raise Invalid(
                "is empty",
                field="$.spec",
                remedy="write within_region, between_regions or rows, for example between_regions: {usd_per_gb: 0.08}",
            )
        return (
            LinkRule(
                policy=f"{self.kind}/{name}",
                within_region=_usual(given.within_region),
                between_regions=_usual(given.between_regions),
                rows=rows,
            ),
        )


kind = LinksKind()


def _rows(given: LinksSpec) -> Iterator[LinkRow]:
    """In the order of the document; ways back after them all, so that a row of its own goes first."""
    first: dict[tuple[str, str], int] = {}
    links = []
    for number, row in enumerate(given.rows):
        path = f"$.spec.rows[{number}]"
        ends = (row.from_, row.to)
        if first.setdefault(ends, number) != number:
            raise Invalid(
                f"is the link of row {first[ends]}, from {ends[0]} to {ends[1]}",
                field=path,
                remedy="write it once",
            )
        links.append(LinkRow(*ends, Link(row.gbit_per_s, row.usd_per_gb)))
    yield from links
    if given.symmetric:
        yield from (LinkRow(row.dst, row.src, row.link) for row in links if (row.dst, row.src) not in first)


def _usual(link: Usual | None) -> Link | None:
    return None if link is None else Link(link.gbit_per_s, link.usd_per_gb)
