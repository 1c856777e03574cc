"""The kind `Allotment`: what a site that is cut off from the dispatcher may admit by itself.

Its agent has a copy on its disk. Nobody is admitted whom the site file (`local_submit`) does not name as well: the one says how much of whose work,
the other who at the host is that person.
"""

from typing import Annotated

import msgspec

from federator.kernel.errors import Invalid
from federator.model.allotments import Allotment, AllotmentRule
from federator.model.rules import PolicyRule
from federator.wire.decoding import decode
from federator.wire.fields import Duration, Name, QueuePath
from federator_policies.whose import read_users

DEFAULT_AFTER_S = 60.0
DEFAULT_FOR_S = 3 * 86400.0
MOST_JOBS = 200
"""Jobs a day of one allotment: each is sent home with its spec."""


class AllotmentSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`spec` of an `Allotment`. Money is never part of it: nothing is rented by a site that is cut off."""

    sites: tuple[Name, ...]
    """At which sites. Each agent of them has all of it: a site of several hosts as often as it has hosts."""
    queue: QueuePath
    """The queue that the jobs are of."""
    users: tuple[str, ...]
    """Whose jobs: people and service accounts, by name. Each must have the right to submit to the queue. All share the allotment; a document for each person keeps one from using all of it."""
    gpu_hours: Annotated[float, msgspec.Meta(gt=0, le=1_000_000)]
    """GPU-hours in any 24 hours, of all of them together. A job that has not ended counts for as long as it may run."""
    max_duration: Duration
    """How long a job may run. One that does not say is ended after it."""
    jobs: Annotated[int, msgspec.Meta(ge=1, le=MOST_JOBS)] = 50
    """Jobs in any 24 hours."""
    max_priority: Annotated[int, msgspec.Meta(ge=0, le=100)] = 50
    """Highest priority that a job may claim."""
    after: Duration = DEFAULT_AFTER_S
    """For how long the link must have been down; `60s` when it is not said."""
    longest: Duration = DEFAULT_FOR_S
    """So long after the dispatcher was last heard nothing more is admitted; `3d` when it is not said."""


class AllotmentKind:
    """Checks and compiles `Allotment` documents; see `federator.ports.PolicyKind`."""

    kind = "Allotment"
    spec = AllotmentSpec

    def compile(self, name: str, spec: object) -> tuple[PolicyRule, ...]:
        """One rule."""
        given = decode(spec, AllotmentSpec, "$.spec")
        for field in ("sites", "users"):
            if not getattr(given, field):
                raise Invalid("is empty", field=f"$.spec.{field}", remedy="name at least one")
        if given.longest <= given.after:
            raise Invalid(
                "is over before anything is admitted", field="$.spec.longest", remedy="write more than after"
            )
        policy = f"{self.kind}/{name}"
        allotment = Allotment(
            policy=policy,
            queue=given.queue,
            users=read_users(given.users, "$.spec.users"),
            gpu_h=given.gpu_hours,
            jobs=given.jobs,
            max_duration_s=given.max_duration,
            max_priority=given.max_priority,
            after_s=given.after,
            longest_s=given.longest,
        )
        return (AllotmentRule(policy, tuple(dict.fromkeys(given.sites)), allotment),)


kind = AllotmentKind()
