"""What the product logs while it is simulated: nothing is written, and one handler hears of errors."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from federator.telemetry import configure_logging


@contextmanager
def overheard(by: logging.Handler) -> Iterator[None]:
    """Inside, errors go to this handler, and nothing goes elsewhere; then all is as it was."""
    root = logging.getLogger()
    level, handlers, config = root.level, root.handlers[:], structlog.get_config()
    configure_logging(level="error")
    root.handlers[:] = [by]
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers
        structlog.configure(**config)
