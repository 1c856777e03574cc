"""Decide: greedy first, then what OR-Tools can better.

Each stage that completes leaves a whole plan. All are priced by one evaluator, and a later stage's plan replaces an earlier one only
when it is strictly cheaper. `stages` are work limits, not seconds; no clock is read here, so a recorded problem replays byte for byte.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from federator.model.plans import Plan, StageReport
from federator.model.reasons import Cheaper, NoneCheaper, Reason
from federator.model.snapshot import Problem
from federator.planning.linear import columns as cut
from federator.planning.linear.columns import Columns
from federator.planning.linear.whole_line_rentals import lead_starts
from federator.planning.plans.greedy import QUICK, drop_needless, plan_quickly, with_rentals
from federator.planning.plans.plan_builder import write_plan
from federator.planning.plans.preference import keep_order
from federator.planning.scheduling.objective import Evaluator, Scored
from federator.planning.world.problem import World
from federator.solving import linear, local_search
from federator.solving.frames import LEAD, STAGES
from federator.solving.job_order import order_of
from federator.solving.least import least_usd

WORTH_USD = 0.005
"""A plan that saves less than half a cent does not replace the one before."""
TRIED_JOBS = 16
"""With so few jobs, greedy tries rentals although the linear program decides on them next: who shares a machine with whom matters most there, and trials are quick."""
WHOLE_JOBS = 64
"""With so few jobs, whether whole jobs fit one after the other decides more than the model's fluid future does, so its plan is changed where the list schedule is cheaper for it. With
more, what a list schedule makes of a small change is mostly chance, and the model alone judges the future (docs/decisions/0044-one-judge-of-the-future.md)."""

Watch = Callable[[str], None]
"""Is told the name of each stage when it ends: who wants to know how long they take measures it there."""


def _nobody(stage: str) -> None:
    """Nobody watches."""


@dataclass
class _Race:
    """Greedy's plan, the best so far, and what each stage reported."""

    evaluator: Evaluator
    greedy: Scored
    best: Scored
    judge: Evaluator
    """Who found what the best is worth: the evaluator, with the future that goes with it."""
    winner: str = "greedy"
    reports: list[StageReport] = field(default_factory=list)
    prices: dict[str, float] = field(default_factory=dict)
    watch: Watch = _nobody

    def report(self, stage: StageReport) -> None:
        """A stage has ended."""
        self.reports.append(stage)
        self.watch(stage.stage)

    def offer(self, stage: str, scored: Scored, judge: Evaluator) -> None:
        """A stage's plan: it wins only if it is strictly cheaper, lists in order kept."""
        scored = keep_order(judge, scored)
        if scored.total < self.best.total - WORTH_USD:
            self.best, self.winner, self.judge = scored, stage, judge

    def because(self) -> Reason:
        """Why the winner won."""
        if self.winner != "greedy":
            return _comparison(self.evaluator, self.best, self.greedy)
        return NoneCheaper(stages=tuple(each.stage for each in self.reports[1:] if each.completed))


def decide(
    problem: Problem, *, seed: int = 0, stages: tuple[str, ...] = STAGES, watch: Watch = _nobody
) -> Plan:
    """The plan for one turn: the cheapest of the stages' plans, with its reasons and the stages' reports.

    The stage `quick` stands alone: it is what the fast path of a turn has asked, decided again.
    """
    if QUICK in stages:
        return plan_quickly(problem, seed)
    race = _race(Evaluator(World(problem)), stages, watch)
    return write_plan(
        race.judge,
        race.best,
        winner=race.winner,
        because=race.because(),
        stages=race.reports,
        seed=seed,
        prices=race.prices,
    )


def _first(evaluator: Evaluator, stages: tuple[str, ...]) -> Scored:
    """The first plan. Where a model decides next on what to rent, trying rentals one by one would take most of the turn and find less."""
    modelled = not {LEAD, "lp"}.isdisjoint(stages)
    few = len(evaluator.world.jobs) <= TRIED_JOBS
    return keep_order(evaluator, evaluator.score({}) if modelled and not few else with_rentals(evaluator))


