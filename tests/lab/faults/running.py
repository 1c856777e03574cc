"""One seed from beginning to end: everything goes wrong for some hours, then nothing does, and all that was accepted must come to its end."""

import asyncio
import contextlib
import gc
import logging
import random
import shutil
import time
import warnings
from collections.abc import Callable

import msgspec

from federator.simulation.overhearing import overheard
from tests.lab.faults.drawing import SMALL, Size, draw
from tests.lab.faults.injection import calm, inject, processes
from tests.lab.faults.plan import SETTLED_S, Plan
from tests.lab.faults.processes import FaultLoop
from tests.lab.faults.questions import Questions
from tests.lab.faults.truth import Finding
from tests.lab.faults.world import World

STILL_S = 3 * 3600.0
"""The longest job runs for less: where nothing has been written for so long, nothing more will come."""
CALM_S = 96 * 3600.0
"""So long after the faults all must be over. Queues with small limits work their jobs off one by one, and retries take their time."""
LOOK_S = 60.0
ASK_EVERY_S = 1800.0
GC_THRESHOLD = (100_000, 50, 50)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What one seed came to."""

    seed: int
    findings: tuple[Finding, ...]
    last: tuple[str, ...]
    """The last lines of its journal."""
    lines: int
    virtual_s: float
    cpu_s: float
    jobs: int
    faults: int


def play(seed: int, tell: Callable[[str], None] | None = None, size: Size = SMALL) -> Outcome:
    """Play a seed; `tell` hears every line of its journal."""
    return play_plan(draw(seed, size), tell)


def play_plan(plan: Plan, tell: Callable[[str], None] | None = None) -> Outcome:
    """Play a plan."""
    gc.set_threshold(*GC_THRESHOLD)
    random.seed(plan.seed)  # pauses between attempts of the product's are drawn by no other chance
    began_s = time.process_time()
    loop = FaultLoop()
    world = World(plan, loop, tell)
    with overheard(_Errors(world)), warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # who is killed leaves files open
        try:
            loop.run_until_complete(_play(world))
        finally:
            _bury(world)
            loop.close()
    for failure in loop.failures:
        world.truth.find(0, failure)
    return Outcome(
        seed=plan.seed,
        findings=tuple(world.truth.findings),
        last=world.journal.last(),
        lines=world.journal.lines,
        virtual_s=loop.time(),
        cpu_s=time.process_time() - began_s,
        jobs=len(world.truth.accepted),
        faults=len(plan.faults) + len(plan.spells),
    )


async def _play(world: World) -> None:
    plan = world.plan
    await world.begin()
    for spell in plan.spells:
        world.profile.expect(
            msgspec.structs.replace(
                spell, begins_s=spell.begins_s - SETTLED_S, ends_s=spell.ends_s - SETTLED_S
            )
        )
    for fault in plan.faults:
        world.loop.later(fault.at_s - SETTLED_S, inject, world, fault)
    submitting = [
        asyncio.create_task((world.local_users if job.admitted_by else world.users).submit(job))
        for job in plan.jobs
    ]
    submitting += [asyncio.create_task(world.users.submit_series(each)) for each in plan.series]
    submitting.append(asyncio.create_task(world.change_policies()))
    await _pass_until(world, SETTLED_S + plan.faults_s)
    calm(world)
    await _until_all_is_over(world, submitting)


async def _until_all_is_over(world: World, submitting: "list[asyncio.Task[None]]") -> None:
    """Let everything come to its end, asking the while; then judge."""
    questions = Questions(world)
    over_s, asked_s = world.loop.time() + CALM_S, 0.0
    while world.loop.time() < over_s and not world.truth.findings:
        await _pass_until(world, world.loop.time() + LOOK_S)
        await questions.look()
        if world.loop.time() - asked_s >= ASK_EVERY_S:
            asked_s = world.loop.time()
            await world.users.release_all()
            await questions.ask_why()
        still = world.loop.time() - world.watch.moved_s > STILL_S
        if still or (all(task.done() for task in submitting) and not world.watch.unfinished()):
            break
    if not world.truth.findings:
        await questions.replay()
        questions.read_the_books()
        world.watch.judge_end()


async def _pass_until(world: World, until_s: float) -> None:
    """Let time pass, unless a promise is broken."""
    while world.loop.time() < until_s and not world.truth.findings:
        await asyncio.sleep(min(LOOK_S, until_s - world.loop.time()))


def _bury(world: World) -> None:
    """End what is left, without a word of it."""
    for process in (*world.graves, *processes(world)):
        process.alive = False
        process.bury()
    if world.scene.has_data:
        shutil.rmtree(world.scene.folder)
    for task in asyncio.all_tasks(world.loop):
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - asyncio has no other way
        with contextlib.suppress(BaseException):
            task.get_coro().close()
    if world.scene.has_data:
        gc.collect()


class _Errors(logging.Handler):
    """Hears what the product logs. Errors of the kinds that faults cause are its business; anything else is a finding."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        """An unexpected exception is a bug, whatever follows from it."""
        error = record.exc_info[1] if record.exc_info else None
        self._world.journal.note("log", record.getMessage()[:160] + (f": {error!r}" if error else ""))
        if error is not None:
            self._world.truth.find(0, f"the product has failed: {record.getMessage()}: {error!r}")
