"""Turn after turn in a world that does as it is told: nothing starves, rentals come as late as is safe, and come to an end."""

from dataclasses import dataclass, field

from msgspec.structs import replace

from federator.model.capacity import Shape
from federator.model.plans import Place, Plan, Rent
from federator.model.rules import Rule
from federator.model.snapshot import BusyView, JobView, OfferView, PoolView
from federator.planning.plans.greedy import plan_greedily
from tests.support.worlds import HOUR, NOW, a_job, a_lease, a_pool, a_world, an_offer, bursting, changed

GPUS = 4
SOONEST_S = 1.0


@dataclass
class World:
    """One host at home and what is rented; runs take the share `true_share` of what was planned."""

    jobs: list[JobView]
    offers: list[OfferView] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    true_share: float = 1.0
    at: float = NOW
    running: list[tuple[float, str, JobView]] = field(default_factory=list)
    leases: dict[str, float] = field(default_factory=dict)
    started: dict[str, float] = field(default_factory=dict)
    finished: dict[str, float] = field(default_factory=dict)
    rented: dict[str, float] = field(default_factory=dict)
    wake_at: float | None = None

    def run(self, arrivals: tuple[JobView, ...] = (), turns: int = 400) -> None:
        """Decide at every event until all is done; `arrivals` join when they are submitted."""
        coming = sorted(arrivals, key=lambda job: job.submitted_at)
        for _ in range(turns):
            self.jobs += [job for job in coming if job.submitted_at <= self.at]
            coming = [job for job in coming if job.submitted_at > self.at]
            self._act(self._plan())
            ahead = [end for end, _, _ in self.running] + [job.submitted_at for job in coming]
            ahead += [ready for ready in self.leases.values() if ready > self.at] + (
                [self.wake_at] if self.wake_at else []
            )
            if not ahead:
                return
            self.at = max(self.at + SOONEST_S, min(ahead))
            for end, _, job in [entry for entry in self.running if entry[0] <= self.at]:
                self.finished[job.id] = end
            self.running = [entry for entry in self.running if entry[0] > self.at]
            self._end_idle_leases()

    def _plan(self) -> Plan:
        pools = [self._pool(a_pool(nodes=1), "home-1")]
        pools += [
            self._pool(a_lease(lease, rented_for=lease), f"{lease}-0", ready)
            for lease, ready in self.leases.items()
        ]
        problem = a_world(self.jobs, pools, self.offers, self.rules)
        return plan_greedily(changed(problem, taken_at=self.at))

    def _pool(self, pool: PoolView, member: str, ready_at: float = 0.0) -> PoolView:
        here = [(end, job) for end, at, job in self.running if at == member]
        used = sum(job.gpus for _, job in here)
        busy = tuple(
            BusyView(
                nodes=1,
                gpus=job.gpus,
                ends_at=end,
                placement=job.id,
                job=job.id,
                started_at=self.started[job.id],
            )
            for end, job in here
        )
        free = (Shape(GPUS - used, 64_000, 262_144),) if ready_at <= self.at else ()
        fields = {name: getattr(pool, name) for name in pool.__struct_fields__}
        return PoolView(**fields | {"busy": busy, "free": free, "ready_at": ready_at or None})

    def _act(self, plan: Plan) -> None:
        views = {job.id: job for job in self.jobs}
        self.wake_at = plan.wake_at
        for action in plan.actions:
            if isinstance(action, Rent):
                self.leases[action.job] = action.expected_start_at
                self.rented[action.job] = self.at
            if isinstance(action, Place):
                job = views[action.job]
                self.started[job.id] = self.at
                self.running.append((self.at + job.run_s * self.true_share, action.members[0], job))
                self.jobs.remove(job)

    def _end_idle_leases(self) -> None:
        busy = {member for _, member, _ in self.running}
        waiting = {job.id for job in self.jobs}
        self.leases = {n: ready for n, ready in self.leases.items() if f"{n}-0" in busy or n in waiting}


def test_a_gang_is_not_starved_by_a_stream_of_small_work() -> None:
    stream = tuple(
        a_job(f"small-{n:03}", gpus=1, run_s=2 * HOUR, submitted_at=NOW + n * HOUR / 2) for n in range(60)
    )
    world = World([a_job("gang", gpus=4, submitted_at=NOW + HOUR / 4)])
    world.run(stream)
    assert set(world.finished) == {"gang", *(job.id for job in stream)}
    assert world.started["gang"] - NOW <= 4 * HOUR


def test_low_priority_work_comes_to_its_turn_beside_a_stream_of_high_priority() -> None:
    stream = tuple(
        a_job(f"high-{n:03}", gpus=4, priority=70, submitted_at=NOW + n * 0.95 * HOUR) for n in range(120)
    )
    world = World([a_job("low", gpus=4, priority=50, submitted_at=NOW)])
    world.run(stream)
    assert world.started["low"] - NOW < 48 * HOUR


LONG = a_job("long", gpus=4, run_s=6 * HOUR)
DUE = a_job("due", gpus=4, submitted_at=NOW + 60, deadline_at=NOW + 4 * HOUR)


def test_a_rental_comes_when_it_must_and_the_deadline_is_met() -> None:
    world = World([LONG], [an_offer()], [bursting()])
    world.run((DUE,))
    assert list(world.rented) == ["due"]
    assert world.rented["due"] > NOW + 2.5 * HOUR
    assert world.finished["due"] <= NOW + 4 * HOUR
    assert not world.leases


def test_nothing_is_rented_when_home_frees_before_the_latest_start() -> None:
    world = World([LONG], [an_offer()], [bursting()], true_share=0.3)
    world.run((DUE,))
    assert not world.rented
    assert world.finished["due"] <= NOW + 4 * HOUR


def test_without_deadlines_the_same_world_rents_nothing() -> None:
    world = World([LONG], [an_offer()], [bursting()])
    world.run((replace(DUE, deadline_at=None),))
    assert not world.rented
    assert set(world.finished) == {"long", "due"}
