"""Worlds as people write them.

A world is a YAML file (`docs/howto/simulate.md` has every field), or a table: one line per pool, as `site,model,nodes,gpus_per_node,...`. Durations,
sizes and amounts of money are written as everywhere else (`9m`, `80GiB`, `4 USD`).
"""

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from federator.kernel.errors import Invalid
from federator.model.capacity import Market, Offer, Stock
from federator.model.sites import SiteKind
from federator.simulation.clouds import Mood
from federator.simulation.data_moves import data_of_table, read_data
from federator.simulation.sites import Conditions
from federator.simulation.spot_events import SpotHistory, read_history
from federator.simulation.traces import in_words
from federator.simulation.world import World, WorldSite
from federator.wire import fields
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


def load_world(path: Path, policies: Path | None = None) -> World:
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


def from_yaml(text: str, folder: Path) -> World:
    """A world file's text. `policies` in it is a path from `folder`. Raises `Invalid` with the line."""
    document = read_document(text)
    try:
        return _from_value(document.value, folder)
    except Invalid as fault:
        raise with_line(document, fault) if (fault.field or "").startswith("$") else fault from None


def _from_value(value: object, folder: Path) -> World:
    given = fields.mapping(value, "$")
    _known(given, "$", ("name", "sites", "sites_table", "burst", "speeds", "policies", "links", "datasets"))
    sites = [_site(each, f"$.sites[{n}]") for n, each in enumerate(_list(given, "sites", "$"))]
    offers = [_offer(each, f"$.burst[{n}]", folder) for n, each in enumerate(_list(given, "burst", "$"))]
    usual: tuple[str, ...] = ()
    if "sites_table" in given:
        table = folder / fields.text(given["sites_table"], "$.sites_table")
        found = load_world(table)
        sites += found.sites
        offers += [(offer, found.cloud_sites[offer.provider], Mood()) for offer in found.offers]
        usual = () if "links" in given or "datasets" in given else found.data
    world = _world(fields.text(given.get("name", "world"), "$.name"), sites, offers)
    speeds = fields.mapping(given.get("speeds", {}), "$.speeds")
    policies = ""
    if "policies" in given:
        policies = read_policies(folder / fields.text(given["policies"], "$.policies"))
    return msgspec.structs.replace(
        world,
        data=usual or read_data(given, folder, world),
        speeds={model: float(fields.number(v, f"$.speeds.{model}", low=1e-3)) for model, v in speeds.items()},
        policies=policies,
    )


def _world(name: str, sites: list[WorldSite], offers: list[tuple[Offer, str, Mood]]) -> World:
    names = [site.name for site in sites]
    if not sites or len(set(names)) != len(names):
        raise Invalid("there is no site, or two have one name", field="$.sites")
    offered = [offer.name for offer, _, _ in offers]
    if len(set(offered)) != len(offered):
        raise Invalid("two offers have one name", field="$.burst")
    drawn = {(o.provider, o.stock.name, o.stock.limit) for o, _, _ in offers if o.stock}
    if len(drawn) != len({(provider, stock) for provider, stock, _ in drawn}):
        raise Invalid("two offers say different limits of one stock", field="$.burst")
    return World(
        name=name,
        sites=tuple(sites),
        offers=tuple(offer for offer, _, _ in offers),
        cloud_sites={offer.provider: site for offer, site, _ in offers},
        moods={offer.name: mood for offer, _, mood in offers},
    )


