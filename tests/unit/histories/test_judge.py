"""The judge of histories finds each kind of what must not be, and nothing in a history that is good."""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tests.histories.judge
import tests.histories.record
from tests.histories.judge import CHECKS, judge
from tests.histories.record import MISSING, Attempt, History, Line, Operation, Outcome

STEPS = ("PENDING", "PLACED", "RUNNING", "SUCCEEDED")
LEDGER = (("act", "submit h"), ("usage", "1 × 1 GPUs"))
OURS = {"tests.histories.record", "tests.histories.judge"}


def _good(**changes: Any) -> History:
    """One job that failed its first answer, and one that was cancelled while it waited."""
    told = Operation
    operations = (
        told("list", "", 0.0, 0.5),
        told("submit", "id-a", 1.0),
        told("submit", "id-a", 3.0, 3.5, job="a"),
        told("read", "a", 3.6, 3.7, seen=(("a", "PENDING"),)),
        # At the same time, so either may have been first.
        told("read", "a", 4.0, 6.0, seen=(("a", "RUNNING"),), attempts=((1, None),)),
        told("read", "a", 5.0, 7.0, seen=(("a", "PLACED"),)),
        told("submit", "id-b", 5.0, 5.1, job="b"),
        told("cancel", "b", 5.2, 5.3),
        told("list", "", 8.0, 9.5, seen=(("a", "SUCCEEDED"), ("b", "CANCELLED"))),
    )
    lines = (Line("start", "a", "pl-a", "1", 5.0, 0, "t"), Line("end", "a", "pl-a", "1", 7.0, 0, "t"))
    outcomes = (
        Outcome("a", "SUCCEEDED", "id-a", STEPS, (Attempt("pl-a", 0),), LEDGER, "t\n"),
        Outcome("b", "CANCELLED", "id-b", ("PENDING", "CANCELLED"), (), (("act", "submit h"), ("act", "cancel")), ""),
    )  # fmt: skip
    return History(0, operations, lines, outcomes)._replace(**changes)


GOOD = _good()


def _but_job(**changes: Any) -> History:
    return _good(outcomes=(GOOD.outcomes[0]._replace(**changes), GOOD.outcomes[1]))


def _and_asked(*operations: Operation) -> History:
    return _good(operations=(*GOOD.operations, *operations))


def _and_written(*lines: Line) -> History:
    return _good(lines=(*GOOD.lines, *lines))


def _read(job: str, status: str, started_s: float = 20.0) -> Operation:
    return Operation("read", job, started_s, started_s + 0.1, seen=((job, status),))


def _attempts(started_s: float, *attempts: tuple[int, int | None]) -> Operation:
    return _read("a", "SUCCEEDED", started_s)._replace(attempts=attempts)


