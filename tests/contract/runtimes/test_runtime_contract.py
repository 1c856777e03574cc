"""What the core may rely on, whatever runs the work: nothing before the gate, everything once, and the same after the agent's death."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from msgspec.structs import replace

from federator.kernel.clock import SystemClock
from federator.model.jobs import Checkpoint, Form, Input
from federator.model.placements import Cause
from federator_agent.core import events as ev
from federator_agent.data.allowed import Allowed
from federator_agent.data.carrier import Carrier, Folders, load_of
from federator_agent.staging_errors import StagingError, StagingRefused
from federator_agent.usage import Reading
from tests.contract.runtimes import (
    factories_kube,
    factories_local,
    factories_local_sandbox,
    factories_local_users,
    factories_slurm,
)
from tests.contract.runtimes.world import INPUTS, RuntimeWorld
from tests.support.waiting import PATIENCE_S, until
from tests.testbeds.required import need

FACTORIES = {
    "local": factories_local,
    "local-users": factories_local_users,
    "local-sandbox": factories_local_sandbox,
    "kube": factories_kube,
    "slurm": factories_slurm,
}


@pytest.fixture(params=list(FACTORIES))
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RuntimeWorld]:
    factory: ModuleType = FACTORIES[request.param]
    need(factory.lacking())
    world = RuntimeWorld(tmp_path, factory.site())
    world.begin()
    yield world
    await world.close()


async def test_nothing_runs_before_the_gate_is_opened_and_then_once(world: RuntimeWorld) -> None:
    spec = world.spec("echo it runs; sleep 0.2; echo it ends")
    record = world.record(spec)
    prepared = await world.prepare(record, spec)
    assert "runs" not in world.log(record)
    record = await world.start(record, spec, prepared)
    (end,) = await world.over(record)
    assert (end.exit_code, end.cause) == (0, None)
    assert world.log(record) == "it runs\nit ends\n"
    assert world.count(ev.RankEnded, record) == 1


async def test_a_gate_that_is_open_already_stays_so_and_nothing_runs_twice(world: RuntimeWorld) -> None:
    spec = world.spec("echo it runs; until [ -e stop ]; do sleep 0.1; done")
    record = await world.run(spec)
    await world.has_written(record, "it runs")
    world.runtime.start(record, spec, (0,))
    world.runtime.signal(record.entry.placement, (0,), "KILL")
    (end,) = await world.over(record)
    assert (end.exit_code, world.log(record).count("it runs")) == (137, 1)
    assert world.count(ev.RankEnded, record) == 1


@pytest.mark.parametrize("world", ["local", "local-users", "local-sandbox"], indirect=True)
@pytest.mark.parametrize("goes_on", [True, False])
async def test_a_gate_that_an_earlier_life_opened_stays_so_and_the_end_is_told(
    world: RuntimeWorld, *, goes_on: bool
) -> None:
    """Of a host's own processes, which nobody but the agent watches."""
    spec = world.spec("echo it runs; " + ("until [ -e stop ]; do sleep 0.1; done" if goes_on else "exit 4"))
    record = await world.run(spec)
    await world.has_written(record, "it runs")
    await world.restart()
    world.runtime.start(record, spec, (0,))
    if goes_on:
        await world.wait_for(ev.RankStarted, record)
        world.runtime.signal(record.entry.placement, (0,), "KILL")
    (end,) = await world.over(record)
    assert (end.exit_code, world.log(record).count("it runs")) == (137 if goes_on else 4, 1)


async def test_the_exit_code_is_the_commands(world: RuntimeWorld) -> None:
    record = await world.run(world.spec("exit 3"))
    (end,) = await world.over(record)
    assert (end.exit_code, end.cause) == (3, None)