def _site(value: object, path: str) -> WorldSite:
    given = fields.mapping(value, path)
    _known(given, path, ("name", "kind", "region", "labels", "price", "pools", "link"))
    link = fields.mapping(given.get("link", {}), f"{path}.link")
    _known(link, f"{path}.link", ("latency", "staging"))
    pools = [_pool(each, f"{path}.pools[{n}]", n) for n, each in enumerate(_list(given, "pools", path))]
    if not pools:
        raise Invalid("the site has no pool", field=f"{path}.pools")
    return WorldSite(
        name=fields.name(given.get("name"), f"{path}.name"),
        kind=SiteKind(fields.one_of(given.get("kind", "onprem"), f"{path}.kind", tuple(SiteKind))),
        region=_word(given, "region", path, ""),
        labels=fields.pairs(given.get("labels", {}), f"{path}.labels", limit=20),
        price_usd_gpu_h=_money(given, "price", path),
        pools=tuple(pools),
        conditions=Conditions(
            latency_s=_duration(link, "latency", f"{path}.link", 0.0),
            staging_s=_duration(link, "staging", f"{path}.link", 0.0),
        ),
    )


def _pool(value: object, path: str, number: int) -> HostPool:
    given = fields.mapping(value, path)
    _known(
        given,
        path,
        ("name", "model", "gpu_memory", "nodes", "gpus_per_node", "cpus_per_node", "memory_per_node"),
    )
    model = _word(given, "model", path, "")
    return host_pool(
        fields.name(given.get("name", f"pool-{number}" if number else "main"), f"{path}.name"),
        model,
        fields.whole(given.get("nodes", 1), f"{path}.nodes", low=1, high=MOST_NODES),
        fields.whole(given.get("gpus_per_node", 0), f"{path}.gpus_per_node", low=0, high=MOST_GPUS),
        cpus=fields.whole(given["cpus_per_node"], f"{path}.cpus_per_node", low=1, high=4096)
        if "cpus_per_node" in given
        else None,
        memory_mib=_size(given, "memory_per_node", path),
        gpu_memory_mib=_size(given, "gpu_memory", path),
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


def _offer(value: object, path: str, folder: Path | None = None) -> tuple[Offer, str, Mood]:
    given = fields.mapping(value, path)
    known = ("name", "provider", "site", "region", "model", "gpus", "market", "price", "delay", "teardown")
    _known(
        given,
        path,
        (*known, "minimum_billing", "available", "stock", "interruptions_per_hour", "sold_out", "events"),
    )
    pool = host_pool(
        "gpu",
        _word(given, "model", path, ""),
        1,
        fields.whole(given.get("gpus", 8), f"{path}.gpus", low=1, high=MOST_GPUS),
    )
    provider = fields.name(given.get("provider", "cloud"), f"{path}.provider")
    market = Market(fields.one_of(given.get("market", "on-demand"), f"{path}.market", ("on-demand", "spot")))
    region = _word(given, "region", path, "cloud")
    offer = Offer(
        name=_word(given, "name", path, f"{region}/{pool.model}x{pool.gpus_per_node}/{market}"),
        provider=provider,
        region=region,
        instance_type=f"{pool.model}x{pool.gpus_per_node}",
        market=market,
        model=pool.model,
        gpu_memory_mib=pool.gpu_memory_mib,
        gpus=pool.gpus_per_node,
        cpus_milli=pool.cpus_milli_per_node,
        memory_mib=pool.memory_mib_per_node,
        price_usd_h=_money(given, "price", path),
        delay_s=_duration(given, "delay", path, 540.0),
        teardown_s=_duration(given, "teardown", path, 60.0),
        minimum_billing_s=_duration(given, "minimum_billing", path, 60.0),
        available=fields.whole(given.get("available", 100), f"{path}.available", low=0, high=100_000),
        stock=_stock(given["stock"], f"{path}.stock", pool.gpus_per_node) if "stock" in given else UNSET,
    )
    mood = _mood(given, path, market, folder or Path())
    return offer, fields.name(given.get("site", provider), f"{path}.site"), mood


def _stock(value: object, path: str, gpus: int) -> Stock:
    """What offers that name it draw on together: by default in GPUs, of which each machine takes those that it has."""
    given = fields.mapping(value, path)
    _known(given, path, ("name", "limit", "each", "unit"))
    return Stock(
        name=fields.text(given.get("name"), f"{path}.name"),
        limit=fields.whole(given.get("limit"), f"{path}.limit", low=0, high=10_000_000),
        each=fields.whole(given.get("each", gpus), f"{path}.each", low=1, high=10_000_000),
        unit=_word(given, "unit", path, "GPUs"),
    )


def _mood(given: Mapping[str, object], path: str, market: Market, folder: Path) -> Mood:
    """How often its machines are taken back, or are not to be had."""
    mood = Mood(
        interruptions_h=float(
            fields.number(given.get("interruptions_per_hour", 0), f"{path}.interruptions_per_hour", low=0.0)
        ),
        sold_out=float(fields.number(given.get("sold_out", 0), f"{path}.sold_out", low=0.0, high=1.0)),
        history=_history(given["events"], f"{path}.events", folder) if "events" in given else None,
    )
    if mood.history is not None and market is not Market.SPOT:
        raise Invalid(
            "only spot machines are taken back", field=f"{path}.events", remedy="write market: spot"
        )
    return mood


def _history(value: object, path: str, folder: Path) -> SpotHistory:
    """The events of a real market: a table and the name of a trace in it."""
    given = fields.mapping(value, path)
    _known(given, path, ("file", "trace", "start"))
    file = folder / fields.text(given.get("file"), f"{path}.file")
    trace = fields.text(given.get("trace"), f"{path}.trace")
    return read_history(file, trace, _duration(given, "start", path, 0.0))


def from_table(text: str, name: str) -> World:
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
    offers: list[tuple[Offer, str, Mood]] = []
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
) -> list[tuple[Offer, str, Mood]]:
    """The machines that a burst pool is rented as: it is paid by the GPU, so there are small ones, too."""
    sizes = sorted({gpus, *(2**n for n in range(gpus.bit_length()) if 2**n < gpus)})
    return [_rented(row, site, model, size, (nodes, gpus)) for size in sizes]


