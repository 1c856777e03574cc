"""Bugs that are planted into the product for a moment, to see that the fault simulation finds them: each is a mistake that somebody could make.

A plant changes one thing through `monkeypatch`; the rest of the product is as it is. `PLANTS` says what breaks, and within how many seeds.
"""

import asyncio
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from federator.api import output_uploads
from federator.control.leases import executor
from federator.control.maintenance import sweeper
from federator.control.record import leadership, records
from federator.control.record.records import Changes
from federator.control.reports import fencing, gangs, statuses
from federator.control.submission import series_runs
from federator.control.submission.local_jobs import LocalJobIntake
from federator.kernel import ids
from federator.model import series
from federator.model.jobs import Job, JobStatus
from federator.model.placements import Order, Placement, PlacementReport, PlacementStatus
from federator.model.rules import CapRow, CapUnit
from federator.ports import Transaction
from federator_agent import bulk, link_use
from federator_agent.core import admission, local_jobs, machine, transition
from federator_agent.core.capacity_report import free_now
from federator_agent.core.instructions import FindRanks, Persist, StartRanks
from federator_agent.kube import pod_status
from federator_agent.slurm import fates
from federator_policies.documents import compile_set
from tests.lab.faults import agents, clusters, dispatchers
from tests.lab.faults.drawing import draw
from tests.lab.faults.running import play_plan
from tests.lab.faults.truth import Finding

Patch = pytest.MonkeyPatch


def skip_the_fence(patch: Patch) -> None:
    """Work that must be gone in time counts as gone at half of that time."""
    patch.setattr(fencing, "margin_s", lambda stop_within_s: -0.5 * stop_within_s)


def replace_by_the_clock(patch: Patch) -> None:
    """Work that is kept is started elsewhere after two minutes of silence."""
    step = fencing.Fences.step

    async def impatient(self: Any) -> list[str]:
        for placement in tuple(self._records.open_placements.values()):
            silent = self._inventory.silent_s(placement.members[0])
            if not placement.ended and placement.order is Order.RUN and silent:
                await self._progress.lose(placement.id, "it is silent", acknowledged=False)
        return await step(self)

    patch.setattr(fencing.Fences, "step", impatient)


def dispatch_twice(patch: Patch) -> None:
    """What was sent to a site counts as never sent: a requeue frees the job at once."""
    patch.setattr(records.Records, "may_run", lambda _self, _placement: False)


def forget_a_lease(patch: Patch) -> None:
    """A machine that is no longer needed counts as gone before its provider was asked to end it."""

    async def forget(self: Any, lease: Any) -> None:
        await self._ended(lease.id, None)

    async def sleep(_self: Any) -> list[str]:
        return []

    patch.setattr(executor.Executor, "_terminating", forget)
    patch.setattr(sweeper.Sweeper, "end_leaks", sleep)


def drop_a_terminal_status(patch: Patch) -> None:
    """One success in three is acknowledged and not written."""
    changes = statuses.StatusHandler.changes_of
    seen: list[str] = []

    def forgetful(self: Any, member: str, report: Any) -> Changes:
        if report.status is PlacementStatus.SUCCEEDED:
            seen.append(report.placement)
            if len(seen) % 3 == 0:
                return Changes()
        return changes(self, member, report)

    patch.setattr(statuses.StatusHandler, "changes_of", forgetful)


def acknowledge_before_it_is_durable(patch: Patch) -> None:
    """Statuses are acknowledged while they are being written."""
    absorb = statuses.StatusHandler.absorb
    writing: set[asyncio.Task[int]] = set()

    async def hasty(self: Any, member: str, reports: tuple[PlacementReport, ...]) -> int:
        writing.add(asyncio.ensure_future(absorb(self, member, reports)))
        highest: int = max((report.seq for report in reports), default=0)
        return highest

    patch.setattr(statuses.StatusHandler, "absorb", hasty)


def write_as_a_deposed_leader(patch: Patch) -> None:
    """Writes are not compared with the leader's term, and the clock is not looked at."""

    async def commit(self: Any, transaction: Transaction) -> int:
        revision: int = await self._store.commit(transaction)
        return revision

    patch.setattr(leadership.Reign, "commit", commit)
    patch.setattr(leadership.Reign, "holds", property(lambda self: self._guard is not None))


def act_as_a_deposed_leader(patch: Patch) -> None:
    """Agents are answered and providers asked although the term is over; only writes are refused."""
    patch.setattr(leadership.Reign, "holds", property(lambda self: self._guard is not None))


