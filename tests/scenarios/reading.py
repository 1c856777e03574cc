"""Reads scenario files: a small world in words, and what the planner is expected to do in it.

One file, one story. `variants` change one thing each and have their own expectations, so that a file shows what causes what. Policies
are written as platform teams write them and compiled by the real kinds. Times are durations from the scenario's moment.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml

from federator.kernel.quantities import parse_duration_s
from federator.model.capacity import Market, Offer, Shape
from federator.model.rules import PreemptRule, QueueTerms, Rule, Scope, planned
from federator.model.snapshot import BusyView, JobView, OfferView, PoolView, Problem, Snapshot, SpendView
from federator.planning.rules.max_wait import bounded
from federator.wire.fields import size_mib
from federator_policies.consistency import completed
from federator_policies.documents import KINDS

FOLDER = Path(__file__).parent
NOW = 1_795_000_000.0
SPOT_INTERRUPTIONS_H = 0.188
"""Of spot machines, unless a story says otherwise: an hour of work is planned to take 66 minutes."""
HOST_CPUS_MILLI, HOST_MEMORY_MIB = 64_000, 524_288


class Scenario(NamedTuple):
    """One story, or a variant of it."""

    name: str
    problem: Problem
    expect: dict[str, Any]


def scenarios() -> Iterator[Scenario]:
    """Every story in this folder, each followed by its variants."""
    for path in sorted(FOLDER.glob("*.yaml")):
        told = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
        yield Scenario(path.stem, _problem(told), told["expect"])
        for number, variant in enumerate(told.get("variants", ())):
            changed = _merge(told, variant.get("change", {}))
            yield Scenario(
                f"{path.stem}/{number + 1}-{variant['what']}", _problem(changed), variant["expect"]
            )


def _merge(told: Any, change: Any) -> Any:
    """Change named entries of lists (by `id`, `name`, `member` or `site`), or whole values; null removes an entry."""
    if isinstance(told, list) and isinstance(change, dict):
        kept = [_merge(item, change[_name(item)]) if _name(item) in change else item for item in told]
        return [item for item in kept if item is not None]
    if isinstance(told, dict) and isinstance(change, dict):
        return told | {key: _merge(told.get(key), value) for key, value in change.items()}
    return change


def _name(item: dict[str, Any]) -> str:
    return str(item.get("id") or item.get("name") or item.get("member") or item["site"])


def _s(text: str | None) -> float | None:
    return None if text is None else parse_duration_s(text)


def _mib(text: str) -> int:
    return size_mib(text, "$", high_mib=2**40)


def _problem(told: dict[str, Any]) -> Problem:
    said = [
        rule
        for document in told.get("policies", ())
        for rule in KINDS[document["kind"]].compile(document["name"], document["spec"])
    ]
    rules: list[Rule] = list(planned(completed(said)))
    for rule in told.get("preemption", ()):
        who, victims = Scope(queues=(rule["who"],)), Scope(queues=(rule["victims"],))
        rules.append(PreemptRule("Preemption/by-rule", who, victims))
    spend = [SpendView(s["policy"], s["period"], s["spent"], s["committed"]) for s in told.get("spend", ())]
    waits = {rule.queue: rule.max_wait_s for rule in rules if isinstance(rule, QueueTerms)}
    jobs = [_job(job) for job in told.get("jobs", ())]
    snapshot = Snapshot(
        taken_at=NOW,
        incarnation="scenario",
        revision=1,
        jobs=tuple(bounded(job, waits.get(job.queue), NOW) for job in jobs),
        pools=tuple(_pool(pool) for pool in told.get("pools", ())),
        offers=tuple(_offer(offer) for offer in told.get("offers", ())),
        rules=tuple(rules),
        spend=tuple(spend),
        burst_paused=told.get("burst_paused", False),
    )
    return Problem(snapshot=snapshot, decision="dec-scenario")


def _job(told: dict[str, Any]) -> JobView:
    """The fields of `JobView`, with durations in words and times from now; `cpus`, `memory`, `run`, `limit`, `waited` in short."""
    told = {
        "name": told["id"],
        "queue": "research",
        "owner": "ada",
        "revision": 1,
        "run": "1h",
        "limit": "24h",
    } | told
    fields = {key: value for key, value in told.items() if key in JobView.__struct_fields__}
    fields["submitted_at"] = NOW - (_s(told.get("waited")) or 0.0)
    fields["cpus_milli"] = told.get("cpus", 1) * 1000
    fields["memory_mib"] = _mib(told.get("memory", "1GiB"))
    fields["run_s"] = parse_duration_s(told["run"])
    fields["max_duration_s"] = _s(told["limit"])
    fields["value_usd"] = told.get("value")
    for name in ("deadline", "not_before"):
        after = _s(told.get(name))
        fields[f"{name}_at"] = None if after is None else NOW + after
    return msgspec.convert(fields, JobView)


def _pool(told: dict[str, Any]) -> PoolView:
    nodes, gpus, lease = told.get("nodes", 1), told.get("gpus", 0), told.get("lease")
    site, ready, shared = told["site"], _s(told.get("ready")), told.get("shared", False)
    memory = _mib(told["memory"]) if "memory" in told else HOST_MEMORY_MIB
    hosts = [[gpus, HOST_CPUS_MILLI, memory] for _ in range(nodes)]
    busy = []
    for number, work in enumerate(told.get("busy", ())):
        busy.append(_busy(work, f"{told.get('member', site)}-p{number}", shared=shared))
        for rank in range(busy[-1].nodes):
            host = hosts[work.get("host", rank)]
            host[0] -= busy[-1].gpus
            host[1] -= busy[-1].cpus_milli
            host[2] -= busy[-1].memory_mib
    free = () if ready else tuple(Shape(*host) for host in hosts)
    return PoolView(
        site=site,
        kind=told.get("kind", "cloud" if lease else "onprem"),
        pool=told.get("pool", "gpu" if gpus else "cpu"),
        member=f"{lease}-0" if lease else told.get("member", f"{site}-1"),
        session=f"session-{told.get('member', site)}",
        region=told.get("region", ""),
        labels=told.get("labels", {}),
        provider="acme" if lease else None,
        market=Market(told.get("market", "on-demand" if lease else "owned")),
        **_rent(told),
        model=told.get("model", "A100") if gpus else "",
        gpu_memory_mib=81_920 if gpus else 0,
        nodes=nodes,
        gpus_per_node=gpus,
        cpus_milli_per_node=HOST_CPUS_MILLI,
        memory_mib_per_node=memory,
        free=free,
        busy=tuple(busy),
        lends_to=tuple(told.get("lends_to", ())),
        open=told.get("open", True),
        closed_because="" if told.get("open", True) else f"{told.get('member', site)} is draining",
        lease=lease,
        ready_at=NOW + ready if ready else None,
        rented_for=told.get("rented_for", ""),
        shared=shared,
    )


def _busy(told: dict[str, Any], placement: str, *, shared: bool) -> BusyView:
    """`placement` names one that has ranks at several members; `leads: false` is a part without its first rank."""
    placement = told.get("placement", placement)
    return BusyView(
        nodes=told.get("nodes", 1),
        gpus=told["gpus"],
        cpus_milli=1000,
        memory_mib=_mib(told.get("memory", "1GiB")),
        ends_at=NOW + parse_duration_s(told["ends"]),
        placement=placement,
        leads=told.get("leads", True),
        job=told.get("job", f"job-of-{placement}"),
        queue=told.get("queue", "research"),
        owner="bob",
        priority=told.get("priority", 50),
        started_at=NOW - parse_duration_s(told.get("ran", "1h")),
        displaced_at=NOW - parse_duration_s(told["displaced"]) if "displaced" in told else None,
        overdue=told.get("overdue", False),
        stopping=told.get("stopping", False),
        grace_s=parse_duration_s(told.get("grace", "30s")),
        shared=shared,
    )


def _rent(told: dict[str, Any]) -> dict[str, Any]:
    return {"price_usd_gpu_h": told.get("price", 0.0), "interruptions_h": _interruptions_h(told)}


def _interruptions_h(told: dict[str, Any]) -> float:
    spot = told.get("market") == Market.SPOT
    return float(told.get("interruptions_h", SPOT_INTERRUPTIONS_H if spot else 0.0))


def _offer(told: dict[str, Any]) -> OfferView:
    offer = Offer(
        name=told["name"],
        provider="acme",
        region=told.get("region", "eu"),
        instance_type=told["name"],
        market=Market(told.get("market", "on-demand")),
        model=told.get("model", "A100"),
        gpu_memory_mib=81_920,
        gpus=told.get("gpus", 4),
        cpus_milli=HOST_CPUS_MILLI,
        memory_mib=HOST_MEMORY_MIB,
        price_usd_h=told["price"],
        delay_s=parse_duration_s(told.get("delay", "10m")),
        available=told.get("available", 8),
    )
    avoid = _s(told.get("avoid"))
    until_at = None if avoid is None else NOW + avoid
    return OfferView(
        offer=offer, site="acme-eu", avoid_until_at=until_at, interruptions_h=_interruptions_h(told)
    )
