"""One job's start, compiled: where it may go, which of its places is the cheapest, and whether waiting is better.

`s` is the kernel's state that everything lies on; it is large, so what is asked most often is given its parts.

A job had better wait for another owned place than start where it fits where that costs less, all told: the run, the data that has to be moved, the chance that the deadline is missed,
and the wait itself. Work that waits for a place speaks for its time there, so that no more waits than the place can serve. It ends: beside owned GPUs that idle and that it fits no job
is patient beyond `patient_until`. Rented time, which is paid for, may be declined for longer. No job waits for the end of overdue work: nobody knows when that ends.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

import numpy as np

from federator.planning.kernels import chances, start_cost
from federator.planning.kernels.compiled import compiled, shared
from federator.planning.kernels.hosts import choose, fits, give, link, needed_until, ranks_on, soonest_room
from federator.planning.kernels.limits import blocking, count_in, later_case, patient_until
from federator.planning.kernels.reservation import suffer, survives
from federator.planning.kernels.start_cost import is_late, opened_at, start_usd, total_usd
from federator.planning.kernels.tables import (
    BUDGET,
    BUSY,
    CHEAPER,
    ELSEWHERE,
    FREE,
    HELD,
    JOB,
    LEAST_GAIN,
    MOST_ALIKE,
    NOTHING,
    OFFER,
    OWNED,
    QUOTA,
    TO_RENT,
    USD,
)

shared(
    chances.late_share,
    start_cost.opened_at,
    start_cost.beyond_usd,
    start_cost.waited_usd,
    start_cost.wait_usd,
    start_cost.is_late,
    start_cost.start_usd,
    start_cost.total_usd,
)


@compiled
def ask(s, klass, job):
    """Where the class may go in this schedule: at home, on leases that its first job may use, and beside a job that rents."""
    state = s.state[0]
    s.classes[klass].asks = job
    first = s.classes[klass].first_way
    for number in range(first, s.classes[klass].last_way):
        s.flags[state.open_at + klass, s.ways[number].place] = 0
    for number in range(first, s.classes[klass].last_way):
        where = s.ways[number].place
        kind = s.places[where].kind
        usable = kind == OWNED or (state.bursts != 0 and s.flags[state.usable + job, number - first] != 0)
        if kind == OFFER:
            usable = usable and s.places[where].rented != 0
            usable = usable and s.ways[number].machines == 1
        s.flags[state.open_ways + klass, number - first] = 1 if usable else 0
        if usable:
            s.flags[state.open_at + klass, where] = 1


@compiled
def avoid(s, job, place):
    """Mark the hosts of members where the job was not lost before; whether there are others."""
    some, begin, hosts = False, s.places[place].first_host, s.places[place].hosts
    for index in range(s.jobs[job].first_avoided, s.jobs[job].last_avoided):
        if s.pairs[index].a == place:
            if not some:
                for host in range(hosts):
                    s.hosts[host].able = 1
            some = True
            for host in range(hosts):
                if s.hosts[begin + host].member == s.pairs[index].b:
                    s.hosts[host].able = 0
    return some


@compiled
def choose_for(s, job, way):
    """Hosts for the job's ranks into `chosen`: where it was lost before only if there is no room elsewhere."""
    place = s.places[way.place]
    if avoid(s, job, way.place) and choose(place, s.hosts, s.given, way, True):
        return True
    return choose(place, s.hosts, s.given, way, False)


@compiled
def choose_beside_hold(s, job, way, at):
    """Hosts for a job that fits there; false when that would delay the gang that the place is held for."""
    state, place = s.state[0], s.places[way.place]
    if not choose_for(s, job, way):
        return False
    if state.hold_job < 0 or state.hold_place != way.place or state.hold_job == job:
        return True
    if at + way.run_s <= state.hold_at or survives(s, way):
        return True
    if place.kind != OWNED:
        return False
    gang = s.ways[state.hold_way]
    for index in range(place.hosts):
        host = s.hosts[index]
        left = ranks_on(
            host.held_gpus - way.gpus, host.held_cpus - way.cpus, host.held_memory - way.memory, gang
        )
        host.able = 1 if left == ranks_on(host.held_gpus, host.held_cpus, host.held_memory, gang) else 0
    return choose(place, s.hosts, s.given, way, True) and survives(s, way)


