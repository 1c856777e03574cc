"""What a plan starts and in which order it lets the others go on, as the evaluator takes it: whoever looks at a plan that was made carries it out again by this."""

from collections.abc import Iterable, Sequence

from federator.model.plans import Action, Place, Preempt, Rent
from federator.planning.world.problem import World


def key_of(action: Place | Rent) -> str:
    """Of the pool or offer, as the snapshot has it."""
    if isinstance(action, Rent):
        return f"{action.provider}/{action.offer}"
    return f"{action.site}/{action.members[0] if action.members else ''}/{action.pool}"


def starts_of(world: World, actions: Iterable[Action]) -> dict[str, int]:
    """The starts of these actions: job to choice. One at a place or of a job that is not there is left out."""
    starts = {}
    for action in actions:
        if isinstance(action, Preempt) or action.job not in world.by_id:
            continue
        place = world.named.get(key_of(action))
        if place is not None and 0 <= action.form <= len(world.by_id[action.job].forms):
            starts[action.job] = place + action.form * len(world.places)
    return starts


def turns_of(world: World, order: Sequence[str]) -> dict[str, int] | None:
    """Every job's turn where these go in this order, and before them those that are not named; None where none is."""
    if not order:
        return None
    place = {job: number for number, job in enumerate(order, 1)}
    turns = sorted(world.jobs, key=lambda job: place.get(job.id, 0))
    return {job.id: turn for turn, job in enumerate(turns)}
