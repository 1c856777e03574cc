"""Series at random, with restarts in the middle of everything: no run comes twice, none is lost, and never two at once."""

import asyncio
import contextlib
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federator.control.record.records import Changes
from federator.kernel.errors import FederatorError
from federator.model.jobs import Job, JobStatus
from federator.store.memory import MemoryStore
from tests.support.dispatch import ADA, SharedClock, World, make_world
from tests.support.examples import examples

BEGIN = 1_772_323_200.0
STEP = st.one_of(
    st.tuples(st.just("pass"), st.sampled_from([60.0, 600.0, 3600.0, 7 * 3600.0, 40 * 3600.0])),
    st.tuples(st.just("look"), st.none()),
    st.tuples(st.just("look, and die while writing"), st.none()),
    st.tuples(st.just("end the run"), st.none()),
    st.tuples(st.just("restart"), st.none()),
    st.tuples(st.just("pause"), st.none()),
    st.tuples(st.just("resume"), st.none()),
    st.tuples(st.just("replace"), st.sampled_from(["1h", "6h", "0 3 * * *"])),
)


class Story:
    """One series, and a dispatcher that comes and goes; what is due is also counted here, in the plainest way."""

    def __init__(self, overlap: str) -> None:
        self.overlap = overlap
        self.clock = SharedClock(at=BEGIN)
        self.store = MemoryStore(self.clock)
        self.version = 0
        self.world: World

    async def begin(self, every: str) -> None:
        self.world = await make_world(store=self.store, clock=self.clock)
        await self.submit(every)

    async def submit(self, every: str) -> None:
        self.version += 1
        given: dict[str, Any] = {"name": "again", "every": every, "overlap": self.overlap}
        await self.world.submit_all(ADA, **given, env={"V": str(self.version)})

    @property
    def series(self) -> Any:
        return self.world.core.records.series["ada/again"]

    def runs(self) -> list[Job]:
        """By their numbers: ids of one millisecond are in no order across a restart."""
        found = self.world.core.records.runs.get("ada/again", {})
        return sorted(found.values(), key=lambda job: int(job.name.rpartition("-")[2]))

    async def do(self, what: str, value: Any) -> None:
        core = self.world.core
        if what == "pass":
            self.clock.advance(value)
        elif what == "look":
            await core.series_runs.look()
        elif what == "look, and die while writing":
            await self._die_while_looking()
        elif what == "end the run":
            await self._end_runs()
        elif what == "restart":
            self.world = await make_world(store=self.store, clock=self.clock)
        elif what == "replace":
            await self.submit(value)
        elif what == "pause":
            await core.series.pause(ADA, self.series)
        elif what == "resume":
            await core.series.resume(ADA, self.series)

    async def _die_while_looking(self) -> None:
        """The store takes what it is given, and whoever gave it never hears so."""
        commit = self.store.commit

        async def dies(transaction: Any) -> int:
            await commit(transaction)
            raise asyncio.CancelledError

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.world.core.records, "commit", dies)
            with contextlib.suppress(asyncio.CancelledError, FederatorError):
                await self.world.core.series_runs.look()
        self.world = await make_world(store=self.store, clock=self.clock)

    async def _end_runs(self) -> None:
        event_writer = self.world.core.series_runs.event_writer
        for job in self.runs():
            if not job.terminal:

                def compute(job: Job = job) -> Changes:
                    changes = Changes()
                    event_writer.job(changes, job, "cancel", "over")
                    return changes

                await self.world.core.records.transact(compute)

    def judge(self) -> None:
        """What must hold after every step."""
        runs = self.runs()
        assert [job.name for job in runs] == [f"again-{n}" for n in range(1, len(runs) + 1)]
        assert self.series.runs == len(runs)
        due = [job.due_at or 0.0 for job in runs]
        assert due == sorted(set(due)), "one run for a time, in their order"
        assert all(at <= job.submitted_at for job, at in zip(runs, due, strict=True))
        assert sum(not job.terminal for job in runs) <= 1, "never two at once"
        told = [int(self.world.core.records.spec(job.spec_hash).env["V"]) for job in runs]
        assert told == sorted(told), "a file counts from the next run on"

    async def settle(self) -> None:
        """Once nothing goes wrong any more, the next that is due comes."""
        await self.do("restart", None)
        await self.do("resume", None)
        await self.do("end the run", None)
        await self.world.core.series_runs.look()
        await self.do("end the run", None)
        await self.world.core.series_runs.look()
        before, next_at = len(self.runs()), self.series.next_at
        if not self.runs()[-1:] or self.runs()[-1].terminal:
            self.clock.advance(next_at - self.clock.now())
            await self.world.core.series_runs.look()
            assert len(self.runs()) == before + 1
            assert self.runs()[-1].due_at == next_at
        self.judge()


@settings(deadline=None, max_examples=examples(40))
@given(
    st.sampled_from(["skip", "queue", "replace"]),
    st.sampled_from(["1h", "6h", "*/20 * * * *", "30 2 * * *"]),
    st.lists(STEP, max_size=25),
)
def test_no_run_comes_twice_and_none_is_lost(overlap: str, every: str, steps: list[tuple[str, Any]]) -> None:
    async def play() -> None:
        story = Story(overlap)
        await story.begin(every)
        for what, value in steps:
            await story.do(what, value)
            story.judge()
        await story.settle()

    asyncio.run(play())


@settings(deadline=None, max_examples=examples(30))
@given(
    st.sampled_from(["1h", "20m", "*/30 * * * *"]),
    st.lists(st.sampled_from([60.0, 300.0, 1700.0]), min_size=5, max_size=60),
)
def test_while_somebody_looks_often_enough_every_time_has_its_run(every: str, gaps: list[float]) -> None:
    """Restarts in between change nothing as long as none takes longer than from one time to the next."""

    async def play() -> None:
        story = Story("skip")
        await story.begin(every)
        for gap_s in gaps:
            await story.world.core.series_runs.look()
            await story.do("end the run", None)
            story.clock.advance(gap_s)
            if gap_s > 1000.0:
                await story.do("restart", None)
        await story.world.core.series_runs.look()
        due = [job.due_at or 0.0 for job in story.runs()]
        step_s = {"1h": 3600.0, "20m": 1200.0}.get(every, 1800.0)
        missed = step_s < 1700.0  # then a gap may have two
        assert not due or all(
            later - earlier == step_s or (missed and later - earlier == 2 * step_s)
            for earlier, later in pairwise(due)
        )
        assert not due or story.clock.now() - due[-1] < step_s
        story.judge()

    asyncio.run(play())


def test_the_story_can_fail() -> None:
    """A look that forgets to write the number is found."""

    async def play() -> None:
        story = Story("skip")
        await story.begin("1h")
        await story.world.core.series_runs.look()
        assert [job.status for job in story.runs()] == [JobStatus.PENDING]
        row = story.series

        def back() -> Changes:
            changes = Changes()
            changes.put(type(row)(**{**{f: getattr(row, f) for f in row.__struct_fields__}, "runs": 0}))
            return changes

        await story.world.core.records.transact(back)
        with pytest.raises(AssertionError):
            story.judge()

    asyncio.run(play())
