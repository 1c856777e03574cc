"""Verbs about jobs: submit, list, show, and what may be done to them."""

import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter
from rich.console import RenderableType
from rich.text import Text

from federator.cli.arrays import ids_of, show_array
from federator.cli.columns import attempt_columns, event_columns
from federator.cli.exit_codes import EXITS, FAILED, USAGE
from federator.cli.finish_by import Agree, By, with_terms
from federator.cli.job_facts import job_facts
from federator.cli.job_options import AS_WRITTEN, JobOptions
from federator.cli.layout import table
from federator.cli.listing import AS_IT_COMES, JobsOutput, Listing, watched
from federator.cli.output import (
    Output,
    facts,
    say,
    say_error,
    show,
    show_data,
    status,
    width,
)
from federator.cli.phrases import moment_at, plain
from federator.cli.pipelines import steps_of
from federator.cli.sanitize import harmless
from federator.cli.series import begun, series_to_list, show_below
from federator.cli.session import HERE, Connection, JobName, ask
from federator.kernel.errors import Conflict, Invalid, NotFound
from federator.kernel.quantities import format_instant
from federator.model.events import Event
from federator.wire.addresses import names_array
from federator.wire.http import (
    ActedOn,
    ArrayDetail,
    JobDetail,
    JobPatch,
    JobRow,
    SeriesRow,
    SubmitResult,
    Submitted,
    Verb,
)

if TYPE_CHECKING:
    from federator.cli.jobfiles import WrittenJob
    from federator.client import Verbs

JobFile = Annotated[Path | None, Parameter(name=("-f", "--file"), help="The job file; - for standard input.")]
Yes = Annotated[
    bool,
    Parameter(
        name=("-y", "--yes"), negative="", help="Do not ask where a job without a checkpoint loses its work."
    ),
]
MANY = 20
"""So many jobs are told one by one; more are not."""


def the_file(file: Path | None, job_file: Path | None, verb: str) -> Path:
    """The one that was named, in whatever way. Raises `Invalid`."""
    path = job_file or file
    if path is None or (job_file and file):
        what = "no job file" if path is None else "two job files"
        raise Invalid(what, field="FILE", remedy=f"write federator {verb} job.yaml")
    return path


def submit(
    file: Path | None = None,
    /,
    *,
    job_file: JobFile = None,
    options: JobOptions = AS_WRITTEN,
    by: By = None,
    yes: Agree = False,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    to_yaml: Annotated[bool, Parameter(negative="")] = False,
    output: Output = "table",
    connection: Connection = HERE,
) -> int:
    """Submit the jobs of a file, and print their ids.

    A file is YAML with one job per document or with the `steps` of a pipeline, NDJSON with one job per line, or a batch script with `#SBATCH` lines. A `workdir` in it is
    taken relative to the file, packed (what .gitignore and .federatorignore exclude stays behind) and uploaded if the dispatcher does not have
    it yet. Options go before what the file says.

    Parameters
    ----------
    file:
        The job file; `-` for standard input.
    dry_run:
        Say what would become of it, as `federator preview` does.
    to_yaml:
        Print the job file that it comes to, and submit nothing.
    """
    from federator.cli.jobfiles import read_jobs

    path = the_file(file, job_file, "submit")
    jobs = read_jobs(path, options)
    for note in list(dict.fromkeys(note for job in jobs for note in job.notes))[:MANY]:
        print(f"note: {plain(note)}", file=sys.stderr)
    if to_yaml:
        print("---\n".join(job.text() for job in jobs), end="")
        return 0
    if dry_run:
        from federator.cli.explain import show_previews

        show_previews(jobs, output, connection)
        return 0
    if by is not None:
        if len(jobs) > 1:
            raise Invalid("is about one job", field="--by", remedy="submit the jobs one by one")
        agreed = with_terms(jobs[0].document, by, connection, yes=yes)
        if agreed is None:
            return FAILED
        jobs = [jobs[0]._replace(document=agreed)]
    submit_these = _submit_many if len(jobs) > 1 else _submit_one
    results, _ = ask(connection, lambda client: submit_these(client, jobs))
    return _show_submitted(results, output, jobs)


