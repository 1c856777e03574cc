"""Where a job may run, as its file says: kinds of sites, sites, labels, and how its nodes lie to each other."""

import msgspec

from federator.kernel.errors import Invalid
from federator.model.jobs import PlacementConstraints
from federator.model.sites import SiteKind
from federator.wire import fields

KINDS = tuple(SiteKind)


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


def read_placement(value: object, path: str) -> PlacementConstraints:
    """A job's `placement`. Raises `Invalid`."""
    given = fields.mapping(value, path)
    fields.known_only(
        given,
        path,
        ("kinds", "sites", "not_sites", "labels", "together"),
        {"kind": "kinds", "site": "sites"},
    )
    placement = PlacementConstraints(
        kinds=fields.words(
            given.get("kinds", ()), f"{path}.kinds", lambda word, at: fields.one_of(word, at, KINDS)
        ),
        sites=fields.words(given.get("sites", ()), f"{path}.sites", fields.name),
        not_sites=fields.words(given.get("not_sites", ()), f"{path}.not_sites", fields.name),
        labels=read_labels(given["labels"], f"{path}.labels") if "labels" in given else {},
        together=fields.text(given["together"], f"{path}.together", limit=100)
        if "together" in given
        else msgspec.UNSET,
    )
    if placement.sites and set(placement.sites) <= set(placement.not_sites):
        raise Invalid(
            "excludes every site that placement.sites names",
            field=f"{path}.not_sites",
            remedy="leave one of the two out",
        )
    return placement