def start_before_it_is_written(patch: Patch) -> None:
    """An agent writes its intent down after it has acted on it."""
    finish = transition.Transition.finish

    def late(self: Any) -> Any:
        state, instructions = finish(self)
        return state, sorted(instructions, key=lambda each: isinstance(each, Persist))

    patch.setattr(transition.Transition, "finish", late)


def start_again_after_a_restart(patch: Patch) -> None:
    """An agent that was restarted starts its ranks instead of looking for them."""
    step = machine.step

    def again(state: Any, events: Any, now: Any) -> Any:
        after, instructions = step(state, events, now)
        specs = after.specs
        return after, [
            StartRanks(each.record, specs[each.record.entry.spec_hash], each.ranks)
            if isinstance(each, FindRanks) and each.record.entry.spec_hash in specs
            else each
            for each in instructions
        ]

    patch.setattr(agents, "step", again)


def believe_what_a_wiped_disk_forgot(patch: Patch) -> None:
    """After a reboot nobody looks at what the agent still knows of."""

    async def careless(_self: Any, _member: str, _known: Any) -> None:
        return None

    patch.setattr(statuses.StatusHandler, "rebooted", careless)


def reuse_a_placement_id(patch: Patch) -> None:
    """Every tenth placement has the id of one before."""
    new = ids.IdSource.new
    made: list[str] = []

    def repeating(self: Any, prefix: str) -> str:
        if prefix != "pl":
            return new(self, prefix)
        made.append(new(self, prefix))
        return made[-3] if len(made) % 10 == 0 else made[-1]

    patch.setattr(ids.IdSource, "new", repeating)


def start_half_a_gang(patch: Patch) -> None:
    """A gang is told to run when the first of its members has accepted."""
    reserved = gangs.settle_reserved

    def hasty(placement: Any, at: float) -> Any:
        accepted = [part for part in placement.parts if part.status is PlacementStatus.ACCEPTED]
        if not accepted or any(part.ended for part in placement.parts):
            return reserved(placement, at)
        return gangs.come_to(
            replace(placement, order=Order.RUN, rendezvous="here:1"), PlacementStatus.ACCEPTED, at
        )

    patch.setattr(gangs, "settle_reserved", hasty)


def seat_on_what_is_taken(patch: Patch) -> None:
    """An agent does not take off what it has given away already."""
    patch.setattr(admission, "free_now", lambda state, pool, _records: free_now(state, pool, {}))


def forget_a_queue_limit(patch: Patch) -> None:
    """Limits of queues are not compiled."""

    def lax(documents: Any) -> Any:
        return tuple(
            rule
            for rule in compile_set(documents)
            if not (isinstance(rule, CapRow) and rule.unit is not CapUnit.USD)
        )

    patch.setattr(dispatchers, "compile_set", lax)


def forget_a_budget(patch: Patch) -> None:
    """Caps on money are not compiled."""

    def lavish(documents: Any) -> Any:
        rules = compile_set(documents)
        return tuple(rule for rule in rules if not (isinstance(rule, CapRow) and rule.unit is CapUnit.USD))

    patch.setattr(dispatchers, "compile_set", lavish)


def pass_over_what_was_due_meanwhile(patch: Patch) -> None:
    """What a series was due for while nobody looked has no run, and nobody is told."""
    come_due = series.come_due

    def forgetful(now_is: Any, now: float, running: str) -> Any:
        if now_is.next_at is not None and now - now_is.next_at > 10.0:
            return replace(now_is, next_at=now_is.every.after(now, now_is.anchor_at))
        return come_due(now_is, now, running)

    patch.setattr(series, "come_due", forgetful)


def look_at_no_run_before(patch: Patch) -> None:
    """A run of a series is submitted whether the last one is over or not."""
    patch.setattr(series_runs, "running", lambda _records, _series: "")


def ignore_a_change_of_policies(patch: Patch) -> None:
    """A set of policies that takes the place of another is stored, and the first one goes on to hold."""
    newest: Any = records.Records.policies

    def first(self: Any) -> Any:
        now = newest.fget(self)
        return replace(now, rules=self.policy_sets[min(self.policy_sets)].rules) if self.policy_sets else now

    patch.setattr(records.Records, "policies", property(first))


def adopt_without_its_placement(patch: Patch) -> None:
    """Of what a site admits while it is cut off the job is written down, and not that it runs there."""
    adopt = LocalJobIntake._adopt  # noqa: SLF001 - what is planted stands in its place

    def half(self: Any, changes: Changes, *rest: Any) -> None:
        whole = Changes()
        adopt(self, whole, *rest)
        for row in whole.rows.values():
            if isinstance(row, Job):
                changes.put(replace(row, status=JobStatus.PENDING, placement=None))
            elif not isinstance(row, Placement):
                changes.put(row)

    patch.setattr(LocalJobIntake, "_adopt", half)


