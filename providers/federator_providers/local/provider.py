"""The provider's side of local machines: launch, list, bill, end.

It holds no state of its own: every answer is read from the folders, so any number of dispatchers, one after the other or side by
side, see the same machines. All of it is short work on a local disk, done in threads so that the event loop never waits.
"""

import asyncio
import contextlib
import fcntl
import math
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from federator.kernel.clock import Clock
from federator.kernel.errors import Invalid, NoCapacity, NotFound, Unavailable
from federator.model.capacity import Instance, InstanceStatus, LaunchRequest, Market, Offer
from federator_providers.billing import bill_usd
from federator_providers.local.folder import TAG, InstanceFolder, LaunchRecord
from federator_providers.local.market import LaunchFate, next_fate, sold_out
from federator_providers.local.processes import kill_tagged
from federator_providers.local.settings import LocalConfiguration, read_settings
from federator_providers.stocks import as_left, take_one

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
SWITCH_ON_AGAIN_AFTER_S = 5.0
"""Real seconds after which a machine that was never switched on (its launcher died half-way) is switched on by a listing."""


def provider(name: str, settings: dict[str, object], clock: Clock) -> "LocalProvider":
    """The entry point. Raises `Invalid` that names the key in `settings`."""
    return LocalProvider(name, read_settings(name, settings), clock)


