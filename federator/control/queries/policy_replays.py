"""What a proposed set of policies would have done with the load that there was: the load is gathered here, and simulated elsewhere."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from federator.control.administration.policy_service import PolicyService
from federator.control.queries.recorded_load import Recorded, Span
from federator.kernel.clock import Clock
from federator.kernel.errors import Invalid, NotSupported, TooMany
from federator.ports import PolicyTrials
from federator.wire.contrast import PolicyReplay, PolicyTrial, ReplayRequest
from federator.wire.recorded import RecordedJob

PAGE = 1000
AGAIN_S = 10.0


class PolicyReplays:
    """Answers what would have been."""

    def __init__(
        self,
        recorded: Recorded,
        policies: PolicyService,
        trials: PolicyTrials | None,
        clock: Clock,
        *,
        most_jobs: int,
    ) -> None:
        """`trials` None: nothing is simulated here."""
        self._recorded = recorded
        self._policies = policies
        self._trials = trials
        self._clock = clock
        self._most_jobs = most_jobs
        self._busy = False

    async def replay(self, asked: ReplayRequest) -> PolicyReplay:
        """Simulate both sets on the load of that time. Raises `Invalid`, `NotSupported`, `TooMany` while another is under way, and what `PolicyTrials` does."""
        if self._trials is None:
            raise NotSupported("this dispatcher simulates nothing", remedy="run federator policy replay")
        span, began_s = self._span(asked), time.monotonic()
        version = self._policies.current().version
        if problems := self._policies.validate(asked.text).problems:
            return PolicyReplay(
                version=version, since_at=span.since_at, until_at=span.until_at, problems=problems
            )
        with self._alone():
            world = self._recorded.world(self._clock.now())
            world.usable()  # before a process is started that would find none
            jobs, left_out, more = await self._load(span)
            outcome = await self._trials.run(
                PolicyTrial(
                    world=world,
                    jobs=tuple(jobs[::-1]),
                    since_at=span.since_at,
                    in_force=self._policies.text_in_force(),
                    proposed=asked.text,
                    left_out=left_out,
                    seed=asked.seed,
                )
            )
        if outcome.contrast is None:
            raise Invalid(outcome.fault, field="$.last_s", remedy=outcome.remedy)
        cut = (
            (f"only the newest {len(jobs):,} jobs of that time (limits.policy_replay_jobs)",) if more else ()
        )
        return PolicyReplay(
            version=version,
            since_at=span.since_at,
            until_at=span.until_at,
            contrast=outcome.contrast,
            remarks=(*cut, *outcome.remarks),
            troubles=outcome.troubles,
            took_s=time.monotonic() - began_s,
        )

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """There is one at a time, from the gathering of its load on."""
        if self._busy:
            raise TooMany(
                "another replay of policies is under way",
                retry_after_s=AGAIN_S,
                remedy="try again when it is over",
            )
        self._busy = True
        try:
            yield
        finally:
            self._busy = False

    def _span(self, asked: ReplayRequest) -> Span:
        now = self._clock.now()
        until_at = now if asked.until is None else min(asked.until, now)
        if until_at <= 0:
            raise Invalid("is not a time of the past", field="$.until", remedy="give seconds since the epoch")
        return Span(max(0.0, until_at - asked.last_s), until_at)

    async def _load(self, span: Span) -> tuple[list[RecordedJob], int, bool]:
        """The newest jobs of that time, how many are no load, and whether there are more."""
        jobs: dict[str, RecordedJob] = {}
        left_out, after, now = 0, None, self._clock.now()
        while len(jobs) < self._most_jobs:
            page = await self._recorded.jobs(
                span, after=after, limit=min(PAGE, self._most_jobs - len(jobs)), now=now
            )
            jobs |= {job.id: job for job in page.jobs}
            left_out += page.left_out
            after = page.next_after
            if after is None:
                return list(jobs.values()), left_out, False
            await asyncio.sleep(0)  # the loop that answers people also plans
        return list(jobs.values()), left_out, True