@compiled
def lost_there(s, job, way):
    """Whether one of the `chosen` hosts is of a member where the job was lost before."""
    for index in range(s.jobs[job].first_avoided, s.jobs[job].last_avoided):
        if s.pairs[index].a == way.place:
            for rank in range(way.nodes):
                if s.hosts[s.given[rank].chosen].member == s.pairs[index].b:
                    return True
    return False


@compiled
def price(s, job, way, at, value_usd):
    """What ranks a start there, its cost to a billionth of a USD; its rent, and what its chance to miss costs. `value_usd`: of its deadline, or 0 to leave that out."""
    place, kind, now = s.places[way.place], s.classes[s.jobs[job].klass], s.state[0].now
    rent, wait, miss = start_usd(
        now,
        at,
        way.run_s,
        way.closes,
        way.opens,
        place.usd_h,
        needed_until(place, s.releases),
        s.jobs[job].wait_usd_h,
        way.longer_s,
        value_usd,
        kind.deadline,
        kind.typical,
        kind.steep,
        at - now,
    )
    return np.floor(total_usd(way.run_usd, rent, wait, miss, way.egress_usd) * 1e9 + 0.5), rent, miss


@compiled
def late(kind, way, at):
    """Whether a start there then is planned to end after the deadline."""
    return is_late(kind.value, kind.deadline, opened_at(way.closes, way.opens, at), way.run_s)


@compiled
def too_dear(kind, place, rent, miss):
    """Whether rented time there costs more than the chance of the deadline that it brings is worth, where it is for deadlines only."""
    return kind.frugal != 0 and place.kind != OWNED and rent > kind.value - miss


@compiled
def nearer(one, other):
    """Of two ways at one price: where fewest GPUs per host are left over, where it is fastest, the first place."""
    if one.left_over != other.left_over:
        return one.left_over < other.left_over
    if one.run_s != other.run_s:
        return one.run_s < other.run_s
    return one.choice < other.choice


@compiled
def offer_start(s, job, klass, at, gained):
    """Start the job at the cheapest of its places that fits (`gained`: of those that have), or note why not."""
    state, kind = s.state[0], s.classes[klass]
    if kind.asks < 0:
        ask(s, klass, job)
    avoids = s.jobs[job].first_avoided < s.jobs[job].last_avoided
    held, capped, owned, best = False, False, False, -1
    best_first, best_usd, best_miss, best_lost = 0, 0.0, 0.0, False
    for number in range(kind.first_way, kind.last_way):
        way = s.ways[number]
        shut = s.flags[state.open_ways + klass, number - kind.first_way] == 0
        if shut or (gained and s.places[way.place].gained == 0):
            continue
        state.attempts += 1
        if not fits(s.places[way.place], s.hosts, way):
            continue
        row, lost = blocking(s, klass, way, s.places[way.place].rented != 0), False
        if row >= 0:
            if not capped:
                note(kind, row, way.choice, s.rows[row].used)
            capped = True
            continue
        if avoids or (state.hold_job >= 0 and state.hold_place == way.place):
            if not choose_beside_hold(s, job, way, at):
                held = True
                continue
            lost = avoids and lost_there(s, job, way)
        usd, rent, miss = price(s, job, way, at, kind.value)
        if too_dear(kind, s.places[way.place], rent, miss):
            continue
        owned = owned or s.places[way.place].kind == OWNED
        first = way.first + (way.if_late if late(kind, way, at) else 0)
        rank, best_rank = (first, usd, miss, lost), (best_first, best_usd, best_miss, best_lost)
        if best < 0 or rank < best_rank or (rank == best_rank and nearer(way, s.ways[best])):
            best, best_first, best_usd, best_miss, best_lost = number, first, usd, miss, lost
    if best >= 0:
        better = worth_waiting_for(s, job, klass, best, at, best_usd, owned)
        if better == FREE:
            choose_beside_hold(s, job, s.ways[best], at)
            start(s, job, best, at, False)
        return better
    return refusal(s, kind, held, capped)


