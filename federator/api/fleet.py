"""What there is and what people do to it: sites, queues, offers, leases, budgets, renting."""

from typing import Annotated

import msgspec

from federator.api.exchange import Call, Moment
from federator.control.administration.authority import OVERSEERS
from federator.control.queries.drain_previews import drain_preview
from federator.control.queries.spending import capped, since_of
from federator.control.queries.spending import spending as spent_over_time
from federator.model.sites import Site
from federator.wire.administration import Approval, BurstStatus
from federator.wire.http import (
    BudgetRow,
    LeaseRow,
    OfferRow,
    Overview,
    QueueRow,
    SiteRow,
    Spending,
    StatementRow,
)
from federator.wire.sites import DeathNotice, DrainPreview, DrainRequest, Evicted, EvictRequest, GivenUp
from federator.wire.waiting import AlertRow, WaitingNow


async def sites(call: Call) -> list[SiteRow]:
    """All sites."""
    return call.core.views.sites(call.caller)


async def site(call: Call) -> SiteRow:
    """One site."""
    return call.core.views.site(call.path("name"), call.caller)


async def drain(call: Call) -> Site:
    """Let nothing new start there; what runs goes on, or until a deadline."""
    request = await call.body(DrainRequest) if call.request.can_read_body else DrainRequest()
    return await call.core.sites.drain(call.caller, call.path("name"), by=request.by, why=request.why)


async def preview_drain(call: Call) -> DrainPreview:
    """What draining would come to; nothing is changed."""
    request = await call.body(DrainRequest) if call.request.can_read_body else DrainRequest()
    core, name = call.core, call.path("name")
    by_at = core.sites.drain_moment(call.caller, name, request.by)
    return await drain_preview(core.records, name, by_at, core.clock.now(), core.views.row)


async def undrain(call: Call) -> Site:
    """Let work start there again."""
    return await call.core.sites.undrain(call.caller, call.path("name"))


async def evict(call: Call) -> Evicted:
    """Have one job leave the site, or all of them: each saves itself, stops, and waits for another place."""
    request = await call.body(EvictRequest)
    job = call.core.views.find_job(call.caller, request.job).id if request.job else ""
    site = call.path("name")
    told = await call.core.sites.evict(call.caller, site, job=job, by=request.by, why=request.why)
    return Evicted(tuple(each.id for each in told))


async def declare_dead(call: Call) -> GivenUp:
    """An operator's word that nothing runs at a silent site any more, so that its jobs may start elsewhere."""
    notice = await call.body(DeathNotice)
    given_up = await call.core.sites.declare_dead(
        call.caller, call.path("name"), notice.reason, member=notice.member
    )
    call.core.reconciliation.declared_dead(call.path("name"), notice.member)
    return GivenUp(tuple(given_up))


async def remove_site(call: Call) -> None:
    """Forget a site that is gone for good, with its members."""
    await call.core.sites.remove(call.caller, call.path("name"))


async def remove_member(call: Call) -> None:
    """Forget one host of a site that is gone for good."""
    await call.core.sites.remove(call.caller, call.path("name"), member=call.path("member"))


async def revoke_key(call: Call) -> None:
    """Revoke a member's key: its session ends, and what runs there goes on."""
    member = call.path("member")
    await call.core.sites.revoke(call.caller, call.path("name"), member)
    call.core.hub.dismiss(member, "an administrator has revoked this agent's key")


class StatementQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Of what time: seconds since the epoch, `until` not included; left out: to now."""

    since: Moment = 0.0
    until: Moment | None = None


async def statement(call: Call) -> list[StatementRow]:
    """What was used at a site, and what that cost."""
    call.core.sites.allow(call.caller, call.path("name"))
    query = call.query(StatementQuery)
    return await call.core.views.statement(call.path("name"), query.since, query.until)


async def trust_member(call: Call) -> None:
    """The agent that holds the member's session is the right one: work may start there again."""
    await call.core.sites.trust(call.caller, call.path("name"), call.path("member"))


async def queues(call: Call) -> list[QueueRow]:
    """All queues, with use against guarantee and limit, and what the caller may do there."""
    return call.core.views.queues(call.caller)


async def offers(call: Call) -> list[OfferRow]:
    """What could be rented."""
    return call.core.views.offers()


async def leases(call: Call) -> list[LeaseRow]:
    """What is and was rented, and why."""
    return call.core.views.leases()


async def budgets(call: Call) -> list[BudgetRow]:
    """Money under every cap."""
    return call.core.views.budgets()


async def overview(call: Call) -> Overview:
    """All at once, for a screen."""
    return call.core.views.overview(call.caller)


class SpendingQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Of which cap, by its policy, and, where that has several, by its period and whose share it is."""

    policy: Annotated[str, msgspec.Meta(max_length=200)]
    period: Annotated[str, msgspec.Meta(max_length=20)] = ""
    share: Annotated[str, msgspec.Meta(max_length=200)] = ""


async def spending(call: Call) -> Spending:
    """What was spent under a cap since its period began."""
    core, query, now = call.core, call.query(SpendingQuery), call.core.clock.now()
    row = capped(core.records, now, query.policy, query.period, query.share)
    since = since_of(core.records, row, now)
    return await spent_over_time(core.records, row, core.views.ledger_lines(since=since), since, now)


async def burst(call: Call) -> BurstStatus:
    """Whether anything may be rented, by which policies, and what waits for a person."""
    return call.core.views.burst(call.caller)


async def approve_burst(call: Call) -> None:
    """Let one rental for a job cost so much, or what was proposed for it."""
    request = await call.body(Approval)
    job = call.core.views.find_job(call.caller, request.job)
    await call.core.policy_service.approve(call.caller, job.id, request.usd, request.reason)


async def pause_burst(call: Call) -> None:
    """Rent nothing new, from now on."""
    await call.core.policy_service.pause_burst(call.caller, on=True)


async def resume_burst(call: Call) -> None:
    """Allow renting again."""
    await call.core.policy_service.pause_burst(call.caller, on=False)


async def waiting(call: Call) -> WaitingNow:
    """What waits, by reason, and what is kept for whom."""
    return await call.core.views.waits.now(call.sight)


async def alerts(call: Call) -> list[AlertRow]:
    """What a person should hear of without looking, newest first."""
    return call.core.alerts.rows(call.sight, overseer=call.caller.role in OVERSEERS)
