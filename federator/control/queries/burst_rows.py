"""What people are shown of bursting: policies, whether their hours hold, and rentals that wait for somebody."""

from collections import Counter
from collections.abc import Iterator

from federator.control.record.records import Records
from federator.model.capacity import LEASE_ENDED
from federator.model.plans import Plan
from federator.model.rules import BurstMode, Filter
from federator.planning.explanations.rule_words import where, whose
from federator.planning.rules.openings import open_at
from federator.planning.wording.told import because_of
from federator.wire.administration import BurstPolicyRow, BurstStatus, ProposalRow


def burst_status(records: Records, plan: Plan | None, now: float) -> BurstStatus:
    """As of now, and of the newest plan."""
    flag = records.flags.get("burst-paused")
    paused = flag if flag is not None and flag.on else None
    return BurstStatus(
        paused=paused is not None,
        paused_by=paused.who if paused else "",
        paused_at=paused.at if paused else None,
        policies=tuple(_policies(records, now)),
        proposals=tuple(_proposals(records, plan, now)),
    )


def _policies(records: Records, now: float) -> Iterator[BurstPolicyRow]:
    """One row per policy: windows that run past midnight are two filters of it."""
    leases = Counter(le.policy for le in records.leases.values() if le.status not in LEASE_ENDED)
    rules = [rule for rule in records.policies.rules if isinstance(rule, Filter) and rule.mode is not None]
    for policy in dict.fromkeys(rule.policy for rule in rules):
        mine = [rule for rule in rules if rule.policy == policy]
        first = mine[0]
        yield BurstPolicyRow(
            policy=policy,
            mode=(first.mode or BurstMode.ECONOMIC).value,
            who=whose(first.scope),
            where=where(first.pools),
            open=any(open_at(rule.window, now) for rule in mine),
            advisory=first.advisory,
            approval_above_usd=first.approval_above_usd,
            leases=leases[policy],
        )


def _proposals(records: Records, plan: Plan | None, now: float) -> Iterator[ProposalRow]:
    for proposal in plan.proposals if plan else ():
        job = records.jobs.get(proposal.job)
        if job is not None and not job.terminal:
            yield ProposalRow(
                kind=proposal.kind.value,
                job=job.id,
                name=job.label,
                owner=job.owner,
                queue=job.queue,
                policy=proposal.policy,
                offer=f"{proposal.provider}/{proposal.offer}",
                cost_usd=proposal.cost_usd,
                # What approving it without an amount approves.
                worst_usd=job.proposed_usd or proposal.committed_usd,
                because=because_of(proposal, now),
            )
