"""The kind `Team`: people and service accounts that submit together, named once, so that queues can name the team.

Once a set has a team, or a queue that says who may submit, every other queue is closed; see `allow` of `Queue`.
"""

import msgspec

from federator.kernel.errors import Invalid
from federator.model.rights import TeamRule
from federator.model.rules import PolicyRule
from federator.wire.decoding import decode
from federator_policies.whose import read_groups, read_users


class TeamSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`spec` of a `Team`. The team has the document's name."""

    members: tuple[str, ...] = ()
    """People and service accounts, by the names of their tokens or of the sign-in provider."""
    groups: tuple[str, ...] = ()
    """Groups of the sign-in provider: everybody in one of them is a member."""
    admins: tuple[str, ...] = ()
    """Members who may move, hold, release, requeue, cancel and re-prioritise all jobs that run under the team."""


class TeamKind:
    """Checks and compiles `Team` documents; see `federator.ports.PolicyKind`."""

    kind = "Team"
    spec = TeamSpec

    def compile(self, name: str, spec: object) -> tuple[PolicyRule, ...]:
        """One rule."""
        given = decode(spec, TeamSpec, "$.spec")
        if not (given.members or given.groups or given.admins):
            raise Invalid(
                "is empty",
                field="$.spec.members",
                remedy="name people, or groups of the sign-in",
            )
        return (
            TeamRule(
                policy=f"{self.kind}/{name}",
                team=name,
                members=read_users(given.members, "$.spec.members"),
                groups=read_groups(given.groups, "$.spec.groups"),
                admins=read_users(given.admins, "$.spec.admins"),
            ),
        )


kind = TeamKind()
