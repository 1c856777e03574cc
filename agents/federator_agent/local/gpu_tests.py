"""A faulty GPU comes back when a test of the site's own has passed on it: `gpu_test` of a site file.

The test runs as a job would: as a user of its own and confined as jobs are, with that GPU and no other, and is ended when it takes too long. What it
finds gone is that one fault, as the driver tells it: another one, or the same once more, takes the GPU away again. Between two tests of a GPU there is more and
more time, however they end, so that one that fails now and then is with jobs less and less. One test runs at a time.

Why not at the agent's restart alone: that is where a person has looked, and nobody may look for days.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from federator.kernel.clock import Clock
from federator.kernel.quantities import format_duration
from federator.wire import fields
from federator_agent import job_folders
from federator_agent.gpus import CUDA_VISIBLE_DEVICES, Gpu
from federator_agent.local import cgroups, traces
from federator_agent.local.confinement import Confinement, Place
from federator_agent.local.ranks import LocalRanks

MAX_AGAIN_S = 86_400.0
"""However often it was tested, it is tested once a day."""
MAX_WITHIN_S = 6 * 3600.0
SAID = 200
"""Characters of its last line of output that are told."""
LOOK_S = 1.0
log = logging.getLogger("federator_agent.local")


class GpuTest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What shows that a faulty GPU is good for work again."""

    command: fields.Text
    """Run by `/bin/sh` with that GPU alone in `CUDA_VISIBLE_DEVICES`, or in the variable of `gpu_probe`, such as `dcgmi diag -r 2` or a small training. Exit code 0: it is good."""
    within: Annotated[float, fields.duration("10m", low_s=0.1, high_s=MAX_WITHIN_S)] = 600.0
    """When it takes longer it is ended, and has failed."""
    again: Annotated[float, fields.duration("10m", low_s=0.1, high_s=MAX_AGAIN_S)] = 600.0
    """Between the first test of a GPU and its second there is at least this time, then twice that, up to a day."""


class _Case(NamedTuple):
    """What has come of the tests of one GPU."""

    tests: int = 0
    failed: int = 0
    """So many of them in a row."""
    said: str = ""
    due_s: float = 0.0
    cleared: str = ""
    """The fault that the last one has found gone."""


