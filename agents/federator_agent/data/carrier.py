"""Brings what a placement reads before it runs, and takes what it saves to where its next one finds it, wherever that will be."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from federator.kernel.clock import Clock
from federator.kernel.errors import FederatorError, Permanent, Transient
from federator.model.jobs import JobSpec
from federator.model.placements import Cause
from federator.model.whose import Whose
from federator.wire.inputs import names_of
from federator_agent.core.state import PlacementRecord
from federator_agent.data.allowed import Allowed, DataRules, addresses_of
from federator_agent.data.checkpoints import Checkpoints, JobCheckpoints
from federator_agent.data.inputs import Inputs, NoRoom, fault_of
from federator_agent.data.outputs import JobOutputs, OutputBulk
from federator_agent.data.patience import patiently
from federator_agent.data.sources import ANY_PUBLIC, Sources, WebRules
from federator_agent.link_limits import Bulk as BulkLimits
from federator_agent.link_use import LinkUse
from federator_agent.staging_errors import StagingError, StagingRefused

EVERY_S = 300.0
"""Clock seconds between two looks at a job's checkpoints, where it does not say how often it saves."""
LAST_PATIENCE_S = 600.0
"""Real seconds for which the end of a placement waits for its last checkpoint to arrive."""
log = logging.getLogger("federator_agent.data")


