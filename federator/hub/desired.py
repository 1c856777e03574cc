"""Desired sets: what each member should be doing, as a projection of placement rows, and how a session is told of it.

Rows are durable before they are seen here, so nothing is said that a crash could take back. At most one message is on its way to an
agent; until it is acknowledged, changes only mark placements, and the next message tells of all of them at once: nothing piles up for a
slow agent.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping

from federator.hub.outside import Rows, Written
from federator.model.jobs import Checkpoint, Job, JobSpec
from federator.model.placements import DesiredEntry, Order, Placement
from federator.model.spans import sampled
from federator.planning.wording.told import order_words
from federator.wire import link

DELTA_ENTRIES = 2000
"""Most entries of one change of a desired set; the rest follows once it is acknowledged."""
GENERATIONS_PER_REVISION = 1024
PLACEMENT_KEYS = "placement/"
"""What the key of a placement's row begins with."""


class DesiredPlacements:
    """The open placements of every member, kept up with the records.

    A gang's member that has said that its part is over is not told of it again while the others go on: with an empty disk it would begin it anew.
    """

    def __init__(
        self, rows: Rows, on_change: Callable[[str, str], None], *, trace_share: float = 0.0
    ) -> None:
        """`trace_share` of all jobs have a trace that is kept, 0 to 1."""
        self._rows = rows
        self._trace_share = trace_share
        self._on_change = on_change
        self._held: dict[str, dict[str, Placement]] = {}
        self._open: dict[str, Placement] = {}
        self._generation = 0
        rows.subscribe(self._follow)

    def load(self) -> None:
        """Take in what the records had before anything changed."""
        for placement in self._rows.open_placements.values():
            self._index(placement)

    def held(self, member: str) -> Mapping[str, Placement]:
        """The open placements that have a rank at this member."""
        return self._held.get(member, {})

    def next_generation(self) -> int:
        """A number above every one of earlier runs, without a write of its own: the store's revisions only grow."""
        self._generation = max(self._generation + 1, self._rows.revision * GENERATIONS_PER_REVISION)
        return self._generation

    def entry(self, placement: Placement, member: str, knows: Collection[str] = ()) -> DesiredEntry:
        """What this member is to do with the placement, in fields that its agent `knows`. One that was given up is to be stopped, should it still be there."""
        spec = self._rows.spec(placement.spec_hash)
        job = self._rows.jobs.get(placement.job)
        checkpoint = spec.checkpoint or Checkpoint()
        return DesiredEntry(
            placement=placement.id,
            job=placement.job,
            job_name=job.name if job else spec.name,
            epoch=placement.epoch,
            spec_hash=placement.spec_hash,
            order=Order.STOP if placement.ended else placement.order,
            ranks=tuple(rank for rank, name in enumerate(placement.members) if name == member),
            pool=placement.pool,
            reason=order_words(placement),
            max_duration_s=placement.max_duration_s,
            grace_s=min(checkpoint.grace_s, math.inf if placement.grace_s is None else placement.grace_s),
            signal=checkpoint.signal,
            array_index=job.array_index if job else None,
            resume=job is not None and _resumes(job, spec, placement),
            queue=job.queue if job else "",
            rendezvous=placement.rendezvous,
            form=placement.form,
            success=placement.success,
            owner=job.owner if job and link.OWNER in knows else "",
            team=job.team if job and link.TEAM in knows else "",
            traced=link.TRACES in knows
            and self._trace_share > 0.0
            and sampled(placement.job, self._trace_share),
        )

    def _follow(self, changes: Written) -> None:
        for row in changes.rows.values():
            if isinstance(row, Placement):
                self._index(row)
        for key in changes.deletes:
            if placement := self._open.get(key.removeprefix(PLACEMENT_KEYS)):
                self._index(placement)

    def _index(self, placement: Placement) -> None:
        open_now = placement.id in self._rows.open_placements and not placement.assembling
        if open_now:
            self._open[placement.id] = placement
        else:
            self._open.pop(placement.id, None)
        over = {part.member for part in placement.parts if part.ended and part.stop_acknowledged}
        for member in dict.fromkeys(placement.members):
            held = self._held.setdefault(member, {})
            if open_now and member not in over:
                held[placement.id] = placement
            else:
                held.pop(placement.id, None)
            self._on_change(member, placement.id)


