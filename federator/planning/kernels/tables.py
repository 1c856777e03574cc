"""What the kernels read and write: one decision's world, and one schedule of it, as arrays of records.

Numbers, not objects: a compiled loop asks for the free GPUs of a host a million times in a turn. Everything is int64 or float64. The first part of
each record says what is, the second what becomes of it in a schedule, which works on copies. Lists of unequal length lie one after the other;
`first_x` and `last_x` say where an entry's list of x begins, and where the next one's does. Few arrays with many fields, because each array that a
function is given costs time when it is compiled.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Records = NDArray[Any]
Flags = NDArray[np.uint8]

OWNED, LEASE, OFFER = 0, 1, 2
"""Kinds of places."""
GPUS, JOBS, USD, INSTANCES, USD_PER_H = 0, 1, 2, 3, 4
"""Units of caps; those before `USD` are given back when work ends. Licences are counted as jobs are: so many to each."""
FREE, BUSY, QUOTA, BUDGET, HELD, ELSEWHERE, TO_RENT, CHEAPER = 0, 1, 2, 3, 4, 5, 6, 7
"""What stops a class: nothing, no room, a cap of a queue, a cap on money, a hold, a better place later, a rental later, a cheaper place later."""
LEAST_GAIN = 1e8
"""What waiting must save for a job not to start where it fits, in billionths of a USD: 0.10. With a dollar, small work filled the GPUs that are dear
(`docs/explanation/schedulers-compared.md`)."""
MOST_ALIKE = 32
"""Nothing idles beside a longer line of work that is alike. A window shows as many behind those that could start, so it decides as the whole line does."""
NOTHING, JOB, WORK = 0, 1, 2
"""What a release ends: a boot, a job of this schedule, work that ran before."""


def _record(ints: str, floats: str) -> np.dtype[Any]:
    return np.dtype([(name, "i8") for name in ints.split()] + [(name, "f8") for name in floats.split()])


STATE = _record(
    # A whole schedule starts everybody, else it ends after the first moment; `bursts`: what is rented may be used.
    "whole bursts attempts_limit evaluations_limit"
    # First rows of `flags`: caps × places, jobs × places (who may use what is rented), guarantees × places, × classes, classes × places, classes × their ways.
    " selects usable promised_at promised_to open_at open_ways"
    # Counters: attempts to start a job at a place; evaluations of a class whose turn it is; jobs that are booked, and were at first; releases; entries given; a number for each question.
    " attempts evaluations booked begun releases given epoch"
    # Classes that wait, and places that have gained; the hold: its job (-1: none), way and place, and how many of its ranks would find room.
    " waiting fresh hold_job hold_way hold_place hold_room",
    # Hours that a job which never starts is charged; what a policy's wish that is not fulfilled costs on top.
    "now never_h required_usd hold_at"
    # What a decision comes to, term by term.
    " run_usd rent_usd wait_usd miss_usd egress_usd shortfall_usd policy_usd",
)
PLACE = _record(
    "kind gpus cpus memory first_host hosts members first_release"
    # Of an offer: the place that keeps count of how many machines are left, and of the stock that they draw on (-1: none), and what each takes of that; and these counts.
    " counter stock each left stock_left"
    # Free in all; whether something is rented there by this decision; whether it has gained, and a list of those that have.
    " free_gpus free_cpus free_memory rented gained fresh"
    # The soonest and the last release (-1: none).
    " soonest latest",
    # `awaited_s`: for how long it has enough to do with the work that waits for it.
    "all_gpus usd_h delay_s backlog_s awaited_s",
)
HOST = _record(
    "gpus cpus memory member"
    # Scratch: what will be free (and for which question), the ranks that fit, whether it may be chosen; by member: room there.
    " then_gpus then_cpus then_memory seen fits able room"
    # By index in the held place: what is free when the gang is to start.
    " held_gpus held_cpus held_memory",
    "",
)
RELEASE = _record("gpus cpus memory kind of first_given ranks next overdue", "at")
"""`of`: the job; of work that ran before, the number of its release in the world. Releases of a place are linked, soonest first."""
GIVEN = _record("host chosen", "")
"""Hosts of releases, rank by rank; and those of the last choice."""
WAY = _record(
    "place nodes gpus cpus memory left_over machines apart choice option first if_late",
    "run_s run_usd egress_usd whole_usd worst_usd gpus_total longer_s closes opens",
)
"""`choice`: the place with a form, as `World` numbers them; `option`, `first`, `if_late`: its precedence (`World.precedence`): the entry of an ordered list, all of it as one number, and what being late adds; `longer_s`: beyond the run of the fastest form. `run_s`: for how long hosts are taken; `whole_usd`: the bill of the one that rents it; `worst_usd`: what it adds to caps on money; `machines`: how many it rents; `apart`: no two of its ranks on one host; what would start from `closes` on, starts when it `opens`."""
CLASS = _record(
    # `frugal`: rented time is for its deadline only, as far as that is worth it.
    "first_way last_way first_row last_row forms frugal"
    # What stops it now: which, the row or the job, the place, and what waiting saves in billionths of a USD; the same after what starts now.
    " stuck stuck_by stuck_at stopped stopped_by stopped_at"
    # The job whose rentals its ways are asked of (-1: before its first turn); its class; by index: the classes in the order of their firsts.
    " asks next first_member last_member head",
    "not_before deadline value gpus size typical steep stuck_x stopped_x stuck_saves stopped_saves",
)
JOBS_RECORD = _record(
    "klass forced first_avoided last_avoided first_case last_case first_required last_required"
    # Whose turn it is, by index; and the turn of each.
    " turn rank"
    # Its booking (way -1: it never starts); by index: members of classes, and the order in which jobs were booked.
    " way rents exact first_given ranks later starts late member order",
    "wait_usd_h patient_until behind_s start_at finish_at committed_until run_usd rent_usd wait_usd miss_usd egress_usd",
)
ROW = _record("unit", "limit used used_now")
"""A cap; `used_now`: after what starts now."""
CASE = _record("way", "rent_at start_at usd")
PROMISE = _record("kind", "each due used usd")
"""A guarantee: the kind (GPUs, cores, memory) in which its shortfall is counted, and one of it in GPUs; the rest is in GPUs."""
PAIR = _record("a b", "x")
"""Caps that a class counts for (a), and what each job of it counts as (x: 1, or its licences); where a job was lost, place and member (a, b); what a release gives back to a cap (a, x)."""


class KernelState(NamedTuple):
    """All of it. `state` has one record, `backs` one more than the world has releases: where what each gives back begins in `pairs`."""

    state: Records
    places: Records
    hosts: Records
    releases: Records
    given: Records
    ways: Records
    classes: Records
    jobs: Records
    rows: Records
    cases: Records
    promises: Records
    pairs: Records
    backs: NDArray[np.int64]
    flags: Flags


NONE = np.zeros(0)


def nothing() -> KernelState:
    """A world without anything in it."""
    kinds = (
        PLACE,
        HOST,
        RELEASE,
        GIVEN,
        WAY,
        CLASS,
        JOBS_RECORD,
        ROW,
        CASE,
        PROMISE,
        PAIR,
    )
    empty = [np.zeros(0, dtype=kind) for kind in kinds]
    state = np.zeros(1, dtype=STATE)
    flags = np.zeros((0, 0), dtype=np.uint8)
    return KernelState._make([state, *empty, np.zeros(1, dtype=np.int64), flags])
