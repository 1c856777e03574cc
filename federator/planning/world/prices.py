"""What one job in one place at one time costs, in USD: the terms that every part of the planner adds up.

What the formulas are stands in `kernels.start_cost`; here they are asked of a job and a place. The same terms stand in the columns of the linear program, in greedy's choices and in the evaluator: the run (owned
capacity at its marginal price and at what its site is in doubt, rented at its bill beyond what is committed), the bytes that are moved for it, the wait, the missed
deadline, and what policies add. Whatever is *better* is better by these.
"""

import math

import msgspec

from federator.kernel.quantities import cents_up
from federator.model.snapshot import JobView
from federator.planning.kernels.start_cost import gpus_usd, is_late, opened_at, start_usd, total_usd
from federator.planning.places.candidates import Candidate, size
from federator.planning.rules.calendars import closure
from federator.planning.rules.permits import rent_usd
from federator.planning.rules.rulebook import NEVER_WAIT_H, RuleBook
from federator.planning.world.chances import spread_of

RETRY_S = 300.0
"""What a refused start costs in time: the answer, another turn, another place that is not as good."""


class Cost(msgspec.Struct, frozen=True, gc=False):
    """One job's cost, split. All in USD."""

    run: float = 0.0
    rent: float = 0.0
    wait: float = 0.0
    miss: float = 0.0
    egress: float = 0.0
    late: bool = False
    """Whether it is planned to end after its deadline. One that is planned in time may miss it too: `miss` is its value times that chance."""

    @property
    def total(self) -> float:
        """The sum."""
        return total_usd(self.run, self.rent, self.wait, self.miss, self.egress)


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
    beyond `committed_until`, until when the instance is needed anyway. Where a calendar will have the place closed by then, the job waits until it opens.

    A job of several forms is charged the GPU-hours of form 0 on owned capacity, whatever it runs in: GPUs that a wide form takes beyond would
    idle, or others wait for them, and that is charged where they do. The time that its fastest form would save counts as waiting.
    """
    run_s, value_usd = at.run_s(job), book.value_usd(job)
    deadline_at = math.inf if job.deadline_at is None else job.deadline_at
    closes_at, opens_at = closure(job, at, book) if book.openings else (math.inf, math.inf)
    beyond, wait, miss = start_usd(
        book.at,
        start_at,
        run_s,
        closes_at,
        opens_at,
        at.instance_usd_h,
        committed_until,
        book.wait_usd_h(job),
        longer_s(job, at),
        value_usd,
        deadline_at,
        *(spread_of(job) if value_usd else (1.0, 0.0)),
        0.0 if rents else start_at - book.at,
    )
    charged = job.of or job
    charged_s = at.run_s(charged)
    run = 0.0 if at.rented else gpus_usd(at.price_usd_gpu_h, charged.gpus_total, charged_s)
    surcharge = gpus_usd(book.surcharge_usd_gpu_h(job, at), size(charged), charged_s)
    return Cost(
        run=run + surcharge + doubt_usd(book, job, at),
        rent=rent_usd(job, at, run_s) if rents else beyond,
        wait=wait,
        miss=miss,
        egress=at.transfer(job).usd,
        late=is_late(value_usd, deadline_at, opened_at(closes_at, opens_at, start_at), run_s),
    )


def doubt_usd(book: RuleBook, job: JobView, at: Candidate) -> float:
    """What the doubt of a place is expected to cost a job: the price of its waiting (as if it had just arrived), for as long as a refusal takes."""
    return at.doubt * RETRY_S / 3600.0 * book.fresh_wait_usd_h(job) if at.doubt else 0.0


def longer_s(job: JobView, at: Candidate) -> float:
    """How much longer the job runs there than it would in its fastest form; 0 for a job of one form."""
    whole = job.of or job
    if not whole.forms:
        return 0.0
    fastest = max(1.0, *(form.throughput for form in whole.forms))
    return (at.run_s(job) - at.transfer(job).seconds) * (1.0 - job.throughput / fastest)


def never_usd(book: RuleBook, job: JobView) -> Cost:
    """A job that is never started."""
    value_usd = book.value_usd(job)
    return Cost(wait=book.wait_usd_h(job) * NEVER_WAIT_H, miss=value_usd, late=value_usd > 0.0)


def worth_usd(cost_usd: float, surer: float) -> float:
    """So much a met deadline must be worth that the cost is less than what is gained, where it is met so much likelier for it: a little more than enough."""
    return cents_up(1.02 * cost_usd / surer + 0.01)