def _resumes(job: Job, spec: JobSpec, placement: Placement) -> bool:
    """Whether what the job saved is where its ranks are. Of a gang each finds its own, at its host; of an elastic one what is there is for any."""
    if not job.resume_site:
        return False
    if spec.elastic:
        return not job.resume_members or set(placement.members) <= set(job.resume_members)
    return job.resume_members in ((), placement.members)


class SyncSession:
    """What one session has been told of its member's desired set, and what comes next. Starts with the whole set."""

    def __init__(self, desired: DesiredPlacements, member: str, knows: Collection[str] = ()) -> None:
        self._desired = desired
        self._member = member
        self._knows = knows
        self._told: dict[str, DesiredEntry] = {}
        self._changed: OrderedDict[str, None] = OrderedDict()
        self._whole = True
        self._seen = 0
        """The highest generation that the agent claims to have; its own affair, so that one that lies numbers nobody else's."""
        self.on_its_way: link.Desired | None = None
        self.wrong_digests = 0
        """Acknowledgements in a row whose digest was not that of what was sent."""

    def mark(self, placement: str) -> None:
        """This placement has changed."""
        self._changed[placement] = None

    def repeat(self) -> None:
        """Tell the whole set once more, to hear it acknowledged."""
        self._whole = True

    def next(self, term: int) -> link.Desired | None:
        """The next message; None when nothing is new or one is still on its way."""
        if self.on_its_way is not None:
            return None
        whole = self._whole
        entries, forget = self._all() if whole else self._news()
        if not (whole or entries or forget):
            return None
        self.on_its_way = link.Desired(
            generation=max(self._desired.next_generation(), self._seen + 1),
            entries=tuple(entries),
            digest=link.desired_digest(self._told.values()),
            forget=tuple(forget),
            whole=whole,
            term=term,
        )
        return self.on_its_way

    def acknowledged(self, message: link.DesiredAck) -> bool:
        """Take the agent's word on what it holds; whether it holds what it was sent. If not, the whole set is next."""
        sent = self.on_its_way
        if sent is None or message.generation < sent.generation:
            return True  # said before it has seen what is on its way
        self.on_its_way = None
        if message.generation > sent.generation:
            # It has seen a later one than this dispatcher ever sent, and ignores ours: the store is an older copy.
            self._seen = message.generation
        elif message.digest == sent.digest:
            self.wrong_digests = 0
            return True
        self._whole = True
        self.wrong_digests += 1
        return False

    def _all(self) -> tuple[list[DesiredEntry], list[str]]:
        placements = self._desired.held(self._member).values()
        self._told = {placement.id: self._entry(placement) for placement in placements}
        self._changed.clear()
        self._whole = False
        return list(self._told.values()), []

    def _entry(self, placement: Placement) -> DesiredEntry:
        return self._desired.entry(placement, self._member, self._knows)

    def _news(self) -> tuple[list[DesiredEntry], list[str]]:
        held = self._desired.held(self._member)
        entries: list[DesiredEntry] = []
        forget: list[str] = []
        while self._changed and len(entries) + len(forget) < DELTA_ENTRIES:
            placement_id, _ = self._changed.popitem(last=False)
            placement = held.get(placement_id)
            if placement is None:
                if self._told.pop(placement_id, None) is not None:
                    forget.append(placement_id)
                continue
            entry = self._entry(placement)
            if self._told.get(placement_id) != entry:
                self._told[placement_id] = entry
                entries.append(entry)
        return entries, forget
