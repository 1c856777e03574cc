"""What may happen to an agent. Each is told to `federator_agent.core.machine.step` together with the time."""

from typing import NamedTuple

import msgspec

from federator.model.allotments import Allotment
from federator.model.jobs import JobSpec
from federator.model.placements import Cause, PlacementStatus
from federator.model.sites import AilingGpu
from federator.wire.link import Desired
from federator_agent.core.lent_capacity import HostPool, Seen


class Now(NamedTuple):
    """The time of an event: wall time for what people read, boot time for what is measured."""

    at: float
    boot_s: float


class Awake(msgspec.Struct, frozen=True):
    """The agent starts, with what its disk remembers; on the first start nothing."""

    boot_id: str
    renewed_boot_s: float | None = None
    """When the last message that was answered in this boot was sent, if any was."""


class LinkUp(msgspec.Struct, frozen=True):
    """A session stands. `proved_boot_s`: when the proof was sent that the dispatcher answered with its welcome.

    `address`: under which the site's other members reach this host.
    """

    incarnation: str
    term: int
    proved_boot_s: float | None = None
    address: str = ""


class Renewed(msgspec.Struct, frozen=True):
    """The dispatcher has answered, within the session, what was sent at `sent_boot_s`."""

    sent_boot_s: float


class LinkDown(msgspec.Struct, frozen=True):
    """The session is over; everything goes on."""


class DesiredChanged(msgspec.Struct, frozen=True):
    """The dispatcher changes the desired set."""

    message: Desired


class Acknowledged(msgspec.Struct, frozen=True):
    """The dispatcher has all statuses up to `seq` on disk."""

    seq: int


class SpecArrived(msgspec.Struct, frozen=True):
    """A spec is here."""

    spec_hash: str
    spec: JobSpec


class SpecUnknown(msgspec.Struct, frozen=True):
    """The dispatcher has no such spec, or none that this agent can read."""

    spec_hash: str
    detail: str


class PortFound(msgspec.Struct, frozen=True):
    """A port on which a rank of this placement could listen: it was free a moment ago."""

    placement: str
    port: int


class SettingUp(msgspec.Struct, frozen=True):
    """The work directory is there; the set-up script runs."""

    placement: str


class Staged(msgspec.Struct, frozen=True):
    """Everything is ready to start; `master_port` was free a moment ago. `hosts`: where the site's own scheduler has put its ranks."""

    placement: str
    master_port: int
    hosts: dict[int, str] = {}


class StagingFailed(msgspec.Struct, frozen=True):
    """It cannot start, and nothing of it is left. `status` FAILED: the work directory or the set-up is at fault; REFUSED: the site has no room after all;
    LOST: its allocation has vanished.
    """

    placement: str
    cause: Cause
    detail: str
    exit_code: int | None = None
    status: PlacementStatus = PlacementStatus.FAILED


class StagingStopped(msgspec.Struct, frozen=True):
    """Nothing of the staging runs any more."""

    placement: str


class RankStarted(msgspec.Struct, frozen=True):
    """A rank's process runs, or ran, from `started_at` on."""

    placement: str
    rank: int
    started_at: float


class RankAbsent(msgspec.Struct, frozen=True):
    """After a restart of the agent: it was to be started, and provably never was."""

    placement: str
    rank: int


class RankEnded(msgspec.Struct, frozen=True):
    """Nothing of a rank runs any more. `exit_code` None: it was lost, and `detail` says how. `cause`: why, where more is known than that."""

    placement: str
    rank: int
    ended_at: float
    exit_code: int | None = None
    detail: str = ""
    cause: Cause | None = None


class Collected(msgspec.Struct, frozen=True):
    """Logs and outputs are at the dispatcher; `detail` names what could not be kept. `unkept`: its checkpoint is here alone."""

    placement: str
    detail: str = ""
    unkept: bool = False


class LocalSubmitted(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody at this host submits a job to the agent itself. The ids are new ones; `text` is the spec as JSON, and `at` when it came."""

    job: str
    placement: str
    owner: str
    spec: JobSpec
    text: str
    at: float
    queue: str = ""
    """Empty: that of the first allotment which admits it."""
    priority: int | None = None
    max_duration_s: float | None = None


class LocalCancelled(msgspec.Struct, frozen=True):
    """Its owner, at this host, ends a job that the agent has admitted."""

    placement: str
    by: str


class Allotted(msgspec.Struct, frozen=True):
    """The dispatcher says what may be admitted here while the link is down."""

    allotments: tuple[Allotment, ...]


class Adopted(msgspec.Struct, frozen=True):
    """The dispatcher has these placements of the agent's own on disk, with their jobs."""

    placements: tuple[str, ...]


class CapacitySeen(msgspec.Struct, frozen=True):
    """The site's own scheduler has been looked at."""

    seen: Seen


class DevicesSeen(msgspec.Struct, frozen=True):
    """This host's GPUs have been looked at; these ail, and all others are well."""

    ailing: tuple[AilingGpu, ...]
    pools: tuple[HostPool, ...] | None = None
    """All pools of the site, where GPUs are cut into other instances than before; None: as they were."""


class Noticed(msgspec.Struct, frozen=True):
    """The provider takes this machine back at that time, and has said so to the machine."""

    reclaim_at: float


class Paused(msgspec.Struct, frozen=True):
    """The site's owner stops or restarts new work."""

    paused: bool


class ReportDue(msgspec.Struct, frozen=True):
    """It is time to report, changed or not."""


class Tick(msgspec.Struct, frozen=True):
    """Time has passed."""


Event = (
    Awake
    | LinkUp
    | Renewed
    | LinkDown
    | DesiredChanged
    | Acknowledged
    | SpecArrived
    | SpecUnknown
    | PortFound
    | SettingUp
    | Staged
    | StagingFailed
    | StagingStopped
    | RankStarted
    | RankAbsent
    | RankEnded
    | Collected
    | LocalSubmitted
    | LocalCancelled
    | Allotted
    | Adopted
    | CapacitySeen
    | DevicesSeen
    | Noticed
    | Paused
    | ReportDue
    | Tick
)