async def test_what_a_rank_really_uses_can_be_read_while_it_runs(world: RuntimeWorld) -> None:
    """Its time grows as it works, and of GPUs that nobody looks at nothing is said."""
    record = await world.run(world.spec("echo runs; while :; do :; done"))
    await world.has_written(record, "runs")

    async def read() -> Reading | None:
        found = await world.runtime.usage([record], {})
        return found.get(record.entry.placement, {}).get(0)

    first = await asyncio.wait_for(_used_some(read), PATIENCE_S)
    assert first.gpus in (None, ())
    assert 0 < first.memory_bytes < 2**30
    world.runtime.signal(record.entry.placement, (0,), "KILL")
    await world.over(record)


async def _used_some(read: Callable[[], Awaitable[Reading | None]]) -> Reading:
    """Once it has used more than when it was first looked at."""
    before: Reading | None = None
    while True:
        now = await read()
        if now is not None and before is not None and now.cpu_s > before.cpu_s:
            return now
        before = before or now
        await asyncio.sleep(0.2)


async def test_an_end_is_not_put_before_its_start(world: RuntimeWorld) -> None:
    record = await world.run(world.spec("true"))
    (end,) = await world.over(record)
    assert end.ended_at >= (await world.wait_for(ev.RankStarted, record)).started_at - 1.5


async def test_the_command_is_taken_word_for_word(world: RuntimeWorld) -> None:
    words = ("printf", "%s|", "a b", "$HOME", "$(HOME)", "$$", "'\"", "*", "é")
    record = await world.run(world.spec(None, command=words))
    await world.over(record)
    assert world.log(record) == "".join(f"{word}|" for word in words[2:])
    record = await world.run(world.spec('printf "%s" "$ODD"', env={"ODD": "$(HOME) $$ 'x"}))
    await world.over(record)
    assert world.log(record) == "$(HOME) $$ 'x"


async def test_the_work_directory_goes_in_and_the_outputs_come_out(
    world: RuntimeWorld, tmp_path: Path
) -> None:
    workdir = world.bulk.keep({"tool.sh": b"#!/bin/sh\necho from the tool", "data/in": b"4711"})
    run = "./tool.sh; mkdir -p out/deep; cp data/in out/deep/copy; echo no > other; echo yes > out/top.txt"
    spec = world.spec(run, workdir=workdir, outputs=("out/**", "*.none"))
    record = await world.run(spec)
    (end,) = await world.over(record)
    assert end.exit_code == 0
    assert world.log(record) == "from the tool\n"
    assert await world.outputs(record, spec, tmp_path) == {"out/deep/copy": b"4711", "out/top.txt": b"yes\n"}


async def test_no_outputs_are_no_archive(world: RuntimeWorld, tmp_path: Path) -> None:
    spec = world.spec("echo done", outputs=("results/**",))
    record = await world.run(spec)
    await world.over(record)
    assert await world.outputs(record, spec, tmp_path) == {}


async def test_a_work_directory_that_is_nowhere_fails_the_staging(world: RuntimeWorld) -> None:
    spec = world.spec("echo no", workdir="f" * 64)
    with pytest.raises(StagingError) as failed:
        await world.prepare(world.record(spec), spec)
    assert failed.value.cause is Cause.STAGING


async def test_the_set_up_runs_before_the_gate_and_the_command_finds_what_it_made(
    world: RuntimeWorld,
) -> None:
    spec = world.spec("cat made", setup="echo setting up; echo ready > made")
    record = world.record(spec)
    prepared = await world.prepare(record, spec)
    assert world.setups == [record.entry.placement]
    await world.has_written(record, "setting up")
    record = await world.start(record, spec, prepared)
    await world.over(record)
    assert world.log(record) == "setting up\nready\n"


async def test_a_set_up_is_shared_only_by_jobs_of_one_environment(world: RuntimeWorld) -> None:
    """But a series' runs, which know their number by theirs, do not each make it anew."""
    for kind, run in (("a", "1"), ("b", "1"), ("b", "2")):
        env = {"KIND": kind, "FEDERATOR_RUN": run}
        spec = world.spec('echo "$(cat made) $FEDERATOR_RUN"', setup='echo "$KIND" > made', env=env)
        record = await world.run(spec)
        await world.over(record)
        assert world.log(record).endswith(f"{kind} {run}\n")


