"""A trace of each job, made from its records: whole, each span once, and the same whoever makes it."""

import re
from collections.abc import Iterable

import pytest

from federator.control.messages.job_traces import JobTraces
from federator.hub.desired import DesiredPlacements
from federator.model.spans import ROOT, RUN, Span, sampled, trace_id, traceparent
from federator.wire import link
from tests.support.dispatch import ADA, World, make_world


class Kept:
    """Keeps spans."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def export(self, span: Span) -> None:
        self.spans.append(span)

    async def close(self) -> None:
        """Nothing to send."""

    def names(self) -> list[str]:
        return [span.name for span in self.spans]

    def one(self, name: str) -> Span:
        found = [span for span in self.spans if span.name == name]
        assert len(found) == 1, self.names()
        return found[0]


def trace(world: World, *, share: float = 1.0) -> Kept:
    """Trace from now on."""
    kept = Kept()
    world.core.records.subscribe(JobTraces(world.core.records, world.clock, kept, share=share).note)
    return kept


@pytest.fixture
async def world() -> World:
    made = await make_world()
    await made.add_site("north", gpus=1)
    return made


async def lived(world: World, *, exit_code: int = 0) -> str:
    """A job that waits for 5 s, prepares for 3 s and runs for 60 s."""
    job = await world.submit(resources={"gpus": 1})
    world.clock.advance(5)
    await world.core.turn.once()
    world.clock.advance(3)
    await world.obey()
    world.clock.advance(60)
    await world.sites["north"].finish(job, exit_code=exit_code)
    return job


def whole(spans: Iterable[Span]) -> None:
    """One root, each span once, each within the one around it."""
    by_id = {span.id: span for span in spans}
    assert len(by_id) == len(list(spans))
    roots = [span for span in by_id.values() if not span.parent_id]
    assert [span.name for span in roots] == [ROOT]
    for span in by_id.values():
        assert span.start_at <= span.end_at
        around = by_id[span.parent_id] if span.parent_id else span
        assert around.start_at <= span.start_at
        assert span.end_at <= around.end_at


async def test_a_trace_tells_where_a_jobs_time_went(world: World) -> None:
    kept = trace(world)
    job = await lived(world)
    whole(kept.spans)
    assert kept.names() == ["submit", "wait", "turn", "prepare", RUN, "attempt", ROOT]
    lasted = {span.name: span.end_at - span.start_at for span in kept.spans}
    assert lasted == pytest.approx(
        {"submit": 0, "wait": 5, "turn": 0, "prepare": 3, RUN: 60, "attempt": 63, ROOT: 68}, abs=0.002
    )
    assert {span.job for span in kept.spans} == {job}
    assert not any(span.error for span in kept.spans)
    assert kept.one("attempt").attributes["site"] == "north"
    assert kept.one("turn").attributes["stage"] == "greedy"
    assert kept.one(ROOT).attributes["owner"] == "ada"


async def test_what_fails_says_why(world: World) -> None:
    kept = trace(world)
    await lived(world, exit_code=3)
    whole(kept.spans)
    assert kept.one(RUN).attributes["exit_code"] == 3
    assert kept.one(RUN).error
    assert "3" in kept.one(ROOT).error


async def test_each_attempt_has_its_own_spans(world: World) -> None:
    kept = trace(world)
    job = await world.submit(resources={"gpus": 1}, retry={"on": ["error"], "max": 1})
    await world.turn()
    world.clock.advance(10)
    first = world.placement(job)
    await world.sites["north"].finish(job, exit_code=1)
    world.clock.advance(300)
    await world.turn()
    assert world.placement(job).id != first.id
    world.clock.advance(1)
    await world.sites["north"].finish(job)
    whole(kept.spans)
    waits = [span for span in kept.spans if span.name == "wait"]
    assert [span.of for span in waits] == [first.id, world.placement(job).id]
    assert waits[1].start_at == first.assigned_at + 10
    assert kept.names().count("attempt") == 2


async def test_a_job_that_never_started_has_a_trace(world: World) -> None:
    kept = trace(world)
    job = await world.submit(resources={"gpus": 1})
    await world.core.intake.cancel(ADA, job)
    whole(kept.spans)
    assert kept.names() == ["submit", ROOT]


async def test_a_new_dispatcher_goes_on_with_the_same_trace(world: World) -> None:
    kept = trace(world)
    job = await world.submit(resources={"gpus": 1})
    await world.turn()
    successor = trace(world)
    world.clock.advance(60)
    await world.sites["north"].finish(job)
    assert successor.names() == ["prepare", RUN, "attempt", ROOT]
    begun = [span for span in kept.spans if span.name in ("submit", "wait", "turn")]
    whole([*begun, *successor.spans])


async def test_what_is_over_is_told_once(world: World) -> None:
    kept = trace(world)
    await lived(world)
    told = len(kept.spans)
    await world.put(*world.core.records.jobs.values(), *world.core.records.placements.values())
    assert len(kept.spans) == told


async def test_only_the_share_that_is_asked_for_is_traced(world: World) -> None:
    kept, none = trace(world, share=0.5), trace(world, share=1e-9)
    jobs = {await world.submit() for _ in range(60)}
    told = {span.job for span in kept.spans}
    assert told == {job for job in jobs if sampled(job, 0.5)}
    assert 10 < len(told) < 50
    assert not none.spans


async def test_a_jobs_processes_are_told_where_their_spans_belong(world: World) -> None:
    kept = trace(world)
    job = await world.submit(resources={"gpus": 1})
    await world.turn()
    placement = world.placement(job)
    desired = DesiredPlacements(world.core.records, lambda _member, _placement: None, trace_share=1.0)
    assert desired.entry(placement, "north", (link.TRACES,)).traced
    assert not desired.entry(placement, "north").traced
    untraced = DesiredPlacements(world.core.records, lambda _member, _placement: None)
    assert not untraced.entry(placement, "north", (link.TRACES,)).traced
    await world.sites["north"].finish(job)
    said = re.fullmatch(r"00-([0-9a-f]{32})-([0-9a-f]{16})-01", traceparent(job, placement.id))
    assert said is not None
    assert (int(said[1], 16), int(said[2], 16)) == (trace_id(job), kept.one(RUN).id)


def test_any_text_has_a_trace_that_is_not_nothing() -> None:
    for job in ("", "job-1", "job-" + "z" * 26, "job-" + "0" * 26, "job-" + "u" * 26, "x" * 10_000):
        assert 0 < trace_id(job) < 1 << 128
