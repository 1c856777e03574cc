"""Edges of the future's buckets, in hours from now: fine where a decision is near, coarse where it will be taken again.

Apart from those who make columns of them, because an explanation reads prices by bucket and needs no arrays.
"""

BUCKETS_H = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 168.0)
BUCKETS = len(BUCKETS_H) - 1
GPU_HOURS = "hours"


def hours_row(place: str, bucket: int, kind: str = GPU_HOURS) -> str:
    """The name of the row of a place's hours in a bucket."""
    return f"{kind}/{place}/{BUCKETS_H[bucket]:g}h"
