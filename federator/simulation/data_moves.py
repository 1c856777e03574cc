"""Data in a simulated world: what a world file says of links and datasets, as the policies that it comes to, and what moving takes.

It is told to the dispatcher the way a platform team would tell it, in documents of the kinds `Links` and `Dataset`. The simulated sites
take the same time for it as plans count on: what a link really does on a given day is not drawn.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from federator.kernel.errors import Invalid
from federator.model.rules import Rule, planned
from federator.planning.places.data import DataBook
from federator.simulation.world import WorldSpec
from federator.wire import fields
from federator.wire.named_files import read_number, read_table
from federator_policies.documents import API_VERSION, compile_set, load

NAME = "world"
USUAL_WITHIN: Mapping[str, float] = {"gbit_per_s": 5.0, "usd_per_gb": 0.02}
USUAL_BETWEEN: Mapping[str, float] = {"gbit_per_s": 1.0, "usd_per_gb": 0.08}
"""Links of the synthetic family of `online/`, as its description has them."""
PRICES = ("usd_per_gb", "usd_per_gb_2023", "usd_per_gb_2022")
SPEEDS = ("gbit_per_s", "gbps", "gbps_2022_11", "gbps_2022_01")
"""Columns of a table of links, the newest first."""


def document(kind: str, name: str, spec: Mapping[str, Any]) -> str:
    """A policy document. JSON is YAML, too."""
    whole = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
    return msgspec.json.encode(whole).decode()


def all_policies(world: WorldSpec) -> str:
    """The world's policies with what it says of data."""
    return "\n---\n".join(text for text in (world.policies, *world.data) if text)


def book_of(world: WorldSpec) -> DataBook:
    """What the world's policies say of data and links."""
    return regional_book(world, planned(compile_set(load(all_policies(world)))))


def regional_book(world: WorldSpec, rules: Iterable[Rule]) -> DataBook:
    """The same of these rules."""
    regions = {world.cloud_sites[offer.provider]: offer.region for offer in world.offers}
    return DataBook(rules, regions | {site.name: site.region for site in world.sites})


def read_data(
    links: Mapping[str, Any] | None, datasets: Sequence[Any], folder: Path, world: WorldSpec
) -> tuple[str, ...]:
    """`links` and `datasets` of a world file, as policy documents; `links.table` is a path from `folder`. Raises `Invalid`."""
    documents = []
    if links is not None:
        links = dict(links)
        table = links.pop("table", None)
        if table is not None:
            path = folder / fields.text(table, "$.links.table")
            written = links.get("rows", [])
            if not isinstance(written, list):
                raise Invalid("is not a list", field="$.links.rows", remedy="write [{from: eu, to: us}]")
            links["rows"] = [*written, *_table(path, _names(world, datasets))]
        documents.append(document("Links", NAME, links))
    documents += [document("Dataset", f"{NAME}-{n}", each) for n, each in enumerate(datasets)]
    for number, text in enumerate(documents):
        _compiled(text, "$.links" if links is not None and not number else "$.datasets")
    return tuple(documents)


def _compiled(text: str, path: str) -> None:
    """Refuse what the dispatcher would refuse, with the field of the world file."""
    try:
        compile_set(load(text))
    except* Invalid as faults:
        error = next(iter(_leaves(faults)))
        field = (error.field or "$").replace("$.spec", path, 1)
        raise Invalid(error.message, field=field, remedy=error.remedy) from None


def _leaves(faults: ExceptionGroup[Invalid]) -> Iterator[Invalid]:
    for fault in faults.exceptions:
        if isinstance(fault, ExceptionGroup):
            yield from _leaves(fault)
        else:
            yield fault


def _names(world: WorldSpec, datasets: Sequence[Any]) -> set[str]:
    """Sites and regions that data of this world may go between."""
    names = {name for site in world.sites for name in (site.name, site.region)}
    names |= {offer.region for offer in world.offers} | set(world.cloud_sites.values())
    for each in datasets:
        for replica in each.get("replicas", ()) if isinstance(each, dict) else ():
            names |= {str(value) for value in replica.values()} if isinstance(replica, dict) else set()
    return names - {""}


def _table(path: Path, names: set[str]) -> list[dict[str, Any]]:
    """The rows of a table of links that are about these sites and regions; what is empty in it is not known."""
    rows = []
    with read_table(path, "$.links.table") as table:
        for line, row in table.rows:
            if row.get("src") not in names or row.get("dst") not in names:
                continue
            price, speed = _first(row, PRICES), _first(row, SPEEDS)
            if price is None:
                continue
            try:
                found = {"from": row["src"], "to": row["dst"], "usd_per_gb": read_number(row, price)}
                rows.append(found | ({"gbit_per_s": read_number(row, speed)} if speed else {}))
            except ValueError as error:
                raise Invalid(f"line {line} is not a link: {error}", field=path.name) from None
    return rows


def _first(row: Mapping[str, str], columns: Iterable[str]) -> str | None:
    """The column among these that says something."""
    return next((name for name in columns if row.get(name)), None)


def data_of_table(sites: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """For a table of pools with regions: its usual links, and for each site of the table a place for its data, at all that it is cut into."""
    links = {"within_region": USUAL_WITHIN, "between_regions": USUAL_BETWEEN}
    return (
        document("Links", NAME, links),
        *(
            document(
                "Dataset",
                name,
                {"uri": f"s3://{name}", "replicas": [{"site": part} for part in sorted(set(parts))]},
            )
            for name, parts in sites.items()
        ),
    )
