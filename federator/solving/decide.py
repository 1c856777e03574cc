"""Decide: greedy first, then what OR-Tools can better, then the proof that every rental pays.

Each stage that completes leaves a whole plan. All are priced by one evaluator, and a later stage's plan replaces an earlier one only
when it is strictly cheaper. `stages` are work limits, not seconds; no clock is read here, so a recorded problem replays byte for byte.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from federator.model.plans import Plan, StageReport
from federator.model.snapshot import Problem
from federator.planning.linear import columns as cut
from federator.planning.linear.columns import Columns
from federator.planning.linear.leading import lead_starts
from federator.planning.plans.greedy import PROOFS, QUICK, choose, needless, plan_quickly, prove_rentals
from federator.planning.plans.interpret import write_plan
from federator.planning.plans.preferring import keep_order
from federator.planning.scheduling.objective import EPSILON_USD, Evaluator, Scored
from federator.planning.wording import moment, money
from federator.planning.world.problem import World
from federator.solving import exchange, linear
from federator.solving.frames import LEAD, STAGES
from federator.solving.least import least_usd
from federator.solving.ordering import order_of

WORTH_USD = 0.005
"""A plan that saves less than half a cent does not replace the one before."""
FEW_JOBS = 16
"""Of so few jobs, greedy proves its rentals before the linear program is asked, too: there, who shares a machine with whom decides, and trials are quick."""
PROVEN_ANEW = 100_000
"""Looks that may be taken to decide anew without a rental; beyond them it is only taken back, all else as it is."""

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

    def because(self) -> str:
        """Why the winner won."""
        if self.winner != "greedy":
            return _comparison(self.evaluator, self.best, self.greedy)
        others = [report.stage for report in self.reports[1:] if report.completed]
        return f"{' and '.join(others)} found nothing cheaper" if others else "the only stage that completed"


def decide(
    problem: Problem, *, seed: int = 0, stages: tuple[str, ...] = STAGES, watch: Watch = _nobody
) -> Plan:
    """The plan for one turn: the cheapest of the stages' plans, with its reasons and the stages' reports.

    The stage `quick` stands alone: it is what the fast path of a turn has asked, decided again.
    """
    if QUICK in stages:
        return plan_quickly(problem, seed)
    evaluator = Evaluator(World(problem))
    race = _race(evaluator, stages, watch)
    _prove(race)
    return write_plan(
        race.judge,
        race.best,
        winner=race.winner,
        because=race.because(),
        stages=race.reports,
        seed=seed,
        prices=race.prices,
    )


def _prove(race: _Race) -> None:
    """Forbid each rental in turn and decide again what was decided, without it: one that does not pay its price is dropped, for good.

    Those of a plan of the whole line have been weighed with all of the line, which is more than a window can.
    """
    if race.winner == LEAD:
        return
    work = race.evaluator.work
    anew_until = work.looks + PROVEN_ANEW
    for job in race.best.rents[:PROOFS]:
        if job not in race.best.rents or work.spent:
            continue
        other = race.evaluator.without_rentals_for(job)
        judge = other.in_order(race.judge.order)
        trials = [
            {name: place for name, place in plan.starts.items() if name != job}
            for plan in (race.best, race.greedy)
        ]
        if work.looks < anew_until or len(race.evaluator.world.jobs) <= FEW_JOBS:
            scored, judge = _cheapest((judge, other), trials)
        else:
            scored = judge.score(trials[0])
        if needless(race.best, scored):
            race.evaluator, race.best, race.judge = other, scored, judge


def _with_rentals(evaluator: Evaluator) -> Scored:
    """Greedy's plan with the rentals that pay."""
    return keep_order(evaluator, prove_rentals(evaluator, choose(evaluator)))


def _first(evaluator: Evaluator, stages: tuple[str, ...]) -> Scored:
    """The first plan. Where a model decides next on what to rent, proving each rental by deciding anew would take most of the turn and find less."""
    modelled = not {LEAD, "lp"}.isdisjoint(stages)
    if modelled and len(evaluator.world.jobs) > FEW_JOBS:
        return keep_order(evaluator, choose(evaluator))
    return _with_rentals(evaluator)


