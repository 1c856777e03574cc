"""Where a job may run, as its file says: kinds of sites, sites, labels, and how its nodes lie to each other."""

from typing import Annotated, ClassVar

import msgspec

from federator.kernel.errors import Invalid
from federator.model.jobs import APART, ON_ONE_HOST, PlacementConstraints
from federator.model.sites import SiteKind
from federator.wire import fields
from federator.wire.nearest import nearest

NEARLY = 0.85


def read_labels(value: object, path: str) -> dict[str, str]:
    """Free words, of bearable length. Raises `Invalid`."""
    labels = fields.pairs(value, path, limit=64)
    for key, label in labels.items():
        if len(key) > 100 or len(label) > 200:
            raise Invalid(
                "is too long",
                field=f"{path}.{key[:80]}",
                remedy="use at most 100 characters for a key and 200 for its value",
            )
    return labels


def read_together(value: object, path: str) -> str:
    """One of two words, or the name of a label; a label is not called nearly as one of the words."""
    word = fields.text(value, path, limit=100)
    words = (ON_ONE_HOST, APART)
    near = nearest(word.lower(), words, NEARLY)
    if word not in words and near:
        raise Invalid(
            f"{fields.shown(word)} is not known here",
            field=path,
            remedy=f"did you mean {near}? write host, spread, or the name of a label such as rack",
        )
    return word


Labels = Annotated[
    dict[str, str], fields.written(read_labels, "{region: eu}", **fields.PAIRS, maxProperties=64)
]
Names = Annotated[tuple[fields.Name, ...], fields.alone()]


class Placement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where it may run; all that is given must hold."""

    elsewhere: ClassVar = {"kind": "kinds", "site": "sites"}

    kinds: Annotated[tuple[SiteKind, ...], fields.alone()] = ()
    """Kinds of sites. Left out: any."""
    sites: Names = ()
    """Only these sites."""
    not_sites: Names = ()
    """Any site but these."""
    labels: Labels = {}
    """Only sites with these labels."""
    together: Annotated[str, fields.written(read_together, "host", "spread", "rack")] | msgspec.UnsetType = (
        msgspec.UNSET
    )
    """How a gang's nodes lie: all on one host; each on a host of its own; or, by any other word, on hosts whose label of that name is the same. Left out: as it comes."""


def placement_of(placement: Placement) -> PlacementConstraints:
    """As a spec has it. Raises `Invalid` for what admits no site."""
    if placement.sites and set(placement.sites) <= set(placement.not_sites):
        raise Invalid(
            "excludes every site that placement.sites names",
            field="$.placement.not_sites",
            remedy="leave one of the two out",
        )
    return PlacementConstraints(**msgspec.structs.asdict(placement))
