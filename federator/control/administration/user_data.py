"""What a rented machine is started with: its site file, and with it whom to dial, whom to believe there, and how to join. A secret."""

from pathlib import Path

import msgspec

from federator.control.administration.admission import Admission
from federator.control.leases.executor import UserData
from federator.kernel.quantities import format_mib
from federator.model.capacity import RENTED_POOL, Lease
from federator.model.sites import SiteKind
from federator.settings import Settings


def user_data(admission: Admission, settings: Settings, address: str) -> UserData:
    """What a rented instance is started with: where to dial, what it is, and a one-time token. A secret."""

    async def make(lease: Lease) -> str:
        given = settings.providers[lease.provider]
        offer = lease.offer
        secret = await admission.make_join_token(
            given.site,
            SiteKind.CLOUD,
            region=offer.region,
            provider=lease.provider,
            lease=lease.id,
            member=lease.member,
            expires_in_s=offer.delay_s + settings.leases.join_within_s,
        )
        pool = {
            "name": RENTED_POOL,
            "shared": offer.gpus if offer.shared else 0,
            "model": offer.model,
            "gpu_memory": format_mib(offer.gpu_memory_mib),
            "nodes": 1,
            "gpus_per_node": offer.gpus,
            "cpus_per_node": offer.cpus_milli // 1000,
            "memory_per_node": format_mib(offer.memory_mib),
        }
        document = {
            "dispatcher": address,
            "join_token": secret,
            **_authority(settings),
            "clock": settings.clock,
            "site": given.site,
            "member": lease.member,
            "kind": str(SiteKind.CLOUD),
            "region": offer.region,
            "labels": given.labels,
            "report_every": f"{settings.link.report_every_s:g}s",
            "pools": [pool],
        }
        # JSON is YAML.
        return msgspec.json.encode(document).decode() + "\n"

    return make


def _authority(settings: Settings) -> dict[str, str]:
    """The private authority to believe, if there is one: its text, because the machine has no file of ours."""
    return {"ca": Path(settings.server.ca).read_text()} if settings.server.ca else {}
