"""The world right after a plan was carried out, at the same moment: what started is busy, what was rented boots, what was told to stop is stopping.

This is what the next snapshot shows (`federator.control.turns.observation`), written once more from the plan alone, so that a test can ask for a second plan at once.
"""

from collections import Counter

from msgspec.structs import replace

from federator.model.capacity import Offer, Shape
from federator.model.plans import Place, Plan, Preempt, Rent
from federator.model.rules import CapUnit
from federator.model.snapshot import BusyView, JobView, OfferView, PoolView, Problem, SpendView
from federator.planning.places.candidates import of_offer
from federator.planning.rules.caps import Caps
from federator.planning.rules.permits import worst_rent_s
from federator.planning.world.problem import World

STOPPING_S = 30.0
"""What is told to stop is expected to be gone so much later."""


def aftermath(problem: Problem, plan: Plan) -> Problem:
    """The same moment, with all actions of the plan done and their jobs no longer waiting."""
    done = _Aftermath(problem)
    for action in plan.actions:
        if isinstance(action, Place):
            done.place(action)
        elif isinstance(action, Rent):
            done.rent(action)
        else:
            done.stop(action)
    return done.problem()


class _Aftermath:
    """A world that changes action by action."""

    def __init__(self, problem: Problem) -> None:
        self.before = problem
        self.world = World(problem)
        self.now = problem.snapshot.taken_at
        self.pools = {view.key: view for view in problem.snapshot.pools}
        self.offers = {view.key: view for view in problem.snapshot.offers}
        self.waiting = {job.id: job for job in problem.snapshot.jobs}
        self.caps = Caps(problem.snapshot, self.world.book.caps)
        self.committed: Counter[tuple[str, str, str]] = Counter()

    def place(self, action: Place) -> None:
        job = self.waiting.pop(action.job)
        view = job.as_form(action.form)
        at = next(
            at
            for at in self.world.places
            if at.offer is None and any(self._is(pool, action, action.members[0]) for pool in at.views)
        )
        self._commit(self.caps.adds(view, at))
        for member in dict.fromkeys(action.members):
            pool = next(pool for pool in self.pools.values() if self._is(pool, action, member))
            self._start(
                pool, job, view, action, action.members.count(member), leads=member == action.members[0]
            )
            if pool.paid_until_at is not None:
                until = max(self.now, pool.ready_at or self.now) + worst_rent_s(view, at) - pool.tail_s
                pool = self.pools[pool.key]
                self.pools[pool.key] = replace(pool, paid_until_at=max(pool.paid_until_at or 0.0, until))

    def rent(self, action: Rent) -> None:
        job = self.waiting.pop(action.job)
        view = job.as_form(action.form)
        found = self.offers[f"{action.provider}/{action.offer}"]
        self._commit(self.caps.adds(view, of_offer(found, self.world.data)))
        for key, other in self.offers.items():
            self.offers[key] = replace(other, offer=_less(other.offer, found.offer, action.machines))
        left = view.nodes
        for number in range(action.machines):
            pool = self._booting(found, action, job, number)
            self.pools[pool.key] = pool
            ranks = min(left, _ranks(pool.free[0], view))
            self._start(pool, job, view, action, ranks, leads=not number)
            left -= ranks
        assert left == 0, "all ranks have a machine"

    def stop(self, action: Preempt) -> None:
        for pool in self.pools.values():
            works = tuple(
                replace(work, ends_at=self.now + STOPPING_S, waits_as=None)
                if work.placement == action.placement
                else work
                for work in pool.busy
            )
            self.pools[pool.key] = replace(pool, busy=works)

    def problem(self) -> Problem:
        before = self.before.snapshot
        kept = {(view.policy, view.period, view.share): view for view in before.spend}
        for key, usd in self.committed.items():
            view = kept.get(key) or SpendView(key[0], key[1], 0.0, 0.0, key[2])
            kept[key] = replace(view, committed_usd=view.committed_usd + usd)
        after = replace(
            before, jobs=tuple(self.waiting.values()), pools=tuple(self.pools.values()), offers=tuple(self.offers.values()),
            spend=tuple(kept.values()),
        )  # fmt: skip
        return replace(self.before, snapshot=after)

    @staticmethod
    def _is(pool: PoolView, action: Place, member: str) -> bool:
        return (pool.site, pool.pool, pool.member) == (action.site, action.pool, member)

    def _commit(self, adds: tuple[float, ...]) -> None:
        keys = {
            (row.policy, str(row.period), row.share): usd
            for row, usd in zip(self.caps.rows, adds, strict=True)
            if row.unit is CapUnit.USD and usd
        }
        self.committed.update(keys)

    def _booting(self, found: OfferView, action: Rent, job: JobView, number: int) -> PoolView:
        offer = found.offer
        tail_s = found.slack_s + offer.teardown_s
        paid_s = (
            action.committed_usd / action.machines / offer.price_usd_h * 3600.0 if offer.price_usd_h else 0.0
        )
        return PoolView(
            site=found.site, kind="cloud", pool="gpu", member=f"lease-{action.job}-{number}", session="booting", region=offer.region,
            provider=offer.provider, labels=found.labels, market=offer.market, price_usd_gpu_h=offer.price_usd_h / max(1, offer.gpus),
            model=offer.model, gpu_memory_mib=offer.gpu_memory_mib, gpus_per_node=offer.gpus, cpus_milli_per_node=offer.cpus_milli,
            memory_mib_per_node=offer.memory_mib, free=(Shape(offer.gpus, offer.cpus_milli, offer.memory_mib),),
            ready_at=self.now + offer.delay_s, lease=f"lease-{action.job}-{number}", rented_for=job.id, rented_queue=job.queue,
            paid_until_at=self.now + paid_s - tail_s, tail_s=tail_s,
        )  # fmt: skip

    def _start(
        self, pool: PoolView, job: JobView, view: JobView, action: Place | Rent, ranks: int, *, leads: bool
    ) -> None:
        """So many ranks at one member, each on the host that it fills best."""
        whole = Shape(pool.gpus_per_node, pool.cpus_milli_per_node, pool.memory_mib_per_node)
        boots = pool.ready_at is not None and not pool.free and not pool.busy
        free = (
            [replace(whole)] * pool.nodes
            if boots
            else [replace(s, count=1) for s in pool.free for _ in range(s.count)]
        )
        used: set[int] = set()
        for _ in range(ranks):
            fits = [n for n, host in enumerate(free) if _ranks(host, view) and not (view.apart and n in used)]
            best = min(fits, key=lambda n: (free[n].gpus, free[n].cpus_milli, free[n].memory_mib))
            used.add(best)
            host = free[best]
            free[best] = replace(
                host, gpus=host.gpus - view.gpus, cpus_milli=host.cpus_milli - view.cpus_milli, memory_mib=host.memory_mib - view.memory_mib
            )  # fmt: skip
        work = BusyView(
            nodes=ranks, gpus=view.gpus, cpus_milli=view.cpus_milli, memory_mib=view.memory_mib, ends_at=action.expected_end_at,
            placement=f"pl-{job.id}", leads=leads, job=job.id, revision=job.revision + 1, queue=job.queue, owner=job.owner, labels=job.labels,
            priority=job.priority, started_at=self.now, shared=view.shared, form=action.form,
        )  # fmt: skip
        self.pools[pool.key] = replace(pool, free=tuple(free), busy=(*pool.busy, work))


def _less(offer: Offer, rented: Offer, machines: int) -> Offer:
    """What is left of an offer beside so many machines of another: of the same under another name, or of the stock of both."""
    if offer.provider != rented.provider:
        return offer
    if offer.as_offered().name == rented.as_offered().name:
        offer = replace(offer, available=offer.available - machines)
    if offer.stock and rented.stock and offer.stock.name == rented.stock.name:
        used = offer.stock.used + machines * rented.stock.each
        offer = replace(offer, stock=replace(offer.stock, used=used))
    return offer


def _ranks(host: Shape, view: JobView) -> int:
    """How many ranks the host holds; of those that are apart, one."""
    pairs = ((host.gpus, view.gpus), (host.cpus_milli, view.cpus_milli), (host.memory_mib, view.memory_mib))
    some = any(has for has, _ in pairs)
    fits = min((has // need for has, need in pairs if need), default=1_000_000 if some else 0)
    return min(fits, 1) if view.apart else fits
