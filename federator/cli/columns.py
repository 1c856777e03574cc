"""What the lists show: the columns of each kind of row."""

from collections.abc import Iterable
from functools import partial

from rich.text import Text

from federator.cli.layout import Column
from federator.cli.output import status
from federator.cli.phrases import NONE, ago, counted, duration, gpus, instant, plain, usd, when, when_about
from federator.cli.rights import rights_in_words
from federator.kernel.quantities import format_bytes, format_mib
from federator.model.capacity import Pool
from federator.model.events import Event, LedgerEntry
from federator.model.jobs import WHOLE_MILLI, in_gpus
from federator.model.plans import Action, Place, Preempt, Rent, Waiting
from federator.model.rules import PolicySet
from federator.model.sites import LINK_KINDS, AilingGpu, LinkState, LocalWork
from federator.wire.decisions import DecisionRow
from federator.wire.http import (
    AttemptRow,
    GpuRow,
    JobRow,
    LeaseRow,
    MemberRow,
    OfferRow,
    PartRow,
    PoolRow,
    QueueRow,
    SiteRow,
    StatementRow,
    TokenRow,
)
from federator.wire.rights import TeamRow
from federator.wire.sites import Stopped
from federator.wire.waiting import AlertRow, WaitReason

RUNTIMES = {"": "processes", "kube": "Kubernetes", "slurm": "Slurm"}


def _job_gpus(row: JobRow) -> str:
    """What it has, of how much; of one that waits all that it would take."""
    if row.width and " of " not in row.width:
        each = f" of {row.gpus:g}" if row.width.endswith("nodes") and row.gpus else ""
        return f"{row.width}{each} {row.models}".strip()
    count = gpus(row.nodes, row.gpus, row.models)
    return f"{count} ({row.width})" if row.width else count


ID_LENGTH = 16
"""Letters of an id in lists: `job-`, ten of the time and two more, which name one job unless many came in the same millisecond."""


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """Of each id as much as tells it from the others; any verb takes that."""
    found: dict[str, str] = {}
    ordered = ["", *sorted(ids), ""]
    for before, each, after in zip(ordered, ordered[1:], ordered[2:], strict=False):
        found[each] = each[: max(ID_LENGTH, 1 + max(_alike(before, each), _alike(each, after)))]
    return found


def _alike(one: str, other: str) -> int:
    """How many letters both begin with."""
    differ = (at for at, (left, right) in enumerate(zip(one, other, strict=False)) if left != right)
    return next(differ, min(len(one), len(other)))


def job_columns(
    now: float, rows: Iterable[JobRow] = (), *, whole_ids: bool = False
) -> tuple[Column[JobRow], ...]:
    """Jobs. What matters to the owner first; the reason last, because it may be cut. Unless `whole_ids`, the ids of `rows` are shortened, but for those of arrays, whose tasks have ids that begin alike."""
    rows = tuple(rows)
    short = {} if whole_ids else short_ids(row.id for row in rows if not row.tasks)
    sampled = any(row.used is not None and row.used.gpus_busy is not None for row in rows)
    return (
        Column("ID", lambda row: short.get(row.id, row.id)),
        Column("NAME", lambda row: row.label, cap=24),
        Column("OWNER", lambda row: row.owner, wide=True),
        Column("QUEUE", lambda row: row.queue, wide=True),
        Column("PRIO", lambda row: str(row.priority), wide=True, right=True),
        Column("STATUS", lambda row: status(row.status)),
        Column("GPUS", _job_gpus, least=60),
        Column("SITE", lambda row: row.site, least=70),
        Column("MARKET", lambda row: row.market, wide=True),
        *([Column("BUSY", gpus_busy, least=130, right=True)] if sampled else []),
        Column("AGE", lambda row: _age(row, now), right=True, least=60),
        Column("DEADLINE", lambda row: _deadline(row, now), right=True, least=110),
        Column("STARTS", lambda row: _starts(row, now), least=150),
        Column("ENDS", lambda row: _ends(row, now), least=150),
        Column("HOME FINISH", lambda row: when(row.home_finish_at, now), wide=True),
        Column("SPENT", lambda row: usd(row.spent_usd) if row.spent_usd else NONE, wide=True, right=True),
        Column("BECAUSE", lambda row: row.because, flow="cut"),
    )


