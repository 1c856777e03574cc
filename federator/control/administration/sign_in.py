"""Whose request it is: by a token made here, or by one that an OpenID Connect provider has signed.

Tokens made here have no dots, signed ones have two; so each is looked at by what can judge it, and by nothing else. When a token was last used
is noted to the hour, and written beside the requests: a write with each request would be the dearest part of it.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from federator.control.administration.admission import Admission
from federator.control.administration.claims import caller_of, refused
from federator.control.administration.tokens import digest_of
from federator.control.record.holders import Held, Holder
from federator.control.record.records import Changes
from federator.kernel.errors import Unauthenticated
from federator.model.identity import Caller
from federator.ports import IdentityProvider
from federator.settings import OidcSettings

log = logging.getLogger(__name__)

USE_S = 3600.0
"""How coarsely the last use of a token is known. Clock seconds."""
GATHER_S = 10.0
"""Real seconds for which uses are gathered before they are written."""
BATCH = 50
"""Tokens of which the last use is written at once."""
TOLD_S = 1.0
"""Real seconds between two log lines on tokens that were refused; those in between are counted."""


class SignIn:
    """Checks credentials. Without a provider only tokens made here are good."""

    def __init__(
        self, admission: Admission, settings: OidcSettings | None, identity: IdentityProvider | None
    ) -> None:
        self._admission = admission
        self._settings = settings
        self.identity = identity
        self._used: dict[str, float] = {}
        self._met: dict[str, tuple[float, Caller]] = {}
        """Sign-ins that are still to be noted, by name;"""
        self._known: dict[str, tuple[float, Caller]] = {}
        """and the last of each that was: only of people who have series, which are limited."""
        self._use = asyncio.Event()
        self._told_at = -TOLD_S
        self._untold = 0

    def authenticate(self, bearer: str) -> Caller:
        """The caller. Raises `Unauthenticated`, `Forbidden` for somebody known without a role, `Unavailable` while a provider cannot be asked."""
        if bearer.count(".") != 2:
            caller = self._admission.authenticate(bearer)
            self._note_use(digest_of(bearer))
            return caller
        try:
            if self._settings is None or self.identity is None:
                raise refused("no OpenID Connect provider is in the settings")
            claims = self.identity.verify(bearer)
            caller = caller_of(claims, self._settings, self._admission.clock.now())
        except Unauthenticated as error:
            self._tell(error.why)
            raise refused(error.why) from None
        self._note_sign_in(caller)
        return caller

    async def run(self) -> None:
        """Write down last uses, again and again."""
        while True:
            await self._use.wait()
            await asyncio.sleep(GATHER_S)
            await self.write_uses()

    async def write_uses(self) -> int:
        """Write down the last uses that are due, and answer how many. Without them nothing is written."""
        used, self._used = self._used, {}
        self._use.clear()
        due = list(used.items())
        for first in range(0, len(due), BATCH):
            await self._admission.records.transact(self._uses(due[first : first + BATCH]))
        met, self._met = self._met, {}
        series = [key for key, each in self._admission.records.series.items() if each.owner in met]
        for first in range(0, len(series), BATCH):
            await self._admission.records.transact(self._signs(series[first : first + BATCH], met))
        return len(due) + len(series)

    def _uses(self, due: list[tuple[str, float]]) -> Callable[[], Changes]:
        def compute() -> Changes:
            changes, tokens = Changes(), self._admission.records.tokens
            for digest, at in due:
                if digest in tokens:
                    changes.put(replace(tokens[digest], last_used_at=at))
            return changes

        return compute

    def _signs(self, keys: list[str], met: Mapping[str, tuple[float, Caller]]) -> Callable[[], Changes]:
        def compute() -> Changes:
            changes, known = Changes(), self._admission.records.series
            for series in (known[key] for key in keys if key in known):
                at, caller = met[series.owner]
                changes.put(replace(series, signed_in_at=at, signed_in_as=caller.role, groups=caller.groups))
            return changes

        return compute

    def _note_sign_in(self, caller: Caller) -> None:
        """Their series go on as what they are now, with the next hour of them or with other groups."""
        records, now = self._admission.records, self._admission.clock.now()
        if not records.held_counts.of(Held.SERIES, Holder("user", caller.name)):
            return
        before = self._known.get(caller.name)
        if (
            before is None
            or now - before[0] >= USE_S
            or (before[1].groups, before[1].role) != (caller.groups, caller.role)
        ):
            self._known[caller.name] = self._met[caller.name] = now, caller
            self._use.set()

    def _note_use(self, digest: str) -> None:
        now = self._admission.clock.now()
        token = self._admission.records.tokens[digest]
        if now - max(token.last_used_at, self._used.get(digest, 0.0)) >= USE_S:
            self._used[digest] = now
            self._use.set()

    def _tell(self, why: str) -> None:
        """Say in the log why a signed token was refused; never the token, and one line a second at most."""
        now = self._admission.clock.boot()
        if now - self._told_at < TOLD_S:
            self._untold += 1
            return
        more = f", and {self._untold} before it" if self._untold else ""
        log.warning("a signed token was refused: %s%s", why, more)
        self._told_at, self._untold = now, 0
