"""What people are told of their own rights: where they may submit, and within which limits."""

import msgspec

from federator.model.rights import MAX_PRIORITY


class QueueRights(msgspec.Struct, frozen=True, kw_only=True):
    """What who asks may do in one queue, by the best of their rights."""

    queue: str = ""
    submit: bool = True
    """Whether they may submit there;"""
    administer: bool = False
    """whether they administer it;"""
    teams: tuple[str, ...] = ()
    """under which teams they submit;"""
    max_priority: int = MAX_PRIORITY
    """up to which priority,"""
    max_value_usd: float | None = None
    """and which value of a deadline;"""
    must: bool = False
    """whether with `value: must`;"""
    rent: bool = True
    """whether capacity may be rented for it, where a policy permits that."""


class TeamRow(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `federator teams`: who is in a team, and what being in it gives."""

    team: str
    members: tuple[str, ...] = ()
    """People and service accounts, by name."""
    groups: tuple[str, ...] = ()
    """Groups of the sign-in provider, whose members are members; who that is shows when they sign in."""
    admins: tuple[str, ...] = ()
    """Members who may change the jobs that run under the team."""
    yours: bool = False
    """Whether who asks is in it."""
    queues: tuple[QueueRights, ...] = ()
    """Where its members may submit under it, and within which limits."""
