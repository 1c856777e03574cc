"""A hold, compiled: a place is kept for the first gang that does not fit, and what others may do there meanwhile.

There is one hold at a time; the state has its particulars, and what will be free on its hosts stands in their records, by
index in the place.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

import numpy as np

from federator.planning.kernels.compiled import compiled
from federator.planning.kernels.hosts import ranks_on, soonest_room


@compiled
def displaced(s, way):
    """How many ranks of the held gang lose their room when the ranks of this way stay on the `chosen` hosts."""
    state = s.state[0]
    begin, gang, ranks, lost, rank = (
        s.places[state.hold_place].first_host,
        s.ways[state.hold_way],
        way.nodes,
        0,
        0,
    )
    while rank < ranks:
        chosen, alike = s.given[rank].chosen, 1
        while rank + alike < ranks and s.given[rank + alike].chosen == chosen:
            alike += 1
        host = s.hosts[chosen - begin]
        lost += ranks_on(host.held_gpus, host.held_cpus, host.held_memory, gang)
        lost -= ranks_on(
            host.held_gpus - alike * way.gpus,
            host.held_cpus - alike * way.cpus,
            host.held_memory - alike * way.memory,
            gang,
        )
        rank += alike
    return lost


@compiled
def survives(s, way):
    """Whether the gang still starts on time when such ranks stay on the `chosen` hosts beyond it."""
    return s.state[0].hold_room - displaced(s, way) >= s.ways[s.state[0].hold_way].nodes


@compiled
def suffer(s, way):
    """Such ranks do stay."""
    s.state[0].hold_room -= displaced(s, way)
    begin = s.places[s.state[0].hold_place].first_host
    for rank in range(way.nodes):
        host = s.hosts[s.given[rank].chosen - begin]
        host.held_gpus -= way.gpus
        host.held_cpus -= way.cpus
        host.held_memory -= way.memory


@compiled
def recover(s, way):
    """Such ranks, on the `chosen` hosts, do not stay after all."""
    begin = s.places[s.state[0].hold_place].first_host
    for rank in range(way.nodes):
        host = s.hosts[s.given[rank].chosen - begin]
        host.held_gpus += way.gpus
        host.held_cpus += way.cpus
        host.held_memory += way.memory
    s.state[0].hold_room += displaced(s, way)


@compiled
def hold_for(s, job, klass, at):
    """Keep the place where the gang can start soonest."""
    best, best_at, row, first = -1, np.inf, s.state[0].open_ways + klass, s.classes[klass].first_way
    for number in range(first, s.classes[klass].last_way):
        way = s.ways[number]
        if s.flags[row, number - first] == 0:
            continue
        s.state[0].attempts += 1
        s.state[0].epoch += 1
        start = soonest_room(
            s.places[way.place], s.hosts, s.releases, s.given, way, s.state[0].epoch, best_at, False
        )
        if start < best_at or (best >= 0 and start == best_at and way.choice < s.ways[best].choice):
            best, best_at = number, start
    if best >= 0 and best_at > at:
        keep(s, job, best, best_at)


@compiled
def keep(s, job, number, at):
    """Hold the place of this way from then on: its hosts as they will be."""
    way, state = s.ways[number], s.state[0]
    place = s.places[way.place]
    begin = place.first_host
    for index in range(place.hosts):
        held, host = s.hosts[index], s.hosts[begin + index]
        held.held_gpus = host.gpus
        held.held_cpus = host.cpus
        held.held_memory = host.memory
    ahead = place.soonest
    while ahead >= 0 and s.releases[ahead].at <= at:
        release = s.releases[ahead]
        for entry in range(release.first_given, release.first_given + release.ranks):
            held = s.hosts[s.given[entry].host - begin]
            held.held_gpus += release.gpus
            held.held_cpus += release.cpus
            held.held_memory += release.memory
        ahead = release.next
    state.hold_room = 0
    for index in range(place.hosts):
        held = s.hosts[index]
        state.hold_room += ranks_on(held.held_gpus, held.held_cpus, held.held_memory, way)
    state.hold_job = job
    state.hold_way = number
    state.hold_place = way.place
    state.hold_at = at
