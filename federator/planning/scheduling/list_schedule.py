"""The list schedule of one decision: the arrays are laid out, the compiled kernel carries it out, and what it says is put into words.

It serves the forecast at home, greedy's decision (what it starts now is the first step of its schedule) and the evaluation of any plan (that plan's starts first, then the schedule fills
what is free and goes on). What trials ask of most decisions is a total and who starts: the rest – a booking per job, its cost, why it did not start – is made when it is asked for.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from federator.model.snapshot import JobView
from federator.planning import kernels
from federator.planning.kernels import tables as t
from federator.planning.rentals.burst import Bursting
from federator.planning.rentals.candidate import BurstCandidate
from federator.planning.rules.caps import Caps
from federator.planning.rules.rulebook import NEVER_WAIT_H
from federator.planning.scheduling import blocks
from federator.planning.scheduling.blocks import BUSY, Block
from federator.planning.scheduling.opportunity_cost import Displacing
from federator.planning.scheduling.rental_arrays import cases_of
from federator.planning.world.free_hours import Floats
from federator.planning.world.model_arrays import numbers_of
from federator.planning.world.prices import Cost
from federator.planning.world.problem import World

JOB_TERMS = ("run", "rent", "wait", "miss", "egress")

ATTEMPTS = 500_000
"""Attempts to start a job at a place after which a schedule stops being exact: what is left is estimated from the backlog."""
EVALUATIONS = 1_000_000
"""Likewise for evaluations at a class whose turn it is; they are cheap, but where all jobs differ there is one per job and moment."""


class Booking(msgspec.Struct, frozen=True, gc=False):
    """A job's place and time. `rents`: a new instance is rented for it; `exact` is false beyond the work limit."""

    place: int
    """Where and in which form: a choice of the world's (`problem.Places`)."""
    start_at: float
    finish_at: float
    committed_until: float = 0.0
    rents: bool = False
    exact: bool = True
    members: tuple[int, ...] = ()
    """Of each rank, by index; empty for what starts on a machine that nobody has rented yet."""


def at_home(world: World) -> Mapping[str, Booking]:
    """All jobs, with nothing rented and no lease used."""
    return ListSchedule(world, None, {}).bookings()