def gpus_busy(row: JobRow) -> str:
    """Of the time of its GPUs, in which they did anything."""
    busy = None if row.used is None else row.used.gpus_busy
    return NONE if busy is None else f"{busy:.0%}"


def _age(row: JobRow, now: float) -> str:
    """For how long it has been running, waiting, or over."""
    return ago(row.finished_at or row.started_at or row.submitted_at, now)


def _starts(row: JobRow, now: float) -> str:
    """When one that waits is expected to start, and between when."""
    return when_about(row.expected_start_at, row.start_low_at, row.start_high_at, now)


def _ends(row: JobRow, now: float) -> str:
    """Likewise the end of one that waits or runs."""
    return when_about(row.expected_finish_at, row.finish_low_at, row.finish_high_at, now)


def _deadline(row: JobRow, now: float) -> Text:
    """The deadline, red when missed, yellow when the forecast at home is past it."""
    late = row.missed_deadline or (row.finished_at is None and (row.deadline_at or now) < now)
    at_risk = (
        row.deadline_at is not None
        and row.home_finish_at is not None
        and row.home_finish_at > row.deadline_at
    )
    style = "red" if late else "yellow" if at_risk and row.finished_at is None else ""
    return Text(f"{when(row.deadline_at, now)}{' missed' if row.missed_deadline else ''}", style=style)


def site_columns() -> tuple[Column[SiteRow], ...]:
    """Sites: what they are, what they have, and how fresh that knowledge is."""
    return (
        Column("SITE", lambda row: row.name),
        Column("KIND", lambda row: row.kind),
        Column("STATUS", lambda row: status("DRAINING" if row.draining else row.status)),
        Column("GPUS", lambda row: str(row.gpus), right=True),
        Column("BUSY", lambda row: str(row.busy), right=True),
        Column("RUNNING", lambda row: str(row.running), right=True, least=90),
        Column("LARGEST GANG", lambda row: row.largest_gang),
        Column(
            "REPORT",
            lambda row: NONE if row.age_s is None else f"{duration(row.age_s)} ago",
            right=True,
            least=90,
        ),
        Column("REGION", lambda row: row.region, wide=True),
        Column("RUNTIME", lambda row: RUNTIMES.get(row.runtime, row.runtime), wide=True),
        Column("MEMBERS", lambda row: str(row.members), wide=True, right=True),
        Column("AGENT", lambda row: agent_versions(row.hosts), wide=True),
        Column("LABELS", lambda row: labels(row.labels), wide=True),
        Column("BECAUSE", _site_because, flow="cut"),
    )


def _site_because(row: SiteRow) -> str:
    """Why nothing new starts there, or why less than it has."""
    if row.because or row.paused:
        return row.because or "paused by its owner"
    ailing = [gpu for pool in row.pools for gpu in pool.ailing]
    return f"takes no new work on {counted(len(ailing), 'GPU')}: {ailing[0].why}" if ailing else ""


def pool_columns() -> tuple[Column[PoolRow], ...]:
    """The pools of one site."""
    return (
        Column("POOL", lambda row: row.pool.name),
        Column("MEMBER", lambda row: row.member),
        Column("MODEL", lambda row: row.pool.model),
        Column("HOSTS", lambda row: str(row.pool.nodes), right=True),
        Column(
            "GPUS/HOST",
            lambda row: (
                f"{_gpus_of(row.pool, row.pool.gpus_per_node)}{', shared' if row.pool.shared else ''}"
            ),
            right=True,
        ),
        Column("LENT", lambda row: _gpus_of(row.pool, row.pool.lent_gpus), right=True),
        Column("BUSY", lambda row: str(row.busy_gpus), right=True),
        Column(
            "FREE GPUS",
            _free,
            flow="fold",
        ),
        Column("LARGEST GANG", lambda row: row.largest_gang, least=90),
    )


