"""The alert rules and the dashboard in `deploy`: of metrics that exist, understood by a real Prometheus, and each alert raised by what it is for and by nothing less."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from federator.client import AsyncClient
from federator.telemetry import CATALOGUE, MetricType
from tests.support.fleet import Dispatcher
from tests.support.waiting import until
from tests.testbeds import prometheus
from tests.testbeds.prometheus import Prometheus
from tests.testbeds.required import need

pytestmark = pytest.mark.system
FOLDER = Path(__file__).parents[2] / "deploy" / "observability"
RULES = FOLDER / "prometheus-rules.yaml"
DASHBOARD = json.loads((FOLDER / "grafana-dashboard.json").read_text())
ALERTS = {
    rule["alert"]: rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
}
PANELS = {panel["title"]: [each["expr"] for each in panel["targets"]] for panel in DASHBOARD["panels"]}
WITHOUT_DATA = {
    "GPUs in use", "Budget nearest to its cap", "GPUs in use, by site", "Budgets", "Rentals by status", "Age of reports, by site", "Jobs that run",
    "GPUs of queues, and what is guaranteed", "GPUs of teams", "How busy GPUs that jobs hold are, and sick ones", "Actions of plans, by what became of them", "Turns a minute, by the stage that won",
}  # fmt: skip
"""Panels of what a dispatcher without sites, budgets and rentals does not have."""
UP = "federator_leading{instance='d'}"
LONG = 90  # minutes


def _series(name: str, values: str) -> dict[str, str]:
    return {"series": name, "values": values}


RAISED: dict[str, tuple[list[dict[str, str]], list[dict[str, str]]]] = {
    "FederatorDown": ([_series(UP, f"0x{LONG}")], [_series(UP, f"1x{LONG}"), _series("federator_leading{instance='e'}", f"0x{LONG}")]),
    "FederatorTurnsFail": (
        [_series(UP, f"1x{LONG}"), _series("federator_last_turn_timestamp_seconds{instance='d'}", f"60x{LONG}")],
        [_series(UP, f"0x{LONG}"), _series("federator_last_turn_timestamp_seconds{instance='d'}", f"60x{LONG}")],
    ),
    "FederatorSiteSilent": (
        [_series("federator_site_report_age_seconds{site='a'}", f"400x{LONG}")], [_series("federator_site_report_age_seconds{site='a'}", f"200x{LONG}")],
    ),
    "FederatorGpusSick": ([_series("federator_site_sick_gpus{site='a'}", f"1x{LONG}")], [_series("federator_site_sick_gpus{site='a'}", f"0x{LONG}")]),
    "FederatorGpusHeldAndNotUsed": (
        [_series("federator_site_gpu_use_ratio{site='a'}", f"0.02x{LONG}"), _series("federator_site_busy_gpus{site='a'}", f"4x{LONG}")],
        [_series("federator_site_gpu_use_ratio{site='a'}", f"0.5x{LONG}"), _series("federator_site_busy_gpus{site='a'}", f"4x{LONG}"),
         _series("federator_site_gpu_use_ratio{site='b'}", f"0.02x{LONG}"), _series("federator_site_busy_gpus{site='b'}", f"0x{LONG}")],
    ),
    "FederatorQueueStuck": (
        [_series("federator_queue_oldest_wait_seconds{queue='q'}", f"90000x{LONG}"), _series("federator_queue_jobs{queue='q',status='placed'}", f"0x{LONG}")],
        [_series("federator_queue_oldest_wait_seconds{queue='q'}", f"90000x{LONG}"), _series("federator_queue_jobs{queue='q',status='placed'}", f"1x{LONG}")],
    ),
    "FederatorJobsSetAside": ([_series("federator_jobs_set_aside", f"2x{LONG}")], [_series("federator_jobs_set_aside", f"0x{LONG}")]),
    "FederatorGpusIdleBesideWaitingJobs": (
        [_series("federator_site_gpus{site='a'}", f"8x{LONG}"), _series("federator_site_busy_gpus{site='a'}", f"0x{LONG}"),
         _series("federator_queue_jobs{queue='q',status='pending'}", f"3x{LONG}"), _series("federator_queue_jobs{queue='q',status='placed'}", f"0x{LONG}")],
        [_series("federator_site_gpus{site='a'}", f"8x{LONG}"), _series("federator_site_busy_gpus{site='a'}", f"8x{LONG}"),
         _series("federator_queue_jobs{queue='q',status='pending'}", f"3x{LONG}"), _series("federator_queue_jobs{queue='q',status='placed'}", f"0x{LONG}")],
    ),
    "FederatorBudgetNearlySpent": ([_series("federator_budget_used_ratio{policy='p'}", f"0.95x{LONG}")], [_series("federator_budget_used_ratio{policy='p'}", f"0.85x{LONG}")]),
    "FederatorSolverFails": ([_series("federator_solver_failures_total", f"0+1x{LONG}")], [_series("federator_solver_failures_total", f"4x{LONG}")]),
    "FederatorPlanNotValid": (
        [_series("federator_findings_total{severity='fatal'}", f"0+1x{LONG}")], [_series("federator_findings_total{severity='remark'}", f"0+1x{LONG}")],
    ),
    "FederatorCertificateExpires": (
        [_series("federator_certificate_expires_timestamp_seconds", f"500000x{LONG}")], [_series("federator_certificate_expires_timestamp_seconds", f"900000x{LONG}")],
    ),
    "FederatorDiskFull": ([_series("federator_disk_free_bytes", f"1e9x{LONG}")], [_series("federator_disk_free_bytes", f"9e9x{LONG}")]),
    "FederatorMessagesNotDelivered": (
        [_series("federator_alerts_undelivered_total", f"0+1x{LONG}"), _series("federator_notifications_undelivered_total", f"0x{LONG}")],
        [_series("federator_alerts_undelivered_total", f"3x{LONG}"), _series("federator_notifications_undelivered_total", f"0x{LONG}")],
    ),
    "FederatorLedgerNotExported": (
        [_series("federator_ledger_export_behind_seals{target='t'}", f"1x{LONG}")], [_series("federator_ledger_export_behind_seals{target='t'}", f"0x{LONG}")],
    ),
    "FederatorSignInsFail": (
        [_series("federator_sign_ins_failed_total{by='person'}", f"0+20x{LONG}")], [_series("federator_sign_ins_failed_total{by='person'}", f"0+5x{LONG}")],
    ),
}  # fmt: skip
"""By alert: series that raise it, and series that do not."""


def _names(expression: str) -> set[str]:
    return set(re.findall(r"federator_[a-z_]+", expression))


def _known() -> set[str]:
    names = {metric.name for metric in CATALOGUE}
    return names | {f"{m.name}_bucket" for m in CATALOGUE if m.type is MetricType.HISTOGRAM}


def test_rules_and_panels_ask_for_metrics_that_exist() -> None:
    asked = [rule["expr"] for rule in ALERTS.values()] + [each for panel in PANELS.values() for each in panel]
    assert asked
    unknown = {name for each in asked for name in _names(each)} - _known()
    assert unknown == set()


def test_each_alert_is_raised_by_what_it_is_for_and_by_nothing_less(tmp_path: Path) -> None:
    need(prometheus.missing())
    assert RAISED.keys() == ALERTS.keys()
    tests: list[dict[str, Any]] = []
    for name, both in RAISED.items():
        for series, raised in zip(both, (True, False), strict=True):
            expression = f'count(ALERTS{{alertname="{name}",alertstate="firing"}}) > 0'
            sample = [{"labels": "{}", "value": 1}] if raised else []
            check = {"expr": expression, "eval_time": "75m", "exp_samples": sample}
            tests.append(
                {
                    "name": f"{name}: {raised}",
                    "interval": "1m",
                    "input_series": series,
                    "promql_expr_test": [check],
                }
            )
    assert prometheus.test_rules(RULES, tests, tmp_path) == ""


async def test_a_real_prometheus_understands_every_rule_and_every_panel(tmp_path: Path) -> None:
    need(prometheus.missing())
    dispatcher = Dispatcher(tmp_path)
    await dispatcher.start()
    try:
        async with AsyncClient(dispatcher.url, dispatcher.token) as client:
            await client.submit({"name": "waits", "run": "true", "resources": {"gpus": 1}})
        async with Prometheus(
            tmp_path / "prometheus", dispatcher.url.removeprefix("http://"), RULES
        ) as server:

            async def evaluated() -> bool:
                return all(rule["health"] == "ok" for rule in await server.rules())

            await until(evaluated, "every rule to be evaluated")
            assert {rule["name"] for rule in await server.rules()} == ALERTS.keys()
            empty = set()
            for title, expressions in PANELS.items():
                for each in expressions:
                    asked = each.replace("$__rate_interval", "1m").replace("$instance", ".+")
                    if not await server.query(asked):
                        empty.add(title)
            assert empty <= WITHOUT_DATA
    finally:
        dispatcher.end()