async def _submit_one(client: "Verbs", jobs: "list[WrittenJob]") -> list[SubmitResult]:
    from federator.cli.nowhere import nowhere_note

    job = jobs[0]
    with job.told_in_lines():
        job = await job.uploaded(client)
        submitted = await job.sent(partial(client.submit, workdir=job.workdir))
    if (
        submitted.jobs
        and not submitted.pipeline
        and (note := await nowhere_note(client, job.document, submitted.jobs[0]))
    ):
        print(f"note: {plain(note)}", file=sys.stderr)
    return [SubmitResult(1, submitted=submitted)]


async def _submit_many(client: "Verbs", jobs: "list[WrittenJob]") -> list[SubmitResult]:
    """Many at once, each accepted or refused by itself; a folder that several share is packed once."""
    folders = {job.workdir: await client.upload(job.workdir) for job in jobs if job.workdir is not None}
    documents = (
        {**job.document, "workdir": f"sha256:{folders[job.workdir].hash}"}
        if job.workdir is not None
        else job.document
        for job in jobs
    )
    return [result async for result in client.submit_many(documents)]


def _show_submitted(results: list[SubmitResult], output: Output, jobs: "list[WrittenJob]") -> int:
    """What became of each. A result's own number counts the jobs that were sent."""
    if output in ("json", "yaml"):
        show_data(
            [result.submitted or result.problem for result in results]
            if len(results) > 1
            else results[0].submitted,
            output,
        )
    refused = [jobs[result.line - 1].line for result in results if result.submitted is None]
    for result in results:
        if result.submitted is None:
            problem = result.problem
            path = problem.field or "" if problem else ""
            field = f"{path}: " if path else ""
            said = problem.detail if problem else "not answered"
            where = jobs[result.line - 1].where(path or "$")
            print(f"error: {plain(f'{field}{where}: {said}')}", file=sys.stderr)
        elif output in ("table", "wide"):
            print("\n".join(ids_of(result.submitted)) or result.submitted.name)
            _say_submitted(result.submitted, quiet=len(results) > MANY)
    if refused and len(results) > 1:
        where = ", ".join(str(line) for line in refused[:MANY]) + (", …" if len(refused) > MANY else "")
        which = "the jobs that begin at lines" if len(refused) > 1 else "the job that begins at line"
        print(
            f"{len(results) - len(refused)} of {len(results)} accepted; refused: {which} {where}",
            file=sys.stderr,
        )
    return USAGE if refused else 0


def _say_submitted(submitted: Submitted, *, quiet: bool) -> None:
    if quiet:
        return
    if submitted.series:
        say(begun(submitted))
    else:
        what = "was submitted before" if submitted.repeated else "submitted"
        tasks = f", {submitted.tasks} tasks" if submitted.tasks > 1 else ""
        tasks = f", {len(submitted.jobs)} steps" if submitted.pipeline else tasks
        say(f"{submitted.name} {what}{tasks}; next: federator show {submitted.name}")


