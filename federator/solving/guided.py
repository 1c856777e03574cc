"""The price-guided greedy: what is left free now goes to whom the relaxation's prices would give it.

No permitted GPU stays idle beside a job that fits it, so after the dive somebody fills what it leaves open. Who that is decides most of what a plan
is short of its bound: the dive's own decisions of now are within some hundredths of a per cent of it, and filling in the published order costs up to
one per cent more (`docs/explanation/planning.md`). A column's reduced cost is what the start costs beyond the best that its class can hope for, with
the work that it displaces later counted in; so the lowest per GPU goes first.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from federator.planning.linear.columns import Columns, Kind
from federator.planning.places.yard import Room, need_of
from federator.planning.scheduling.objective import Evaluator

Floats = NDArray[np.float64]


def fill(
    evaluator: Evaluator, table: Columns, reduced: Floats | Sequence[float], starts: Mapping[str, int]
) -> dict[str, int]:
    """These starts, and more on the hosts that they leave free, the lowest reduced cost per GPU first. Caps are the evaluator's to hold."""
    world = evaluator.world
    lots = world.lots()
    filled: dict[str, int] = {}
    for name, place in starts.items():
        view = world.as_form(world.by_id[name], place)
        if world.places[place].offer is not None or lots[place].take(need_of(view), view.nodes) is not None:
            filled[name] = place
    full: set[tuple[int, Room, int]] = set()
    place_of, klass_of = table.place.tolist(), table.klass.tolist()
    for column in _in_turn(table, np.asarray(reduced)):
        place, members = place_of[column], table.classes[klass_of[column]]
        view = world.as_form(members[0], place)  # they all ask for the same
        asked = world.place_of(place), need_of(view), view.nodes
        for job in members if asked not in full else ():
            if job.id in filled or not _may(evaluator, job.id, place):
                continue
            if lots[place].take(asked[1], view.nodes) is None:
                full.add(asked)  # what is free only becomes less
                break
            filled[job.id] = place
    return filled


def _in_turn(table: Columns, reduced: Floats) -> list[int]:
    """The starts of now on capacity that is there."""
    now = np.flatnonzero(table.kind == Kind.NOW)
    gpus = np.array([max(1, members[0].gpus_total) for members in table.classes], dtype=np.float64)
    turns: list[int] = now[np.lexsort((now, table.cost[now], reduced[now] / gpus[table.klass[now]]))].tolist()
    return turns


def _may(evaluator: Evaluator, job: str, place: int) -> bool:
    """Whether this one of its class may: a lease is for those that have a case."""
    world = evaluator.world
    return not world.places[place].rented or evaluator.bursting.may_use_lease(world.by_id[job], place)