def renew_an_allotment_with_each_outage(patch: Patch) -> None:
    """What the dispatcher has adopted does not count against an allotment any more."""
    used = local_jobs.used

    def forgetful(state: Any, records: Any, policy: str, now_at: float) -> tuple[int, float]:
        left = {name: work for name, work in state.local.items() if not work.adopted}
        return used(replace(state, local=left), records, policy, now_at)

    patch.setattr(local_jobs, "used", forgetful)


def take_what_a_cluster_lost_for_done(patch: Patch) -> None:
    """A job that Slurm does not know any more counts as done."""
    fate = fates.fate

    def hopeful(mark: Any, state: str, **rest: Any) -> Any:
        return fates.RankEnd(0) if state == fates.FORGOTTEN else fate(mark, state, **rest)

    patch.setattr(clusters, "fate", hopeful)


def believe_a_pod_that_was_drained(patch: Patch) -> None:
    """A pod that was told to go and ends with exit code 0 counts as done."""
    patch.setattr(pod_status, "_ended_well", lambda _pod, at: pod_status.End(at, 0))


def take_what_arrives_damaged(patch: Patch) -> None:
    """What an agent fetches is not compared with its hash."""

    async def fetch(self: Any, path: str, blob_hash: str, into: Any) -> None:
        del blob_hash
        into.write_bytes(await self._get(path))

    patch.setattr(bulk.Bulk, "_fetch", fetch)


def keep_what_the_first_attempt_left(patch: Patch) -> None:
    """What a later attempt leaves does not take the place of what was collected of one before, as of one that a cluster has evicted."""
    collected = output_uploads._collected  # noqa: SLF001 - what is planted stands in its place

    def stubborn(call: Any, placement: Any, part: Any) -> Changes:
        known = call.core.records.outputs.get(placement.job)
        older = known is not None and known.placement != placement.id
        return Changes() if older else collected(call, placement, part)

    patch.setattr(output_uploads, "_collected", stubborn)


def overrun_a_byte_budget(patch: Patch) -> None:
    """Logs do not wait for their part of the budget of a metered link."""
    patch.setattr(link_use.LinkUse, "_wait_s", lambda _self, _kind: 0.0)


def move_bulk_at_any_hour(patch: Patch) -> None:
    """What is large does not wait for its hours."""
    patch.setattr(link_use.LinkUse, "may_move", lambda _self, _size_bytes: True)


class Plant(NamedTuple):
    """What is planted, and the first seed, from 0 on, that finds it."""

    plant: Callable[[Patch], None]
    seed: int


PLANTS: tuple[Plant, ...] = (
    Plant(skip_the_fence, 4),
    Plant(replace_by_the_clock, 1),
    Plant(dispatch_twice, 0),
    Plant(act_as_a_deposed_leader, 4),
    Plant(write_as_a_deposed_leader, 4),
    Plant(forget_a_lease, 1),
    Plant(drop_a_terminal_status, 0),
    Plant(acknowledge_before_it_is_durable, 43),
    Plant(start_before_it_is_written, 0),
    Plant(start_again_after_a_restart, 0),
    Plant(believe_what_a_wiped_disk_forgot, 4),
    Plant(reuse_a_placement_id, 0),
    Plant(start_half_a_gang, 5),
    Plant(seat_on_what_is_taken, 0),
    Plant(forget_a_queue_limit, 1),
    Plant(forget_a_budget, 1),
    Plant(pass_over_what_was_due_meanwhile, 33),
    Plant(look_at_no_run_before, 13),
    Plant(ignore_a_change_of_policies, 6),
    Plant(adopt_without_its_placement, 8),
    Plant(renew_an_allotment_with_each_outage, 25),
    Plant(take_what_a_cluster_lost_for_done, 12),
    Plant(believe_a_pod_that_was_drained, 14),
    Plant(keep_what_the_first_attempt_left, 12),
    Plant(take_what_arrives_damaged, 6),
    Plant(overrun_a_byte_budget, 2),
    Plant(move_bulk_at_any_hour, 6),
)


def play_with(plant: Callable[[Patch], None], seed: int) -> tuple[Finding, ...]:
    """What a seed finds with the bug in place. Greedy plans alone: the solver makes a seed dearer and is not what is tried here."""
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        return play_plan(replace(draw(seed), solver=False)).findings


def main(most: int = 50) -> None:
    """Look for the first seed that finds each, to bring the numbers above up to date."""
    for plant, _ in PLANTS:
        found = next((seed for seed in range(most) if play_with(plant, seed)), None)
        sys.stdout.write(f"{plant.__name__} {found}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
