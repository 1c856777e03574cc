"""What running attempts really use, as their members have told it last. In memory; of one that is over it stays with its placement."""

from collections.abc import Iterator, Sequence

from federator.control.record.records import Records
from federator.model.placements import Placement, Used
from federator.wire.link import Sample


class Measurements:
    """The newest samples, by placement and member."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._used: dict[str, dict[str, tuple[Used, Used]]] = {}
        """What was told by earlier processes of the member's agent, and what the present one has told last."""

    def hear(self, member: str, samples: Sequence[Sample]) -> None:
        """What a member says; of placements that are not open, or not its own, it is passed over."""
        for sample in samples:
            placement = self._records.open_placements.get(sample.placement)
            if placement is None or placement.ended or member not in placement.members:
                continue
            of_members = self._used.setdefault(sample.placement, {})
            before, last = of_members.get(member, (Used(), Used()))
            if sample.used.sampled_s < last.sampled_s:  # the agent has begun anew
                before = before.joined(last, beside=False)
            of_members[member] = before, sample.used

    def of(self, placement: Placement | None) -> Used | None:
        """What an attempt uses, or has used; None: nobody has said."""
        if placement is None or placement.used is not None:
            return placement.used if placement is not None else None
        found: Used | None = None
        for before, last in self._used.get(placement.id, {}).values():
            whole = before.joined(last, beside=False)
            found = whole if found is None else found.joined(whole, beside=True)
        return found

    def idle(self, for_s: float) -> Iterator[tuple[Placement, Used]]:
        """Running attempts whose GPUs have done nothing for so long. What is no longer open is forgotten."""
        for name in list(self._used):
            placement = self._records.open_placements.get(name)
            if placement is None or placement.ended:
                del self._used[name]
                continue
            used = self.of(placement)
            if used is not None and used.idle_s >= for_s and placement.gpus:
                yield placement, used
