"""`policy replay`: what a proposed set of policies would have done with the load that there was, beside the set in force.

Both sets are simulated: production code on virtual time, with the true run times of the jobs that have ended. Nothing is applied.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from cyclopts import Parameter

from federator.cli.contrast import show_contrast, troubles, writable, write_contrast
from federator.cli.exits import FAILED, OK
from federator.cli.live import LIVE, take
from federator.cli.output import say_error
from federator.cli.phrases import counted, plain
from federator.cli.planner import ready_planner
from federator.cli.policy_files import Written, read_set
from federator.cli.session import HERE, Connection
from federator.cli.simulate import Progress
from federator.kernel.errors import FederatorError, Invalid, Permanent
from federator.model.identity import Caller, Role
from federator.model.queues import DEFAULT_QUEUE

if TYPE_CHECKING:
    from federator.control.administration.authority import Authority
    from federator.simulation.live import Live
    from federator.simulation.work import TraceJob

MOST_TOLD = 20
"""So many of those are named who could no longer submit."""
AND_NOTHING_ELSE = "give both files, or none of them for the dispatcher's own load"


class _Load(NamedTuple):
    """On which load the sets are compared; `live.world` has the policies in force."""

    live: "Live"
    trace: str
    limit: float | None


def replay(
    *files: Path,
    file: Annotated[
        tuple[Path, ...], Parameter(name=("-f", "--file"), consume_multiple=True, negative="")
    ] = (),
    since: Annotated[str, Parameter(group=LIVE)] = "7d",
    world: Path | None = None,
    trace: Path | None = None,
    seed: int = 0,
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
    file:
        The same, as an option.
    since:
        The load of so long a time until now.
    world:
        Run on this world, whose policies count as those in force, in place of the dispatcher's.
    trace:
        Run on the jobs of this file, in place of the dispatcher's.
    seed:
        Of what is drawn: spot interruptions and the like.
    json:
        Write all figures to this file.
    report:
        Write a page of tables to this HTML file; it opens without a network.
    """
    from msgspec.structs import replace

    from federator.simulation.contrast import Side, contrasted
    from federator.simulation.loads import LoadOptions
    from federator.simulation.study import Study, summarised

    writable(json, report)
    try:
        proposed = _proposed((*files, *file))
    except ExceptionGroup as refused:
        for fault in refused.exceptions:
            say_error(plain(fault.describe() if isinstance(fault, FederatorError) else str(fault)))
        return FAILED
    load = _load(world, trace, since, connection)
    where, options = load.live.world, LoadOptions(limit=load.limit)
    ready_planner()
    found = contrasted(
        (Side("in force", where), Side("proposed", replace(where, policies=proposed))),
        load.live.jobs,
        options,
        seed=seed,
        changes=_changes(where.policies, proposed),
        progress=Progress(),
    )
    study = Study(
        world=where.name,
        gpus=where.gpus,
        trace=load.trace,
        options=options,
        capacity=1.0,
        runs=found.runs,
        summaries=summarised(found.runs),
    )
    remarks = (*load.live.remarks, *_shut_out(where.policies, proposed, load.live.jobs))
    show_contrast(found.contrast, remarks)
    write_contrast(found, study, remarks, json, report)
    return FAILED if troubles(found) else OK


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


def _located(fault: Exception, written: Written) -> Exception:
    """The same fault, by file and its line."""
    if not isinstance(fault, Permanent):
        return fault
    return type(fault)(written.located(fault.message), field=fault.field, remedy=fault.remedy)


def _changes(in_force: str, proposed: str) -> tuple[str, ...]:
    """Which documents the proposed set has, has not, and has otherwise."""
    old, new = _documents(in_force), _documents(proposed)
    told = [f"{name} is new" for name in new if name not in old]
    told += [f"{name} is removed" for name in old if name not in new]
    told += [f"{name} is changed" for name, text in new.items() if name in old and old[name] != text]
    return tuple(told) or ("the same documents",)


def _shut_out(in_force: str, proposed: str, jobs: Sequence["TraceJob"]) -> tuple[str, ...]:
    """Who has submitted in that time and could not any more: a simulation takes all work that was admitted, whoever's it is."""
    old, new = _authority(in_force), _authority(proposed)
    if not new.closed:
        return ()
    load = Counter((job.owner, job.queue or DEFAULT_QUEUE) for job in jobs)
    told = [
        f"{owner} could no longer submit to {queue} ({counted(jobs, 'job')} of this load)"
        for (owner, queue), jobs in sorted(load.items())
        if _may_submit(old, owner, queue) and not _may_submit(new, owner, queue)
    ]
    more = [f"and {len(told) - MOST_TOLD} more like these"] if len(told) > MOST_TOLD else []
    note = ["who may submit is judged by name alone: groups of the sign-in are not on record with jobs"]
    return (*told[:MOST_TOLD], *more, *note) if told else ()


def _may_submit(authority: "Authority", owner: str, queue: str) -> bool:
    """A queue that is gone from the set is another matter: jobs there are refused by the simulation itself."""
    known = any(terms.queue == queue for terms in authority.queues)
    return not known or bool(authority.found(Caller(owner, Role.USER), queue))


def _authority(text: str) -> "Authority":
    from federator.control.administration.authority import Authority
    from federator_policies.documents import compile_set, load

    return Authority(compile_set(load(text)) if text.strip() else ())


def _documents(text: str) -> dict[str, str]:
    from federator_policies.documents import load

    stored = [each.stored() for each in load(text)] if text.strip() else []
    return {f"{each.kind}/{each.name}": each.text.strip() for each in stored}


def _load(world: Path | None, trace: Path | None, since: str, connection: Connection) -> _Load:
    from federator.simulation.live import Live
    from federator.simulation.traces import read_trace
    from federator.simulation.world_files import load_world

    if world is None and trace is None:
        return _Load(take(since, connection), f"the last {since}", None)
    if world is None or trace is None:
        raise Invalid("is missing", field="--world" if world is None else "--trace", remedy=AND_NOTHING_ELSE)
    return _Load(Live(load_world(world), tuple(read_trace(trace)), ()), trace.name, 4.0)
