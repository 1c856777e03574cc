"""What clouds rent in the comparison: on-demand list prices per machine and hour, with the day and the source of each.

They are restated here, so that a figure can be computed again when prices have changed. Times are the design's: nine minutes from the launch until the agent
has joined, a minute of teardown.
"""

from typing import NamedTuple

from msgspec.structs import replace

from federator.model.capacity import Market, Offer

DELAY_S = 540.0
TEARDOWN_S = 60.0
AVAILABLE = 100
"""Machines of each kind that may be rented at once: what a large customer's quota might be."""
SOURCES = {
    "aws": "Amazon EC2, us-east-1, 2026-07-20, from aws/karpenter-provider-aws (Apache-2.0)",
    "gcp": "Google Compute Engine, us-central1, 2026-07-30, from Cyclenerd/google-cloud-pricing-cost-calculator (Apache-2.0)",
}
REGIONS = {"aws": "us-east-1", "gcp": "us-central1"}
SITES = {"aws": "aws-us-east-1", "gcp": "gcp-us-central1"}
"""The cloud site that a provider's machines join."""


class Machine(NamedTuple):
    """A kind of machine, as its cloud lists it. Memory in GiB, the GPUs' of each one."""

    provider: str
    instance: str
    gpus: int
    cpus: int
    ram_gib: int
    usd_h: float
    spot_usd_h: float


def _offers(model: str, gpu_memory_gib: int, *machines: Machine) -> tuple[Offer, ...]:
    return tuple(
        Offer(
            name=f"{machine.provider}/{machine.instance}",
            provider=machine.provider,
            region=REGIONS[machine.provider],
            instance_type=machine.instance,
            market=Market.ON_DEMAND,
            model=model,
            gpu_memory_mib=1024 * gpu_memory_gib,
            gpus=machine.gpus,
            cpus_milli=1000 * machine.cpus,
            memory_mib=1024 * machine.ram_gib,
            price_usd_h=machine.usd_h,
            delay_s=DELAY_S,
            teardown_s=TEARDOWN_S,
            available=AVAILABLE,
        )
        for machine in machines
    )


A100_MACHINES = (
    Machine("gcp", "a2-highgpu-1g", 1, 12, 85, 3.67339, 1.92802),
    Machine("gcp", "a2-highgpu-2g", 2, 24, 170, 7.34677, 3.85604),
    Machine("gcp", "a2-highgpu-4g", 4, 48, 340, 14.69354, 7.71208),
    Machine("aws", "p4d.24xlarge", 8, 96, 1152, 21.95764, 7.24602),
)
V100_MACHINES = (
    Machine("aws", "p3.2xlarge", 1, 8, 61, 3.06, 0.612),
    Machine("aws", "p3.8xlarge", 4, 32, 244, 12.24, 1.7136),
    Machine("aws", "p3.16xlarge", 8, 64, 488, 24.48, 4.1616),
)


A100, V100 = _offers("A100", 40, *A100_MACHINES), _offers("V100", 16, *V100_MACHINES)
SPOT_USD_H = {machine.instance: machine.spot_usd_h for machine in (*A100_MACHINES, *V100_MACHINES)}
"""Google's as published on that day. Amazon's is the on-demand price less the mean saving that its Spot Advisor gives (2025-06, alexei-led/spotinfo, Apache-2.0)."""


def on_spot(offers: tuple[Offer, ...]) -> tuple[Offer, ...]:
    """The same machines as the spot market has them."""
    return tuple(
        replace(
            offer,
            name=f"{offer.name}/spot",
            market=Market.SPOT,
            price_usd_h=SPOT_USD_H[offer.instance_type],
        )
        for offer in offers
    )


def usd_gpu_h(offers: tuple[Offer, ...]) -> float:
    """The cheapest GPU-hour among them."""
    return min(offer.price_usd_h / offer.gpus for offer in offers)
