"""One decision, compiled: carried out, and priced.

The terms are those of `prices.cost`, which says what they mean; sums go in the published order of jobs, so that they come
out the same wherever they are made.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

import numpy as np

from federator.planning.kernels.chances import late_share
from federator.planning.kernels.compiled import compiled, kernel
from federator.planning.kernels.limits import blocking, later_case
from federator.planning.kernels.list_schedule import begin, go_on
from federator.planning.kernels.start_choice import late
from federator.planning.kernels.start_cost import start_usd, total_usd
from federator.planning.kernels.tables import OFFER, OWNED


@compiled
def starts_now(s, job):
    """Whether the booking is a decision of now: a rental, or a start at once on capacity that is there."""
    if job.way < 0:
        return False
    if job.rents != 0:
        return True
    kind = s.places[s.ways[job.way].place].kind
    return job.exact != 0 and job.start_at <= s.state[0].now and kind != OFFER


@compiled
def charge(s, job):
    """What the job costs as it is booked."""
    kind, state = s.classes[job.klass], s.state[0]
    if job.way < 0:
        job.wait_usd = job.wait_usd_h * state.never_h
        job.miss_usd = kind.value
        job.late = 1 if kind.value > 0.0 else 0
        return
    way = s.ways[job.way]
    job.run_usd = way.run_usd
    job.egress_usd = way.egress_usd
    place = s.places[way.place]
    beyond, job.wait_usd, job.miss_usd = start_usd(
        state.now,
        job.start_at,
        way.run_s,
        way.closes,
        way.opens,
        place.usd_h,
        job.committed_until,
        job.wait_usd_h,
        way.longer_s,
        kind.value,
        kind.deadline,
        kind.typical,
        kind.steep,
        0.0 if job.rents != 0 else job.start_at - state.now,
    )
    job.rent_usd = way.whole_usd if job.rents != 0 else beyond
    job.late = 1 if late(kind, way, job.start_at) else 0


@compiled
def put_off(s, number):
    """The rental later that saves a job which would miss, and pays; -1 where there is none. Its price takes the place of the booking's."""
    job, state = s.jobs[number], s.state[0]
    if job.way >= 0 and (job.rents != 0 or job.start_at <= state.now):
        return -1
    found = later_case(s, job.klass, number)
    if found < 0:
        return -1
    case = s.cases[found]
    start = case.rent_at + (case.start_at - state.now)
    way, kind = s.ways[case.way], s.classes[job.klass]
    _, wait, miss = start_usd(
        state.now,
        start,
        way.run_s,
        way.closes,
        way.opens,
        0.0,
        0.0,
        job.wait_usd_h,
        way.longer_s,
        kind.value,
        kind.deadline,
        kind.typical,
        kind.steep,
        0.0,
    )
    planned = total_usd(job.run_usd, job.rent_usd, job.wait_usd, job.miss_usd, job.egress_usd)
    if total_usd(0.0, case.usd, wait, miss, 0.0) >= planned:
        return -1
    job.run_usd = 0.0
    job.rent_usd = case.usd
    job.wait_usd = wait
    job.miss_usd = miss
    job.late = 0
    job.egress_usd = 0.0
    return found


@compiled
def unmet(s, number):
    """The price of what a policy requires to be rented now, and this decision does not; infinite where it wants nothing."""
    job, least = s.jobs[number], np.inf
    if job.starts != 0 or (job.way >= 0 and s.places[s.ways[job.way].place].kind != OWNED):
        return least
    for index in range(job.first_required, job.last_required):
        if blocking(s, job.klass, s.ways[s.cases[index].way], False) < 0:
            least = min(least, s.cases[index].usd)
    return least


@compiled
def counted(promise, way):
    """What a job adds to a guarantee that way, in GPUs."""
    if promise.kind == 0:
        return way.gpus_total * promise.each
    if promise.kind == 1:
        return float(way.nodes * way.cpus) * promise.each
    return float(way.nodes * way.memory) * promise.each


@compiled
def shortfall(s, number):
    """GPUs that a guarantee is short of after this decision, as far as there is work that wants them."""
    state, promise = s.state[0], s.promises[number]
    used, wanted = promise.used, 0.0
    for index in range(len(s.jobs)):
        job = s.jobs[index]
        kind = s.classes[job.klass]
        if s.flags[state.promised_to + number, job.klass] == 0:
            continue
        if job.starts == 0:
            at_home = kind.first_way < kind.last_way and s.places[s.ways[kind.first_way].place].kind == OWNED
            wanted += counted(promise, s.ways[kind.first_way]) if at_home else 0.0
        elif s.flags[state.promised_at + number, s.ways[job.way].place] != 0:
            used += counted(promise, s.ways[job.way])
    return max(0.0, min(promise.due, used + wanted) - used)


@compiled
def add_up(s):
    """Every job's costs, and the terms."""
    state = s.state[0]
    for row in range(len(s.rows)):
        s.rows[row].used = s.rows[row].used_now
    for number in range(len(s.jobs)):
        job = s.jobs[number]
        job.starts = 1 if starts_now(s, job) else 0
        charge(s, job)
        job.later = put_off(s, number)
        state.run_usd += job.run_usd
        state.rent_usd += job.rent_usd
        state.wait_usd += job.wait_usd
        state.miss_usd += job.miss_usd
        state.egress_usd += job.egress_usd
        least = unmet(s, number)
        if least < np.inf:
            state.policy_usd += least + state.required_usd
    for number in range(len(s.promises)):
        state.shortfall_usd += shortfall(s, number) * s.promises[number].usd


@kernel
def decide(s):
    """Carry out what is forced, fill what is left free in the published order, let the schedule go on, and add up."""
    begin(s)
    if s.state[0].whole != 0:
        go_on(s)
        add_up(s)


@kernel
def late_shares(deadline_at, start_at, run_s, waits_s, typical, steep, shares):
    """`late_share` of whole arrays, all of the same length, into the last one."""
    for index in range(len(shares)):
        shares[index] = late_share(
            deadline_at[index],
            start_at[index],
            run_s[index],
            waits_s[index],
            typical[index],
            steep[index],
        )
