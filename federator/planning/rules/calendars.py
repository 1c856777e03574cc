"""What calendars say of a job and a place: whether work may start there at this hour, whether it would be done before it closes, and from when on it may start."""

import math

from federator.model.rejections import ClosesSoon, OutsideHours
from federator.model.rules import Opening
from federator.model.snapshot import JobView
from federator.planning.places.candidates import Candidate
from federator.planning.rules.openings import changes_at, takes_work
from federator.planning.rules.rulebook import NEVER_WAIT_H, RuleBook

SHORTEST_STAY_S = 600.0
"""For less a job is not started where it would have to save itself and leave again."""

MOST_LOOKS = 16
"""So many times a place may close before it is open for long enough; beyond that it counts as closed for good."""


def next_start(job: JobView, at: Candidate, book: RuleBook, begin: float) -> float:
    """The first moment from `begin` on at which no calendar keeps the job from starting there; infinite where none is in sight."""
    rules = book.hours_of(job, at)
    for _ in range(MOST_LOOKS):
        later = max((_starts_under(rule, job, at, begin) for rule in rules), default=begin)
        if later in {begin, math.inf}:
            return later
        begin = later
    return math.inf


def closure(job: JobView, at: Candidate, book: RuleBook) -> tuple[float, float]:
    """The next time in which no start is possible at an owned place, from when until when; a week stands for ever. Infinite where there is none in sight."""
    rules = book.hours_of(job, at)
    if at.rented or not rules:
        return math.inf, math.inf
    key = (at.key, at.run_s(job), job.saves, job.grace_s, *(rule.policy for rule in rules if rule.but_for))
    if key not in book.closures:
        closes_at = opens_at = min(_closes_under(rule, job, at, book.at) for rule in rules)
        if closes_at < math.inf:
            opens_at = min(next_start(job, at, book, closes_at), book.at + NEVER_WAIT_H * 3600.0)
        book.closures[key] = closes_at, opens_at
    return book.closures[key]


def _closes_under(rule: Opening, job: JobView, at: Candidate, begin: float) -> float:
    """From when on the calendar lets the job start there no more."""
    change = changes_at(rule, begin)
    if change is None or not takes_work(rule, begin):
        return begin if not takes_work(rule, begin) else math.inf
    if not rule.stops:
        return change
    needs_s = _needs_s(job, at)
    return math.nextafter(max(begin, change - needs_s), math.inf)


def _needs_s(job: JobView, at: Candidate) -> float:
    """How long it must be able to stay to begin there at all."""
    return SHORTEST_STAY_S + job.grace_s if job.saves else at.run_s(job)


def _starts_under(rule: Opening, job: JobView, at: Candidate, begin: float) -> float:
    """That moment itself, where the calendar lets the job start then, or else the next at which it changes."""
    change = changes_at(rule, begin)
    if takes_work(rule, begin):
        closes_at = change if rule.stops and change is not None else math.inf
        if begin + _needs_s(job, at) <= closes_at:
            return begin
    return math.inf if change is None else change


def closed_by_calendar(job: JobView, at: Candidate, book: RuleBook) -> OutsideHours | ClosesSoon | None:
    """Why not; None where nothing is in the way."""
    for rule in book.hours_of(job, at):
        change = changes_at(rule, book.at)
        if not takes_work(rule, book.at):
            return OutsideHours(policy=rule.policy, until_at=change)
        finish = book.at + at.run_s(job)
        if not rule.stops or change is None or finish <= change:
            continue
        if not job.saves:
            return ClosesSoon(policy=rule.policy, closes_at=change, late_s=finish - change)
        if change - job.grace_s < book.at + SHORTEST_STAY_S:
            return ClosesSoon(policy=rule.policy, closes_at=change)
    return None
