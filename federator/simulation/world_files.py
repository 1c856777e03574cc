"""Worlds as people write them.

A world is a YAML file (`docs/howto/simulate.md` has every field), or a table: one line per pool, as `site,model,nodes,gpus_per_node,...`. Durations,
sizes and amounts of money are written as everywhere else (`9m`, `80GiB`, `4 USD`).
"""

import csv
import io
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta

from federator.kernel.errors import Invalid
from federator.model.capacity import Market, Offer, Stock
from federator.model.sites import SiteKind
from federator.simulation.clouds import OfferRisk
from federator.simulation.data_moves import data_of_table, read_data
from federator.simulation.sites import Conditions
from federator.simulation.spot_events import read_history
from federator.simulation.traces import in_words
from federator.simulation.world import WorldSite, WorldSpec
from federator.wire import fields
from federator.wire.decoding import decode
from federator.wire.faults import told_in, with_line
from federator.wire.named_files import read_number, read_text
from federator.wire.yamltext import read_document
from federator_agent.core.lent_capacity import HostPool

GPU_MEMORY_MIB = {
    "T4": 16384,
    "L4": 24576,
    "A10": 24576,
    "V100": 32768,
    "L40S": 49152,
    "A100": 81920,
    "H100": 81920,
}
CPUS_PER_GPU = 12
MEMORY_MIB_PER_GPU = 131_072
MOST_MEMORY_MIB = 2**30
MOST_NODES = 100_000
"""Of one pool,"""
MOST_GPUS = 1024
"""and of one node."""
Memory = Annotated[int, fields.size("80GiB", high_mib=MOST_MEMORY_MIB)]
Span = Annotated[float, fields.duration("9m", low_s=0.0)]
Many = Annotated[int, Meta(ge=0, le=10_000_000)]


def load_world(path: Path, policies: Path | None = None) -> WorldSpec:
    """Read a world file. `policies`: a folder or file used in place of the world's own. Raises `Invalid`, naming the field."""
    text = read_text(path, "--world")
    if path.suffix == ".csv":
        world = from_table(text, path.name)
    else:
        with told_in(path):
            world = from_yaml(text, path.parent)
    if policies is not None:
        world = msgspec.structs.replace(world, policies=read_policies(policies))
    return world


def read_policies(path: Path) -> str:
    """A file, or all `.yaml` files of a folder in the order of their names, as one text of documents. Raises `Invalid`."""
    files = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    if not files:
        raise Invalid(f"there is no .yaml file in {path}", field="--policies")
    return "\n---\n".join(read_text(file, "--policies") for file in files)


def from_yaml(text: str, folder: Path) -> WorldSpec:
    """A world file's text. `policies` in it is a path from `folder`. Raises `Invalid` with the line."""
    document = read_document(text)
    try:
        return _from_value(document.value, folder)
    except Invalid as fault:
        raise with_line(document, fault) if (fault.field or "").startswith("$") else fault from None


class _Pool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: fields.Name = ""
    model: Annotated[str, fields.short(100)] = ""
    gpu_memory: Memory | None = None
    nodes: Annotated[int, Meta(ge=1, le=MOST_NODES)] = 1
    gpus_per_node: Annotated[int, Meta(ge=0, le=MOST_GPUS)] = 0
    cpus_per_node: Annotated[int, Meta(ge=1, le=4096)] | None = None
    memory_per_node: Memory | None = None


