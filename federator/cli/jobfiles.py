"""Job files on this machine: found, read with line numbers, and their folder told apart from what is sent.

They are checked here first, so that a mistake is reported with its line before anything is uploaded; the dispatcher checks
again, with its own clock.
"""

import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

from federator.cli.batch_scripts import is_script, read_script
from federator.cli.job_options import JobOptions
from federator.cli.phrases import plain
from federator.kernel.errors import Invalid, Permanent
from federator.wire.faults import every_fault, in_lines, line_at, raise_all
from federator.wire.jobfile import BLOB_PREFIX, read_job
from federator.wire.jsontext import decode_json
from federator.wire.named_files import read_text
from federator.wire.yamltext import Document, read_documents, write_document

STDIN = Path("-")
T = TypeVar("T")
LINES = (".ndjson", ".jsonl")
PLACEHOLDER = BLOB_PREFIX + "0" * 64


class WrittenJob(NamedTuple):
    """A job file as it will be sent, and the folder that goes with it."""

    document: dict[str, object]
    workdir: Path | None
    line: int = 1
    """Where it begins in its file."""
    notes: tuple[str, ...] = ()
    """What its author may not expect."""
    lines: Mapping[str, int] = {}
    """Of each value in it, by its path."""
    file: Path = STDIN
    soft: tuple[str, ...] = ()
    """Fields that it does without where the dispatcher refuses them: a script is not refused for its mail address."""

    def text(self) -> str:
        """The job file, as YAML."""
        folder = {} if self.workdir is None else {"workdir": str(self.workdir)}
        return write_document({**folder, **self.document})

    async def sent(self, send: Callable[[dict[str, object]], Awaitable[T]]) -> T:
        """What `send` answers to it; without those of its soft fields that are refused, which is said."""
        try:
            return await send(self.document)
        except Invalid as error:
            left = (error.field or "").removeprefix("$.")
            if left not in self.soft:
                raise
            print(f"note: {left} is left out: {plain(error.message)}", file=sys.stderr)
            document = {name: value for name, value in self.document.items() if name != left}
            return await self._replace(document=document).sent(send)

    def where(self, field: str) -> str:
        """File and line where that field is written, or what would hold it."""
        return f"{_called(self.file)}, line {self.line_of(field)}"

    def line_of(self, field: str) -> int:
        """Where that field is written, or what would hold it."""
        return line_at(self.lines or {"$": self.line}, field)

    @contextmanager
    def told_in_lines(self) -> Iterator[None]:
        """What the dispatcher refuses, with the file and its line in front."""
        try:
            yield
        except Permanent as error:
            if not error.field:
                raise
            message = f"{self.where(error.field)}: {error.message}"
            raise type(error)(message, field=error.field, remedy=error.remedy) from None


def read_jobs(path: Path, options: JobOptions | None = None) -> list[WrittenJob]:
    """All jobs of a file, each with the options over it; of a batch script, the job that it comes to. Raises `Invalid` with file and line, or an ExceptionGroup of all that is wrong."""
    if options is not None:
        options.check()
    text, folder = _read(path)
    jobs: list[WrittenJob] = []
    documents, faults, notes = _read_documents(path, text)
    for document in documents:
        if document.value is not None:
            try:
                job = checked(_changed(document, options), folder)
                soft = ("notify",) if is_script(path, text) else ()
                jobs.append(job._replace(file=path, notes=(*notes, *job.notes), soft=soft))
            except Permanent as fault:
                faults.append(fault)
            except ExceptionGroup as group:
                faults += group.exceptions  # type: ignore[arg-type]
    raise_all([type(f)(f"{_called(path)}, {f.message}", field=f.field, remedy=f.remedy) for f in faults])
    if not jobs:
        raise Invalid(f"{_called(path)} holds no job", remedy="write at least 'run: …'")
    return jobs


def _read_documents(path: Path, text: str) -> tuple[list[Document], list[Permanent], list[str]]:
    """What is in it, what is wrong with it, and what of it is left out."""
    if path.suffix in LINES:
        return *_lines(text), []
    if not is_script(path, text):
        return *_documents(text), []
    try:
        document, notes = read_script(path, text)
    except Permanent as fault:
        return [], [fault], []
    return [document], [], notes


def _changed(document: Document, options: JobOptions | None) -> Document:
    if options is None or not isinstance(document.value, dict):
        return document
    return document._replace(value=options.over(document.value))


def read_one(path: Path, options: JobOptions | None = None) -> WrittenJob:
    """The only job of a file, with the options over it."""
    jobs = read_jobs(path, options)
    if len(jobs) != 1:
        raise Invalid(f"{_called(path)} holds {len(jobs)} jobs", remedy="name a file with one")
    return jobs[0]


def checked(document: Document, folder: Path) -> WrittenJob:
    """A job that would be accepted as far as can be known here; its `workdir` is relative to `folder`. Raises as `read_jobs`."""
    value, workdir = document.value, None
    missing: list[Permanent] = []
    if (
        isinstance(value, dict)
        and isinstance(value.get("workdir"), str)
        and not value["workdir"].startswith(BLOB_PREFIX)
    ):
        workdir = folder / Path(value["workdir"]).expanduser()
        if not workdir.is_dir():
            missing = [
                Invalid(f"there is no folder {workdir}", field="$.workdir", remedy="name one that exists")
            ]
        document = document._replace(value={**value, "workdir": PLACEHOLDER})
    faults = every_fault(lambda value: read_job(value, now=0.0), document.value) + missing
    raise_all(in_lines(document, faults))
    assert isinstance(value, dict)
    notes = read_job(document.value, now=0.0).notes
    kept = {key: entry for key, entry in value.items() if key != "workdir" or workdir is None}
    return WrittenJob(kept, workdir, document.lines["$"], notes, document.lines)


def _called(path: Path) -> str:
    return "standard input" if path == STDIN else str(path)


def _read(path: Path) -> tuple[str, Path]:
    if path == STDIN:
        return sys.stdin.read(), Path()
    return read_text(path), path.parent


def _documents(text: str) -> tuple[list[Document], list[Permanent]]:
    try:
        return read_documents(text), []
    except Permanent as fault:
        return [], [fault]


def _lines(text: str) -> tuple[list[Document], list[Permanent]]:
    documents: list[Document] = []
    faults: list[Permanent] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                documents.append(Document(decode_json(line.encode()), {"$": number}))
            except Invalid as fault:
                faults.append(Invalid(f"line {number}: {fault.message}", remedy=fault.remedy))
    return documents, faults
