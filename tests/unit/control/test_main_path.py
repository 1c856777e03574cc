"""From submission to the end, one job at a time: what a person sees of each thing that can happen to it."""

import pytest

from federator.control.submission.acceptance import Submission
from federator.kernel.errors import ClientIdReused, Conflict, Invalid
from federator.model.jobs import JobStatus, TerminalReason
from federator.model.placements import Cause, Order, PlacementReport, PlacementStatus, RankStatus
from federator.wire.http import Submitted
from federator.wire.jobfile import read_job
from tests.support.dispatch import ADA, BOB, World, make_world


@pytest.fixture
async def world() -> World:
    world = await make_world()
    await world.add_site("lab", nodes=2, gpus=4)
    return world


async def test_a_job_runs_and_succeeds(world: World) -> None:
    job = await world.submit(resources={"gpus": 2}, estimate="1h")
    assert world.job(job).status is JobStatus.PENDING
    await world.turn()
    assert world.job(job).status is JobStatus.RUNNING
    world.clock.advance(1800)
    await world.sites["lab"].finish(job)
    done = world.job(job)
    assert done.status is JobStatus.SUCCEEDED
    told = [(event.kind, event.site) for event in await world.core.views.events(job, None)]
    assert told == [("submit", ""), ("place", "lab"), ("running", "lab"), ("succeed", "lab")]
    assert done.outcome is not None
    assert done.outcome.reason is TerminalReason.DONE
    assert done.gpu_s == pytest.approx(2 * 1800)


async def test_a_gang_needs_all_its_nodes_at_once(world: World) -> None:
    first = await world.submit(resources={"gpus": 3})
    await world.turn()
    gang = await world.submit(nodes=2, resources={"gpus": 4})
    await world.turn()
    assert world.job(gang).status is JobStatus.PENDING
    await world.sites["lab"].finish(first)
    await world.turn()
    assert world.job(gang).status is JobStatus.RUNNING
    assert world.placement(gang).members == ("lab", "lab")


async def test_a_late_finish_is_recorded_beside_success(world: World) -> None:
    job = await world.submit(resources={"gpus": 1}, finish_within="1h")
    await world.turn()
    world.clock.advance(7200)
    await world.sites["lab"].finish(job)
    done = world.job(job)
    assert done.status is JobStatus.SUCCEEDED
    assert done.outcome is not None
    assert done.outcome.missed_deadline is True


async def test_an_error_is_retried_after_its_backoff_and_no_oftener_than_asked(world: World) -> None:
    job = await world.submit(retry={"on": ["error"], "max": 1, "backoff": "60s"})
    await world.turn()
    await world.sites["lab"].finish(job, exit_code=3)
    assert world.job(job).status is JobStatus.PENDING
    await world.turn()
    assert world.job(job).status is JobStatus.PENDING, "the backoff is not over"
    world.clock.advance(61)
    await world.turn()
    assert world.job(job).status is JobStatus.RUNNING
    assert world.job(job).epoch == 2
    await world.sites["lab"].finish(job, exit_code=3)
    failed = world.job(job)
    assert failed.status is JobStatus.FAILED
    assert failed.outcome is not None
    assert failed.outcome.reason is TerminalReason.RETRIES_SPENT
    assert failed.outcome.exit_code == 3


async def test_without_retry_the_first_error_ends_it(world: World) -> None:
    job = await world.submit()
    await world.turn()
    await world.sites["lab"].finish(job, exit_code=7)
    outcome = world.job(job).outcome
    assert outcome is not None
    assert (outcome.reason, outcome.exit_code) == (TerminalReason.EXIT_CODE, 7)


async def test_its_time_limit_is_never_retried(world: World) -> None:
    job = await world.submit(max_duration="1h", retry={"on": ["error"], "max": 3})
    await world.turn()
    await world.sites["lab"].finish(job, exit_code=143, cause=Cause.MAX_DURATION)
    outcome = world.job(job).outcome
    assert outcome is not None
    assert outcome.reason is TerminalReason.MAX_DURATION


