"""Any history, with crashes between any two lines: nothing starts twice, slots are never shared, ends are told as they were."""

from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule

from federator.kernel.ids import content_hash
from federator.model.jobs import JobSpec
from federator.model.placements import PLACEMENT_ENDED, DesiredEntry, Order, PlacementReport, PlacementStatus
from federator.wire.link import Desired, desired_digest
from federator_agent.core import events as ev
from federator_agent.core import instructions as do
from federator_agent.core.machine import next_wake_boot_s, step
from federator_agent.core.state import Change, Phase, State, restore, whole
from tests.support.examples import examples
from tests.unit.agent.worlds import SITE, entry, spec

SPECS = [spec(gpus=0), spec(gpus=1), spec(gpus=2, nodes=3), spec(gpus=4, nodes=2)]
Rank = tuple[str, int]


class Process:
    """A rank on the host: it has run once, and its exit code stays on disk."""

    def __init__(self, slot: Any, started_at: float) -> None:
        self.slot = slot
        self.started_at = started_at
        self.running = True
        self.code: int | None = None
        self.asked = False
        self.ended_at = 0.0


class Histories(RuleBasedStateMachine):
    """A dispatcher, a disk, a host, and an agent that may die at any moment."""

    placements = Bundle("placements")

    def __init__(self) -> None:
        super().__init__()
        self.at, self.boot_s = 1_760_000_000.0, 1000.0
        self.disk: list[Change] = []
        self.processes: dict[Rank, Process] = {}
        self.desired: dict[str, DesiredEntry] = {}
        self.stops: set[str] = set()
        self.generation = 0
        self.heard: dict[str, PlacementReport] = {}
        self.by_seq: dict[int, PlacementReport] = {}
        self.inbox: list[ev.Event] = []
        self.specs = {content_hash(msgspec.json.encode(each)): each for each in SPECS}
        self.linked = False
        self.state = State(site=SITE)
        self.tell(ev.Awake("boot-1"))

    # The world under the agent -------------------------------------------------------------------------------------

    def tell(self, event: ev.Event, crash_after: int | None = None) -> None:
        """Play an event; with `crash_after`, the agent dies after so many of its instructions."""
        self.state, instructions = step(self.state, (event,), ev.Now(self.at, self.boot_s))
        for number, instruction in enumerate(instructions):
            if crash_after is not None and number >= crash_after:
                self.crash()
                return
            self.carry_out(instruction)

    def carry_out(self, instruction: do.Instruction) -> None:  # noqa: C901, PLR0912 - a flat list of cases
        match instruction:
            case do.Persist(changes):
                self.disk += changes
            case do.SendStatuses(reports):
                for report in reports:
                    self.hear(report)
            case do.FetchSpec(spec_hash):
                self.inbox.append(ev.SpecArrived(spec_hash, self.specs[spec_hash]))
            case do.FindPort(placement):
                self.inbox.append(ev.PortFound(placement, 31234))
            case do.Stage(record, _):
                self.inbox.append(ev.Staged(record.entry.placement, 29500))
            case do.StopStaging(placement):
                self.inbox.append(ev.StagingStopped(placement))
            case do.StartRanks(record, _, ranks):
                for slot in record.slots:
                    if slot.rank in ranks:
                        self.start((record.entry.placement, slot.rank), slot)
            case do.FindRanks(record, ranks):
                for rank in ranks:
                    self.find((record.entry.placement, rank))
            case do.SignalRanks(placement, ranks, signal):
                for rank in ranks:
                    self.signal((placement, rank), signal)
            case do.Collect(record, _):
                self.inbox.append(ev.Collected(record.entry.placement))

    def hear(self, report: PlacementReport) -> None:
        assert self.by_seq.setdefault(report.seq, report) == report, "one number, two statuses"
        before = self.heard.get(report.placement)
        if before is not None and before.status in PLACEMENT_ENDED:
            assert report.status is before.status, "what had ended changed its mind"
        if report.status in PLACEMENT_ENDED:
            assert not any(p.running for (name, _), p in self.processes.items() if name == report.placement)
        self.heard[report.placement] = report

    def start(self, key: Rank, slot: Any) -> None:
        assert key not in self.processes, f"{key} was started twice"
        self.processes[key] = Process(slot, self.at)
        self.inbox.append(ev.RankStarted(*key, self.at))

    def find(self, key: Rank) -> None:
        process = self.processes.get(key)
        if process is None:
            self.inbox.append(ev.RankAbsent(*key))
            return
        self.inbox.append(ev.RankStarted(*key, process.started_at))
        if not process.running:
            self.inbox.append(ev.RankEnded(*key, process.ended_at, process.code))

    def signal(self, key: Rank, signal: str) -> None:
        siblings = [p for (name, _), p in self.processes.items() if name == key[0]]
        failed = any(not p.running and p.code != 0 for p in siblings)
        assert key[0] in self.stops or failed, f"{key} was signalled although nobody asked for it"
        process = self.processes.get(key)
        if process is not None and process.running:
            process.asked = True
            if signal == "KILL":
                self.finish(key, 137)

    def finish(self, key: Rank, code: int | None) -> None:
        process = self.processes[key]
        process.running, process.code, process.ended_at = False, code, self.at
        self.inbox.append(ev.RankEnded(*key, self.at, code))

    # What may happen -----------------------------------------------------------------------------------------------

    @rule(target=placements, of=st.sampled_from(SPECS), order=st.sampled_from([Order.RUN, Order.RESERVE]))
    def place(self, of: JobSpec, order: Order) -> str:
        name = f"p{len(self.by_seq)}-{self.generation}"
        self.change(entry(name, of, order=order, grace_s=10.0))
        return name

    def change(self, *entries: DesiredEntry, forget: tuple[str, ...] = ()) -> None:
        """The dispatcher's rows change; the agent hears of it now, or when the link is back."""
        self.generation += 1
        self.desired |= {each.placement: each for each in entries}
        for name in forget:
            self.desired.pop(name, None)
        if self.linked:
            digest = desired_digest(self.desired.values())
            self.inbox.append(ev.DesiredChanged(Desired(self.generation, entries, digest, forget, term=1)))

    @rule(name=placements)
    def stop(self, name: str) -> None:
        if name in self.desired:
            self.stops.add(name)
            self.change(msgspec.structs.replace(self.desired[name], order=Order.STOP))

    @rule(name=placements)
    def raise_to_run(self, name: str) -> None:
        if name in self.desired and self.desired[name].order is Order.RESERVE:
            self.change(msgspec.structs.replace(self.desired[name], order=Order.RUN))

    @rule(name=placements)
    def forget(self, name: str) -> None:
        """Usually because it has ended; but whatever the reason, it must stop nothing."""
        if name in self.desired:
            self.change(forget=(name,))

    @rule(data=st.data(), code=st.sampled_from([0, 0, 0, 1, None]))
    def rank_ends(self, data: st.DataObject, code: int | None) -> None:
        running = sorted(key for key, process in self.processes.items() if process.running)
        if running:
            self.finish(data.draw(st.sampled_from(running)), code)

    @precondition(lambda self: self.inbox)
    @rule(data=st.data(), crash_after=st.none() | st.integers(0, 3))
    def something_arrives(self, data: st.DataObject, crash_after: int | None) -> None:
        """The link keeps its order; whatever else is on its way may overtake."""
        position = data.draw(st.integers(0, len(self.inbox) - 1))
        if isinstance(self.inbox[position], ev.DesiredChanged):
            position = next(i for i, each in enumerate(self.inbox) if isinstance(each, ev.DesiredChanged))
        if isinstance(self.inbox[position], ev.RankEnded):
            position = next(i for i, each in enumerate(self.inbox) if _same_rank(each, self.inbox[position]))
        self.tell(self.inbox.pop(position), crash_after)

    @rule(crash_at=st.none() | st.integers(0, 12), crash_after=st.integers(0, 3))
    def everything_arrives(self, crash_at: int | None = None, crash_after: int = 0) -> None:
        """All in order, until perhaps the agent dies in the middle of one."""
        number = 0
        while self.inbox:
            self.tell(self.inbox.pop(0), crash_after if number == crash_at else None)
            number += 1

    @rule(seconds=st.sampled_from([1.0, 11.0, 400.0]))
    def time_passes(self, seconds: float) -> None:
        self.at += seconds
        self.boot_s += seconds
        self.tell(ev.Tick())

    @rule()
    def link_comes(self) -> None:
        self.linked = True
        self.inbox = [event for event in self.inbox if not isinstance(event, ev.DesiredChanged)]
        self.tell(ev.LinkUp("inc-1", 1))
        entries = tuple(self.desired.values())
        self.tell(
            ev.DesiredChanged(Desired(self.generation, entries, desired_digest(entries), whole=True, term=1))
        )

    @rule()
    def link_goes(self) -> None:
        self.linked = False
        self.inbox = [event for event in self.inbox if not isinstance(event, ev.DesiredChanged)]
        self.tell(ev.LinkDown())

    @rule()
    def all_is_acknowledged(self) -> None:
        if self.linked and self.by_seq:
            self.tell(ev.Acknowledged(max(self.by_seq)))

    @rule()
    def crash(self) -> None:
        """The memory and everything on its way is lost; the disk and the processes are not."""
        self.linked = False
        self.inbox.clear()
        remembered = restore(State(site=SITE), self.disk)
        self.state = msgspec.structs.replace(remembered, specs=dict(self.specs))
        self.tell(ev.Awake("boot-1"))

    @rule()
    def journal_is_rewritten(self) -> None:
        self.disk = whole(self.state)

    # What must hold ------------------------------------------------------------------------------------------------

    @invariant()
    def no_slot_is_shared(self) -> None:
        taken: set[tuple[str, int]] = set()
        for process in self.processes.values():
            if process.running:
                gpus = {(process.slot.host, gpu) for gpu in process.slot.gpus}
                assert not gpus & taken
                taken |= gpus

    @invariant()
    def nothing_runs_unknown(self) -> None:
        for (name, _), process in self.processes.items():
            assert not process.running or name in self.state.records

    def teardown(self) -> None:
        """Faults stop, everything is asked to end: then everything that was ordered has an end, and it is the true one."""
        self.crash()
        self.link_comes()
        self.everything_arrives()
        for name, record in self.state.records.items():
            assert record.phase is not Phase.ENDED or self.heard[name].status in PLACEMENT_ENDED
        for name in {each for each, _ in self.processes}:
            if not any(process.running for (each, _), process in self.processes.items() if each == name):
                assert self.heard[name].status in PLACEMENT_ENDED
        for name in list(self.desired):
            self.stop(name)
        for _ in range(10):
            self.everything_arrives()
            self.time_passes(400.0)
        for name in self.desired:
            assert self.heard[name].status in PLACEMENT_ENDED
            codes = [process.code for (each, _), process in self.processes.items() if each == name]
            if self.heard[name].status is PlacementStatus.SUCCEEDED:
                assert codes
                assert set(codes) == {0}
            assert not any(process.running for (each, _), process in self.processes.items() if each == name)
        wake = next_wake_boot_s(self.state)
        assert wake is None or wake > self.boot_s


def _same_rank(first: ev.Event, second: ev.Event) -> bool:
    """A rank's start is always known before its end."""
    if not isinstance(first, ev.RankStarted | ev.RankEnded) or not isinstance(second, ev.RankEnded):
        return False
    return (first.placement, first.rank) == (second.placement, second.rank)


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=examples(30), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