def _race(evaluator: Evaluator, stages: tuple[str, ...], watch: Watch) -> _Race:
    """Run the stages in order."""
    first = _first(evaluator, stages)
    race = _Race(evaluator, first, first, evaluator, watch=watch)
    race.report(
        StageReport(stage="greedy", completed=True, objective_usd=first.total, work=first.schedule.attempts)
    )
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
    evaluator.work.begin_stage()
    answer = linear.solve(table, evaluator.world.problem.warm_prices)
    if answer is None:
        race.report(StageReport(stage="lp", completed=False, note="the limit on iterations was reached"))
        race.offer("greedy", _with_rentals(evaluator), evaluator)
    else:
        futures = (evaluator.in_order(order_of(evaluator.world, table, answer.ended)), evaluator)
        _linear(race, table, answer, futures)
        _exchange(race, answer)
    evaluator.work.end_stages()
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


def _linear(race: _Race, table: Columns, answer: linear.LinearAnswer, futures: tuple[Evaluator, ...]) -> None:
    scored, judge = _best_round(futures, table, answer, race.greedy.starts)
    note = f"{len(table.cost)} columns, {len(table.rows)} rows; the bound is the linear model's"
    race.report(
        StageReport(
            stage="lp",
            completed=True,
            objective_usd=scored.total,
            bound_usd=round(answer.bound_usd, 6),
            work=len(answer.rounds),
            note=note,
        )
    )
    race.prices = answer.prices
    race.offer("lp", scored, judge)


def _best_round(
    futures: tuple[Evaluator, ...], table: Columns, answer: linear.LinearAnswer, greedy: dict[str, int]
) -> tuple[Scored, Evaluator]:
    """The cheapest of what the dive's steps come to, once the order has filled what they leave open, and of what greedy starts; with whichever future."""
    dived = [table.jobs_for(values, futures[0]) for values in answer.rounds]
    return _cheapest(futures, [dived[0], greedy, *dived[1:]])


def _cheapest(futures: tuple[Evaluator, ...], trials: list[dict[str, int]]) -> tuple[Scored, Evaluator]:
    """The cheapest of these starts with one of these futures, and rentals that pay besides."""
    tried: list[dict[str, int]] = []
    best: tuple[Scored, Evaluator, dict[str, int]] | None = None
    for starts in trials:
        if starts in tried or (best is not None and best[1].work.spent):
            continue
        tried.append(starts)
        for judge in futures:
            scored = judge.score(starts)
            if best is None or scored.total < best[0].total - EPSILON_USD:
                best = scored, judge, starts
    assert best is not None, "there is something to try"
    scored, judge, asked = best
    return choose(judge, scored.starts, scored if scored.starts == asked else None), judge


def _exchange(race: _Race, answer: linear.LinearAnswer) -> None:
    """Small changes to the best plan, where it is dearer than the model's bound."""
    if race.best.total <= answer.bound_usd + WORTH_USD:
        return
    race.evaluator.work.begin_stage()
    scored, judge, trials = exchange.improve(race.judge, race.best)
    race.report(StageReport(stage="exchange", completed=True, objective_usd=scored.total, work=trials))
    race.offer("exchange", scored, judge)


def _comparison(evaluator: Evaluator, scored: Scored, greedy: Scored) -> str:
    """Why a plan won: what it saves, and the job or the promise that made most of the difference."""
    text = f"{money(greedy.total - scored.total)} lower than greedy"
    gains = {job: greedy.costs[job].total - price.total for job, price in scored.costs.items()}
    job = max(gains, key=lambda name: (gains[name], name))
    promised = {term: greedy.terms[term] - scored.terms[term] for term in ("shortfall", "policy")}
    term = max(promised, key=lambda name: promised[name])
    if promised[term] > max(0.0, gains[job]):
        what = (
            "guarantees are better kept" if term == "shortfall" else "more of what policies require is rented"
        )
        return f"{text}: {what}"
    if gains[job] <= 0:
        return text
    view, booking = evaluator.world.by_id[job], scored.booking(job)
    if greedy.costs[job].late and not scored.costs[job].late:
        finish = f" by {moment(booking.finish_at, evaluator.world.now)}" if booking else ""
        return f"{text}: it meets the deadline of {view.name} ({job}){finish}"
    return f"{text}: {view.name} ({job}) costs {money(gains[job])} less"
