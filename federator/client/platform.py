"""The verbs about the federation itself: sites, queues, rented capacity, policies, decisions, the ledger, tokens."""

from collections.abc import AsyncIterator, Sequence
from urllib.parse import quote

from federator.client.streams import follow_stream
from federator.client.transport import Transport, in_query
from federator.model.events import LedgerEntry
from federator.model.rules import PolicySet
from federator.model.sites import Site
from federator.wire import recorded
from federator.wire.administration import (
    Approval,
    BurstStatus,
    MyAddress,
    MyNotifications,
    PolicyDiff,
    PolicyRequest,
    PolicyRollback,
    PolicyVerdict,
)
from federator.wire.changes import Change, Topic
from federator.wire.contrast import PolicyReplay, ReplayRequest
from federator.wire.decisions import DecisionRow, ReplayResult, ToldDecision
from federator.wire.http import (
    BudgetRow,
    LeaseRow,
    OfferRow,
    Overview,
    QueueRow,
    Revoked,
    SiteRow,
    Spending,
    StatementRow,
    TokenAnswer,
    TokenRequest,
    TokenRotation,
    TokenRow,
)
from federator.wire.jsontext import Reader
from federator.wire.rights import TeamRow
from federator.wire.sign_in import SignInWay, WhoAmI
from federator.wire.sites import DeathNotice, DrainPreview, DrainRequest, Evicted, EvictRequest, GivenUp
from federator.wire.timetable import PlanPage
from federator.wire.usage import Key, UsageReport
from federator.wire.waiting import AlertRow, WaitingNow

_change: Reader[Change] = Reader(Change)


