"""What the processes say about themselves: structured logs, and every metric in one catalogue.

A metric that is not in `CATALOGUE` cannot be recorded, so the catalogue is the reference page, and a name is never spelled in two ways.
The registry is our own: nothing that a library registers globally leaks into `/metrics`, and tests start from zero.
"""

import io
import logging
import sys
from enum import StrEnum
from typing import Any, NamedTuple, TextIO

import structlog
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from federator.kernel.logs import trace_in

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECRET_FIELDS = frozenset({"authorization", "secret", "token", "ticket", "user_data", "signature", "env"})
SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)

disable_created_metrics()  # type: ignore[no-untyped-call]  # one more line per sample, for which nobody has a use


class MetricType(StrEnum):
    """What a metric is, in Prometheus' words."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(NamedTuple):
    """One entry of the catalogue. Names end in their unit; counters in `_total`."""

    name: str
    type: MetricType
    help: str
    labels: tuple[str, ...] = ()


CATALOGUE = (
    Metric(
        "federator_http_requests_total",
        MetricType.COUNTER,
        "Answered HTTP requests; `route` is the path's pattern, never the path.",
        ("method", "route", "status"),
    ),
    Metric(
        "federator_http_request_seconds",
        MetricType.HISTOGRAM,
        "Real seconds until an HTTP request was answered, streams until they ended.",
        ("method", "route"),
    ),
    Metric(
        "federator_connections",
        MetricType.GAUGE,
        "Connections; `of` is `callers` for those on which somebody has signed in, and `strangers` for all others.",
        ("of",),
    ),
    Metric(
        "federator_connections_closed_total",
        MetricType.COUNTER,
        "Connections that were closed: `header` (no request in time), `idle`, `displaced` (for another), `message` (too much before a key was proven), `credential` (revoked or expired).",
        ("cause",),
    ),
    Metric(
        "federator_sign_ins_failed_total",
        MetricType.COUNTER,
        "Requests and links with a credential that is not valid; `by` is `person`, `agent`, `join` or `nobody` without one.",
        ("by",),
    ),
    Metric(
        "federator_certificate_expires_timestamp_seconds",
        MetricType.GAUGE,
        "When the certificate that is shown expires, in seconds since the epoch; absent without TLS.",
    ),
    Metric("federator_leading", MetricType.GAUGE, "1 while this dispatcher leads, 0 while it stands by."),
    Metric("federator_link_sessions", MetricType.GAUGE, "Agents that are connected."),
    Metric("federator_link_ended_total", MetricType.COUNTER, "Ended agent sessions, by cause.", ("cause",)),
    Metric("federator_tunnels", MetricType.GAUGE, "Tunnels into running jobs that are open."),
    Metric(
        "federator_tunnel_bytes_total",
        MetricType.COUNTER,
        "Bytes that came through tunnels into jobs; `of` is `client` or `agent`.",
        ("of",),
    ),
    Metric("federator_link_statuses_total", MetricType.COUNTER, "Placement statuses taken from agents."),
    Metric(
        "federator_link_desired_total",
        MetricType.COUNTER,
        "Desired sets sent to agents; `whole` is `true` at the start of a session and after a mismatch.",
        ("whole",),
    ),
    Metric("federator_jobs", MetricType.GAUGE, "Jobs on record, by status.", ("status",)),
    Metric(
        "federator_retained_bytes", MetricType.GAUGE, "Bytes of blobs and of logs that are kept.", ("kind",)
    ),
    Metric(
        "federator_disk_free_bytes",
        MetricType.GAUGE,
        "Free room of the disk with work directories, outputs and logs.",
    ),
    Metric("federator_leases", MetricType.GAUGE, "Leases on record, by status.", ("status",)),
    Metric("federator_sites", MetricType.GAUGE, "Sites, by health.", ("status",)),
    Metric("federator_site_gpus", MetricType.GAUGE, "GPUs that a site lends.", ("site",)),
    Metric("federator_site_busy_gpus", MetricType.GAUGE, "Lent GPUs that are busy.", ("site",)),
    Metric(
        "federator_site_sick_gpus",
        MetricType.GAUGE,
        "GPUs of a site that take no new work until they are well; its page says why.",
        ("site",),
    ),
    Metric(
        "federator_site_gpu_use_ratio",
        MetricType.GAUGE,
        "How busy the GPUs that jobs hold at a site really are, on average, by the word of their driver; absent where none says.",
        ("site",),
    ),
    Metric(
        "federator_site_report_age_seconds",
        MetricType.GAUGE,
        "Since when a site's newest report was made; absent for one that never reported.",
        ("site",),
    ),
    Metric(
        "federator_site_link_bytes",
        MetricType.GAUGE,
        "Bytes that a site's agents have exchanged with the dispatcher in the last hour, by their own count; `kind` is `reports`, `logs` or `bulk`, `direction` is `up` or `down`.",
        ("site", "kind", "direction"),
    ),
    Metric(
        "federator_site_link_round_trip_seconds",
        MetricType.GAUGE,
        "Longest time among a site's agents from a report to its answer.",
        ("site",),
    ),
    Metric(
        "federator_queue_jobs",
        MetricType.GAUGE,
        "Jobs of a queue, by `status`: `pending` or `placed`.",
        ("queue", "status"),
    ),
    Metric(
        "federator_queue_gpus",
        MetricType.GAUGE,
        "GPUs that jobs of a queue hold, parts of one as parts.",
        ("queue",),
    ),
    Metric(
        "federator_team_gpus",
        MetricType.GAUGE,
        "GPUs that jobs of a team hold, parts of one as parts. The 100 teams with most; what all others hold is of `(others)`.",
        ("team",),
    ),
    Metric(
        "federator_queue_guaranteed_gpus",
        MetricType.GAUGE,
        "GPUs that are guaranteed to a queue and those below it; absent without a guarantee.",
        ("queue",),
    ),
    Metric(
        "federator_queue_oldest_wait_seconds",
        MetricType.GAUGE,
        "Since when the longest waiting job of a queue was submitted; absent where none waits.",
        ("queue",),
    ),
    Metric(
        "federator_last_turn_timestamp_seconds",
        MetricType.GAUGE,
        "When a turn last came to its end without an error, in seconds since the epoch. One comes at least every `turn.heartbeat_s`.",
    ),
    Metric(
        "federator_turns_total",
        MetricType.COUNTER,
        "Turns, by the stage whose plan was committed.",
        ("winner",),
    ),
    Metric(
        "federator_turn_failures_total",
        MetricType.COUNTER,
        "Turns that ended in an error. The jobs at fault are set aside; `alerts` tell when none can be found.",
    ),
    Metric(
        "federator_jobs_set_aside",
        MetricType.GAUGE,
        "Waiting jobs that planning leaves out for a while, because a turn could not go on with them.",
    ),
    Metric(
        "federator_changes_refused_total",
        MetricType.COUNTER,
        "Changes of records that could not be written and were left out, so that the others were.",
    ),
    Metric(
        "federator_solver_failures_total",
        MetricType.COUNTER,
        "Turns in which the solver was late, died or answered nonsense, so that greedy's plan stood.",
    ),
    Metric(
        "federator_outlooks_total",
        MetricType.COUNTER,
        "Plans of a whole line that is longer than a window, by what came of it: `made`, or `none` where the line has too many classes or it took too long.",
        ("result",),
    ),
    Metric(
        "federator_decision_gap_ratio",
        MetricType.GAUGE,
        "How far the last decision that was certified is above what no plan of the linear model costs less than, as a part of that: 0.01 is one per cent; see `turn.certify_every`.",
    ),
    Metric(
        "federator_decision_bound_usd",
        MetricType.GAUGE,
        "What no plan at all for what was seen then costs less than, in USD.",
    ),
    Metric("federator_turn_seconds", MetricType.HISTOGRAM, "Real seconds that a turn took."),
    Metric(
        "federator_actions_total",
        MetricType.COUNTER,
        "Actions of plans, by kind and by what became of them.",
        ("kind", "result"),
    ),
    Metric(
        "federator_series_faults_total",
        MetricType.COUNTER,
        "Looks at a series that ended in an unforeseen error; each is logged, and the series is tried again.",
    ),
    Metric(
        "federator_service_faults_total",
        MetricType.COUNTER,
        "Looks at a service that ended in an unforeseen error; each is logged, and the service is tried again.",
    ),
    Metric("federator_alerts_total", MetricType.COUNTER, "Alerts that were raised, by kind.", ("kind",)),
    Metric(
        "federator_alerts_undelivered_total",
        MetricType.COUNTER,
        "Alerts that the webhook or the mail server did not take in all its attempts.",
    ),
    Metric(
        "federator_notifications_total",
        MetricType.COUNTER,
        "Messages to people about their own jobs that were delivered.",
    ),
    Metric(
        "federator_notifications_undelivered_total",
        MetricType.COUNTER,
        "Such messages that were given up; the log names the person and the server.",
    ),
    Metric(
        "federator_ledger_export_failures_total",
        MetricType.COUNTER,
        "Attempts to export a seal of the ledger that failed, by target; each is repeated.",
        ("target",),
    ),
    Metric(
        "federator_ledger_export_behind_seals",
        MetricType.GAUGE,
        "Seals of the ledger that a target does not have yet.",
        ("target",),
    ),
    Metric(
        "federator_budget_used_ratio",
        MetricType.GAUGE,
        "What is spent and committed of each cap on money, over its limit.",
        ("policy", "period", "share"),
    ),
    Metric(
        "federator_findings_total",
        MetricType.COUNTER,
        "Remarks of the plan checker, by severity; a fatal one is a bug of ours.",
        ("severity",),
    ),
)


class Metrics:
    """The catalogue's metrics in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._made = {metric.name: _make(metric, self.registry) for metric in CATALOGUE}

    def count(self, name: str, amount: float = 1.0, **labels: str) -> None:
        """Add to a counter."""
        self._child(name, Counter, labels).inc(amount)

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        self._child(name, Gauge, labels).set(value)

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Add one observation to a histogram."""
        self._child(name, Histogram, labels).observe(value)

    def forget(self, name: str) -> None:
        """Drop all label values of a metric: before a gauge is set anew from what exists now."""
        self._made[name].clear()

    def value(self, name: str, **labels: str) -> float | None:
        """The present value of one sample, or None; a histogram's are `NAME_count` and `NAME_sum`."""
        return self.registry.get_sample_value(name, labels)

    def render(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry)

    def _child(self, name: str, kind: type, labels: dict[str, str]) -> Any:
        metric = self._made.get(name)
        if metric is None or not isinstance(metric, kind):
            raise KeyError(f"{name} is not a {kind.__name__.lower()} of the catalogue")
        return metric.labels(**labels) if labels else metric


