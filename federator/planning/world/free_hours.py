"""What is expected to be free of each place, bucket by bucket: its GPU-hours, core-hours and memory-hours.

Apart from the rows that are made of it (`hours`), because prices of such rows are asked for by what makes none: schedules, and the plan of a whole line.
"""

import numpy as np
from numpy.typing import NDArray

from federator.planning.places.host_sets import HostSet
from federator.planning.world.buckets import BUCKETS_H, GPU_HOURS

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

KINDS = ((GPU_HOURS, 1.0), ("core-hours", 1e-3), ("gib-hours", 1.0 / 1024.0))
"""Names of the rows, and their units in what hosts are counted in: GPUs, milli-cores, MiB. Small numbers, since solvers like them alike."""
EDGES_H = np.array(BUCKETS_H)


def free_hours(host_set: HostSet, now: float) -> Floats:
    """What is expected to be free of each kind in each bucket, in GPU-hours, milli-core-hours and MiB-hours."""
    ahead = [
        (max(0.0, r.at - now) / 3600.0, *(part * len(r.hosts) for part in r.need[:3]))
        for r in host_set.releases
    ]
    begin = (0.0, *(sum(host[kind] for host in host_set.hosts) for kind in range(len(KINDS))))
    gains = np.array([begin, *ahead], dtype=np.float64)
    spans = np.clip(EDGES_H[1:] - np.maximum(gains[:, :1], EDGES_H[:-1]), 0.0, None)
    free: Floats = gains[:, 1:].T @ spans
    return free


def free_gpus(host_set: HostSet, now: float, after_h: float) -> float:
    """What is expected to be free then, or has been freed."""
    back = (release for release in host_set.releases if release.at - now <= after_h * 3600.0)
    return float(sum(host[0] for host in host_set.hosts) + sum(r.need[0] * len(r.hosts) for r in back))
