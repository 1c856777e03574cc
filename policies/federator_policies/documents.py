"""Policy documents: from YAML text to one set of rules, or to a sentence that says which line is wrong and what would be right."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from federator.kernel.errors import Invalid, Permanent, TooLarge
from federator.model.rules import PolicyDocument, Rule
from federator.ports import PolicyKind
from federator.wire.faults import every_fault, raise_all
from federator.wire.fields import name as read_name
from federator.wire.records import decode
from federator.wire.yamltext import read_documents
from federator_policies import budget, burst, calendar, dataset, links, preemption, queue, residency
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
        residency.kind,
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
    """All documents of a YAML text; empty ones are left out. Raises `Invalid` with line and path, or an ExceptionGroup of several."""
    loaded: list[Document] = []
    faults: list[Permanent] = []
    for each in read_documents(text):
        if each.value is not None and each.value != {}:
            try:
                loaded.append(_document(each.value, each.lines, text))
            except Permanent as fault:
                faults.append(fault)
    raise_all(faults)
    if len(loaded) > MAX_DOCUMENTS:
        raise TooLarge(f"the file has {len(loaded)} documents; at most {MAX_DOCUMENTS} are taken")
    return tuple(loaded)


def compile_set(documents: Sequence[Document], kinds: Mapping[str, PolicyKind] = KINDS) -> tuple[Rule, ...]:
    """The rules of a whole set, in the order of its documents, and the `default` queue if no document has it.

    Raises `Invalid` or `NotSupported` with document, line and path, or an ExceptionGroup of all of them: for faults within documents, and
    where there are none, for documents that contradict each other.
    """
    named: dict[str, Document] = {}
    rules: list[Rule] = []
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
        found = _faults(document, kinds)
        faults += [located(document, fault) for fault in found]
        if not found:
            rules += _kind(document, kinds).compile(document.name, document.spec)
    raise_all(faults)
    # One mistake shows in every rule that the document is compiled to.
    told = [located(named[fault.policy], fault.error) for fault in check_rules(rules)]
    raise_all(list({fault.describe(): fault for fault in told}.values()))
    return completed(rules)


def _faults(document: Document, kinds: Mapping[str, PolicyKind]) -> list[Permanent]:
    """All that is wrong with one document by itself."""
    try:
        kind = _kind(document, kinds)
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


def _document(value: object, lines: Mapping[str, int], text: str) -> Document:
    try:
        envelope = decode(value, Envelope, "$")
        if envelope.api_version != API_VERSION:
            raise Invalid(
                f"{envelope.api_version!r} is not known", field="$.apiVersion", remedy=f"write {API_VERSION}"
            )
        name = read_name(envelope.metadata.name, "$.metadata.name")
    except Permanent as error:
        line = _line(lines, error.field or "$")
        raise type(error)(f"line {line}: {error.message}", field=error.field, remedy=error.remedy) from None
    return Document(envelope.kind, name, envelope.spec, lines, _written(text, lines["$"]))


def _kind(document: Document, kinds: Mapping[str, PolicyKind]) -> PolicyKind:
    known = kinds.get(document.kind)
    if known is not None:
        return known
    raise Invalid(
        f"{document.kind!r} is not a kind of policy",
        field="$.kind",
        remedy=f"known are {', '.join(sorted(kinds))}",
    )


def _line(lines: Mapping[str, int], path: str) -> int:
    """The line of a path, or of the nearest thing above it that was written."""
    while path not in lines:
        cut = max(path.rfind("."), path.rfind("["))
        if cut <= 0:
            return lines["$"]
        path = path[:cut]
    return lines[path]


def _written(text: str, line: int) -> str:
    """The document around that line, comments included, without the separators."""
    rows = text.splitlines()
    begin = line - 1
    while begin > 0 and not _SEPARATOR.match(rows[begin]) and not _SEPARATOR.fullmatch(rows[begin - 1]):
        begin -= 1
    end = line
    while end < len(rows) and not _SEPARATOR.match(rows[end]):
        end += 1
    return "\n".join(rows[begin:end]).strip("\n") + "\n"