def _make(metric: Metric, registry: CollectorRegistry) -> Counter | Gauge | Histogram:
    match metric.type:
        case MetricType.COUNTER:
            return Counter(metric.name, metric.help, metric.labels, registry=registry)
        case MetricType.GAUGE:
            return Gauge(metric.name, metric.help, metric.labels, registry=registry)
        case MetricType.HISTOGRAM:
            return Histogram(metric.name, metric.help, metric.labels, registry=registry, buckets=SECONDS)


METRICS = Metrics()
"""Those of this process."""


def configure_logging(*, level: str = "info", as_json: bool = False, stream: TextIO | None = None) -> None:
    """Send all logs, those of libraries included, to `stream` (standard error), as lines for people or as JSON.

    Raises ValueError for an unknown level. Called once, by the composition roots.
    """
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"log level {level!r} is not one of debug, info, warning, error")
    target = stream or sys.stderr
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        hide_secrets,
        escape_lines,
    ]
    if as_json:
        # Without the values of local variables: they hold what must not be logged.
        traceback = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        final: list[Any] = [
            name_trace,
            structlog.processors.ExceptionRenderer(traceback),
            structlog.processors.JSONRenderer(),
        ]
    else:
        final = [structlog.dev.ConsoleRenderer(colors=target.isatty(), exception_formatter=_plain_traceback)]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *final],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(number)
    # One line per request is what the metrics are for.
    logging.getLogger("aiohttp.access").setLevel(max(number, logging.WARNING))


