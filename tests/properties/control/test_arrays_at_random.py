"""Large arrays at random, with restarts in the middle of everything: each task becomes a job once, or was cancelled before, and none is lost."""

import asyncio
import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from federator.model.arrays import has
from federator.model.jobs import JobStatus
from federator.ports import Transaction
from federator.store.memory import MemoryStore
from federator.wire.http import JobAction, Verb
from tests.support.dispatch import ADA, SharedClock, World, make_world
from tests.support.examples import examples

TASKS = 60
VERBS: dict[str, Verb] = {"cancel": "cancel", "hold": "hold", "release": "release"}
SPAN = st.tuples(st.integers(0, TASKS - 1), st.integers(1, 20))
STEP = st.one_of(
    st.tuples(st.just("turn"), st.none()),
    st.tuples(st.just("end what runs"), st.integers(0, 1)),
    st.tuples(st.just("expand"), st.none()),
    st.tuples(st.just("expand, and die while writing"), st.booleans()),
    st.tuples(st.just("restart"), st.none()),
    st.tuples(st.just("cancel"), SPAN),
    st.tuples(st.just("act on one"), st.tuples(st.sampled_from(["cancel", "hold", "release"]), st.integers(0, TASKS - 1))),
    st.tuples(st.just("all"), st.sampled_from(["hold", "release"])),
)  # fmt: skip


class Story:
    """One array, and a dispatcher that comes and goes."""

    def __init__(self, step: int) -> None:
        self.clock = SharedClock()
        self.store = MemoryStore(self.clock)
        self.step = step
        self.world: World
        self.ids: tuple[str, ...] = ()
        self.cancelled = set[int]()
        """Places that somebody has cancelled."""

    async def begin(self) -> None:
        await self.restart()
        spans = f"0-{(TASKS - 1) * self.step}:{self.step}"
        answer = await self.world.submit_all(name="sweep", array=spans, resources={"gpus": 1})
        self.array, self.ids = answer.array, answer.jobs

    async def restart(self) -> None:
        self.world = await make_world(store=self.store, clock=self.clock)
        acceptance = self.world.core.intake.acceptance
        acceptance.limits = replace(acceptance.limits, array_waiting=7)
        if "lab" not in self.world.core.records.sites:
            await self.world.add_site("lab", nodes=1, gpus=3)
        else:
            self.world.connect("lab", 1, 3, "A100")

    async def do(self, what: str, value: object) -> None:
        world, intake = self.world, self.world.core.intake
        match what, value:
            case "turn", _:
                await world.turn()
            case "end what runs", int(code):
                await self.end_what_runs(code)
            case "expand", _:
                await intake.expansion.fill(self.array)
            case "expand, and die while writing", bool(written):
                await self.die_while_expanding(written=written)
            case "restart", _:
                await self.restart()
            case "cancel", (int(first), int(count)):
                last = min(TASKS, first + count) - 1
                self.cancelled |= set(range(first, last + 1))
                await self.act(
                    JobAction("cancel", (f"sweep[{first * self.step}-{last * self.step}:{self.step}]",))
                )
            case "act on one", (str(verb), int(place)):
                await self.act_on_one(VERBS[verb], place)
            case "all", str(verb):
                await self.act(JobAction(VERBS[verb], ("sweep",)))

    async def end_what_runs(self, code: int) -> None:
        for job in list(self.world.core.records.open_jobs.values()):
            if job.status is JobStatus.RUNNING:
                await self.world.sites["lab"].finish(job.id, exit_code=code)

    async def die_while_expanding(self, *, written: bool) -> None:
        """The dispatcher ends before the answer of the store, which has the rows or has them not."""
        commit = self.store.commit

        async def dies(transaction: Transaction) -> int:
            if written:
                await commit(transaction)
            raise asyncio.CancelledError

        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(asyncio.CancelledError):
            patch.setattr(self.store, "commit", dies)
            await self.world.core.intake.expansion.fill(self.array)
        await self.restart()

    async def act(self, action: JobAction) -> None:
        """As the API does it."""
        views, intake, (name,) = self.world.core.views, self.world.core.intake, action.jobs
        meant = await views.find_all(ADA, name)
        await intake.verbs.act_on_rest(ADA, action, self.array, meant.places)
        await intake.verbs.act(ADA, action, [job.id for job in (await views.find_all(ADA, name)).jobs])

    async def act_on_one(self, verb: Verb, place: int) -> None:
        job = self.world.core.views.find_job(ADA, f"sweep[{place * self.step}]")
        assert job.id == self.ids[place]
        if verb == "cancel":
            self.cancelled.add(place)
        await self.world.core.intake.verbs.act(ADA, JobAction(verb, (job.id,)), [job.id])

    def check(self) -> None:
        """Each task is in one place, and counts once."""
        records, row = self.world.core.records, self.world.core.records.job_arrays[self.array]
        for place, job in enumerate(self.ids):
            where = (job in records.jobs, has(row.left, place), has(row.cancelled, place))
            assert sum(where) == 1, (place, where)
            found = self.world.core.views.find_job(ADA, f"sweep[{place * self.step}]")
            assert (found.id, found.array_index) == (job, place * self.step)
        assert len(records.jobs) <= TASKS
        assert sum(records.index.task_counts(self.array).values()) == TASKS

    async def finish(self) -> None:
        """All that nobody has cancelled runs."""
        await self.do("turn", None)
        await self.act(JobAction("release", ("sweep",)))
        for _ in range(3 * TASKS):
            await self.do("expand", None)
            await self.do("turn", None)
            await self.do("end what runs", 0)
        counts = self.world.core.records.index.task_counts(self.array)
        assert counts.keys() <= {JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED}
        for place, job in enumerate(self.ids):
            known = self.world.core.records.open_job(job)
            assert known is not None
            assert (known.status is JobStatus.CANCELLED) <= (place in self.cancelled)


@settings(max_examples=examples(25), deadline=None)
@given(st.sampled_from([1, 3]), st.lists(STEP, max_size=25))
async def test_each_task_becomes_a_job_once_whatever_happens(
    step: int, steps: list[tuple[str, object]]
) -> None:
    story = Story(step)
    await story.begin()
    story.check()
    for what, value in steps:
        await story.do(what, value)
        story.check()
    await story.finish()
    story.check()
