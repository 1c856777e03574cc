"""Being cut off: when work that must not outlive the connection begins to end.

`stop_within: D` says that the work is gone D after the last message to the dispatcher that was answered, counted from when that message was *sent*. The
dispatcher counts from when it answered, which is later, and adds a margin; so it never starts a second copy while this one runs. Stopping begins a
grace before D. Once begun it is never taken back, whatever is heard then: a renewal counts only for what is not past its time yet. The same rule is
enforced from outside of the agent by `federator_agent.local.watchdog`.
"""

from federator.model.placements import Cause
from federator_agent.core import endings
from federator_agent.core.state import Phase, PlacementRecord, State
from federator_agent.core.transition import Transition

_MAY_GO_ON = frozenset({Phase.FETCHING, Phase.RESERVED, Phase.STAGING, Phase.RUNNING})
"""Phases that a fence ends. In the others it is ending, by a time that is before the fence's, or over."""


def any_fenced(state: State) -> bool:
    """Whether any work here must not outlive the connection. It is asked all the time, and hardly any site has such work."""
    for spec in state.specs.values():  # noqa: SIM110 - `any` takes three times as long
        if spec.stop_within_s:
            return True
    return False


def due_boot_s(state: State, record: PlacementRecord) -> float | None:
    """When the placement begins to stop unless a renewal comes first; None: it is kept. 0: nothing was ever answered in this boot."""
    spec = state.specs.get(record.entry.spec_hash)
    if spec is None or not spec.stop_within_s or record.phase not in _MAY_GO_ON:
        return None
    if record.phase is Phase.RUNNING and record.boot_id != state.boot_id:
        return None  # gone with its boot, and reported so
    if state.renewed_boot_s is None:
        return 0.0
    return state.renewed_boot_s + spec.stop_within_s - record.entry.grace_s


def stop_if_due(draft: Transition, record: PlacementRecord) -> bool:
    """Stop a placement whose time is over; whether it was. The stop counts from when it was due, however late the agent is."""
    due_s = due_boot_s(draft.state, record)
    if due_s is None or due_s > draft.now.boot_s:
        return False
    detail = "the site was cut off from the dispatcher for as long as its stop_within allows"
    endings.stop(draft, record, Cause.STOPPED, detail, late_s=draft.now.boot_s - due_s if due_s else 0.0)
    return True


def stop_all_due(draft: Transition) -> None:
    """Before anything else is heard: end what has been cut off for too long."""
    if any_fenced(draft.state):
        for record in list(draft.records.values()):
            stop_if_due(draft, record)