def hide_secrets(_logger: Any, _method: str, line: Any) -> Any:
    """A processor that keeps the values of fields that hold secrets out of every line."""
    for name in SECRET_FIELDS & line.keys():
        line[name] = "[hidden]"
    return line


def name_trace(_logger: Any, _method: str, line: Any) -> Any:
    """A processor that adds the trace of the job that a line is about: of the one that it names, if it names just one."""
    if trace := trace_in(value for value in line.values() if isinstance(value, str)):
        line["trace_id"] = trace
    return line


def escape_lines(_logger: Any, _method: str, line: Any) -> Any:
    """A processor that writes what could end a line, or steer a terminal, as Python writes it in a text: what agents and users say is in the lines, too."""
    for name, value in line.items():
        if not name.startswith("_") and isinstance(value, str) and not value.isprintable():
            line[name] = _escaped(value)
    return line


def _escaped(text: str) -> str:
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def _plain_traceback(target: TextIO, exc_info: Any) -> None:
    """A traceback in lines of its own, its messages with nothing that could steer a terminal."""
    text = io.StringIO()
    structlog.dev.plain_traceback(text, exc_info)
    target.write("\n".join(_escaped(line) for line in text.getvalue().split("\n")))


def get_logger(area: str) -> Any:
    """A logger whose lines carry `area`; its methods take an event and fields: `log.info("joined", member=...)`."""
    return structlog.get_logger(area=area)