class ListSchedule:
    """A decision, carried out by the kernel and priced."""

    def __init__(
        self,
        world: World,
        bursting: Bursting | None,
        starts: Mapping[str, int],
        order: Mapping[str, int] | None = None,
        *,
        whole: bool = True,
        required_usd: float = 0.0,
    ) -> None:
        """First `starts` (job to choice; an offer is rented), then the rest. Without `bursting` only owned places are used; not `whole`: only what starts now is asked for.

        A start that is not open to its job, that does not fit, that a cap forbids, or that costs more on what is rented than its deadline is worth, is left to the rest.
        `order`: every job's turn where it is not the published one; `required_usd`: what it costs, on top, not to rent what a policy requires.
        Raises `Unavailable` where the kernel cannot be loaded.
        """
        kernel = kernels.kernel()
        self.world, self.numbers = world, numbers_of(world)
        self.cases = cases_of(self.numbers, bursting)
        self.jobs = self.cases.jobs.copy()
        for name, choice in starts.items():
            number = self.numbers.index.get(name)
            if number is not None:
                self.jobs["forced"][number] = self.numbers.way(number, choice)
        if order is not None:
            ranks = np.array([order[job.id] for job in world.jobs], dtype=np.int64)
            self.jobs["turn"] = turns = np.argsort(ranks, kind="stable")
            self.jobs["rank"][turns] = np.arange(len(turns))
        self.state = np.zeros(1, dtype=t.STATE)
        limits = {"attempts_limit": ATTEMPTS, "evaluations_limit": EVALUATIONS, "hold_job": -1}
        counts = {"releases": len(self.numbers.releases), "given": len(self.numbers.given)}
        asked = {"bursts": bursting is not None, "whole": whole, "required_usd": required_usd}
        known = {"never_h": NEVER_WAIT_H, "now": world.now}
        for field, value in (limits | counts | asked | known | self.cases.begins).items():
            self.state[field] = value
        self.kernel_state = self._laid_out()
        kernel(self.kernel_state)

    def _laid_out(self) -> t.KernelState:
        """All tables, with room for what the starts rent."""
        numbers, places = self.numbers, self.numbers.places.copy()
        forced = self.jobs["forced"][self.jobs["forced"] >= 0]
        ways = numbers.ways[forced]
        renting = ways[places["kind"][ways["place"]] == t.OFFER]
        rented, machines = renting["place"], int(renting["machines"].sum())
        standing = len(numbers.hosts)
        for place in np.unique(rented).tolist():  # offers have no hosts yet
            places["first_host"][place] = standing
            standing += int(renting["machines"][rented == place].sum())
        room = max(1, standing, int(places["members"].max(initial=0)))
        ranks = numbers.all_ranks + numbers.again + machines + (len(rented) + 1) * numbers.most_ranks
        return t.KernelState(
            self.state,
            places,
            _longer(numbers.hosts, room - len(numbers.hosts)),
            _longer(numbers.releases, 2 * len(self.jobs) + len(rented) + machines),
            _longer(numbers.given, ranks),
            numbers.ways,
            numbers.classes.copy(),
            self.jobs,
            numbers.rows.copy(),
            self.cases.records,
            numbers.promises,
            numbers.pair_records,
            numbers.backs,
            self.cases.flags.copy(),
        )

    # -- what came out ------------------------------------------------------------------------------------------------

    @property
    def attempts(self) -> int:
        """Attempts to start a job at a place."""
        return int(self.state["attempts"][0])

    def term(self, name: str) -> float:
        """One of the terms, in USD."""
        return float(self.state[f"{name}_usd"][0])

    def displaced_usd(self, displacing: Displacing) -> float:
        """What it takes from work outside the window. What is rented later takes nothing."""
        mine = np.zeros(len(self.jobs), dtype=bool)
        mine[self.order] = True
        jobs = self.jobs[mine & (self.jobs["later"] < 0)]
        ways = self.numbers.ways[jobs["way"]]
        gpus = (ways["nodes"] * ways["gpus"]).astype(np.float64)
        return displacing.usd(ways["place"], gpus, jobs["start_at"], jobs["finish_at"])

    @cached_property
    def order(self) -> list[int]:
        """The jobs that are booked, as they were."""
        booked: list[int] = self.jobs["order"][: int(self.state["booked"][0])].tolist()
        return booked

    @cached_property
    def _now(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The jobs that start now, as they were booked."""
        order = np.array(self.order, dtype=np.int64)
        now: np.ndarray[Any, np.dtype[np.int64]] = order[self.jobs["starts"][order] != 0]
        return now

    def rents(self) -> tuple[str, ...]:
        """Of those the ones that something is rented for."""
        return tuple(
            self.world.jobs[job].id for job in self._now[self.jobs["rents"][self._now] != 0].tolist()
        )

    def starts(self) -> dict[str, int]:
        """Who starts now, and where."""
        now = self._now
        places = self.numbers.ways["choice"][self.jobs["way"][now]]
        jobs = self.world.jobs
        return {jobs[job].id: place for job, place in zip(now.tolist(), places.tolist(), strict=True)}

    def caps(self) -> Caps:
        """As they stand after what starts now."""
        caps = self.world.caps.copy()
        caps.used = self.kernel_state.rows["used_now"].tolist()
        return caps

    def usd(self) -> Floats:
        """What each job costs in all."""
        total: Floats = np.sum([self.jobs[f"{name}_usd"] for name in JOB_TERMS], axis=0)
        return total

    def costs(self) -> dict[str, Cost]:
        """Of each job."""
        names = [*(f"{term}_usd" for term in JOB_TERMS), "late"]
        rows = zip(*(self.jobs[name].tolist() for name in names), strict=True)
        return {
            job.id: Cost(run, rent, wait, miss, egress, bool(late))
            for job, (run, rent, wait, miss, egress, late) in zip(self.world.jobs, rows, strict=True)
        }

    def later(self) -> dict[str, BurstCandidate]:
        """The rentals that are put off."""
        put_off = np.flatnonzero(self.jobs["later"] >= 0).tolist()
        return {self.world.jobs[job].id: self.cases.later[int(self.jobs["later"][job])] for job in put_off}

    def bookings(self) -> dict[str, Booking]:
        """A place and time for each job that ever starts."""
        members = self.kernel_state.hosts["member"][self.kernel_state.given["host"]].tolist()
        places = self.numbers.ways["choice"].tolist()
        names = ("way", "start_at", "finish_at", "committed_until", "rents", "exact", "first_given", "ranks")
        columns: dict[str, list[Any]] = {name: self.jobs[name].tolist() for name in names}
        found = {}
        for job in self.order:
            way, start, finish, committed, rents, exact, first, ranks = (columns[name][job] for name in names)
            found[self.world.jobs[job].id] = Booking(
                places[way],
                start,
                finish,
                committed,
                bool(rents),
                bool(exact),
                tuple(members[first : first + ranks]),
            )
        return found

    def blocks(self) -> dict[str, Block]:
        """Of those that do not start at once: what stopped their classes."""
        now, begun = self.world.now, set(self.order[: int(self.state["begun"][0])])
        of_class = [self._block(klass) for klass in range(len(self.kernel_state.classes))]
        return {
            job.id: blocks.not_before(job, now) or of_class[self.numbers.klass[number]]
            for number, job in enumerate(self.world.jobs)
            if number not in begun
        }

    def _block(self, klass: int) -> Block:
        row, job = self.kernel_state.classes[klass], self.numbers.heads[klass]
        kind, by, place = int(row["stopped"]), int(row["stopped_by"]), int(row["stopped_at"])
        x = float(row["stopped_x"])
        if kind in (t.FREE, t.BUSY):
            return BUSY
        at = self.world.places[place]
        if kind == t.HELD:
            return blocks.held(self.world.jobs[by], at, x)
        if kind == t.ELSEWHERE:
            return blocks.better_elsewhere(at, x)
        if kind == t.TO_RENT:
            return blocks.to_be_rented(at, x)
        if kind == t.CHEAPER:
            return blocks.cheaper_elsewhere(at, x, float(row["stopped_saves"]) / 1e9)
        return self._capped(by, x, job, place)

    def _capped(self, row: int, used: float, job: JobView, place: int) -> Block:
        caps = self.world.caps.copy()
        caps.used[row] = used
        return blocks.capped(caps, caps.rows[row], self.world.as_form(job, place), self.world.places[place])


def _longer(table: t.Records, more: int) -> t.Records:
    """A copy with room for more."""
    longer = np.zeros(len(table) + max(0, more), dtype=table.dtype)
    longer[: len(table)] = table
    return longer
