"""The judge of a history. It knows what is promised and nothing of how it is kept: it imports nothing but what was written down.

Client ids and jobs are objects of their own, and a history is linearizable if what was asked of each object is (Herlihy and Wing, 1990). A client id
is a register that is written once. A job goes through its statuses by itself, in an order that its events tell in the end: a history of reads is linearizable
if each read can be given a place in that order, between its beginning and its end, so that no place lies before that of a read which was over
before this one began.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from tests.histories.record import MISSING, History, Line, Operation, Outcome

OVER = frozenset({"SUCCEEDED", "FAILED", "CANCELLED"})
CANCELLED = OVER | {"CANCELLING"}
TICK_S = 0.02
"""Jobs read the time to a hundredth of a second."""
NOT_THERE = -1
"""The place of a job that is not there yet."""


def judge(history: History) -> list[str]:
    """Everything that is wrong, in words; empty: nothing is."""
    return [fault for check in CHECKS for fault in check(history)]


def one_job_for_each_client_id(history: History) -> Iterator[str]:
    """Whatever is answered to a client id is the same job, and no other's."""
    jobs: defaultdict[str, set[str]] = defaultdict(set)
    for each in _submissions(history):
        jobs[each.key].add(each.job)
    for outcome in history.outcomes:
        jobs[outcome.client_id].add(outcome.job)
    for client_id, found in jobs.items():
        if len(found) > 1:
            yield f"{client_id} has {len(found)} jobs: {', '.join(sorted(found))}"
    owners = Counter(job for found in jobs.values() for job in found)
    yield from (f"{job} is of {count} client ids" for job, count in owners.items() if count > 1)


def nothing_lost_and_nothing_invented(history: History) -> Iterator[str]:
    """Acknowledged jobs are there in the end, and over; what is there was asked for."""
    outcomes = {outcome.job: outcome for outcome in history.outcomes}
    asked = {each.key for each in history.operations if each.kind == "submit"}
    for job in {each.job for each in _submissions(history)}:
        if job not in outcomes:
            yield f"{job} was acknowledged and is lost"
    for outcome in outcomes.values():
        if outcome.client_id not in asked:
            yield f"{outcome.job} was never asked for"
        if outcome.status not in OVER:
            yield f"{outcome.job} is still {outcome.status}"


def statuses_in_order(history: History) -> Iterator[str]:
    """Of each job, the history of what was read of it is linearizable."""
    for outcome in history.outcomes:
        yield from _in_order(outcome, _looks(history, outcome.job))


def _in_order(outcome: Outcome, looks: Sequence[tuple[Operation, frozenset[str]]]) -> Iterator[str]:
    """`looks`: each with the statuses of which it saw one. To take the earliest place that is possible is best for all that come later."""
    placed: list[tuple[float, int]] = []
    for look, statuses in sorted(looks, key=lambda each: each[0].started_s):
        first = max((place for ended_s, place in placed if ended_s < look.started_s), default=NOT_THERE)
        place = _next_place(outcome.steps, first, statuses)
        if place is None:
            since = outcome.steps[max(first, 0)] if outcome.steps else "nothing"
            yield f"{outcome.job} was {'/'.join(sorted(statuses))} to a {look.kind} after {since} (step {first}) was known of {outcome.steps}"
        else:
            placed.append((look.ended_s, place))


def _next_place(steps: Sequence[str], first: int, statuses: frozenset[str]) -> int | None:
    if first == NOT_THERE and MISSING in statuses:
        return NOT_THERE
    return next((n for n in range(max(first, 0), len(steps)) if steps[n] in statuses), None)


def _looks(history: History, job: str) -> list[tuple[Operation, frozenset[str]]]:
    looks = []
    for each in history.operations:
        if not each.answered:
            continue
        seen = [status for name, status in each.seen if name == job]
        if each.kind == "submit" and each.job == job:
            looks.append((each, frozenset(_statuses_of(history, job))))
        elif each.kind == "cancel" and each.key == job:
            looks.append((each, CANCELLED))
        elif each.kind == "list" and not seen:
            looks.append((each, frozenset({MISSING})))
        elif seen:
            looks.append((each, frozenset(seen)))
    return looks


def _statuses_of(history: History, job: str) -> tuple[str, ...]:
    """A submission is answered once the job is there, in whatever status."""
    return next(outcome.steps for outcome in history.outcomes if outcome.job == job)


class Reading(NamedTuple):
    """What one answer said of a job: by number, the exit codes of its attempts; None where it says nothing of attempts."""

    started_s: float
    ended_s: float
    status: str
    codes: dict[int, int | None] | None


def nothing_read_is_unread(history: History) -> Iterator[str]:
    """The number of attempts never falls; an exit code that was read once stays, and so does a status that is an end."""
    for outcome in history.outcomes:
        readings = _readings(history, outcome)
        for now in readings:
            before = [each for each in readings if each.ended_s < now.started_s]
            yield from _unread(outcome.job, before, now)


def _readings(history: History, outcome: Outcome) -> list[Reading]:
    """All that was said of a job, what is said in the end among it."""
    readings = [
        Reading(each.started_s, each.ended_s, status, dict(each.attempts) if each.kind == "read" else None)
        for each in history.operations
        if each.answered
        for job, status in each.seen
        if job == outcome.job
    ]
    codes = dict(enumerate((each.exit_code for each in outcome.attempts), start=1))
    return [*readings, Reading(math.inf, math.inf, outcome.status, codes)]


