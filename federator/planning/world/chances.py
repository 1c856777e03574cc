"""How likely a job is to miss its deadline: `kernels.chances`, asked of a job."""

import math

from federator.model.snapshot import JobView
from federator.planning.kernels import chances
from federator.planning.kernels.chances import LOGISTIC
from federator.planning.places.candidates import typical_share

STEEP = LOGISTIC * 2.5631
"""80 of 100 lie within 2.5631 standard deviations."""
MOST_STEEP = 50.0
"""Beyond this the chance is nothing, or all; powers stay numbers."""


def late_share(job: JobView, start_at: float, run_s: float, waits_s: float = 0.0) -> float:
    """How likely a job that is planned to run so long (s) from then on ends after its deadline; `waits_s`: so long from now, for others' work to end.

    `run_low_s` and `run_high_s` hold 80 of 100 runs. Without a range, as planned: 0 or 1.
    """
    if job.deadline_at is None:
        return 0.0
    return chances.late_share(job.deadline_at, start_at, run_s, waits_s, *spread_of(job))


def spread_of(job: JobView) -> tuple[float, float]:
    """The typical run over the planned one, and how steeply the chance falls with more time than that; (1, 0) where there is no range, or only the start counts."""
    job = job.of or job
    low_s, high_s = job.run_low_s, job.run_high_s
    if job.start_by_at is not None:  # of a start: how long it runs does not matter
        return 1.0, 0.0
    if not 0.0 < low_s < high_s:
        return 1.0, 0.0
    return typical_share(job), min(STEEP / math.log(high_s / low_s), MOST_STEEP)
