"""A proposed set of policies on the load that there was, beside the set in force: both sides simulated, nothing applied.

`federator policy replay` runs it where it is typed, and a dispatcher in a child process (`policy_trial`).
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from federator.control.administration.authority import Authority
from federator.model.identity import Caller, Role
from federator.model.queues import DEFAULT_QUEUE
from federator.simulation.contrast import TURNS_APART, Contrasted, Progress, Side, contrasted
from federator.simulation.live import Live
from federator.simulation.loads import LoadOptions
from federator.simulation.work import TraceJob
from federator_policies.documents import compile_set, load

MOST_TOLD = 20
"""So many of those are named who could no longer submit."""


class Replayed(NamedTuple):
    """What came of it. `remarks`: what the simulation does not know; `troubles`: what cannot be true of either side."""

    found: Contrasted
    remarks: tuple[str, ...]
    troubles: tuple[str, ...]


def replayed(
    live: Live, proposed: str, options: LoadOptions, *, seed: int = 0, progress: Progress | None = None
) -> Replayed:
    """Run both sides; `live.world` has the policies in force. Raises `Invalid` where a set cannot be."""
    where = live.world
    found = contrasted(
        (Side("in force", where), Side("proposed", replace(where, policies=proposed))),
        live.jobs,
        options,
        seed=seed,
        changes=changes(where.policies, proposed),
        progress=progress,
    )
    remarks = (*live.remarks, *_shut_out(where.policies, proposed, live.jobs), TURNS_APART)
    return Replayed(found, remarks, found.troubles)


def changes(in_force: str, proposed: str) -> tuple[str, ...]:
    """Which documents the proposed set has, has not, and has otherwise."""
    old, new = _documents(in_force), _documents(proposed)
    told = [f"{name} is new" for name in new if name not in old]
    told += [f"{name} is removed" for name in old if name not in new]
    told += [f"{name} is changed" for name, text in new.items() if name in old and old[name] != text]
    return tuple(told) or ("the same documents",)


def _shut_out(in_force: str, proposed: str, jobs: Sequence[TraceJob]) -> tuple[str, ...]:
    """Who has submitted in that time and could not any more: a simulation takes all work that was admitted, whoever's it is."""
    old, new = _authority(in_force), _authority(proposed)
    if not new.closed:
        return ()
    load = Counter((job.owner, job.queue or DEFAULT_QUEUE) for job in jobs)
    told = [
        f"{owner} could no longer submit to {queue} ({_jobs(jobs)} of this load)"
        for (owner, queue), jobs in sorted(load.items())
        if _may_submit(old, owner, queue) and not _may_submit(new, owner, queue)
    ]
    more = [f"and {len(told) - MOST_TOLD} more like these"] if len(told) > MOST_TOLD else []
    note = ["who may submit is judged by name alone: groups of the sign-in are not on record with jobs"]
    return (*told[:MOST_TOLD], *more, *note) if told else ()


def _may_submit(authority: Authority, owner: str, queue: str) -> bool:
    """A queue that is gone from the set is another matter: jobs there are refused by the simulation itself."""
    known = any(terms.queue == queue for terms in authority.queues)
    return not known or bool(authority.found(Caller(owner, Role.USER), queue))


def _authority(text: str) -> Authority:
    return Authority(compile_set(load(text)) if text.strip() else ())


def _documents(text: str) -> dict[str, str]:
    stored = [each.stored() for each in load(text)] if text.strip() else []
    return {f"{each.kind}/{each.name}": each.text.strip() for each in stored}


def _jobs(count: int) -> str:
    return f"{count:,} {'job' if count == 1 else 'jobs'}"
