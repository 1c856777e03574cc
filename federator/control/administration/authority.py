"""Who may submit to which queue, and how a person stands to a job: the one place that decides it, of the policies in force.

Pure: rules and a caller in, rights or a named refusal out. Everything asks here: routes, submissions, changes, series, previews, lists and advice.

A set of policies that names people (a `Team`, or a queue with `allow`) is *closed*: a queue that has no `allow`, its own or one from above, admits only
the roles platform and admin. A set that names nobody is *open*: everybody who is signed in may submit to every queue, within the queue's limits.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from federator.control.record.records import Records
from federator.kernel.errors import Forbidden, Invalid
from federator.model.identity import Caller, Role
from federator.model.jobs import Job
from federator.model.queues import DEFAULT_QUEUE, upwards
from federator.model.rights import EVERYBODY, AccessRule, Grant, Members, Relation, TeamRule
from federator.model.rules import PolicyRule, QueueTerms

OVERSEERS = (Role.PLATFORM, Role.ADMIN)
SHOWN_QUEUES = 20


class Right(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody may do in one queue: the lower of the queue's limits and those of the grant."""

    queue: str
    team: str = ""
    """The team under which; empty: under none."""
    max_priority: int = 100
    max_value_usd: float | None = None
    must: bool = False
    rent: bool = True
    whom: str = ""
    """Whom the queue gives it to, where it names them."""


class Authority:
    """Rights by one set of rules."""

    def __init__(self, rules: Iterable[PolicyRule] = ()) -> None:
        rules = tuple(rules)
        self._queues = {rule.queue: rule for rule in rules if isinstance(rule, QueueTerms)}
        self._queues.setdefault(DEFAULT_QUEUE, QueueTerms(policy="built-in", queue=DEFAULT_QUEUE))
        self._teams = {rule.team: rule for rule in rules if isinstance(rule, TeamRule)}
        said = {rule.queue: rule for rule in rules if isinstance(rule, AccessRule)}
        self._access = {path: _inherited(path, said) for path in self._queues}
        self.closed = bool(self._teams) or any(rule.allow is not None for rule in said.values())
        """Whether only those may submit to a queue whom it names."""

    @property
    def queues(self) -> tuple[QueueTerms, ...]:
        """All of them, by path."""
        return tuple(self._queues[path] for path in sorted(self._queues))

    def terms(self, queue: str) -> QueueTerms:
        """The queue of that path. Raises `Invalid`, naming those that exist."""
        if queue not in self._queues:
            known = ", ".join(sorted(self._queues)[:SHOWN_QUEUES])
            raise Invalid(f"no queue {queue!r}", field="$.queue", remedy=f"queues are: {known}")
        return self._queues[queue]

    def said(self, queue: str) -> QueueTerms:
        """The same; of a queue that there is none of, terms that say nothing."""
        return self._queues.get(queue) or QueueTerms(policy="", queue=queue)

    # -- people ---------------------------------------------------------------------------------------------------------

    def teams_of(self, caller: Caller) -> tuple[str, ...]:
        """The teams that somebody is in, by name."""
        return tuple(name for name, team in sorted(self._teams.items()) if _is_in(team, caller))

    def relations(self, caller: Caller, job: Job, site: str = "") -> frozenset[Relation]:
        """All the ways in which somebody stands to a job that is placed at `site`, if it is placed. Empty: a stranger."""
        return self.standing(caller, owner=job.owner, queue=job.queue, team=job.team, site=site)

    def standing(
        self, caller: Caller, *, owner: str, queue: str, team: str = "", site: str = ""
    ) -> frozenset[Relation]:
        """The same, to what is not a job: a series, say."""
        under = self._teams.get(team)
        stands = {
            Relation.OWNER: caller.name == owner,
            Relation.TEAM_MATE: under is not None and _is_in(under, caller),
            Relation.TEAM_ADMIN: under is not None and caller.name in under.admins,
            Relation.QUEUE_ADMIN: self.administers(caller, queue),
            Relation.SITE_ADMIN: bool(site) and caller.role is Role.SITE_ADMIN and site in caller.sites,
            Relation.PLATFORM: caller.role in OVERSEERS,
        }
        return frozenset(relation for relation, so in stands.items() if so)

    def administers(self, caller: Caller, queue: str) -> bool:
        """Whether somebody may change all jobs of a queue."""
        access = self._access.get(queue)
        if access is None:
            return False
        return caller.role in OVERSEERS or _names(access.admins, caller, self.teams_of(caller))

    # -- queues ---------------------------------------------------------------------------------------------------------

    def rights(self, caller: Caller, queue: str, team: str = "") -> tuple[Right, ...]:
        """What somebody may do in a queue, under that team if one is named; the first that fits a job is the one that counts.

        Raises `Invalid` for a queue or a team that there is none of, and `Forbidden`, naming the queues that the caller may use.
        """
        return self._rights(caller, self.teams_of(caller), queue, team)

    def found(self, caller: Caller, queue: str) -> tuple[Right, ...]:
        """The same, and nothing where somebody has no right."""
        return tuple(self._found(caller, self.teams_of(caller), queue, ""))

    @property
    def teams(self) -> tuple[TeamRule, ...]:
        """All of them, by name."""
        return tuple(self._teams[name] for name in sorted(self._teams))

    def of_team(self, team: str, queue: str) -> tuple[Right, ...]:
        """What being in a team alone gives in a queue; nothing where it gives no right."""
        member = Caller("", Role.USER)
        return tuple(self._found(member, (team,), queue, team))

    def owners_rights(self, job: Job, queue: str) -> tuple[Right, ...]:
        """The same for a job's owner, who is not there to be asked: by name, and as a member of the job's team."""
        owner = Caller(job.owner, Role.USER)
        teams = {*self.teams_of(owner), *({job.team} & self._teams.keys())}
        return self._rights(owner, tuple(sorted(teams)), queue, "")

    def usable_by_owner(self, job: Job) -> tuple[str, ...] | None:
        """The queues that a job's owner may submit to; None: all of them."""
        if not self.closed:
            return None
        owner = Caller(job.owner, Role.USER)
        teams = (*self.teams_of(owner), *({job.team} & self._teams.keys()))
        return tuple(self._usable(owner, teams))

    def usable(self, caller: Caller) -> tuple[str, ...]:
        """The queues that somebody may submit to, by path."""
        return tuple(self._usable(caller, self.teams_of(caller)))

    def _usable(self, caller: Caller, teams: tuple[str, ...]) -> Iterator[str]:
        for path in sorted(self._queues):
            if any(True for _ in self._found(caller, teams, path, "")):
                yield path

    def _rights(self, caller: Caller, teams: tuple[str, ...], queue: str, team: str) -> tuple[Right, ...]:
        self.terms(queue)
        if team and team not in self._teams:
            known = ", ".join(teams) or "none"
            raise Invalid(
                f"there is no team {team!r}", field="$.team", remedy=f"{caller.name}'s teams: {known}"
            )
        if team and team not in teams and caller.role not in OVERSEERS:
            raise Forbidden(
                f"{caller.name} is not in team {team}",
                field="$.team",
                remedy=f"leave it out, or name one of: {', '.join(teams) or 'none'}",
            )
        found = tuple(self._found(caller, teams, queue, team))
        if not found:
            raise self._refusal(caller, teams, queue, team)
        return found

    def _found(self, caller: Caller, teams: tuple[str, ...], queue: str, team: str) -> Iterator[Right]:
        terms, access = self._queues[queue], self._access[queue]
        if not self.closed:
            yield _right(terms, Grant(Members()), "")
            return
        named = team or next((t for g in access.allow or () for t in g.who.teams if t in teams), "")
        if caller.role in OVERSEERS or _names(access.admins, caller, teams):
            yield _right(terms, Grant(Members()), named)
            return
        for grant in access.allow or ():
            if not _names(grant.who, caller, teams):
                continue
            under = team or next((name for name in grant.who.teams if name in teams), "")
            # Under a team that the entry does not name, only who is named beside its teams.
            beside = Members(users=grant.who.users, groups=grant.who.groups)
            if under in grant.who.teams or _names(beside, caller, ()):
                yield _right(terms, grant, under)

    def _refusal(self, caller: Caller, teams: tuple[str, ...], queue: str, team: str) -> Forbidden:
        usable = list(self._usable(caller, teams))
        shown = ", ".join(usable[:SHOWN_QUEUES])
        where = f"queues open to {caller.name}: {shown}" if usable else f"no queue is open to {caller.name}"
        admins = self._access[queue].admins.shown or "a user with the role platform"
        return Forbidden(
            f"{caller.name} may not submit to queue {queue}{f' under team {team}' if team else ''}",
            field="$.queue",
            remedy=f"{where}; {queue} is administered by {admins}",
        )

    def admits(self, queue: str) -> str:
        """Whom a queue admits, in words."""
        if not self.closed:
            return "everybody"
        grants = self._access[queue].allow or ()
        shown = ", ".join(dict.fromkeys(filter(None, (grant.who.shown for grant in grants))))
        return shown or "only the roles platform and admin"

    @property
    def shown(self) -> str:
        """In one line, who may submit where."""
        if not self.closed:
            return "open: no policy names people, so everybody may submit to every queue"
        shut = [path for path in sorted(self._queues) if not self._access[path].allow]
        text = "closed: only those may submit to a queue whom its `allow` names"
        return f"{text}; only the roles platform and admin to {', '.join(shut)}" if shut else text