def _free(row: PoolRow) -> str:
    """On which hosts they are counts: `4 on each of 2 hosts, 1 on 1 host`; of one host just how many."""
    shapes = [each for each in row.free if each.gpus and each.count]
    if row.pool.nodes == 1 and len(shapes) == 1 and shapes[0].count == 1:
        return _gpus_of(row.pool, shapes[0].gpus)
    what = "host" if not row.pool.shared else "GPU" if row.pool.gpus_per_node == WHOLE_MILLI else "part"
    return (
        ", ".join(
            f"{_gpus_of(row.pool, each.gpus)} on {'each of ' if each.count > 1 else ''}{counted(each.count, what)}"
            for each in sorted(shapes, key=lambda each: -each.gpus)
        )
        or "0"
    )


def _gpus_of(pool: Pool, count: int) -> str:
    return str(in_gpus(count, shared=bool(pool.shared)))


def part_columns() -> tuple[Column[tuple[str, PartRow]], ...]:
    """What is on the shared GPUs of one site, each with its member."""
    return (
        Column("SHARED GPU", lambda row: str(row[1].gpu), right=True),
        Column("MEMBER", lambda row: row[0]),
        Column("SHARE", lambda row: f"{row[1].share:g}", right=True),
        Column("JOB", lambda row: row[1].job),
        Column("NAME", lambda row: row[1].name),
        Column("RANK", lambda row: str(row[1].rank), right=True),
    )


def local_work_columns(now: float) -> tuple[Column[tuple[str, LocalWork]], ...]:
    """Work of a site's own, each with its member: what of it runs, and what waits in the site's own queue."""
    return (
        Column("POOL", lambda row: row[1].pool),
        Column("MEMBER", lambda row: row[0]),
        Column("NODES", lambda row: str(row[1].nodes), right=True),
        Column("GPUS/NODE", lambda row: str(row[1].gpus_per_node), right=True),
        Column("THE SITE'S OWN WORK", lambda row: _local_state(row[1], now)),
    )


def _local_state(work: LocalWork, now: float) -> str:
    if work.queued:
        return "waits in the site's own queue"
    return "runs" if work.ends_at is None else f"runs, to end {when(work.ends_at, now)}"


def ailing_columns() -> tuple[Column[tuple[str, AilingGpu]], ...]:
    """The GPUs of one site that take no new work, each with its member."""
    return (
        Column("GPU", lambda row: str(row[1].gpu), right=True),
        Column("POOL", lambda row: row[1].pool),
        Column("MEMBER", lambda row: row[0]),
        Column("TAKES NO NEW WORK BECAUSE", lambda row: row[1].why, cap=110),
    )


def gpu_columns(now: float) -> tuple[Column[GpuRow], ...]:
    """How busy each GPU of one site is."""
    return (
        Column("GPU", lambda row: str(row.gpu), right=True),
        Column("HOST", lambda row: row.host),
        Column("POOL", lambda row: row.pool, least=90),
        Column("BUSY", lambda row: NONE if row.busy_percent is None else f"{row.busy_percent}%", right=True),
        Column("GPU MEM", lambda row: format_mib(row.memory_mib), right=True),
        Column("POWER", lambda row: NONE if row.power_w is None else f"{row.power_w} W", right=True),
        Column("SLOWED BY", lambda row: row.slowed_by or NONE, least=90),
        Column("NEAR", lambda row: row.near or NONE, least=110),
        Column("TOLD", lambda row: f"{duration(max(0.0, now - row.told_at))} ago", right=True, least=90),
        Column("JOBS", lambda row: ", ".join(each.name for each in row.jobs), flow="cut"),
    )


