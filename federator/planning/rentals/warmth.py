"""Whether a rented machine that idles had better be kept: what was needed lately, against what its time costs.

Where machines like it fell idle before, it is known how long it took until one was needed again. Of those times, the ones that are longer than
this machine has idled already say what is to be expected now. Keeping it for some time more costs that time of rent where nobody comes, and
where somebody does, it saves what renting anew would cost more: boot, teardown, and what is billed at least. No rate is assumed, nor that it
lasts: once a machine has idled for longer than nearly all before it, nothing speaks for keeping it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from federator.model.capacity import Offer

LEAST_TIMES = 4
"""From fewer times nothing is concluded."""


class Wait(NamedTuple):
    """A time that a machine fell idle: for how long, and whether one was needed then; if not, it is not known when one will be."""

    s: float
    came: bool


class Keeping(NamedTuple):
    """Keep it until it has idled for `until_s`: then one was needed `came` of `of` times. `gain_s`: what that is expected to save, in seconds of rent."""

    until_s: float
    gain_s: float
    came: int
    of: int


def saved_s(offer: Offer, run_s: float) -> float:
    """What a run of that length costs more on a machine that is rented for it, in seconds of rent."""
    return max(offer.minimum_billing_s, offer.delay_s + run_s + offer.teardown_s) - run_s


def worth_keeping(waits: Sequence[Wait], idle_s: float, saves_s: float, most_s: float) -> Keeping | None:
    """For how long a machine that has idled for `idle_s` is best kept, up to `most_s` in all; None: no longer."""
    left = [Wait(wait.s - idle_s, wait.came) for wait in waits if wait.s > idle_s]
    if len(left) < LEAST_TIMES:
        return None
    best: Keeping | None = None
    for horizon_s in sorted({wait.s for wait in left if wait.came and idle_s + wait.s <= most_s}):
        came = [wait.s for wait in left if wait.came and wait.s <= horizon_s]
        spent_s = sum(came) + (len(left) - len(came)) * horizon_s
        gain_s = (len(came) * saves_s - spent_s) / len(left)
        if gain_s > 0 and (best is None or gain_s > best.gain_s):
            best = Keeping(idle_s + horizon_s, gain_s, len(came), len(left))
    return best
