"""Settings of the `kubernetes` provider, and the offers that they make. Credentials are none of them: they are in the kubeconfig, or are those of the dispatcher's own pod."""

import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, field

from federator.kernel.errors import Invalid
from federator.model.capacity import Market, Offer
from federator.wire import fields
from federator.wire.decoding import decode
from federator_providers.offers import Described, Many, Span, Usd, described, offers_by_name

MAX_OFFERS = 1000
TEARDOWN_S = 10.0
"""From the order to end a pod until it has ended."""
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_OURS = {
    "pod": (
        "containers",
        "restartPolicy",
        "nodeName",
        "activeDeadlineSeconds",
        "automountServiceAccountToken",
    ),
    "container": ("name", "image", "command", "resources", "lifecycle", "restartPolicy"),
}
"""What `pod` and `container` may not say, because the machine hangs on it, or another setting says it."""
Words = Annotated[tuple[fields.Text, ...], Meta(min_length=1, max_length=100)]


class KubernetesOfferSettings(Described, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Nodes of one pool: a machine is a pod that asks for all that a node has. `cpus` and `memory` are what it asks for: less than a node has, for the cluster's own pods run there, too."""

    node_selector: fields.Labels = field(default_factory=dict)
    """Labels of the pool's nodes."""
    market: Literal["on-demand", "spot"] = "on-demand"
    """How the pool's nodes are paid for: those of a spot pool may be taken back."""
    boot_delay_s: Annotated[float, fields.duration("6m", low_s=1.0)] = field(name="boot_delay", default=360.0)
    """From launch until the agent has joined, where a node has to be added first. A pod that has no node after twice that is given up. Left out: `6m`."""
    max_instances: Many = 4
    """How many there may be at once."""


class KubernetesSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Everything that the provider needs to know."""

    kubeconfig: fields.FilePath | None = None
    """Where the cluster is, and who the dispatcher is there. Left out: the dispatcher is a pod of the cluster, and has that pod's account."""
    context: str = ""
    """Which context of the kubeconfig. Left out: its current one."""
    namespace: fields.Text = "federator-machines"
    """Where the machines' pods are."""
    image: fields.Text
    """Container image with the agent, of the dispatcher's version, and what jobs need."""
    command: Words = ("federator-agent", "serve")
    """What the pod runs: the agent. When it ends, the machine has ended."""
    gpu_resource: fields.Text = "nvidia.com/gpu"
    """What GPUs are called as a resource of nodes."""
    offers: Annotated[tuple[KubernetesOfferSettings, ...], Meta(min_length=1, max_length=MAX_OFFERS)]
    """What may be rented."""
    scale_down_s: Span = field(name="scale_down", default=600.0)
    """For how long the autoscaler keeps a node that nobody uses: it is billed, too. Left out: `10m`."""
    pod: dict[str, Any] = {}
    """More of the pod's spec, in Kubernetes' words: mappings are merged, lists added, `null` takes away."""
    container: dict[str, Any] = {}
    """The same of its container."""
    region: fields.Text = "kubernetes"
    """The region that the offers are in."""
    egress_usd_per_gib: Usd = 0.0
    """Price of a GiB that leaves a machine."""


class KubernetesConfiguration(msgspec.Struct, frozen=True):
    """The settings, checked and with units resolved."""

    given: KubernetesSettings
    offers: dict[str, Offer]
    selectors: dict[str, dict[str, str]]
    """Labels of the nodes of each offer, by its name."""


def read_settings(provider: str, settings: object) -> KubernetesConfiguration:
    """Check `settings` of the provider of that name. Raises `Invalid` whose field starts at `$.providers.NAME.settings`."""
    path = f"$.providers.{provider}.settings"
    given = decode(settings, KubernetesSettings, path)
    if not _NAMESPACE.fullmatch(given.namespace):
        remedy = "use up to 63 small letters, digits and '-', at both ends no '-'"
        raise Invalid(f"{given.namespace!r} cannot be one", field=f"{path}.namespace", remedy=remedy)
    for part, ours in _OURS.items():
        for key in ours:
            if key in getattr(given, part):
                raise Invalid("is the provider's own", field=f"{path}.{part}.{key}", remedy="leave it out")
    selectors: dict[str, dict[str, str]] = {}

    def make(entry: KubernetesOfferSettings, at: str) -> list[Offer]:
        offer = described(
            entry,
            at,
            region=given.region,
            market=Market(entry.market),
            provider=provider,
            delay_s=entry.boot_delay_s,
            teardown_s=TEARDOWN_S + given.scale_down_s,
            available=entry.max_instances,
            egress_usd_per_gib=given.egress_usd_per_gib,
        )
        selectors[offer.name] = entry.node_selector
        return [offer]

    offers = offers_by_name(given.offers, make, f"{path}.offers")
    return KubernetesConfiguration(given, offers, selectors)
