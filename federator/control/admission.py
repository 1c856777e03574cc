"""Who gets in: people by bearer token, agents by a one-time join token and then by their key.

Secrets are shown once and never stored: rows hold SHA-256 digests of them. A secret has 256 random bits, so a plain digest is enough; what
slow hashes protect are passwords that people invent. Every act here leaves a ledger line in the transaction that it is.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from federator.control.records import Changes, Records
from federator.kernel.clock import Clock
from federator.kernel.errors import Conflict, Invalid, NotFound, Unauthenticated
from federator.kernel.ids import IdSource
from federator.kernel.quantities import parse_duration_s
from federator.model.capacity import Market
from federator.model.events import LedgerEntry, LedgerKind
from federator.model.identity import Caller, JoinToken, Role, Token
from federator.model.sites import Member, Site, SiteKind, SiteStatus
from federator.wire.http import TokenAnswer, TokenRequest
from federator.wire.link import Challenge, JoinAnswer, JoinRequest, challenge_bytes

JOIN_EXPIRES_S = 86400.0
"""How long a join token waits for its agent when nobody says otherwise."""
BOOTSTRAP_NAME = "admin"
_PERSON = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}")
_PLACE = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}")
_REFUSED = "this token is not valid here"


@dataclass
class Admission:
    """Checks credentials, and makes them. Reads and changes `Records` alone."""

    records: Records
    clock: Clock
    ids: IdSource
    rented_sites: Mapping[str, str] = field(default_factory=dict)
    """The cloud sites that providers rent for, with the provider's name."""

    def authenticate(self, bearer: str) -> Caller:
        """The person behind a bearer token. Raises `Unauthenticated` for one that is unknown, expired or revoked."""
        digest = digest_of(bearer)
        token = self.records.tokens.get(digest)
        # The comparison in constant time is for the day that a store's index does not look up by the whole digest.
        if token is None or not hmac.compare_digest(token.digest, digest):
            raise Unauthenticated(_REFUSED, remedy="ask an admin for one: federator token create")
        if token.revoked:
            raise Unauthenticated("this token was revoked", remedy="ask an admin for another")
        if token.expires_at is not None and token.expires_at <= self.clock.now():
            raise Unauthenticated("this token has expired", remedy="ask an admin for another")
        return Caller(token.name, token.role, token.site, token.default_queue)

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
        secret = _new_secret("fed")
        keep(secret)
        token = Token(
            digest=digest_of(secret), name=BOOTSTRAP_NAME, role=Role.ADMIN, created_at=self.clock.now()
        )
        await self.records.transact(
            lambda: self._recorded("dispatcher", "made the first admin's token", token)
        )

    async def create_token(self, caller: Caller, request: TokenRequest) -> TokenAnswer:
        """A person's token (`role`), for which one has to be admin; or an agent's join token (`site`), also by that site's admin."""
        expires_s = _expires_s(request.expires_in)
        if request.role:
            caller.require(Role.ADMIN)
            return await self._create_person(caller, request, expires_s)
        if not request.site:
            raise Invalid(
                "neither a role nor a site is given",
                field="$.role",
                remedy="give a role for a person's token, or a site and its kind for an agent's",
            )
        if not (caller.role is Role.SITE_ADMIN and caller.site == request.site):
            caller.require(Role.ADMIN)
        lifetime_s = JOIN_EXPIRES_S if expires_s is None else expires_s
        secret = await self.make_join_token(
            request.site,
            _kind(request.kind),
            region=request.region,
            expires_in_s=lifetime_s,
            who=f"user:{caller.name}",
        )
        return TokenAnswer(
            secret, name=request.name, site=request.site, expires_at=self.clock.now() + lifetime_s
        )

    async def revoke(self, caller: Caller, name: str) -> int:
        """Revoke all tokens of that name, from now on; how many. Raises `NotFound`."""
        caller.require(Role.ADMIN)
        revoked: list[Token] = []

        def compute() -> Changes:
            named = [token for token in self.records.tokens.values() if token.name == name]
            if not named:
                raise NotFound(f"no token is named {name!r}")
            revoked[:] = [
                msgspec.structs.replace(token, revoked=True) for token in named if not token.revoked
            ]
            return self._recorded(f"user:{caller.name}", f"revoked the tokens of {name}", *revoked)

        await self.records.transact(compute)
        return len(revoked)

    async def make_join_token(  # noqa: PLR0913 - each is a column of the row
        self,
        site: str,
        kind: SiteKind,
        *,
        region: str = "",
        provider: str | None = None,
        lease: str | None = None,
        member: str | None = None,
        expires_in_s: float = JOIN_EXPIRES_S,
        who: str = "dispatcher",
    ) -> str:
        """A secret that admits one agent to the site, once. With `lease`, as that lease's member and at its market."""
        secret = _new_secret("join")
        _check_name(_PLACE, site, "$.site", "a-z, 0-9, '.' and '-'")

        def compute() -> Changes:
            self._check_kind(site, kind)
            token = JoinToken(
                digest=digest_of(secret),
                site=site,
                kind=kind,
                region=region,
                provider=provider,
                lease=lease,
                member=member,
                created_at=self.clock.now(),
                expires_at=self.clock.now() + expires_in_s,
            )
            return self._recorded(
                who, f"made a join token for site {site}", token, site=site, lease=lease or ""
            )

        await self.records.transact(compute)
        return secret

    async def join(self, secret: str, request: JoinRequest, site_named: str = "") -> JoinAnswer:
        """Bind the agent's key: the first that shows the token gets in, and may ask again; another key may not.

        `site_named`: the site that the agent's file names, if it says. Raises `Unauthenticated` for a token that is unknown, expired or
        bound, `Conflict` for one of another site, which stays good, and for a member's name that is taken.
        """
        _public_key(request.public_key)
        digest = digest_of(secret)
        answers: list[JoinAnswer] = []

        def compute() -> Changes:
            token = self._join_token(digest, request.public_key)
            _check_site(token, site_named)
            incarnation = self.records.store.incarnation
            if token.public_key is not None and token.member in self.records.members:
                answers[:] = [JoinAnswer(token.member, token.site, incarnation)]
                return Changes()
            site = self._site(token, request)
            member = self._member(token, request)
            answers[:] = [JoinAnswer(member.id, site.name, incarnation)]
            bound = msgspec.structs.replace(token, public_key=request.public_key, member=member.id)
            return self._recorded(
                f"agent:{member.id}", f"joined site {site.name}", bound, site, member, site=site.name
            )

        await self.records.transact(compute)
        return answers[0]

    def verify_session(self, member_id: str, challenge: Challenge, signature: str) -> Member:
        """The member that signed the challenge. Raises `Unauthenticated`, in the same words for unknown members and wrong keys."""
        member = self.records.members.get(member_id)
        refused = Unauthenticated(
            "this member and key are not known here", remedy="join again with a new token"
        )
        if member is None or member.status is SiteStatus.GONE:
            raise refused
        try:
            key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(member.public_key))
            key.verify(bytes.fromhex(signature), challenge_bytes(challenge, member_id))
        except (ValueError, InvalidSignature):
            raise refused from None
        return member

    async def remember_boot(self, member_id: str, boot_id: str) -> None:
        """Note durably in which boot of its host the member was last heard."""

        def compute() -> Changes:
            changes = Changes()
            member = self.records.members[member_id]
            if member.boot_id != boot_id:
                changes.put(msgspec.structs.replace(member, boot_id=boot_id))
            return changes

        await self.records.transact(compute)

    async def _create_person(
        self, caller: Caller, request: TokenRequest, expires_s: float | None
    ) -> TokenAnswer:
        _check_name(_PERSON, request.name, "$.name", "letters, digits, '.', '_', '@' and '-'")
        role = _role(request)
        secret = _new_secret("fed")
        now = self.clock.now()
        token = Token(
            digest=digest_of(secret),
            name=request.name,
            role=role,
            site=request.site or None,
            default_queue=request.default_queue or "default",
            created_at=now,
            expires_at=None if expires_s is None else now + expires_s,
        )
        who = f"user:{caller.name}"
        await self.records.transact(
            lambda: self._recorded(who, f"made a token for {token.name} with role {role}", token)
        )
        return TokenAnswer(secret, name=token.name, role=role, site=request.site, expires_at=token.expires_at)

    def _join_token(self, digest: str, public_key: str) -> JoinToken:
        token = self.records.join_tokens.get(digest)
        if token is None or not hmac.compare_digest(token.digest, digest):
            raise Unauthenticated(_REFUSED, remedy="ask for a join token: federator token create --site NAME")
        if token.public_key is None and token.expires_at <= self.clock.now():
            raise Unauthenticated("this join token has expired", remedy="ask for another")
        if token.public_key is not None and token.public_key != public_key:
            raise Unauthenticated(
                "this join token was used by another agent", remedy="each agent needs a token of its own"
            )
        return token

    def _site(self, token: JoinToken, request: JoinRequest) -> Site:
        kind = SiteKind(token.kind)
        self._check_kind(token.site, kind)
        existing = self.records.sites.get(token.site)
        if existing is not None:
            return existing
        return Site(
            name=token.site,
            kind=kind,
            region=token.region,
            provider=token.provider,
            labels=request.labels,
            created_at=self.clock.now(),
        )

    def _member(self, token: JoinToken, request: JoinRequest) -> Member:
        lease = self.records.leases.get(token.lease) if token.lease else None
        wish = token.member or request.member
        if wish:
            _check_name(_PLACE, wish, "$.member", "a-z, 0-9, '.' and '-'")
            taken = self.records.members.get(wish)
            ours = (request.public_key, token.site)
            if (
                taken is not None
                and taken.status is not SiteStatus.GONE
                and (taken.public_key, taken.site) != ours
            ):
                raise Conflict(
                    f"a member named {wish} has joined with another key or at another site",
                    field="$.member",
                    remedy="choose another name; what the old one ran stays its own until it is declared dead",
                )
        return Member(
            id=wish or self._free_name(token.site),
            site=token.site,
            public_key=request.public_key,
            lease=token.lease,
            market=lease.offer.market if lease else Market.OWNED,
            joined_at=self.clock.now(),
        )

    def _free_name(self, site: str) -> str:
        name, number = site, 1
        while name in self.records.members:
            number += 1
            name = f"{site}-{number}"
        return name

    def _check_kind(self, site: str, kind: SiteKind) -> None:
        if site in self.rented_sites and kind is not SiteKind.CLOUD:
            what = f"{site} is the cloud site of provider {self.rented_sites[site]} in the settings"
            raise Conflict(what, field="$.site", remedy="choose another name")
        existing = self.records.sites.get(site)
        if existing is not None and existing.kind is not kind:
            raise Conflict(
                f"site {site} is {existing.kind}, not {kind}",
                field="$.kind",
                remedy=f"write kind {existing.kind}, or choose another name",
            )

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


