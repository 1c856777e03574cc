"""Shares of the limits: what is for all is not for one person or one team to fill, so that others still get through."""

import math
from collections.abc import Iterable
from typing import NamedTuple

from federator.control.record.holders import Held, HeldCounts, Holder
from federator.kernel.errors import TooMany
from federator.settings import LimitSettings

MIB = 2**20
AGAIN_S = 60.0


class Limit(NamedTuple):
    """A limit of the whole federation, by the setting that gives it."""

    what: Held
    most: int
    setting: str
    remedy: str


class Shares:
    """How much of a limit one holder may have."""

    def __init__(self, held_counts: HeldCounts, limits: LimitSettings) -> None:
        self.held_counts = held_counts
        self.limits = limits

    def most(self, holder: Holder, limit: Limit) -> int:
        """The largest amount that is theirs to have; at least one."""
        return max(1, math.floor(limit.most * self._share(holder)))

    def refuse_over(self, limit: Limit, holders: Iterable[Holder], more: int = 1) -> None:
        """Raise `TooMany` when that much more would be more than the share of one of them. Names whose it is, what is used, and the remedy."""
        for holder in holders:
            used, most = self.held_counts.of(limit.what, holder), self.most(holder, limit)
            if used + more > most:
                raise TooMany(
                    f"{holder} has {_amount(limit.what, used)}, and the share of one {holder.kind} is {_amount(limit.what, most)} "
                    f"({self._share(holder):g} of {limit.setting})",
                    retry_after_s=AGAIN_S,
                    remedy=f"{limit.remedy}, or have limits.{_setting(holder)} raised",
                )

    def _share(self, holder: Holder) -> float:
        return self.limits.team_share if holder.kind == "team" else self.limits.person_share


def _setting(holder: Holder) -> str:
    return "team_share" if holder.kind == "team" else "person_share"


def _amount(what: Held, number: int) -> str:
    if what in (Held.BLOB_BYTES, Held.LOG_BYTES):
        return f"{number / MIB:.4g} Mi{what.value.replace('bytes', 'B', 1)}"
    return f"{number} {what.value}"
