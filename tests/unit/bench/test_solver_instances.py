"""The instances of the solver's benchmark: the same ones for the same parameters, of the stated make, and problems like any other."""

from collections import Counter
from pathlib import Path

import pytest

from federator.model.capacity import Market
from federator.model.datasets import DatasetRule
from federator.model.plans import Severity
from federator.planning.checks import check
from federator.planning.scheduling.objective import Evaluator
from federator.planning.world.problem import World
from federator.solving.certify import certify
from federator.solving.decide import decide
from federator.wire.solver_files import from_problem, read_problem, write
from tests.bench.solver.baselines import RULES, per_job_cpsat
from tests.bench.solver.goals import judged
from tests.bench.solver.instances import HOUR, NOW, Instance, Parameters
from tests.bench.solver.measure import Judged, Report, Turn, measure, text
from tests.bench.solver.page import sections, updated

SMALL = Parameters(jobs=24, sites=4, seed=3)


def test_the_same_parameters_make_the_same_instance() -> None:
    first, again = Instance(SMALL), Instance(SMALL)
    assert first.problem() == again.problem()
    first.churn(0.5)
    assert first.problem() != again.problem()
    again.churn(0.5)
    assert first.problem() == again.problem()
    assert Instance(Parameters(jobs=24, sites=4, seed=4)).problem() != Instance(SMALL).problem()


def test_it_is_of_the_stated_make() -> None:
    parameters = Parameters(jobs=4000, sites=20, seed=1)
    snapshot = Instance(parameters).problem().snapshot
    assert len(snapshot.jobs) == 4000
    assert len({job.name for job in snapshot.jobs}) == 500
    kinds = Counter(kind for kind in {pool.site: pool.kind for pool in snapshot.pools}.values())
    assert kinds == {"onprem": 8, "cloud": 6, "edge": 6}
    assert {view.offer.market for view in snapshot.offers} == {Market.ON_DEMAND, Market.SPOT}
    work_h = sum(job.gpus_total * job.run_s for job in snapshot.jobs) / HOUR
    day_h = 24.0 * sum(pool.nodes * pool.gpus_per_node for pool in snapshot.pools)
    assert 1.0 < work_h / day_h < 1.4
    with_deadline = [job for job in snapshot.jobs if job.deadline_at is not None]
    assert all(job.deadline_at and job.deadline_at > NOW for job in with_deadline)
    assert 0.5 < len(with_deadline) / 4000 < 0.9
    reads = {job.name: bool(job.inputs) for job in snapshot.jobs}
    assert 0.4 < sum(reads.values()) / 500 < 0.6
    sites = {pool.site: pool.region for pool in snapshot.pools}
    assert {
        (spot.site, spot.region)
        for each in snapshot.rules
        if isinstance(each, DatasetRule)
        for spot in each.replicas
    } <= sites.items()
    largest = max(job.nodes for job in snapshot.jobs)
    assert any(pool.nodes >= largest and pool.gpus_per_node == 8 for pool in snapshot.pools)


def test_it_may_have_as_many_classes_as_one_says() -> None:
    snapshot = Instance(Parameters(jobs=50, sites=5, classes=50)).problem().snapshot
    assert len({job.name for job in snapshot.jobs}) == 50


def test_churn_replaces_classes_and_keeps_the_number_of_jobs() -> None:
    instance = Instance(Parameters(jobs=200, sites=5))
    before = {job.id for job in instance.problem().snapshot.jobs}
    instance.churn(0.1)
    after = {job.id for job in instance.problem().snapshot.jobs}
    assert len(after) == len(before) == 200
    assert 0 < len(after - before) < 200


def test_a_problem_of_it_is_written_decided_and_checked_like_any_other() -> None:
    problem = Instance(SMALL).problem()
    assert read_problem(write(from_problem(problem))) == problem
    findings = check(problem, decide(problem))
    assert not [finding for finding in findings if finding.severity is Severity.FATAL]


@pytest.mark.parametrize("rule", RULES)
def test_simple_rules_start_what_fits_and_are_judged_against_the_bound(rule: str) -> None:
    problem = Instance(SMALL).problem()
    starts = RULES[rule](problem, 5)
    assert starts == RULES[rule](problem, 5)
    assert starts
    evaluator = Evaluator(World(problem))
    assert set(starts.items()) <= set(evaluator.score(starts).starts.items())
    found = certify(evaluator, starts)
    assert found is not None
    assert found[0].gap is not None
    assert found[0].gap >= 0.0


def test_a_variable_per_job_finds_the_same_or_says_that_it_is_too_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = Instance(Parameters(jobs=6, sites=2, seed=1)).problem()
    starts = per_job_cpsat(problem, 30.0)
    assert isinstance(starts, dict)
    assert set(starts) <= {job.id for job in problem.snapshot.jobs}
    monkeypatch.setattr("tests.bench.solver.baselines.MOST_BOOLEANS", 10)
    assert "not built" in str(per_job_cpsat(problem, 30.0))


def test_a_report_has_its_parameters_and_a_line_for_each_rule() -> None:
    instance = Instance(Parameters(jobs=8, sites=2, seed=1))
    said: list[str] = []
    told = text(instance, measure(instance, turns=1, baselines=True, say=said.append))
    assert "jobs 8, sites 2, classes 1, seed 1, load 1.3" in told
    for name in ("planner", "greedy", "per-job CP-SAT", "decision gap", *RULES):
        assert name in told
    assert "violations that the checker found: 0" in told
    assert len(said) == 8


def test_a_page_has_a_section_for_each_size_and_one_that_is_measured_again_is_replaced(
    tmp_path: Path,
) -> None:
    path = tmp_path / "page.md"
    sizes = [Parameters(jobs=10, sites=2), Parameters(jobs=8, sites=2), Parameters(jobs=8, sites=2)]
    for number, parameters in enumerate(sizes):
        report = Report(first_s=[0.01], explained_s=[0.004], memory_mib=100 + number, cold_s=0.1)
        report.turns = [Turn(0.0, 0.02, 0.001, 0.001, 8, "lp", 5.0, 0, 0.03)] * 3
        report.judged = [Judged("planner", 0.02, 3, 0.004), Judged("race", 0.05, 3, None, "no plan")]
        path.write_text(updated(path, Instance(parameters), report, "python -m tests.bench.solver --jobs 8"))
    told = path.read_text()
    assert list(sections(told)) == ["8 jobs × 2 sites, 1 classes", "10 jobs × 2 sites, 1 classes"]
    assert "memory 102 MiB" in told
    assert "memory 101 MiB" not in told
    assert "| race | 50 ms | 2.50 | 3 | no plan |" in told
    assert "| an explanation, median | 50 ms | 5 ms | 4 ms | goal reached |" in told


@pytest.mark.parametrize(
    ("value", "verdict"), [(0.1, "goal reached"), (0.3, "floor reached"), (0.9, "missed"), (None, "")]
)
def test_a_goal_says_whether_it_is_reached(value: float | None, verdict: str) -> None:
    parameters = Parameters(jobs=10_000, sites=50)
    report = Report(first_s=[] if value is None else [value / 10])
    rows = {row[0]: row for row in judged(parameters, report)}
    assert rows["first feasible plan, median"][4] == verdict
    assert rows["decision gap, of the whole line"][3] == "not measured"