class Load(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is moved for one placement, or for one of its pods. `part`: what tells its checkpoints from those of the job's other ranks."""

    job: str
    epoch: int
    part: int = 0
    inputs: tuple[str, ...] = ()
    uri: str = ""
    """Where its checkpoints go; empty: they stay."""
    every_s: float = EVERY_S
    """Clock seconds between two looks at them."""
    web: WebRules = ANY_PUBLIC
    """By which inputs are fetched from web servers."""


def load_of(record: PlacementRecord, spec: JobSpec) -> Load:
    """That of a placement whose ranks have their directories together. The first of them here names its part."""
    kept = spec.checkpoint
    return Load(
        job=record.entry.job,
        epoch=record.entry.epoch,
        part=min((slot.rank for slot in record.slots), default=0),
        inputs=tuple(each.uri for each in spec.inputs or ()),
        uri=kept.uri or "" if kept is not None else "",
        every_s=kept.every_s or EVERY_S if kept is not None else EVERY_S,
    )


def writing_to(log_file: Path) -> Callable[[str], None]:
    """Notes for who reads a rank's log."""

    def note(text: str) -> None:
        log_file.parent.mkdir(parents=True, exist_ok=True)
        with log_file.open("ab") as file:
            file.write(text.encode())

    return note


class Folders(NamedTuple):
    """Where a runtime has data for its jobs, on disks that it shares with them."""

    cache: Path
    """Inputs, of all jobs."""
    inputs: Path
    """What this placement looks at: a link for each input, by its name."""
    checkpoints: Path
    """Where this job saves itself."""


class Carrier:
    """Moves the data of one agent's jobs."""

    def __init__(  # noqa: PLR0913 - what the site allows, and where it comes from
        self,
        state_dir: Path,
        clock: Clock,
        limit_bytes: int | None = None,
        allowed: Sequence[Allowed] | None = None,
        networks: tuple[str, ...] = (),
        *,
        apart: bool = False,
        bulk: OutputBulk | None = None,
        link: LinkUse | None = None,
    ) -> None:
        """`apart`: jobs have other rights than the agent has. `bulk`: from where outputs of other jobs come; None: it brings none. `link`: what all else from outside goes over."""
        self._rules = DataRules(allowed, (state_dir,), apart)
        self._sources, self._networks = Sources(self._rules.check_folder, link), networks
        self.bulk_limits = link.limits.bulk if link is not None else BulkLimits()
        self._clock, self.limit_bytes = clock, limit_bytes
        self._inputs: dict[Path, Inputs] = {}
        self._outputs: JobOutputs | None = None
        if bulk is not None:
            self._outputs = JobOutputs(state_dir / "outputs-read", bulk, self._sources, limit_bytes)
        (state_dir / "saved").mkdir(exist_ok=True)
        self._checkpoints = Checkpoints(state_dir / "saved", self._sources)

    # Before it runs ------------------------------------------------------------------------------------------------

    def check(self, spec: JobSpec, whose: Whose) -> None:
        """Whether this site moves a job's data. Raises `StagingRefused`."""
        self._rules.check(spec, whose)

    def load_of(self, record: PlacementRecord, spec: JobSpec) -> Load:
        """What is moved for a placement, by the rules of this site for such work."""
        rules = WebRules(self._networks, addresses_of(self._rules.allowed, record.entry.whose))
        return msgspec.structs.replace(load_of(record, spec), web=rules)

    async def bring(self, load: Load, folders: Folders, note: Callable[[str], None]) -> None:
        """Inputs, and the latest checkpoint. Raises `StagingError`: refused where another site may do better."""
        with _told():
            await self._bring_inputs(load, folders, note)
            await self._bring_checkpoint(load, folders, note)

    async def bring_all(
        self, record: PlacementRecord, spec: JobSpec, folders: Folders, note: Callable[[str], None]
    ) -> None:
        """The same for a placement as a whole, with what it reads of the outputs of other jobs. Raises `StagingError`."""
        await self.bring(self.load_of(record, spec), folders, note)
        await self.bring_outputs(record, spec, folders.inputs, note)

    async def bring_outputs(
        self, record: PlacementRecord, spec: JobSpec, into: Path, note: Callable[[str], None]
    ) -> None:
        """What it reads of the outputs of other jobs, below `into`; nothing where it reads none. Raises `StagingError`."""
        if spec.inputs_from:
            assert self._outputs is not None, "the site has said that it brings them"
            with _told():
                await self._outputs.bring(record.entry.placement, spec.inputs_from, into, note)

    async def keep_outputs(self, archive: Path, digest: str) -> None:
        """Have what was made here for whoever reads it at this site, as long as there is room. Nobody misses it else."""
        if self._outputs is not None:
            try:
                await self._outputs.keep(archive, digest)
            except (FederatorError, OSError) as error:
                log.info("%s is not kept here: %s", archive, error)

    async def _bring_checkpoint(self, load: Load, folders: Folders, note: Callable[[str], None]) -> None:
        """Raises `StagingRefused` for whatever goes wrong: nothing is lost by it, and another site may have it, or the right to it."""
        kept = self._kept(load)
        if kept is None:
            return
        try:
            await self._checkpoints.bring(kept, load.job, load.epoch, folders.checkpoints, note)
        except FederatorError as error:
            raise StagingRefused(f"its checkpoint cannot be brought: {error.describe()}") from None

    async def _bring_inputs(self, load: Load, folders: Folders, note: Callable[[str], None]) -> None:
        if not load.inputs:
            return
        folders.cache.mkdir(parents=True, exist_ok=True)
        folders.inputs.mkdir(parents=True, exist_ok=True)
        kept = self._inputs.setdefault(folders.cache, Inputs(folders.cache, self._sources, self.limit_bytes))
        in_use = _entries_in_use(folders)
        for uri, name in zip(load.inputs, names_of(load.inputs), strict=True):
            link = folders.inputs / name
            await kept.bring(uri, in_use, note, partial(_link, link), load.web)

    def resumes(self, load: Load, folder: Path) -> bool:
        """Whether there is something that it may go on from, of those that keep their checkpoints elsewhere."""
        return bool(load.uri and next(folder.glob("*"), None))

    def has_brought(self, load: Load) -> bool:
        """Whether a job's latest checkpoint is there for this attempt, whoever has brought it."""
        return self._checkpoints.came(load.job, load.epoch)

    # While it runs, and afterwards ---------------------------------------------------------------------------------

    async def save(self, load: Load, folder: Path) -> None:
        """For as long as it runs: push what it saves, every time that it stands still."""
        kept = self._kept(load)
        if kept is None:
            return
        every_s = self._clock.real_delay_s(load.every_s)
        while True:
            await asyncio.sleep(every_s)
            try:
                await self._checkpoints.until_it_may_move(kept, load.job, folder, log.info)
                await self._push(kept, load, folder, last=False)
            except (FederatorError, OSError) as error:
                log.warning("a checkpoint of %s is not pushed: %s", load.job, error)

    async def finish(self, load: Load, folder: Path) -> str:
        """When nothing of it runs: push what it has saved last; what to tell of it, if anything."""
        kept = self._kept(load)
        if kept is None:
            return ""
        try:
            await self._checkpoints.until_it_may_move(kept, load.job, folder, log.info)
            await patiently(
                lambda: self._push(kept, load, folder, last=True),
                log.info,
                LAST_PATIENCE_S,
            )
        except (FederatorError, OSError) as error:
            log.warning("the last checkpoint of %s is not pushed: %s", load.job, error)
            return f"its last checkpoint could not be pushed: {error}"
        return ""

    async def _push(self, kept: JobCheckpoints, load: Load, folder: Path, *, last: bool) -> None:
        if await self._checkpoints.push(kept, load.job, load.epoch, folder, last=last):
            log.info("a checkpoint of %s is pushed", load.job)

    def forget(self, job: str) -> None:
        """The job's directory is removed here."""
        self._checkpoints.forget(job)

    def _kept(self, load: Load) -> JobCheckpoints | None:
        return self._checkpoints.of(load.uri, load.job, load.part) if load.uri else None


@contextmanager
def _told() -> Iterator[None]:
    """Faults of data as those of a start: refused where another site may do better."""
    try:
        yield
    except StagingError:
        raise
    except (Transient, NoRoom) as error:
        raise StagingRefused(fault_of(error)) from None
    except Permanent as error:
        raise StagingError(Cause.STAGING, fault_of(error)) from None
    except OSError as error:
        raise StagingRefused(f"its data cannot be written: {error}") from None


def _link(link: Path, target: Path) -> None:
    link.unlink(missing_ok=True)
    link.symlink_to(target)


def _entries_in_use(folders: Folders) -> Callable[[], set[Path]]:
    """Of the placements that stand beside this one: what their links lead to."""
    placements = folders.inputs.parent.parent

    def entries() -> set[Path]:
        found = set()
        for link in placements.glob(f"*/{folders.inputs.name}/*"):
            if link.is_symlink():
                target = link.readlink()
                found |= {above for above in target.parents if above.parent == folders.cache}
        return found

    return entries