async def test_a_set_up_that_fails_is_told_with_its_code_and_its_output(world: RuntimeWorld) -> None:
    spec = world.spec("echo no", setup="echo what went wrong; exit 9")
    record = world.record(spec)
    with pytest.raises(StagingError) as failed:
        await world.prepare(record, spec)
    assert (failed.value.cause, failed.value.exit_code) == (Cause.SETUP, 9)
    await world.runtime.finish_logs(record)
    assert world.log(record) == "what went wrong\n"


async def test_each_rank_of_a_gang_knows_its_place(world: RuntimeWorld) -> None:
    run = 'echo "$FEDERATOR_NODE_RANK of $FEDERATOR_NUM_NODES world $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT $PET_RDZV_ENDPOINT $FEDERATOR_GANG_SECRET"'
    record = await world.run(world.spec(run, nodes=3))
    ends = await world.over(record)
    assert [end.exit_code for end in ends] == [0, 0, 0]
    places = [world.log(record, rank).split() for rank in range(3)]
    assert [place[:5] for place in places] == [[str(rank), "of", "3", "world", "3"] for rank in range(3)]
    (meeting,) = {(place[6], place[7]) for place in places}
    assert meeting[0] == meeting[1]
    (secret,) = {place[8] for place in places}
    assert len(secret) == 64, "which the ranks of this gang have, and nobody else"


async def test_a_job_that_goes_on_in_another_form_has_its_ranks_and_finds_what_it_saved(
    world: RuntimeWorld,
) -> None:
    """The core hands a runtime the spec of one form; whatever the runtime keeps by job must fit the next."""
    run = """
    echo "$FEDERATOR_NODE_RANK of $FEDERATOR_NUM_NODES world $WORLD_SIZE nnodes $PET_NNODES: $(cat $FEDERATOR_CHECKPOINT_DIR/state 2>/dev/null)"
    if [ $FEDERATOR_NODE_RANK = 0 ]; then echo saved by $FEDERATOR_NUM_NODES > $FEDERATOR_CHECKPOINT_DIR/state; fi
    """
    one = world.spec(run).resources
    spec = world.spec(run, nodes=2, forms=(Form(1, one, 0.6), Form(3, one, 1.4)), elastic=True)
    wide, before = spec.as_form(2), ""
    for epoch, form in enumerate((spec, spec.as_form(1), wide), start=1):
        record = await world.run(
            form, job="job-of-forms", epoch=epoch, form=(0, 1, 2)[epoch - 1], resume=epoch > 1
        )
        assert [end.exit_code for end in await world.over(record)] == [0] * form.nodes
        said = world.log(record).strip()
        assert said.startswith(f"0 of {form.nodes} world {form.nodes} nnodes {form.nodes}:")
        if world.runtime.keeps:
            assert said.endswith(f": {before}".rstrip())
        before = f"saved by {form.nodes}"


async def test_a_signal_reaches_the_command_which_may_end_well(world: RuntimeWorld) -> None:
    run = "trap 'echo saved; exit 5' TERM; echo there; while :; do sleep 0.1; done"
    record = await world.run(world.spec(run))
    await world.has_written(record, "there")
    world.runtime.signal(record.entry.placement, (0,), "TERM")
    (end,) = await world.over(record)
    assert end.exit_code == 5
    assert "saved" in world.log(record)


async def test_a_kill_ends_what_will_not_listen_and_all_that_it_started(world: RuntimeWorld) -> None:
    run = "trap '' TERM; (while :; do sleep 0.1; done) & echo there; while :; do sleep 0.1; done"
    record = await world.run(world.spec(run))
    await world.has_written(record, "there")
    world.runtime.signal(record.entry.placement, (0,), "TERM")
    world.runtime.signal(record.entry.placement, (0,), "KILL")
    (end,) = await world.over(record)
    assert end.exit_code == 137


