"""Rules and accounts: policies, recorded decisions, the ledger, tokens."""

import asyncio
import math
from typing import Annotated

import msgspec
from aiohttp import web
from msgspec.structs import replace

from federator.api.exchange import NDJSON, Call, Cursor, Moment
from federator.api.parser_threads import in_thread
from federator.control.administration.tokens import duration_s
from federator.kernel.errors import Forbidden, Unavailable
from federator.model.events import LedgerEntry
from federator.model.identity import Role
from federator.model.plans import Plan
from federator.model.rules import PolicySet
from federator.model.snapshot import Problem
from federator.planning.wording.told import told_plan, told_row
from federator.wire.administration import PolicyDiff, PolicyRequest, PolicyRollback, PolicyVerdict
from federator.wire.contrast import PolicyReplay, ReplayRequest
from federator.wire.decisions import DecisionRow, RecordedDecision, ReplayResult, ToldDecision
from federator.wire.http import Revoked, TokenAnswer, TokenRequest, TokenRotation, TokenRow

LOOK_S = 1.0
"""Real seconds after which it is looked whether somebody still waits for a simulation."""
MOST_TOLD = 1000
"""Actions of a decision that are told, and jobs that wait."""


class LedgerQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Lines of `job`, or of `site`, from `since` (seconds since the epoch) on, after the line `after`."""

    since: Moment = 0.0
    job: str = ""
    site: str = ""
    after: Cursor | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100


class DecisionsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The newest so many, before the decision `before` (an id), that were taken from `since` on and before `until` (seconds since the epoch)."""

    before: Cursor | None = None
    since: Moment = 0.0
    until: Moment | None = None
    last: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1000


class RevokeQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`after`: a time such as 1h for which they still count."""

    after: str = ""


async def policies(call: Call) -> PolicySet:
    """The set in force."""
    return call.core.policy_service.current()


async def policy_history(call: Call) -> list[PolicySet]:
    """All versions, oldest first."""
    return call.core.policy_service.history()


async def validate_policies(call: Call) -> PolicyVerdict:
    """Everything that is wrong with a set; nothing is changed."""
    request = await call.body(PolicyRequest)
    await in_thread(call.core.policy_service.outcome, request.text)
    return call.core.policy_service.validate(request.text)


async def apply_policies(call: Call) -> PolicyVerdict:
    """Put a whole set in force. With `problems` in the answer, nothing was changed."""
    request = await call.body(PolicyRequest)
    await in_thread(call.core.policy_service.outcome, request.text)
    return await call.core.policy_service.apply(
        call.caller, request.text, request.reason, instead_of=request.instead_of
    )


async def diff_policies(call: Call) -> PolicyDiff:
    """How a set differs from the one in force, by document and by effect; nothing is changed."""
    request = await call.body(PolicyRequest)
    await in_thread(call.core.policy_service.outcome, request.text)
    return call.core.policy_service.diff(request.text)


async def replay_policies(call: Call) -> PolicyReplay:
    """What a set would have done with the load of some time, beside the one in force: both are simulated, which takes up to limits.policy_replay_s. Nothing is changed."""
    request = await call.body(ReplayRequest)
    await in_thread(call.core.policy_service.outcome, request.text)
    doing = asyncio.ensure_future(call.core.policy_replays.replay(request))
    try:
        while not doing.done():
            await asyncio.wait((doing,), timeout=LOOK_S)
            if call.hung_up:
                raise Unavailable("whoever asked is gone")
        return doing.result()
    finally:
        doing.cancel()  # nobody waits for it: the next may begin


async def rollback_policies(call: Call) -> PolicyVerdict:
    """Put a former version in force again, as a new one."""
    request = await call.body(PolicyRollback)
    return await call.core.policy_service.rollback(call.caller, request.version, request.reason)


async def decisions(call: Call) -> list[DecisionRow]:
    """The last recorded decisions, oldest first; the page before it begins `before` the first of these."""
    query = call.query(DecisionsQuery)
    until = math.inf if query.until is None else query.until
    return [told_row(row) for row in call.core.decisions.before(query.before, query.since, until, query.last)]


async def decision(call: Call) -> RecordedDecision:
    """One recorded decision, whole. It has all jobs, so that it is for those who are shown all."""
    log, name = call.core.decisions, call.path("id")
    return RecordedDecision(*await _recorded(call), log.proof(name))


async def tell_decision(call: Call) -> ToldDecision:
    """One recorded decision in words, for those who are shown all jobs."""
    problem, plan = await _recorded(call)
    plan = told_plan(replace(plan, actions=plan.actions[:MOST_TOLD], waiting=plan.waiting[:MOST_TOLD]))
    named = {each.job for each in (*plan.actions, *plan.waiting)}
    jobs, seen = call.core.records.jobs, problem.snapshot
    return ToldDecision(
        row=told_row(call.core.decisions.row(call.path("id"))),
        plan=plan,
        names={each.id: each.name for each in seen.jobs if each.id in named}
        | {name: jobs[name].label for name in named if name in jobs},
        pools=len(seen.pools),
        offers=len(seen.offers),
        policy_version=seen.policy_version,
    )


async def _recorded(call: Call) -> tuple[Problem, Plan]:
    if not call.sight.everything:
        raise Forbidden(
            "a recorded decision names the jobs of all teams (visibility.jobs)",
            remedy="ask a user with the role platform, or see federator explain JOB",
        )
    return await call.core.decisions.load(call.path("id"))


async def replay(call: Call) -> ReplayResult:
    """Decide again from the record."""
    return await call.core.decisions.replay(call.path("id"))


async def ledger(call: Call) -> list[LedgerEntry]:
    """Who did what, what was used, and what it cost; oldest first. A site-admin sees what is of their sites."""
    query = call.query(LedgerQuery)
    sites: tuple[str, ...] = (query.site,) if query.site else ()
    if call.caller.role is Role.SITE_ADMIN:
        sites = sites or call.caller.sites or ("",)
        for site in sites:
            call.core.sites.allow(call.caller, site)
    return await call.core.views.ledger(
        after=query.after, limit=query.limit, job=query.job, sites=sites, since=query.since
    )


async def export_ledger(call: Call) -> web.StreamResponse:
    """The whole ledger with its seals, as JSON lines that can be verified anywhere."""
    response = await call.stream(NDJSON)
    async for part in call.core.chain.export():
        await response.write(msgspec.json.encode(part) + b"\n")
    await response.write_eof()
    return response


async def create_token(call: Call) -> TokenAnswer:
    """A person's token, or an agent's one-time join token. The secret is shown once."""
    return await call.core.admission.create_token(call.caller, await call.body(TokenRequest))


async def tokens(call: Call) -> list[TokenRow]:
    """Who has which tokens; no secrets."""
    return call.core.admission.rows()


async def revoke_tokens(call: Call) -> Revoked:
    """Revoke all tokens of that name, or the one of that id."""
    in_s = duration_s(call.query(RevokeQuery).after, "?after") or 0.0
    return Revoked(await call.core.admission.revoke(call.caller, call.path("name"), in_s))


async def rotate_token(call: Call) -> TokenAnswer:
    """A new token in the place of one. The secret is shown once."""
    return await call.core.admission.rotate(call.caller, call.path("name"), await call.body(TokenRotation))
