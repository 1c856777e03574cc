"""Who gets in: people by bearer token, agents by a one-time join token and then by their key.

An agent's key may give way to another that it has signed: whoever has the old one may say so, nobody else, and the change is one transaction. What the
agent has signed it keeps, so that a dispatcher whose store was restored from before can be told again. A key that is not trusted any more is revoked:
then only a token that an admin makes for this very member lets its host in again.
"""

import asyncio
import hmac
import re
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from federator.control.administration.tokens import (
    ID_DIGITS,
    REFUSED,
    Tokens,
    check_name,
    digest_of,
    duration_s,
    new_secret,
)
from federator.control.record.records import Changes
from federator.kernel.errors import Conflict, Forbidden, Invalid, Unauthenticated
from federator.model.capacity import LEASE_ENDED, Market
from federator.model.identity import ANY, Caller, JoinToken, Role
from federator.model.sites import REVOKED_KEY, Member, Site, SiteKind, SiteStatus
from federator.wire.http import TokenAnswer, TokenRequest
from federator.wire.link import (
    Challenge,
    JoinAnswer,
    JoinRequest,
    KeyAnswer,
    KeyRequest,
    challenge_bytes,
    key_bytes,
)

JOIN_EXPIRES_S = 86400.0
"""How long a join token waits for its agent when nobody says otherwise."""
LONGEST_S = 90 * 86400.0
"""Most for a token that admits many: one that was stolen must end by itself."""
_PATTERN = re.compile(r"[a-z0-9][a-z0-9.-]*\*[a-z0-9.-]*")
_PLACE = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}")


