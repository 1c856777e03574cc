"""Caps and rentals, compiled: what a start adds to limits, which one stops it, and which rental may still come."""
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

import numpy as np

from federator.planning.kernels.compiled import compiled
from federator.planning.kernels.tables import GPUS, JOB, JOBS, NOTHING, OFFER, USD, USD_PER_H, WORK

EPSILON = 1e-6


@compiled
def adds(s, pair, way):
    """What a start adds to a cap that is about its class: `pair` says which, and what a job counts as."""
    row = pair.a
    if s.flags[s.state[0].selects + row, way.place] == 0:
        return 0.0
    unit, place = s.rows[row].unit, s.places[way.place]
    if unit == GPUS:
        return way.gpus_total
    if unit == JOBS:
        return pair.x
    if unit == USD:
        return way.worst_usd
    if place.kind != OFFER:
        return 0.0
    return (place.usd_h if unit == USD_PER_H else 1.0) * way.machines


@compiled
def blocking(s, klass, way, shares):
    """The first cap that the start would exceed; -1 for none. `shares`: on an instance that is rented for another job."""
    for index in range(s.classes[klass].first_row, s.classes[klass].last_row):
        number = s.pairs[index].a
        row = s.rows[number]
        if shares and row.unit >= USD:
            continue
        more = adds(s, s.pairs[index], way)
        if more != 0.0 and row.used + more > row.limit + EPSILON:
            return number
    return -1


@compiled
def count_in(s, klass, way, shares):
    """Count a start in."""
    for index in range(s.classes[klass].first_row, s.classes[klass].last_row):
        number = s.pairs[index].a
        if not (shares and s.rows[number].unit >= USD):
            s.rows[number].used += adds(s, s.pairs[index], way)


@compiled
def count_out(s, release):
    """A release has come: what it gives back to caps. Whether any cap could have gained."""
    if release.kind == JOB:
        job = s.jobs[release.of]
        for index in range(s.classes[job.klass].first_row, s.classes[job.klass].last_row):
            number = s.pairs[index].a
            if s.rows[number].unit < USD:
                s.rows[number].used -= adds(s, s.pairs[index], s.ways[job.way])
    elif release.kind == WORK:
        for index in range(s.backs[release.of], s.backs[release.of + 1]):
            s.rows[s.pairs[index].a].used -= s.pairs[index].x
    return release.kind != NOTHING and len(s.rows) > 0


@compiled
def later_case(s, klass, job):
    """The cheapest rental that need not begin yet and that caps leave room for; -1 when there is none."""
    for index in range(s.jobs[job].first_case, s.jobs[job].last_case):
        if blocking(s, klass, s.ways[s.cases[index].way], False) < 0:
            return index
    return -1


@compiled
def patient_until(s, kind):
    """Until when those of a class that wait may wait for a cheaper place while owned GPUs idle: as the first that was submitted."""
    until = np.inf
    for index in range(kind.next, kind.last_member):
        until = min(until, s.jobs[s.jobs[index].member].patient_until)
    return until
