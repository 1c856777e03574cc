"""The kind `Dataset`: data that jobs read, how much it is, and where it lies.

A job that names it in `inputs` is planned where it is, or where bringing it costs less than waiting. Beside a `Links` document that says
what moving takes, nothing else is needed; data that nobody registers is taken for free.
"""

from typing import Annotated

import msgspec

from federator.kernel.errors import Invalid
from federator.model.datasets import DatasetRule, Spot
from federator.model.rules import Rule
from federator.wire import fields
from federator.wire.decoding import decode
from federator.wire.inputs import MAX_SIZE_MIB, Uri

MAX_REPLICAS = 1000


class Replica(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One place that has all of it. At least one of the two."""

    site: fields.Name = ""
    """At this site: jobs there read it at once."""
    region: Annotated[str, fields.short(100)] = ""
    """Anywhere in this region, as an object store is; with `site`, the region of a site that is not always connected."""


class DatasetSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`spec` of a `Dataset`."""

    uri: Uri
    """Its address, as jobs write it in `inputs`. What lies below it belongs to it; the longest address wins."""
    size: Annotated[int, fields.size("150GB", high_mib=MAX_SIZE_MIB, read=fields.size_bytes)] | None = None
    """How much it is, such as `150GB`: for inputs that do not say."""
    replicas: tuple[Replica, ...] = ()
    """Where it lies. The cheapest is taken, and of those the one that is there soonest."""
    labels: dict[str, str] = {}
    """Free words that `Residency` and `BurstPolicy` can select by."""


class DatasetKind:
    """Checks and compiles `Dataset` documents; see `federator.ports.PolicyKind`."""

    kind = "Dataset"
    spec = DatasetSpec

    def compile(self, name: str, spec: object) -> tuple[Rule, ...]:
        """One entry of the register."""
        given = decode(spec, DatasetSpec, "$.spec")
        if not given.replicas or len(given.replicas) > MAX_REPLICAS:
            raise Invalid(
                f"has {len(given.replicas)} entries",
                field="$.spec.replicas",
                remedy=f"write where it lies, 1 to {MAX_REPLICAS}, for example [{{region: eu-west}}]",
            )
        return (
            DatasetRule(
                policy=f"{self.kind}/{name}",
                uri=given.uri,
                size_bytes=given.size,
                replicas=tuple(_spot(each, f"$.spec.replicas[{n}]") for n, each in enumerate(given.replicas)),
                labels=given.labels,
            ),
        )


kind = DatasetKind()


def _spot(replica: Replica, path: str) -> Spot:
    if not replica.site and not replica.region:
        raise Invalid("is empty", field=path, remedy="write site or region")
    return Spot(replica.site, replica.region)
