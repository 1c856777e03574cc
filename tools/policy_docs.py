"""The reference of policies: every kind, with the records that its documents are made of. What several kinds share is told with each."""

import importlib
import re
from collections.abc import Callable, Mapping

from tools.record_docs import Record, one_line, page, records

SHARED = ("hours", "whose", "residency")
"""Modules whose records are in documents of other kinds, too."""


def policies(record_table: Callable[[Record, Mapping[str, Record]], str]) -> str:
    """The kinds of policies, record by record."""
    text = [
        "# Policies",
        (
            "YAML documents with `apiVersion: federator/v1`, `kind`, `metadata: {name}` and `spec`, applied as one set. "
            "`policies/examples` has commented sets to start from."
        ),
    ]
    from federator_policies.documents import KINDS

    shared: dict[str, Record] = {}
    for name in SHARED:
        shared |= records(importlib.import_module(f"federator_policies.{name}"))
    for kind in KINDS.values():
        module = importlib.import_module(type(kind).__module__)
        top = f"{module.__name__.rpartition('.')[2].capitalize()}Spec"
        known = shared | records(module)
        text += [
            f"## {module.kind.kind}",
            one_line((module.__doc__ or "").partition(":")[2].split("\n\n")[0]).strip().capitalize(),
            record_table(known[top], known),
        ]
        for record in _inner(known[top], known):
            text += [f"### {record.name}", record.doc, record_table(record, known)]
    return page(text)


def _inner(record: Record, known: Mapping[str, Record]) -> list[Record]:
    """The records that a record is made of, each once, in the order in which they are met."""
    found: dict[str, Record] = {}
    for each in record.fields:
        for name in re.findall(r"\w+", each.annotation):
            if name in known and name not in found and name != record.name:
                found |= {name: known[name]} | {inner.name: inner for inner in _inner(known[name], known)}
    return list(found.values())