async def test_one_rank_may_be_signalled_alone(world: RuntimeWorld) -> None:
    if not world.site.alone:
        pytest.skip("it signals all ranks of a placement, or none")
    run = "echo there; until [ -e stop ]; do sleep 0.1; done"
    record = await world.run(world.spec(run, nodes=2))
    await world.has_written(record, "there", rank=1)
    world.runtime.signal(record.entry.placement, (1,), "KILL")
    assert (await world.wait_for(ev.RankEnded, record, 1)).exit_code == 137
    assert world.count(ev.RankEnded, record, 0) == 0
    world.runtime.signal(record.entry.placement, (0,), "KILL")
    await world.wait_for(ev.RankEnded, record, 0)


async def test_work_goes_on_without_the_agent_and_is_found_again(world: RuntimeWorld) -> None:
    run = "for i in 1 2 3 4 5 6 7 8 9 10; do echo line $i; sleep 0.2; done; exit 4"
    record = await world.run(world.spec(run))
    await world.has_written(record, "line 2")
    await world.restart()
    world.runtime.find(record, 0)
    await world.wait_for(ev.RankStarted, record)
    (end,) = await world.over(record)
    assert end.exit_code == 4
    assert world.log(record) == "".join(f"line {i}\n" for i in range(1, 11))


async def test_an_end_while_the_agent_was_away_is_told(world: RuntimeWorld, tmp_path: Path) -> None:
    spec = world.spec("echo all of it; echo kept > kept.txt; exit 6", outputs=("*.txt",))
    record = await world.run(spec)
    await world.restart()
    world.runtime.find(record, 0)
    (end,) = await world.over(record)
    assert end.exit_code == 6
    assert world.log(record) == "all of it\n"
    assert await world.outputs(record, spec, tmp_path) == {"kept.txt": b"kept\n"}


async def test_a_gate_that_was_never_opened_is_known_and_opens_once(world: RuntimeWorld) -> None:
    spec = world.spec("echo once")
    record = world.record(spec)
    record = world.intend(record, await world.prepare(record, spec))
    await world.restart()
    world.runtime.find(record, 0)
    await world.wait_for(ev.RankAbsent, record)
    world.runtime.start(record, spec, (0,))
    (end,) = await world.over(record)
    assert (end.exit_code, world.log(record)) == (0, "once\n")


async def test_a_gang_whose_gates_were_never_opened_starts_once_though_each_rank_is_asked_for_by_itself(
    world: RuntimeWorld,
) -> None:
    spec = world.spec("echo once", nodes=3)
    record = world.record(spec)
    record = world.intend(record, await world.prepare(record, spec))
    await world.restart()
    for rank in range(3):
        world.runtime.find(record, rank)
    for rank in range(3):
        await world.wait_for(ev.RankAbsent, record, rank)
    for rank in range(3):
        world.runtime.start(record, spec, (rank,))
    ends = await world.over(record)
    assert [end.exit_code for end in ends] == [0, 0, 0]
    assert [world.log(record, rank) for rank in range(3)] == ["once\n"] * 3


async def test_data_that_the_site_keeps_to_others_is_refused_before_anything_is_done(
    world: RuntimeWorld, tmp_path: Path
) -> None:
    world.allowed = (Allowed(f"file://{tmp_path}", ("research",)),)
    await world.restart()
    spec = world.spec("true", inputs=(Input(f"file://{tmp_path}/data"),))
    with pytest.raises(StagingRefused, match="moves no data"):
        await world.prepare(world.record(spec, queue="teaching"), spec)
    assert not world.setups


async def test_a_preparation_is_taken_up_again_after_a_restart(world: RuntimeWorld) -> None:
    spec = world.spec("echo once", workdir=world.bulk.keep({"file": b"x"}))
    record = world.record(spec)
    await world.prepare(record, spec)
    await world.restart()
    record = await world.start(record, spec, await world.prepare(record, spec))
    (end,) = await world.over(record)
    assert (end.exit_code, world.log(record)) == (0, "once\n")