def _unread(job: str, before: Sequence[Reading], now: Reading) -> Iterator[str]:
    ends = {each.status for each in before} & OVER
    for status in sorted(ends - {now.status}):
        yield f"{job} was read as {status}, and then as {now.status}"
    if now.codes is None:
        return
    known = [(number, code) for each in before for number, code in (each.codes or {}).items()]
    most, newest = max((number for number, _ in known), default=0), max(now.codes, default=0)
    if newest < most:
        yield f"{job} was read to have {most} attempts, and then {newest}"
    for number, code in sorted({(number, code) for number, code in known if code is not None}):
        if now.codes.get(number, code) != code:
            yield f"attempt {number} of {job} was read to have ended with {code}, and then with {now.codes[number]}"


def cancelled_by_somebody(history: History) -> Iterator[str]:
    """Nobody's job is cancelled that nobody has asked to cancel."""
    asked = {each.key for each in history.operations if each.kind == "cancel"}
    for outcome in history.outcomes:
        if outcome.status == "CANCELLED" and outcome.job not in asked:
            yield f"{outcome.job} is CANCELLED, and nobody has asked for it"


def each_attempt_once(history: History) -> Iterator[str]:
    """A placement begins at most once, belongs to its job, and no two of a job run at once."""
    attempts = {each.placement: outcome.job for outcome in history.outcomes for each in outcome.attempts}
    runs = _runs(history)
    for placement, job, processes in {
        (lines[0].placement, lines[0].job, _began(history, lines[0].placement)) for lines in runs
    }:
        if processes > 1:
            yield f"{placement} of {job} began {processes} times"
        if attempts.get(placement) != job:
            yield f"{placement} ran for {job}, which does not know it"
    by_job: defaultdict[str, list[Sequence[Line]]] = defaultdict(list)
    for lines in runs:
        by_job[lines[0].job].append(lines)
    for job, tries in by_job.items():
        tries.sort(key=lambda lines: lines[0].at_s)
        for one, other in pairwise(tries):
            if other[0].at_s < one[-1].at_s - TICK_S:
                yield f"{job} ran as {one[0].placement} and {other[0].placement} at once"
        ends = sum(line.word == "end" for lines in tries for line in lines)
        if ends > 1:
            yield f"{job} ran to its end {ends} times"


def no_run_out_of_its_time(history: History) -> Iterator[str]:
    """Nothing begins before it was asked for, or after somebody was told that it is over."""
    over: dict[str, float] = {}
    asked: dict[str, float] = {}
    jobs = {outcome.client_id: outcome.job for outcome in history.outcomes}
    for each in history.operations:
        for job, status in each.seen if each.answered else ():
            if status in OVER:
                over[job] = min(over.get(job, each.ended_s), each.ended_s)
        if each.kind == "submit" and (of := jobs.get(each.key)):
            asked[of] = min(asked.get(of, each.started_s), each.started_s)
    for line in history.lines:
        if line.word == "start" and line.at_s > over.get(line.job, line.at_s) + TICK_S:
            yield f"{line.job} began as {line.placement} after it was known to be over"
        if line.word == "start" and line.at_s < asked.get(line.job, line.at_s) - TICK_S:
            yield f"{line.job} began before it was asked for"


def results_as_they_were(history: History) -> Iterator[str]:
    """How a job ended and what it said is what it wrote itself."""
    ends = {(line.job, line.placement): line for line in history.lines if line.word == "end"}
    for outcome in history.outcomes:
        if outcome.status not in ("SUCCEEDED", "FAILED"):
            continue
        last = outcome.attempts[-1] if outcome.attempts else None
        end = ends.get((outcome.job, last.placement)) if last else None
        if last is None or end is None:
            yield f"{outcome.job} is {outcome.status}, and its last attempt never came to its end"
            continue
        if (outcome.status == "SUCCEEDED") != (end.code == 0):
            yield f"{outcome.job} is {outcome.status}, and it ended with {end.code}"
        if last.exit_code != end.code:
            yield f"{outcome.job} has the exit code {last.exit_code}, and it ended with {end.code}"
        if outcome.log.split() != [end.token]:
            yield f"{outcome.job} wrote {end.token}, and its log has {outcome.log.split()}"


def ledger_once(history: History) -> Iterator[str]:
    """One line for the submission, one for its cancelling if it was, and one for each attempt that ran."""
    ran = Counter(lines[0].job for lines in _runs(history))
    for outcome in history.outcomes:
        acts = [what for kind, what in outcome.ledger if kind == "act"]
        submitted = sum(what.startswith("submit") for what in acts)
        if submitted != 1:
            yield f"the ledger has {submitted} submissions of {outcome.job}"
        used = sum(kind == "usage" for kind, _ in outcome.ledger)
        least = ran[outcome.job] if outcome.status != "CANCELLED" else 0
        if not least <= used <= max(ran[outcome.job], len(outcome.attempts)):
            yield f"the ledger has {used} uses by {outcome.job}, which ran {ran[outcome.job]} times"


CHECKS: tuple[Callable[[History], Iterator[str]], ...] = (
    one_job_for_each_client_id,
    nothing_lost_and_nothing_invented,
    statuses_in_order,
    nothing_read_is_unread,
    cancelled_by_somebody,
    each_attempt_once,
    no_run_out_of_its_time,
    results_as_they_were,
    ledger_once,
)


def _submissions(history: History) -> list[Operation]:
    return [each for each in history.operations if each.kind == "submit" and each.answered]


def _runs(history: History) -> list[list[Line]]:
    """What each process of a placement wrote, in the order in which they began."""
    found: defaultdict[tuple[str, str, str], list[Line]] = defaultdict(list)
    for line in history.lines:
        found[line.job, line.placement, line.process].append(line)
    return sorted(found.values(), key=lambda lines: lines[0].at_s)


def _began(history: History, placement: str) -> int:
    return sum(line.word == "start" and line.placement == placement for line in history.lines)
