"""Logs of the processes that do without structlog: agents and the operator. The dispatcher's JSON lines (`federator.telemetry`) have the same fields and the same traces."""

import json
import logging
import re
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from federator.kernel.ids import JOB_ID, value_of

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_PLACEMENT_ID = re.compile(r"\bpl-[0-9a-hjkmnp-tv-z]{26}\b")


def configure(
    *, level: int = logging.INFO, as_json: bool = False, job_of: Callable[[str], str] = str
) -> None:
    """Send all logs to standard error, as lines for people or as JSON. May be called again. `job_of`: whose a placement is, which has a line about it named with the job's trace."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(job_of) if as_json else logging.Formatter(TEXT))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)


def trace_in(texts: Iterable[str]) -> str:
    """The trace of the job that texts name, in hex, if they name just one; else empty."""
    found = {each for text in texts for each in JOB_ID.findall(text)}
    return f"{value_of(found.pop()) or 1:032x}" if len(found) == 1 else ""


class JsonLines(logging.Formatter):
    """One object a line."""

    def __init__(self, job_of: Callable[[str], str] = str) -> None:
        super().__init__()
        self._job_of = job_of

    def format(self, record: logging.LogRecord) -> str:
        """Control characters are escaped, as JSON has them."""
        event = record.getMessage()
        line = {
            "event": event,
            "level": record.levelname.lower(),
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat().replace("+00:00", "Z"),
            "logger": record.name,
        }
        if trace := trace_in((event, *map(self._job_of, _PLACEMENT_ID.findall(event)))):
            line["trace_id"] = trace
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)
