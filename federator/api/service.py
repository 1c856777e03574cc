"""Health, metrics, and the API's own description: open to everyone who reaches the port."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import cache
from statistics import fmean
from typing import Any

from aiohttp import web

from federator.api.exchange import Call, json_response
from federator.assembly import Core
from federator.model.rules import GuaranteeRow
from federator.model.sites import LINK_KINDS
from federator.telemetry import CONTENT_TYPE, METRICS, Metrics
from federator.wire.http import SiteRow
from federator.wire.jobfile import JobFile
from federator.wire.schema import file_schema

MOST_TEAMS, OTHERS = 100, "(others)"
"""Each label's value is a series of its own, for as long as Prometheus keeps it."""


async def alive(_call: Call) -> dict[str, str]:
    """Whether the process answers."""
    return {"status": "ok"}


async def ready(call: Call) -> web.Response:
    """Whether it leads and has read its records: before that, other routes answer 503. `refuses` says why new submissions are refused for now."""
    if call.core.serving:
        status = "reconciling" if call.core.reconciliation.on else "ready"
        refuses = call.core.sweeper.retention.refuses()
        return json_response({"status": status, **({"refuses": refuses} if refuses else {})})
    return json_response({"status": "starting"}, status=503)


async def metrics(call: Call) -> web.Response:
    """All metrics, in Prometheus' text format."""
    if call.core.serving:
        measure(call.core, METRICS)
    return web.Response(body=METRICS.render(), headers={"Content-Type": CONTENT_TYPE})


def measure(core: Core, into: Metrics) -> None:
    """Set the gauges that tell of what exists now."""
    sites = core.views.sites()
    counts: dict[str, Counter[str]] = {
        "federator_jobs": Counter({str(s): count for s, count in core.records.index.counts().items()}),
        "federator_leases": Counter(str(lease.status) for lease in core.records.leases.values()),
        "federator_sites": Counter(site.status for site in sites),
    }
    for name, by_status in counts.items():
        into.forget(name)
        for status, number in by_status.items():
            into.set(name, number, status=status)
    for name in (
        *("gpus", "busy_gpus", "sick_gpus", "gpu_use_ratio", "report_age_seconds"),
        *("link_bytes", "link_round_trip_seconds"),
    ):
        into.forget(f"federator_site_{name}")
    used = _gpu_use(core)
    for site in sites:
        into.set("federator_site_sick_gpus", sum(len(pool.ailing) for pool in site.pools), site=site.name)
        if site.name in used:
            into.set("federator_site_gpu_use_ratio", used[site.name], site=site.name)
        into.set("federator_site_gpus", site.gpus, site=site.name)
        into.set("federator_site_busy_gpus", site.busy, site=site.name)
        if site.age_s is not None:
            into.set("federator_site_report_age_seconds", site.age_s, site=site.name)
        _measure_links(site, into)
    _measure_queues(core, into)


def _gpu_use(core: Core) -> dict[str, float]:
    """By site, how busy the GPUs are that our jobs hold, on average; of sites whose drivers say."""
    found = defaultdict[str, list[int]](list)
    members = core.records.members
    for name, _, use in core.inventory.gpu_uses.of_members(members):
        held = any(placement in core.records.open_placements for placement in use.placements)
        if held and use.busy_percent is not None:
            found[members[name].site].append(use.busy_percent)
    return {site: fmean(percents) / 100 for site, percents in found.items()}


def _measure_links(site: SiteRow, into: Metrics) -> None:
    links = [host.link for host in site.hosts if host.link is not None]
    for kind in LINK_KINDS if links else ():
        of_kind = [each for link in links for each in link.hour if each.kind == kind]
        for direction, number in (
            ("up", sum(each.sent for each in of_kind)),
            ("down", sum(each.received for each in of_kind)),
        ):
            into.set("federator_site_link_bytes", number, site=site.name, kind=kind, direction=direction)
    trips = [link.round_trip_s for link in links if link.round_trip_s is not None]
    if trips:
        into.set("federator_site_link_round_trip_seconds", max(trips), site=site.name)


def _measure_queues(core: Core, into: Metrics) -> None:
    """Of each queue itself, those below it left out: sums are for whoever asks; and of each team."""
    records, now = core.records, core.clock.now()
    for name in ("jobs", "gpus", "guaranteed_gpus", "oldest_wait_seconds"):
        into.forget(f"federator_queue_{name}")
    placed, gpus, by_team = Counter[str](), defaultdict[str, float](float), defaultdict[str, float](float)
    for placement in records.open_placements.values():
        if not placement.ended:
            job = records.jobs[placement.job]
            placed[job.queue] += 1
            gpus[job.queue] += placement.gpus
            by_team[job.team] += placement.gpus
    _measure_teams(by_team, into)
    pending = records.index.pending_by_queue()
    for queue in placed.keys() | pending.keys():
        into.set("federator_queue_jobs", pending.get(queue, 0), queue=queue, status="pending")
        into.set("federator_queue_jobs", placed[queue], queue=queue, status="placed")
        into.set("federator_queue_gpus", gpus[queue], queue=queue)
    for queue, at in records.index.oldest_pending().items():
        into.set("federator_queue_oldest_wait_seconds", max(0.0, now - at), queue=queue)
    for rule in records.policies.rules:
        if isinstance(rule, GuaranteeRow) and not rule.model:
            into.set("federator_queue_guaranteed_gpus", rule.gpus, queue=rule.queue)


def _measure_teams(gpus: Mapping[str, float], into: Metrics) -> None:
    """`gpus`: by team, those of work without a team included, which is nobody's."""
    into.forget("federator_team_gpus")
    teams = sorted(((held, team) for team, held in gpus.items() if team), reverse=True)
    for held, team in teams[:MOST_TEAMS]:
        into.set("federator_team_gpus", held, team=team)
    if others := teams[MOST_TEAMS:]:
        into.set("federator_team_gpus", sum(held for held, _ in others), team=OTHERS)


async def job_schema(_call: Call) -> dict[str, Any]:
    """The JSON Schema of job files, for editors that are not on a machine with the command."""
    return _job_schema()


@cache
def _job_schema() -> dict[str, Any]:
    return file_schema(JobFile, "A job of Federator")
