"""Warm turns of the planner on one instance, under churn, and one look at what its decisions are worth beside simpler rules.

A turn is what the dispatcher's is: the window of a long line, the problem to the solver and its plan back as bytes, the decision, the
check. What the dispatcher keeps by difference (columns of the line) is not counted. The bound and the gaps are of the whole instance,
not of the window. Seconds are of the processor, so that others who use the machine do not count; the wall's are told beside them.
"""

import gc
import resource
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np
from msgspec.structs import replace

from federator.model.plans import Plan, Rent, Severity
from federator.model.snapshot import JobView, Problem
from federator.planning.checks import check_actions
from federator.planning.explanations.explain import Aftermath
from federator.planning.plans.greedy import plan_greedily, plan_quickly
from federator.planning.rentals.candidate import BurstRejection
from federator.planning.scheduling.objective import Evaluator
from federator.planning.world.line import Eligible, JobKind, Kinds, Line, LineForm
from federator.planning.world.outlook import OutlookArrays
from federator.planning.world.plan_starts import starts_of
from federator.planning.world.problem import World
from federator.planning.world.window import MOST_JOBS, choose
from federator.solving.certify import Certified, certify
from federator.solving.decide import decide
from federator.solving.outlook import look_ahead
from tests.bench.measuring import median, percentile
from tests.bench.solver.baselines import RULES, Starts, per_job_cpsat
from tests.bench.solver.instances import NOW, Instance

T = TypeVar("T")
M = TypeVar("M", bound=msgspec.Struct)

CHURN = 0.03
CPSAT_LIMIT_S = 20.0
EXPLAINED = 20
OUTLOOK_TURNS = 2
"""A plan of the whole line is used so many turns after what it was made of: it is made in another process, beside the turns."""


class Turn(NamedTuple):
    """One turn: seconds by part, what it saw and what came out."""

    window_s: float
    decide_s: float
    wire_s: float
    check_s: float
    jobs: int
    winner: str
    objective_usd: float
    violations: int
    wall_s: float

    @property
    def total_s(self) -> float:
        """All of it."""
        return self.window_s + self.decide_s + self.wire_s + self.check_s


class Outlooks:
    """Plans of the whole line, as they are made beside the turns: asked for with what a turn sees, and there some turns later."""

    def __init__(self, report: "Report") -> None:
        self._report, self._since = report, 0
        self._next: OutlookArrays | None = None
        self._latest: OutlookArrays | None = None
        self._prices: dict[str, float] = {}

    def ask(self, problem: Problem, number: int) -> None:
        """Begin with another one where the last one is done."""
        if self._next is not None or len(problem.snapshot.jobs) <= MOST_JOBS:
            return
        members: dict[str, list[JobView]] = {}
        for job in problem.snapshot.jobs:
            members.setdefault(job.name, []).append(job)
        heads = replace(problem.snapshot, jobs=tuple(jobs[0] for jobs in members.values()))
        asked = replace(problem, snapshot=heads, warm_prices=self._prices)
        took_s, found = _timed(partial(look_ahead, asked, [len(jobs) for jobs in members.values()]))
        if found is not None:
            words = [int(name.rpartition("-")[2]) for name in members]
            self._next, self._since, self._prices = OutlookArrays(found, words), number, found.prices
            self._report.outlooks_s.append(took_s)

    def latest(self, number: int) -> OutlookArrays | None:
        """What the turn knows: what was asked for `OUTLOOK_TURNS` turns ago is done."""
        if self._next is not None and number >= self._since + OUTLOOK_TURNS:
            self._latest, self._next = self._next, None
        return self._latest


class Judged(NamedTuple):
    """What one rule's decisions of now are worth: how long they took, and the decision gap (None where there is none)."""

    name: str
    took_s: float
    starts: int
    gap: float | None
    note: str = ""


