"""What ten million archived jobs cost: writing them through the archive's own writer, and asking for lists, one job and reports of use.

In a process of its own, whose largest memory is the figure: that of the archive alone, which a dispatcher has beside the rest.
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from federator.archive import ParquetArchive
from federator.model.archive import ArchivedJob, ArchiveFilter, ArchivePage, FilePart
from federator.store.blobs import FileBlobs
from tests.bench.figures import Better, Figure
from tests.bench.harness import Bench

JOBS = 10_000_000
FILE = 1_000_000
"""Rows to a file: so many a dispatcher puts together."""
SINCE_S, APART_S = 1_700_000_000.0, 3.0
"""When the first job was submitted, and how far they are apart: ten million are a year."""
MOST_RUNS = 1
NOTE = """\
Rows of jobs of 50 people in 20 queues, a job each 3 s for a year, with records of about a kilobyte each, most of it the same in all, so that they
compress better than real ones; in files of a million, as a dispatcher puts them together. Memory is the largest of a process that has the archive and nothing else, with DuckDB's limit of 256 MiB.
"""
TEXTS = {
    "job_json": '{"id":"%s","because":"it has succeeded","pad":"' + "x" * 300 + '"}',
    "spec_json": '{"command":["python","train.py"],"nodes":1,"pad":"' + "y" * 200 + '"}',
    "placements_json": '[{"job":"%s","site":"north","pool":"a100","pad":"' + "z" * 200 + '"}]',
    "events_json": '[{"job":"%s","status":"PENDING"},{"status":"RUNNING"},{"status":"SUCCEEDED"}]',
}


async def run(bench: Bench) -> list[Figure]:
    """Write, then ask."""
    command = [sys.executable, "-m", __name__, str(bench.folder), str(bench.many(JOBS))]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    found: dict[str, Any] = json.loads(done.stdout)
    asked = [Figure(f"archive, {name}", took_s * 1000, "ms") for name, took_s in found["asked_s"].items()]
    return [
        Figure("archive, rows written", found["jobs"] / found["wrote_s"], "rows/s"),
        Figure("archive, bytes of a row on disk", found["bytes"] / found["jobs"], "bytes"),
        Figure("archive, most memory while writing", found["writing_mb"], "MB", 1000, Better.LESS),
        *asked,
        Figure("archive, most memory", found["memory_mb"], "MB", 1000, Better.LESS),
    ]


def main(folder: Path, jobs: int) -> dict[str, Any]:
    """All of it in this process; the figures by name."""
    archive = ParquetArchive(FileBlobs(folder / "blobs"), folder)
    begun, parts, size = time.perf_counter(), list[FilePart](), 0
    for first in range(0, jobs, FILE):
        after = min(jobs, first + FILE)
        written = archive.write(_rows(first, after))
        parts.append(FilePart(written.digest, last=_id(after - 1)))
        size += written.size_bytes
    wrote_s, writing_mb = time.perf_counter() - begun, _memory_mb()
    late = ArchiveFilter(since_at=SINCE_S + APART_S * jobs * 0.99)
    year = ArchiveFilter(ended_since_at=SINCE_S, ended_until_at=SINCE_S + APART_S * (jobs + 10_000))
    questions: dict[str, Callable[[], object]] = {
        "list, the newest 100": lambda: archive.page(parts, ArchiveFilter(), ArchivePage()),
        "list --since, the last hundredth": lambda: archive.page(parts, late, ArchivePage()),
        "list by what was spent": lambda: archive.page(parts, ArchiveFilter(), ArchivePage(order="spent")),
        "list of one person's failed jobs": lambda: archive.page(
            parts, ArchiveFilter(owner="user-7", statuses=("FAILED",)), ArchivePage()
        ),
        "show, one job by id": lambda: archive.jobs(parts, ArchiveFilter(ids=(_id(jobs // 2),)), limit=1),
        "usage by user and month": lambda: archive.usage(parts, year, ("user", "month"), 10_000),
    }
    asked_s = {name: _timed(question) for name, question in questions.items()}
    archive.close()
    return {"jobs": jobs, "wrote_s": wrote_s, "bytes": size, "asked_s": asked_s, "writing_mb": writing_mb,
            "memory_mb": _memory_mb()}  # fmt: skip


def _id(number: int) -> str:
    return f"job-{number:026}"


def _rows(first: int, after: int) -> Iterator[ArchivedJob]:
    for number in range(first, after):
        at, failed = SINCE_S + APART_S * number, number % 17 == 0
        yield ArchivedJob(
            id=_id(number), name=f"train-{number % 1000}", owner=f"user-{number % 50}", team="vision",
            queue=f"research/{number % 20}", status="FAILED" if failed else "SUCCEEDED", array=None, array_index=None,
            series=None, site=f"site-{number % 5}", model="A100", submitted_at=at, started_at=at + number % 600,
            finished_at=at + number % 600 + 3600.0, deadline_at=None, priority=50, gpus=float(1 + number % 8),
            gpu_s=3600.0, spent_usd=number % 997 / 10, reason="failed" if failed else "", labels=[], missed_deadline=None,
            start_kept=number % 10 > 0, finish_kept=None, cost_kept=None, attempts=[f"pla-{number:026}"], blobs=[], outputs_json=None,
            client_key=None, client_json=None, line_json=None, sum_json=None, **{name: text.replace("%s", _id(number)) for name, text in TEXTS.items()},
        )  # fmt: skip


def _timed(question: Callable[[], object]) -> float:
    begun = time.perf_counter()
    assert question()
    return time.perf_counter() - begun


def _memory_mb() -> float:
    """The largest that this process has had resident."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


if __name__ == "__main__":
    json.dump(main(Path(sys.argv[1]), int(sys.argv[2])), sys.stdout)