@compiled
def worth_waiting_for(s, job, klass, best, at, best_usd, owned):
    """Why a job lets the best of its places that are free go by, or that it does not (`FREE`)."""
    kind, way = s.classes[klass], s.ways[best]
    better = better_later(s, job, klass, at) if late(kind, way, at) else FREE
    return better if better != FREE else cheaper_later(s, job, klass, at, best, best_usd, owned)


@compiled
def refusal(s, kind, held, capped):
    """What stops a class that starts nowhere; a hold comes first."""
    state = s.state[0]
    if held and state.hold_job >= 0:
        note(kind, state.hold_job, state.hold_place, state.hold_at)
        return HELD
    if capped:
        return QUOTA if s.rows[kind.stuck_by].unit < USD else BUDGET
    return BUSY


@compiled
def note(kind, by, place, x):
    """The particulars of what stops a class."""
    kind.stuck_by = by
    kind.stuck_at = place
    kind.stuck_x = x


@compiled
def least_here(s, job, klass, at, here, usd):
    """What the cheapest of a job's forms costs where it starts; as it starts, where that is rented, or it has one form only."""
    kind = s.classes[klass]
    if kind.forms != 0 and s.places[here.place].kind == OWNED:
        for number in range(kind.first_way, kind.last_way):
            way = s.ways[number]
            if way.place == here.place:
                usd = min(usd, price(s, job, way, at, kind.value)[0])
    return usd


@compiled
def cheaper_later(s, job, klass, at, start, usd, owned):
    """Whether waiting for another owned place costs less, all told, than starting at once by that way for so much, for the last of those that are alike."""
    kind, state, here = s.classes[klass], s.state[0], s.ways[start]
    best, best_at, alike = -1, 0.0, kind.last_member - kind.next
    until = patient_until(s, kind) if owned else np.inf
    if alike >= MOST_ALIKE or until <= at:
        return FREE
    least_usd = least_here(s, job, klass, at, here, usd)
    best_usd = least_usd - LEAST_GAIN
    for number in range(kind.first_way, kind.last_way):
        way, place = s.ways[number], s.places[s.ways[number].place]
        if place.kind != OWNED or s.flags[state.open_at + klass, way.place] == 0:
            continue
        state.attempts += 1
        no_choice = kind.forms != 0 and (way.place == here.place or way.option > here.option)
        # The chance of missing only adds, and takes powers: it is asked of the few that could do without it.
        if no_choice or price(s, job, way, at, 0.0)[0] >= best_usd:
            continue
        if kind.value != 0.0 and price(s, job, way, at, kind.value)[0] >= best_usd:
            continue
        state.epoch += 1
        begins = soonest_room(place, s.hosts, s.releases, s.given, way, state.epoch, until, True)
        if begins <= at or begins == np.inf:
            continue
        begins += place.awaited_s + (alike - 1) * kind.size * way.run_s / max(kind.size, place.all_gpus)
        then_usd = price(s, job, way, begins, kind.value)[0]
        if begins <= until and then_usd < best_usd:
            best, best_usd, best_at = number, then_usd, begins
    if best < 0:
        return FREE
    place = s.places[s.ways[best].place]
    place.awaited_s += alike * kind.size * s.ways[best].run_s / max(kind.size, place.all_gpus)
    note(kind, -1, s.ways[best].place, best_at)
    kind.stuck_saves = least_usd - best_usd
    return CHEAPER


@compiled
def better_later(s, job, klass, at):
    """Whether waiting for another place, or for a rental, would meet the deadline that starting now misses."""
    kind, state = s.classes[klass], s.state[0]
    for number in range(kind.first_way, kind.last_way):
        way = s.ways[number]
        if s.flags[state.open_ways + klass, number - kind.first_way] == 0:
            continue
        state.attempts += 1
        if at + way.run_s > kind.deadline:
            continue
        state.epoch += 1
        place = s.places[way.place]
        begins = soonest_room(place, s.hosts, s.releases, s.given, way, state.epoch, kind.deadline, False)
        if begins > at and begins + way.run_s <= kind.deadline:
            note(kind, -1, way.place, begins)
            return ELSEWHERE
    if state.bursts == 0 or at > state.now:
        return FREE
    case = later_case(s, klass, job)
    if case < 0:
        return FREE
    note(kind, -1, s.ways[s.cases[case].way].place, s.cases[case].rent_at)
    return TO_RENT


