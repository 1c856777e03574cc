"""Why a job of several forms runs in the one that it does."""

from federator.model.snapshot import JobView
from federator.planning.explaining.reasons import Standing
from federator.planning.places.yard import need_of
from federator.planning.world.problem import World


def why_form(world: World, standing: Standing, whole: JobView, choice: int) -> str:
    """Why it is in no quicker form: `enough`, `no-more` (as `reasons.Fits` has it); empty where there is none."""
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
    if any(lot.fits(need_of(view), view.nodes) for view in quicker):
        return "enough"
    return "no-more" if quicker else ""
