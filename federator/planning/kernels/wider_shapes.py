"""Jobs of several forms, compiled: those that have started at a moment are widened into what is left free."""
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from federator.planning.kernels.compiled import compiled
from federator.planning.kernels.hosts import fits, give
from federator.planning.kernels.limits import adds, blocking
from federator.planning.kernels.reservation import recover
from federator.planning.kernels.start_choice import (
    choose_beside_hold,
    lost_there,
    nearer,
    price,
    start,
    too_dear,
)
from federator.planning.kernels.tables import JOB, USD


@compiled
def take_back(s, job):
    """Undo a start of this moment; its hosts are the `chosen` ones."""
    state, booked = s.state[0], s.jobs[job]
    way = s.ways[booked.way]
    place, before = s.places[way.place], -1
    number = place.soonest
    while s.releases[number].kind != JOB or s.releases[number].of != job:
        before, number = number, s.releases[number].next
    release = s.releases[number]
    if before < 0:
        place.soonest = release.next
    else:
        s.releases[before].next = release.next
    if place.latest == number:
        place.latest = before
    for rank in range(way.nodes):
        s.given[rank].chosen = s.given[release.first_given + rank].host
        give(place, s.hosts[s.given[rank].chosen], way, 1)
    for index in range(s.classes[booked.klass].first_row, s.classes[booked.klass].last_row):
        row = s.pairs[index].a
        if not (place.rented != 0 and s.rows[row].unit >= USD):
            s.rows[row].used -= adds(s, s.pairs[index], way)
    if state.hold_job >= 0 and state.hold_place == way.place and release.at > state.hold_at:
        recover(s, way)
    return number


@compiled
def widen(s, job, at):
    """Everybody has had a turn: a job that has just started takes what is left where it is, if it is better off; anywhere, if nobody waits. It never becomes narrower."""
    state, present, klass = s.state[0], s.jobs[job].way, s.jobs[job].klass
    kind, where, option = s.classes[klass], s.ways[present].place, s.ways[present].option
    release = take_back(s, job)
    avoids = s.jobs[job].first_avoided < s.jobs[job].last_avoided
    best, best_usd, best_miss, best_lost = -1, 0.0, 0.0, False
    for number in range(kind.first_way, kind.last_way):
        way = s.ways[number]
        if s.flags[state.open_ways + klass, number - kind.first_way] == 0:
            continue
        if way.gpus_total < s.ways[present].gpus_total:
            continue
        if (way.place != where and state.waiting > 0) or way.option != option:
            continue
        state.attempts += 1
        if not fits(s.places[way.place], s.hosts, way):
            continue
        if blocking(s, klass, way, s.places[way.place].rented != 0) >= 0:
            continue
        lost = False
        if avoids or (state.hold_job >= 0 and state.hold_place == way.place):
            if not choose_beside_hold(s, job, way, at):
                continue
            lost = avoids and lost_there(s, job, way)
        usd, rent, miss = price(s, job, way, at, kind.value)
        if too_dear(kind, s.places[way.place], rent, miss):
            continue
        rank, best_rank = (usd, miss, lost), (best_usd, best_miss, best_lost)
        if best < 0 or rank < best_rank or (rank == best_rank and nearer(way, s.ways[best])):
            best, best_usd, best_miss, best_lost = number, rank[0], miss, lost
    if best >= 0:
        choose_beside_hold(s, job, s.ways[best], at)
    else:
        best = present
        for index in range(s.ways[present].nodes):
            s.given[index].chosen = s.given[s.releases[release].first_given + index].host
    start(s, job, best, at, True)
