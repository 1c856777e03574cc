"""What was asked of the planner, by size of the work: a floor and a goal, and what one run of the benchmark has to say of them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.bench.measuring import percentile
from tests.bench.solver.instances import Parameters
from tests.bench.solver.measure import Report

Figure = Callable[[Report], float | None]


@dataclass(frozen=True)
class Goal:
    """At most so much; `unit` is "s", "%" or "MiB"."""

    what: str
    figure: Figure
    unit: str
    floor: float
    goal: float | None = None

    def verdict(self, value: float) -> str:
        """In a word or two."""
        if self.goal is not None and value <= self.goal:
            return "goal reached"
        if value > self.floor:
            return "missed"
        return "reached" if self.goal is None else "floor reached"


def _turn_p99(report: Report) -> float | None:
    totals = [turn.total_s for turn in report.turns]
    return percentile(totals, 99.0) if totals else None


def _turn_median(report: Report) -> float | None:
    totals = [turn.total_s for turn in report.turns]
    return percentile(totals, 50.0) if totals else None


def _gap(report: Report) -> float | None:
    gaps = [each.gap for each in report.judged if each.name == "planner" and each.gap is not None]
    return 100.0 * gaps[0] if gaps else None


def _first(report: Report) -> float | None:
    return percentile(report.first_s, 50.0) if report.first_s else None


def _explained(report: Report) -> float | None:
    return percentile(report.explained_s, 50.0) if report.explained_s else None


GAP = "decision gap, of the whole line"
TURN = "warm turn, p99"

ROWS: dict[tuple[int, int, int], tuple[Goal, ...]] = {
    (100, 10, 12): (Goal(TURN, _turn_p99, "s", 0.04, 0.02), Goal(GAP, _gap, "%", 0.5)),
    (1_000, 20, 125): (Goal(TURN, _turn_p99, "s", 0.12, 0.06), Goal(GAP, _gap, "%", 0.4)),
    (10_000, 50, 1_250): (
        Goal(TURN, _turn_p99, "s", 0.3, 0.15),
        Goal(GAP, _gap, "%", 1.0, 0.6),
        Goal("certificate", lambda report: report.certificate_s, "s", 10.0, 3.0),
        Goal("what the certificate leaves open", lambda report: report.open_percent, "%", 0.3),
        Goal("first feasible plan, median", _first, "s", 0.05, 0.02),
    ),
    (10_000, 50, 10_000): (
        Goal("warm turn, median", _turn_median, "s", 1.0, 0.5),
        Goal(GAP, _gap, "%", 2.0),
    ),
    (100_000, 200, 2_100): (
        Goal("warm turn, median", _turn_median, "s", 1.3, 0.6),
        Goal(GAP, _gap, "%", 1.5),
        Goal("first feasible plan, median", _first, "s", 0.5, 0.25),
    ),
    (100_000, 200, 14_600): (
        Goal("warm turn, median", _turn_median, "s", 5.0, 2.0),
        Goal("memory of the turns", lambda report: float(report.memory_mib), "MiB", 1_536.0, 1_024.0),
    ),
    (1_000_000, 1_000, 2_100): (
        Goal("cold turn", lambda report: report.cold_s, "s", 60.0, 20.0),
        Goal("warm turn, median", _turn_median, "s", 60.0, 8.0),
    ),
}
"""By jobs, sites and classes."""
EVERYWHERE = (
    Goal("an explanation, median", _explained, "s", 0.05, 0.005),
    Goal("violations", lambda report: float(sum(t.violations for t in report.turns)), "", 0.0),
)


def judged(parameters: Parameters, report: Report) -> Iterator[tuple[str, str, str, str, str]]:
    """Of each goal for work of this size: what it is of, the floor, the goal, what was measured, and whether that is enough."""
    size = (parameters.jobs, parameters.sites, parameters.kinds)
    for each in (*ROWS.get(size, ()), *EVERYWHERE):
        value = each.figure(report)
        measured = "not measured" if value is None else _shown(value, each.unit)
        wanted = "" if each.goal is None else _shown(each.goal, each.unit)
        verdict = "" if value is None else each.verdict(value)
        yield each.what, _shown(each.floor, each.unit), wanted, measured, verdict


def _shown(value: float, unit: str) -> str:
    if unit == "s":
        return f"{1000 * value:,.0f} ms" if value < 0.9995 else f"{value:.1f} s"
    if unit == "%":
        return f"{value:.2f} %"
    return f"{value:,.0f} {unit}".strip()