def stopped_columns(now: float) -> tuple[Column[Stopped], ...]:
    """The jobs that draining a site would stop."""
    return (
        Column("JOB", lambda row: row.name),
        Column("OWNER", lambda row: row.owner),
        Column("GPUS", lambda row: f"{row.gpus:g}", right=True),
        Column("WOULD END", lambda row: NONE if row.would_end_at is None else when(row.would_end_at, now)),
        Column("GOES ON FROM", lambda row: "its checkpoint" if row.saves else "the beginning"),
        Column("LOSES", lambda row: f"{row.lost_gpu_s / 3600:.1f} GPU-hours", right=True),
    )


def agent_versions(hosts: Iterable[MemberRow]) -> str:
    """The versions of the agents of these hosts, each once, and how they are beside the dispatcher's."""
    said = sorted({(each.version, each.version_is) for each in hosts if each.version})
    return ", ".join(f"{version} ({beside})" if beside else version for version, beside in said)


def member_columns() -> tuple[Column[MemberRow], ...]:
    """The hosts of one site."""
    return (
        Column("MEMBER", lambda row: row.name),
        Column("STATUS", lambda row: row.status),
        Column("REPORT", lambda row: NONE if row.age_s is None else f"{duration(row.age_s)} ago", right=True),
        Column("AGENT", lambda row: agent_versions([row]), least=80),
        Column("BECAUSE", lambda row: row.because, cap=110),
    )


def link_columns() -> tuple[Column[MemberRow], ...]:
    """How the links of the hosts of one site are: what the last hour has cost, up and down."""
    return (
        Column("MEMBER", lambda row: row.name),
        Column(
            "LAST HEARD", lambda row: NONE if row.age_s is None else f"{duration(row.age_s)} ago", right=True
        ),
        Column("ROUND TRIP", _round_trip, right=True),
        *(Column(f"{kind.upper()}, 1h", partial(_traffic, kind), right=True) for kind in LINK_KINDS),
        Column("BUDGET", lambda row: _budget(row.link), right=True),
        Column("BULK MOVES", lambda row: _bulk(row.link)),
    )


def _round_trip(row: MemberRow) -> str:
    trip_s = row.link.round_trip_s if row.link else None
    return NONE if trip_s is None else f"{trip_s * 1000:.0f} ms" if trip_s < 10 else duration(trip_s)


def _traffic(kind: str, row: MemberRow) -> str:
    of_kind = next((each for each in row.link.hour if each.kind == kind), None) if row.link else None
    return f"{format_bytes(of_kind.sent)} up, {format_bytes(of_kind.received)} down" if of_kind else NONE


def _budget(link: LinkState | None) -> str:
    return NONE if link is None or link.budget is None else f"{format_bytes(link.budget)} an hour"


def _bulk(link: LinkState | None) -> str:
    if link is None:
        return NONE
    rate = "" if link.rate is None else f"{format_bytes(link.rate)} a second"
    return ", ".join(filter(None, (rate, link.hours))) or "always"


def queue_columns() -> tuple[Column[QueueRow], ...]:
    """Queues: use against guarantee and limit."""
    return (
        Column("QUEUE", lambda row: row.queue),
        Column("YOU", lambda row: rights_in_words(row.yours)),
        Column("GPUS", lambda row: str(row.gpus), right=True),
        Column("GUARANTEED", lambda row: str(row.guaranteed_gpus), right=True),
        Column("LIMIT", lambda row: NONE if row.limit_gpus is None else str(row.limit_gpus), right=True),
        Column("RUNNING", lambda row: str(row.running), right=True),
        Column("PENDING", lambda row: str(row.pending), right=True),
        Column("SPENT", lambda row: usd(row.spent_usd), right=True),
        Column("DEADLINE BUDGET", lambda row: duration(row.deadline_budget_s), right=True, least=100),
        Column("MAX DURATION", lambda row: duration(row.max_duration_s), wide=True, right=True),
        Column("WEIGHT", lambda row: f"{row.weight:g}", wide=True, right=True),
        Column("INTERACTIVE", lambda row: "yes" if row.interactive else "", wide=True),
        Column("OPEN TO", lambda row: row.open_to, wide=True, flow="cut"),
    )