@compiled
def release_later(s, place, need, ranks, at, kind, of):
    """Ranks of that size on the `chosen` hosts end at this time; return the release's number."""
    state = s.state[0]
    number = state.releases
    release = s.releases[number]
    release.at = at
    release.gpus = need.gpus
    release.cpus = need.cpus
    release.memory = need.memory
    release.kind = kind
    release.of = of
    release.first_given = state.given
    release.ranks = ranks
    release.overdue = 0
    for rank in range(ranks):
        s.given[state.given + rank].host = s.given[rank].chosen
    state.releases += 1
    state.given += ranks
    link(s.places[place], s.releases, number)
    return number


@compiled
def start(s, job, number, at, again):
    """The job's ranks are on the `chosen` hosts from now on; `again`: it had started elsewhere at this moment."""
    way, state = s.ways[number], s.state[0]
    place = s.places[way.place]
    committed = needed_until(place, s.releases) if place.kind != OWNED else 0.0
    for rank in range(way.nodes):
        give(place, s.hosts[s.given[rank].chosen], way, -1)
    finish = at + way.run_s
    if state.hold_job == job:
        state.hold_job = -1
    elif state.hold_job >= 0 and state.hold_place == way.place and finish > state.hold_at:
        suffer(s, way)
    release = release_later(s, way.place, way, way.nodes, finish, JOB, job)
    count_in(s, s.jobs[job].klass, way, place.rented != 0)
    s.jobs[job].first_given = s.releases[release].first_given
    s.jobs[job].ranks = way.nodes
    book(s, job, number, at, finish, committed, again)


@compiled
def book(s, job, way, at, finish, committed, again):
    """A job has its place and time; `again`: in place of those that it had."""
    booked = s.jobs[job]
    booked.way = way
    booked.start_at = at
    booked.finish_at = finish
    booked.committed_until = committed
    if not again:
        s.jobs[s.state[0].booked].order = job
        s.state[0].booked += 1


@compiled
def force(s, job, number):
    """A decision that is taken already: start there now, or rent; if it does not fit, a cap forbids it or what is rented is too dear for it, nothing."""
    way, state, kind = s.ways[number], s.state[0], s.classes[s.jobs[job].klass]
    place = s.places[way.place]
    if blocking(s, s.jobs[job].klass, way, False) >= 0:
        return
    if place.kind == OFFER:
        enough = s.places[place.counter].left >= way.machines
        if place.stock >= 0:
            enough = enough and s.places[place.stock].stock_left >= way.machines * place.each
        if enough:
            rent(s, job, number)
        return
    _, usd, miss = price(s, job, way, state.now, kind.value)
    if not too_dear(kind, place, usd, miss) and choose_for(s, job, way):
        start(s, job, number, state.now, False)


@compiled
def rent(s, job, number):
    """New hosts at the offer, each as full of the job's ranks as it goes; the rest is there for others once they have booted."""
    way = s.ways[number]
    place = s.places[way.place]
    ready = s.state[0].now + place.delay_s
    finish = ready + way.run_s
    each = ranks_on(place.gpus, place.cpus, place.memory, way)
    first, left = place.first_host + place.hosts, way.nodes
    s.places[place.counter].left -= way.machines
    if place.stock >= 0:
        s.places[place.stock].stock_left -= way.machines * place.each
    for _ in range(way.machines):
        ranks = min(left, each)
        s.given[0].chosen = place.first_host + place.hosts
        boot = release_later(s, way.place, way, 1, ready, NOTHING, -1)
        s.releases[boot].gpus = place.gpus - ranks * way.gpus
        s.releases[boot].cpus = place.cpus - ranks * way.cpus
        s.releases[boot].memory = place.memory - ranks * way.memory
        place.hosts += 1
        left -= ranks
    for rank in range(way.nodes):
        s.given[rank].chosen = first + rank // each
    release_later(s, way.place, way, way.nodes, finish, JOB, job)
    count_in(s, s.jobs[job].klass, way, False)
    place.rented = 1
    s.jobs[job].rents = 1
    book(s, job, number, ready, finish, 0.0, False)
