"""How placements come in: whether the site takes them, on which slots, and what is told when it does not."""

from msgspec.structs import replace

from federator.model.jobs import JobSpec
from federator.model.placements import DesiredEntry, Order, PlacementStatus
from federator.model.whose import in_words, is_among
from federator_agent.core import endings, fencing
from federator_agent.core.capacity_report import free_now
from federator_agent.core.events import DevicesSeen, Noticed, PortFound, SpecArrived, SpecUnknown
from federator_agent.core.instructions import FetchSpec, FindPort, Stage
from federator_agent.core.lent_capacity import HostPool, Slot, displaced, seat_together
from federator_agent.core.state import Phase, PlacementRecord
from federator_agent.core.transition import Transition

RESERVE_FOR_S = 300.0
"""A reservation that is not raised to `run` within this time gives its slots back."""


def admit(draft: Transition, entry: DesiredEntry) -> None:
    """Take up a placement that is new here, or refuse it."""
    why = unwilling(draft, entry)
    if why:
        endings.refuse(draft, PlacementRecord(entry=entry), why)
        return
    record = draft.put(PlacementRecord(entry=entry))
    spec = draft.state.specs.get(entry.spec_hash)
    if spec is None:
        draft.do(FetchSpec(entry.spec_hash))
    else:
        _seat(draft, record, spec)


def unwilling(draft: Transition, entry: DesiredEntry) -> str:
    """Why the site does not take this work at all; empty: it does."""
    if not entry.ranks:
        return "it names no rank to run here"
    if draft.state.paused:
        return "the site's owner has paused new work"
    if draft.state.reclaim_at is not None:
        return "the provider takes the machine back"
    if draft.state.pool(entry.pool) is None:
        return f"there is no pool {entry.pool!r} here"
    return _kept_from(draft, entry)


def _kept_from(draft: Transition, entry: DesiredEntry) -> str:
    """Why the site does not take this work from others, or does not trust them."""
    site, trusts = draft.state.site, draft.state.trusts
    if site.lend.pools and entry.pool not in site.lend.pools:
        return f"the site does not lend its pool {entry.pool}"
    if not site.lend.serves(entry.whose):
        return f"the site lends only to {in_words(site.lend.queues)}"
    if trusts and entry.owner and not is_among(trusts, entry.whose):
        return f"this site runs work without isolation, and does not trust {entry.owner}"
    if not site.lend.open_at(draft.now.at):
        return "the site does not lend at this hour"
    return ""


def spec_arrived(draft: Transition, event: SpecArrived) -> None:
    """A spec is here: seat all that waited for it."""
    waiting = _fetching(draft, event.spec_hash)
    if waiting:
        draft.set(specs={**draft.state.specs, event.spec_hash: event.spec})
    for record in waiting:
        _seat(draft, record, event.spec)


def spec_unknown(draft: Transition, event: SpecUnknown) -> None:
    """No spec, no work: refuse all that waited for it."""
    for record in _fetching(draft, event.spec_hash):
        endings.refuse(draft, record, event.detail)


def _fetching(draft: Transition, spec_hash: str) -> list[PlacementRecord]:
    return [
        record
        for record in draft.records.values()
        if record.phase is Phase.FETCHING and record.entry.spec_hash == spec_hash
    ]


def _seat(draft: Transition, record: PlacementRecord, spec: JobSpec) -> None:
    """Give all ranks their slots, or refuse: a gang is whole. What may have been given up for lost meanwhile does not begin."""
    if fencing.stop_if_due(draft, record):
        return
    if record.entry.form > len(spec.forms or ()):
        endings.refuse(draft, record, f"the job has no form {record.entry.form}")
        return
    spec = spec.as_form(record.entry.form)
    pool = draft.state.pool(record.entry.pool)
    if pool is None:
        endings.refuse(draft, record, f"there is no pool {record.entry.pool!r} here any more")
        return
    slots = find_slots(draft, pool, record.entry.ranks, spec)
    if isinstance(slots, str):
        endings.refuse(draft, record, slots)
    else:
        _seated(draft, replace(record, slots=slots))


def find_slots(
    draft: Transition, pool: HostPool, ranks: tuple[int, ...], spec: JobSpec
) -> tuple[Slot, ...] | str:
    """Slots of the pool that are free, for all ranks; else why there are none."""
    if why := pool.suits(spec.resources):
        return why
    free = free_now(draft.state, pool, draft.records)
    slots = seat_together(free, pool, ranks, spec.resources, spec.placement.together or "")
    if slots is not None:
        return slots
    needs = f"{len(ranks)} ranks with {spec.resources.gpus.total} GPUs each"
    return f"pool {pool.name} has no room for {needs}, {spec.resources.cpus_milli} milli-cores and {spec.resources.memory_mib} MiB"


def _seated(draft: Transition, record: PlacementRecord) -> None:
    if record.entry.order is Order.RUN:
        stage(draft, record)
        return
    until = draft.now.boot_s + RESERVE_FOR_S
    draft.put(replace(record, phase=Phase.RESERVED, reserved_until_boot_s=until))
    draft.do(FindPort(record.entry.placement))


def devices_seen(draft: Transition, event: DevicesSeen) -> None:
    """What has not begun does not begin on a GPU that ails now: the dispatcher has another place. What runs goes on."""
    draft.set(ailing=event.ailing)
    if event.pools is not None:
        draft.set(site=replace(draft.state.site, pools=event.pools))
    for record in list(draft.records.values()):
        if record.phase is Phase.RESERVED and (why := unfit(draft, record)):
            endings.refuse(draft, record, why)


def noticed(draft: Transition, event: Noticed) -> None:
    """The dispatcher is told at once, and says what is to stop and how fast. Nothing more begins here."""
    draft.set(reclaim_at=event.reclaim_at)


def unfit(draft: Transition, record: PlacementRecord) -> str:
    """Why it had better not begin on the GPUs that it was given; empty: they are well."""
    for slot in record.slots:
        for each in draft.state.ailing:
            if each.host == slot.host and each.gpu in slot.gpus:
                return f"GPU {each.gpu} of {each.host}: {each.why}"
        if slot.uuid and displaced(draft.state.site, (slot,)):
            return f"the MIG instance {slot.gpus[0]} of {slot.host} is no more"
    return ""


def port_found(draft: Transition, event: PortFound) -> None:
    """A reservation is complete: accept it, and say where the other members' ranks would find one that is here."""
    record = draft.records.get(event.placement)
    if record is None or record.phase is not Phase.RESERVED or record.report is not None:
        return
    address = draft.state.address
    host = f"[{address}]" if ":" in address else address
    draft.tell(record, PlacementStatus.ACCEPTED, rendezvous=f"{host}:{event.port}")


def stage(draft: Transition, record: PlacementRecord) -> None:
    """Begin to get a seated placement ready."""
    staging = draft.tell(replace(record, phase=Phase.STAGING), PlacementStatus.STARTING)
    draft.do(Stage(staging, draft.state.spec(record)))
