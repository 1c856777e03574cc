"""People's bearer tokens: checked with every request, made, changed for new ones, and ended.

Secrets are shown once and never stored: rows hold SHA-256 digests of them. A secret has 256 random bits, so a plain digest is enough; what
slow hashes protect are passwords that people invent. Every act here leaves a ledger line in the transaction that it is.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from federator.control.record.records import Changes, Records
from federator.kernel.clock import Clock
from federator.kernel.errors import Conflict, Forbidden, Invalid, NotFound, Unauthenticated
from federator.kernel.ids import IdSource
from federator.kernel.quantities import parse_duration_s
from federator.model.events import LedgerEntry, LedgerKind
from federator.model.identity import PERSON, Caller, JoinToken, Role, Scope, Token
from federator.model.queues import DEFAULT_QUEUE
from federator.model.sites import Member, Site
from federator.wire.http import TokenAnswer, TokenRequest, TokenRotation, TokenRow

NEVER = "never"
"""Instead of a lifetime: none."""
BOOTSTRAP_NAME = "admin"
ID_DIGITS = 12
"""So much of a digest tells a token from all others."""
TOGETHER = 100
"""Tokens that one transaction ends: the store takes some 120 rows."""
REFUSED = "this token is not valid here"


@dataclass
class Tokens:
    """Who a person is, by the token that is shown."""

    records: Records
    clock: Clock
    ids: IdSource
    lifetime_s: float = 90 * 86400.0
    """How long a person's token is good where nobody says otherwise; 0: for ever."""

    def authenticate(self, bearer: str) -> Caller:
        """The person behind a bearer token. Raises `Unauthenticated` for one that is unknown, expired or revoked."""
        digest = digest_of(bearer)
        token = self.records.tokens.get(digest)
        # The comparison in constant time is for the day that a store's index does not look up by the whole digest.
        if token is None or not hmac.compare_digest(token.digest, digest):
            raise Unauthenticated(REFUSED, remedy="ask an admin for one: federator token create")
        if token.revoked:
            raise Unauthenticated("this token was revoked", remedy="ask an admin for another")
        if not self._valid(token):
            raise Unauthenticated("this token has expired", remedy="ask an admin for another")
        return Caller(
            token.name,
            token.role,
            (token.site,) if token.site else (),
            token.default_queue,
            scopes=token.scopes,
            expires_at=token.expires_at,
        )

    @property
    def bootstrapped(self) -> bool:
        """Whether an admin's token was ever made."""
        return any(token.role is Role.ADMIN for token in self.records.tokens.values())

    async def bootstrap_admin(self, keep: Callable[[str], None]) -> None:
        """Make the first admin's token. Raises `Conflict` when there was one already.

        `keep` is given the secret before the token counts: a crash in between leaves a secret that is worth nothing, and the next start
        makes another; the other way round it would leave a federation that nobody can enter.
        """
        if self.bootstrapped:
            raise Conflict("this federation has an admin already")
        secret = new_secret("fed")
        keep(secret)
        token = Token(
            digest=digest_of(secret), name=BOOTSTRAP_NAME, role=Role.ADMIN, created_at=self.clock.now()
        )
        await self.records.transact(
            lambda: self._recorded("dispatcher", "made the first admin's token", token)
        )

    async def rotate(self, caller: Caller, named: str, request: TokenRotation) -> TokenAnswer:
        """A new token in the place of the one that is named, by its owner's name or by its id; the old one ends, after `keep` if that is given.

        One's own, or as an admin anybody's. Only an admin gives it a new lifetime: nobody prolongs what was lent to them.
        """
        keep_s = duration_s(request.keep, "$.keep") or 0.0
        lifetime_s = duration_s(request.expires_in, "$.expires_in")
        if lifetime_s is not None:
            caller.require(Role.ADMIN)
        secret, made = new_secret("fed"), list[Token]()

        def compute() -> Changes:
            old = self._one(named)
            own = (old.name, old.role) == (caller.name, caller.role) and (
                not old.site or old.site in caller.sites
            )
            if caller.role is not Role.ADMIN and not own:
                raise Forbidden("this token is not yours", remedy="ask an admin")
            _check_no_wider(caller, old.scopes)
            now = self.clock.now()
            expires_at = old.expires_at if lifetime_s is None else now + lifetime_s
            new = msgspec.structs.replace(
                old, digest=digest_of(secret), created_at=now, expires_at=expires_at, last_used_at=0.0
            )
            made[:] = [new]
            what = f"rotated a token of {old.name} with role {old.role}"
            return self._recorded(f"user:{caller.name}", what, new, self._ended(old, keep_s))

        await self.records.transact(compute)
        return _answer(secret, made[0])

    async def revoke(self, caller: Caller, named: str, in_s: float = 0.0) -> int:
        """End all tokens of that name, or the one of that id, an agent's unused one too: now, or `in_s` clock seconds from now; how many.

        Raises `NotFound`, and `Conflict` where nobody would be left who can make another.
        """
        caller.require(Role.ADMIN)
        ended: list[Token | JoinToken] = []

        def compute() -> Changes:
            found = self._named(named)
            changed = ((token, self._ended(token, in_s)) for token in found if self._valid(token))
            every = [after for before, after in changed if after != before]
            ended[:] = every[:TOGETHER]
            rest = [t for t in self.records.tokens.values() if t not in found and t.role is Role.ADMIN]
            if not any(map(self._valid, rest)) and any(
                isinstance(each, Token) and each.role is Role.ADMIN for each in every
            ):
                raise Conflict(
                    "no admin's token would be left",
                    remedy="make another first: federator token create NAME --role admin",
                )
            when = f" in {in_s:.0f} s" if in_s else ""
            return self._recorded(f"user:{caller.name}", f"revoked the tokens of {named}{when}", *ended)

        count = 0
        while await self.records.transact(compute):
            count += len(ended)
        return count

    def rows(self) -> list[TokenRow]:
        """Who has which tokens, and which join tokens still wait for an agent; newest first, never their secrets."""
        rows = [
            TokenRow(
                id=token.digest[:ID_DIGITS],
                name=token.name,
                role=token.role,
                site=token.site or "",
                default_queue=token.default_queue,
                created_at=token.created_at,
                expires_at=token.expires_at,
                scopes=token.scopes,
                last_used_at=token.last_used_at or None,
                status="revoked" if token.revoked else "valid" if self._valid(token) else "expired",
            )
            for token in self.records.tokens.values()
        ]
        rows += [
            TokenRow(
                id=join.digest[:ID_DIGITS],
                name=join.member or "",
                site=join.site,
                created_at=join.created_at,
                expires_at=join.expires_at,
                most=join.most,
                used=join.used,
                status="revoked" if join.revoked else "valid" if self._valid(join) else "expired",
            )
            for join in self.records.join_tokens.values()
            if join.public_key is None
        ]
        return sorted(rows, key=lambda row: (-row.created_at, row.name))

    async def _create_person(self, caller: Caller, request: TokenRequest) -> TokenAnswer:
        _check_no_wider(caller, request.scopes)
        given_s = None if request.expires_in == NEVER else duration_s(request.expires_in, "$.expires_in")
        lifetime_s = 0.0 if request.expires_in == NEVER else given_s or self.lifetime_s
        check_name(PERSON, request.name, "$.name", "letters, digits, '.', '_', '@' and '-'")
        role = _role(request)
        secret = new_secret("fed")
        now = self.clock.now()
        token = Token(
            digest=digest_of(secret),
            name=request.name,
            role=role,
            site=request.site or None,
            default_queue=request.default_queue or DEFAULT_QUEUE,
            created_at=now,
            expires_at=now + lifetime_s if lifetime_s else None,
            scopes=tuple(scope for scope in Scope if scope in request.scopes),
        )
        who = f"user:{caller.name}"
        await self.records.transact(
            lambda: self._recorded(who, f"made a token for {token.name} with role {role}", token)
        )
        return _answer(secret, token)

    def _valid(self, token: Token | JoinToken) -> bool:
        return is_valid(token, self.clock.now())

    def _ended(self, token: Token | JoinToken, in_s: float) -> Token | JoinToken:
        """The same token, over at once or that much later; never later than it would have been."""
        if isinstance(token, Token) and not in_s:
            return msgspec.structs.replace(token, revoked=True)
        at = self.clock.now() + in_s
        ends_at = at if token.expires_at is None else min(at, token.expires_at)
        return msgspec.structs.replace(token, expires_at=ends_at, revoked=not in_s)

    def _named(self, named: str) -> list[Token | JoinToken]:
        """All tokens of that name, or else the one of that id. Raises `NotFound`."""
        found: list[Token | JoinToken] = [t for t in self.records.tokens.values() if t.name == named]
        waiting = (token for token in self.records.join_tokens.values() if token.public_key is None)
        every: tuple[Token | JoinToken, ...] = (*self.records.tokens.values(), *waiting)
        found = found or [token for token in every if token.digest[:ID_DIGITS] == named]
        if not found:
            raise NotFound(f"no token is named {named!r}", remedy="federator token list shows names and ids")
        return found

    def _one(self, named: str) -> Token:
        """The one valid token of a person that is meant. Raises `NotFound`, `Conflict`."""
        found = [each for each in self._named(named) if isinstance(each, Token) and self._valid(each)]
        if not found:
            raise NotFound(f"no token of {named!r} is valid", remedy="make one: federator token create")
        if len(found) > 1:
            ids = ", ".join(token.digest[:ID_DIGITS] for token in found)
            raise Conflict(f"{named} has {len(found)} tokens", remedy=f"name one by its id: {ids}")
        return found[0]

    def _recorded(
        self, who: str, what: str, *rows: Token | JoinToken | Site | Member, site: str = "", lease: str = ""
    ) -> Changes:
        changes = Changes()
        if rows:
            entry = LedgerEntry(
                id=self.ids.new("le"),
                at=self.clock.now(),
                kind=LedgerKind.ACT,
                who=who,
                what=what,
                site=site,
                lease=lease,
            )
            changes.put(*rows, entry)
        return changes


