"""Whose a series or a service is: who may look at it and change it; and whether its owner is still let in, who is not there to be asked when a run is due or a replica is needed: by a token that is valid, or by a sign-in that is not too long ago.

A sign-in with OpenID Connect leaves nothing that could be revoked here. So its date, groups and role are noted with the series, and they count for `oidc.absent_s`: who was
locked out at the provider cannot sign in again, and what they have left behind ends within that time.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

from federator.control.administration.authority import OVERSEERS, Authority
from federator.control.administration.tokens import is_valid
from federator.control.administration.visibility import Sight
from federator.control.record.records import Records
from federator.kernel.errors import Forbidden
from federator.kernel.quantities import format_duration, format_instant
from federator.model.identity import Caller, Role
from federator.model.rights import MAY_CHANGE, Relation
from federator.model.series import Series
from federator.model.services import Service

Owned = TypeVar("Owned", Series, Service)


class SeriesOwners(NamedTuple):
    """Who is let in at some moment."""

    now: float
    roles: dict[str, Role]
    """Of those who have a token that is valid, the highest of their roles."""
    had: frozenset[str]
    """Who has, or had, a token."""
    absent_s: float | None
    """So long a sign-in counts; None: nobody signs in but with tokens."""

    def shut_out(self, series: Series | Service) -> str:
        """Why its owner has nothing submitted any more; empty: they are let in. Where neither tokens nor sign-ins are known, nobody is shut out."""
        if series.owner in self.roles or self._signed_in(series):
            return ""
        if self.absent_s is not None and series.signed_in_at is not None:
            since, most = format_instant(series.signed_in_at), format_duration(self.absent_s)
            return f"{series.owner} has not signed in since {since}, and a sign-in counts for {most} (oidc.absent_s)"
        return f"of {series.owner}'s tokens none is valid any more" if series.owner in self.had else ""

    def unknown(self, series: Series) -> bool:
        """Whether its owner can only have signed in, and it is not noted when: it is of an older version."""
        return self.absent_s is not None and series.signed_in_at is None and series.owner not in self.had

    def caller(self, series: Series | Service) -> Caller:
        """Whoever has submitted it, with the groups of their last sign-in and the highest role that is good now."""
        role = self.roles.get(series.owner, Role.USER)
        if self._signed_in(series) and role not in OVERSEERS:
            role = series.signed_in_as or Role.USER
        return Caller(name=series.owner, role=role, groups=series.groups)

    def _signed_in(self, series: Series | Service) -> bool:
        at = series.signed_in_at
        return self.absent_s is not None and at is not None and self.now < at + self.absent_s


def series_owners(records: Records, now: float, absent_s: float | None) -> SeriesOwners:
    """Those of this moment."""
    roles: dict[str, Role] = {}
    for token in records.tokens.values():
        if is_valid(token, now) and roles.get(token.name) not in OVERSEERS:
            roles[token.name] = token.role
    return SeriesOwners(now, roles, frozenset(token.name for token in records.tokens.values()), absent_s)


def signed_in(caller: Caller, now: float) -> dict[str, Any]:
    """As whom something is submitted: nothing is noted of a token, which can be revoked here."""
    noted = {} if caller.signed_in_by == "token" else {"signed_in_at": now, "signed_in_as": caller.role}
    return {"groups": caller.groups, **noted}


def relations(authority: Authority, caller: Caller, row: Series | Service) -> frozenset[Relation]:
    """What somebody is to it."""
    return authority.standing(caller, owner=row.owner, queue=row.queue, team=row.team)


def require_right(authority: Authority, caller: Caller, row: Series | Service) -> None:
    """Raise `Forbidden` unless they may change it."""
    if not relations(authority, caller, row) & MAY_CHANGE:
        kind = "series" if isinstance(row, Series) else "service"
        raise Forbidden(
            f"{kind} {row.name} belongs to {row.owner}",
            remedy=f"ask them, or an administrator of queue {row.queue}",
        )


def is_shown(sight: Sight, row: Series | Service) -> bool:
    """Whether they see it in a list."""
    return sight.standing(row.owner, row.queue, row.team)


def listed(rows: Mapping[str, Owned], sight: Sight, owner: str = "") -> list[Owned]:
    """Those that they are shown, by name; with `owner` that person's."""
    wanted = (each for each in rows.values() if owner in ("", each.owner) and is_shown(sight, each))
    return sorted(wanted, key=lambda each: (each.name, each.owner))


def named(rows: Mapping[str, Owned], sight: Sight, caller: Caller, name: str, owner: str) -> list[Owned]:
    """Those of that name that they are shown: their own, or that of the owner who is named; else all."""
    own = rows.get(f"{owner or caller.name}/{name}")
    found = (
        [own] if own is not None else [] if owner else [each for each in rows.values() if each.name == name]
    )
    return [each for each in found if is_shown(sight, each)]
