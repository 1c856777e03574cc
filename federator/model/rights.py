"""Rights: who is a team, who may submit to a queue and within which limits, and how a person stands to a job.

Policies say them (`Team`, and `allow` and `admins` of a `Queue`); `federator.control.administration.authority` decides by them. No plan depends on them: a
right is tested when a job is submitted or changed, and what follows for plans is in the job's record.
"""

from enum import StrEnum

import msgspec

MAX_PRIORITY = 100
EVERYBODY = "*"
"""Among `Members.users`: everybody who is signed in."""


class Members(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Some people, named in three ways; whoever is named in one of them is meant. Empty: nobody."""

    teams: tuple[str, ...] = ()
    """Everybody in these teams."""
    users: tuple[str, ...] = ()
    """People and service accounts, by name; `*`: everybody who is signed in."""
    groups: tuple[str, ...] = ()
    """Groups of the sign-in provider."""

    def __bool__(self) -> bool:
        """Whether anybody is named."""
        return bool(self.teams or self.users or self.groups)

    def joined(self, other: "Members") -> "Members":
        """These and those."""
        pairs = ((self.teams, other.teams), (self.users, other.users), (self.groups, other.groups))
        return Members(*(tuple(dict.fromkeys((*mine, *theirs))) for mine, theirs in pairs))

    @property
    def shown(self) -> str:
        """In words, such as `team vision, user ada`."""
        words = [f"team {name}" for name in self.teams]
        words += ["everybody" if name == EVERYBODY else f"user {name}" for name in self.users]
        return ", ".join([*words, *(f"group {name}" for name in self.groups)])


class Grant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who may submit to a queue. Its limits are upper bounds beside the queue's own: the lower one holds."""

    who: Members
    """Whom it is for."""
    max_priority: int = MAX_PRIORITY
    """Highest priority that their jobs may claim."""
    max_value_usd: float | None = None
    """Highest value of a deadline that their jobs may claim, in USD; left out: as the queue has it."""
    must: bool = True
    """Whether their jobs may say that their deadline must be met, where the queue allows it."""
    rent: bool = True
    """Whether capacity may be rented for their jobs, where a policy permits it."""


class TeamRule(msgspec.Struct, frozen=True, tag="team", forbid_unknown_fields=True):
    """That a team exists, and who is in it."""

    policy: str
    """Name of the policy that it is from."""
    team: str
    """The team's name."""
    members: tuple[str, ...] = ()
    """People and service accounts, by name."""
    groups: tuple[str, ...] = ()
    """Groups of the sign-in provider: everybody in one of them is a member."""
    admins: tuple[str, ...] = ()
    """Members who may change the jobs that run under the team."""


class AccessRule(msgspec.Struct, frozen=True, tag="access", forbid_unknown_fields=True):
    """What one queue says of who may submit to it and who administers it."""

    policy: str
    """Name of the policy that it is from."""
    queue: str
    """The queue's path."""
    allow: tuple[Grant, ...] | None = None
    """Who may submit, and within which limits; None: as the queue above says. Of several entries that name somebody, the first that admits a job counts."""
    admins: Members = Members()
    """Who administers it and all below it."""


class Relation(StrEnum):
    """How a person stands to a job. One person may stand in several ways; the routes say which of them let whom in."""

    OWNER = "owner"
    """Who has submitted it."""
    TEAM_MATE = "team-mate"
    """A member of the team that it runs under."""
    TEAM_ADMIN = "team-admin"
    """An administrator of that team."""
    QUEUE_ADMIN = "queue-admin"
    """An administrator of its queue, or of one above."""
    SITE_ADMIN = "site-admin"
    """An administrator of the site where it is placed."""
    PLATFORM = "platform"
    """The role platform or admin."""


MAY_CHANGE = frozenset({Relation.OWNER, Relation.TEAM_ADMIN, Relation.QUEUE_ADMIN, Relation.PLATFORM})
"""Who may change a job, or a series: hold, release, requeue, cancel, move, and claim more for it within the rights of its queue."""
MAY_READ = MAY_CHANGE | {Relation.TEAM_MATE}
"""Who may read what a job keeps to itself and what it wrote."""
MAY_EXEC = frozenset({Relation.OWNER})
"""Who may run commands inside of a job and reach its ports: whoever is in it has all that its owner has given it."""