def is_valid(token: Token | JoinToken, now: float) -> bool:
    """Whether it opens anything: it is neither revoked nor expired."""
    revoked = isinstance(token, Token) and token.revoked
    return not revoked and (token.expires_at is None or token.expires_at > now)


def digest_of(secret: str) -> str:
    """What is stored of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def new_secret(prefix: str) -> str:
    """A secret that nobody can guess; the prefix says what it is for."""
    return f"{prefix}_{secrets.token_urlsafe(32)}"


def duration_s(text: str, field: str) -> float | None:
    """A time that a person has written, in seconds; None for none. Raises `Invalid`, naming the field."""
    if not text:
        return None
    try:
        seconds = parse_duration_s(text)
    except ValueError as error:
        raise Invalid(str(error), field=field) from None
    if seconds <= 0:
        raise Invalid("must be more than 0", field=field)
    return seconds


def _check_no_wider(caller: Caller, scopes: tuple[Scope, ...]) -> None:
    """Raise `Forbidden` where a limited token would make one that may do more than itself."""
    if caller.scopes and not set(scopes or Scope) <= set(caller.scopes):
        what = f"your token is limited to {', '.join(caller.scopes)}, and makes none that may do more"
        raise Forbidden(what, field="$.scopes", remedy="name scopes that your token has")


def check_name(pattern: re.Pattern[str], name: str, field: str, letters: str) -> None:
    """Raise `Invalid` unless the whole name is of the pattern; `letters` says what may be in it."""
    if not pattern.fullmatch(name):
        raise Invalid(f"{name[:80]!r} is not a name", field=field, remedy=f"up to 63 of {letters}")


def _answer(secret: str, token: Token) -> TokenAnswer:
    return TokenAnswer(
        secret, name=token.name, role=token.role, site=token.site or "", expires_at=token.expires_at
    )


def _role(request: TokenRequest) -> Role:
    try:
        role = Role(request.role)
    except ValueError:
        known = ", ".join(Role)
        raise Invalid(
            f"no role is called {request.role!r}", field="$.role", remedy=f"one of {known}"
        ) from None
    if (role is Role.SITE_ADMIN) != bool(request.site):
        raise Invalid(
            "the role site-admin takes exactly one site, other roles take none",
            field="$.site",
            remedy="see role",
        )
    return role
