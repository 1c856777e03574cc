"""The list schedule, compiled: from release to release, every class is offered a start in the published order.

Rules keep it fair:

* The first gang that does not fit is *held* a place: others may run there only if the gang still starts on time (EASY backfill).
* A job that would miss its deadline where it fits, and would meet it by waiting for another place or a rental, waits.
* So does one for which another owned place is cheaper, all told: run, data, chance of missing, and the wait itself (`starting.cheaper_later`).
* Caps hold at every moment; what ends gives its part back.

A job of several forms starts in the narrowest that meets its deadline. When everybody has had a turn, those that have started at this moment are widened, in order, into what is
left free, where that is worth it: so nobody is wide while somebody waits who fits into the difference.

Who waits stands in one queue per class: what is true of its first job is true of all behind it. Asking every job at every moment would cost jobs × moments; asking the first of
each class costs classes × moments, and one more question per start. A property test holds all this against an oracle in plain Python, evaluations and all. `s` is the kernel's state that everything lies on.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

import numpy as np

from federator.planning.kernels.compiled import compiled
from federator.planning.kernels.hosts import give
from federator.planning.kernels.limits import count_out
from federator.planning.kernels.reservation import hold_for
from federator.planning.kernels.start_choice import ask, book, force, offer_start
from federator.planning.kernels.tables import BUDGET, BUSY, FREE, QUOTA
from federator.planning.kernels.wider_shapes import widen


@compiled
def gather(s):
    """Put who waits in queues, one per class, in the order of their first jobs."""
    for job in range(len(s.jobs)):
        if s.jobs[job].way < 0:
            s.classes[s.jobs[job].klass].last_member += 1
    begin = 0
    for klass in range(len(s.classes)):
        kind = s.classes[klass]
        members = kind.last_member
        kind.first_member = begin
        kind.next = begin
        kind.last_member = begin
        begin += members
    for turn in range(len(s.jobs)):
        job = s.jobs[turn].turn
        if s.jobs[job].way < 0:
            kind = s.classes[s.jobs[job].klass]
            if kind.first_member == kind.last_member:
                s.classes[s.state[0].waiting].head = s.jobs[job].klass
                s.state[0].waiting += 1
            s.jobs[kind.last_member].member = job
            kind.last_member += 1


@compiled
def move_on(s, index):
    """The first of a class has started: the next one has its turn where it stands."""
    klass, last = s.classes[index].head, s.state[0].waiting - 1
    kind = s.classes[klass]
    kind.next += 1
    waits = kind.next < kind.last_member
    mine = s.jobs[s.jobs[kind.next].member].rank if waits else 0
    while index < last:
        after = s.classes[index + 1].head
        if waits and s.jobs[s.jobs[s.classes[after].next].member].rank > mine:
            break
        s.classes[index].head = after
        index += 1
    if waits:
        s.classes[index].head = klass
    else:
        s.state[0].waiting = last


@compiled
def worth_a_look(s, klass, at):
    """Whether anything has changed for the class since it was last refused."""
    state, kind = s.state[0], s.classes[klass]
    if state.attempts > state.attempts_limit or kind.not_before > at:
        return False
    if kind.stuck != BUSY:
        return kind.stuck not in (QUOTA, BUDGET)
    for index in range(state.fresh):  # noqa: SIM110 - compiled code knows no generators
        if s.flags[state.open_at + klass, s.places[index].fresh] != 0:
            return True
    return False


@compiled
def one_pass(s, at):
    """Offer every waiting job a start at this moment, in order; a class whose first is refused is done with."""
    state = s.state[0]
    if state.hold_job >= 0 and state.hold_at <= at:
        state.hold_job = -1
    for number in range(len(s.places)):
        s.places[number].awaited_s = 0.0
    index, before = 0, state.booked
    while index < state.waiting:
        klass = s.classes[index].head
        kind = s.classes[klass]
        job = s.jobs[kind.next].member
        state.evaluations += 1
        if worth_a_look(s, klass, at):
            kind.stuck = offer_start(s, job, klass, at, kind.stuck == BUSY)
            if kind.stuck == FREE:
                move_on(s, index)
                continue
        if state.hold_job < 0 and kind.gpus > 1 and kind.stuck == BUSY:
            hold_for(s, job, klass, at)
        index += 1
    for started in range(before, state.booked):
        number = s.jobs[started].order
        if s.classes[s.jobs[number].klass].forms != 0:
            widen(s, number, at)


@compiled
def advance(s, at):
    """Let everything due come back; places that gained are fresh. An ended cap's part frees every class it stopped."""
    state, counted = s.state[0], False
    for index in range(state.fresh):
        s.places[s.places[index].fresh].gained = 0
    state.fresh = 0
    for number in range(len(s.places)):
        place = s.places[number]
        while place.soonest >= 0 and s.releases[place.soonest].at <= at:
            release = s.releases[place.soonest]
            place.soonest = release.next
            for entry in range(release.first_given, release.first_given + release.ranks):
                give(place, s.hosts[s.given[entry].host], release, 1)
            counted = count_out(s, release) or counted
            if place.gained == 0:
                place.gained = 1
                s.places[state.fresh].fresh = number
                state.fresh += 1
    if counted:
        for klass in range(len(s.classes)):
            if s.classes[klass].stuck == QUOTA or s.classes[klass].stuck == BUDGET:
                s.classes[klass].stuck = FREE


