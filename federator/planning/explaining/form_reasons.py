"""Why a job of several forms runs in the one that it does."""

from federator.model.snapshot import JobView
from federator.planning.explaining.reasons import Standing
from federator.planning.places.yard import need_of
from federator.planning.wording import in_form
from federator.planning.world.problem import World


def why_form(world: World, standing: Standing, whole: JobView, choice: int) -> str:
    """Which form it is, and why none that is quicker; empty for a job of one form."""
    if not whole.forms:
        return ""
    mine = world.as_form(whole, choice)
    quicker = [
        view
        for other in world.choices(whole, choice)
        if (view := world.as_form(whole, other)).throughput > mine.throughput
        and world.rejection(whole, other) is None
    ]
    lot = standing.lots[choice].copy()
    for release in lot.releases:
        if isinstance(release.payload, JobView) and release.payload.id == whole.id:
            lot.untake(release.need, release.hosts)
    why = ""
    if any(lot.fits(need_of(view), view.nodes) for view in quicker):
        why = ", because more of it would gain less than it costs"
    elif quicker:
        why = ", because no more is free there"
    return f"{in_form(whole, world.form_of(choice))}{why}; "