def list_jobs(
    *,
    mine: Annotated[bool, Parameter(negative="")] = False,
    owner: str | None = None,
    queue: str | None = None,
    status: str | None = None,
    name: str | None = None,
    text: str | None = None,
    reason: str | None = None,
    at_risk: Annotated[bool, Parameter(negative="")] = False,
    since: str | None = None,
    until: str | None = None,
    site: str | None = None,
    array: str | None = None,
    series: str | None = None,
    pipeline: str | None = None,
    label: str | None = None,
    tasks: Annotated[bool, Parameter(negative="")] = False,
    limit: int = 50,
    listing: Listing = AS_IT_COMES,
    output: JobsOutput = "table",
    connection: Connection = HERE,
) -> None:
    """List jobs, newest first; an array is one line.

    Parameters
    ----------
    mine:
        Only your own.
    owner:
        Only of this person.
    queue:
        Only of this queue and those below it.
    status:
        Only with this status, or one of several: `RUNNING,PENDING`.
    name:
        Only of this name.
    text:
        Only with this somewhere in the name, or at the beginning of the id.
    reason:
        Only for a reason of this kind, such as `behind`; `-o json` shows it of each job.
    at_risk:
        Only jobs that are not over and are not expected to be done by their deadline.
    since:
        Only submitted in so long a time until now (`2h`), or since an instant.
    until:
        Only submitted before so long a time, or before an instant.
    site:
        Only at this site.
    array:
        Only the tasks of this array.
    series:
        Only the runs of this series.
    pipeline:
        Only the steps of this pipeline: of its name the newest, or by its id.
    label:
        Only with this label: `team=vision`.
    tasks:
        A line for each task of an array.
    limit:
        At most this many; 0 for all.
    """
    from federator.client import JobFilter

    if limit < 0:
        raise Invalid("must not be below 0", field="--limit", remedy="write 0 for all")
    listing.check(output)
    now = time.time()
    which = JobFilter(
        mine=mine,
        owner=owner,
        queue=queue,
        status=status.upper() if status else None,
        name=name,
        text=text,
        reason=reason,
        at_risk=at_risk,
        since=moment_at(since, "--since", now) if since else None,
        until=moment_at(until, "--until", now) if until else None,
        site=site,
        array=array,
        series=series,
        pipeline=pipeline,
        label=label,
        collapse=not (tasks or array),
    )

    async def collect(client: "Verbs") -> tuple[list[JobRow], int, list[SeriesRow]]:
        again = (
            output in ("table", "wide")
            and which == JobFilter(mine=mine, collapse=True)
            and listing == AS_IT_COMES
        )
        repeated = await series_to_list(client, mine=mine) if again else []
        rows, total = await listing.collected(client, which, limit)
        return rows, total, repeated

    if listing.watch:
        ask(
            connection,
            lambda client: watched(
                client, ("jobs", "plan"), partial(listing.drawn, client, which, limit, output)
            ),
        )
        return
    (rows, total, repeated), now = ask(connection, collect)
    listing.show(rows, now, output)
    if output != "parquet":
        show_below(repeated, now, output)
    if total > len(rows) and output in ("table", "wide"):
        say(f"{len(rows)} of {total}; --limit 0 for all")


def show_job(job: JobName, *, output: Output = "table", connection: Connection = HERE) -> None:
    """Show one job: where it is, what it asks for, what is expected of it, and what has happened. An array by its name is added up, a pipeline's steps are listed."""

    async def both(client: "Verbs") -> tuple[JobDetail | ArrayDetail | list[JobRow], list[Event]]:
        try:
            detail = await client.job(job)
        except NotFound as error:
            return await steps_of(client, job, error), []
        if names_array(job, detail.job):
            assert detail.job.array is not None
            return await client.array(detail.job.array), []
        return detail, list(await client.history(detail.job.id))

    (detail, events), now = ask(connection, both)
    if isinstance(detail, list):
        AS_IT_COMES.show(detail, now, output)
        return
    if isinstance(detail, ArrayDetail):
        show_array(detail, now, output)
        return
    if output in ("json", "yaml"):
        show_data(detail, output)
        return
    parts: list[RenderableType] = [facts(job_facts(detail, now)), *_attempts(detail, now)]
    if events:
        shown = events if output == "wide" else events[-10:]
        parts += ["", table(shown, event_columns(now), width=width(), wide=output == "wide")]
    show(*parts)


def _attempts(detail: JobDetail, now: float) -> Iterator[RenderableType]:
    """Of a job with several attempts, each; and how the log of the last that failed ends."""
    if len(detail.attempts) > 1:
        yield from ("", table(detail.attempts, attempt_columns(now), width=width(), wide=False))
    for each in detail.attempts:
        if each.last_lines:
            node = f" --node {each.last_lines_of}" if each.last_lines_of else ""
            verb = f"federator logs {detail.job.id} --attempt {each.attempt}{node}"
            yield from ("", Text(f"The log of attempt {each.attempt} ends so ({verb} has all of it):"))
            yield from (Text(f"  {harmless(line)}") for line in each.last_lines.splitlines())