@compiled
def next_moment(s, at):
    """The soonest release or end of a backoff after this; infinite when nothing is ahead."""
    soonest = np.inf
    for number in range(len(s.places)):
        if s.places[number].soonest >= 0:
            soonest = min(soonest, s.releases[s.places[number].soonest].at)
    for index in range(s.state[0].waiting):
        wake = s.classes[s.classes[index].head].not_before
        if wake > at:
            soonest = min(soonest, wake)
    return max(at, soonest)


@compiled
def shorter(places, one, other):
    """Whether the backlog of a way's place is shorter than that of another's; of equals, whether it is the first."""
    if places[one.place].backlog_s != places[other.place].backlog_s:
        return places[one.place].backlog_s < places[other.place].backlog_s
    return one.choice < other.choice


@compiled
def estimate(s, at):
    """Beyond the work limit: start times from the backlog of each place, as if it were a fluid."""
    for turn in range(len(s.jobs)):
        job = s.jobs[turn].turn
        if s.jobs[job].way >= 0:
            continue
        klass, best = s.jobs[job].klass, -1
        kind = s.classes[klass]
        if kind.asks < 0:
            ask(s, klass, job)
        for number in range(kind.first_way, kind.last_way):
            if s.flags[s.state[0].open_ways + klass, number - kind.first_way] == 0:
                continue
            if best < 0 or shorter(s.places, s.ways[number], s.ways[best]):
                best = number
        if best >= 0:
            place, run_s = s.ways[best].place, s.ways[best].run_s
            begins = at + s.places[place].backlog_s
            s.places[place].backlog_s += kind.size * run_s / max(kind.size, s.places[place].all_gpus)
            s.jobs[job].exact = 0
            book(s, job, best, begins, begins + run_s, 0.0, False)


@compiled
def put_back(s):
    """Starts that are not now, later by what the work before them takes that the snapshot leaves out."""
    for number in range(len(s.jobs)):
        job = s.jobs[number]
        if job.behind_s != 0.0 and job.way >= 0 and job.rents == 0 and job.start_at > s.state[0].now:
            job.start_at += job.behind_s
            job.finish_at += job.behind_s
            job.exact = 0


@compiled
def begin(s):
    """What starts now: what is forced, and the rest in order."""
    for job in range(len(s.jobs)):
        if s.jobs[job].forced >= 0:
            force(s, job, s.jobs[job].forced)
    gather(s)
    one_pass(s, s.state[0].now)
    s.state[0].begun = s.state[0].booked
    for row in range(len(s.rows)):
        s.rows[row].used_now = s.rows[row].used
    for klass in range(len(s.classes)):
        kind = s.classes[klass]
        kind.stopped = kind.stuck
        kind.stopped_by = kind.stuck_by
        kind.stopped_at = kind.stuck_at
        kind.stopped_x = kind.stuck_x
        kind.stopped_saves = kind.stuck_saves


@compiled
def wakes(s, at):
    """Whether a backoff ends then, of a class that waited after what starts now."""
    for klass in range(len(s.classes)):
        kind = s.classes[klass]
        if kind.not_before == at and kind.first_member < kind.last_member:
            return True
    return False


@compiled
def go_on(s):
    """From there on, from release to release."""
    state, at = s.state[0], s.state[0].now
    while (
        state.waiting > 0
        and state.attempts <= state.attempts_limit
        and state.evaluations <= state.evaluations_limit
    ):
        ahead = next_moment(s, at)
        if ahead == np.inf:
            break
        at = ahead
        advance(s, at)
        if wakes(s, at):
            for klass in range(len(s.classes)):
                s.classes[klass].stuck = FREE
        one_pass(s, at)
    if state.attempts > state.attempts_limit or state.evaluations > state.evaluations_limit:
        estimate(s, at)
    put_back(s)
