"""The timetable of a decision: what runs where, what starts now, and where and when what waits is to start.

A plan says of a job that waits when it is to start and not where, for no turn needs that. It is found by carrying out the plan's starts again on the same
problem, which takes milliseconds and no solver: so a turn does nothing for it, and a recorded decision of any day has one, too.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from federator.model.jobs import in_gpus
from federator.model.plans import Place, Plan, Preempt, Rent, ReservedFor, Waiting
from federator.model.snapshot import BusyView, JobView, Problem
from federator.model.timetable import Bar, BarState, Lane, Timetable
from federator.planning.explanations.rule_words import kept_for
from federator.planning.places.candidates import Candidate
from federator.planning.rules.openings import kept_spans
from federator.planning.scheduling.objective import Evaluator, Scored
from federator.planning.wording.told import because_of, told_waiting, winner_words
from federator.planning.world.plan_starts import key_of, starts_of, turns_of
from federator.planning.world.problem import World


def timetable(problem: Problem, plan: Plan) -> Timetable:
    """All that the decision foresees. Raises `Unavailable` where the kernel cannot be loaded."""
    drawn = _Drawn(problem, plan)
    bars = (*drawn.kept(), *drawn.running(), *drawn.booting(), *drawn.starting(), *drawn.planned())
    return Timetable(
        decision=plan.decision,
        taken_at=plan.taken_at,
        winner=f"{plan.winner}: {winner_words(plan, plan.taken_at)}",
        lanes=tuple(drawn.lanes.values()),
        bars=bars,
        unplanned=len(plan.waiting) - sum(bar.state in _WAITS for bar in bars),
    )


_WAITS = (BarState.PLANNED, BarState.RESERVED)


class _Drawn:
    """One decision, piece by piece. A lane of capacity that exists is always there, one of an offer where something is to be rented."""

    def __init__(self, problem: Problem, plan: Plan) -> None:
        self.plan, self.world = plan, World(problem)
        self.lanes = {at.key: _lane(at) for at in self.world.places if at.standing is not None}
        self._held_for = {
            waiting.reserved.for_job
            for waiting in plan.waiting
            if waiting.reserved is not None and waiting.reserved.why is ReservedFor.GANG
        }

    def kept(self) -> Iterator[Bar]:
        """What policies keep for somebody, or for nobody, from one moment to another."""
        places = [at for at in self.world.places if at.standing is not None]
        for rule in self.world.book.openings:
            for start_at, end_at in kept_spans(rule, self.plan.taken_at):
                for at in places:
                    if at.selected_by(rule.pools):
                        yield Bar(
                            id=f"{rule.policy}/{start_at:.0f}/{at.key}",
                            lane=at.key,
                            state=BarState.KEPT,
                            start_at=start_at,
                            end_at=end_at,
                            gpus=at.gpus_in_all,
                            name=f"reserved for {kept_for(rule)}",
                            because=f"policy {rule.policy}",
                        )

    def running(self) -> Iterator[Bar]:
        """What holds hosts: of a gang over several members one bar."""
        whole: dict[tuple[str, str], Bar] = {}
        for at in self.world.places:
            for view in (*at.views, *at.shut):
                for busy in view.busy:
                    bar = self._busy_bar(at, view.member, busy, len(whole))
                    known = whole.get((bar.id, at.key))
                    if known is not None:
                        bar = replace(known, members=known.members + bar.members, gpus=known.gpus + bar.gpus)
                    whole[bar.id, at.key] = bar
        yield from whole.values()

    def _busy_bar(self, at: Candidate, member: str, busy: BusyView, number: int) -> Bar:
        starts_at = max(busy.started_at, at.ready_at or 0.0)
        local = busy.placement is None
        state = BarState.LOCAL if local else BarState.RUNNING
        if at.ready_at is not None:
            state = BarState.STARTING
        return Bar(
            id=busy.placement or f"local-{number}",
            lane=at.key,
            state=state,
            start_at=self.plan.taken_at if local else starts_at,
            end_at=max(busy.ends_at, starts_at),
            gpus=in_gpus(busy.nodes * busy.gpus, shared=at.shared),
            members=(member,) * busy.nodes,
            job=busy.job or "",
            owner=busy.owner,
            queue=busy.queue,
        )

    def booting(self) -> Iterator[Bar]:
        """Rented machines that are on their way."""
        for at in self.world.places:
            if at.ready_at is None or at.standing is None or not at.standing.lease:
                continue
            yield Bar(
                id=at.standing.lease,
                lane=at.key,
                state=BarState.BOOTING,
                start_at=self.plan.taken_at,
                end_at=at.ready_at,
                gpus=at.gpus_in_all,
                members=(at.standing.member,),
            )

    def starting(self) -> Iterator[Bar]:
        """What this decision starts, and rents."""
        for action in self.plan.actions:
            job = None if isinstance(action, Preempt) else self.world.by_id.get(action.job)
            if job is None or isinstance(action, Preempt):
                continue
            index = self.world.named.get(key_of(action))
            if index is not None:
                yield self._start(action, job.as_form(action.form), index)

    def _start(self, action: Place | Rent, job: JobView, index: int) -> Bar:
        because = because_of(action, self.plan.taken_at)
        bar = self._bar(job, index, action.expected_start_at, action.expected_end_at, because)
        members = action.members if isinstance(action, Place) else ()
        return replace(bar, state=BarState.STARTING, members=members)

    def planned(self) -> Iterator[Bar]:
        """What waits and is to start, at the times that the plan says."""
        scored = self._scored()
        if scored is None:
            return
        for waiting in self.plan.waiting:
            job, start_at = self.world.by_id.get(waiting.job), waiting.expected_start_at
            later, booking = scored.later.get(waiting.job), scored.booking(waiting.job)
            if job is None or start_at is None:
                continue
            if later is not None:
                yield self._wait(waiting, job, later.place, ())
            elif booking is not None:
                yield self._wait(waiting, job, booking.place, booking.members if booking.exact else ())

    def _wait(self, waiting: Waiting, job: JobView, choice: int, ranks: tuple[int, ...]) -> Bar:
        told, views = told_waiting(waiting, self.plan.taken_at), self.world.places[choice].views
        start_at, end_at = waiting.expected_start_at or 0.0, waiting.expected_finish_at or 0.0
        as_form = self.world.as_form(job, choice)
        bar = self._bar(as_form, self.world.place_of(choice), start_at, end_at, told.because)
        held = waiting.job in self._held_for
        return replace(
            bar,
            state=BarState.RESERVED if held else BarState.PLANNED,
            members=tuple(views[rank].member for rank in ranks) if views else (),
        )

    def _bar(self, job: JobView, index: int, start_at: float, end_at: float, because: str) -> Bar:
        at = self.world.places[index]
        self.lanes.setdefault(at.key, _lane(at))
        return Bar(
            id=job.id,
            lane=at.key,
            state=BarState.PLANNED,
            start_at=start_at,
            end_at=end_at,
            gpus=job.gpus_total,
            job=job.id,
            name=job.name,
            owner=job.owner,
            queue=job.queue,
            deadline_at=job.deadline_at if job.start_by_at is None else None,
            because=because,
        )

    def _scored(self) -> Scored | None:
        """The plan's starts, carried out again with those that wait in the plan's order; None: it says nothing of any."""
        if not self.plan.waiting:
            return None
        world = self.world
        order = turns_of(world, [waiting.job for waiting in self.plan.waiting])
        return Evaluator(world).in_order(order).score(starts_of(world, self.plan.actions))


def _lane(at: Candidate) -> Lane:
    standing = at.standing
    return Lane(
        key=at.key,
        site=at.site,
        pool=at.pool,
        kind=at.kind,
        model=at.model,
        market=at.market,
        shared=at.shared,
        gpus_per_node=1 if at.shared else at.gpus,
        members={view.member: view.nodes for view in (*at.views, *at.shut)},
        lease=(standing.lease or "") if standing is not None else "",
        offer=at.key if standing is None else "",
        closed=standing.closed_because if standing is not None and not standing.open else "",
    )