def _rented(
    row: Mapping[str, str], site: str, model: str, gpus: int, of: tuple[int, int]
) -> tuple[Offer, str, Mood]:
    """A machine of so many GPUs of a pool of so many nodes with so many each."""
    nodes, node_gpus = of
    offer, _, mood = _offer(
        {
            "name": f"{site}/{model}x{gpus}",
            "provider": f"{site}-burst",
            "region": row.get("region") or "cloud",
            "model": model,
            "gpus": gpus,
            "price": f"{read_number(row, 'usd_per_gpu_h') * gpus} USD",
            "delay": f"{read_number(row, 'provisioning_h', default=0.15) * 3600:.0f}s",
            "available": nodes * (node_gpus // gpus),
            "stock": {"name": f"{site}/{model}", "limit": nodes * node_gpus},
        },
        site,
    )
    return offer, f"{site}-burst", mood


def _known(given: Mapping[str, Any], path: str, known: tuple[str, ...]) -> None:
    fields.known_only(given, path, known)


def _list(given: Mapping[str, Any], key: str, path: str) -> list[object]:
    value = given.get(key, [])
    if not isinstance(value, list | tuple):
        raise Invalid("is not a list", field=f"{path}.{key}")
    return list(value)


def _word(given: Mapping[str, Any], key: str, path: str, default: str) -> str:
    return fields.text(given[key], f"{path}.{key}") if key in given else default


def _money(given: Mapping[str, Any], key: str, path: str) -> float:
    return fields.money_usd(given[key], f"{path}.{key}") if key in given else 0.0


def _duration(given: Mapping[str, Any], key: str, path: str, default_s: float) -> float:
    return fields.duration_s(given[key], f"{path}.{key}") if key in given else default_s


def _size(given: Mapping[str, Any], key: str, path: str) -> int | None:
    return fields.size_mib(given[key], f"{path}.{key}", high_mib=MOST_MEMORY_MIB) if key in given else None
