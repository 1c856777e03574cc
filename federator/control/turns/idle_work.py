"""Running jobs whose GPUs do nothing, in queues that say for how long they may (`max_idle`): they stop, so that others have the GPUs.

A job that is stopped has its grace to save itself, whatever becomes of it then: it is cancelled, waits again, is held, or goes on in its smallest form, as its
queue says. It grows again as other elastic work does.

Seen by what sites have measured, and by nothing else: a site that measures nothing ends nothing, and after a restart of the dispatcher the time counts from what
sites say anew. A job's owner is told before, where the settings say so (`alerts.idle_gpus_s`).
"""

from federator.control.administration.authority import Authority
from federator.control.record.batches import write_each
from federator.control.record.event_writer import EventWriter
from federator.control.record.records import Changes, Records
from federator.control.reports.measurements import Measurements
from federator.kernel.quantities import format_duration
from federator.model.jobs import JobStatus, Outcome, TerminalReason
from federator.model.placements import Order, Placement

_DOES = {"cancel": "ends", "requeue": "requeues", "hold": "holds", "shrink": "shrinks"}


async def end_idle_work(
    records: Records, event_writer: EventWriter, measurements: Measurements, authority: Authority
) -> None:
    """Stop what has been idle for longer than its queue allows; nothing is written when there is nothing."""
    limits_s = [terms.max_idle_s for terms in authority.queues if terms.max_idle_s is not None]
    if not limits_s:
        return
    idle_s = {placement.id: used.idle_s for placement, used in measurements.idle(min(limits_s))}

    def due(name: str) -> bool:
        placement = records.placements[name]
        job = records.jobs[placement.job]
        limit_s = authority.said(job.queue).max_idle_s
        runs = job.placement == name and job.status is JobStatus.RUNNING and placement.order is Order.RUN
        if not runs or limit_s is None or idle_s[name] < limit_s:
            return False
        shrinks = authority.said(job.queue).idle_verb == "shrink"
        return not shrinks or _smallest(records, placement) is not None

    def end(changes: Changes, name: str) -> None:
        if not due(name):
            return
        placement = records.placements[name]
        job = records.jobs[placement.job]
        terms = authority.said(job.queue)
        verb, limit = terms.idle_verb or "cancel", format_duration(terms.max_idle_s or 0.0)
        idle = format_duration(idle_s[name] // 60 * 60)
        because = f"its GPUs did nothing for {idle}; queue {job.queue} {_DOES[verb]} such work after {limit}"
        if verb == "cancel":
            outcome = Outcome(TerminalReason.CANCELLED, because)
            event_writer.job(changes, job, "cancel", because, outcome=outcome)
        elif verb == "shrink":
            form = _smallest(records, placement)
            event_writer.job(changes, job, "suspend", because, pause_for="resize", form=form)
        else:
            event_writer.job(changes, job, "suspend", because, pause_for=verb)
        event_writer.stop(changes, placement, because, sent=True)

    await write_each(records, list(filter(due, idle_s)), end)


def _smallest(records: Records, placement: Placement) -> int | None:
    """The form with the fewest GPUs in which an elastic job could go on, on GPUs such as it has; None: it has none that is smaller than this."""
    spec = records.spec(placement.spec_hash)
    if not spec.elastic:
        return None
    has = spec.as_form(placement.form)
    smaller: dict[int, float] = {}
    for number in range(len(spec.forms or ()) + 1):
        form = spec.as_form(number)
        gpus = form.resources.gpus
        fits = not gpus.models or placement.model in gpus.models
        if fits and gpus.memory_mib <= has.resources.gpus.memory_mib and form.gpus_total < placement.gpus:
            smaller[number] = form.gpus_total
    return min(smaller, key=lambda number: smaller[number], default=None)
