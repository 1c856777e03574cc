"""How often a spot machine is taken back, by what has been seen of its offer and zone, and how much longer work takes there because of it.

A rate and not a constant: markets differ a hundredfold, and the same one from month to month. A Gamma prior is conjugate to counts in a known
time, so what is known of an offer is two numbers, and one that nobody has rented yet has the published rate. Likewise a zone begins with the rate of its offer.
"""

import math
from typing import NamedTuple

PRIOR_H = 5.0
"""The rate that is known before counts as much as so many machine-hours that have been watched."""
PRIOR_RATE_H = 0.1
"""That of an offer: each hour one machine of ten was taken back, of A100 of us-east1-b over a day, from the traces of Bamboo (Thorpe et al., NSDI 2023)."""
MOST_EXPECTED = 6.0
"""Interruptions expected between two checkpoints from which on no more are counted: the work is planned 67 times as long, and runs elsewhere."""


class Watched(NamedTuple):
    """What has been seen of the spot machines of one offer, or of those in one zone."""

    machine_h: float = 0.0
    """How long they have run, in hours, together."""
    interruptions: int = 0
    """How many of them were taken back."""
    prior_rate_h: float = PRIOR_RATE_H
    """What was expected before."""

    @property
    def rate_h(self) -> float:
        """Interruptions per machine-hour: the mean of the Gamma posterior, to two digits, so that snapshots change only when it does."""
        return float(f"{(self.prior_rate_h * PRIOR_H + self.interruptions) / (PRIOR_H + self.machine_h):.2g}")


def rework(expected: float) -> float:
    """Run time over the run time without interruptions, where so many are expected in the time between two checkpoints.

    Interruptions come at λ per hour, whatever was before, and each throws the work back to its last checkpoint, τ of running before the next
    one. With x = λτ, the stretch succeeds at once with probability 1/e^x and takes τ; else it is lost at some t < τ, and begins anew. So the
    time T that it takes in the mean is T = τ/e^x + ∫₀^τ λ (t + T) / e^λt dt, which gives T = (e^x - 1) / λ, and T / τ = (e^x - 1) / x, about
    1 + x/2 + x²/6 (Daly, Future Generation Computer Systems 22, 2006, where starting again takes no time: boots are planned by themselves).
    """
    x = min(expected, MOST_EXPECTED)
    return math.expm1(x) / x if x > 0.0 else 1.0
