"""Promise 5 from the other side: nothing is stopped but for a job that a guarantee or a preemption rule puts before it."""

from collections.abc import Iterator

from federator.model.plans import Preempt
from federator.model.snapshot import BusyView, JobView
from federator.planning.checks.context import CheckContext, Fault, Target, concerns, forms_of
from federator.planning.checks.resizes import change_of, check_helped, check_wider
from federator.planning.checks.shares import asked, beyond, covered, plus

SETTLED_S = 600.0
"""An elastic job is not told to change its form sooner after its start, or after it made room last."""


def check_preempt(context: CheckContext, action: Preempt) -> Iterator[Fault]:
    """The placement runs, is that job's, is stopped once, and the beneficiary waits and has a claim on its place."""
    running = context.running.get(action.placement)
    beneficiary = context.jobs.get(action.beneficiary)
    if running is None:
        yield Fault(5, f"no placement {action.placement} runs")
        return
    target, victim = running[0]
    if victim.job != action.job:
        yield Fault(5, f"placement {action.placement} is of job {victim.job}")
    elif victim.revision and victim.revision != action.revision:
        yield Fault(
            2, f"the job has changed: the plan saw revision {action.revision}, it is now {victim.revision}"
        )
    elif action.placement in context.stopped or action.job in context.acted:
        yield Fault(5, "the plan has another action for this job")
    elif action.form is not None:
        texts = _may_change(context, action, context.elastic_part(action.placement))
        yield from (Fault(5, text) for text in texts)
    elif beneficiary is None:
        yield Fault(5, f"the beneficiary {action.beneficiary} does not wait")
    elif not (_by_guarantee(context, beneficiary, victim, target) or _by_rule(context, beneficiary, victim)):
        yield Fault(5, f"neither a guarantee nor a preemption rule puts {beneficiary.id} before this job")


def apply_preempt(context: CheckContext, action: Preempt) -> None:
    """Remember that this placement is being stopped, which frees nothing within this plan, and what another form of its job takes."""
    context.stopped.add(action.placement)
    for target, victim in context.running[action.placement]:
        for index in context.guarantees_on(victim, target):
            context.given_up[index] = plus(context.given_up[index], asked(victim))
    if action.form is not None:
        context.changes = context.changes.plus(change_of(context, action))


def _may_change(context: CheckContext, action: Preempt, victim: BusyView) -> Iterator[str]:
    """An elastic job that can save itself goes on in another form: in a wider one for itself, in a narrower one for a job that waits."""
    waits_as, form = victim.waits_as, action.form or 0
    if waits_as is None or form == victim.form or form > len(waits_as.forms):
        yield f"the job runs in form {victim.form} and may not go on in form {form}"
        return
    since_at = max(victim.started_at, victim.displaced_at or 0.0)
    if context.now - since_at < SETTLED_S:
        yield f"the job runs as it does for less than {SETTLED_S:g} s"
    then = waits_as.as_form(form)
    wider = then.throughput > waits_as.as_form(victim.form).throughput
    if wider != (action.beneficiary == action.job):
        yield "a job goes on wider for itself alone, and narrower for another"
    elif not wider and action.beneficiary not in context.jobs:
        yield f"the beneficiary {action.beneficiary} does not wait"
    elif wider:
        yield from check_wider(context, action)
    else:
        yield from check_helped(context, context.jobs[action.beneficiary], action)


def _by_rule(context: CheckContext, beneficiary: JobView, victim: BusyView) -> bool:
    return any(
        concerns(rule.who, beneficiary)
        and concerns(rule.victims, victim)
        and context.now - victim.started_at >= rule.minimum_run_s
        and beneficiary.priority - victim.priority >= rule.minimum_priority_gap
        and (victim.displaced_at is None or context.now - victim.displaced_at >= rule.cool_down_s)
        for rule in context.preempt_rules
    )


def _by_guarantee(context: CheckContext, beneficiary: JobView, victim: BusyView, target: Target) -> bool:
    """A guarantee covers the beneficiary there wholly, in one of its forms, and every share that the victim counts towards is exceeded, of something that it has."""
    owed = {
        index
        for index in context.guarantees_on(beneficiary, target)
        if any(covered(form, context.share_use[index], context.dues[index]) for form in forms_of(beneficiary))
    }
    theirs = set(context.guarantees_on(victim, target))
    borrowed = all(
        beyond(
            victim,
            [has - less for has, less in zip(context.share_use[index], context.given_up[index], strict=True)],
            context.dues[index],
        )
        for index in theirs
    )
    return bool(owed - theirs) and borrowed
