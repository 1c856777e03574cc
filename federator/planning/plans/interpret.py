"""From a decision to a plan: actions for what starts now, and for every other job the reason why it waits.

Reasons are made of the same numbers as the decision. A sentence says what was chosen and against what; a waiting job is told what
keeps it, when it is expected to run, and the smallest change that would help.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property

from msgspec.structs import replace

from federator.kernel.quantities import format_chance
from federator.model.capacity import BurstEvidence, Market
from federator.model.plans import Action, Place, Plan, Preempt, Rent, StageReport, Waiting
from federator.model.snapshot import JobView
from federator.planning.explaining.form_reasons import why_form
from federator.planning.explaining.reasons import KINDS, Standing
from federator.planning.places.candidates import Candidate, machines
from federator.planning.places.doubt import last_heard
from federator.planning.plans.preferring import keep_order
from federator.planning.plans.proposals import proposals
from federator.planning.plans.reclaim import Reclaim, reclaim
from federator.planning.plans.resizing import resizes
from federator.planning.plans.waking import wake_at
from federator.planning.renting.case import Case, NoCase
from federator.planning.scheduling.blocks import BUSY, Block
from federator.planning.scheduling.objective import Evaluator, Scored
from federator.planning.wording import in_form, moment, money, request, span
from federator.planning.world.chances import late_share

RECLAIMING = "reclaiming"
"""The name of the reason of a job that others make room for."""
EVEN = 0.5
"""Of being in time: less has to be said."""
MANY_MEMBERS = 3
"""Of more members than this only the number is said."""


def write_plan(
    evaluator: Evaluator,
    scored: Scored,
    *,
    winner: str,
    because: str,
    stages: Sequence[StageReport] = (),
    seed: int = 0,
    prices: dict[str, float] | None = None,
) -> Plan:
    """The plan that says what was decided, and why, for every job of the problem."""
    scored = keep_order(evaluator, scored)
    plan = _Writer(evaluator, scored).plan(winner, because, tuple(stages), seed, prices or {})
    return replace(plan, proposals=proposals(evaluator, scored))


def write_starts(evaluator: Evaluator, scored: Scored, stage: str, seed: int) -> Plan:
    """The plan that says only what starts now. Of those that wait it says nothing, for nobody has looked at what becomes of them."""
    writer = _Writer(evaluator, scored)
    world = evaluator.world
    return Plan(
        decision=world.problem.decision,
        taken_at=world.now,
        seed=seed,
        winner="greedy",
        winner_because="only what starts now was decided",
        objective_usd=0.0,
        stages=(StageReport(stage=stage, completed=True, work=scored.schedule.attempts),),
        actions=tuple(writer.start(world.by_id[job], place) for job, place in scored.starts.items()),
    )


class _Writer:
    """Puts one decision into words."""

    def __init__(self, evaluator: Evaluator, scored: Scored) -> None:
        self.evaluator, self.scored, self.world = evaluator, scored, evaluator.world
        self.now = self.world.now

    @cached_property
    def standing(self) -> Standing:
        """The world after the decision."""
        taken = [(self.world.by_id[job], place) for job, place in self.scored.starts.items()]
        return Standing(self.world, self.evaluator.bursting, taken)

    @cached_property
    def reclaims(self) -> dict[str, Reclaim]:
        """What has to stop, by the job that it stops for."""
        return reclaim(self.world, self.scored)

    @cached_property
    def resizes(self) -> tuple[Preempt, ...]:
        """Elastic jobs that are to go on in another form."""
        stops = (stop.placement for found in self.reclaims.values() for stop in found.stops)
        return resizes(self.world, self.scored, frozenset(stops))

    def plan(
        self, winner: str, because: str, stages: tuple[StageReport, ...], seed: int, prices: dict[str, float]
    ) -> Plan:
        actions: list[Action] = [
            self.start(self.world.by_id[job], place) for job, place in self.scored.starts.items()
        ]
        actions += [stop for found in self.reclaims.values() for stop in found.stops]
        actions += self.resizes
        waiting = tuple(self._waiting(job) for job in self.evaluator.line if job.id not in self.scored.starts)
        return Plan(
            decision=self.world.problem.decision,
            taken_at=self.now,
            seed=seed,
            winner=winner,
            winner_because=because,
            objective_usd=self.scored.total,
            terms=self.scored.terms,
            stages=stages,
            actions=tuple(actions),
            waiting=waiting,
            prices=prices,
            wake_at=wake_at(self.world, self.scored),
        )

    # -- actions ------------------------------------------------------------------------------------------------------

    def start(self, job: JobView, place: int) -> Place | Rent:
        """The action that starts the job there now."""
        booking = self.scored.schedule.bookings[job.id]
        if booking.rents:
            case = self.evaluator.bursting.case(job, place)
            assert isinstance(case, Case), "nothing is rented without a case"
            return self._rent(job, case)
        whole, job, at = job, self.world.as_form(job, place), self.world.places[place]
        assert booking.members, "what starts now starts on capacity that is there"
        views = [at.views[member] for member in booking.members]
        pool = views[0]
        return Place(
            job=job.id,
            revision=job.revision,
            site=pool.site,
            pool=pool.pool,
            members=tuple(view.member for view in views),
            sessions=tuple(view.session for view in views),
            market=pool.market,
            price_usd_gpu_h=pool.billed_usd_gpu_h,
            expected_start_at=booking.start_at,
            expected_end_at=booking.finish_at,
            because=self._because_here(whole, job, place),
            lease=pool.lease,
            moves=at.transfer(job).moves,
            form=self.world.form_of(place),
        )

    def _because_here(self, whole: JobView, job: JobView, place: int) -> str:
        at, booking = self.world.places[place], self.scored.schedule.bookings[job.id]
        others = self._count((*self.world.home(job), *self.world.leases(job))) - 1
        choice = f"best of {others + 1} places it may use" if others > 0 else "the one place it may use"
        price = f", {money(at.price_usd_gpu_h)} per GPU-hour" if at.price_usd_gpu_h and job.gpus else ""
        lease = " (rented already)" if at.rented else ""
        where = f"{at.shown}{lease}{_on_members(at, booking.members)}"
        finish = self._against_deadline(job, booking.finish_at)
        form = why_form(self.world, self.standing, whole, place)
        return f"{request(job)} fit now at {where}: {form}{choice}{price}{_brings(at, job)}; {finish}"

    def _count(self, choices: Iterable[int]) -> int:
        """How many places these are."""
        return len(set(map(self.world.place_of, choices)))

    def _against_deadline(self, job: JobView, finish: float) -> str:
        by = f"expected to finish by {moment(finish, self.now)}"
        if job.start_by_at is not None:
            return f"{by}; queue {job.queue} is to start it by {moment(job.start_by_at, self.now)}"
        if job.deadline_at is None:
            return by
        spare = job.deadline_at - finish
        return f"{by}, {span(abs(spare))} {'before' if spare >= 0 else 'after'} its deadline"

    def _rent(self, job: JobView, case: Case) -> Rent:
        job, at = self.world.as_form(job, case.place), self.world.places[case.place]
        assert at.offer is not None, "only offers are rented"
        evidence = self.evaluator.bursting.evidence(job, case)
        return Rent(
            job=job.id,
            revision=job.revision,
            provider=at.offer.offer.provider,
            offer=at.offer.offer.name,
            site=at.site,
            expected_start_at=case.start_at,
            expected_end_at=case.finish_at,
            committed_usd=case.committed_usd - at.transfer(job).usd,
            evidence=evidence,
            because=self._because_rented(job, case, evidence),
            moves=at.transfer(job).moves,
            machines=machines(job, at),
            form=self.world.form_of(case.place),
        )

    def _because_rented(self, job: JobView, case: Case, evidence: BurstEvidence) -> str:
        home_finish_at = evidence.home_finish_at
        if home_finish_at is None:
            home = "nothing at home can ever run it"
        else:
            home = f"at home it would finish at {moment(home_finish_at, self.now)}"
        if home_finish_at is not None and job.deadline_at is not None and home_finish_at > job.deadline_at:
            home += f", {span(home_finish_at - job.deadline_at)} after its deadline"
        elif evidence.home_risk:
            home += f", in time, but with a chance of {format_chance(evidence.home_risk)} that it is too late"
        price = f"for about {money(case.cost_usd)} (at worst {money(case.committed_usd)})"
        worth = (
            f"; the deadline is worth {money(self.world.book.value_usd(job))}"
            if job.deadline_at is not None
            else ""
        )
        rule = f"policy {case.policy} {'requires' if case.required else 'permits'} it ({case.mode.value})"
        finish = moment(case.finish_at, self.now)
        at = self.world.places[case.place]
        price = f"{price}{_brings(at, job)}{worth}{self._spot(job, case)}"
        form = f", {in_form(job.of or job, self.world.form_of(case.place))}," if (job.of or job).forms else ""
        likely = _likely(job, at, case)
        return f"{home}; on {_so_many(job, at)}{form} it finishes at {finish}{likely} {price}; {rule}"

    def _spot(self, job: JobView, case: Case) -> str:
        """Why this market: spot because it is safe, or on-demand because no spot is."""
        if case.fallback_finish_at is not None:
            again = moment(case.fallback_finish_at, self.now)
            return f"; spot: taken back at the very end and done again, it finishes at {again}"
        if job.spot_policy != "auto" or self.world.places[case.place].market is not Market.ON_DEMAND:
            return ""
        spot = [p for p in self.world.offered(job) if self.world.places[p].market is Market.SPOT]
        refusals = [self.evaluator.bursting.case(job, place) for place in spot]
        refused = next((r for r in refusals if isinstance(r, NoCase)), None)
        return (
            ""
            if refused is None
            else f"; not {self.world.places[spot[refusals.index(refused)]].shown}: {refused.text}"
        )

    # -- waiting ------------------------------------------------------------------------------------------------------

    def _waiting(self, job: JobView) -> Waiting:
        kind, reason, because, change = self._why(job)
        booking, home, put_off = (
            self.scored.booking(job.id),
            self.evaluator.home.get(job.id),
            self.scored.later.get(job.id),
        )
        start, finish = (booking.start_at, booking.finish_at) if booking else (None, None)
        if put_off is not None:
            shift = put_off.rent_at - self.now
            start, finish = put_off.start_at + shift, put_off.finish_at + shift
        return Waiting(
            job=job.id,
            kind=kind,
            because=because,
            expected_start_at=start,
            expected_finish_at=finish,
            home_start_at=home.start_at if home else None,
            home_finish_at=home.finish_at if home else None,
            home_usd=home.usd if home else 0.0,
            change=change,
            reason=reason,
            reserved=self.scored.schedule.blocks.get(job.id, BUSY).reserved,
        )

    def _why(self, job: JobView) -> tuple[str, str, str, str]:
        """Kind, name of the reason, sentence and change for a job that waits."""
        block = self.scored.schedule.blocks.get(job.id, BUSY)
        if block.kind == "time":
            return block.kind, block.situation, block.text, block.change
        if job.id in self.reclaims:
            found = self.reclaims[job.id]
            return "capacity", RECLAIMING, found.text, ""
        if any(stop.beneficiary == job.id for stop in self.resizes):
            text = f"{self._busy(job)}; elastic jobs there go on narrower to make room for it"
            return "capacity", RECLAIMING, text, ""
        put_off = self.scored.later.get(job.id)
        if put_off is not None:
            return self._put_off(job, put_off, block)
        if not self.world.home(job):
            return self._nowhere(job)
        block = block._replace(text=block.text or self._busy(job))
        if self.scored.costs[job.id].late:
            block = self._late(job, block)
        return block.kind, block.situation, block.text, block.change

    def _put_off(self, job: JobView, case: Case, block: Block) -> tuple[str, str, str, str]:
        home, when = self.evaluator.home.get(job.id), moment(case.rent_at, self.now)
        view = self.world.as_form(job, case.place)
        where, price = _so_many(view, self.world.places[case.place]), money(case.cost_usd)
        by = moment(home.finish_at, self.now) if home else ""
        late = f"it would finish at {by}, after its deadline" if home else "it can never run"
        text = f"would rent {where} at {when} for about {price} if home capacity does not free first: at home {late}"
        change = f"a deadline after {by}" if home and job.start_by_at is None else ""
        text = f"{block.text}; {text}" if block.reserved and block.situation != "not-yet" else text
        return "later", "not-yet", text, change

    def _busy(self, job: JobView) -> str:
        booking = self.scored.booking(job.id)
        places = self._count(self.world.home(job))
        text = f"no room now for {request(job)} at {'any of the ' + str(places) + ' places' if places > 1 else 'the one place'} it may use"
        if job.start_by_at is not None:
            text = f"{text}; queue {job.queue} is to start it by {moment(job.start_by_at, self.now)}"
        if booking is None:
            return f"{text}, and nothing that runs there is expected to end and make enough"
        at = self.world.places[booking.place]
        where = f"beside the job that {at.shown} is rented for" if at.offer else f"at {at.shown}"
        boots = " (rented, booting)" if at.ready_at is not None and at.ready_at > self.now else ""
        return f"{text}; expected to start {where}{boots} at about {moment(booking.start_at, self.now)}"

    def _nowhere(self, job: JobView) -> tuple[str, str, str, str]:
        """No owned place passes the filters: the reason of the place that came closest."""
        booking = self.scored.booking(job.id)
        if booking is not None:
            needless = f"no room now for {request(job)} at the one place it may use; "
            return "later", "busy", self._busy(job).removeprefix(needless), ""
        near = self.standing.closest(job, range(len(self.world.places)))
        if near is None:
            return "filter", "", "no site is connected and nothing is offered for rent", "connect a site"
        return (
            KINDS.get(near.filter, "filter"),
            near.filter,
            f"nowhere to run: closest is {near.site}/{near.pool}: {near.text}",
            near.change,
        )

    def _late(self, job: JobView, block: Block) -> Block:
        """It will miss its deadline: say why nothing is rented for it."""
        near = self.standing.closest_offer(job)
        if near is None:
            return block._replace(
                text=f"{block.text}; that is after its deadline, and nothing is offered for rent"
            )
        kind = "budget" if near.filter == "budget" else block.kind
        text = (
            f"{block.text}; that misses its deadline, and {near.site}/{near.pool} is not rented: {near.text}"
        )
        reason = near.filter or block.situation if block.situation == "busy" else block.situation
        return Block(kind, reason, text, near.change or block.change)


def _likely(job: JobView, at: Candidate, case: Case) -> str:
    """What is rented for though it is planned too late: plans have a margin, or the chance is worth it."""
    if job.deadline_at is None or case.finish_at <= job.deadline_at:
        return ""
    in_time = 1.0 - late_share(job, case.start_at, at.run_s(job))
    return (
        f", in time with a chance of {format_chance(in_time)},"
        if in_time < EVEN
        else ", but probably sooner,"
    )


def _so_many(job: JobView, at: Candidate) -> str:
    """An offer, and how many machines of it."""
    count = machines(job, at)
    return f"{count} × {at.shown}" if count > 1 else at.shown


def _brings(at: Candidate, job: JobView) -> str:
    """What bringing its data there takes, or that nobody knows; and how old what is known of the place is, where that counts."""
    shown = ", ".join(filter(None, (at.transfer(job).shown, last_heard(at.views))))
    return f", {shown}" if shown else ""


def _on_members(at: Candidate, ranks: Sequence[int]) -> str:
    """Which members of a place of several."""
    names = list(dict.fromkeys(at.views[rank].member for rank in ranks))
    if len(at.views) == 1:
        return ""
    if len(names) > MANY_MEMBERS:
        return f" (on {len(names)} members)"
    return f" (on {' and '.join(filter(None, (', '.join(names[:-1]), names[-1])))})"