AGAIN = Line("start", "a", "pl-2", "2", 6.0, 0, "u")
TWO = (Attempt("pl-a", None), Attempt("pl-2", 0))
BAD: dict[str, tuple[History, str]] = {
    "a second job for a client id": (_and_asked(Operation("submit", "id-a", 9.0, 9.1, job="b")), "has 2 jobs"),
    "a second job in the end only": (_but_job(client_id="id-b"), "has 2 jobs"),
    "one job for two": (_and_asked(Operation("submit", "id-c", 9.0, 9.1, job="a")), "is of 2 client ids"),
    "a lost job": (_good(outcomes=GOOD.outcomes[1:]), "a was acknowledged and is lost"),
    "an unfinished job": (_but_job(status="RUNNING")._replace(operations=GOOD.operations[:-1]), "a is still RUNNING"),
    "a job of nobody": (
        _good(outcomes=(*GOOD.outcomes, GOOD.outcomes[1]._replace(job="c", client_id="id-c"))),
        "was never asked for",
    ),
    "a read of what was before": (_and_asked(_read("a", "RUNNING")), "a was RUNNING to a read after SUCCEEDED"),
    "a read of nothing": (_and_asked(_read("a", MISSING)), "a was MISSING"),
    "a list without a job that was acknowledged": (
        _and_asked(Operation("list", "", 4.0, 4.1, seen=(("b", "PENDING"),))),
        "a was MISSING to a list",
    ),
    "two reads in the wrong order": (
        _and_asked(_read("a", "PENDING", 7.2)),
        "a was PENDING to a read after",
    ),
    "a status that it never had": (_and_asked(_read("a", "HELD", 3.8)), "a was HELD"),
    "an attempt that is unread": (
        _and_asked(_attempts(20.0, (1, None), (2, None)), _attempts(21.0, (1, None))),
        "a was read to have 2 attempts, and then 1",
    ),
    "an exit code that is unread": (
        _and_asked(_attempts(20.0, (1, 0)), _attempts(21.0, (1, None))),
        "attempt 1 of a was read to have ended with 0, and then with None",
    ),
    "an exit code that was another when it was read": (
        _and_asked(_attempts(20.0, (1, 7))),
        "attempt 1 of a was read to have ended with 7, and then with 0",
    ),
    "an end that is unread": (
        _but_job(steps=(*STEPS, *STEPS[2:]))._replace(operations=(*GOOD.operations, _read("a", "RUNNING"))),
        "a was read as SUCCEEDED, and then as RUNNING",
    ),
    "a job that goes on waiting after it was cancelled": (_and_asked(_read("b", "PENDING", 5.4)), "b was PENDING"),
    "a job that nobody cancelled": (
        _good(operations=tuple(each for each in GOOD.operations if each.kind != "cancel")),
        "nobody has asked",
    ),
    "a placement that began twice": (_and_written(Line("start", "a", "pl-a", "2", 8.0)), "began 2 times"),
    "a placement that is on no record": (_and_written(AGAIN._replace(at_s=8.0)), "does not know it"),
    "two runs at once": (
        _but_job(attempts=(Attempt("pl-2", None), Attempt("pl-a", 0)), ledger=(*LEDGER, LEDGER[1]))._replace(lines=(*GOOD.lines, AGAIN)),
        "at once",
    ),
    "a job that ran to its end twice": (
        _but_job(attempts=TWO)._replace(
            lines=(*GOOD.lines, AGAIN._replace(at_s=8.0), AGAIN._replace(word="end", at_s=9.0))
        ),
        "ran to its end 2 times",
    ),
    "a run after the end was told": (
        _but_job(attempts=TWO)._replace(lines=(*GOOD.lines, AGAIN._replace(at_s=12.0))),
        "after it was known to be over",
    ),
    "a run before it was asked for": (
        _good(lines=(Line("start", "a", "pl-a", "1", 0.5), GOOD.lines[1])),
        "before it was asked for",
    ),
    "a success of what has failed": (
        _good(lines=(GOOD.lines[0], GOOD.lines[1]._replace(code=3))),
        "it ended with 3",
    ),
    "another exit code": (_but_job(attempts=(Attempt("pl-a", 1),)), "has the exit code 1"),
    "a success without an end": (_good(lines=GOOD.lines[:1]), "never came to its end"),
    "a log that is cut short": (_but_job(log=""), "its log has []"),
    "a log that is there twice": (_but_job(log="t\nt\n"), "its log has"),
    "no line of the ledger": (_but_job(ledger=LEDGER[1:]), "0 submissions"),
    "a submission twice in the ledger": (_but_job(ledger=(*LEDGER, LEDGER[0])), "2 submissions"),
    "a use that is not booked": (_but_job(ledger=LEDGER[:1]), "0 uses"),
    "a use that is booked twice": (_but_job(ledger=(*LEDGER, LEDGER[1])), "2 uses"),
}  # fmt: skip


def test_a_good_history_is_good() -> None:
    assert judge(GOOD) == []


@pytest.mark.parametrize("what", BAD)
def test_what_must_not_be_is_found(what: str) -> None:
    history, said = BAD[what]
    found = judge(history)
    assert any(said in fault for fault in found), found


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_each_check_finds_something_that_no_other_does(check: Callable[..., Any]) -> None:
    others = [each for each in CHECKS if each is not check]
    assert any(
        list(check(history)) and not any(fault for each in others for fault in each(history))
        for history, _ in BAD.values()
    )


def test_a_job_that_waits_again_may_be_seen_so() -> None:
    """Going back is no fault where the job really went back."""
    steps = ("PENDING", "PLACED", "PENDING", "PLACED", "RUNNING", "SUCCEEDED")
    reads = (_read("a", "PLACED", 3.8), _read("a", "PENDING", 3.91), _read("a", "PLACED", 3.95))
    history = _but_job(steps=steps)
    assert judge(history._replace(operations=(*history.operations, *reads))) == []


def test_it_shares_no_code_with_the_product() -> None:
    for module in (tests.histories.judge, tests.histories.record):
        tree = ast.parse(Path(str(module.__file__)).read_text())
        named = {each.module for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)}
        named |= {name.name for each in ast.walk(tree) if isinstance(each, ast.Import) for name in each.names}
        assert not {str(name) for name in named if "federator" in str(name)}
        assert {str(name) for name in named if str(name).startswith("tests")} <= OURS
