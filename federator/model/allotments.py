"""What a site may admit by itself while it is cut off: agreed beforehand by policy, and what it says of the jobs that it has admitted so.

No decision sees any of it: an agent admits by its copy of the allotments, and the dispatcher writes down what ran when it hears of it.
"""

from typing import Annotated

import msgspec

from federator.kernel.ids import content_hash

MOST_SPEC_BYTES = 65_536
"""Longest spec of such a job, as JSON."""
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class Allotment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """So much work of these people a site admits while it is cut off. Numbers per day are of any 24 hours."""

    policy: _Name
    """Name of the policy that it is from: what is used is counted under it."""
    queue: _Name
    users: tuple[str, ...]
    gpu_h: float
    """GPU-hours a day; what has not ended counts for as long as it may run."""
    jobs: int
    """Jobs a day."""
    max_duration_s: float
    """Longest run; a job that does not say is ended after it."""
    max_priority: int
    after_s: float
    """The link must have been down for so long."""
    longest_s: float
    """Nothing is admitted once the dispatcher was heard last so long ago."""


class AllotmentRule(msgspec.Struct, frozen=True, tag="allotment", forbid_unknown_fields=True):
    """An allotment, and whose it is. No decision row: it goes to agents."""

    policy: str
    sites: tuple[str, ...]
    allotment: Allotment


class LocalJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A job that an agent has admitted by itself, and its one placement there, of epoch 1. The ids are random ones of the agent's."""

    job: _Name
    placement: _Name
    spec: Annotated[str, msgspec.Meta(max_length=MOST_SPEC_BYTES)]
    """A `JobSpec` as JSON, whose hash names it: as text, so that one that a dispatcher cannot read costs that job alone."""
    owner: _Name
    queue: _Name
    allotment: _Name
    """The policy under which it was admitted."""
    pool: _Name
    submitted_at: Annotated[float, msgspec.Meta(ge=0, le=2**53)]
    max_duration_s: Annotated[float, msgspec.Meta(gt=0, le=2**53)]
    priority: Annotated[int, msgspec.Meta(ge=0, le=100)] = 50
    cancelled_by: Annotated[str, msgspec.Meta(max_length=200)] = ""
    """Who has cancelled it at the site; empty: nobody."""

    @property
    def spec_hash(self) -> str:
        """The name of its spec."""
        return content_hash(self.spec.encode())