class PlatformVerbs:
    """What operators and platform teams do, and everyone may look at."""

    transport: Transport

    async def sign_in_way(self) -> SignInWay:
        """Where people sign in with OpenID Connect. Raises `NotFound` where nobody does."""
        return await self.transport.call("GET", "/v1/sign-in", SignInWay)

    async def whoami(self) -> WhoAmI:
        """Who the credential is taken for."""
        return await self.transport.call("GET", "/v1/whoami", WhoAmI)

    async def notifications(self) -> MyNotifications:
        """How you are told of your own jobs."""
        return await self.transport.call("GET", "/v1/notifications", MyNotifications)

    async def set_notifications(self, address: MyAddress) -> MyNotifications:
        """Say where you are told of your own jobs; nothing: as the dispatcher's settings say."""
        return await self.transport.call("PUT", "/v1/notifications", MyNotifications, sends=address)

    async def teams(self) -> list[TeamRow]:
        """Teams, who is in them, and what they may do."""
        return await self.transport.call("GET", "/v1/teams", list[TeamRow])

    async def overview(self) -> Overview:
        """Sites, queues, leases, jobs and money at a glance."""
        return await self.transport.call("GET", "/v1/overview", Overview)

    async def changes(self, topics: Sequence[Topic] = (), *, site: str = "") -> AsyncIterator[Change]:
        """Rows of these topics (all if none is named), and then what changes of them, until the caller has enough; `site`: of the sites this one alone."""
        query = {"topics": ",".join(topics)} | in_query({"site": site or None})
        async for change in follow_stream(self.transport, "/v1/changes", query, _change):
            yield change

    async def waiting(self) -> WaitingNow:
        """Why jobs wait, added up by reason, and what is kept for whom."""
        return await self.transport.call("GET", "/v1/waiting", WaitingNow)

    async def alerts(self) -> list[AlertRow]:
        """What a person should hear of without looking, newest first."""
        return await self.transport.call("GET", "/v1/alerts", list[AlertRow])

    async def sites(self) -> list[SiteRow]:
        """All sites."""
        return await self.transport.call("GET", "/v1/sites", list[SiteRow])

    async def site(self, name: str) -> SiteRow:
        """One site, with its pools."""
        return await self.transport.call("GET", _site(name), SiteRow)

    async def drain(self, name: str, *, by: str = "", why: str = "") -> Site:
        """Start nothing new at a site; what runs there goes on, or with `by` (`2h`, or an instant) until then."""
        return await self.transport.call("POST", _site(name, "/drain"), Site, sends=DrainRequest(by, why))

    async def preview_drain(self, name: str, *, by: str = "") -> DrainPreview:
        """What draining a site would come to; nothing is changed."""
        path = _site(name, "/drain/preview")
        return await self.transport.call("POST", path, DrainPreview, sends=DrainRequest(by))

    async def evict(self, name: str, *, why: str, job: str = "", by: str = "") -> tuple[str, ...]:
        """Have one job (its name or id), or all, leave a site: each saves itself and waits for another place. Answers which."""
        sends = EvictRequest(why, job, by)
        return (await self.transport.call("POST", _site(name, "/evict"), Evicted, sends=sends)).jobs

    async def undrain(self, name: str) -> Site:
        """Let a drained site take work again."""
        return await self.transport.call("POST", _site(name, "/undrain"), Site)

    async def declare_dead(self, name: str, reason: str, *, member: str = "") -> tuple[str, ...]:
        """Declare that nothing runs at a site any more, or at one host of it; answers the attempts that are given up. Audited."""
        path, sends = _site(name, "/declare-dead"), DeathNotice(reason, member)
        return (await self.transport.call("POST", path, GivenUp, sends=sends)).placements

    async def remove_site(self, name: str) -> None:
        """Forget a site that is gone for good. Refused while it is connected, or something of ours may run there."""
        await self.transport.call("DELETE", _site(name), type(None))

    async def remove_member(self, name: str, member: str) -> None:
        """Forget one host of a site that is gone for good. Refused while it is connected, or something of ours may run there."""
        await self.transport.call("DELETE", _site(name, f"/members/{quote(member, safe='')}"), type(None))

    async def revoke_key(self, name: str, member: str) -> None:
        """Revoke a member's key. What runs there goes on; its host may join again by a token that is made for it."""
        path = _site(name, f"/members/{quote(member, safe='')}/revoke")
        await self.transport.call("POST", path, type(None))

    async def statement(
        self, name: str, *, since: float = 0.0, until: float | None = None
    ) -> list[StatementRow]:
        """What was used at a site between two instants (seconds since the epoch; None: now), by owner, queue and GPU model."""
        query = {"since": since, "until": until}
        return await self.transport.call("GET", _site(name, "/statement"), list[StatementRow], query=query)

    async def trust_member(self, name: str, member: str) -> None:
        """Let work start again at a member of which two agents were seen: an admin has looked which of them is the right one."""
        path = _site(name, f"/members/{quote(member, safe='')}/trust")
        await self.transport.call("POST", path, type(None))

    async def queues(self) -> list[QueueRow]:
        """All queues, use against guarantee and limit."""
        return await self.transport.call("GET", "/v1/queues", list[QueueRow])

    async def offers(self) -> list[OfferRow]:
        """What could be rented."""
        return await self.transport.call("GET", "/v1/offers", list[OfferRow])

    async def leases(self) -> list[LeaseRow]:
        """What is and was rented, and why."""
        return await self.transport.call("GET", "/v1/leases", list[LeaseRow])

    async def budgets(self) -> list[BudgetRow]:
        """Money spent and committed under each cap."""
        return await self.transport.call("GET", "/v1/budgets", list[BudgetRow])

    async def spending(self, policy: str, *, period: str = "", share: str = "") -> Spending:
        """What was spent under a cap of that policy over its present period, in at most some hundred points."""
        query = {"policy": policy or None, "period": period or None, "share": share or None}
        return await self.transport.call("GET", "/v1/spending", Spending, query=query)

    async def burst(self) -> BurstStatus:
        """Whether anything may be rented, by which policies, and what waits for a person."""
        return await self.transport.call("GET", "/v1/burst", BurstStatus)

    async def approve_rental(self, job: str, *, usd: float | None = None, reason: str = "") -> None:
        """Let a rental for a job cost so many USD in the worst case; without an amount, what is proposed for it now."""
        sends = Approval(job, usd, reason)
        await self.transport.call("POST", "/v1/burst/approve", type(None), sends=sends)

    async def policies(self) -> PolicySet:
        """The policies in force."""
        return await self.transport.call("GET", "/v1/policies", PolicySet)

    async def policy_history(self) -> list[PolicySet]:
        """Every version that has been in force, oldest first."""
        return await self.transport.call("GET", "/v1/policies/history", list[PolicySet])

    async def diff_policies(self, text: str) -> PolicyDiff:
        """How a set of policies (YAML) differs from the one in force."""
        sends = PolicyRequest(text)
        return await self.transport.call("POST", "/v1/policies/diff", PolicyDiff, sends=sends)

    async def rollback_policies(self, version: int, reason: str) -> PolicyVerdict:
        """Put a former version in force again, as a new one."""
        sends = PolicyRollback(version, reason)
        return await self.transport.call("POST", "/v1/policies/rollback", PolicyVerdict, sends=sends)

    async def validate_policies(self, text: str) -> PolicyVerdict:
        """What a set of policies (YAML) would be, and what is wrong with it."""
        sends = PolicyRequest(text)
        return await self.transport.call("POST", "/v1/policies/validate", PolicyVerdict, sends=sends)

    async def apply_policies(self, text: str, reason: str, *, instead_of: int | None = None) -> PolicyVerdict:
        """Put a whole set of policies in force; with `instead_of` only while that version is. Not repeated by itself: each call makes a version."""
        sends = PolicyRequest(text, reason, instead_of)
        return await self.transport.call("POST", "/v1/policies", PolicyVerdict, sends=sends, repeatable=False)

    async def replay_policies(
        self, text: str, *, last_s: float = 7 * 86_400.0, seed: int = 0
    ) -> PolicyReplay:
        """What a set of policies (YAML) would have done with the load of so long a time until now, beside the set in force; simulated at the dispatcher."""
        path, sends = "/v1/policies/replay", ReplayRequest(text=text, last_s=last_s, seed=seed)
        return await self.transport.call("POST", path, PolicyReplay, sends=sends, repeatable=False)

    async def pause_bursting(self) -> None:
        """Rent nothing new until resumed."""
        await self.transport.call("POST", "/v1/burst/pause", type(None))

    async def resume_bursting(self) -> None:
        """Let policies decide again what may be rented."""
        await self.transport.call("POST", "/v1/burst/resume", type(None))

    async def decisions(
        self, *, last: int = 1000, before: str = "", since: float = 0.0, until: float | None = None
    ) -> list[DecisionRow]:
        """The last recorded decisions, at most so many (10,000), oldest first: before one of them, and taken between two instants (seconds since the epoch)."""
        query = {"last": last, "since": since or None, "before": before or None, "until": until}
        return await self.transport.call("GET", "/v1/decisions", list[DecisionRow], query=query)

    async def decision(self, decision: str) -> dict[str, object]:
        """One decision: the `problem` that was given and the `plan` that came out."""
        return await self.transport.call("GET", _decision(decision), dict[str, object])

    async def told_decision(self, decision: str) -> ToldDecision:
        """The same in words: of the problem only how much it was, and of the plan the first thousand actions and jobs that wait."""
        return await self.transport.call("GET", _decision(decision, "/told"), ToldDecision)

    async def plan(  # noqa: PLR0913 - each is a filter of the query
        self,
        *,
        decision: str = "",
        since: float | None = None,
        until: float | None = None,
        site: str = "",
        queue: str = "",
        owner: str = "",
        collapse: bool = False,
        after: str = "",
        limit: int = 1000,
    ) -> PlanPage:
        """What runs where and when between two instants (seconds since the epoch; an hour before the decision, a day after it), by the newest decision or a recorded one. `after`: as `next_after` of the page before."""
        words = {"site": site, "queue": queue, "owner": owner, "after": after}
        query: dict[str, object] = {"since": since, "until": until, "limit": limit, "collapse": collapse}
        query |= {name: value or None for name, value in words.items()}
        path = _decision(decision, "/plan") if decision else "/v1/plan"
        return await self.transport.call("GET", path, PlanPage, query=query)

    async def replay(self, decision: str) -> ReplayResult:
        """Decide a recorded problem again and compare."""
        return await self.transport.call("POST", _decision(decision, "/replay"), ReplayResult)

    async def recorded_jobs(
        self, since_at: float, until_at: float | None = None
    ) -> tuple[list[recorded.RecordedJob], int]:
        """The load between two instants (seconds since the epoch; None: now), oldest first, and how many jobs are left out of it."""
        found: dict[str, recorded.RecordedJob] = {}
        left_out, after = 0, ""
        while True:
            query = {"since": since_at, "until": until_at, "after": after or None}
            page = await self.transport.call("GET", "/v1/recorded/jobs", recorded.RecordedJobs, query=query)
            found |= {job.id: job for job in page.jobs}
            left_out += page.left_out
            if page.next_after is None:
                return list(found.values())[::-1], left_out
            after = page.next_after

    async def recorded_world(self) -> recorded.RecordedWorld:
        """Sites and offers as they are now, for a simulation."""
        return await self.transport.call("GET", "/v1/recorded/world", recorded.RecordedWorld)

    async def ledger(
        self,
        *,
        since: float | None = None,
        job: str | None = None,
        site: str | None = None,
        after: str | None = None,
        limit: int = 500,
    ) -> list[LedgerEntry]:
        """Facts of use, money and acts, oldest first, from `since` (seconds since the epoch) or after an entry's id on."""
        query = {"since": since, "job": job, "site": site, "after": after, "limit": limit}
        return await self.transport.call("GET", "/v1/ledger", list[LedgerEntry], query=query)

    async def usage(
        self,
        *,
        by: Sequence[Key] = ("month",),
        since: float | None = None,
        until: float | None = None,
        everybody: bool = False,
    ) -> UsageReport:
        """What was used and what it cost between two instants (seconds since the epoch; the last 30 days), one's own or all that one may see."""
        query = {"since": since, "until": until, "by": ",".join(by), "everybody": everybody}
        return await self.transport.call("GET", "/v1/usage", UsageReport, query=query)

    async def ledger_parts(self) -> AsyncIterator[bytes]:
        """The whole ledger with its seals, as JSON lines. Raises `TooLarge` for a line that no dispatcher writes."""
        async with self.transport.open("GET", "/v1/ledger/export", headers={"Accept": "*/*"}) as answer:
            async for line in answer.lines():
                yield line + b"\n"

    async def tokens(self) -> list[TokenRow]:
        """All tokens, newest first; never their secrets."""
        return await self.transport.call("GET", "/v1/tokens", list[TokenRow])

    async def revoke_tokens(self, name: str, *, after: str = "") -> int:
        """Revoke all tokens of a name, or the one of an id, now or after a time such as 1h; answers how many."""
        return (
            await self.transport.call("DELETE", _token(name), Revoked, query={"after": after or None})
        ).tokens

    async def rotate_token(self, name: str, rotation: TokenRotation) -> TokenAnswer:
        """Change a token, named by its owner or its id, for a new one. The secret is in this answer only."""
        path = _token(name, "/rotate")
        return await self.transport.call("POST", path, TokenAnswer, sends=rotation, repeatable=False)

    async def create_token(self, request: TokenRequest) -> TokenAnswer:
        """Make a person's token or an agent's one-time join token. The secret is in this answer only."""
        return await self.transport.call("POST", "/v1/tokens", TokenAnswer, sends=request, repeatable=False)


def _token(name: str, verb: str = "") -> str:
    return f"/v1/tokens/{quote(name, safe='')}{verb}"


def _decision(decision: str, verb: str = "") -> str:
    return f"/v1/decisions/{quote(decision, safe='')}{verb}"


def _site(name: str, verb: str = "") -> str:
    return f"/v1/sites/{quote(name, safe='')}{verb}"
