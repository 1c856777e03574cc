"""How far a site is believed that has not been heard of for a while.

What is known of a site is as old as its last report. Beyond a few reports missed, somebody else may have taken what it says is free, or its agent may be gone:
a start there is refused with a chance that grows with the silence. What that is expected to cost is the wait for another try; it is part of the price of the
place, so work goes where the world was seen lately, other things being equal. It grows slowly and never closes a site: that is what UNREACHABLE is for.
"""

import math
from collections.abc import Sequence

from federator.model.snapshot import PoolView

FRESH_S = 15.0
"""Three reports of the usual five seconds: a silence of so long is none."""
FADES_S = 300.0
"""Of what is believed, so much longer a silence leaves e^-1."""


def refusal_share(age_s: float) -> float:
    """How likely a start is refused at a member that was heard so long ago; 0 while it is fresh."""
    return 0.0 if age_s <= FRESH_S else 1.0 - math.exp((FRESH_S - age_s) / FADES_S)


def mean_doubt(views: Sequence[PoolView]) -> float:
    """Over the members of a place."""
    stale = [refusal_share(view.age_s) for view in views if view.age_s > FRESH_S]
    return sum(stale) / len(views) if stale else 0.0


def last_heard_s(views: Sequence[PoolView]) -> float:
    """How long ago the one was heard that was silent longest; 0 where there is no doubt."""
    oldest_s = max((view.age_s for view in views), default=0.0)
    return oldest_s if oldest_s > FRESH_S else 0.0
