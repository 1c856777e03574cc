"""When renting is allowed, and what it would bring: the case for one job and one offer.

Policy decides what *may* burst, the objective whether it *pays*. In economic mode only the forecast of a miss justifies
renting: the job's finish at home, planned without any offer or lease (the counterfactual), lies after its deadline, and rented now it
is likelier than not in time, or the chance that it is is worth the bill. Plans have a margin, so a rented finish that is planned after the deadline may still be in time: whether
that chance is worth its rent is weighed with all else. (Waiting alone justifies it where the policy says so.) Whatever justifies it, it must gain the job itself more than it costs (`gains`).
Threshold and always are the policy's own decision: it is required, and its price is not weighed.

Spot is cheaper and may be taken back. For a job that leaves the choice (`spot_policy: auto`) it is a case only while the
deadline holds even if the machine goes at the very end of the run and all is done again on demand – of a job that keeps its checkpoints
elsewhere, what lies after the last one. When that slack is gone, on-demand remains: spot while progress is on schedule. A job that says `spot` takes the risk.

Renting is as late as is safe. While a later start still meets the deadline with `economics.SAFETY_S` to spare, capacity at home may yet
free, so the case says `rent_at`, and the plan wakes then. A job that no owned place could take even empty is rented for at once: there is
nothing to wait for.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from federator.model import reasons as why
from federator.model.capacity import BurstEvidence
from federator.model.rules import BurstMode, Filter
from federator.model.snapshot import JobView
from federator.planning.places.candidates import typical_share
from federator.planning.rentals.candidate import BurstCandidate, BurstRejection, HomeForecast
from federator.planning.rentals.economics import IN_TIME, PAYS, TOO_LATE, UNSAFE, Economics, Rented
from federator.planning.rentals.gains import Gains
from federator.planning.rules.caps import Caps
from federator.planning.rules.permits import EAGER, admits, only_deadlines, worst_usd
from federator.planning.world.chances import spread_of
from federator.planning.world.model_arrays import numbers_of
from federator.planning.world.problem import World

LEAST_USD = 0.1
"""A chance that is worth less is rented for by nobody."""


class Bursting:
    """The cases of one world, given the counterfactual: every job's finish at home, with nothing rented."""

    def __init__(self, world: World, home: Mapping[str, HomeForecast]) -> None:
        """Keep both; cases are made when asked for."""
        self.world = world
        self.home = home
        self._cases: dict[tuple[str, int], BurstCandidate | BurstRejection] = {}
        self._of_class: dict[tuple[object, ...], BurstCandidate | BurstRejection] = {}
        self._alike: dict[str, object] = {}
        self._modes = {permit.mode for permit in world.book.permits}
        self.gains = Gains(world, home)
        self.economics = Economics(world, self.gains)
        self._rented: dict[object, dict[int, Rented]] = {}
        self._plain = all(
            permit.mode in (None, BurstMode.ECONOMIC, BurstMode.OFF) and not permit.for_waiting
            for permit in world.book.permits
        )
        """Nothing is rented but to meet deadlines, weighed in money."""
        self._least: dict[object, float] = {}
        self._permits: dict[tuple[object, ...], list[Filter]] = {}
        self._by_data = any(permit.data is not None for permit in world.book.permits)
        self.table: object = None
        """All cases as `rental_arrays.Cases`, once somebody has asked for them."""

    def case(self, job: JobView, place: int) -> BurstCandidate | BurstRejection:
        """The case for renting an offer, or for using a lease, that passes all filters; `place` is a choice."""
        index = (job.id, place)
        if index not in self._cases:
            self._cases[index] = self._made(job, place)
        return self._cases[index]

    def _made(self, job: JobView, place: int) -> BurstCandidate | BurstRejection:
        """Of jobs that are alike, and would all miss their deadline at home after about the same wait, one is asked about: what is said of it is true of all."""
        alike = self.alike(job), place
        if alike not in self._of_class:
            self._of_class[alike] = self._make(self.world.as_form(job, place), place)
        found = self._of_class[alike]
        if isinstance(found, BurstRejection) and found.situation == "approval":  # which is given job by job
            return replace(found, reason=to_approve(found.reason, job))
        return found

    def case_now(self, job: JobView, place: int) -> BurstCandidate | None:
        """The case for renting now, where there is one."""
        case = self.case(job, place)
        return case if isinstance(case, BurstCandidate) and case.is_now(self.world.now) else None

    def weigh(self, jobs: Sequence[JobView]) -> None:
        """Find what rented places come to for all these jobs at once, rather than for each when it is asked for."""
        of = {self.alike(job): job for job in jobs}
        self._rented |= zip(of, self.economics.all_of(list(of.values())), strict=True)

    def _rented_for(self, job: JobView) -> dict[int, Rented]:
        """What each rented place comes to that is open to the job, by choice."""
        alike = self.alike(job)
        if alike not in self._rented:
            self.weigh([job.of or job])
        return self._rented[alike]

    def alike(self, job: JobView) -> object:
        """The same for jobs whose cases for offers are the same: of one class, and after about the same wait at home."""
        if job.id not in self._alike:
            number = self._found_class(job)
            self._alike[job.id] = job.id if number is None else (self.world.key(job), number)
        return self._alike[job.id]

    def _found_class(self, job: JobView) -> int | None:
        """A number: those of its class that have the same are alike. None: it is alone."""
        if BurstMode.THRESHOLD in self._modes or not self._misses_at_home(job):
            return None
        home = self.home.get(job.id)
        if home is None or home.start_at <= self.world.now or spread_of(job)[1] == 0.0:
            return 0
        return 1 + math.floor(4.0 * math.log2(1.0 + home.start_at - self.world.now))

    def no_need(self, job: JobView) -> bool:
        """Whether there is no case for the job anywhere, said without looking at each place: only deadlines rent for it, and it has none or meets it at home."""
        return not self._may_miss(job) and only_deadlines(self.world.book, job)

    def _misses_at_home(self, job: JobView) -> bool:
        """By the plan."""
        home = self.home.get(job.id)
        return job.deadline_at is not None and (home is None or home.finish_at > job.deadline_at)

    def _may_miss(self, job: JobView) -> bool:
        """By the plan, or by a chance that is worth something."""
        if job.deadline_at is None:
            return False
        if self._misses_at_home(job):
            return True
        stake = self.gains.stake(job)
        waits = stake.home.ahead_s > 0.0
        return waits and self.gains.weighed_risk(job) * stake.value_usd > max(LEAST_USD, self._least_usd(job))

    def _least_usd(self, job: JobView) -> float:
        """The least that any rental for it costs, infinite where nothing is open to it: whoever risks less need not be asked about each offer. Found once for each class."""
        world = self.world
        key = world.key(job)
        if key not in self._least:
            usd = numbers_of(world).rented_ways(job)["whole_usd"][len(world.leases(job)) :]
            self._least[key] = float(usd.min(initial=math.inf))
        return self._least[key]

    def cases(self, job: JobView) -> list[BurstCandidate]:
        """All cases for offers, cheapest first."""
        if self.no_need(job):
            return []
        offers: Iterable[int] = self.world.offers(job)
        if self._plain:
            rented = self._rented_for(job)
            offers = [place for place in offers if rented[place].verdict == PAYS]
        found = [self.case(job, place) for place in offers]
        return sorted(
            (c for c in found if isinstance(c, BurstCandidate)),
            key=lambda c: (c.cost_usd, c.finish_at, c.place),
        )

    def required(self, job: JobView, caps: Caps) -> list[BurstCandidate]:
        """Rentals that a policy requires now and caps leave room for, also where renting for the job is tried without."""
        if EAGER.isdisjoint(self._modes) or self.no_need(job):
            return []
        world = self.world
        found = [
            c
            for place in world.offers(job)
            if isinstance(c := self.case(job, place), BurstCandidate) and c.required
        ]
        return [
            c
            for c in found
            if c.is_now(world.now)
            and caps.blocking(world.as_form(job, c.place), world.places[c.place]) is None
        ]

    def may_use_lease(self, job: JobView, place: int) -> bool:
        """Whether the job may use capacity that is rented already: it was rented for it, or it has a case of its own."""
        pool = self.world.places[place].standing
        if pool is not None and pool.rented_for == job.id:
            return True
        return isinstance(self.case(job, place), BurstCandidate)

    def evidence(self, job: JobView, case: BurstCandidate) -> BurstEvidence:
        """What is recorded with a rental for ever."""
        home = self.home.get(job.id)
        return BurstEvidence(
            job=job.id,
            policy=case.policy,
            mode=case.mode.value,
            home_finish_at=home.finish_at if home else None,
            burst_finish_at=case.finish_at,
            deadline_at=job.deadline_at,
            cost_usd=round(case.cost_usd, 6),
            value_usd=round(self.world.book.value_usd(job), 6),
            decision=self.world.problem.decision,
            fallback_finish_at=case.fallback_finish_at,
            home_risk=0.0
            if self._misses_at_home(job) or job.deadline_at is None
            else round(self.gains.risk(job), 6),
        )

    def _make(self, job: JobView, place: int) -> BurstCandidate | BurstRejection:
        refusal: BurstRejection | None = None
        rented = self._rented_for(job).get(place)
        if rented is None:  # it is not open to the job: a lead of before may ask for it all the same
            rented = self.economics.of(job, place)
        for permit in self._permits_for(job, place):
            answer = self._under(permit, job, place, rented)
            if isinstance(answer, BurstCandidate) and not approved(permit, job, answer):
                answer = _unapproved(permit, job, answer)
            if isinstance(answer, BurstCandidate):
                return answer
            refusal = refusal or answer
        return refusal or BurstRejection("no-need", why.Uncovered())

    def _permits_for(self, job: JobView, place: int) -> list[Filter]:
        """Policies that are about the job and the place; of an offer, those that let it be rented now."""
        who = (job.queue, job.owner, *sorted(job.labels.items()))
        about = (who, job.inputs if self._by_data else (), place)
        if about not in self._permits:
            at, book = self.world.places[place], self.world.book
            found = book.permits_for(job, at)
            if at.offer is not None:
                found = [permit for permit in found if book.in_force(permit) and admits(permit, at)]
            self._permits[about] = found
        return self._permits[about]

    def under(self, permit: Filter, job: JobView, place: int) -> BurstCandidate | BurstRejection:
        """The case under one policy, whoever would have to approve it; also of a place that is not open to the job."""
        return self._under(permit, job, place, self.economics.of(job, place))

    def _under(
        self, permit: Filter, job: JobView, place: int, rented: Rented
    ) -> BurstCandidate | BurstRejection:
        mode = permit.mode or BurstMode.ECONOMIC
        if mode is BurstMode.THRESHOLD:
            after, waited = permit.after_wait_s or 0.0, max(0.0, self.world.now - job.submitted_at)
            if waited < after:
                reason = why.WaitsLonger(policy=permit.policy, after_s=after, waited_s=waited)
                return BurstRejection("no-need", reason)
        if mode in EAGER:
            return self._required(job, self._case(permit, job, place, rented, required=True))
        if job.deadline_at is not None:
            answer = self._economic(permit, job, place, rented, job.deadline_at)
            if isinstance(answer, BurstCandidate) or not permit.for_waiting:
                return answer
        if permit.for_waiting:
            return self.gains.if_it_pays(job, self._case(permit, job, place, rented, for_waiting=True))
        return BurstRejection("no-need", why.NoDeadline(policy=permit.policy))

    def _economic(
        self, permit: Filter, job: JobView, place: int, rented: Rented, deadline: float
    ) -> BurstCandidate | BurstRejection:
        if rented.verdict == IN_TIME:
            home = self.home[job.id]
            return BurstRejection("no-need", why.InTimeAtHome(finish_at=home.finish_at, deadline_at=deadline))
        finish, share = rented.finish_at + rented.again_s, typical_share(job)
        if rented.verdict == TOO_LATE:
            reason = why.TooLate(
                late_at=rented.start_at + share * rented.run_s,
                deadline_at=deadline,
                finish_at=finish,
                probably=share != 1.0,
                again_s=rented.again_s,
            )
            return BurstRejection("too-late", reason)
        if rented.verdict == UNSAFE:
            return _unsafe(finish, deadline)
        case = self._case(permit, job, place, rented, rent_at=rented.rent_at)
        return case if rented.verdict == PAYS else self.gains.dear(job, case)

    def _required(self, job: JobView, case: BurstCandidate) -> BurstCandidate | BurstRejection:
        """Whatever it costs; but not on spot that risks a deadline which on-demand would meet."""
        again_at = case.fallback_finish_at
        if job.deadline_at is None or again_at is None or again_at <= job.deadline_at:
            return case
        on_demand = [
            self.world.now + fresh_s for fresh_s in self.economics.interruptions.on_demand(job).values()
        ]
        if min(on_demand, default=math.inf) > job.deadline_at:
            return case
        return _unsafe(again_at, job.deadline_at)

    def _case(
        self,
        permit: Filter,
        job: JobView,
        place: int,
        rented: Rented,
        *,
        required: bool = False,
        for_waiting: bool = False,
        rent_at: float = 0.0,
    ) -> BurstCandidate:
        finish, again_s = rented.finish_at, rented.again_s
        return BurstCandidate(
            place=place,
            policy=permit.policy,
            mode=permit.mode or BurstMode.ECONOMIC,
            required=required,
            rent_at=max(self.world.now, rent_at, job.not_before_at or 0.0),
            start_at=rented.start_at,
            run_s=rented.run_s,
            finish_at=finish,
            fallback_finish_at=finish + again_s if again_s else None,
            cost_usd=rented.bill_usd,
            committed_usd=worst_usd(job, self.world.places[place]),
            for_waiting=for_waiting,
        )


def approved(permit: Filter, job: JobView, case: BurstCandidate) -> bool:
    """Whether the policy leaves the rental to itself, or a person has approved so much for the job."""
    above = permit.approval_above_usd
    return above is None or case.committed_usd <= max(above, job.approved_usd) + 1e-6


def _unsafe(fallback_at: float, deadline: float) -> BurstRejection:
    return BurstRejection("too-late", why.SpotTooLate(finish_at=fallback_at, deadline_at=deadline))


def _unapproved(permit: Filter, job: JobView, case: BurstCandidate) -> BurstRejection:
    reason = why.Unapproved(
        job=job.id,
        policy=permit.policy,
        above_usd=permit.approval_above_usd or 0.0,
        committed_usd=case.committed_usd,
    )
    return BurstRejection("approval", reason)


def to_approve(reason: why.Reason, job: JobView) -> why.Reason:
    """What was found of a job like it, of this one: approval is given job by job."""
    match reason:
        case why.Unapproved():
            return replace(reason, job=job.id)
        case why.InForm() | why.WithData():
            return replace(reason, why=to_approve(reason.why, job))
        case _:
            return reason
