"""Moves a pod's data from its side container: `python3 -m federator_agent.kube.data_mover ORDER [INPUT…]`, which `side.sh` starts again should it die.

It is the agent's own carrier, beside the job instead of at the agent, so that no byte of it goes through the API server. It talks to nobody: the order comes
with the pod, and what it has done are files in the gate's folder, which say to its next life how far it came. So it goes on while the agent is away.
"""

import asyncio
import contextlib
import logging
import os
import sys
import time
from pathlib import Path

import msgspec

from federator.kernel.clock import SystemClock
from federator.kernel.files import write_durably
from federator_agent import job_folders
from federator_agent.data.carrier import Carrier, Folders, Load
from federator_agent.link_limits import Bulk, LinkLimits
from federator_agent.link_use import LinkUse
from federator_agent.staging_errors import StagingError

FOLDER = "/federator"
CACHE = f"{FOLDER}/cache"
GATE = f"{FOLDER}/gate"
"""What the side container and the agent write there, the job's container may only read."""
LOOK_S = 0.25
ALIVE_S = 60.0
STALE_S = 3600.0
"""Links that nobody has touched for so long are of a pod that was torn away: what they lead to is in use no more."""


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What to move for one pod. `pod`: its name. The inputs of `load` are given beside the order: they can be many."""

    pod: str
    load: Load
    checkpoints: str
    """The directory where its job saves itself, as this container sees it."""
    memory: str
    """What is known of that directory: it lasts as long."""
    follows: bool = False
    """That directory is the job's in all its pods, and another of them moves it: this one only waits until it is there."""
    leads: bool = False
    """The same, and this is the one that moves it: it is over when the agent says so, since the others write there too."""
    limit_bytes: int | None = None
    """Of all inputs in the cache; None: a share of the disk."""
    bulk_limits: Bulk = Bulk()
    """What the site allows of its link. Each pod keeps to it by itself."""
    gate: str = GATE
    job: str = f"{FOLDER}/job"
    """Where the job's container writes what it has to say."""
    cache: str = CACHE


def inputs_of(pod: str, cache: str = CACHE) -> str:
    """Where a pod's job looks for its inputs."""
    return f"{cache}/placements/{pod}/inputs"


class DataMover:
    """One order, over as many lives as it takes."""

    def __init__(self, order: Order) -> None:
        self._order, self._gate = order, Path(order.gate)
        self._own = Path(inputs_of(order.pod, order.cache)).parent
        self._own.mkdir(parents=True, exist_ok=True)
        memory = Path(order.memory)
        memory.mkdir(parents=True, exist_ok=True)
        self._folders = Folders(Path(order.cache) / "inputs", self._own / "inputs", Path(order.checkpoints))
        clock = SystemClock()
        link = LinkUse(clock, LinkLimits(bulk=order.bulk_limits))
        self._carrier = Carrier(memory, clock, order.limit_bytes, link=link)

    async def run(self) -> None:
        """From before the job starts until it is over and what it has saved is away."""
        alive = asyncio.create_task(self._stay_alive())
        try:
            if not self._has("brought") and not await self._bring():
                return
            await self._while_it_runs()
        finally:
            alive.cancel()
        job_folders.remove(self._own)

    async def _stay_alive(self) -> None:
        while True:
            os.utime(self._own)
            await asyncio.sleep(ALIVE_S)

    async def _bring(self) -> bool:
        load, folder = self._order.load, self._folders.checkpoints
        await asyncio.to_thread(_tidy, self._own.parent)
        try:
            if self._order.follows:
                await self._carrier.bring(msgspec.structs.replace(load, uri=""), self._folders, self._note)
                while not self._carrier.has_brought(load):  # noqa: ASYNC110 - another pod does
                    await asyncio.sleep(LOOK_S)
            else:
                await self._carrier.bring(load, self._folders, self._note)
                await asyncio.to_thread(_open_to_all, folder)
        except StagingError as error:
            self._say("unbrought", f"{error.status}\n{error.message}")
            return False
        if self._carrier.resumes(load, folder):
            self._say("resumes", "")
        self._say("brought", "")
        return True

    async def _while_it_runs(self) -> None:
        load, folder = self._order.load, self._folders.checkpoints
        saves = not self._order.follows
        saving = asyncio.create_task(self._carrier.save(load, folder)) if saves else None
        while not self._over():  # noqa: ASYNC110 - it is other processes that end
            await asyncio.sleep(LOOK_S)
        if saving is not None:
            saving.cancel()
            await asyncio.wait([saving])
        # Behind a shut gate nothing has been saved.
        said = await self._carrier.finish(load, folder) if saves and self._has("go") else ""
        self._say("saved", said)

    def _over(self) -> bool:
        """Whether nothing of the job runs, nor ever will."""
        if self._order.leads and self._has("go") and not self._has("over"):
            return False
        with contextlib.suppress(FileNotFoundError, ValueError):
            try:
                os.kill(int((Path(self._order.job) / "pid").read_text()), 0)
            except ProcessLookupError:
                return True
            except PermissionError:
                return False
        return False

    def _has(self, mark: str) -> bool:
        return (self._gate / mark).exists()

    def _say(self, mark: str, text: str) -> None:
        write_durably(self._gate / mark, text.encode())

    def _note(self, text: str) -> None:
        """The job's container shows it in its log."""
        with (self._gate / "notes").open("ab", buffering=0) as file:
            file.write(text.encode())


def _tidy(placements: Path) -> None:
    """Links of pods that were torn away."""
    for left in placements.iterdir():
        with contextlib.suppress(FileNotFoundError):
            if time.time() - left.stat().st_mtime > STALE_S:
                job_folders.remove(left)


def _open_to_all(folder: Path) -> None:
    """The job may be another user than this is."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)
    for level in job_folders.walk(folder):
        for path in (folder / level.path / name for name in level.folders):
            path.chmod(0o777)
        for path in (folder / level.path / name for name in level.files):
            if not path.is_symlink():  # a job may have made it, to anywhere
                path.chmod(path.stat().st_mode | 0o666)


def main(words: list[str]) -> None:
    """Carry out the order."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    order = msgspec.json.decode(words[0], type=Order)
    load = msgspec.structs.replace(order.load, inputs=tuple(words[1:]))
    asyncio.run(DataMover(msgspec.structs.replace(order, load=load)).run())


if __name__ == "__main__":
    main(sys.argv[1:])
