"""What one job in one place at one time costs, in USD: the terms that every part of the planner adds up.

The same terms stand in the columns of the linear program, in greedy's choices and in the evaluator: the run (owned
capacity at its marginal price, rented at its bill beyond what is committed), the bytes that are moved for it, the wait, the missed
deadline, and what policies add. Whatever is *better* is better by these.
"""

from dataclasses import dataclass

from federator.model.snapshot import JobView
from federator.planning.burst import rent_usd
from federator.planning.candidates import Candidate, size
from federator.planning.rulebook import RuleBook

NEVER_WAIT_H = 7 * 24.0
"""A job that no plan ever starts is charged its whole value and a week of waiting."""


@dataclass(frozen=True)
class Cost:
    """One job's cost, split. All in USD."""

    run: float = 0.0
    rent: float = 0.0
    wait: float = 0.0
    miss: float = 0.0
    egress: float = 0.0

    @property
    def total(self) -> float:
        """The sum."""
        return self.run + self.rent + self.wait + self.miss + self.egress


def cost(
    book: RuleBook,
    job: JobView,
    at: Candidate,
    start_at: float,
    *,
    rents: bool = False,
    committed_until: float = 0.0,
) -> Cost:
    """Running the job there from `start_at`.

    `rents`: the job is the one that an offer is rented for and carries its whole bill; others share, and pay for what they need
    beyond `committed_until`, until when the instance is needed anyway.
    """
    run_s = at.run_s(job)
    surcharge = book.surcharge_usd_gpu_h(job, at) * size(job) * run_s / 3600.0
    if rents:
        rent, run = rent_usd(job, at), 0.0
    elif at.rented:
        beyond_s = start_at + run_s - max(start_at, committed_until)
        rent, run = at.instance_usd_h * max(0.0, beyond_s) / 3600.0, 0.0
    else:
        rent, run = 0.0, at.price_usd_gpu_h * job.gpus_total * run_s / 3600.0
    return Cost(
        run=run + surcharge,
        rent=rent,
        wait=book.wait_usd_h(job) * max(0.0, start_at - book.at) / 3600.0,
        miss=miss_usd(book, job, start_at + run_s),
        egress=at.transfer(job).usd,
    )


def miss_usd(book: RuleBook, job: JobView, finish_at: float) -> float:
    """The job's value when it finishes after its deadline, else 0."""
    return book.value_usd(job) if job.deadline_at is not None and finish_at > job.deadline_at else 0.0


def never_usd(book: RuleBook, job: JobView) -> Cost:
    """A job that is never started."""
    return Cost(wait=book.wait_usd_h(job) * NEVER_WAIT_H, miss=book.value_usd(job))
