"""What a deadline and an hour of waiting are worth where the trace does not say: what the world's policies say, else the planner's default.

So the loss that is reported is in the prices that decisions were made by. It is accounted only: the dispatcher is told what the trace says.
"""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from federator.model.rules import PriceTerm
from federator.model.snapshot import JobView
from federator.planning.rules.rulebook import RuleBook
from federator.simulation.data_moves import all_policies
from federator.simulation.virtual_time import ORIGIN_AT
from federator.simulation.work import TraceJob
from federator.simulation.world import WorldSpec
from federator_policies.documents import compile_set, load


def valued(jobs: Sequence[TraceJob], world: WorldSpec) -> list[TraceJob]:
    """The same jobs, each with the value of its deadline, if it has one, and the price of its waiting, in prices at its submission."""
    said = (job.deadline_s is None or job.value_usd is not None for job in jobs)
    if all(said) and all(job.wait_usd_h is not None for job in jobs):
        return list(jobs)
    return list(_valued(jobs, world))


def _valued(jobs: Sequence[TraceJob], world: WorldSpec) -> Iterator[TraceJob]:
    rules = compile_set(load(all_policies(world)))
    prices = [rule for rule in rules if isinstance(rule, PriceTerm)]
    for job in jobs:
        book = RuleBook(prices, ORIGIN_AT + job.submit_s)
        view = _view(job)
        value_usd = book.value_usd(view) if job.deadline_s is not None else job.value_usd
        wait_usd_h = book.wait_usd_h(view) if job.wait_usd_h is None else job.wait_usd_h
        yield replace(job, value_usd=value_usd, wait_usd_h=wait_usd_h)


def _view(job: TraceJob) -> JobView:
    """As far as prices go by it, with its true run time."""
    return JobView(
        id=job.name,
        revision=0,
        name=job.name,
        queue=job.queue,
        owner=job.owner,
        submitted_at=ORIGIN_AT + job.submit_s,
        priority=job.priority,
        nodes=job.nodes,
        gpus=job.gpus,
        run_s=job.run_s,
        deadline_at=None if job.deadline_s is None else ORIGIN_AT + job.deadline_s,
        value_usd=job.value_usd,
        labels=job.labels,
    )
