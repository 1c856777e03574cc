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
