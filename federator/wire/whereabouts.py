"""Where a job may run, as its file says: kinds of sites, sites, labels, and how its nodes lie to each other."""

import msgspec

from federator.kernel.errors import Invalid
from federator.model.jobs import APART, ON_ONE_HOST, PlacementConstraints
from federator.model.sites import SiteKind
from federator.wire import fields
from federator.wire.nearest import nearest

KINDS = tuple(SiteKind)
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
        together=_together(given["together"], f"{path}.together") if "together" in given else msgspec.UNSET,
    )
    if placement.sites and set(placement.sites) <= set(placement.not_sites):
        raise Invalid(
            "excludes every site that placement.sites names",
            field=f"{path}.not_sites",
            remedy="leave one of the two out",
        )
    return placement


def _together(value: object, path: str) -> str:
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