@dataclass
class Report:
    """All that one run of the benchmark found."""

    turns: list[Turn] = field(default_factory=list)
    first_s: list[float] = field(default_factory=list)
    """Until the first feasible plan: what the fast path asks."""
    explained_s: list[float] = field(default_factory=list)
    outlooks_s: list[float] = field(default_factory=list)
    """Each plan of the whole line, made beside the turns."""
    judged: list[Judged] = field(default_factory=list)
    memory_mib: int = 0
    cold_s: float = 0.0
    """The first turn."""
    bound_usd: float | None = None
    certificate_s: float | None = None
    """Until the planner's last decision was certified, with what that needs to know of the whole line."""
    open_percent: float | None = None
    """How far the best fluid plan that is known is above the bound."""
    columns: int = 0
    certified_mib: int = 0
    """Memory at the end of it."""


def measure(
    instance: Instance, *, turns: int, baselines: bool, say: Callable[[str], None], certificate: bool = True
) -> Report:
    """Warm turns, then the comparison on the last one's problem; without a `certificate` nothing is said of gaps."""
    report = Report()
    problem, seen, plan = instance.problem(), instance.problem(), None
    outlooks = Outlooks(report)
    for number in range(turns + 1):
        problem = replace(instance.problem(number), warm_prices=plan.prices if plan else {})
        turn, seen, plan = _turn(problem, outlooks.latest(number))
        outlooks.ask(problem, number)
        if number:  # the first one is cold
            report.turns.append(turn)
            report.first_s.append(_timed(partial(plan_quickly, seen))[0])
        else:
            report.cold_s = turn.total_s
        say(
            f"turn {number}: {turn.total_s:.3f} s, {turn.jobs} of {len(problem.snapshot.jobs)} jobs seen, {turn.winner}"
        )
        if number < turns:
            instance.churn(CHURN)
    assert plan is not None
    after = Aftermath(seen, plan)
    for waiting in plan.waiting[:EXPLAINED]:
        took_s, _ = _timed(partial(after.explain, waiting.job))
        report.explained_s.append(took_s)
    report.memory_mib = _memory_mib()
    if baselines or certificate:
        decisions = _decisions(
            report, problem, seen, plan, say, baselines=baselines, seed=instance.parameters.seed
        )
        _judge(report, problem, decisions, say, certificate=certificate)
    return report


def _memory_mib() -> int:
    """The most that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    begun = time.process_time()
    found = work()
    return time.process_time() - begun, found


def _turn(problem: Problem, known: OutlookArrays | None) -> tuple[Turn, Problem, Plan]:
    """With the collector of garbage between turns, as the solver's child has it."""
    line = line_of(problem)
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        return _undisturbed(problem, line, known)
    finally:
        gc.enable()


def _undisturbed(problem: Problem, line: Line, known: OutlookArrays | None) -> tuple[Turn, Problem, Plan]:
    wall = time.perf_counter()
    window_s, seen = _timed(partial(windowed, problem, line, known))
    asked_s, arrived = _timed(partial(_over_the_wire, seen, Problem))
    decide_s, made = _timed(partial(decide, arrived))
    told_s, plan = _timed(partial(_over_the_wire, made, Plan))
    check_s, findings = _timed(partial(check_actions, seen, plan))
    violations = sum(finding.severity is Severity.FATAL for finding in findings)
    turn = Turn(
        window_s,
        decide_s,
        asked_s + told_s,
        check_s,
        len(seen.snapshot.jobs),
        plan.winner,
        plan.objective_usd,
        violations,
        time.perf_counter() - wall,
    )
    return turn, seen, plan


def _over_the_wire(message: M, kind: type[M]) -> M:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=kind)