async def test_a_lost_machine_never_fails_the_job(world: World) -> None:
    job = await world.submit()
    await world.turn()
    site = world.sites["lab"]
    await site.say(world.placement(job), PlacementStatus.LOST, cause=Cause.NODE_LOST, detail="rebooted")
    assert world.job(job).status is JobStatus.PENDING
    await world.turn()
    assert world.job(job).status is JobStatus.RUNNING


async def test_a_job_that_kills_three_nodes_is_held(world: World) -> None:
    job = await world.submit()
    for number in range(3):
        await world.turn()
        lost = world.placement(job)
        ranks = (RankStatus(rank=0, node=f"node-{number}"),)
        await world.sites["lab"].say(lost, PlacementStatus.LOST, cause=Cause.NODE_LOST, ranks=ranks)
    assert world.job(job).status is JobStatus.HELD
    assert "suspected" in world.job(job).because


async def test_a_refusal_is_an_ordinary_answer(world: World) -> None:
    job = await world.submit()
    await world.core.turn.once()
    await world.sites["lab"].say(
        world.placement(job), PlacementStatus.REFUSED, cause=Cause.CANNOT, detail="paused"
    )
    waiting = world.job(job)
    assert waiting.status is JobStatus.PENDING
    assert "refused" in waiting.because
    world.clock.advance(10)
    await world.turn()
    assert world.job(job).status is JobStatus.RUNNING


async def test_hold_of_a_running_job_frees_its_gpus_and_resumes_at_the_same_site(world: World) -> None:
    await world.add_site("other", nodes=1, gpus=4)
    job = await world.submit(resources={"gpus": 2}, checkpoint={"grace": "10s"})
    await world.turn()
    where = world.placement(job).site
    await world.core.intake.act_on_one(ADA, "hold", job)
    assert world.job(job).status is JobStatus.SUSPENDING
    assert world.placement(job).order is Order.STOP
    await world.obey()
    held = world.job(job)
    assert held.status is JobStatus.HELD
    assert held.resume_site == where
    await world.turn()
    assert world.job(job).status is JobStatus.HELD
    await world.core.intake.act_on_one(ADA, "release", job)
    await world.turn()
    assert world.job(job).status is JobStatus.RUNNING
    assert world.placement(job).site == where


@pytest.mark.parametrize("unkept", [False, True])
async def test_a_checkpoint_ties_a_job_to_its_site_unless_it_is_kept_elsewhere(
    world: World, unkept: bool
) -> None:
    checkpoint = {"grace": "10s", "uri": "s3://team/saved"}
    job = await world.submit(resources={"gpus": 2}, checkpoint=checkpoint)
    await world.turn()
    where = world.placement(job).site
    await world.core.intake.act_on_one(ADA, "hold", job)
    site = world.sites[where]
    await site.say(
        world.placement(job), PlacementStatus.STOPPED, cause=Cause.STOPPED, checkpointed=True, unkept=unkept
    )
    assert world.job(job).resume_site == (where if unkept else None)


async def test_hold_of_a_waiting_job_keeps_it_from_starting(world: World) -> None:
    job = await world.submit()
    await world.core.intake.act_on_one(ADA, "hold", job)
    await world.turn()
    assert world.job(job).status is JobStatus.HELD


async def test_cancel_waits_for_the_sites_word(world: World) -> None:
    job = await world.submit()
    await world.turn()
    await world.core.intake.cancel(ADA, job)
    assert world.job(job).status is JobStatus.CANCELLING
    await world.obey()
    done = world.job(job)
    assert done.status is JobStatus.CANCELLED
    assert done.outcome is not None
    assert done.outcome.reason is TerminalReason.CANCELLED


async def test_cancelling_twice_or_after_the_end_changes_nothing(world: World) -> None:
    job = await world.submit()
    await world.core.intake.cancel(ADA, job)
    before = world.job(job)
    await world.core.intake.cancel(ADA, job)
    assert world.job(job) == before
    with pytest.raises(Conflict):
        await world.core.intake.act_on_one(ADA, "hold", job)


async def test_requeue_stops_and_starts_it_again(world: World) -> None:
    job = await world.submit()
    await world.turn()
    await world.core.intake.act_on_one(ADA, "requeue", job)
    await world.obey()
    assert world.job(job).status is JobStatus.PENDING
    await world.turn()
    assert world.job(job).epoch == 2


