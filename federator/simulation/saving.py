"""Worlds and traces as files, of the kinds that are read back: what `simulate --from-live` has taken from a dispatcher can be kept, changed and shared."""

import csv
import io
from collections.abc import Iterable, Mapping
from typing import Any

from federator.model.capacity import Offer
from federator.model.jobs import Input
from federator.simulation.clouds import OfferRisk
from federator.simulation.traces import PLAIN_COLUMNS
from federator.simulation.work import TraceForm, TraceJob
from federator.simulation.world import WorldSite, WorldSpec
from federator.wire.yamltext import read_document, write_document
from federator_agent.core.lent_capacity import HostPool


def world_yaml(world: WorldSpec, policies: str = "") -> str:
    """The world as `--world` takes it; `policies` names the file that its policies are in."""
    told: dict[str, Any] = {"name": world.name}
    if world.speeds:
        told["speeds"] = dict(world.speeds)
    told["sites"] = [_site(site) for site in world.sites]
    if world.offers:
        told["burst"] = [
            _offer(offer, world.cloud_sites[offer.provider], world.risks.get(offer.name))
            for offer in world.offers
        ]
    for text in world.data:
        document: Any = read_document(text).value
        if document["kind"] == "Links":
            told["links"] = document["spec"]
        else:
            told.setdefault("datasets", []).append(document["spec"])
    if policies:
        told["policies"] = policies
    return write_document(told)


def trace_csv(jobs: Iterable[TraceJob]) -> str:
    """The jobs as `--trace` takes them."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(PLAIN_COLUMNS)
    for job in jobs:
        cells = {name: getattr(job, name) for name in PLAIN_COLUMNS if name != "cpus"}
        cells["cpus"] = job.cpus_milli / 1000
        writer.writerow([_cell(cells[name]) for name in PLAIN_COLUMNS])
    return out.getvalue()


def _site(site: WorldSite) -> dict[str, Any]:
    told: dict[str, Any] = {"name": site.name, "kind": str(site.kind)}
    told |= {"region": site.region} if site.region else {}
    told |= {"labels": dict(site.labels)} if site.labels else {}
    told |= {"price": _usd(site.price_usd_gpu_h)} if site.price_usd_gpu_h else {}
    link = {"latency": site.conditions.latency_s, "staging": site.conditions.staging_s}
    link = {name: f"{seconds:g}s" for name, seconds in link.items() if seconds}  # type: ignore[misc]
    told |= {"link": link} if link else {}
    return told | {"pools": [_pool(pool) for pool in site.pools]}


def _pool(pool: HostPool) -> dict[str, Any]:
    told: dict[str, Any] = {"name": pool.name}
    told |= {"model": pool.model} if pool.model else {}
    told |= {"gpu_memory": f"{pool.gpu_memory_mib}MiB"} if pool.gpu_memory_mib else {}
    return told | {
        "nodes": pool.nodes,
        "gpus_per_node": pool.gpus_per_node,
        "cpus_per_node": max(1, pool.cpus_milli_per_node // 1000),
        "memory_per_node": f"{max(1, pool.memory_mib_per_node)}MiB",
    }


def _offer(offer: Offer, site: str, risk: OfferRisk | None) -> dict[str, Any]:
    told: dict[str, Any] = {
        "name": offer.name,
        "provider": offer.provider,
        "site": site,
        "region": offer.region,
        "model": offer.model,
        "gpus": offer.gpus,
        "market": str(offer.market),
        "price": _usd(offer.price_usd_h),
        "delay": f"{offer.delay_s:g}s",
        "teardown": f"{offer.teardown_s:g}s",
        "minimum_billing": f"{offer.minimum_billing_s:g}s",
        "available": offer.available,
    }
    if offer.stock:
        stock = offer.stock
        told["stock"] = {"name": stock.name, "limit": stock.left, "each": stock.each, "unit": stock.unit}
    if risk is not None and risk.interruptions_h:
        told["interruptions_per_hour"] = risk.interruptions_h
    if risk is not None and risk.sold_out:
        told["sold_out"] = risk.sold_out
    return told


def _usd(usd: float) -> str:
    return f"{usd:.10g} USD"


def _input(data: Input) -> str:
    return data.uri if data.size_bytes is None else f"{data.uri}={data.size_bytes}B"


def _part(value: object) -> str:
    if isinstance(value, TraceForm):
        return f"{value.nodes}x{value.gpus}={value.throughput:g}"
    return _input(value) if isinstance(value, Input) else str(value)


def _cell(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return "|".join(f"{key}={each}" for key, each in value.items())
    if isinstance(value, tuple):
        return "|".join(_part(each) for each in value)
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    return value