def windowed(problem: Problem, line: Line, known: OutlookArrays | None) -> Problem:
    """What of the line the decision is to see, as the observer makes it."""
    found = choose(line, problem.snapshot.pools, problem.snapshot.rules, NOW, known=known)
    jobs = problem.snapshot.jobs
    chosen = tuple(
        replace(jobs[index], behind_s=behind)
        for index, behind in zip(found.chosen.tolist(), found.behind_s[found.chosen].tolist(), strict=True)
    )
    return replace(
        problem,
        snapshot=replace(problem.snapshot, jobs=chosen),
        warm_prices=found.told.prices if found.told.leads else problem.warm_prices,
        outside=found.told.outside,
        leads=tuple(replace(lead, job=jobs[entry].id) for entry, lead in found.told.leads),
    )


def line_of(problem: Problem) -> Line:
    """The columns that the dispatcher keeps by difference."""
    jobs, kinds = problem.snapshot.jobs, Kinds()
    return Line(
        submitted_at=np.array([job.submitted_at for job in jobs]),
        priority=np.array([float(job.priority) for job in jobs]),
        deadline_at=np.array([np.inf if job.deadline_at is None else job.deadline_at for job in jobs]),
        run_s=np.array([job.run_s for job in jobs]),
        ready_at=np.zeros(len(jobs)),
        kind=np.array([kinds.number(JobKind(job.queue, (_form(job),))) for job in jobs]),
        klass=np.array([int(job.name.rpartition("-")[2]) for job in jobs]),
        table=kinds.table(),
        forms=kinds.forms(),
        queues=tuple(kinds.queues),
        eligibles=tuple(kinds.eligibles),
    )


def _form(job: JobView) -> LineForm:
    return LineForm(Eligible(job.models), job.nodes, job.gpus, job.cpus_milli, job.memory_mib)


class _Decided(NamedTuple):
    """What one rule would start; a `note` instead where it has no plan."""

    name: str
    took_s: float
    starts: Starts
    note: str = ""
    rents: Mapping[str, float] = {}
    """What it rents, by job, in USD."""


def _decisions(
    report: Report,
    problem: Problem,
    seen: Problem,
    plan: Plan,
    say: Callable[[str], None],
    *,
    baselines: bool,
    seed: int,
) -> list[_Decided]:
    """The planner's last decisions, and those of each rule on the same problem."""
    whole = World(problem)
    turn_s = median([turn.total_s for turn in report.turns])
    rents = {action.job: action.evidence.cost_usd for action in plan.actions if isinstance(action, Rent)}
    found = [_Decided("planner", turn_s, starts_of(whole, plan.actions), rents=rents)]
    if not baselines:
        return found
    took_s, greedy = _timed(partial(plan_greedily, seen))
    found.append(_Decided("greedy", took_s, starts_of(whole, greedy.actions)))
    for name, rule in RULES.items():
        say(f"deciding by {name}")
        took_s, starts = _timed(partial(rule, problem, seed))
        found.append(_Decided(name, took_s, starts))
    took_s, answer = _timed(partial(per_job_cpsat, problem, CPSAT_LIMIT_S))
    if isinstance(answer, dict):
        found.append(_Decided("per-job CP-SAT", took_s, answer))
    else:
        found.append(_Decided("per-job CP-SAT", took_s, {}, str(answer)))
    return [*found, _Decided("nothing starts", 0.0, {})]


def _judge(
    report: Report,
    problem: Problem,
    found: Sequence[_Decided],
    say: Callable[[str], None],
    *,
    certificate: bool,
) -> None:
    """What all these decisions leave to the future, against the bound of the whole: first the planner's alone, which is timed."""
    gaps: dict[str, float | None] = {}
    if certificate:
        say("proving a bound of the whole")
        report.certificate_s, (told, apart_usd) = _timed(partial(_certified, problem, found[0]))
        if told is not None:
            report.bound_usd, report.columns = told.model_usd, told.columns
            report.open_percent = 100.0 * (told.relaxed_usd / max(1e-9, told.model_usd) - 1.0)
            gaps["planner"] = None if told.gap is None else told.gap + apart_usd / max(1e-9, told.model_usd)
        others = [each for each in found[1:] if not each.note]
        say("judging the rules by it")
        more = certify(Evaluator(World(problem)), *(each.starts for each in others)) if others else None
        gaps |= {each.name: one.gap for each, one in zip(others, more or (), strict=bool(more))}
        report.certified_mib = _memory_mib()
    report.judged += [
        Judged(each.name, each.took_s, len(each.starts), gaps.get(each.name), each.note) for each in found
    ]


