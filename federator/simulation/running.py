"""One simulation from beginning to end: a world, a trace, a scheduler and a seed in; a schedule out.

Jobs are submitted at their times in virtual time, one after another, so that the dispatcher never knows what is still to come. It ends when every
job has ended and nothing is rented any more, or when nothing has happened for `PATIENCE_S` after the last submission: what still waits then will wait
for ever.
"""

import asyncio
import gc
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import NamedTuple

import msgspec

from federator.kernel.errors import Bug, Permanent
from federator.model.capacity import Instance
from federator.simulation.federation import SimulatedFederation
from federator.simulation.overhearing import overheard
from federator.simulation.recorder import Recorder
from federator.simulation.schedule import Schedule
from federator.simulation.schedulers import Scheduler
from federator.simulation.virtual_time import ORIGIN_AT, VirtualLoop, run
from federator.simulation.work import TraceJob
from federator.simulation.world import WorldSpec

PATIENCE_S = 60 * 86_400.0
"""So long after the last submission the simulation ends, whatever still waits."""
WATCH_EVERY_S = 3_600.0
GC_THRESHOLD = (100_000, 50, 50)
"""Python's own looks for cycles, of which there are next to none, a sixth of the time."""


class Moment(NamedTuple):
    """How far a simulation is. `share` is of the trace's time; `waiting` counts jobs that have not ended."""

    now_s: float
    share: float
    submitted: int
    finished: int
    waiting: int


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What one simulation came to."""

    scheduler: str
    seed: int
    schedule: Schedule
    instances: tuple[Instance, ...] = ()
    """What clouds say of their machines: the other side of the leases."""
    faults: tuple[str, ...] = ()
    """Errors that the dispatcher logged: none is expected."""
    reasons: dict[str, str] = {}
    """Of each job that was placed, why it went where it went last."""
    refused: dict[str, str] = {}
    """Jobs that were not accepted, and why: only where that was asked for."""


Watch = Callable[[Moment], None]
Beside = Callable[[SimulatedFederation, Recorder], Coroutine[None, None, None]]
"""What goes on for ever beside a simulation, such as looking at it now and then."""


def simulate(  # noqa: PLR0913 - each is an option of a run
    world: WorldSpec,
    jobs: Sequence[TraceJob],
    scheduler: Scheduler,
    *,
    seed: int = 0,
    watch: Watch | None = None,
    tolerant: bool = False,
    encoded: bool = False,
    beside: Beside | None = None,
) -> Outcome:
    """Run the federation of that world on these jobs. Raises `Invalid` where policies or jobs are not acceptable to the dispatcher, `Bug` where it fails.

    `tolerant`: a job that is refused is written down, and the others go on. `encoded`: messages between dispatcher and agents go as text.
    `beside`: started with the trace, and cancelled at its end.
    """
    gc.set_threshold(*GC_THRESHOLD)
    ordered = sorted(jobs, key=lambda job: (job.submit_s, job.name))
    with overheard(faults := _Faults()):
        refused: dict[str, str] | None = {} if tolerant else None
        federation, schedule, reasons = run(
            lambda loop: _simulate(
                loop,
                lambda: SimulatedFederation(world, scheduler, loop, seed, encoded=encoded),
                ordered,
                watch,
                refused,
                beside,
            )
        )
    instances = [machine for cloud in federation.clouds.values() for machine in cloud.final().values()]
    return Outcome(
        scheduler=scheduler.name,
        seed=seed,
        schedule=schedule,
        instances=tuple(instances),
        faults=tuple(faults.heard),
        reasons=reasons,
        refused=refused or {},
    )


async def _simulate(
    loop: VirtualLoop,
    make: Callable[[], SimulatedFederation],
    jobs: Sequence[TraceJob],
    watch: Watch | None,
    refused: dict[str, str] | None,
    beside: Beside | None,
) -> tuple[SimulatedFederation, Schedule, dict[str, str]]:
    federation = make()
    await federation.begin()
    recorder = Recorder(federation.core.records, ORIGIN_AT)
    watching = [loop.create_task(beside(federation, recorder))] if beside else []
    watching += [loop.create_task(_report(loop, jobs, recorder, watch))] if watch else []
    began_s = loop.time()
    for job in jobs:
        await asyncio.sleep(max(0.0, began_s + job.submit_s - loop.time()))
        try:
            recorder.submitted(await federation.submit(job), job)
        except Permanent as error:
            if refused is None:
                raise
            refused[job.name] = error.describe()
    try:
        async with asyncio.timeout(PATIENCE_S):
            await recorder.until_idle()
    except TimeoutError:
        pass
    for task in watching:
        if not task.cancel():
            task.result()  # it goes on for ever: this raises why it did not
    schedule = recorder.schedule(federation.clock.now())
    await federation.end()
    return federation, schedule, recorder.reasons


async def _report(loop: VirtualLoop, jobs: Sequence[TraceJob], recorder: Recorder, watch: Watch) -> None:
    """Say how far it is, now and then."""
    began_s, last_s = loop.time(), max((job.submit_s for job in jobs), default=0.0)
    while True:
        now_s = loop.time() - began_s
        share = 1.0 if last_s == 0 else min(1.0, now_s / last_s)
        submitted = recorder.finished + recorder.waiting
        watch(Moment(now_s, share, submitted, recorder.finished, recorder.waiting))
        await asyncio.sleep(WATCH_EVERY_S)


class _Faults(logging.Handler):
    """Hears what the dispatcher logs: nothing is written, and errors are kept. After too many of them the run is given up."""

    MOST = 20

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        error = record.exc_info[1] if record.exc_info else None
        self.heard.append(record.getMessage() + (f": {error!r}" if error else ""))
        if len(self.heard) == self.MOST:
            # Not from here: whoever logs goes on. The loop ends with what a callback raises.
            asyncio.get_running_loop().call_soon(self._give_up)

    def _give_up(self) -> None:
        raise Bug(f"the dispatcher fails again and again: {self.heard[0]}")
