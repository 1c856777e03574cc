"""What broken and lying agents say: messages that cannot be true, and reports that only might be."""

import msgspec

from federator.model.capacity import Shape
from federator.model.placements import PlacementReport, PlacementStatus
from federator.model.sites import SiteReport
from federator.wire import link
from federator_agent.core.capacity_report import site_report
from federator_agent.core.events import Now
from federator_agent.core.lent_capacity import HostPool
from federator_agent.core.state import State


def all_free(report: SiteReport, pool: HostPool) -> SiteReport:
    """The report with everything free, whatever runs: a lie that cannot be seen."""
    free = (Shape(pool.gpus_per_node, pool.cpus_milli_per_node, pool.memory_mib_per_node, pool.nodes),)
    pools = tuple(msgspec.structs.replace(each, free=free) for each in report.pools)
    return msgspec.structs.replace(report, pools=pools)


def nonsense(state: State, pool: HostPool, now_at: float) -> list[str]:
    """Frames that nobody can have meant."""
    view = all_free(site_report(state, Now(0.0, 0.0)), pool).pools[0]
    lies = (
        msgspec.structs.replace(view, nodes=-1),
        msgspec.structs.replace(view, lent_gpus=10**9),
        msgspec.structs.replace(view, free=view.free * 50),
    )
    said = [_frame(link.Report(SiteReport(taken_at=0.0, pools=(lie,)))) for lie in lies]
    said += ["", "{", '{"type":"report"}', "[" * 5000, _frame(_success("pl-nobody", 1, now_at))]
    # Of work of its own, an attempt that there never was.
    ours = list(state.records.values())[:2]
    return said + [
        _frame(_success(record.entry.placement, record.entry.epoch + 7, now_at)) for record in ours
    ]


def _success(placement: str, epoch: int, at: float) -> link.Statuses:
    report = PlacementReport(placement=placement, epoch=epoch, seq=1, status=PlacementStatus.SUCCEEDED, at=at)
    return link.Statuses((report,))


def _frame(message: link.Up) -> str:
    return link.encode(message).decode()