@dataclass
class Admission(Tokens):
    """Checks credentials, and makes them. Reads and changes `Records` alone."""

    rented_sites: Mapping[str, str] = field(default_factory=dict)
    """The cloud sites that providers rent for, with the provider's name."""
    of_many: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while one joins by a token that admits many."""

    async def create_token(self, caller: Caller, request: TokenRequest) -> TokenAnswer:
        """A person's token (`role`), for which one has to be admin; or an agent's join token (`site`), also by that site's admin."""
        if request.role:
            caller.require(Role.ADMIN)
            return await self._create_person(caller, request)
        expires_s = duration_s(request.expires_in, "$.expires_in")
        if not request.site:
            raise Invalid(
                "neither a role nor a site is given",
                field="$.role",
                remedy="give a role for a person's token, or a site and its kind for an agent's",
            )
        if not (caller.role is Role.SITE_ADMIN and request.site in caller.sites):
            caller.require(Role.ADMIN)
        elif request.region:
            raise Forbidden(
                "only an administrator of the federation says which region a site is in",
                field="$.region",
                remedy="leave it out: where the federation has named none, that of the site's file counts",
            )
        lifetime_s = JOIN_EXPIRES_S if expires_s is None else expires_s
        _check_many(request, lifetime_s)
        secret = await self.make_join_token(
            request.site,
            self._kind(request),
            region=request.region,
            member=request.member or None,
            most=request.most,
            expires_in_s=lifetime_s,
            who=f"user:{caller.name}",
        )
        ends_at = self.clock.now() + lifetime_s
        return TokenAnswer(
            secret, name=request.name, site=request.site, expires_at=ends_at, most=request.most
        )

    async def make_join_token(  # noqa: PLR0913 - each is a column of the row
        self,
        site: str,
        kind: SiteKind,
        *,
        region: str = "",
        provider: str | None = None,
        lease: str | None = None,
        member: str | None = None,
        most: int = 0,
        expires_in_s: float = JOIN_EXPIRES_S,
        who: str = "dispatcher",
    ) -> str:
        """A secret that admits one agent to the site, once. With `lease`, as that lease's member and at its market.

        With `member`, under that name: a new one, or one whose key was revoked. With `most`, the first agent of each of so many new
        sites, whose names the pattern `site` fits.
        """
        secret = new_secret("join")
        if not most:
            check_name(_PLACE, site, "$.site", "a-z, 0-9, '.' and '-'")
        if member is not None:
            check_name(_PLACE, member, "$.member", "a-z, 0-9, '.' and '-'")

        def compute() -> Changes:
            self._check_kind(site, kind)
            if member is not None and lease is None:
                self._check_not_rented(member)
                self._check_free(member, site)
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
                most=most,
            )
            what = f"made a join token for {f'{most} sites {site}' if most else f'site {site}'}"
            return self._recorded(who, what, token, site="" if most else site, lease=lease or "")

        await self.records.transact(compute)
        return secret

    async def join(self, secret: str, request: JoinRequest, site_named: str = "") -> JoinAnswer:
        """Bind the agent's key: the first that shows the token gets in, and may ask again; another key may not.

        `site_named`: the site that the agent's file names, if it says. Raises `Unauthenticated` for a token that is unknown, expired or
        bound, `Conflict` for one of another site, which stays good, and for a member's name that is taken.
        """
        _public_key(request.public_key)
        if request.host_key:
            _public_key(request.host_key, "$.host_key")
        digest = digest_of(secret)
        answers: list[JoinAnswer] = []

        def compute() -> Changes:
            token = self._join_token(digest)
            many: tuple[JoinToken, ...] = ()
            if token.most:
                token, many = self._one_of_many(token, request, site_named)
            self._check_unused(token, request.public_key)
            _check_site(token, site_named)
            incarnation = self.records.store.incarnation
            if token.public_key is not None:
                known = self.records.members.get(token.member or "")
                if known is None or known.public_key != request.public_key:
                    what = "this join token was used, and what it let in was removed, revoked or given another key"
                    raise Unauthenticated(what, remedy="ask for another token")
                answers[:] = [JoinAnswer(known.id, token.site, incarnation)]
                return Changes()
            site = self._site(token, request)
            member = self._member(token, request)
            answers[:] = [JoinAnswer(member.id, site.name, incarnation)]
            bound = msgspec.structs.replace(token, public_key=request.public_key, member=member.id)
            by = f" by the token {many[0].digest[:ID_DIGITS]}" if many else ""
            return self._recorded(
                f"agent:{member.id}",
                f"joined site {site.name}{by}",
                bound,
                *many,
                site,
                member,
                site=site.name,
            )

        # Hundreds of sites may join at the same moment, and all would write the row of one token: each would lose more races than there are attempts.
        async with self.of_many if self._join_token(digest).most else nullcontext():
            await self.records.transact(compute)
        return answers[0]

    def require_join_token(self, secret: str) -> None:
        """Look at a join token before anything else is read. Raises `Unauthenticated` for one that is unknown."""
        if digest_of(secret) not in self.records.join_tokens:
            raise Unauthenticated(REFUSED, remedy="ask for a join token: federator token create --site NAME")

    def verify_session(self, member_id: str, challenge: Challenge, signature: str) -> Member:
        """The member that signed the challenge. Raises `Unauthenticated`, in the same words for unknown members and wrong keys."""
        member = self.records.members.get(member_id)
        refused = Unauthenticated(
            "this member and key are not known here", remedy="join again with a new token"
        )
        if member is None or member.status is SiteStatus.GONE:
            raise refused
        if not _signed(member.public_key, challenge_bytes(challenge, member_id), signature):
            raise refused
        return member

    async def rotate_key(self, request: KeyRequest) -> KeyAnswer:
        """Let a member's key give way to the last one that `request` leads to from it; said again, it changes nothing. Raises `Unauthenticated`.

        A member that has joined with a host key has to prove that, too.
        """
        refused = Unauthenticated("this member and key are not known here")

        def compute() -> Changes:
            member = self.records.members.get(request.member)
            if member is None or member.status is SiteStatus.GONE:
                raise refused
            new = request.steps[-1].public_key
            if _led(member, request) != new or not _signed(new, key_bytes(member.id, new), request.proof):
                raise refused
            if new == member.public_key:
                return Changes()
            if member.host_key and not _signed(
                member.host_key, key_bytes(member.id, new), request.host_proof
            ):
                raise refused
            changed = msgspec.structs.replace(member, public_key=new, key_changed_at=self.clock.now())
            return self._recorded(f"agent:{member.id}", "rotated its key", changed, site=member.site)

        await self.records.transact(compute)
        return KeyAnswer(request.member)

    async def contested(self, member_id: str, because: str) -> None:
        """Another agent has shown the member's key while the first is alive: nothing new starts there until an admin trusts it again."""

        def compute() -> Changes:
            member = self.records.members.get(member_id)
            if member is None or member.contested:
                return Changes()
            frozen = msgspec.structs.replace(member, contested=because, contested_at=self.clock.now())
            return self._recorded(f"agent:{member_id}", because, frozen, site=member.site)

        await self.records.transact(compute)

    async def remember_boot(self, member_id: str, boot_id: str) -> None:
        """Note durably in which boot of its host the member was last heard; if it was declared dead, it is not."""

        def compute() -> Changes:
            changes = Changes()
            member = self.records.members[member_id]
            status = SiteStatus.JOINING if member.status is SiteStatus.LOST else member.status
            if (member.boot_id, member.status) != (boot_id, status):
                changes.put(msgspec.structs.replace(member, boot_id=boot_id, status=status))
            return changes

        await self.records.transact(compute)

    def _join_token(self, digest: str) -> JoinToken:
        token = self.records.join_tokens.get(digest)
        if token is None or not hmac.compare_digest(token.digest, digest):
            raise Unauthenticated(REFUSED, remedy="ask for a join token: federator token create --site NAME")
        return token

    def _one_of_many(
        self, many: JoinToken, request: JoinRequest, named: str
    ) -> tuple[JoinToken, tuple[JoinToken, ...]]:
        """The token for the one agent of the site that is named, and where it is new, that of many with one more use.

        Each site has a row of its own from then on: so nobody joins twice by it, and nobody who was removed or revoked comes back.
        """
        digest = digest_of(f"{many.digest}/{named}")
        known = self.records.join_tokens.get(digest)
        if known is not None:
            return known, ()
        check_name(_PLACE, named, "$.site", "a-z, 0-9, '.' and '-'")
        for name, place in ((named, "$.site"), (request.member or named, "$.member")):
            if not many.fits(name):
                remedy = "ask for a token for this site: federator token create --site NAME"
                raise Forbidden(f"this token is for {many.site}, not for {name}", field=place, remedy=remedy)
        if named in self.records.sites or named in self.rented_sites:
            what = f"site {named} is there already, and this token is for new sites"
            raise Conflict(what, field="$.site", remedy=f"ask for one: federator token create --site {named}")
        if many.used >= many.most:
            raise Unauthenticated(
                f"this join token has admitted all {many.most} that it is for", remedy="ask for another"
            )
        one = msgspec.structs.replace(many, digest=digest, site=named, most=0, used=0)
        return one, (msgspec.structs.replace(many, used=many.used + 1),)

    def _check_unused(self, token: JoinToken, public_key: str) -> None:
        if token.public_key is None and token.expires_at <= self.clock.now():
            raise Unauthenticated("this join token has expired", remedy="ask for another")
        if token.public_key is not None and token.public_key != public_key:
            remedy = f"for one more agent there: federator token create --site {token.site}"
            raise Unauthenticated(
                f"another agent of site {token.site} has joined by this token", remedy=remedy
            )

    def _site(self, token: JoinToken, request: JoinRequest) -> Site:
        kind = SiteKind(token.kind)
        self._check_kind(token.site, kind)
        existing = self.records.sites.get(token.site)
        if existing is not None:
            # A token's region is the federation's word, and a later one counts.
            return msgspec.structs.replace(existing, region=token.region or existing.region)
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
            check_name(_PLACE, wish, "$.member", "a-z, 0-9, '.' and '-'")
            taken = self.records.members.get(wish)
            ours = (request.public_key, token.site)
            if taken is not None and taken.status is not SiteStatus.GONE:
                if (taken.public_key, taken.site) != ours:
                    self._check_free(wish, token.site, named=token.member == wish)
                fresh = request.public_key != taken.public_key
                return msgspec.structs.replace(
                    taken,
                    public_key=request.public_key,
                    host_key=request.host_key if fresh else taken.host_key,
                    contested="" if fresh else taken.contested,
                )
        name = wish or self._free_name(token.site)
        self._check_not_rented(name, token.lease)
        return Member(
            id=name,
            site=token.site,
            public_key=request.public_key,
            lease=token.lease,
            market=lease.offer.market if lease else Market.OWNED,
            joined_at=self.clock.now(),
            host_key=request.host_key,
        )

    def _check_not_rented(self, name: str, lease: str | None = None) -> None:
        """Raise `Conflict` when the name is that of a machine which is being rented, by another lease: who joins under it is given its work."""
        known = self.records.members.get(name)
        if known is not None and known.status is not SiteStatus.GONE:
            return
        for each in self.records.leases.values():
            if each.member == name and each.id != lease and each.status not in LEASE_ENDED:
                raise Conflict(
                    f"{name} is the name of a machine that is being rented",
                    field="$.member",
                    remedy="choose another name",
                )

    def _check_free(self, name: str, site: str, *, named: bool = True) -> None:
        """Raise `Conflict` when another agent has the name; where its key was revoked, a token that was `named` for it lets it in again."""
        taken = self.records.members.get(name)
        if taken is None or taken.status is SiteStatus.GONE:
            return
        if not (named and taken.site == site and taken.public_key == REVOKED_KEY):
            raise Conflict(
                f"a member named {name} has joined with another key or at another site",
                field="$.member",
                remedy="choose another name; what the old one ran stays its own until it is declared dead",
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

    def _kind(self, request: TokenRequest) -> SiteKind:
        """What is written, or what the site is already."""
        existing = self.records.sites.get(request.site)
        if not request.kind and existing is not None:
            return existing.kind
        try:
            return SiteKind(request.kind)
        except ValueError:
            what = (
                f"no kind of site is called {request.kind!r}" if request.kind else "is missing for a new site"
            )
            raise Invalid(what, field="$.kind", remedy=f"one of {', '.join(SiteKind)}") from None


def _check_many(request: TokenRequest, lifetime_s: float) -> None:
    """A token that admits many is bounded by names, number and time. Raises `Invalid`."""
    if ANY in request.site and not request.most:
        what = f"is missing for a pattern of sites' names such as {request.site[:80]!r}"
        raise Invalid(what, field="$.most", remedy="write how many new sites it may admit, such as 200")
    if request.most and ANY not in request.site:
        what = f"is for a pattern of sites' names, and {request.site[:80]!r} is one name"
        raise Invalid(what, field="$.most", remedy="leave it out, or write a pattern such as 'store-*'")
    if not request.most:
        return
    if not _PATTERN.fullmatch(request.site):
        remedy = "write a beginning and one '*', such as 'store-*'"
        raise Invalid(f"{request.site[:80]!r} is not a pattern", field="$.site", remedy=remedy)
    if request.member:
        what = "is the name of one agent, and this token is for many"
        raise Invalid(what, field="$.member", remedy="leave it out")
    if lifetime_s > LONGEST_S:
        raise Invalid("is too long for a token that admits many", field="$.expires_in", remedy="at most 90d")


def _led(member: Member, request: KeyRequest) -> str:
    """The key that the steps lead to from the member's: each is signed by the one before. Those that it has behind it lead nowhere."""
    key = member.public_key
    for step in request.steps:
        if _signed(key, key_bytes(member.id, step.public_key), step.signature):
            key = step.public_key
    return key


def _signed(public_key: str, data: bytes, signature: str) -> bool:
    """Whether the key has signed that. A revoked key has signed nothing."""
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key))
        key.verify(bytes.fromhex(signature), data)
    except (ValueError, InvalidSignature):
        return False
    return True


def _public_key(text: str, field: str = "$.public_key") -> Ed25519PublicKey:
    try:
        return Ed25519PublicKey.from_public_bytes(bytes.fromhex(text))
    except ValueError:
        raise Invalid(
            "this is not an Ed25519 public key", field=field, remedy="64 hexadecimal digits"
        ) from None


def _check_site(token: JoinToken, named: str) -> None:
    """Before it is used: an agent that joins another site than its file names would be looked for in vain."""
    if named and named != token.site:
        raise Conflict(
            f"the site file says {named}, the token is for {token.site}; the token was not used",
            field="$.site",
            remedy=f"write 'site: {token.site}' in the file, or ask for a token for site {named}",
        )