def update(
    *jobs: JobName,
    priority: int | None = None,
    deadline: str | None = None,
    queue: str | None = None,
    max_cost: str | None = None,
    max_duration: str | None = None,
    value: str | None = None,
    models: str | None = None,
    nodes: int | None = None,
    gpus: int | None = None,
    gpu_memory: str | None = None,
    cpus: float | None = None,
    memory: str | None = None,
    sites: str | None = None,
    not_sites: str | None = None,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    output: Output = "table",
    connection: Connection = HERE,
) -> int:
    """Change jobs that wait or run; an array's name means all its tasks. Texts as in a job file; `none` takes a deadline or limit away.

    Parameters
    ----------
    priority:
        0 to 100.
    deadline:
        When it should be done: 2h from now, 18:00 here, or 2026-12-01T08:00:00Z.
    queue:
        Path of another queue.
    max_cost:
        Such as '40 USD'.
    max_duration:
        Such as 4h.
    value:
        What meeting the deadline is worth, such as '200 USD'.
    models:
        GPU models that will do, such as 'A100|H100'. This and the following are changed while it waits.
    nodes:
        How many nodes.
    gpus:
        Whole GPUs per node.
    gpu_memory:
        Memory of each GPU, such as 40GiB.
    cpus:
        Cores per node.
    memory:
        Memory per node, such as 256GiB.
    sites:
        Only these sites, such as 'north|south'.
    not_sites:
        Any site but these.
    dry_run:
        Say what would become of a job that waits, and change nothing.
    """
    if deadline not in (None, "none"):
        deadline = format_instant(moment_at(deadline, "--deadline", time.time(), ahead=True))
    needs = (models, nodes, gpus, gpu_memory, cpus, memory, sites, not_sites)
    patch = JobPatch(priority, deadline, queue, max_cost, max_duration, value, *needs)
    changed = {key: new for key, new in msgspec.structs.asdict(patch).items() if new is not None}
    if not changed:
        raise Invalid(
            "nothing to change", remedy="name at least one of --" + ", --".join(JobPatch.__struct_fields__)
        )
    if dry_run:
        from federator.cli.explain import show_changes

        return show_changes(jobs, patch, output, connection)
    told = "now has " + ", ".join(f"{key} {new}" for key, new in changed.items())
    return act_on("update", jobs, output, connection, patch, told)


def cancel(*jobs: JobName, output: Output = "table", connection: Connection = HERE) -> int:
    """Cancel jobs; an array's name means all its tasks, `sweep[3-7]` some, a pipeline's all its steps. A running one stops within its grace; its record stays."""
    return act_on("cancel", jobs, output, connection)


def hold(*jobs: JobName, yes: Yes = False, output: Output = "table", connection: Connection = HERE) -> int:
    """Keep jobs from starting; a running one stops and frees its GPUs. Without `checkpoint` in its file it starts from the beginning afterwards, and you are asked first."""
    if not _may_stop(jobs, connection, yes=yes):
        return FAILED
    return act_on("hold", jobs, output, connection)


def release(*jobs: JobName, output: Output = "table", connection: Connection = HERE) -> int:
    """Let held jobs go on."""
    return act_on("release", jobs, output, connection)


def requeue(*jobs: JobName, yes: Yes = False, output: Output = "table", connection: Connection = HERE) -> int:
    """Stop the present attempt of jobs and let them wait for another place. Without `checkpoint` in its file a job starts from the beginning there, and you are asked first."""
    if not _may_stop(jobs, connection, yes=yes):
        return FAILED
    return act_on("requeue", jobs, output, connection)


def _may_stop(jobs: tuple[str, ...], connection: Connection, *, yes: bool) -> bool:
    """Whether what runs may be stopped: who loses work by that is asked first."""
    if yes:
        return True
    from federator.cli.consent import agreed, work_at_stake

    return agreed(ask(connection, lambda client: work_at_stake(client, jobs))[0])


def act_on(
    verb: Verb,
    jobs: tuple[str, ...],
    output: Output,
    connection: Connection,
    patch: JobPatch | None = None,
    told: str = "",
) -> int:
    """One request for all of them; it fails if there is one of which nothing could be changed."""
    if not jobs:
        raise Invalid("no job is named", field="JOB", remedy="write one or more ids or names")
    answers, _ = ask(connection, lambda client: client.act(verb, jobs, patch))
    if output in ("json", "yaml"):
        show_data(answers, output)
    for each in answers:
        if each.left and not each.changed:
            say_error(plain(each.left_because))
        elif output in ("table", "wide"):
            show(_acted(each, told or each.because))
    return EXITS[Conflict] if any(each.left and not each.changed for each in answers) else 0


def _acted(each: ActedOn, told: str) -> Text:
    """Statuses, whose, and why; how many of an array are in each, where they differ."""
    line = Text()
    for name, count in sorted(each.status.items()):
        line.append(", " if line else "").append_text(status(name))
        line.append(f" {count}" if sum(each.status.values()) > 1 else "")
    left = f"; {each.left} left as they are, the first because {each.left_because}" if each.left else ""
    return line.append(f"  {plain(each.label)}  {plain(told)}{plain(left)}", style="default")
