"""What calendars say of a job and a place: whether work may start there at this hour, and whether it would be done before it closes."""

from federator.model.snapshot import JobView
from federator.planning.candidates import Candidate
from federator.planning.openings import changes_at, takes_work
from federator.planning.rulebook import RuleBook
from federator.planning.wording import moment, span

SHORTEST_STAY_S = 600.0
"""For less a job is not started where it would have to save itself and leave again."""


def closed_by_calendar(job: JobView, at: Candidate, book: RuleBook) -> tuple[str, str] | None:
    """Why not, and what would help; None where nothing is in the way."""
    for rule in book.openings:
        if not at.selected_by(rule.pools):
            continue
        change = changes_at(rule, book.at)
        if not takes_work(rule, book.at):
            when = "for longer than a week" if change is None else f"until {moment(change, book.at)}"
            wait = "" if change is None else f"wait until {moment(change, book.at)}"
            return f"policy {rule.policy} has it closed {when}", wait
        finish = book.at + at.run_s(job)
        if not rule.stops or change is None or finish <= change:
            continue
        closes = f"policy {rule.policy} closes it at {moment(change, book.at)}"
        if not job.saves:
            late = f"{span(finish - change)} before the job is expected to be done, which cannot save itself"
            return f"{closes}, {late}", "write checkpoint, or a shorter estimate"
        if change - job.grace_s < book.at + SHORTEST_STAY_S:
            return f"{closes}: too soon to begin there", "wait until it opens again"
    return None
