"""The kind `Residency`: where certain data, or certain jobs, may be and where not.

It forbids and never permits: a job is told the policy, for each place that it keeps it from. It holds for owned and rented capacity alike.
"""

import msgspec

from federator.kernel.errors import Invalid
from federator.model.datasets import DataSelector
from federator.model.rules import Effect, Filter, PoolSelector, Rule
from federator.model.sites import SiteKind
from federator.wire.decoding import decode
from federator.wire.inputs import read_uri
from federator_policies.whose import Who, scope_of

KINDS = tuple(SiteKind)


class Data(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which data; what is not said admits all."""

    uris: tuple[str, ...] = ()
    """What lies at or below one of these addresses."""
    labels: dict[str, str] = {}
    """All of them must be labels of the `Dataset` that it belongs to."""


class Places(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where; all that is said must hold, and of each list one."""

    sites: tuple[str, ...] = ()
    """Sites by their names."""
    regions: tuple[str, ...] = ()
    """Regions of sites and of offers."""
    kinds: tuple[str, ...] = ()
    """`onprem`, `cloud` or `edge`."""


class ResidencySpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`spec` of a `Residency`. At least one of `data` and `who`, and one of `only` and `never`."""

    data: Data | None = None
    """Jobs that read any of this data; all jobs when it is not said."""
    who: Who = Who()
    """Jobs of these queues, owners and labels."""
    only: Places | None = None
    """They run here and nowhere else."""
    never: Places | None = None
    """They never run here."""
    reason: str = ""
    """Told to those whom it stops."""


class ResidencyKind:
    """Checks and compiles `Residency` documents; see `federator.ports.PolicyKind`."""

    kind = "Residency"
    spec = ResidencySpec

    def compile(self, name: str, spec: object) -> tuple[Rule, ...]:
        """A filter that denies all places but these, or these."""
        given = decode(spec, ResidencySpec, "$.spec")
        if given.data is None and given.who == Who():
            raise Invalid(
                "needs who or data",
                field="$.spec",
                remedy="write data: {uris: [s3://patients]}, or who: {queues: [clinic]}",
            )
        rule = Filter(
            policy=f"{self.kind}/{name}",
            effect=Effect.DENY,
            scope=scope_of(given.who),
            data=None if given.data is None else selector_of(given.data, "$.spec.data"),
            reason=given.reason,
        )
        ways = (("only", given.only, True), ("never", given.never, False))
        rules = [
            msgspec.structs.replace(rule, pools=_pools(places, f"$.spec.{field}"), beyond=beyond)
            for field, places, beyond in ways
            if places is not None
        ]
        if not rules:
            raise Invalid(
                "needs only or never",
                field="$.spec",
                remedy="write only: {regions: [eu-west]}, or never: {kinds: [cloud]}",
            )
        return tuple(rules)


kind = ResidencyKind()


def selector_of(data: Data, path: str) -> DataSelector:
    """What the records of a document come to. Raises `Invalid`."""
    uris = tuple(read_uri(uri, f"{path}.uris[{n}]") for n, uri in enumerate(data.uris))
    return DataSelector(uris=uris, labels=data.labels)


def _pools(places: Places, path: str) -> PoolSelector:
    if places == Places():
        raise Invalid("is empty", field=path, remedy="write sites, regions or kinds")
    for number, kind_of_site in enumerate(places.kinds):
        if kind_of_site not in KINDS:
            raise Invalid(
                f"{kind_of_site[:80]!r} is not a kind of site",
                field=f"{path}.kinds[{number}]",
                remedy=f"write one of {', '.join(KINDS)}",
            )
    return PoolSelector(sites=places.sites, regions=places.regions, kinds=places.kinds)
