"""How far a site is believed that has not been heard of for a while, and what that costs.

What is known of a site is as old as its last report. Beyond a few reports missed, somebody else may have taken what it says is free, or its agent may be gone:
a start there is refused with a chance that grows with the silence. What that is expected to cost is the wait for another try; it is part of the price of the
place, so work goes where the world was seen lately, other things being equal. It grows slowly and never closes a site: that is what UNREACHABLE is for.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from federator.model.snapshot import JobView, PoolView
from federator.planning.wording import span

if TYPE_CHECKING:
    from federator.planning.candidates import Candidate
    from federator.planning.rulebook import RuleBook

FRESH_S = 15.0
"""Three reports of the usual five seconds: a silence of so long is none."""
FADES_S = 300.0
"""Of what is believed, so much longer a silence leaves e^-1."""
RETRY_S = 300.0
"""What a refused start costs in time: the answer, another turn, another place that is not as good."""


def refusal_share(age_s: float) -> float:
    """How likely a start is refused at a member that was heard so long ago; 0 while it is fresh."""
    return 0.0 if age_s <= FRESH_S else 1.0 - math.exp((FRESH_S - age_s) / FADES_S)


def mean_doubt(views: Sequence[PoolView]) -> float:
    """Over the members of a place."""
    stale = [refusal_share(view.age_s) for view in views if view.age_s > FRESH_S]
    return sum(stale) / len(views) if stale else 0.0


def doubt_usd(book: "RuleBook", job: JobView, at: "Candidate") -> float:
    """What the doubt of a place is expected to cost a job: the price of its waiting (as if it had just arrived), for as long as a refusal takes."""
    doubt = at.doubt
    return doubt * RETRY_S / 3600.0 * book.fresh_wait_usd_h(job) if doubt else 0.0


def last_heard(at: "Candidate") -> str:
    """For people, where there is doubt: `last heard 4m ago`."""
    if not at.doubt:
        return ""
    return f"last heard {span(round(max(view.age_s for view in at.views)))} ago"