class GpuTests:
    """The tests of this host's GPUs. Times are real seconds of the event loop."""

    def __init__(
        self,
        test: GpuTest,
        directory: Path,
        environment: Mapping[str, str],
        confinement: Confinement,
        clock: Clock,
        visible: str = CUDA_VISIBLE_DEVICES,
    ) -> None:
        self._test = test
        self._visible = visible
        self._directory = directory / "gpu-tests"
        self._environment = dict(environment)
        self._confinement = confinement
        self._ranks = LocalRanks(clock)
        self._cases: dict[int, _Case] = {}
        self._testing: int | None = None

    def trouble(self, gpu: Gpu) -> str:
        """Why no new work should go to a GPU, with what its tests say; empty: it is well, or was found to be."""
        if not gpu.fault:
            return gpu.trouble
        case = self._cases.get(gpu.index, _Case())
        if case.cleared == gpu.fault:
            return ""
        if self._testing == gpu.index:
            return f"{gpu.trouble}; it is being tested"
        if not case.failed:
            return f"{gpu.trouble}; it is to be tested"
        times = "its test has failed" if case.failed == 1 else f"its tests have failed {case.failed} times"
        again = format_duration(self._pause_s(case.tests))
        return f"{gpu.trouble}; {times} ({case.said}), and another comes {again} after that"

    async def run(self, gpus: Callable[[], Mapping[int, Gpu]], held: Callable[[], Collection[int]]) -> None:
        """Test what is to be tested, for ever. `gpus`: as the driver has described them last; `held`: those that work of ours still has."""
        await asyncio.to_thread(self._clear)
        try:
            while True:
                now_s, taken = asyncio.get_running_loop().time(), held()
                due = [
                    gpu
                    for number, gpu in sorted(gpus().items())
                    if gpu.fault and number not in taken and self._is_due(gpu, now_s)
                ]
                if due:
                    await self._judge(due[0])
                else:
                    await asyncio.sleep(min(LOOK_S, self._test.again))
        finally:
            self._ranks.close()

    def _is_due(self, gpu: Gpu, now_s: float) -> bool:
        case = self._cases.get(gpu.index, _Case())
        return case.cleared != gpu.fault and case.due_s <= now_s

    def _pause_s(self, tests: int) -> float:
        return min(MAX_AGAIN_S, self._test.again * 2.0 ** min(tests - 1, 64))

    async def _judge(self, gpu: Gpu) -> None:
        """Test it once. What it had when that began is what is found gone."""
        self._testing = gpu.index
        try:
            why = await self._failure(gpu)
        finally:
            self._testing = None
        case = self._cases.get(gpu.index, _Case())
        tests = case.tests + 1
        due_s = asyncio.get_running_loop().time() + self._pause_s(tests)
        if why:
            log.warning("GPU %d: its test has failed: %s", gpu.index, why)
            self._cases[gpu.index] = _Case(tests, case.failed + 1, why, due_s)
        else:
            log.warning("GPU %d takes work again: its test has passed (%s)", gpu.index, gpu.trouble)
            self._cases[gpu.index] = _Case(tests, due_s=due_s, cleared=gpu.fault)

    async def _failure(self, gpu: Gpu) -> str:
        """Run the test; why it has failed, or nothing. Whatever it has started is ended."""
        number = gpu.index
        directory = self._directory / str(number)
        over: asyncio.Future[tuple[int | None, str]] = asyncio.get_running_loop().create_future()
        try:
            place = await asyncio.to_thread(self._made, directory, number)
            self._start(place, gpu, over)
            async with asyncio.timeout(self._test.within):
                code, detail = await asyncio.shield(over)
        except TimeoutError:
            return f"it did not end within {format_duration(self._test.within)}"
        except OSError as error:
            return f"it cannot be started: {error}"
        finally:
            await self._ranks.end_all(directory)
            said = await asyncio.to_thread(self._over, directory)
        if code == 0:
            return ""
        return detail or (f"exit code {code}: {said}" if said else f"exit code {code}")

    def _made(self, directory: Path, number: int) -> Place:
        job_folders.remove(directory)
        (directory / "work").mkdir(parents=True)
        place = Place(directory, directory / "work", gpus=(number,))
        self._confinement.own(place, fresh=True)
        return place

    def _start(self, place: Place, gpu: Gpu, over: "asyncio.Future[tuple[int | None, str]]") -> None:
        number = gpu.index
        seen = 0 if self._confinement.hides_gpus((number,)) else number
        environment = self._environment | {
            self._visible: gpu.uuid if gpu.mig else str(seen),
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        }
        launch = self._confinement.launch(
            place, ["/bin/sh", "-c", self._test.command], environment, self._environment
        )
        launch = self._confinement.limited(launch, place.own, 0, 0, f"gpu-test-{number}")
        self._ranks.start(
            place.own,
            place.work,
            launch,
            lambda _, code, detail: None if over.done() else over.set_result((code, detail)),
        )

    def _over(self, directory: Path) -> str:
        """Its last line; its files go."""
        said = _last_line(directory / "log")
        self._confinement.release(directory / "work")
        job_folders.remove(directory)
        return said

    def _clear(self) -> None:
        """What an earlier process of the agent was in the middle of."""
        self._directory.mkdir(exist_ok=True)
        for directory in self._directory.iterdir():
            traces.kill_all(directory, spare=None)
            cgroups.clear(cgroups.of(directory))
            job_folders.remove(directory)


def _last_line(log_file: Path) -> str:
    try:
        with log_file.open("rb") as file:
            file.seek(max(0, log_file.stat().st_size - 4096))
            lines = file.read().decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return "".join(each for each in lines[-1] if each.isprintable())[:SAID] if lines else ""
