"""The window of a long line: it starts what the whole line would start, keeps its limits, and leaves nobody behind for ever."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from federator.model import jobs as jobs_model
from federator.model.capacity import Shape
from federator.model.jobs import Accelerators, Resources
from federator.model.plans import Place
from federator.model.rules import GuaranteeRow, QueueTerms, Rule
from federator.model.snapshot import BusyView, JobView, PoolView, Problem, Snapshot
from federator.planning.plans.greedy import plan_greedily
from federator.planning.world import window
from federator.planning.world.line import Eligible, JobKind, Kinds, Line, LineForm
from federator.planning.world.problem import World
from federator.planning.world.window import Window, choose
from tests.support.examples import examples
from tests.support.worlds import HOUR, NOW, a_job, a_pool


def a_line(jobs: Sequence[JobView]) -> Line:
    """The columns of these jobs."""
    kinds = Kinds()
    numbers = [
        kinds.number(JobKind(job.queue, tuple(_form(job.as_form(n)) for n in range(1 + len(job.forms)))))
        for job in jobs
    ]
    world = World(Problem(snapshot=Snapshot(taken_at=NOW, incarnation="i", revision=1, jobs=tuple(jobs))))
    classes: dict[object, int] = {}
    return Line(
        submitted_at=np.array([job.submitted_at for job in jobs]),
        priority=np.array([float(job.priority) for job in jobs]),
        deadline_at=np.array([math.inf if job.deadline_at is None else job.deadline_at for job in jobs]),
        run_s=np.array([job.run_s for job in jobs]),
        ready_at=np.array([job.not_before_at or 0.0 for job in jobs]),
        kind=np.array(numbers),
        klass=np.array([classes.setdefault(world.key(job), len(classes)) for job in jobs]),
        table=kinds.table(),
        forms=kinds.forms(),
        queues=tuple(kinds.queues),
        eligibles=tuple(kinds.eligibles),
    )


def _form(job: JobView) -> LineForm:
    eligible = Eligible(job.models if job.gpus else (), job.sites, job.not_sites, job.kinds)
    return LineForm(eligible, job.nodes, job.gpus, job.cpus_milli, job.memory_mib)


def seen(jobs: Sequence[JobView], pools: Sequence[PoolView], rules: Sequence[Rule] = ()) -> list[JobView]:
    """The jobs in the window, as a decision sees them."""
    found = choose(a_line(jobs), pools, rules, NOW)
    return [replace(jobs[number], behind_s=float(found.behind_s[number])) for number in found.chosen]


def started(jobs: Sequence[JobView], pools: Sequence[PoolView], rules: Sequence[Rule] = ()) -> dict[str, str]:
    """What greedy starts now, and where."""
    snapshot = Snapshot(
        taken_at=NOW, incarnation="i", revision=1, jobs=tuple(jobs), pools=tuple(pools), rules=tuple(rules)
    )
    plan = plan_greedily(Problem(snapshot=snapshot))
    return {action.job: action.site for action in plan.actions if isinstance(action, Place)}


def tight(monkeypatch: pytest.MonkeyPatch, *, jobs: int, evaluations: int, margin: int = 1) -> None:
    """Limits that a few jobs pass."""
    monkeypatch.setattr(window, "MOST_JOBS", jobs)
    monkeypatch.setattr(window, "EVALUATIONS", evaluations)
    monkeypatch.setattr(window, "MARGIN", margin)


def _of(nodes: int, gpus: int, *models: str) -> jobs_model.Form:
    each = Resources(Accelerators(count=gpus, models=models), cpus_milli=1000, memory_mib=1024)
    return jobs_model.Form(nodes, each)


FORMS = ((_of(1, 1),), (_of(2, 4), _of(1, 2)), (_of(1, 8), _of(1, 2, "H100")), (_of(1, 3, "A100"),))
"""As quick as the others, so that deadlines press alike."""


@st.composite
def lines(
    draw: st.DrawFn, *, most_nodes: int = 2, gpus_of: tuple[int, ...] = (0, 1, 1, 2, 4), forms: bool = True
) -> list[JobView]:
    """Up to forty jobs of a few classes, in several queues; some in several forms."""
    jobs = []
    for number in range(draw(st.integers(1, 40))):
        gpus = draw(st.sampled_from(gpus_of))
        models = draw(st.sampled_from(((), ("A100",), ("H100",), ("A100", "H100")))) if gpus else ()
        jobs.append(
            a_job(
                f"job-{number:03d}",
                queue=draw(st.sampled_from(("research/vision", "research/speech", "ops"))),
                submitted_at=NOW - 2 * HOUR + number,
                priority=draw(st.sampled_from((20, 50, 50, 90))),
                nodes=draw(st.integers(1, most_nodes)) if gpus else 1,
                gpus=gpus,
                models=models,
                run_s=draw(st.sampled_from((60.0, HOUR, 3 * HOUR))),
                sites=draw(st.sampled_from(((), (), (), ("lab",)))),
                not_before_at=draw(st.sampled_from((None, None, None, NOW + 60.0))),
                forms=draw(st.sampled_from(((), *FORMS))) if gpus and forms else (),
            )
        )
    return jobs


@st.composite
def fleets(draw: st.DrawFn) -> list[PoolView]:
    """Two pools, of which some hosts are busy."""
    pools = []
    for site, model in (("home", "A100"), ("lab", "H100")):
        nodes, busy = draw(st.integers(1, 3)), draw(st.integers(0, 3))
        busy = min(busy, nodes)
        work = tuple(
            BusyView(nodes=1, gpus=4, cpus_milli=64_000, memory_mib=262_144, ends_at=NOW + HOUR * (each + 1))
            for each in range(busy)
        )
        free = (Shape(4, 64_000, 262_144, nodes - busy),) if nodes > busy else ()
        pools.append(a_pool(site, model=model, nodes=nodes, free=free, busy=work))
    return pools


@settings(max_examples=examples(60), deadline=None)
@given(jobs=lines(), pools=fleets())
def test_one_of_each_class_more_than_could_start_is_enough(
    jobs: list[JobView], pools: list[PoolView]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(window, "MARGIN", 1)
        patch.setattr(window, "is_small", lambda _line, _evaluations: False)
        inside = seen(jobs, pools)
    assert started(inside, pools) == started(jobs, pools)


@settings(max_examples=examples(40), deadline=None)
@given(jobs=lines(most_nodes=1, gpus_of=(0, 1, 1), forms=False), pools=fleets())
def test_turn_by_turn_a_tight_window_leaves_nothing_idle(jobs: list[JobView], pools: list[PoolView]) -> None:
    """What one window does not start the next one does, until the whole line could start nothing more.

    (No gangs: while places are held for one, so tight a window may be full of what the hold keeps.)
    """
    waiting, free = list(jobs), list(pools)
    with pytest.MonkeyPatch.context() as patch:
        tight(patch, jobs=12, evaluations=60)
        for _ in range(len(jobs) + 1):
            inside = seen(waiting, free)
            assert len(inside) <= 12
            now = started(inside, free)
            if not now:
                break
            by_id = {job.id: job for job in waiting}
            free = [
                _without(pool, [by_id[job] for job, site in now.items() if site == pool.site])
                for pool in free
            ]
            waiting = [job for job in waiting if job.id not in now]
    assert not started(waiting, free)


def _without(pool: PoolView, jobs: Sequence[JobView]) -> PoolView:
    """The pool with these jobs started, on the fullest hosts that hold them."""
    hosts = [[s.gpus, s.cpus_milli, s.memory_mib] for s in pool.free for _ in range(s.count)]
    for job in jobs:
        need = (job.gpus, job.cpus_milli, job.memory_mib)
        host = min(h for h in hosts if all(have >= want for have, want in zip(h, need, strict=True)))
        host[:] = [have - want for have, want in zip(host, need, strict=True)]
    busy = tuple(
        BusyView(
            nodes=1, gpus=j.gpus, cpus_milli=j.cpus_milli, memory_mib=j.memory_mib, ends_at=NOW + j.run_s
        )
        for j in jobs
    )
    return replace(
        pool, free=tuple(Shape(host[0], host[1], host[2], 1) for host in hosts), busy=pool.busy + busy
    )


@settings(max_examples=examples(100), deadline=None)
@given(jobs=lines(), pools=fleets(), most=st.integers(10, 30), evaluations=st.integers(40, 200))
def test_the_limits_hold_and_the_first_in_order_is_inside(
    jobs: list[JobView], pools: list[PoolView], most: int, evaluations: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        tight(patch, jobs=most, evaluations=evaluations)
        inside = seen(jobs, pools)
    classes = len(np.unique(a_line(inside).klass))
    assert len(inside) <= most
    assert len(inside) * classes <= evaluations
    world = World(Problem(snapshot=Snapshot(taken_at=NOW, incarnation="i", revision=1, jobs=tuple(jobs))))
    assert world.jobs[0].id in {job.id for job in inside}


@settings(max_examples=examples(100), deadline=None)
@given(
    jobs=lines(),
    deadlines=st.lists(st.sampled_from((None, 2.0, 5.0, 9.0)), min_size=40, max_size=40),
    rules=st.sampled_from(
        (
            (),
            (GuaranteeRow(policy="g", queue="ops", gpus=3),),
            (
                GuaranteeRow(policy="g", queue="ops", gpus=0, weight=3.0),
                GuaranteeRow(policy="g", queue="research", gpus=2),
            ),
            (GuaranteeRow(policy="g", queue="ops", gpus=1, memory_mib=2500, cpus_milli=3000),),
            (GuaranteeRow(policy="g", queue="research", gpus=0, cpus_milli=4000),),
            (QueueTerms(policy="q", queue="research/speech", interactive=True),),
        )
    ),
)
def test_its_order_is_the_published_one(
    jobs: list[JobView], deadlines: list[float | None], rules: tuple[Rule, ...]
) -> None:
    interactive = {rule.queue for rule in rules if isinstance(rule, QueueTerms)}
    jobs = [
        replace(
            job,
            deadline_at=None if hours is None else NOW + hours * HOUR,
            value_usd=0.0,
            interactive=job.queue in interactive,
        )
        for job, hours in zip(jobs, deadlines, strict=False)
    ]
    pools = [a_pool("home", model="A100"), a_pool("lab", model="H100")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(window, "is_small", lambda _line, _evaluations: False)
        found = choose(a_line(jobs), pools, rules, NOW)
    snapshot = Snapshot(
        taken_at=NOW, incarnation="i", revision=1, jobs=tuple(jobs), pools=tuple(pools), rules=rules
    )
    published = [job.id for job in World(Problem(snapshot=snapshot)).jobs]
    assert [jobs[number].id for number in np.argsort(found.ahead)] == published


def test_a_short_line_is_seen_whole() -> None:
    jobs = [a_job(f"job-{number}", run_s=60.0 + number) for number in range(200)]
    found = choose(a_line(jobs), [a_pool()], (), NOW)
    assert list(found.chosen) == list(range(200))
    assert not found.behind_s.any()


def test_a_deadline_far_back_in_the_line_is_seen_and_knows_what_is_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tight(monkeypatch, jobs=20, evaluations=100)
    ahead = [a_job(f"job-{number:03d}", priority=90, run_s=HOUR) for number in range(400)]
    late = a_job("job-999", priority=20, deadline_at=NOW + 10 * HOUR)
    inside = {job.id: job for job in seen([*ahead, late], [a_pool()])}
    assert "job-999" in inside
    # 400 jobs of an hour, less those in the window, on eight GPUs.
    assert inside["job-999"].behind_s == pytest.approx((400 - len(inside) + 1) * HOUR / 8)
    plan = plan_greedily(
        Problem(
            snapshot=Snapshot(
                taken_at=NOW, incarnation="i", revision=1, jobs=tuple(inside.values()), pools=(a_pool(),)
            )
        )
    )
    (told,) = [waiting for waiting in plan.waiting if waiting.job == "job-999"]
    assert told.home_finish_at is not None
    assert told.home_finish_at > NOW + 40 * HOUR


def test_one_queue_does_not_hide_another(monkeypatch: pytest.MonkeyPatch) -> None:
    tight(monkeypatch, jobs=20, evaluations=100)
    crowd = [a_job(f"job-{n:03d}", queue="loud", priority=90, run_s=60.0 + n) for n in range(300)]
    quiet = a_job("job-999", queue="quiet", priority=1)
    assert "job-999" in {job.id for job in seen([*crowd, quiet], [a_pool(free=())])}


def test_what_could_start_in_another_of_its_forms_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody but these fits, and a fifth of a window is for what does."""
    tight(monkeypatch, jobs=20, evaluations=200)
    crowd = [a_job(f"job-{n:03d}", gpus=8, priority=90, run_s=60.0 + n) for n in range(40)]
    narrow = [a_job(f"narrow-{n}", gpus=8, forms=(_of(1, 1, "A100"),), priority=20) for n in range(20)]
    inside = seen([*crowd, *narrow], [a_pool()])
    assert len(started(inside, [a_pool()])) == 4


