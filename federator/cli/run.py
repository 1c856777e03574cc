"""`run` and `wait`: a job that behaves like a command – its output here, its exit code passed on, Ctrl-C for both."""

import asyncio
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from federator.cli.arrays import ids_of
from federator.cli.attached import document_of, is_given, run_attached
from federator.cli.exit_codes import FAILED, INTERRUPTED, exit_of
from federator.cli.explain import show_previews
from federator.cli.finish_by import Agree, By, with_terms
from federator.cli.job_options import AS_WRITTEN, NO_FOLDER, JobOptions
from federator.cli.jobfiles import PLACEHOLDER, WrittenJob
from federator.cli.nowhere import nowhere_note
from federator.cli.phrases import plain
from federator.cli.sanitize import LogOutput
from federator.cli.session import HERE, LONG_PATIENCE_S, Connection, ask, open_client
from federator.cli.status_line import LOOK_S, StatusLine, keep_showing
from federator.kernel.errors import FederatorError, Invalid
from federator.model.jobs import TERMINAL, Job, JobStatus
from federator.wire.http import JobDetail, Submitted
from federator.wire.jobfile import read_job

if TYPE_CHECKING:
    from federator.client import Verbs

LAST_OUTPUT_S = 30.0
"""How long after a job's end its output is still waited for."""
REASON_S = 2.0
"""How often a waiting job's reason is looked at."""


def run(
    *command: str,
    options: JobOptions = AS_WRITTEN,
    stdin: Annotated[bool, Parameter(name=("-i", "--stdin"), negative="")] = False,
    pty: Annotated[bool, Parameter(name=("-t", "--pty"), negative="")] = False,
    by: By = None,
    yes: Agree = False,
    detach: Annotated[bool, Parameter(negative="")] = False,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    quiet: Annotated[bool, Parameter(name=("-q", "--quiet"), negative="")] = False,
    connection: Connection = HERE,
) -> int:
    """Run a command somewhere in the federation as if it ran here.

    Its output is streamed and its exit code passed on. Ctrl-C (or SIGTERM) cancels the job; a second one leaves at once.
    When a word of the command names a file in the current folder (as in `-- python train.py`), that folder goes along, without
    what .gitignore and .federatorignore exclude; `--workdir` names another one, `--workdir none` none.

    Parameters
    ----------
    command:
        What to run, after `--`.
    stdin:
        Pass standard input to the command. What it writes comes here alone, and is not kept as the job's log; without you the job ends.
    pty:
        The same in a terminal, for a shell: every key goes there, Ctrl-C too.
    detach:
        Print the job's id and return at once.
    dry_run:
        Say what would become of it, as `federator preview` does.
    quiet:
        Say nothing about the job's progress.
    """
    if not command:
        raise Invalid(
            "nothing to run",
            field="COMMAND",
            remedy="write it after --, as in federator run -- python train.py",
        )
    if options.array and not (detach or dry_run):
        raise Invalid("run follows one job", field="--array", remedy="add --detach, or submit a job file")
    document = {"command": list(command), **options.fields()}
    folder = _folder(options.workdir, command)
    request = read_job({**document, **({"workdir": PLACEHOLDER} if folder else {})}, now=0.0)
    if dry_run:
        show_previews([WrittenJob(document, folder)], "table", connection)
        return 0
    if by is not None:
        agreed = with_terms(document, by, connection, yes=yes)
        if agreed is None:
            return FAILED
        document = agreed
    if stdin or pty:
        if detach:
            raise Invalid(
                "conflicts with --stdin and --pty", field="--detach", remedy="leave one of them out"
            )
        if pty and not sys.stdin.isatty():
            raise Invalid("standard input is not a terminal", field="--pty", remedy="write --stdin")
        return asyncio.run(_run_attached(connection, document, folder, command, pty=pty, quiet=quiet))
    if detach:
        submitted, _ = ask(connection, lambda client: _submit(client, document, folder))
        print("\n".join(ids_of(submitted)))
        return 0
    return asyncio.run(_run(connection, document, folder, nodes=request.spec.nodes, quiet=quiet))


async def _run_attached(
    connection: Connection,
    document: dict[str, object],
    folder: Path | None,
    command: tuple[str, ...],
    *,
    pty: bool,
    quiet: bool,
) -> int:
    async with open_client(connection) as client:
        submitted = await client.submit(document_of(document), workdir=folder)
        job = submitted.jobs[0]
        watched = _Watched(client, job, nodes=1, quiet=quiet)
        watched.say(f"{submitted.name} is {job}")
        return await run_attached(client, job, command, tty=pty, say=watched.say)


def _folder(workdir: Path | None, command: tuple[str, ...]) -> Path | None:
    """The folder that goes along: what was asked for, or the current one when the command names a file in it."""
    if workdir is not None:
        return None if workdir == NO_FOLDER else workdir
    named = any(_is_file_below(Path(word)) for word in command)
    return Path() if named else None


