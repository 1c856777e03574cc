"""What comes of asking whether one place is rented for one job: a case for it, or why there is none; and the forecast at home that it is held against."""

import msgspec

from federator.model.reasons import Reason
from federator.model.rules import BurstMode

NOW_S = 1.0
"""A latest start so close is now."""


class HomeForecast(msgspec.Struct, frozen=True, gc=False):
    """When and where a job is expected to run. `place` is the key of a pool; `usd` is what its GPUs cost there, with what the room is worth to others."""

    job: str
    place: str
    start_at: float
    finish_at: float
    usd: float = 0.0


class BurstCandidate(msgspec.Struct, frozen=True, gc=False):
    """A permitted and justified rental. `required`: the policy wants it whatever it costs; `rent_at`: not before then."""

    place: int
    policy: str
    mode: BurstMode
    required: bool
    rent_at: float
    start_at: float
    run_s: float
    finish_at: float
    cost_usd: float
    """Its rent, and what moving its data there costs."""
    committed_usd: float
    for_waiting: bool = False
    """Waiting alone justifies it."""
    fallback_finish_at: float | None = None
    """On spot: the finish if it is taken back at the very end and all is done again."""

    def is_now(self, now: float) -> bool:
        """Whether waiting longer is no longer safe, or not the policy's wish."""
        return self.rent_at <= now + NOW_S


class BurstRejection(msgspec.Struct, frozen=True, gc=False):
    """Why nothing is rented there. `situation` is a name of `feasibility.SITUATIONS`."""

    situation: str
    reason: Reason
    dear: BurstCandidate | None = None
    """The rental that would be made, if it paid."""
