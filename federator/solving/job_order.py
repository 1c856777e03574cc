"""The order in which the relaxation has those start that wait: the future that a plan of the solver's would really get.

What a plan decides now leaves a future, and the evaluator prices both. A list schedule in the published order is not what would follow, for the next turn
plans anew, with the same model: what the relaxation puts first comes first. So a plan is priced with the jobs that wait in the order of their starts
in the relaxed plan, the published order among equals. It is a schedule on exact hosts all the same: what it costs can be had.
"""

import numpy as np

from federator.planning.linear.columns import Columns
from federator.planning.world.free_hours import Floats
from federator.planning.world.problem import World

LEAST = 1e-9
"""A smaller part of a job is none."""


def order_of(world: World, table: Columns, values: Floats) -> dict[str, int]:
    """Every job's turn. Of a class, the first have the first of its starts: as many as there are, by the middle of each job."""
    used = np.flatnonzero((values > LEAST) & (table.klass >= 0))
    used = used[np.lexsort((used, table.start_s[used], table.klass[used]))]
    cuts = np.searchsorted(table.klass[used], np.arange(len(table.classes) + 1))
    expected: dict[str, float] = {}
    for members, low, high in zip(table.classes, cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        mine = used[low:high]
        if not len(mine):
            continue
        middles = np.arange(len(members)) + 0.5
        nth = np.minimum(np.searchsorted(np.cumsum(values[mine]), middles), len(mine) - 1)
        starts = table.start_s[mine][nth].tolist()
        expected.update((job.id, start_s) for job, start_s in zip(members, starts, strict=True))
    turns = sorted(world.jobs, key=lambda job: expected.get(job.id, np.inf))
    return {job.id: turn for turn, job in enumerate(turns)}
