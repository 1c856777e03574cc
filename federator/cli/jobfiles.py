"""Job files on this machine: found, read with line numbers, and their folder told apart from what is sent.

They are checked here first, so that a mistake is reported with its line before anything is uploaded; the dispatcher checks
again, with its own clock.
"""

import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from federator.cli.job_options import JobOptions
from federator.cli.phrases import plain
from federator.kernel.errors import Invalid, Permanent
from federator.wire.faults import every_fault, in_lines, line_at, raise_all
from federator.wire.jobfile import BLOB_PREFIX, JobRequest, read_job
from federator.wire.jsontext import decode_json
from federator.wire.named_files import read_text
from federator.wire.servicefile import ServiceRequest
from federator.wire.steps import KEY, has_steps, read_steps
from federator.wire.yamltext import Document, read_documents, write_document

if TYPE_CHECKING:
    from federator.client import Verbs

STDIN = Path("-")
T = TypeVar("T")
Read = Callable[..., JobRequest | ServiceRequest]
"""Of a decoded file, with the time as `now`."""
LINES = (".ndjson", ".jsonl")
SCRIPTS = (".sbatch", ".slurm")
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
    folders: Mapping[str, Path] = {}
    """Of a pipeline, the folder that goes with each step; that of the empty name with all others."""

    def text(self) -> str:
        """The job file, as YAML."""
        folder = {} if self.workdir is None else {"workdir": str(self.workdir)}
        return write_document({**folder, **self.document})

    async def uploaded(self, client: "Verbs") -> "WrittenJob":
        """With the folders of a pipeline at the dispatcher; each is packed once."""
        hashes = {
            folder: f"{BLOB_PREFIX}{(await client.upload(folder)).hash}"
            for folder in dict.fromkeys(self.folders.values())
        }
        document = self.document
        for step, folder in self.folders.items():
            document = _with_workdir(document, step, hashes[folder])
        return self._replace(document=document, folders={})

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


def read_jobs(path: Path, options: JobOptions | None = None, read: Read = read_job) -> list[WrittenJob]:
    """All jobs of a file, each with the options over it; of a batch script, the job that it comes to. Raises `Invalid` with file and line, or an ExceptionGroup of all that is wrong."""
    if options is not None:
        options.check()
    text, folder = _read(path)
    jobs: list[WrittenJob] = []
    documents, faults, notes = _read_documents(path, text)
    for document in documents:
        if document.value is not None:
            try:
                job = checked(_changed(document, options), folder, read)
                soft = ("notify",) if is_script(path, text) else ()
                jobs.append(job._replace(file=path, notes=(*notes, *job.notes), soft=soft))
            except Permanent as fault:
                faults.append(fault)
            except ExceptionGroup as group:
                faults += group.exceptions  # type: ignore[arg-type]
    if len(jobs) > 1 and any(has_steps(job.document) for job in jobs):
        faults.append(
            Invalid("holds a pipeline and other jobs", remedy="write the pipeline into a file of its own")
        )
    raise_all([type(f)(f"{_called(path)}, {f.message}", field=f.field, remedy=f.remedy) for f in faults])
    if not jobs:
        raise Invalid(f"{_called(path)} holds no job", remedy="write at least 'run: …'")
    return jobs


def is_script(path: Path, text: str) -> bool:
    """Whether a file is a script and no job file: by its first line, or its name."""
    return text.startswith("#!") or path.suffix in SCRIPTS


def _read_documents(path: Path, text: str) -> tuple[list[Document], list[Permanent], list[str]]:
    """What is in it, what is wrong with it, and what of it is left out."""
    if path.suffix in LINES:
        return *_lines(text), []
    if not is_script(path, text):
        return *_documents(text), []
    from federator.cli.batch_scripts import read_script

    try:
        document, notes = read_script(path, text)
    except Permanent as fault:
        return [], [fault], []
    return [document], [], notes


def _changed(document: Document, options: JobOptions | None) -> Document:
    if options is None or not isinstance(document.value, dict):
        return document
    return document._replace(value=options.over(document.value))


def read_one(path: Path, options: JobOptions | None = None, read: Read = read_job) -> WrittenJob:
    """The only job of a file, with the options over it; or what else `read` reads there."""
    jobs = read_jobs(path, options, read)
    if len(jobs) != 1:
        raise Invalid(f"{_called(path)} holds {len(jobs)} jobs", remedy="name a file with one")
    return jobs[0]


def checked(document: Document, folder: Path, read: Read = read_job) -> WrittenJob:
    """A job, or a pipeline, that would be accepted as far as can be known here; its `workdir` is relative to `folder`. Raises as `read_jobs`."""
    if isinstance(document.value, dict) and has_steps(document.value):
        return _checked_steps(document, document.value, folder)
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
    faults = every_fault(lambda value: read(value, now=0.0), document.value) + missing
    raise_all(in_lines(document, faults))
    assert isinstance(value, dict)
    notes = read(document.value, now=0.0).notes
    kept = {key: entry for key, entry in value.items() if key != "workdir" or workdir is None}
    return WrittenJob(kept, workdir, document.lines["$"], notes, document.lines)


def _checked_steps(document: Document, value: dict[str, object], folder: Path) -> WrittenJob:
    folders: dict[str, Path] = {}
    missing: list[Permanent] = []
    written = value[KEY]
    for step, part in (("", value), *(written.items() if isinstance(written, dict) else ())):
        named = part.get("workdir") if isinstance(part, dict) else None
        if isinstance(named, str) and not named.startswith(BLOB_PREFIX):
            folders[step] = folder / Path(named).expanduser()
            value = _with_workdir(value, step, PLACEHOLDER)
            if not folders[step].is_dir():
                field = f"$.{KEY}.{step}.workdir" if step else "$.workdir"
                missing += [
                    Invalid(f"there is no folder {folders[step]}", field=field, remedy="name one that exists")
                ]
    raise_all(in_lines(document, every_fault(lambda value: read_steps(value, now=0.0), value) + missing))
    notes = (note for step in read_steps(value, now=0.0).steps for note in step.request.notes)
    return WrittenJob(
        value, None, document.lines["$"], tuple(dict.fromkeys(notes)), document.lines, folders=folders
    )


def _with_workdir(document: dict[str, object], step: str, workdir: str) -> dict[str, object]:
    """With that of a step; of the empty name, that beside the steps."""
    if not step:
        return {**document, "workdir": workdir}
    steps = document[KEY]
    assert isinstance(steps, dict)
    return {**document, KEY: {**steps, step: {**steps[step], "workdir": workdir}}}


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
