"""Two simulated sides of the same jobs, compared: what another policy set, a purchase or another price would change, and for whom."""

from typing import Annotated

import msgspec

from federator.wire.http import Problem
from federator.wire.recorded import RecordedJob, RecordedWorld


class JobFate(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a job on one side. `site` empty: it never ran. `met` None: it has no deadline."""

    site: str = ""
    market: str = ""
    wait_s: float | None = None
    met: bool | None = None
    usd: float = 0.0
    attempts: int = 0
    because: str = ""


class JobChange(msgspec.Struct, frozen=True, kw_only=True):
    """A job that fared otherwise."""

    job: str
    queue: str
    owner: str
    gpus: int
    before: JobFate
    after: JobFate
    weight_usd: float
    """How much it matters, as changes are ordered."""


class SideSums(msgspec.Struct, frozen=True, kw_only=True):
    """One side of a queue, or of all."""

    jobs: int = 0
    refused: int = 0
    deadlines: int = 0
    met: int = 0
    wait_mean_s: float = 0.0
    owned_usd: float = 0.0
    rented_usd: float = 0.0
    egress_usd: float = 0.0

    @property
    def usd(self) -> float:
        """All money."""
        return self.owned_usd + self.rented_usd + self.egress_usd


class QueueContrast(msgspec.Struct, frozen=True, kw_only=True):
    """A queue on both sides; an empty name is all queues together."""

    queue: str
    moved: int
    """Jobs that ran at another site, or only on one side."""
    before: SideSums
    after: SideSums


class Contrast(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that differs. `names` are what the two sides are called; `changes` are told in the head of a report."""

    names: tuple[str, str]
    changes: tuple[str, ...]
    total: QueueContrast
    queues: tuple[QueueContrast, ...]
    sooner: int
    later: int
    newly_met: int
    newly_missed: int
    refused: dict[str, int]
    """Reasons for which only the second side refuses jobs, and how many."""
    jobs: tuple[JobChange, ...]


class ReplayRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """POST /v1/policies/replay: the whole proposed set (YAML), and on which time's load it is tried: `last_s` seconds, until `until` (seconds since the epoch; left out: now)."""

    text: str
    last_s: Annotated[float, msgspec.Meta(gt=0, le=400 * 86_400)] = 7 * 86_400.0
    until: float | None = None
    seed: int = 0
    """Of what is drawn: spot interruptions and the like."""


class PolicyReplay(msgspec.Struct, frozen=True, kw_only=True):
    """What the proposed set would have done with that load, beside the set in force. Both were simulated; nothing was applied."""

    version: int
    """Of the set in force."""
    since_at: float
    until_at: float
    contrast: Contrast | None = None
    """None: there are problems."""
    problems: tuple[Problem, ...] = ()
    """What is wrong with the proposed set; then nothing was simulated."""
    remarks: tuple[str, ...] = ()
    """What the simulation does not know, and what else a reader should."""
    troubles: tuple[str, ...] = ()
    """What cannot be true of either side; where there is any, the figures are not to be trusted."""
    took_s: float = 0.0
    """Real seconds."""


class PolicyTrial(msgspec.Struct, frozen=True, kw_only=True):
    """What a simulation of two policy sets is given, in another process."""

    world: RecordedWorld
    jobs: tuple[RecordedJob, ...]
    since_at: float
    in_force: str
    proposed: str
    left_out: int = 0
    seed: int = 0


class TrialOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What it answers; `fault`: why there is nothing, with what would be right."""

    contrast: Contrast | None = None
    remarks: tuple[str, ...] = ()
    troubles: tuple[str, ...] = ()
    fault: str = ""
    remedy: str | None = None