class AuthorityInForce:
    """The authority by the policies in force, made once for each version."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._rules: tuple[PolicyRule, ...] = ()
        self._authority = Authority()

    @property
    def now(self) -> Authority:
        """As of this moment."""
        rules = self._records.policies.rules
        if rules is not self._rules:
            self._rules, self._authority = rules, Authority(rules)
        return self._authority


def _inherited(queue: str, said: Mapping[str, AccessRule]) -> AccessRule:
    """Who may submit is as the nearest says, the queue itself or one above; whoever administers one administers all below it."""
    line = [said[path] for path in upwards(queue) if path in said]
    admins = Members()
    for rule in line:
        admins = admins.joined(rule.admins)
    allow = next((rule.allow for rule in line if rule.allow is not None), None)
    return AccessRule(policy="", queue=queue, allow=allow, admins=admins)


def _is_in(team: TeamRule, caller: Caller) -> bool:
    named = caller.name in team.members or caller.name in team.admins
    return named or not set(caller.groups).isdisjoint(team.groups)


def _names(who: Members, caller: Caller, teams: tuple[str, ...]) -> bool:
    return (
        EVERYBODY in who.users
        or caller.name in who.users
        or not set(teams).isdisjoint(who.teams)
        or not set(caller.groups).isdisjoint(who.groups)
    )


def _right(terms: QueueTerms, grant: Grant, team: str) -> Right:
    values = [each for each in (terms.max_value_usd, grant.max_value_usd) if each is not None]
    return Right(
        queue=terms.queue,
        team=team,
        max_priority=min(terms.max_priority, grant.max_priority),
        max_value_usd=min(values, default=None),
        must=terms.allow_must and grant.must,
        rent=grant.rent,
        whom=grant.who.shown,
    )