async def test_a_job_follows_its_predecessor_and_falls_with_it(world: World) -> None:
    first = await world.submit(name="prepare")
    second = await world.submit(name="train", after=["prepare"])
    third = await world.submit(name="publish", after=["train"])
    await world.turn()
    assert world.job(second).status is JobStatus.PENDING
    assert "prepare" in world.core.views.row(world.job(second)).because
    await world.sites["lab"].finish(first)
    await world.turn()
    assert world.job(second).status is JobStatus.RUNNING
    await world.sites["lab"].finish(second, exit_code=1)
    await world.turn()
    outcome = world.job(third).outcome
    assert outcome is not None
    assert outcome.reason is TerminalReason.DEPENDENCY_FAILED


async def test_an_array_is_one_submission_of_many_tasks(world: World) -> None:
    submitted = await world.submit_all(array="0-3", resources={"gpus": 1})
    assert len(submitted.jobs) == 4
    assert [world.job(job).array_index for job in submitted.jobs] == [0, 1, 2, 3]
    await world.turn()
    assert all(world.job(job).status is JobStatus.RUNNING for job in submitted.jobs)


async def test_the_same_client_id_is_answered_the_same_and_another_body_refused(world: World) -> None:
    first = await world.submit_all(client_id="c1", name="a")
    again = await world.submit_all(client_id="c1", name="a")
    assert again.jobs == first.jobs
    assert again.repeated
    with pytest.raises(ClientIdReused):
        await world.submit_all(client_id="c1", name="b")
    other = await world.submit_all(BOB, client_id="c1", name="b")
    assert other.jobs != first.jobs, "client ids are per owner"


async def test_an_unknown_queue_is_refused_with_those_that_exist(world: World) -> None:
    with pytest.raises(Invalid) as refused:
        await world.submit(queue="nowhere")
    assert refused.value.field == "$.queue"
    assert "default" in str(refused.value)
    assert not world.core.records.jobs


async def test_success_of_an_older_attempt_completes_the_job_and_stops_the_newer(world: World) -> None:
    job = await world.submit()
    await world.turn()
    old = world.placement(job)
    await world.core.progress.lose(old.id, "declared dead by an operator", acknowledged=False)
    await world.turn()
    new = world.placement(job)
    assert new.id != old.id
    await world.sites["lab"].say(old, PlacementStatus.SUCCEEDED, exit_code=0, ended_at=world.clock.now())
    assert world.job(job).status is JobStatus.SUCCEEDED
    assert world.core.records.placements[new.id].order is Order.STOP


async def test_a_repeated_status_changes_nothing(world: World) -> None:
    job = await world.submit()
    await world.turn()
    await world.sites["lab"].finish(job)
    before = world.core.records.revision
    await world.sites["lab"].say(world.placement(job), PlacementStatus.SUCCEEDED)
    assert world.core.records.revision == before


async def test_a_restart_goes_on_from_the_store(world: World) -> None:
    running = await world.submit(resources={"gpus": 4})
    await world.turn()
    waiting = await world.submit(nodes=2, resources={"gpus": 4})
    again = await make_world(store=world.core.records.store, clock=world.clock)  # type: ignore[arg-type]
    assert again.job(running).status is JobStatus.RUNNING
    assert again.job(waiting).status is JobStatus.PENDING
    await again.core.turn.once()
    assert again.job(waiting).status is JobStatus.PENDING, "nothing is placed before the site has reported"


async def test_an_error_while_it_is_being_stopped_is_retried_like_any_other(world: World) -> None:
    job = await world.submit(retry={"on": ["error"], "max": 2, "backoff": "60s"})
    await world.turn()
    await world.core.intake.act_on_one(ADA, "requeue", job)
    await world.sites["lab"].finish(job, exit_code=1)
    assert world.job(job).status is JobStatus.PENDING
    assert world.job(job).errors == 1
    held = await world.submit(retry={"on": ["error"], "max": 2})
    await world.turn()
    await world.core.intake.act_on_one(ADA, "hold", held)
    await world.sites["lab"].finish(held, exit_code=1)
    assert world.job(held).status is JobStatus.HELD