def test_work_that_uses_other_places_keeps_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    tight(monkeypatch, jobs=20, evaluations=100)
    crowd = [a_job(f"job-{n:03d}", models=("H100",), priority=90) for n in range(300)]
    other = a_job("job-999", models=("A100",), priority=1)
    pools = [a_pool("home", model="A100"), a_pool("lab", model="H100")]
    inside = {job.id: job for job in seen([*crowd, other], pools)}
    assert inside["job-999"].behind_s == 0.0


def test_all_of_it_is_a_window_of_nothing() -> None:
    assert isinstance(choose(a_line([]), [], (), NOW), Window)


def test_a_job_whose_queue_limits_its_wait_is_seen_however_long_the_line_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs = [
        a_job(f"job-{number:03d}", submitted_at=NOW - 2 * HOUR + number, run_s=HOUR + number)
        for number in range(40)
    ]
    jobs.append(a_job("job-tail", queue="tries/mine", submitted_at=NOW - 60.0, run_s=HOUR))
    rule = QueueTerms(policy="Queue/tries", queue="tries/mine", max_wait_s=600.0)
    full = [a_pool(nodes=1, free=(Shape(0, 64_000, 262_144, 1),))]
    tight(monkeypatch, jobs=5, evaluations=20)
    assert "job-tail" in {job.id for job in seen(jobs, full, [rule])}
    assert "job-tail" not in {job.id for job in seen(jobs, full)}
