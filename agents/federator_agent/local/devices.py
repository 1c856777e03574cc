"""Which GPUs of this host are fit for new work: what the driver holds against each, and whether somebody else sits on it.

Only pools that are this host are watched, and only when the driver shows GPUs of their model: what a site file declares for trying things
out is taken at its word, as is all of a site that does not want to be watched. A driver that is there and does not answer makes all of them ail: work that is sent to such a host fails.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from federator.model.sites import AilingGpu, GpuUse
from federator.wire.link import MAX_GPUS
from federator_agent.core.events import DevicesSeen
from federator_agent.core.lent_capacity import HostPool, Site, is_of
from federator_agent.gpu_topology import Groups
from federator_agent.gpus import Driver, DriverTrouble, Gpu, Library, NoDriver, Process, Reading
from federator_agent.local import traces
from federator_agent.local.gpu_tests import GpuTests
from federator_agent.local.instances import with_instances
from federator_agent.mig import place_of
from federator_agent.nvml import Nvml

FIRST_ANSWER_WITHIN_S = 20.0
"""Real seconds: it may have to wake up its GPUs."""
ANSWERS_WITHIN_S = 10.0
EVERY_S = 3.0
"""Real seconds between looks."""
NO_DRIVER_EVERY_S = 60.0
"""Where there is none: one may be loaded late."""
ROUND_MIB = 128
FOREIGN_SHARE = 0.5
"""Of a GPU's memory: with more of it in others' hands there is no room for work that counts on a whole GPU."""
log = logging.getLogger("federator_agent.local")


class Devices:
    """The GPUs of this host. `site` is the one given, with the numbers that the driver knows its GPUs by; `ailing` is what was seen last."""

    def __init__(
        self,
        site: Site,
        state_dir: Path,
        *,
        watch: bool = True,
        tests: GpuTests | None = None,
        library: Library | None = None,
    ) -> None:
        """Look once, so that nothing is seated on an ailing GPU in the first seconds. Blocks for as long as a hung driver is given."""
        self._own = f"{state_dir}/"
        self._driver = Driver(library or Nvml())
        self._tests = tests
        self._here = tuple(pool for pool in site.pools if pool.is_here) if watch else ()
        self._watched: tuple[HostPool, ...] | None = None
        """Those of them whose GPUs the driver knows; None: it has not said yet."""
        self._cuts: dict[int, tuple[Gpu, ...]] = {}
        """The instances of each GPU that is in MIG mode, as it was when it last answered."""
        self._crowded: frozenset[int] | None = None
        """On which GPUs somebody else was found the last time."""
        self._interval_s = EVERY_S
        self._near: tuple[Groups, ...] = ()
        self._uncut = site.pools
        """All pools, as if no GPU were cut."""
        self.site = site
        self.ailing: tuple[AilingGpu, ...] = ()
        self.gpus: Mapping[int, Gpu] = {}
        """As the driver has described them last, by number; none while it says nothing."""
        if self._here:
            try:
                found = self._driver.read(FIRST_ANSWER_WITHIN_S)
            except (NoDriver, DriverTrouble) as error:
                self.ailing = self._judge(error)
            else:
                self._near = found.near
                pools = tuple(
                    replace(pool, near=found.near) if pool.is_here else pool
                    for pool in assigned(site.pools, found.gpus)
                )
                self._uncut, self._here = pools, tuple(pool for pool in pools if pool.is_here)
                self.ailing = self._judge(found)
            _note(self.ailing)

    async def watch(self, tell: Callable[[DevicesSeen], None]) -> None:
        """Look again and again, and tell what has changed."""
        while self._here:
            await asyncio.sleep(self._interval_s)
            pools = self.site.pools
            try:
                ailing = self._judge(await self._driver.look(ANSWERS_WITHIN_S))
            except (NoDriver, DriverTrouble) as error:
                ailing = self._judge(error)
            cut_anew = None if self.site.pools == pools else self.site.pools
            if ailing != self.ailing or cut_anew is not None:
                _note(each for each in ailing if each not in self.ailing)
                self.ailing = ailing
                tell(DevicesSeen(ailing, cut_anew))

    def watched(self) -> dict[int, Gpu]:
        """Those of `gpus` that are in pools."""
        numbers = (number for pool in self._pools for number in pool.numbers)
        return {number: self.gpus[number] for number in numbers if number in self.gpus}

    def use(self, held: Mapping[int, Sequence[str]]) -> tuple[GpuUse, ...]:
        """How busy each watched GPU is, as the driver has said last; `held`: the placements that hold each. Rounded, so that small changes are none."""
        found = (
            (pool, number, self.gpus[number])
            for pool in self._pools
            for number in pool.numbers
            if number in self.gpus
        )
        return tuple(
            GpuUse(
                pool=pool.name,
                host=pool.host_of(number),
                gpu=number,
                busy_percent=None if gpu.utilisation_percent is None else min(100, 5 * round(gpu.utilisation_percent / 5)),
                memory_mib=ROUND_MIB * round(gpu.used_mib / ROUND_MIB),
                power_w=None if gpu.power_w is None else 10 * round(gpu.power_w / 10),
                slowed_by=gpu.slowed_by,
                near=self._group(number),
                placements=tuple(sorted(held.get(number, ()))),
            )
            for pool, number, gpu in found
        )[:MAX_GPUS]  # fmt: skip

    @property
    def _pools(self) -> tuple[HostPool, ...]:
        """Those that are watched, as their GPUs are cut now."""
        return with_instances(self._watched or (), self._watched or (), self._cuts)

    def _group(self, number: int) -> str:
        """The groups of GPUs that it is in, in words; of an instance its GPU."""
        whole, instance = place_of(number)
        if instance is not None:
            return f"GPU {whole}"
        named = zip(("NVLink", "NUMA"), self._near, strict=False)
        return ", ".join(
            f"{name} {at}" for name, groups in named for at, group in enumerate(groups) if number in group
        )

    def _judge(self, found: Reading | NoDriver | DriverTrouble) -> tuple[AilingGpu, ...]:
        self._interval_s = NO_DRIVER_EVERY_S if isinstance(found, NoDriver) else EVERY_S
        whole = found.gpus if isinstance(found, Reading) else ()
        self.gpus = {each.index: each for gpu in whole for each in (gpu, *(gpu.instances or ()))}
        if isinstance(found, NoDriver):
            return ()
        if isinstance(found, DriverTrouble):
            self._crowded = None
            watched = self._here if self._watched is None else self._pools
            return tuple(_ailing(pool, gpu, str(found)) for pool in watched for gpu in pool.numbers)
        if self._watched is None:
            self._watched = tuple(pool for pool in self._here if _known(pool, found.gpus))
            for pool in self._here:
                if pool not in self._watched:
                    log.warning(
                        "pool %s: the driver shows no %s, so its GPUs are not watched", pool.name, pool.model
                    )
        for gpu in found.gpus:
            if gpu.instances:
                self._cuts[gpu.index] = gpu.instances
            elif gpu.name:
                self._cuts.pop(gpu.index, None)
        self.site = replace(self.site, pools=with_instances(self._uncut, self._watched, self._cuts))
        crowds = {number: why for number, gpu in self.gpus.items() if (why := self._crowd(gpu))}
        # Twice in a row: the memory of a process that has just ended is not free at once.
        twice = crowds.keys() & (crowds.keys() if self._crowded is None else self._crowded)
        self._crowded = frozenset(crowds)
        whys = [
            (pool, number, self._trouble(pool, number) or (crowds[number] if number in twice else ""))
            for pool in self._pools
            for number in pool.numbers
        ]
        return tuple(_ailing(pool, number, why) for pool, number, why in whys if why)

    def _trouble(self, pool: HostPool, number: int) -> str:
        gpu = self.gpus.get(number) or self.gpus.get(place_of(number)[0])
        if gpu is None:
            return "the driver does not show it"
        if gpu.name and not is_of(pool.model, gpu.model):
            return f"the driver shows {gpu.model} instead; if that is correct, restart the agent"
        return gpu.trouble if self._tests is None else self._tests.trouble(gpu)

    def _crowd(self, gpu: Gpu) -> str:
        """Who else holds most of its memory. Processes that cannot be seen from here, as from within a container, are nobody's."""
        seen = [each for each in gpu.processes if Path(f"/proc/{each.pid}").exists()]
        others = [each for each in seen if not traces.mark_of(each.pid).startswith(self._own)]
        if not others:
            return ""
        told = sum(each.memory_mib or 0 for each in others)
        if all(each.memory_mib is None for each in others) and len(others) == len(seen):
            told = gpu.used_mib
        if told <= gpu.memory_mib * FOREIGN_SHARE:
            return ""
        return f"most of its memory is held by {_name(max(others, key=lambda each: each.memory_mib or 0))}, which is not the federation's"