class _Link(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    latency: Span = 0.0
    staging: Span = 0.0


class _Site(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: fields.Name
    kind: SiteKind = SiteKind.ONPREM
    region: Annotated[str, fields.short(200)] = ""
    labels: Annotated[dict[str, str], fields.written(partial(fields.pairs, limit=20), **fields.PAIRS)] = {}
    price: fields.Money = 0.0
    pools: Annotated[tuple[_Pool, ...], Meta(min_length=1)] = ()
    link: _Link = _Link()


class _Stock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What offers that name it draw on together: by default in GPUs, of which each machine takes those that it has."""

    name: fields.Text
    limit: Many
    each: Annotated[int, Meta(ge=1, le=10_000_000)] | None = None
    unit: fields.Text = "GPUs"


class _Events(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The events of a real market: a table and the name of a trace in it."""

    file: fields.Text
    trace: fields.Text
    start: Span = 0.0


class _Offer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: fields.Text = ""
    provider: fields.Name = "cloud"
    site: fields.Name = ""
    region: fields.Text = "cloud"
    model: Annotated[str, fields.short(100)] = ""
    gpus: Annotated[int, Meta(ge=1, le=MOST_GPUS)] = 8
    market: Literal["on-demand", "spot"] = "on-demand"
    price: fields.Money = 0.0
    delay: Span = 540.0
    teardown: Span = 60.0
    minimum_billing: Span = 60.0
    available: Annotated[int, Meta(ge=0, le=100_000)] = 100
    stock: _Stock | None = None
    interruptions_per_hour: Annotated[float, Meta(ge=0)] = 0.0
    sold_out: Annotated[float, Meta(ge=0, le=1)] = 0.0
    events: _Events | None = None


class _World(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: fields.Text = "world"
    sites: tuple[_Site, ...] = ()
    sites_table: fields.Text | None = None
    burst: tuple[_Offer, ...] = ()
    speeds: dict[str, Annotated[float, Meta(ge=1e-3)]] = {}
    policies: fields.Text | None = None
    links: dict[str, Any] | None = None
    datasets: tuple[Any, ...] | None = None


def _from_value(value: object, folder: Path) -> WorldSpec:
    file = decode(value, _World, "$")
    sites = [_site(each) for each in file.sites]
    offers = [_offer(each, f"$.burst[{n}]", folder) for n, each in enumerate(file.burst)]
    usual: tuple[str, ...] = ()
    if file.sites_table is not None:
        found = load_world(folder / file.sites_table)
        sites += found.sites
        offers += [(offer, found.cloud_sites[offer.provider], OfferRisk()) for offer in found.offers]
        usual = () if file.links is not None or file.datasets is not None else found.data
    world = _world(file.name, sites, offers)
    return msgspec.structs.replace(
        world,
        data=usual or read_data(file.links, file.datasets or (), folder, world),
        speeds=file.speeds,
        policies="" if file.policies is None else read_policies(folder / file.policies),
    )


def _world(name: str, sites: list[WorldSite], offers: list[tuple[Offer, str, OfferRisk]]) -> WorldSpec:
    names = [site.name for site in sites]
    if not sites or len(set(names)) != len(names):
        raise Invalid("there is no site, or two have one name", field="$.sites")
    offered = [offer.name for offer, _, _ in offers]
    if len(set(offered)) != len(offered):
        raise Invalid("two offers have one name", field="$.burst")
    drawn = {(o.provider, o.stock.name, o.stock.limit) for o, _, _ in offers if o.stock}
    if len(drawn) != len({(provider, stock) for provider, stock, _ in drawn}):
        raise Invalid("two offers say different limits of one stock", field="$.burst")
    return WorldSpec(
        name=name,
        sites=tuple(sites),
        offers=tuple(offer for offer, _, _ in offers),
        cloud_sites={offer.provider: site for offer, site, _ in offers},
        risks={offer.name: risk for offer, _, risk in offers},
    )


def _site(site: _Site) -> WorldSite:
    return WorldSite(
        name=site.name,
        kind=site.kind,
        region=site.region,
        labels=site.labels,
        price_usd_gpu_h=site.price,
        pools=tuple(_pool(each, number) for number, each in enumerate(site.pools)),
        conditions=Conditions(latency_s=site.link.latency, staging_s=site.link.staging),
    )


def _pool(pool: _Pool, number: int) -> HostPool:
    return host_pool(
        pool.name or (f"pool-{number}" if number else "main"),
        pool.model,
        pool.nodes,
        pool.gpus_per_node,
        cpus=pool.cpus_per_node,
        memory_mib=pool.memory_per_node,
        gpu_memory_mib=pool.gpu_memory,
    )


def host_pool(
    name: str,
    model: str,
    nodes: int,
    gpus: int,
    *,
    cpus: int | None = None,
    memory_mib: int | None = None,
    gpu_memory_mib: int | None = None,
) -> HostPool:
    """A pool, with what is usual for what is not said."""
    return HostPool(
        name=name,
        model=model,
        gpu_memory_mib=GPU_MEMORY_MIB.get(model, 81920) if gpu_memory_mib is None else gpu_memory_mib,
        nodes=nodes,
        gpus_per_node=gpus,
        cpus_milli_per_node=1000 * (cpus or CPUS_PER_GPU * max(1, gpus)),
        memory_mib_per_node=memory_mib or MEMORY_MIB_PER_GPU * max(1, gpus),
    )


def _offer(written: _Offer, path: str, folder: Path) -> tuple[Offer, str, OfferRisk]:
    pool = host_pool("gpu", written.model, 1, written.gpus)
    stock = written.stock
    offer = Offer(
        name=written.name or f"{written.region}/{pool.model}x{pool.gpus_per_node}/{written.market}",
        provider=written.provider,
        region=written.region,
        instance_type=f"{pool.model}x{pool.gpus_per_node}",
        market=Market(written.market),
        model=pool.model,
        gpu_memory_mib=pool.gpu_memory_mib,
        gpus=pool.gpus_per_node,
        cpus_milli=pool.cpus_milli_per_node,
        memory_mib=pool.memory_mib_per_node,
        price_usd_h=written.price,
        delay_s=written.delay,
        teardown_s=written.teardown,
        minimum_billing_s=written.minimum_billing,
        available=written.available,
        stock=UNSET if stock is None else _stock(stock, written.gpus),
    )
    return offer, written.site or written.provider, _risk(written, path, folder)


def _stock(stock: _Stock, gpus: int) -> Stock:
    return Stock(name=stock.name, limit=stock.limit, each=stock.each or gpus, unit=stock.unit)


def _risk(offer: _Offer, path: str, folder: Path) -> OfferRisk:
    """How often its machines are taken back, or are not to be had."""
    if offer.events is not None and offer.market != "spot":
        raise Invalid(
            "only spot machines are taken back", field=f"{path}.events", remedy="write market: spot"
        )
    return OfferRisk(
        interruptions_h=offer.interruptions_per_hour,
        sold_out=offer.sold_out,
        history=None
        if offer.events is None
        else read_history(folder / offer.events.file, offer.events.trace, offer.events.start),
    )


def from_table(text: str, name: str) -> WorldSpec:
    """A table of pools: `site` or `cluster`; `nodes`, or `sim_gpus`; `gpus_per_node`; and, as far as they are there, `site_kind`, `region`,
    `gpu_model`, `usd_per_gpu_h`, `burst` (1: rented per use) and `provisioning_h`. A site has one price: pools that differ in it become sites of their own.
    A burst pool is rented by the GPU: there are machines of 1, 2, 4 ... up to `gpus_per_node`, all made of its `nodes` × `gpus_per_node` GPUs.
    Where there are regions, data goes between sites at the usual prices (`data_moves`), and of each site there is a dataset of its name.
    Raises `Invalid`.
    """
    rows = list(csv.DictReader(io.StringIO(text), restval=""))
    pools: dict[str, list[HostPool]] = {}
    parts: dict[str, list[str]] = {}
    sites: dict[str, WorldSite] = {}
    offers: list[tuple[Offer, str, OfferRisk]] = []
    prices: dict[str, set[str]] = {}
    for row in rows:
        if row.get("burst") != "1":
            prices.setdefault(_site_of(row), set()).add(row.get("usd_per_gpu_h") or "")
    for number, row in enumerate(rows, 2):
        try:
            site, model = _site_of(row), row.get("gpu_model") or "A100"
            nodes, gpus = _size_of(row)
            if row.get("burst") == "1":
                offers += _rented_row(row, site, model, gpus, nodes)
                parts.setdefault(site, []).append(offers[-1][1])
                continue
            whole = site
            if len(prices[site]) > 1:
                site = f"{site}-{model.lower()}"
            parts.setdefault(whole, []).append(site)
            sites.setdefault(site, _owned(site, row))
            mine = pools.setdefault(site, [])
            mine.append(host_pool(f"{model.lower()}-{len(mine)}" if mine else "main", model, nodes, gpus))
        except (KeyError, ValueError) as error:
            raise Invalid(f"line {number} is not a pool: {in_words(error)}", field=name) from None
    whole_sites = [msgspec.structs.replace(sites[site], pools=tuple(mine)) for site, mine in pools.items()]
    world = _world(Path(name).stem, whole_sites, offers)
    regional = any(site.region for site in whole_sites)
    return msgspec.structs.replace(world, data=data_of_table(parts)) if regional else world


def _owned(name: str, row: Mapping[str, str]) -> WorldSite:
    """A site without its pools. Raises `ValueError`."""
    price_usd_gpu_h = read_number(row, "usd_per_gpu_h", default=0.0)
    kind, region = SiteKind(row.get("site_kind") or "onprem"), row.get("region") or ""
    return WorldSite(name=name, kind=kind, region=region, price_usd_gpu_h=price_usd_gpu_h, pools=())


def _size_of(row: Mapping[str, str]) -> tuple[int, int]:
    """Nodes, and GPUs of each. Raises `KeyError`, `ValueError`."""
    gpus = int(row["gpus_per_node"])
    nodes = int(row["nodes"]) if row.get("nodes") else int(row["sim_gpus"]) // max(1, gpus)
    if not (1 <= nodes <= MOST_NODES and 0 <= gpus <= MOST_GPUS):
        raise ValueError(f"nodes are 1 to {MOST_NODES:,}, and GPUs in one 0 to {MOST_GPUS:,}")
    return nodes, gpus


def _site_of(row: Mapping[str, str]) -> str:
    return row.get("cluster") or f"site-{row.get('site')}"


def _rented_row(
    row: Mapping[str, str], site: str, model: str, gpus: int, nodes: int
) -> list[tuple[Offer, str, OfferRisk]]:
    """The machines that a burst pool is rented as: it is paid by the GPU, so there are small ones, too."""
    sizes = sorted({gpus, *(2**n for n in range(gpus.bit_length()) if 2**n < gpus)})
    return [_rented(row, site, model, size, (nodes, gpus)) for size in sizes]


def _rented(
    row: Mapping[str, str], site: str, model: str, gpus: int, of: tuple[int, int]
) -> tuple[Offer, str, OfferRisk]:
    """A machine of so many GPUs of a pool of so many nodes with so many each."""
    nodes, node_gpus = of
    written = _Offer(
        name=f"{site}/{model}x{gpus}",
        provider=f"{site}-burst",
        region=row.get("region") or "cloud",
        model=model,
        gpus=gpus,
        price=read_number(row, "usd_per_gpu_h") * gpus,
        delay=round(read_number(row, "provisioning_h", default=0.15) * 3600),
        available=nodes * (node_gpus // gpus),
        stock=_Stock(f"{site}/{model}", nodes * node_gpus),
    )
    offer, _, risk = _offer(written, site, Path())
    return offer, f"{site}-burst", risk