def digest_of(secret: str) -> str:
    """What is stored of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _new_secret(prefix: str) -> str:
    return f"{prefix}_{secrets.token_urlsafe(32)}"


def _expires_s(text: str) -> float | None:
    if not text:
        return None
    try:
        seconds = parse_duration_s(text)
    except ValueError as error:
        raise Invalid(str(error), field="$.expires_in") from None
    if seconds <= 0:
        raise Invalid("a token that expires at once is of no use", field="$.expires_in")
    return seconds


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
            "a site-admin has exactly one site, and nobody else has any", field="$.site", remedy="see role"
        )
    return role


def _kind(text: str) -> SiteKind:
    try:
        return SiteKind(text)
    except ValueError:
        known = ", ".join(SiteKind)
        raise Invalid(
            f"no kind of site is called {text!r}", field="$.kind", remedy=f"one of {known}"
        ) from None


def _check_name(pattern: re.Pattern[str], name: str, field: str, letters: str) -> None:
    if not pattern.fullmatch(name):
        raise Invalid(f"{name[:80]!r} is not a name", field=field, remedy=f"up to 63 of {letters}")


def _public_key(text: str) -> Ed25519PublicKey:
    try:
        return Ed25519PublicKey.from_public_bytes(bytes.fromhex(text))
    except ValueError:
        raise Invalid(
            "this is not an Ed25519 public key", field="$.public_key", remedy="64 hexadecimal digits"
        ) from None


def _check_site(token: JoinToken, named: str) -> None:
    """Before it is used: an agent that joins another site than its file names would be looked for in vain."""
    if named and named != token.site:
        raise Conflict(
            f"the site file says {named}, the token is for {token.site}; the token was not used",
            field="$.site",
            remedy=f"write 'site: {token.site}' in the file, or ask for a token for site {named}",
        )
