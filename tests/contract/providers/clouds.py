"""The providers that are held against contracts, each with one kind of machine, and what each says of it."""

import asyncio
from pathlib import Path

import msgspec

from federator.kernel.clock import Clock
from federator.model.capacity import Market, Offer, Stock
from federator.ports import Provider
from federator_providers.aws import provider as aws_provider
from federator_providers.azure import provider as azure_provider
from federator_providers.gce import provider as gce_provider
from federator_providers.kubernetes import provider as kubernetes_provider
from federator_providers.local import provider as local_provider
from federator_providers.ssh import SshProvider
from federator_providers.ssh.address import Address
from federator_providers.ssh.host import Answer, Question, answer
from federator_providers.ssh.settings import read_settings
from tests.testbeds.azure import IMAGE as AZURE_IMAGE
from tests.testbeds.azure import SUBNET, SUBSCRIPTION, AzureServer
from tests.testbeds.ec2 import IMAGE
from tests.testbeds.gce import IMAGE as GCE_IMAGE
from tests.testbeds.gce import PROJECT, GceServer
from tests.testbeds.kubernetes.virtual import VirtualCluster

PRICE_USD_H = 3.6  # a tenth of a cent a second
BOTH: dict[str, object] = {"market": ["on-demand", "spot"], "spot_price_usd_h": 1.2}
"""What makes the machine one that is sold as spot, too."""
ONE: dict[str, object] = {}
OFFER = Offer(
    name="local/box/on-demand",
    provider="p",
    region="local",
    instance_type="box",
    market=Market.ON_DEMAND,
    model="A100",
    gpu_memory_mib=40960,
    gpus=2,
    cpus_milli=4000,
    memory_mib=16384,
    price_usd_h=PRICE_USD_H,
    delay_s=120.0,
    teardown_s=10.0,
    minimum_billing_s=60.0,
    available=2,
)

AWS_OFFER = msgspec.structs.replace(
    OFFER,
    name="us-east-1/g5.xlarge/on-demand",
    region="us-east-1",
    instance_type="g5.xlarge",
    model="A10G",
    gpu_memory_mib=24576,
    gpus=1,
    teardown_s=60.0,
    egress_usd_per_gib=0.09,
)

GCE_OFFER = msgspec.structs.replace(
    OFFER,
    name="us-central1/g2-standard-4/on-demand",
    region="us-central1",
    instance_type="g2-standard-4",
    model="L4",
    gpu_memory_mib=24576,
    gpus=1,
    teardown_s=60.0,
    egress_usd_per_gib=0.12,
)

AZURE_OFFER = msgspec.structs.replace(
    OFFER,
    name="eastus/Standard_NC4as_T4_v3/on-demand",
    region="eastus",
    instance_type="Standard_NC4as_T4_v3",
    model="T4",
    gpu_memory_mib=16384,
    gpus=1,
    memory_mib=28672,
    teardown_s=60.0,
    egress_usd_per_gib=0.087,
    stock=Stock("NCas_T4_v3 on-demand", limit=8, each=4, used=0, unit="vCPUs"),
)

SSH_OFFER = msgspec.structs.replace(OFFER, name="ssh/box/on-demand", region="ssh")
KUBERNETES_OFFER = msgspec.structs.replace(OFFER, name="kubernetes/box/on-demand", region="kubernetes")
AWS_ZONES, GCE_ZONES, AZURE_ZONES = (
    ("us-east-1a", "us-east-1b"),
    ("us-central1-a", "us-central1-b"),
    ("1", "2"),
)
BOX = {
    "instance_type": "box",
    "model": "A100",
    "gpu_memory": "40GiB",
    "gpus": 2,
    "cpus": 4,
    "memory": "16GiB",
    "price_usd_h": PRICE_USD_H,
    "boot_delay": "120s",
}


class Homes:
    """Machines of which each has a folder here. They are asked in threads, in place of over a connection."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def ask(self, machine: Address, question: Question) -> Answer:
        """What the program at the machine answers."""
        at_home = msgspec.structs.replace(question, state_dir=str(self.folder / machine.host))
        return await asyncio.to_thread(answer, at_home)


def make_ssh(folder: Path, clock: Clock) -> Provider:
    box = BOX | {"machines": ["one", "two"]}
    settings = {"command": ["/bin/sh", "-c", "sleep 300"], "offers": [box]}
    return SshProvider("p", read_settings("p", settings), clock, Homes(folder))


def make_local(
    state_dir: Path, clock: Clock, markets: dict[str, object] = ONE, **settings: object
) -> Provider:
    """`settings`: further ones, or others."""
    own: dict[str, object] = {
        "state_dir": str(state_dir),
        "command": ["/bin/sh", "-c", "sleep 300"],
        "offers": [BOX | {"max_instances": 2} | markets],
    }
    return local_provider("p", own | settings, clock)


def make_aws(url: str, clock: Clock, markets: dict[str, object] = ONE) -> Provider:
    box = {"instance_type": "g5.xlarge", "price_usd_h": PRICE_USD_H, "boot_delay": "120s", "max_instances": 2}
    settings: dict[str, object] = {
        "region": "us-east-1",
        "zones": AWS_ZONES,
        "image": IMAGE,
        "offers": [box | markets],
        "endpoint_url": url,
    }
    return aws_provider("p", settings, clock)


def make_gce(server: GceServer, clock: Clock, markets: dict[str, object] = ONE) -> Provider:
    box = {
        "instance_type": "g2-standard-4",
        "price_usd_h": PRICE_USD_H,
        "boot_delay": "120s",
        "max_instances": 2,
    }
    settings: dict[str, object] = {
        "project": PROJECT,
        "region": "us-central1",
        "zones": GCE_ZONES,
        "image": GCE_IMAGE,
        "offers": [box | markets],
        "endpoint_url": server.url,
    }
    return gce_provider("p", settings, clock)


def make_azure(server: AzureServer, clock: Clock, markets: dict[str, object] = ONE) -> Provider:
    box = {"price_usd_h": PRICE_USD_H, "boot_delay": "120s", "max_instances": 2}
    settings: dict[str, object] = {
        "subscription": SUBSCRIPTION,
        "resource_group": "burst",
        "region": "eastus",
        "zones": AZURE_ZONES,
        "image": AZURE_IMAGE,
        "subnet": SUBNET,
        "ssh_public_key": "ssh-ed25519 AAAA",
        "offers": [box | {"instance_type": "Standard_NC4as_T4_v3"} | markets],
        "endpoint_url": server.url,
    }
    return azure_provider("p", settings, clock)


def make_kubernetes(
    cluster: VirtualCluster, clock: Clock, more: tuple[dict[str, object], ...] = ()
) -> Provider:
    settings: dict[str, object] = {
        "kubeconfig": str(cluster.kubeconfig),
        "image": "federator.test/agent:1",
        "scale_down": "0s",
        "offers": [BOX | {"max_instances": 2} | each for each in ({}, *more)],
    }
    return kubernetes_provider("p", settings, clock)
