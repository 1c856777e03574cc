"""When to stop waiting for home and rent: when what a little more waiting may save is worth less than what it puts at risk.

Until then home may be free, and nothing need be rented. But each minute makes the deadline less sure, because run times have a range. The latest moment is when the planned run would
just meet its deadline: there the chance of missing it is one in four. What is certain waits until then.
"""

import math
from typing import NamedTuple

from federator.model.snapshot import JobView
from federator.planning import kernels
from federator.planning.world.chances import late_share, spread_of


class AtHome(NamedTuple):
    """How long until it is expected to begin there (infinite: nobody knows), and how long it then runs, in seconds."""

    ahead_s: float
    run_s: float

    def risk(self, job: JobView, now: float) -> float:
        """The chance that the deadline is missed there: the run has a range, and so has the end of the work that it waits for."""
        if self.ahead_s == math.inf:
            return 1.0
        return late_share(job, now + self.ahead_s, self.run_s, self.ahead_s)


class Rented(NamedTuple):
    """If it is rented for now: when it begins, how long it runs, in seconds, and the bill, with what moving its data costs."""

    start_at: float
    run_s: float
    rent_usd: float
    egress_usd: float = 0.0
    again_s: float = 0.0
    """What the worst interruption costs in time; 0 where nobody asks."""

    @property
    def finish_at(self) -> float:
        """When it ends, if nothing interrupts it."""
        return self.start_at + self.run_s

    @property
    def bill_usd(self) -> float:
        """All that is paid."""
        return self.rent_usd + self.egress_usd


def put_off_s(
    job: JobView, now: float, home: AtHome, rented: Rented, value_usd: float, spare_s: float
) -> float:
    """How long to put renting off; at most `spare_s`, when the planned run would just meet the deadline. `value_usd` is that of the deadline. Raises `Unavailable`."""
    deadline_at = math.inf if job.deadline_at is None else job.deadline_at
    run_s = rented.run_s if home.run_s == math.inf else home.run_s
    return kernels.put_off_s(
        now, (deadline_at, *spread_of(job)), (home.ahead_s, run_s), rented[:3], value_usd, spare_s
    )