async def test_the_same_node_of_two_sites_is_two_nodes(world: World) -> None:
    """Every site calls its first host 0: losing it at three sites is three losses, at one site it is one."""
    job = await world.submit()
    for _ in range(4):
        await world.turn()
        ranks = (RankStatus(rank=0, node="main/0"),)
        await world.sites["lab"].say(
            world.placement(job), PlacementStatus.LOST, cause=Cause.NODE_LOST, ranks=ranks
        )
    assert world.job(job).losses == ("lab/main/0",)
    assert world.job(job).status is JobStatus.PENDING


async def test_jobs_of_one_batch_may_follow_each_other(world: World) -> None:
    """A pipeline in one file: the second names the first, which is not on record before the batch is."""
    now = world.clock.now()
    first = read_job({"run": "x", "name": "prepare"}, now=now)
    second = read_job({"run": "y", "name": "train", "after": ["prepare"]}, now=now)
    answers = await world.core.intake.submit_many(
        ADA, [Submission(first, None, "1"), Submission(second, None, "2")]
    )
    assert all(isinstance(answer, Submitted) for answer in answers)
    train = world.core.views.find_job(ADA, "train")
    assert train.after == (world.core.views.find_job(ADA, "prepare").id,)


async def test_in_a_batch_each_job_is_accepted_or_refused_by_itself_and_counts_once(world: World) -> None:
    now = world.clock.now()
    asked = [
        Submission(read_job({"run": "x", **fields}, now=now), client_id, "1")
        for fields, client_id in (
            ({"name": "one"}, "a"),
            ({"name": "two", "queue": "nowhere"}, "b"),
            ({"name": "one"}, "a"),
            ({"name": "three", "array": "0-2"}, None),
            ({"name": "four"}, None),
        )
    ]
    one, two, again, three, four = await world.core.intake.submit_many(ADA, asked)
    assert isinstance(two, Invalid)
    assert two.field == "$.queue"
    assert isinstance(one, Submitted)
    assert isinstance(again, Submitted)
    assert (again.jobs, again.repeated) == (one.jobs, True)
    assert isinstance(three, Submitted)
    assert isinstance(four, Submitted)
    assert sorted(world.core.records.jobs) == sorted((*one.jobs, *three.jobs, *four.jobs))
    assert list(world.core.records.client_keys) == ["ada/a"]


async def test_statuses_of_many_jobs_and_several_of_one_may_come_in_one_message(world: World) -> None:
    big = await world.add_site("big", nodes=50, gpus=1)
    jobs = [await world.submit(resources={"gpus": 1}, name=f"short-{number}") for number in range(40)]
    world.sites.clear()  # nobody answers by itself
    await world.turn()
    placements = [world.placement(job) for job in jobs]
    began_at = world.clock.now()
    world.clock.advance(5)
    said = [
        PlacementReport(
            placement=placement.id,
            epoch=placement.epoch,
            seq=seq,
            status=status,
            at=world.clock.now(),
            exit_code=0 if status is PlacementStatus.SUCCEEDED else None,
            started_at=began_at + 1,
            ended_at=began_at + 3 if status is PlacementStatus.SUCCEEDED else None,
        )
        for seq, (placement, status) in enumerate(
            [(placement, PlacementStatus.RUNNING) for placement in placements[:20]]
            + [(placement, PlacementStatus.SUCCEEDED) for placement in placements],
            1,
        )
        if placement.members == (big.name,)
    ]
    done = {report.placement for report in said}
    assert len(done) > 15, "they do not even fill one transaction"
    assert await world.core.progress.absorb(big.name, tuple(said)) == max(report.seq for report in said)
    for placement in placements:
        job = world.job(placement.job)
        if placement.id in done:
            assert job.status is JobStatus.SUCCEEDED
            assert (job.started_at, job.finished_at) == (began_at + 1, began_at + 3)
            assert world.core.history.runs(job.queue, job.name) == (2.0,)
    told = [event.kind for event in await world.core.views.events(jobs[0], None)]
    assert told == ["submit", "place", "running", "succeed"]


async def test_a_running_jobs_forecast_is_not_its_end(world: World) -> None:
    job = await world.submit(estimate="1h")
    await world.turn()
    row = world.core.views.row(world.job(job))
    assert (row.finished_at, (row.expected_finish_at or 0.0) > world.clock.now()) == (None, True)
