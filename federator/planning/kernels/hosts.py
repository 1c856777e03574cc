"""Hosts over time, compiled: what fits, on which hosts, and when at the soonest.

What `host_sets.HostSet` does, on arrays. Host sets are small enough that looking at each host is quicker than keeping books of them; a place whose totals
are too small is not looked into.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

import numpy as np

from federator.planning.kernels.compiled import compiled

ANY = 1_000_000
"""Ranks that ask for nothing: so many fit on a host that has anything free."""


@compiled
def ranks_on(gpus, cpus, memory, need):
    """How many ranks of that size such a host holds; one with nothing free holds none, whatever they ask for."""
    if gpus < need.gpus or cpus < need.cpus or memory < need.memory:
        return 0
    if need.gpus > 0 and gpus < 2 * need.gpus:
        return 1
    fits = ANY if gpus != 0 or cpus != 0 or memory != 0 else 0
    if need.gpus > 0:
        fits = gpus // need.gpus
    if need.cpus > 0:
        fits = min(fits, cpus // need.cpus)
    if need.memory > 0:
        fits = min(fits, memory // need.memory)
    return min(fits, 1) if need.apart != 0 else fits


@compiled
def fits(place, hosts, way):
    """Whether the ranks fit on what is free now."""
    left = way.nodes
    if (
        place.free_gpus < left * way.gpus
        or place.free_cpus < left * way.cpus
        or place.free_memory < left * way.memory
    ):
        return False
    for index in range(place.first_host, place.first_host + place.hosts):
        host = hosts[index]
        left -= ranks_on(host.gpus, host.cpus, host.memory, way)
        if left <= 0:
            return True
    return False


@compiled
def fuller(one, other):
    """Whether a host has less free than another one: GPUs first, then CPUs, then memory."""
    if one.gpus != other.gpus:
        return one.gpus < other.gpus
    if one.cpus != other.cpus:
        return one.cpus < other.cpus
    return one.memory < other.memory


@compiled
def choose(place, hosts, given, way, asked):
    """Hosts for the ranks into `chosen`; false when they do not fit. `asked`: only those that are `able`.

    As few members as possible, and ranks of one member in a row: the member that they fill best, if one holds them all; else the largest,
    and so on with the rest. Within a member each rank goes on the host that it fills best.
    """
    begin, ranks, total, best = place.first_host, way.nodes, 0, -1
    for member in range(place.members):
        hosts[member].room = 0
    for index in range(begin, begin + place.hosts):
        host = hosts[index]
        host.fits = 0
        if not asked or hosts[index - begin].able != 0:
            host.fits = ranks_on(host.gpus, host.cpus, host.memory, way)
        if host.fits > 0:
            hosts[host.member].room += host.fits
            total += host.fits
            if best < 0 or fuller(host, hosts[best]):
                best = index
    if total < ranks:
        return False
    if ranks == 1:
        given[0].chosen = best
        return True
    filled = 0
    while filled < ranks:
        member = best_member(hosts, place.members, ranks - filled)
        filled = fill_from(place, hosts, given, member, filled, ranks)
        hosts[member].room = 0
    return True


@compiled
def best_member(hosts, members, ranks):
    """The member with the least room that is enough; else the one with the most."""
    best, most = -1, 0
    for member in range(members):
        if hosts[member].room >= ranks and (best < 0 or hosts[member].room < hosts[best].room):
            best = member
        if hosts[member].room > hosts[most].room:
            most = member
    return best if best >= 0 else most


@compiled
def fill_from(place, hosts, given, member, filled, ranks):
    """Put the ranks that are left on hosts of one member, the fullest first; return how many are placed."""
    while filled < ranks:
        best = -1
        for index in range(place.first_host, place.first_host + place.hosts):
            host = hosts[index]
            if host.fits > 0 and host.member == member and (best < 0 or fuller(host, hosts[best])):
                best = index
        if best < 0:
            break
        for _ in range(min(hosts[best].fits, ranks - filled)):
            given[filled].chosen = best
            filled += 1
        hosts[best].fits = 0
    return filled


@compiled
def give(place, host, need, ranks):
    """So many ranks' part back to a host; below zero: taken from it."""
    host.gpus += ranks * need.gpus
    host.cpus += ranks * need.cpus
    host.memory += ranks * need.memory
    place.free_gpus += ranks * need.gpus
    place.free_cpus += ranks * need.cpus
    place.free_memory += ranks * need.memory


@compiled
def link(place, releases, number):
    """Put a release in its place's line, behind those of the same time."""
    at = releases[number].at
    releases[number].next = -1
    if place.soonest < 0:
        place.soonest = number
        place.latest = number
    elif releases[place.latest].at <= at:
        releases[place.latest].next = number
        place.latest = number
    elif releases[place.soonest].at > at:
        releases[number].next = place.soonest
        place.soonest = number
    else:
        index = place.soonest
        while releases[releases[index].next].at <= at:
            index = releases[index].next
        releases[number].next = releases[index].next
        releases[index].next = number


@compiled
def soonest_room(place, hosts, releases, given, way, epoch, at_most, sure):  # noqa: PLR0917 - the kernel's state in parts
    """When the ranks fit if nothing else starts there: 0 for now, the time of a release, or infinite. Beyond `at_most` nobody looks. `sure`: if what is overdue stays.

    While even the totals are too small, hosts are not asked.
    """
    if fits(place, hosts, way):
        return 0.0
    room, asked = 0, False
    gpus, cpus, memory = place.free_gpus, place.free_cpus, place.free_memory
    number = place.soonest
    while number >= 0 and releases[number].at <= at_most:
        release = releases[number]
        if sure and release.overdue != 0:
            number = release.next
            continue
        gpus += release.ranks * release.gpus
        cpus += release.ranks * release.cpus
        memory += release.ranks * release.memory
        for entry in range(release.first_given, release.first_given + release.ranks):
            host = hosts[given[entry].host]
            if host.seen != epoch:
                host.seen = epoch
                host.then_gpus = host.gpus
                host.then_cpus = host.cpus
                host.then_memory = host.memory
            if asked:
                room -= ranks_on(host.then_gpus, host.then_cpus, host.then_memory, way)
            host.then_gpus += release.gpus
            host.then_cpus += release.cpus
            host.then_memory += release.memory
            if asked:
                room += ranks_on(host.then_gpus, host.then_cpus, host.then_memory, way)
        if not asked and (
            gpus >= way.nodes * way.gpus and cpus >= way.nodes * way.cpus and memory >= way.nodes * way.memory
        ):
            asked = True
            room = room_then(place, hosts, way, epoch)
        if asked and room >= way.nodes:
            return release.at
        number = release.next
    return np.inf


@compiled
def room_then(place, hosts, way, epoch):
    """How many ranks fit on what is free, and on what will be where that has been noted for this question."""
    room = 0
    for index in range(place.first_host, place.first_host + place.hosts):
        host = hosts[index]
        if host.seen == epoch:
            room += ranks_on(host.then_gpus, host.then_cpus, host.then_memory, way)
        else:
            room += ranks_on(host.gpus, host.cpus, host.memory, way)
    return room


@compiled
def needed_until(place, releases):
    """When the last release of a place is; 0 where there is none."""
    return releases[place.latest].at if place.soonest >= 0 else 0.0