def assigned(pools: Iterable[HostPool], gpus: Sequence[Gpu]) -> tuple[HostPool, ...]:
    """The pools with the numbers of their GPUs on this host. A GPU that does not tell its model is where one is missing; beyond that numbers are made up."""
    free = {gpu.index: gpu for gpu in gpus}
    made_up = max(free, default=-1) + 1
    after = []
    for pool in pools:
        if pool.is_here and _known(pool, gpus):
            mine = [number for number, gpu in free.items() if gpu.name and is_of(pool.model, gpu.model)]
            mine += [number for number, gpu in free.items() if not gpu.name]
            mine = mine[: pool.on_machine]
            missing = pool.on_machine - len(mine)
            mine += range(made_up, made_up + missing)
            made_up += missing
            pool = replace(pool, devices=tuple(sorted(mine)))  # noqa: PLW2901 - the same pool, told more
            free = {number: gpu for number, gpu in free.items() if number not in mine}
        after.append(pool)
    return tuple(after)


def _known(pool: HostPool, gpus: Iterable[Gpu]) -> bool:
    """Whether the driver shows GPUs of the pool's model. One that shows none at all has lost them."""
    shown = [gpu for gpu in gpus if gpu.name]
    return not shown or any(is_of(pool.model, gpu.model) for gpu in shown)


def _ailing(pool: HostPool, number: int, why: str) -> AilingGpu:
    return AilingGpu(pool.name, pool.host_of(number), number, why)


def _name(process: Process) -> str:
    try:
        return f"pid {process.pid} ({Path(f'/proc/{process.pid}/comm').read_text().strip()})"
    except OSError:
        return f"pid {process.pid}"


def _note(ailing: Iterable[AilingGpu]) -> None:
    for each in ailing:
        log.warning("GPU %d of pool %s takes no new work: %s", each.gpu, each.pool, each.why)