def reason_columns(now: float) -> tuple[Column[WaitReason], ...]:
    """Why jobs wait: how many, and the first of them."""
    return (
        Column("REASON", lambda row: row.reason),
        Column("JOBS", lambda row: str(row.jobs), right=True),
        Column("GPUS", lambda row: f"{row.gpus:g}", right=True),
        Column("SINCE", lambda row: ago(row.first_at, now), right=True),
        Column("FIRST", lambda row: row.first),
        Column("BECAUSE", lambda row: row.because, flow="cut"),
    )


def alert_columns(now: float) -> tuple[Column[AlertRow], ...]:
    """Alerts: when, and what."""
    return (
        Column("WHEN", lambda row: ago(row.at, now), right=True),
        Column("KIND", lambda row: row.kind),
        Column("ALERT", lambda row: row.text, flow="fold"),
    )


def team_columns() -> tuple[Column[TeamRow], ...]:
    """Teams: who is in them, and what that gives."""
    return (
        Column("TEAM", lambda row: row.team),
        Column("YOU", lambda row: "member" if row.yours else ""),
        Column(
            "MEMBERS",
            lambda row: ", ".join((*row.members, *(f"group {name}" for name in row.groups))),
            flow="cut",
        ),
        Column("ADMINS", lambda row: ", ".join(row.admins), flow="cut"),
        Column("QUEUES", lambda row: ", ".join(each.queue for each in row.queues) or NONE, flow="cut"),
        Column(
            "RIGHTS",
            lambda row: "; ".join(f"{each.queue}: {rights_in_words(each)}" for each in row.queues),
            wide=True,
            flow="cut",
        ),
    )


def lease_columns(now: float) -> tuple[Column[LeaseRow], ...]:
    """Rented capacity: what it costs, and why it was rented."""
    return (
        Column("LEASE", lambda row: row.id),
        Column("SITE", lambda row: row.site, least=100),
        Column("OFFER", lambda row: row.offer),
        Column("MARKET", lambda row: row.market, wide=True),
        Column("ZONE", lambda row: row.zone, wide=True),
        Column("STATUS", lambda row: status(row.status)),
        Column("GPUS", lambda row: str(row.gpus), right=True),
        Column("USD/H", lambda row: f"{row.price_usd_h:.2f}", right=True, least=80),
        Column("BILLED", lambda row: usd(row.billed_usd), right=True),
        Column("COMMITTED", lambda row: usd(row.committed_usd), right=True, least=110),
        Column("AGE", lambda row: ago(row.requested_at, now), right=True, least=80),
        Column("ENDED", lambda row: when(row.ended_at, now), wide=True),
        Column("BECAUSE", lambda row: row.failure or row.kept_because or row.because, flow="cut"),
    )


def offer_columns(now: float) -> tuple[Column[OfferRow], ...]:
    """What could be rented."""
    return (
        Column("PROVIDER", lambda row: row.provider, least=100),
        Column("OFFER", lambda row: row.name),
        Column("SITE", lambda row: row.site, least=90),
        Column("GPUS", lambda row: f"{row.gpus} {row.model}"),
        Column("MARKET", lambda row: row.market),
        Column("USD/H", lambda row: f"{row.price_usd_h:.2f}", right=True),
        Column("TAKEN BACK", _taken_back, wide=True),
        Column("PRICE FROM", lambda row: row.price_source or "settings", wide=True),
        Column("BOOTS IN", lambda row: duration(row.delay_s), right=True, least=90),
        Column("AVAILABLE", lambda row: str(row.available), right=True),
        Column("OUT OF", lambda row: row.stock, wide=True),
        Column(
            "AVOIDED",
            lambda row: "" if (row.avoid_until_at or 0) <= now else f"until {when(row.avoid_until_at, now)}",
        ),
    )