class LocalProvider:
    """See `federator.ports.Provider` for what each method promises."""

    def __init__(self, name: str, configuration: LocalConfiguration, clock: Clock) -> None:
        self.name = name
        self._configuration = configuration
        self._clock = clock

    async def offers(self) -> Sequence[Offer]:
        """All kinds of machines, each with how many more there may be."""
        return await asyncio.to_thread(self._offers)

    async def launch(self, request: LaunchRequest) -> Instance:
        """Switch on a machine of that name, unless there is or was one."""
        return await asyncio.to_thread(self._launch, request)

    async def instances(self, federation: str) -> Sequence[Instance]:
        """Machines of that federation, and, on the way, an end to what is left of dead ones."""
        return await asyncio.to_thread(self._instances, federation)

    async def terminate(self, name: str) -> None:
        """Have it switched off; the machine sees to it within a heartbeat."""
        await asyncio.to_thread(self._terminate, name)

    async def close(self) -> None:
        """Nothing is held."""

    def is_idle(self) -> bool:
        """Whether no machine of any federation lives."""
        return not self._live()

    def _offers(self) -> list[Offer]:
        gone = sold_out(self._configuration.state_dir)
        return [
            msgspec.structs.replace(offer, available=0) if offer.name in gone else offer
            for offer in self._left()
        ]

    def _left(self) -> list[Offer]:
        """All kinds of machines, beside those that live."""
        return as_left(self._configuration.offers, self._live())

    def _launch(self, request: LaunchRequest) -> Instance:
        folder = InstanceFolder(self._path(request.name))
        with self._launching():
            if not folder.path.is_dir():
                self._create(request)
        if not folder.started_file.exists() and not folder.terminate_file.exists():
            self._switch_on(folder)
        return self._instance(folder, folder.record())

    def _create(self, request: LaunchRequest) -> None:
        """Write down what is wanted, if it is to be had. The price is ours, not the request's."""
        offer = next((each for each in self._configuration.offers if each.name == request.offer.name), None)
        if offer is None:
            raise NotFound(f"provider {self.name} has no offer {request.offer.name}", field="offer")
        take_one(next(left for left in self._left() if left.name == offer.name))
        fate = self._fate(offer)
        if fate.refused or offer.name in sold_out(self._configuration.state_dir):
            raise NoCapacity(f"{offer.name} is sold out", retry_after_s=60.0)
        record = LaunchRecord(
            name=request.name,
            offer=offer,
            federation=request.federation,
            tags=request.tags,
            launched_at=self._clock.now(),
            boot_real_s=self._clock.real_delay_s(offer.delay_s),
            command=self._configuration.command,
            env=self._configuration.env,
            notice_s=self._configuration.notice_s,
            notice_real_s=self._clock.real_delay_s(self._configuration.notice_s),
            interrupt_after_real_s=None if math.isinf(fate.life_s) else self._clock.real_delay_s(fate.life_s),
        )
        InstanceFolder.create(self._configuration.state_dir, record, request)

    def _fate(self, offer: Offer) -> LaunchFate:
        if offer.market is not Market.SPOT:
            return LaunchFate(refused=False, life_s=math.inf)
        given = self._configuration
        return next_fate(given.state_dir, given.seed, given.interruptions_per_h, given.no_capacity_share)

    def _switch_on(self, folder: InstanceFolder) -> None:
        """Start its machine; returns once it holds the lock. Harmless when somebody else does the same."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith("FEDERATOR_")}
        with folder.console_file.open("ab") as console:
            done = subprocess.run(
                [sys.executable, "-m", "federator_providers.local.machine", str(folder.path)],
                env={**environment, TAG: str(folder.path)},
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
                check=False,
            )
        if done.returncode != 0:
            raise Unavailable(f"the machine {folder.path.name} did not switch on; see {folder.console_file}")

    def _instances(self, federation: str) -> list[Instance]:
        now = self._clock.now()
        found = []
        for folder, record in self._folders():
            if record.federation != federation:
                continue
            instance = self._instance(folder, record)
            if instance.ended_at is not None and now - instance.ended_at > self._configuration.keep_ended_s:
                with self._launching(), contextlib.suppress(FileNotFoundError):
                    folder.delete()
            else:
                found.append(instance)
        return found

    def _terminate(self, name: str) -> None:
        folder = InstanceFolder(self._path(name))
        with contextlib.suppress(FileNotFoundError):
            folder.terminate_file.touch()

    def _instance(self, folder: InstanceFolder, record: LaunchRecord) -> Instance:
        status = self._settle(folder, record)
        ended_at = folder.ended_at()
        # Not until now: were it dead without anybody having seen it, its bill would fall with its end.
        end_at = self._last_beat_at(folder, record) if ended_at is None else ended_at
        return Instance(
            name=record.name,
            offer=record.offer.name,
            status=status,
            launched_at=record.launched_at,
            ended_at=ended_at,
            tags={**record.tags, "federation": record.federation},
            billed_usd=bill_usd(record.offer, record.launched_at, end_at),
            reclaim_at=self._reclaim_at(folder, record),
        )

    def _reclaim_at(self, folder: InstanceFolder, record: LaunchRecord) -> float | None:
        try:
            given_at = self._federation_time(folder.interrupt_file.stat().st_mtime)
        except FileNotFoundError:
            return None
        return given_at + record.notice_s

    def _settle(self, folder: InstanceFolder, record: LaunchRecord) -> InstanceStatus:
        """The status, after finishing what a dead machine left undone."""
        if folder.ended_at() is not None:
            return InstanceStatus.ENDED
        started = (
            folder.started_file.exists()
        )  # asked before the lock: a machine takes the lock, then is started
        if not folder.is_on():
            if started:
                kill_tagged(TAG, str(folder.path))
                folder.end(self._last_beat_at(folder, record))
                return InstanceStatus.ENDED
            if folder.terminate_file.exists():
                folder.end(record.launched_at)
                return InstanceStatus.ENDED
            if time.time() - folder.record_file.stat().st_mtime > SWITCH_ON_AGAIN_AFTER_S:
                self._switch_on(folder)
        if folder.interrupt_file.exists():
            return InstanceStatus.INTERRUPTING
        return InstanceStatus.RUNNING if folder.running_file.exists() else InstanceStatus.BOOTING

    def _last_beat_at(self, folder: InstanceFolder, record: LaunchRecord) -> float:
        """Until when it is known to have been on."""
        return max(record.launched_at, self._federation_time(folder.heartbeat_file.stat().st_mtime))

    def _federation_time(self, real_at: float) -> float:
        """An instant of this host's clock on the federation's; a clock that does not run (in tests) shows now."""
        real_s_per_s = self._clock.real_delay_s(1.0)
        elapsed_s = (time.time() - real_at) / real_s_per_s if real_s_per_s > 0 else 0.0
        return self._clock.now() - elapsed_s

    def _live(self) -> Counter[str]:
        """How many of each offer have not ended."""
        return Counter(
            record.offer.name
            for folder, record in self._folders()
            if self._settle(folder, record) != InstanceStatus.ENDED
        )

    def _folders(self) -> Iterator[tuple[InstanceFolder, LaunchRecord]]:
        if not self._configuration.state_dir.is_dir():
            return
        for path in sorted(self._configuration.state_dir.iterdir()):
            folder = InstanceFolder(path)
            if path.name.startswith("."):
                continue
            try:
                record = folder.record()
            except FileNotFoundError:  # forgotten by somebody else, this moment
                continue
            yield folder, record

    def _path(self, name: str) -> Path:
        if not NAME.fullmatch(name):
            raise Invalid(
                f"{name!r} cannot name an instance",
                field="name",
                remedy="use up to 128 letters, digits, '.', '_', '-'",
            )
        return self._configuration.state_dir / name

    @contextlib.contextmanager
    def _launching(self) -> Iterator[None]:
        """One launch at a time over all processes, so that counting and creating are one step."""
        self._configuration.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self._configuration.state_dir / ".launching").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
