"""What the platform team hears of: sites that are lost, GPUs that are sick, queues in which nothing moves.

Each has to last for a while, because agents restart and GPUs are held by others for a moment; and it is told once a day while it lasts.
"""

from collections.abc import Callable, Iterator

from federator.control.record.records import Records
from federator.control.reports.inventory import Inventory
from federator.kernel.quantities import format_duration
from federator.model.events import Alert, AlertKind
from federator.model.jobs import Job, JobStatus
from federator.model.sites import SiteStatus
from federator.settings import AlertSettings

FIRST_JOBS = 20
"""So many of the oldest jobs of a queue are looked at for one that could start."""
MOST_HOSTS = 5
"""So many hosts of a site are told by name."""
Found = tuple[str, Alert]


class PlatformAlerts:
    """Remembers since when each lasts; after a restart it begins anew."""

    def __init__(
        self,
        records: Records,
        inventory: Inventory,
        settings: AlertSettings,
        eligible: Callable[[Job], bool],
    ) -> None:
        """`eligible`: whether a plan may start a job."""
        self._records, self._inventory = records, inventory
        self._settings = settings
        self._eligible = eligible
        self._since: dict[str, float] = {}

    def raised(self, now: float) -> Iterator[Found]:
        """All that has lasted for long enough, each under a name that is another one tomorrow."""
        lasting = dict[str, float]()
        settings = self._settings
        looks = (
            (settings.lost_site_s, self._lost_sites(now)),
            (settings.sick_gpu_s, self._sick_gpus(now)),
            (settings.stuck_queue_s, self._stuck_queues(now)),
        )
        for least_s, found in looks:
            for name, alert in found if least_s > 0 else ():
                lasting[name] = self._since.get(name, now)
                if now - lasting[name] >= least_s:
                    yield f"{name}:{now // 86400:.0f}", alert
        self._since = lasting

    def _lost_sites(self, now: float) -> Iterator[Found]:
        hosts: dict[str, list[str]] = {}
        lost: dict[str, dict[str, str]] = {}
        for member in self._records.members.values():
            if member.lease is None and member.status not in (SiteStatus.GONE, SiteStatus.LOST):
                hosts.setdefault(member.site, []).append(member.id)
                if why := self._inventory.unseen(member.id):
                    lost.setdefault(member.site, {})[member.id] = why
        for site, unseen in lost.items():
            many = len(hosts[site]) > 1
            each = [f"{host}: {why}" if many else why for host, why in unseen.items()]
            told = "; ".join(each[:MOST_HOSTS])
            count = f"{len(unseen)} of {len(hosts[site])} hosts are not heard: " if many else ""
            rest = "; and more" if len(unseen) > MOST_HOSTS else ""
            text = f"site {site}: {count}{told}{rest}"
            yield f"alert/{AlertKind.SITE}/{site}", Alert(kind=AlertKind.SITE, text=text, at=now, site=site)

    def _sick_gpus(self, now: float) -> Iterator[Found]:
        for member, heard in self._inventory.members.items():
            for gpu in heard.report.ailing if heard.report is not None else ():
                where = f"{gpu.pool}:{gpu.host}:{gpu.gpu}".replace("/", ":")
                text = (
                    f"GPU {gpu.gpu} of {gpu.host} at {heard.site} ({gpu.pool}) takes no new work: {gpu.why}"
                )
                alert = Alert(kind=AlertKind.GPU, text=text, at=now, site=heard.site)
                yield f"alert/{AlertKind.GPU}/{member}:{where}", alert

    def _stuck_queues(self, now: float) -> Iterator[Found]:
        """Queues of which nothing runs, though a job could start."""
        index = self._records.index
        running = index.running_queues()
        for queue, count in index.pending_by_queue().items():
            first = self._startable(queue, now) if queue not in running else None
            if first is None:
                continue
            waits = "1 job waits" if count == 1 else f"{count} jobs wait"
            for_s = (now - first.submitted_at) // 1
            text = f"queue {queue}: nothing of it runs, and {waits}, for up to {format_duration(for_s)}; federator explain {first.id}"
            name = f"alert/{AlertKind.QUEUE}/{queue.replace('/', ':')}"
            yield name, Alert(kind=AlertKind.QUEUE, text=text, at=now, queue=queue)

    def _startable(self, queue: str, now: float) -> Job | None:
        """The oldest job of the queue that waits for nothing but room."""

        def waits(cell: tuple[str, str, JobStatus, str]) -> bool:
            return cell[1] == queue and cell[2] is JobStatus.PENDING

        for name in self._records.index.oldest(FIRST_JOBS, waits):
            job = self._records.jobs[name]
            if (job.not_before_at or 0.0) <= now and self._eligible(job):
                return job
        return None