def _taken_back(row: OfferRow) -> str:
    """How often, and what that is known by."""
    if not row.interruptions_h:
        return ""
    zones = ", ".join(f"{zone} {rate:g}/h" for zone, rate in sorted(row.zones_interruptions_h.items()))
    known_by = f"{row.interruptions} in {row.watched_h:.0f} h" + (f"; {zones}" if zones else "")
    return f"{row.interruptions_h:g}/h ({known_by})"


def decision_columns(now: float) -> tuple[Column[DecisionRow], ...]:
    """Recorded decisions."""
    return (
        Column("DECISION", lambda row: row.id),
        Column("AGE", lambda row: ago(row.at, now), right=True),
        Column("WINNER", lambda row: row.winner),
        Column("OBJECTIVE", lambda row: usd(row.objective_usd), right=True, least=90),
        Column("ACTIONS", lambda row: str(row.actions), right=True),
        Column("STALE", lambda row: str(row.stale), right=True, least=90),
        Column("JOBS", lambda row: str(row.jobs), right=True),
        Column("WAIT", lambda row: str(row.waiting), right=True, least=90),
        Column("STAGES", lambda row: row.stages, least=90),
        Column("GAP", lambda row: f"{100 * row.proof.gap:.2f} %" if row.proof else "", wide=True, right=True),
        Column("SIZE", lambda row: f"{row.size_bytes / 1024:.1f} KiB", wide=True, right=True),
    )


def statement_columns() -> tuple[Column[StatementRow], ...]:
    """What was used at a site."""
    return (
        Column("OWNER", lambda row: row.owner),
        Column("QUEUE", lambda row: row.queue),
        Column("MODEL", lambda row: row.model or NONE),
        Column("ATTEMPTS", lambda row: str(row.attempts), right=True),
        Column("GPU-H", lambda row: f"{row.gpu_s / 3600:.2f}", right=True),
        Column("USD", lambda row: f"{row.usd:.2f}", right=True),
    )


def ledger_columns() -> tuple[Column[LedgerEntry], ...]:
    """Facts of the ledger, at their exact times."""
    return (
        Column("AT", lambda row: instant(row.at)),
        Column("KIND", lambda row: row.kind),
        Column("WHO", lambda row: row.who),
        Column("JOB", lambda row: row.job, least=100),
        Column("QUEUE", lambda row: row.queue, wide=True),
        Column("SITE", lambda row: row.site, least=110),
        Column("LEASE", lambda row: row.lease, wide=True),
        Column("MARKET", lambda row: row.market, wide=True),
        Column("GPU-H", lambda row: f"{row.gpu_s / 3600:.3f}" if row.gpu_s else "", right=True),
        Column("USD", lambda row: f"{row.usd:.4f}" if row.usd else "", right=True),
        Column("WHAT", lambda row: row.what, flow="cut"),
    )


def policy_columns(now: float) -> tuple[Column[PolicySet], ...]:
    """Versions of the policies."""
    return (
        Column("VERSION", lambda row: str(row.version), right=True),
        Column("APPLIED", lambda row: when(row.applied_at, now)),
        Column("AUTHOR", lambda row: row.author),
        Column("DOCUMENTS", lambda row: str(len(row.documents)), right=True),
        Column("REASON", lambda row: row.reason, flow="cut"),
    )


def event_columns(now: float) -> tuple[Column[Event], ...]:
    """What happened to a job."""
    return (
        Column("WHEN", lambda row: when(row.at, now), right=True),
        Column("STATUS", lambda row: status(row.status)),
        Column("SITE", lambda row: row.site),
        Column("WHAT", lambda row: row.text, flow="cut"),
    )


