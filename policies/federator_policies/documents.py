"""Policy documents: from YAML text to one set of rules, or to a sentence that says which line is wrong and what would be right."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from federator.kernel.errors import Invalid, Permanent, TooLarge
from federator.model.rules import PolicyDocument, PolicyRule
from federator.ports import PolicyKind
from federator.wire.decoding import decode
from federator.wire.faults import every_fault, in_lines, raise_all
from federator.wire.fields import name as read_name
from federator.wire.yamltext import Document as Written
from federator.wire.yamltext import read_documents
from federator_policies import (
    allotment,
    budget,
    burst,
    calendar,
    dataset,
    licenses,
    links,
    power,
    preemption,
    queue,
    reservation,
    residency,
    team,
)
from federator_policies.consistency import check_rules, completed

API_VERSION = "federator/v1"
KINDS: Mapping[str, PolicyKind] = {
    each.kind: each
    for each in (
        queue.kind,
        burst.kind,
        budget.kind,
        preemption.kind,
        calendar.kind,
        dataset.kind,
        links.kind,
        licenses.kind,
        power.kind,
        residency.kind,
        reservation.kind,
        team.kind,
        allotment.kind,
    )
}
MAX_DOCUMENTS = 1000
_SEPARATOR = re.compile(r"---(\s|$)")


class Metadata(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a document is called."""

    name: str


class Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"api_version": "apiVersion"}):
    """What every document has; `spec` is its kind's."""

    api_version: str
    kind: str
    metadata: Metadata
    spec: object = {}


class Document(NamedTuple):
    """One document, with the line of every value for errors and the text that was written for history."""

    kind: str
    name: str
    spec: object
    lines: Mapping[str, int]
    text: str

    @property
    def policy(self) -> str:
        """What its rules are called after: `Kind/name`."""
        return f"{self.kind}/{self.name}"

    def stored(self) -> PolicyDocument:
        """As it is kept with the set."""
        return PolicyDocument(self.kind, self.name, self.text)


def load(text: str) -> tuple[Document, ...]:
    """All documents of a YAML text; empty ones are left out. Raises `Invalid` with line and path, or an ExceptionGroup of several.

    Where one document is none, all that is wrong with the others by themselves is told, too.
    """
    written = [each for each in read_documents(text) if each.value is not None and each.value != {}]
    if len(written) > MAX_DOCUMENTS:
        raise TooLarge(f"the file has {len(written)} documents; at most {MAX_DOCUMENTS} are taken")
    rows = text.splitlines()
    faults = [_envelope_faults(each.value) for each in written]
    if any(faults):
        told = zip(written, faults, strict=True)
        raise_all([fault for each, found in told for fault in _told(each, found, rows)])
    return tuple(_document(each, rows) for each in written)


def compile_set(documents: Sequence[Document]) -> tuple[PolicyRule, ...]:
    """The rules of a whole set, in the order of its documents, and the `default` queue if no document has it.

    Raises `Invalid` or `NotSupported` with document, line and path, or an ExceptionGroup of all of them: for faults within documents, and
    where there are none, for documents that contradict each other.
    """
    named: dict[str, Document] = {}
    rules: list[PolicyRule] = []
    faults: list[Permanent] = []
    for document in documents:
        first = named.setdefault(document.policy, document)
        if first is not document:
            taken = Invalid(
                f"the name is taken by the document on line {first.lines['$']}",
                field="$.metadata.name",
                remedy="choose another name, or keep one of the two",
            )
            faults.append(located(document, taken))
            continue
        found = _faults(document)
        faults += [located(document, fault) for fault in found]
        if not found:
            rules += _kind(document).compile(document.name, document.spec)
    raise_all(faults)
    # One mistake shows in every rule that the document is compiled to.
    told = [located(named[fault.policy], fault.error) for fault in check_rules(rules)]
    raise_all(list({fault.describe(): fault for fault in told}.values()))
    return completed(rules)


def _faults(document: Document) -> list[Permanent]:
    """All that is wrong with one document by itself."""
    try:
        kind = _kind(document)
    except Permanent as fault:
        return [fault]

    def compiled(value: object) -> None:
        """Without a spec there is nothing left that could be wrong."""
        if isinstance(value, dict) and "spec" in value:
            kind.compile(document.name, value["spec"])

    return every_fault(compiled, {"spec": document.spec})


def located(document: Document, error: Permanent) -> Permanent:
    """The same error, with the document and the line in front."""
    line = _line(document.lines, error.field or "$")
    return type(error)(
        f"{document.policy}, line {line}: {error.message}", field=error.field, remedy=error.remedy
    )


def _envelope_faults(value: object) -> list[Permanent]:
    """All that is wrong with what a document is."""
    faults = every_fault(lambda each: decode(each, Envelope, "$"), value)
    given = value if isinstance(value, dict) else {}
    version, metadata = given.get("apiVersion"), given.get("metadata")
    if isinstance(version, str) and version != API_VERSION:
        faults.append(
            Invalid(f"{version!r} is not known", field="$.apiVersion", remedy=f"write {API_VERSION}")
        )
    if isinstance(metadata, dict) and isinstance(metadata.get("name"), str):
        try:
            read_name(metadata["name"], "$.metadata.name")
        except Permanent as fault:
            faults.append(fault)
    return faults


def _document(written: Written, rows: Sequence[str]) -> Document:
    envelope, lines = decode(written.value, Envelope, "$"), written.lines
    return Document(envelope.kind, envelope.metadata.name, envelope.spec, lines, _written(rows, lines["$"]))


def _told(written: Written, faults: list[Permanent], rows: Sequence[str]) -> list[Permanent]:
    """What is wrong with what a document is; then, as far as that can be known, with what it says."""
    if not faults:
        document = _document(written, rows)
        return [located(document, fault) for fault in _faults(document)]
    value = written.value
    kind = value.get("kind") if isinstance(value, dict) else None
    spec = value.get("spec", {}) if isinstance(value, dict) else {}
    if kind in KINDS:
        # Its name may be what is wrong with it.
        faults = [*faults, *_faults(Document(str(kind), "x", spec, written.lines, ""))]
    return in_lines(written, list({(fault.field, fault.message): fault for fault in faults}.values()))


def _kind(document: Document) -> PolicyKind:
    known = KINDS.get(document.kind)
    if known is not None:
        return known
    raise Invalid(
        f"{document.kind!r} is not a kind of policy",
        field="$.kind",
        remedy=f"known are {', '.join(sorted(KINDS))}",
    )


def _line(lines: Mapping[str, int], path: str) -> int:
    """The line of a path, or of the nearest thing above it that was written."""
    while path not in lines:
        cut = max(path.rfind("."), path.rfind("["))
        if cut <= 0:
            return lines["$"]
        path = path[:cut]
    return lines[path]


def _written(rows: Sequence[str], line: int) -> str:
    """The document around that line, comments included, without the separators."""
    begin = line - 1
    while begin > 0 and not _SEPARATOR.match(rows[begin]) and not _SEPARATOR.fullmatch(rows[begin - 1]):
        begin -= 1
    end = line
    while end < len(rows) and not _SEPARATOR.match(rows[end]):
        end += 1
    return "\n".join(rows[begin:end]).strip("\n") + "\n"
