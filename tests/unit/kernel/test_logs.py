"""Lines of agents and of the operator as JSON: what collectors read, and search by."""

import json
import logging
import sys

from federator.kernel.logs import JsonLines
from federator.model.spans import trace_id

ONE, OTHER = "job-01k742sg0013452znrksnf95fy", "job-01k742sg0013452znrksnf95fz"
PLACEMENT = "pl-01k742sg0013452znrksnf95fz"


def _line(message: str, *words: object, exc_info: object = None) -> dict[str, str]:
    record = logging.LogRecord("federator.x", logging.WARNING, "", 0, message, words, exc_info)  # type: ignore[arg-type]
    text = JsonLines(lambda each: ONE if each == PLACEMENT else "").format(record)
    assert "\n" not in text
    found: dict[str, str] = json.loads(text)
    return found


def test_a_line_has_the_fields_that_the_dispatchers_have() -> None:
    line = _line("said %s", "a\nb")
    assert line.pop("timestamp").endswith("Z")
    assert line == {"event": "said a\nb", "level": "warning", "logger": "federator.x"}


def test_a_line_about_one_job_or_its_placement_names_its_trace() -> None:
    for said in (ONE, PLACEMENT, f"{ONE} as {PLACEMENT}"):
        assert _line("%s is gone", said)["trace_id"] == f"{trace_id(ONE):032x}"
    assert "trace_id" not in _line("%s and %s", ONE, OTHER)
    assert "trace_id" not in _line("pl-01k742sg0013452znrksnf95f0 is unknown")


def test_an_error_has_its_traceback() -> None:
    try:
        int("x")
    except ValueError:
        assert "ValueError" in _line("failed", exc_info=sys.exc_info())["traceback"]
