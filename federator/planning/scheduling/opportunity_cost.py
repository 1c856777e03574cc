"""What the work of a decision takes from work that the decision does not see.

Of a very long line a decision sees a window. What it leaves out will run on the same hosts; a plan that took the future for free would start
now what can wait, and rent nothing. So a problem says of the rows of the model (`columns`) what the jobs outside are expected to use, by a plan of
the whole line, and what it costs to do without a unit of that: the row's price there. The linear program may use up what is left at no price, and the
rest at that one; the evaluator charges a schedule likewise, for all that it has on hosts. Where nothing is outside, nothing is charged.
"""

import numpy as np

from federator.planning.world.buckets import BUCKETS, hours_row
from federator.planning.world.free_hours import EDGES_H, Floats, Ints, free_hours
from federator.planning.world.problem import World

EDGES_S: Floats = EDGES_H * 3600.0


class Displacing:
    """What schedules of one world take from others, in USD."""

    def __init__(self, world: World) -> None:
        """Look up what is left, and prices, by place and bucket."""
        self._world, outside = world, world.problem.outside
        self._usd, self._left = np.zeros((len(world.places), BUCKETS)), np.zeros((len(world.places), BUCKETS))
        for place, at in enumerate(world.places):
            rows = [outside.get(hours_row(at.key, bucket)) for bucket in range(BUCKETS)]
            if not any(rows):
                continue
            free = free_hours(world.host_set(place), world.now)[0]
            for bucket, row in enumerate(rows):
                if row is not None:
                    self._usd[place, bucket] = row.usd
                    self._left[place, bucket] = max(0.0, free[bucket] - row.used)

    def usd(self, place: Ints, gpus: Floats, start_at: Floats, finish_at: Floats) -> float:
        """What bookings take: parallel arrays, one entry per booking, in the order of the world's jobs."""
        now, charged = self._world.now, self._usd[place].any(axis=1)
        place, gpus = place[charged], gpus[charged]
        begin, end = (start_at[charged] - now)[:, np.newaxis], (finish_at[charged] - now)[:, np.newaxis]
        overlap = np.clip(np.minimum(EDGES_S[1:], end) - np.maximum(EDGES_S[:-1], begin), 0.0, None)
        used = np.zeros_like(self._usd)
        np.add.at(used, place, overlap * (gpus[:, np.newaxis] / 3600.0))
        return float(np.sum(np.maximum(0.0, used - self._left) * self._usd))
