"""`policy replay`: what a proposed set of policies would have done with the load that there was, beside the set in force.

Both sets are simulated: production code on virtual time, with the true run times of the jobs that have ended. Nothing is applied.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
from cyclopts import Parameter

from federator.cli.contrast import put, show_contrast, show_troubles, writable, write_contrast
from federator.cli.exit_codes import FAILED, OK
from federator.cli.live import LIVE, since_s, take
from federator.cli.output import say_error
from federator.cli.phrases import plain
from federator.cli.planner import ready_planner
from federator.cli.policy_files import FileOption, PolicyText, read_set
from federator.cli.session import HERE, Connection, ask
from federator.cli.simulate import ProgressBar
from federator.kernel.errors import FederatorError, Invalid, Permanent

if TYPE_CHECKING:
    from federator.simulation.live import Live

AND_NOTHING_ELSE = "give both files, or none of them for the dispatcher's own load"


class _Load(NamedTuple):
    """On which load the sets are compared; `live.world` has the policies in force."""

    live: "Live"
    trace: str
    limit: float | None


def replay(
    *files: Path,
    file: FileOption = (),
    since: Annotated[str, Parameter(group=LIVE)] = "7d",
    world: Path | None = None,
    trace: Path | None = None,
    seed: int = 0,
    at_dispatcher: Annotated[bool, Parameter(negative="")] = False,
    json: Path | None = None,
    report: Path | None = None,
    connection: Connection = HERE,
) -> int:
    """Run a proposed set on the load that there was, beside the set in force: jobs moved, dollars, deadlines, waits.

    Nothing is applied, and nothing is started. Needs the role platform, or --world and --trace.

    Parameters
    ----------
    files:
        YAML files, or folders of them; together they are the whole proposed set.
    since:
        The load of so long a time until now.
    world:
        Run on this world, whose policies count as those in force, in place of the dispatcher's.
    trace:
        Run on the jobs of this file, in place of the dispatcher's.
    seed:
        Of what is drawn: spot interruptions and the like.
    at_dispatcher:
        Simulate it there and not here, within limits.policy_replay_s.
    json:
        Write all figures to this file.
    report:
        Write a page of tables to this HTML file; it opens without a network.
    """
    from federator.simulation.loads import LoadOptions
    from federator.simulation.policy_replay import replayed
    from federator.simulation.study import study_of

    writable(json, report)
    try:
        proposed = _proposed((*files, *file))
    except ExceptionGroup as refused:
        for fault in refused.exceptions:
            say_error(plain(fault.describe() if isinstance(fault, FederatorError) else str(fault)))
        return FAILED
    if at_dispatcher:
        return _at_the_dispatcher(proposed, since, seed, (world, trace, report), json, connection)
    load = _load(world, trace, since, connection)
    options = LoadOptions(limit=load.limit)
    ready_planner()
    found, remarks, troubles = replayed(load.live, proposed, options, seed=seed, progress=ProgressBar())
    study = study_of(load.live.world, load.trace, options, found.runs)
    show_contrast(found.contrast, remarks)
    write_contrast(found, study, remarks, json, report)
    return FAILED if show_troubles(troubles) else OK


def _at_the_dispatcher(
    proposed: str,
    since: str,
    seed: int,
    elsewhere: tuple[Path | None, ...],
    json: Path | None,
    connection: Connection,
) -> int:
    """Have the dispatcher simulate it, and show what comes."""
    if any(elsewhere):
        raise Invalid("takes no --world, --trace or --report", field="--at-dispatcher", remedy="leave it out")
    length_s = since_s(since)
    found, _ = ask(connection, lambda client: client.replay_policies(proposed, last_s=length_s, seed=seed))
    if found.contrast is None:
        for problem in found.problems:
            say_error(plain(problem.detail))
        return FAILED
    show_contrast(found.contrast, found.remarks)
    if json is not None:
        put(json, msgspec.json.format(msgspec.json.encode(found)).decode() + "\n")
    return FAILED if show_troubles(found.troubles) else OK


def _proposed(files: tuple[Path, ...]) -> str:
    """The proposed set as one text, checked before anything is run. Raises `Invalid`, or an ExceptionGroup of all that is wrong with it."""
    from federator_policies.documents import compile_set, load

    if not files:
        raise Invalid(
            "no policy file", field="FILES", remedy="name one or more YAML files, or a folder: -f policies/"
        )
    written = read_set(files, allow_empty=True)
    try:
        compile_set(load(written.text))
    except (Permanent, ExceptionGroup) as error:
        faults = error.exceptions if isinstance(error, ExceptionGroup) else (error,)
        raise ExceptionGroup(
            "the proposed set is not valid", [_located(each, written) for each in faults]
        ) from None
    return written.text


def _located(fault: Exception, written: PolicyText) -> Exception:
    """The same fault, by file and its line."""
    if not isinstance(fault, Permanent):
        return fault
    return type(fault)(written.located(fault.message), field=fault.field, remedy=fault.remedy)


def _load(world: Path | None, trace: Path | None, since: str, connection: Connection) -> _Load:
    from federator.simulation.live import Live
    from federator.simulation.traces import read_trace
    from federator.simulation.world_files import load_world

    if world is None and trace is None:
        return _Load(take(since, connection), f"the last {since}", None)
    if world is None or trace is None:
        raise Invalid("is missing", field="--world" if world is None else "--trace", remedy=AND_NOTHING_ELSE)
    return _Load(Live(load_world(world), tuple(read_trace(trace)), ()), trace.name, 4.0)