async def test_what_is_given_up_never_runs(world: RuntimeWorld) -> None:
    spec = world.spec("echo it ran", setup="echo setting up")
    record = world.record(spec)
    await world.prepare(record, spec)
    await world.runtime.unprepare(record.entry.placement)
    await world.runtime.unprepare(record.entry.placement)
    await world.restart()
    world.runtime.find(record, 0)
    await until(lambda: world.count(ev.RankAbsent, record) or world.count(ev.RankEnded, record), "an answer")
    assert "it ran" not in world.log(record)


async def test_a_discard_may_be_repeated(world: RuntimeWorld) -> None:
    record = await world.run(world.spec("true"))
    await world.over(record)
    await world.runtime.discard(record.entry.placement, None)
    await world.runtime.discard(record.entry.placement, None)


@pytest.fixture
def sets() -> Iterator[Path]:
    """A folder that everybody may read, and not below /tmp: who a job is, and what its /tmp is, are for the runtime to say."""
    INPUTS.mkdir(mode=0o755, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=INPUTS) as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


async def test_inputs_lie_where_the_job_is_told(world: RuntimeWorld, sets: Path) -> None:
    _needs_data(world)
    source = sets / "numbers"
    source.mkdir()
    (source / "one").write_text("1")
    (sets / "word").write_text("word")
    spec = world.spec(
        'cat "$FEDERATOR_INPUTS_DIR/numbers/one" "$FEDERATOR_INPUTS_DIR/word"',
        inputs=tuple(Input(f"file://{path}") for path in (source, sets / "word")),
    )
    record = await world.run(spec)
    (end,) = await world.over(record)
    assert end.exit_code == 0
    assert world.log(record).endswith("1word")


async def test_an_input_that_is_not_there_is_said_before_anything_runs(world: RuntimeWorld) -> None:
    _needs_data(world)
    spec = world.spec("echo ran", inputs=(Input("file:///nowhere/at-all"),))
    record = world.record(spec)
    with pytest.raises(StagingError, match="nowhere/at-all") as error:
        await world.prepare(record, spec)
    assert error.value.cause is Cause.STAGING
    assert "ran" not in world.log(record)


async def test_a_job_finds_what_its_last_attempt_saved_elsewhere(world: RuntimeWorld, tmp_path: Path) -> None:
    _needs_data(world)
    spec = world.spec(
        'echo "resume=$FEDERATOR_RESUME"; cat "$FEDERATOR_CHECKPOINT_DIR/step"; printf 2 > "$FEDERATOR_CHECKPOINT_DIR/step"',
        checkpoint=Checkpoint(uri=f"file://{tmp_path}/kept"),
    )
    elsewhere = Carrier(_folder(tmp_path / "other"), SystemClock())
    saved = _folder(tmp_path / "other" / "job")
    (saved / "step").write_text("1")
    record = world.record(spec, epoch=2)
    before = replace(record, entry=replace(record.entry, epoch=1))
    assert await elsewhere.finish(load_of(before, spec), saved) == ""
    prepared = await world.prepare(record, spec)
    record = await world.start(record, spec, prepared)
    (end,) = await world.over(record)
    assert end.exit_code == 0
    assert world.log(record).endswith("resume=1\n1")
    assert await world.runtime.push_last(record, spec) == ""
    after = replace(record, entry=replace(record.entry, epoch=3))
    folders = Folders(tmp_path / "inputs", tmp_path / "links", saved)
    await elsewhere.bring(load_of(after, spec), folders, lambda _: None)
    assert (saved / "step").read_text() == "2"


async def test_a_secret_that_the_site_does_not_have_is_refused(world: RuntimeWorld) -> None:
    spec = world.spec("true", secrets=("wandb",))
    with pytest.raises(StagingRefused, match="wandb"):
        await world.prepare(world.record(spec), spec)


def _folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


def _needs_data(world: RuntimeWorld) -> None:
    """Every runtime brings data, where the site lets it."""
    if not world.site.carries:
        pytest.skip("somebody else's cluster sees nothing of this machine, and brings no data from it")
