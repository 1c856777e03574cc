"""What the loop is to carry out. `Persist` comes first and is on disk before anything after it happens."""

import msgspec

from federator.model.allotments import LocalJob
from federator.model.jobs import JobSpec
from federator.model.placements import PlacementReport
from federator.model.sites import SiteReport
from federator_agent.core.state import Change, PlacementRecord


class Persist(msgspec.Struct, frozen=True):
    """Write these changes durably, all of them, before carrying out what follows."""

    changes: tuple[Change, ...]


class SendDesiredAck(msgspec.Struct, frozen=True):
    """Tell what set is on disk."""

    generation: int
    digest: str


class SendStatuses(msgspec.Struct, frozen=True):
    """Tell the statuses; drop them silently when there is no session: they are repeated."""

    reports: tuple[PlacementReport, ...]


class SendReport(msgspec.Struct, frozen=True):
    """Tell what the site has."""

    report: SiteReport


class KeepRenewal(msgspec.Struct, frozen=True):
    """Let what watches over ranks from outside know when the last message that was answered was sent."""

    boot_s: float


class FetchSpec(msgspec.Struct, frozen=True):
    """Get a spec, from disk or from the dispatcher; answer SpecArrived or SpecUnknown."""

    spec_hash: str


class FindPort(msgspec.Struct, frozen=True):
    """Look for a port on which a rank of this placement could listen; answer PortFound."""

    placement: str


class Stage(msgspec.Struct, frozen=True):
    """Unpack the work directory and run the set-up; answer Staged or StagingFailed."""

    record: PlacementRecord
    spec: JobSpec


class StopStaging(msgspec.Struct, frozen=True):
    """Give up a staging; answer StagingStopped when nothing of it runs."""

    placement: str


class StartRanks(msgspec.Struct, frozen=True):
    """Start these ranks, each once; answer RankStarted or RankEnded for each."""

    record: PlacementRecord
    spec: JobSpec
    ranks: tuple[int, ...]


class FindRanks(msgspec.Struct, frozen=True):
    """After a restart: look what became of these ranks; answer RankStarted, RankAbsent or RankEnded for each."""

    record: PlacementRecord
    ranks: tuple[int, ...]


class SignalRanks(msgspec.Struct, frozen=True):
    """Send a signal to the processes of these ranks: `KILL` to everything they ever started."""

    placement: str
    ranks: tuple[int, ...]
    signal: str


class Collect(msgspec.Struct, frozen=True):
    """Bring logs and outputs to the dispatcher, however long it is away; answer Collected."""

    record: PlacementRecord
    spec: JobSpec


class Discard(msgspec.Struct, frozen=True):
    """Remove the files of an ended placement, and with `checkpoints_of` a job's checkpoints."""

    placement: str
    checkpoints_of: str | None = None


class Answer(msgspec.Struct, frozen=True):
    """Tell whoever asked about this placement of the agent's own; `refusal` empty: it is done."""

    placement: str
    refusal: str


class OfferJobs(msgspec.Struct, frozen=True):
    """Tell jobs that the agent has admitted, if the dispatcher takes such."""

    jobs: tuple[LocalJob, ...]


class Withhold(msgspec.Struct, frozen=True):
    """Send no logs and outputs of this placement: the dispatcher does not know it."""

    placement: str


class Release(msgspec.Struct, frozen=True):
    """Send them: now it does."""

    placement: str


Instruction = (
    Persist
    | SendDesiredAck
    | SendStatuses
    | SendReport
    | KeepRenewal
    | FetchSpec
    | FindPort
    | Stage
    | StopStaging
    | StartRanks
    | FindRanks
    | SignalRanks
    | Collect
    | Discard
    | Answer
    | OfferJobs
    | Withhold
    | Release
)
