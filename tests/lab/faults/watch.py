"""The promises that are judged by what becomes durable, by what the cloud bills, and in the end.

As in `truth`, nothing is asked of a dispatcher while it works. Only when all faults are over is it asked what its users would ask: what waits and why.
"""

import math
from collections.abc import Mapping

from federator.model.capacity import LEASE_ENDED, Lease
from federator.model.jobs import TERMINAL, Job, JobStatus
from federator.model.placements import Placement, PlacementStatus
from federator.model.rules import PolicySet
from federator.model.series import Series, SeriesStatus, series_key
from federator.planning.wording.told import because_of
from federator.ports import Transaction
from tests.lab.faults.clouds import Cloud, over
from tests.lab.faults.hosts import Host
from tests.lab.faults.journal import Journal
from tests.lab.faults.plan import Plan
from tests.lab.faults.truth import Truth

CENT_USD = 0.01
CLOCKS_APART_S = 180.0
"""A dispatcher's clock has been set by no more."""


class Watch:
    """Sees each transaction of the store when it is carried out."""

    def __init__(
        self, plan: Plan, truth: Truth, hosts: Mapping[str, Host], cloud: Cloud, journal: Journal
    ) -> None:
        self._plan = plan
        self._truth = truth
        self._hosts = hosts
        self._cloud = cloud
        self._journal = journal
        self._worst_usd = 0.0
        """Spent and committed, when a lease was last written. Over a budget that was lowered it may stay, and not grow."""
        self.moved_s = 0.0
        """When something of a job or a machine was last written."""

    def written(self, transaction: Transaction) -> None:
        """Judge the rows that were just written."""
        rows, keys = self._truth.rows, [put.key.partition("/") for put in transaction.puts]
        before = {name: rows.jobs.get(name) for prefix, _, name in keys if prefix == "job"}
        former = {name: rows.series.get(name) for prefix, _, name in keys if prefix == "series"}
        for row in self._truth.rows.take(transaction):
            self.moved_s = self._truth.now_s
            if isinstance(row, Job):
                self._job(row, before[row.id])
            elif isinstance(row, Placement):
                self._placement(row)
            elif isinstance(row, Lease):
                self._lease(row)
            elif isinstance(row, PolicySet):
                self._policies(row)
            else:
                self._series(row)
                self._none_is_passed_over(row, former[series_key(row.owner, row.name)])

    def _job(self, job: Job, before: Job | None) -> None:
        if before is None or before.status is not job.status:
            self._journal.note("store", f"job {job.id[-6:]} {job.name} is {job.status}: {_why(job)[:90]}")
        if before is not None and before.terminal and before.status is not job.status:
            self._truth.find(1, f"{job.id} was {before.status} and is {job.status}")
        if not _why(job) and not job.terminal:
            self._truth.find(10, f"{job.id} is {job.status} without a reason")
        succeeded = job.status is JobStatus.SUCCEEDED and (before is None or not before.terminal)
        if succeeded and not any(
            placement.job == job.id and name in self._truth.succeeded
            for name, placement in self._truth.rows.placements.items()
        ):
            self._truth.find(1, f"{job.id} counts as succeeded, and no attempt of it has come to a good end")

    def _policies(self, applied: PolicySet) -> None:
        self._truth.policies = self._plan.policy_sets[int(applied.reason)]
        self._journal.note("store", f"policies, version {applied.version}: {self._truth.policies}")

    def _placement(self, placement: Placement) -> None:
        if self._truth.placed(placement) and placement.id not in self._truth.local:
            self._is_permitted(placement)
        self._journal.note(
            "store",
            f"placement {placement.id[-6:]} of {placement.job[-6:]} at {placement.site} is {placement.status}"
            f", {placement.order}{' ' + placement.detail[:60] if placement.detail else ''}",
        )

    def _is_permitted(self, placement: Placement) -> None:
        """What is placed anew is so by the policies in force: within its queue's limit, and where no site is closed to it."""
        rows, policies = self._truth.rows, self._truth.policies
        queue = rows.jobs[placement.job].queue
        limit = policies.limits.get(queue)
        used = sum(
            _held(each)
            for each in rows.placements.values()
            if not each.ended and rows.jobs[each.job].queue == queue
        )
        if limit is not None and used > limit:
            self._truth.find(5, f"queue {queue} is given {used} GPUs of {limit} with {placement.id}")
        for closing in policies.closings:
            closed = all(
                closing.holds(self._truth.now_s + off_s) for off_s in (-CLOCKS_APART_S, CLOCKS_APART_S)
            )
            if closed and closing.site == placement.site and closing.kept_for != queue:
                self._truth.find(
                    0, f"{placement.id} is placed at {placement.site}, which is closed to {queue}"
                )

    def _series(self, series: Series) -> None:
        said = series.notes[-1].text if series.notes else ""
        self._journal.note("store", f"series {series.name} has had {series.runs} runs; {said[:120]}")
        jobs = [job for job in self._truth.rows.jobs.values() if job.series == series.name]
        if sorted(job.name for job in jobs) != sorted(series.run(n) for n in range(1, series.runs + 1)):
            self._truth.find(
                1,
                f"of {series.runs} runs of {series.name} these are there: {sorted(job.name for job in jobs)}",
            )
        if len({job.due_at for job in jobs}) < len(jobs):
            self._truth.find(2, f"two runs of {series.name} are for one time")
        if sum(job.status not in TERMINAL for job in jobs) > 1:
            self._truth.find(2, f"two runs of {series.name} are open at once")

    def _none_is_passed_over(self, series: Series, former: Series | None) -> None:
        """Of each time that is decided of now there is a run, or one is owed; or there is a new word, why not."""
        if former is None or former.next_at is None or former.every != series.every:
            return
        if SeriesStatus.PAUSED in (former.status, series.status) or "cancelled" in series.ended_because:
            return
        due: list[float | None] = [former.owed_at]
        at: float | None = former.next_at
        while at is not None and at < (series.next_at or math.inf):
            due.append(at)
            at = former.every.after(at, former.anchor_at)
        had = {job.due_at for job in self._truth.rows.jobs.values() if job.series == series.name}
        lost = [each for each in due if each is not None and each not in {*had, series.owed_at}]
        if lost and series.notes == former.notes:
            self._truth.find(1, f"of {series.name} what is due at {lost} has no run, and nobody says why")

    def _lease(self, lease: Lease) -> None:
        self._journal.note(
            "store",
            f"lease {lease.id[-6:]} is {lease.status}: {lease.billed_usd:.2f} of {lease.committed_usd:.2f} USD",
        )
        if lease.evidence is None or not lease.evidence.job or not lease.evidence.policy:
            self._truth.find(11, f"{lease.id} is rented without evidence")
        leases = self._truth.rows.leases.values()
        worst_usd = sum(
            max(each.billed_usd, 0.0 if each.status in LEASE_ENDED else each.committed_usd) for each in leases
        )
        budget_usd = self._truth.policies.budget_usd or 0.0
        if worst_usd > max(budget_usd, self._worst_usd) + CENT_USD:
            self._truth.find(6, f"{worst_usd:.2f} USD are spent or committed of {budget_usd:.2f}")
        self._worst_usd = worst_usd

    # -- in the end ---------------------------------------------------------------------------------------------------

    def unfinished(self) -> list[str]:
        """What is not over yet: jobs that were accepted, machines, leases, ranks."""
        rows = self._truth.rows
        left = []
        for name, plan in self._truth.accepted.items():
            job = rows.jobs.get(name)
            if job is None:
                left.append(f"{name} ({plan.name}) was accepted and is not in the store")
            elif job.status not in TERMINAL:
                left.append(f"{name} ({plan.name}) is {job.status}: {_why(job)}")
        left += [
            f"{job.id} ({job.name}) is {job.status}"
            for job in rows.jobs.values()
            if job.status not in TERMINAL and job.id not in self._truth.accepted
        ]
        left += [
            f"{lease.id} is {lease.status}"
            for lease in rows.leases.values()
            if lease.status not in LEASE_ENDED
        ]
        left += [
            f"series {each.name} is {each.status}" for each in rows.series.values() if each.ended_at is None
        ]
        left += [f"machine {each.name} is {each.status}" for each in self._cloud.final() if not over(each)]
        left += [f"rank {rank.name} of {rank.job} runs at {rank.member}" for rank in self._truth.live()]
        return left

    def judge_end(self) -> None:
        """Once nothing goes wrong any more and all has had its time."""
        for what in self.unfinished():
            leaked = what.startswith(("machine", "lease"))
            self._truth.find(7 if leaked else 1, f"in the end {what}")
        rows = self._truth.rows
        for instance in self._cloud.final():
            lease = rows.leases.get(instance.name)
            if lease is None:
                self._truth.find(7, f"machine {instance.name} has no lease")
            elif abs(lease.billed_usd - instance.billed_usd) > CENT_USD:
                self._truth.find(
                    6,
                    f"{lease.id} was {lease.billed_usd:.2f} USD here and {instance.billed_usd:.2f} USD there",
                )
        for name in sorted(self._truth.succeeded):
            placement = rows.placements.get(name)
            if placement is not None and placement.status is not PlacementStatus.SUCCEEDED:
                self._judge_loss(placement)

    def _judge_loss(self, placement: Placement) -> None:
        """A good end that is not known as one: only if what would have told of it is gone, or if it was being ended."""
        ranks = self._truth.ever(placement.id).values()
        if not any(self._hosts[rank.member].forgot(rank) or self._truth.meant_to_end(rank) for rank in ranks):
            self._truth.find(1, f"{placement.id} has come to a good end and counts as {placement.status}")


def _why(job: Job) -> str:
    return because_of(job, job.submitted_at)


def _held(placement: Placement) -> int:
    """GPUs of the ranks that may still run: those of a gang at a member that has told of their end are free."""
    parts = [placement.part(member) for member in placement.members]
    over = sum(part is not None and part.ended for part in parts)
    return placement.gpus_per_node * (placement.nodes - over)