def attempt_columns(now: float) -> tuple[Column[AttemptRow], ...]:
    """The attempts of a job."""
    return (
        Column("ATTEMPT", lambda row: str(row.attempt), right=True),
        Column("STATUS", lambda row: status(row.status)),
        Column("SITE", lambda row: row.site),
        Column("STARTED", lambda row: when(row.started_at, now), right=True),
        Column("RAN", lambda row: _ran(row, now), right=True),
        Column("GPUS", lambda row: f"{row.gpus:g}", right=True, least=110),
        Column("COST", lambda row: usd(row.usd), right=True, least=110),
        Column("HOSTS", lambda row: ", ".join(dict.fromkeys(row.members)), least=140, cap=30),
        Column("ENDED BY", _ended_by, flow="cut"),
    )


def _ran(row: AttemptRow, now: float) -> str:
    return NONE if row.started_at is None else duration((row.ended_at or now) - row.started_at)


def _ended_by(row: AttemptRow) -> str:
    code = "" if row.exit_code is None else f"exit code {row.exit_code}"
    return ": ".join(part for part in (code or row.cause, row.detail) if part)


def labels(pairs: dict[str, str]) -> str:
    """Labels as they are written in filters."""
    return plain(", ".join(f"{key}={value}" for key, value in sorted(pairs.items())))


def token_columns(now: float) -> tuple[Column[TokenRow], ...]:
    """Tokens: whose, what for, and until when."""
    return (
        Column("ID", lambda row: row.id),
        Column("NAME", lambda row: row.name or NONE),
        Column("FOR", _holders),
        Column("SITE", lambda row: row.site, wide=True),
        Column("QUEUE", lambda row: row.default_queue, least=90),
        Column("MADE", lambda row: when(row.created_at, now), right=True),
        Column("EXPIRES", lambda row: when(row.expires_at, now), right=True),
        Column("USED", lambda row: when(row.last_used_at, now), right=True, least=100),
        Column("SCOPES", lambda row: ", ".join(row.scopes), least=100),
        Column("STATUS", lambda row: row.status),
    )


def _holders(row: TokenRow) -> str:
    many = f"{row.used} of {row.most} sites {row.site}"
    return row.role or (many if row.most else f"an agent of {row.site}")


def action_columns(names: dict[str, str], now: float) -> tuple[Column[Action], ...]:
    """What a plan does, as seen at its moment."""
    return (
        Column("ACTION", lambda row: _VERBS[type(row)]),
        Column("JOB", lambda row: names.get(row.job, row.job), cap=30),
        Column("ID", lambda row: row.job, wide=True),
        Column("WHERE", _where, cap=40),
        Column(
            "ENDS",
            lambda row: NONE if isinstance(row, Preempt) else when(row.expected_end_at, now),
            right=True,
        ),
        Column("BECAUSE", lambda row: row.because, flow="fold"),
    )


_VERBS: dict[type, str] = {Place: "start", Rent: "rent", Preempt: "stop"}


def _where(action: Action) -> str:
    if isinstance(action, Preempt):
        return NONE
    if isinstance(action, Place):
        return f"{action.site}/{action.pool}"
    count = f"{action.machines} × " if action.machines > 1 else ""
    return f"{count}{action.site}/{action.offer}"


def waiting_columns(names: dict[str, str], now: float) -> tuple[Column[Waiting], ...]:
    """Why jobs wait by a plan, as seen at its moment."""
    return (
        Column("JOB", lambda row: names.get(row.job, row.job), cap=30),
        Column("ID", lambda row: row.job, wide=True),
        Column("STARTS", lambda row: when(row.expected_start_at, now), right=True),
        Column("HOME FINISH", lambda row: when(row.home_finish_at, now), right=True, least=100),
        Column("BECAUSE", lambda row: row.because, flow="fold"),
    )