def _race(evaluator: Evaluator, stages: tuple[str, ...], watch: Watch) -> _Race:
    """Run the stages in order."""
    first = _first(evaluator, stages)
    race = _Race(evaluator, first, first, evaluator, watch=watch)
    race.report(StageReport(stage="greedy", completed=True, objective_usd=first.total, work=first.attempts))
    if not evaluator.world.jobs or not {LEAD, "lp"}.intersection(stages):
        return race
    if first.total <= least_usd(evaluator) + WORTH_USD:
        # Every job has the best place that there is for it: there is nothing to find that is better.
        return race
    if LEAD in stages and evaluator.world.problem.leads and _lead(race):
        return race
    if "lp" not in stages:
        return race
    table = cut.build(evaluator)
    if not len(table.committed):
        # Nothing can start or be rented now: there is nothing to find that is better than waiting.
        return race
    answer = linear.solve(table, evaluator.world.problem.warm_prices)
    if answer is None:
        race.report(StageReport(stage="lp", completed=False, note="the limit on iterations was reached"))
        race.offer("greedy", with_rentals(evaluator), evaluator)
    else:
        judge = evaluator.in_order(order_of(evaluator.world, table, answer.dived))
        _linear(race, table, answer, judge)
        if len(evaluator.world.jobs) <= WHOLE_JOBS:
            _local_search(race, answer)
    return race


def _lead(race: _Race) -> bool:
    """What a plan of the whole line rents for, the rest as greedy has it. Unless greedy's own is cheaper, no model of a window is asked: it knows less."""
    scored = race.evaluator.score(lead_starts(race.evaluator))
    note = "rented for as a plan of the whole line has it"
    race.report(StageReport(stage=LEAD, completed=True, objective_usd=scored.total, note=note))
    race.offer(LEAD, scored, race.evaluator)
    if scored.total > race.greedy.total + WORTH_USD:
        return False
    race.prices = race.evaluator.world.problem.warm_prices
    return True


def _linear(race: _Race, table: Columns, answer: linear.LinearAnswer, judge: Evaluator) -> None:
    """What the dive came to, once the model's order has filled what it leaves open; of few jobs without the rentals that it can do without."""
    scored = judge.score(table.jobs_for(answer.rounded, judge))
    if len(judge.world.jobs) <= WHOLE_JOBS:
        scored = drop_needless(judge, scored)
    race.report(
        StageReport(
            stage="lp",
            completed=True,
            objective_usd=scored.total,
            bound_usd=round(answer.bound_usd, 6),
            work=answer.solves,
            columns=len(table.cost),
            rows=len(table.rows),
        )
    )
    race.prices = answer.prices
    race.offer("lp", scored, judge)


def _local_search(race: _Race, answer: linear.LinearAnswer) -> None:
    """Small changes to the best plan, where it is dearer than the model's bound."""
    if race.best.total <= answer.bound_usd + WORTH_USD:
        return
    scored, judge, trials = local_search.improve(race.judge, race.best)
    race.report(StageReport(stage="local-search", completed=True, objective_usd=scored.total, work=trials))
    race.offer("local-search", scored, judge)


def _comparison(evaluator: Evaluator, scored: Scored, greedy: Scored) -> Cheaper:
    """Why a plan won: what it saves, and the job or the promise that made most of the difference."""
    saves_usd = greedy.total - scored.total
    gains = greedy.usd - scored.usd
    most = int(gains.argmax())
    view, gain = evaluator.world.jobs[most], float(gains[most])
    promised = {term: greedy.terms[term] - scored.terms[term] for term in ("shortfall", "policy")}
    term = max(promised, key=lambda name: promised[name])
    if promised[term] > max(0.0, gain):
        return Cheaper(saves_usd=saves_usd, gain=term)
    if gain <= 0:
        return Cheaper(saves_usd=saves_usd)
    met = greedy.costs[view.id].late and not scored.costs[view.id].late
    booking = scored.booking(view.id) if met else None
    return Cheaper(
        saves_usd=saves_usd,
        gain="deadline" if met else "cost",
        job=f"{view.name} ({view.id})",
        gains_usd=gain,
        finish_at=booking.finish_at if booking else None,
    )