def _is_file_below(path: Path) -> bool:
    try:
        return not path.is_absolute() and ".." not in path.parts and path.is_file()
    except OSError:
        return False


async def _submit(client: "Verbs", document: dict[str, object], folder: Path | None) -> Submitted:
    submitted = await client.submit(document, workdir=folder)
    if note := await nowhere_note(client, document, submitted.jobs[0]):
        print(f"note: {plain(note)}", file=sys.stderr, flush=True)
    return submitted


async def _run(
    connection: Connection, document: dict[str, object], folder: Path | None, *, nodes: int, quiet: bool
) -> int:
    async with open_client(connection) as client:
        submitted = await _submit(client, document, folder)
        job = submitted.jobs[0]
        client.transport.patience_s = LONG_PATIENCE_S
        watched = _Watched(client, job, nodes=nodes, quiet=quiet)
        watched.say(f"{submitted.name} is {job}")
        code = await watched.to_the_end()
        if is_given():
            print("federator: standard input was not passed to the job: add --stdin", file=sys.stderr)
        return code


class _Watched:
    """A job whose output and exit code are ours."""

    def __init__(self, client: "Verbs", job: str, *, nodes: int, quiet: bool) -> None:
        self._client = client
        self._job = job
        self._nodes = nodes
        self._quiet = quiet
        self._cancelling: asyncio.Task[None] | None = None
        self._left = asyncio.Event()
        self._line = StatusLine()

    def say(self, text: str) -> None:
        """A line about the job, beside its output."""
        if not self._quiet:
            self._line.clear()
            print(f"federator: {plain(text)}", file=sys.stderr, flush=True)

    async def to_the_end(self) -> int:
        """Stream until the job is over, or until the person leaves."""
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self.interrupt)
        following = asyncio.ensure_future(self._follow())
        leaving = asyncio.ensure_future(self._left.wait())
        await asyncio.wait({following, leaving}, return_when=asyncio.FIRST_COMPLETED)
        leaving.cancel()
        if not following.done():
            following.cancel()
            self.say(f"left; {self._job} is being cancelled")
            return INTERRUPTED
        job = following.result()
        if self._cancelling is not None and job.status is JobStatus.CANCELLED:
            return INTERRUPTED
        return exit_of(job)

    def interrupt(self) -> None:
        """Ctrl-C: cancel the job, or leave if that has been asked for already."""
        if self._cancelling is None:
            self.say("cancelling; press Ctrl-C again to leave at once")
            self._cancelling = asyncio.ensure_future(self._cancel())
        else:
            self._left.set()

    async def _cancel(self) -> None:
        try:
            await self._client.cancel(self._job)
        except FederatorError as error:
            self.say(error.describe())

    async def _follow(self) -> Job:
        outputs = [asyncio.ensure_future(self._stream(node)) for node in range(self._nodes)]
        reasons = asyncio.ensure_future(self._tell_reasons())
        try:
            await self._tell_events()
            await asyncio.wait(outputs, timeout=LAST_OUTPUT_S)
            job = (await self._client.wait(self._job)).job
        finally:
            for output in (reasons, *outputs):
                output.cancel()
            endings = await asyncio.gather(*outputs, return_exceptions=True)
            await asyncio.gather(reasons, return_exceptions=True)
        for ending in endings:
            if isinstance(ending, FederatorError) and job.started_at is not None:
                self.say(f"its output is not whole: {ending.describe()}")
        self.say(f"{job.status}: {job.because}")
        return job

    async def _tell_events(self) -> None:
        async for event in self._client.events(self._job):
            if event.status in TERMINAL:
                return
            if event.text:
                self.say(f"{event.status}: {event.text}")

    async def _tell_reasons(self) -> None:
        """While the job waits: why, whenever that changes; on a terminal with when it should start, in a line that is written over."""
        if self._line.on and not self._quiet:
            await asyncio.sleep(LOOK_S)
            await keep_showing(self._line, self._client, [self._job], while_=_waits)
            return
        said = ""
        while not self._quiet:
            await asyncio.sleep(REASON_S)
            waiting = (await self._client.job(self._job)).waiting
            if waiting is not None and waiting.because != said:
                said = waiting.because
                self.say(f"waits: {said}")

    async def _stream(self, node: int) -> None:
        """Pass a node's output on; a gang's lines carry the rank."""
        rest, out = b"", LogOutput()
        try:
            async for chunk in self._client.logs(self._job, node=node, follow=True):
                self._line.clear()
                if self._nodes == 1:
                    out.write(chunk)
                    continue
                *lines, rest = (rest + chunk).split(b"\n")
                out.write(b"".join(b"[%d] %s\n" % (node, line) for line in lines))
            if rest:
                out.write(b"[%d] %s\n" % (node, rest))
        except BrokenPipeError:
            # Nobody reads what the job says any more: that is Ctrl-C in other words.
            if self._cancelling is None:
                self.interrupt()


def _waits(detail: JobDetail) -> bool:
    """Whether nothing of the job's output comes yet."""
    return not detail.job.terminal and detail.job.started_at is None
