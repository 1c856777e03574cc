"""Job files on this machine: found, read with line numbers, and their folder told apart from what is sent.

They are checked here first, so that a mistake is reported with its line before anything is uploaded; the dispatcher checks
again, with its own clock.
"""

import json
import sys
from pathlib import Path
from typing import NamedTuple

from federator.kernel.errors import FederatorError, Invalid
from federator.wire.jobfile import BLOB_PREFIX, read_job_document
from federator.wire.yamltext import Document, read_documents

STDIN = Path("-")
LINES = (".ndjson", ".jsonl")
PLACEHOLDER = BLOB_PREFIX + "0" * 64


class WrittenJob(NamedTuple):
    """A job file as it will be sent, and the folder that goes with it."""

    document: dict[str, object]
    workdir: Path | None


def read_jobs(path: Path) -> list[WrittenJob]:
    """All jobs of a file. Raises `Invalid` with file and line."""
    text, folder = _read(path)
    try:
        documents = _lines(text) if path.suffix in LINES else read_documents(text)
        jobs = [checked(document, folder) for document in documents if document.value is not None]
    except FederatorError as error:
        where = f"{path}, {error.message}"
        raise type(error)(where, field=error.field, remedy=error.remedy) from None
    if not jobs:
        raise Invalid(f"{path} holds no job", remedy="write at least 'run: …'")
    return jobs


def read_one(path: Path) -> WrittenJob:
    """The only job of a file."""
    jobs = read_jobs(path)
    if len(jobs) != 1:
        raise Invalid(f"{path} holds {len(jobs)} jobs", remedy="name a file with one")
    return jobs[0]


def checked(document: Document, folder: Path) -> WrittenJob:
    """A job that would be accepted as far as can be known here; its `workdir` is relative to `folder`."""
    value, workdir = document.value, None
    if (
        isinstance(value, dict)
        and isinstance(value.get("workdir"), str)
        and not value["workdir"].startswith(BLOB_PREFIX)
    ):
        workdir = folder / Path(value["workdir"]).expanduser()
        if not workdir.is_dir():
            line = document.lines.get("$.workdir", 1)
            raise Invalid(
                f"line {line}: there is no folder {workdir}", field="$.workdir", remedy="name one that exists"
            )
        document = document._replace(value={**value, "workdir": PLACEHOLDER})
    read_job_document(document, now=0.0)
    assert isinstance(value, dict)
    return WrittenJob(
        {key: entry for key, entry in value.items() if key != "workdir" or workdir is None}, workdir
    )


def _read(path: Path) -> tuple[str, Path]:
    if path == STDIN:
        return sys.stdin.read(), Path()
    try:
        return path.read_text(), path.parent
    except UnicodeDecodeError:
        raise Invalid(f"{path} is not text", remedy="write YAML in UTF-8") from None


def _lines(text: str) -> list[Document]:
    documents = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                documents.append(Document(json.loads(line), {"$": number}))
            except ValueError as error:
                raise Invalid(f"line {number}: this is not JSON: {error}") from None
    return documents