def _certified(problem: Problem, decided: _Decided) -> tuple[Certified | None, float]:
    """The certificate of a plan of a window, and what it rents for work that there is no case for by a forecast of the whole line.

    The model of the whole has no columns for these rentals. So their bill is told apart, and their jobs are left among those that wait: the gap is at
    most what comes of it. Jobs of a class are alike, so it is asked how many of the class have a case there, not which.
    """
    evaluator = Evaluator(World(problem))
    world, starts = evaluator.world, dict(decided.starts)
    apart_usd = 0.0
    members: dict[object, list[JobView]] = {}
    for job in world.jobs:
        members.setdefault(world.key(job), []).append(job)
    rented: Counter[tuple[object, int]] = Counter()
    for name, usd in decided.rents.items():
        key, place = world.key(world.by_id[name]), starts[name]
        rented[key, place] += 1
        cases = (evaluator.bursting.case(job, place) for job in members[key])
        if rented[key, place] > sum(
            not isinstance(case, BurstRejection) and case.is_now(world.now) for case in cases
        ):
            apart_usd += usd
            del starts[name]
    told = certify(evaluator, starts)
    return (told[0] if told else None), apart_usd


def text(instance: Instance, report: Report) -> str:
    """The report for a terminal."""
    totals = [turn.total_s for turn in report.turns]

    def ms(values: Sequence[float], share: float = 50.0) -> str:
        return f"{1000 * percentile(list(values), share):.1f} ms" if values else "–"

    parts = ("window_s", "wire_s", "decide_s", "check_s")
    split = ", ".join(f"{part[:-2]} {ms([getattr(turn, part) for turn in report.turns])}" for part in parts)
    seen = [turn.jobs for turn in report.turns]
    walls = [turn.wall_s for turn in report.turns]
    lines = [
        instance.parameters.described(),
        (
            f"{len(report.turns)} warm turns under {100 * CHURN:g} % churn: median {ms(totals)}, p90 {ms(totals, 90)}, p99 {ms(totals, 99)}, "
            f"most {ms(totals, 100)}; the first, cold {1000 * report.cold_s:.1f} ms"
        ),
        f"(by the wall: median {ms(walls)}, most {ms(walls, 100)}); of it {split}; jobs seen {min(seen)} to {max(seen)}",
        f"first feasible plan {ms(report.first_s)}; an explanation {ms(report.explained_s)}; memory {report.memory_mib} MiB",
        f"violations that the checker found: {sum(turn.violations for turn in report.turns)}",
    ]
    if report.outlooks_s:
        lines.append(
            f"beside the turns, in a process of its own: {len(report.outlooks_s)} plans of the whole line, median {ms(report.outlooks_s)}; "
            f"a turn uses one that is {OUTLOOK_TURNS} to {2 * OUTLOOK_TURNS - 1} turns old"
        )
    if report.bound_usd is not None:
        lines.append(
            f"certificate: {report.certificate_s or 0.0:.1f} s; proven bound {report.bound_usd:,.0f} USD over {report.columns:,} columns, within "
            f"{report.open_percent or 0.0:.2f} % of the best fluid plan; memory with it {report.certified_mib} MiB"
        )
    lines += ["", f"{'decided by':16} {'time':>10} {'starts':>7} {'decision gap':>13}"]
    for each in report.judged:
        gap = each.note or ("–" if each.gap is None else f"{100 * each.gap:.2f} %")
        lines.append(f"{each.name:16} {1000 * each.took_s:8.1f} ms {each.starts:7d} {gap:>13}")
    return "\n".join(lines)
